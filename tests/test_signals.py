"""Ctrl-C and SIGTERM stop a command, however it was started; no test hangs or leaves a child."""

import signal
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from filelock import FileLock

from tests import children

LAB = [sys.executable, "-m", "cclp", "lab", "--no-browser"]


def run_pytest(*arguments: str, **options: Any) -> CompletedProcess[str]:
    """Tests within a test, whatever options the outer ones have."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = children.environment(PYTEST_ADDOPTS="")
    return children.run([*command, *arguments], env=environment, **options)


@pytest.mark.parametrize(
    ("number", "ignoring_sigint"),
    [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, False)],
    ids=["SIGINT", "SIGINT-ignored", "SIGTERM"],
)
def test_the_lab_stops_cleanly(number: signal.Signals, ignoring_sigint: bool) -> None:
    process = children.start(LAB, ignoring_sigint=ignoring_sigint)
    assert process.stdout is not None
    assert "http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(number)
    printed, said = process.communicate(timeout=60)
    assert (process.returncode, printed, said) == (0, "Stopped.\n", "")


def test_tests_in_the_background_do_not_hang() -> None:
    """As ``nohup make test &`` in a script: started with SIGINT ignored."""
    test = f"{__file__}::test_the_lab_stops_cleanly[SIGINT]"
    done = run_pytest(test, cwd=children.ROOT, ignoring_sigint=True)
    assert done.returncode == 0, done.stdout


HOLDS = """
import time
from filelock import FileLock
FileLock("held").acquire()
print("held", flush=True)
time.sleep(600)
"""
STARTS = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {HOLDS!r}])
"""
HANGS = f"""
import sys
from tests import children

def test_hangs():
    process = children.start([sys.executable, "-c", {STARTS!r}])
    assert process.stdout.readline() == "held\\n"
    process.wait()
"""


def test_a_test_that_hangs_fails_and_its_children_end(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_hangs.py").write_text(HANGS)
    done = run_pytest("--timeout", "3", cwd=tmp_path)
    assert done.returncode == 1
    assert "Timeout (>3.0s)" in done.stdout
    with FileLock(tmp_path / "held", timeout=30):  # the child of the child has ended
        pass
