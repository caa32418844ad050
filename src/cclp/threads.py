"""Threads of OpenMP, set by environment variables that torch reads when it is loaded.

A thread of libgomp, the runtime of torch on Linux, spins for milliseconds while it waits for the
others. On a machine that does something else too, it takes the core from the thread it waits for,
and training crawls. If it slept at once (OMP_WAIT_POLICY=PASSIVE), small steps would be slower on a
quiet machine, as waking takes time too: it spins for less.
"""

import math
import os
import sys
from pathlib import Path

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
NUMBER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
SPINS = 5_000  # instead of 300,000: benchmarks/threads.py
CGROUPS = Path("/sys/fs/cgroup")


def prepare_threads(cgroups: Path = CGROUPS) -> None:
    """Let threads sleep that wait for long, and start no more than a container has time for.

    What the user has set stays, and so does everything if torch is loaded already. Processes that
    are started later inherit it. How threads wait changes no result; their number does, in the last
    bits, and is recorded with a run.

    Args:
        cgroups: see :func:`cpu_quota`.
    """
    if "torch" in sys.modules:
        return
    if not any(name in os.environ for name in WAITING):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
    quota = cpu_quota(cgroups)
    if quota is not None and not any(name in os.environ for name in NUMBER):
        there = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        if quota < there:  # else torch's own choice is right: physical cores that it may use
            os.environ["OMP_NUM_THREADS"] = str(quota)


def survive_forks() -> None:
    """Let processes that are forked after torch has computed use one thread.

    libgomp's other threads are not there, and it would wait for them for ever.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_use_one_thread)


def _use_one_thread() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


def cpu_quota(cgroups: Path = CGROUPS) -> int | None:
    """How many cores' time a Linux container has, rounded up; None if it has no limit.

    Args:
        cgroups: where they are mounted, of version 2 or 1.
    """
    for parts in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = " ".join((cgroups / part).read_text() for part in parts).split()
            quota, period = map(int, words)
        except (OSError, ValueError):  # of another version, or "max"
            continue
        if quota > 0 and period > 0:  # -1 is no limit
            return math.ceil(quota / period)
    return None
