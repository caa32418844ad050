"""Ctrl-C and SIGTERM stop a command, however it was started; no test hangs or leaves a child."""

import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from filelock import FileLock

from tests import children
from tests.forks import Forks

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


NET = """
from cclp.nets.perceptron import mlp

def make(shape, num_classes):
    return mlp(64, num_classes, hidden_sizes=[8], embedding_size=4)
"""
DIGITS = ["digits", "--num-labels", "20", "--per-class", "2", "--unlabeled-batch", "20"]


@pytest.fixture(scope="module")
def forks(cache: Path) -> Iterator[Forks]:
    with children.ended():
        yield Forks()


def test_ctrl_c_names_the_command_that_begins_or_resumes(forks: Forks, tmp_path: Path) -> None:
    """Before config.json is there, the same command; while neighbours are kept, --resume."""
    (tmp_path / "mine.py").write_text(NET)
    out, neighbours = tmp_path / "my run", tmp_path / "cache" / "cclp" / "neighbours"
    where = {"folder": str(tmp_path), "environment": {"XDG_CACHE_HOME": str(tmp_path / "cache")}}
    train = ["train", *DIGITS, "--max-steps", "3", "--quiet", "--out", str(out)]
    train += ["--method", "cclp+graph_pseudo_label", "--net", "mine:make"]
    ended = forks.run(*train, signal_at=(signal.SIGINT, 1, str(out)), **where)
    assert ended.code == 128 + signal.SIGINT
    kept = "comparisons of models that are done are kept"
    assert ended.said == f"cclp: stopped at once; run the same command again; {kept}\n"
    ended = forks.run(*train, signal_at=(signal.SIGINT, 1, str(neighbours)), **where)
    assert ended.code == 128 + signal.SIGINT
    told, command = ended.said.split(": cclp ")
    assert told == "cclp: stopped at once; resume with"
    assert shlex.split(command) == ["train", "--resume", str(out), "--net", "mine:make"]
    assert forks.run(*shlex.split(command), **where).code == 0
    assert (out / "result.json").exists()


def test_ctrl_c_in_a_comparison_resumes_by_the_same_command(forks: Forks, tmp_path: Path) -> None:
    out = tmp_path / "comparison"
    compare = ["compare", *DIGITS[:3], "--methods", "supervised,cclp", "--seeds", "1"]
    compare += ["--max-steps", "3", "--quiet", "--out", str(out)]
    ended = forks.run(*compare, signal_at=(signal.SIGINT, 5, str(out)))
    assert ended.code == 128 + signal.SIGINT
    assert ended.said == (
        "cclp: stopped at once; what was saved is kept: the same command resumes\n"
    )
    assert forks.run(*compare).code == 0
