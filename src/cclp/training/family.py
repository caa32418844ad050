"""The process that launched a training's others, and those: none outlives it, none stops unnoticed.

This is for processes that Fabric launches; torchrun looks after its own.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

PARENT = "CCLP_PARENT"  # the environment variable with the number of the launching process
_PR_SET_PDEATHSIG = 1
_SYNCHRONIZE, _FOR_EVER = 0x100000, 0xFFFFFFFF  # of Windows: a right, and a time
_SECONDS_BETWEEN_LOOKS = 1.0


def end_with_parent() -> bool:
    """Let this process be killed as soon as the one that launched it ends, if Fabric did that.

    Returns:
        False if that one has ended already.
    """
    parent = int(os.environ.get(PARENT, 0))
    if not parent or parent == os.getpid():
        return True
    if not _is_killed_by_the_system():
        wait = _windows_waiter(parent) if sys.platform == "win32" else lambda: _wait_for(parent)
        if wait is None:
            return False
        Thread(target=_end_after, args=(wait,), daemon=True).start()
    return os.getppid() == parent


def _is_killed_by_the_system() -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0)


def _end_after(wait: Callable[[], object]) -> None:
    wait()
    os._exit(1)


def _wait_for(parent: int) -> None:
    """Until this process has another parent."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _windows_waiter(parent: int) -> Callable[[], object] | None:
    """Waits until the parent has ended; None if it has. Windows keeps its number for the child."""
    system: Any = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]
    system.OpenProcess.restype = ctypes.c_void_p
    handle = system.OpenProcess(_SYNCHRONIZE, False, parent)
    if not handle:
        return None
    return lambda: system.WaitForSingleObject(ctypes.c_void_p(handle), _FOR_EVER)


def watch(children: Sequence[subprocess.Popen[bytes]], warn: Callable[[str], None]) -> None:
    """Say once of each stop that a child is stopped (SIGSTOP), while the children live.

    Args:
        children: launched by this process; that of rank 1 first.
        warn: called with a sentence, from another thread.
    """
    if hasattr(os, "waitid"):
        Thread(target=_watch, args=(list(children), warn), daemon=True).start()


def _watch(children: list[subprocess.Popen[bytes]], warn: Callable[[str], None]) -> None:
    while any(child.returncode is None for child in children):
        for rank, child in enumerate(children, 1):
            with suppress(ChildProcessError):  # it has ended
                if os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG) is not None:
                    warn(
                        f"Process {rank} of this training is stopped and the others wait for it: "
                        f"let it go on by kill -CONT {child.pid}."
                    )
        time.sleep(_SECONDS_BETWEEN_LOOKS)
