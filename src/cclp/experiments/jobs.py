"""Several runs of a study at a time, each in a process of its own."""

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cclp.experiments.study import Cell, Ended, steps_done, train_cell
from cclp.progress import Reporter

POLL_SECONDS = 1.0


def train_in_jobs(
    todo: list[Cell],
    runs: Path,
    report: Reporter,
    should_stop: Callable[[], bool],
    command: str | None,
    jobs: int,
) -> Iterator[Ended]:
    """Train cells, ``jobs`` at a time, with one progress for all of them.

    Args, Raises: as :func:`cclp.experiments.study.train_cells`.
    """
    from joblib import Parallel, cpu_count, delayed
    from joblib.externals.loky.process_executor import BrokenProcessPool

    from cclp.runs.start import Stopped

    total = sum(cell.max_steps for cell in todo)
    threads = max(1, cpu_count() // jobs)
    stopped = False
    with ExitStack() as stack:
        advance = stack.enter_context(report.work(f"{len(todo)} runs, {jobs} at a time", total))
        flag = Path(stack.enter_context(tempfile.TemporaryDirectory()), "stop")
        stack.enter_context(_watching(todo, runs, advance, should_stop, flag))
        work = (delayed(_job)(cell, runs, threads, flag, os.getpid(), command) for cell in todo)
        try:
            for ended in Parallel(jobs, return_as="generator_unordered", batch_size=1)(work):
                if ended is None:
                    stopped = True
                    continue
                for warning in ended.warnings:
                    report.warn(f"{ended.cell.name}: {warning}")
                yield ended
        except BrokenProcessPool:
            raise ValueError(
                "the process of a run was killed (was there too little memory for this many "
                "--jobs?): the same command resumes"
            ) from None
    if stopped:
        raise Stopped("Stopped.")


class _Warnings(Reporter):
    """Keeps the warnings of a run for the parent process."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def _job(
    cell: Cell, runs: Path, threads: int, flag: Path, parent: int, command: str | None
) -> Ended | None:
    """One run in a process of its own; None if it was stopped."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when to stop
    import torch

    from cclp.runs.start import Stopped

    def should_stop() -> bool:
        return flag.exists() or os.getppid() != parent

    torch.set_num_threads(threads)
    report = _Warnings()
    if should_stop():
        return None
    try:
        ended = train_cell(cell, runs, report, should_stop, command)
    except Stopped:
        return None
    return ended._replace(warnings=tuple(report.warnings))


@contextmanager
def _watching(
    todo: list[Cell],
    runs: Path,
    advance: Callable[[int], None],
    should_stop: Callable[[], bool],
    flag: Path,
) -> Iterator[None]:
    """Meanwhile a thread shows the progress of the runs, and raises the flag to stop them."""
    over = threading.Event()
    shown = 0

    def show() -> None:
        nonlocal shown
        with suppress(OSError, ValueError, KeyError, TypeError):  # a line being written: next time
            now = sum(steps_done(runs, cell) for cell in todo)
            advance(now - shown)
            shown = now

    def watch() -> None:
        while not over.wait(POLL_SECONDS):
            if should_stop():
                flag.touch()
            show()

    show()
    if should_stop():  # asked here first: signals are handled in the main thread
        flag.touch()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        show()
