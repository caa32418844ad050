"""Processes that tests start: each leads a session of its own, and ends with its test.

conftest.py gives them the default signals: a process inherits what its parent ignores.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

IGNORE_SIGINT = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_SECONDS_TO_END = 10
ROOT = Path(__file__).parents[1]
Child = subprocess.Popen[str]
_started: list[Child] = []


def start(command: Sequence[str], *, ignoring_sigint: bool = False, **options: Any) -> Child:
    """Start a command with pipes for what it prints; :func:`ended` ends it.

    Args:
        command: and its arguments.
        ignoring_sigint: as a shell script starts a command in the background.
        **options: of Popen.
    """
    if ignoring_sigint:
        command = [sys.executable, "-c", IGNORE_SIGINT, *command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process: Child = subprocess.Popen(
        command, **{**pipes, "text": True, "start_new_session": True, **options}
    )
    _started.append(process)
    return process


def run(
    command: Sequence[str], *, timeout: float = 120, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Start a command and wait for its end.

    Args:
        command: and its arguments.
        timeout: in seconds.
        check: whether another exit code than 0 fails the test.
        **options: of :func:`start`.
    """
    with ended():
        process = start(command, **options)
        printed, said = process.communicate(timeout=timeout)
    assert not check or process.returncode == 0, said
    return subprocess.CompletedProcess(process.args, process.returncode, printed, said)


def environment(**more: str) -> dict[str, str]:
    """Of a process, in whatever folder, that imports the tests and the package they test."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def modules_after(statement: str) -> set[str]:
    """Names of the modules that a statement has loaded in a new process."""
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(run([sys.executable, "-c", code], check=True).stdout.split())


@contextmanager
def ended() -> Iterator[None]:
    """Processes that are started within end with it, and so do all that they have started."""
    before = list(_started)
    try:
        yield
    finally:
        for process in [process for process in _started if process not in before]:
            end(process)


def end(process: Child) -> None:
    """End a process, by SIGTERM that it may hand on to its own, then its group, by SIGKILL."""
    _started.remove(process)
    with process:  # closes the pipes
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS_TO_END)
        with suppress(ProcessLookupError, PermissionError):  # nobody is left; macOS: only zombies
            os.killpg(process.pid, signal.SIGKILL)


def wait_until(happened: Callable[[], object], process: Child | None = None) -> None:
    """Wait for something, at most a minute, and only as long as the process lives."""
    for _ in range(6000):
        if happened():
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("it has not happened in a minute")
