"""Many runs of ``cclp train``: what is finished is kept, what was killed goes on.

Several at a time if asked for. What the runs say together is in tables.py and compare.py.
"""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cclp.files import write_json
from cclp.methods import make_methods
from cclp.progress import Reporter
from cclp.runs.directory import Metrics, read_json, read_run
from cclp.training.config import Config
from cclp.user_code import is_user_code

POLL_SECONDS = 1.0
DIVERGED = "diverged.json"


class Cell(NamedTuple):
    """One run of a sweep.

    Attributes:
        name: of its directory.
        config: of the run.
    """

    name: str
    config: Config

    @property
    def steps(self) -> int:
        return self.config.recipe.max_steps


class Ended(NamedTuple):
    """A run that has come to an end.

    Attributes:
        cell: which.
        problem: why it could not be finished; None if it was.
        said: sentences for the user that came up on the way, if nobody has heard them yet.
    """

    cell: Cell
    problem: str | None = None
    said: tuple[str, ...] = ()


def steps_done(runs: Path, cell: Cell) -> int:
    """How far a run is, by what it has logged."""
    if not unfinished(runs, [cell]):
        return cell.steps
    lines = Metrics(runs / cell.name / "metrics.jsonl").lines()
    return int(lines[-1]["step"]) if lines else 0


def unfinished(runs: Path, cells: Sequence[Cell]) -> list[Cell]:
    """Those that have not come to an end, good or bad."""
    ends = ("result.json", DIVERGED)
    return [cell for cell in cells if not any((runs / cell.name / end).exists() for end in ends)]


def check_same(runs: Path, cells: Sequence[Cell]) -> None:
    """Make sure that runs that were begun are those that are meant.

    Raises:
        ValueError: if one has other settings.
    """
    for cell in cells:
        folder = runs / cell.name
        if (folder / "config.json").exists():
            unlike = differences(read_run(folder)[1], cell.config)
            if unlike:
                raise ValueError(f"{folder} has other settings: {unlike}")


def differences(found: Config, wanted: Config) -> str:
    """Between two runs, in words: of what makes them the same run on whatever machine."""
    names = ("data", "num_labels", "method", "method_settings", "seed")
    pairs = [(name, getattr(found, name), getattr(wanted, name)) for name in names]
    pairs.append(("held_out", found.held_out or 0, wanted.held_out or 0))
    pairs += [
        (field.name, getattr(found.recipe, field.name), getattr(wanted.recipe, field.name))
        for field in fields(wanted.recipe)
        if field.name not in ("method", "settings")  # they count as method_settings
    ]
    return ", ".join(
        f"{name} {mine} instead of {other}" for name, mine, other in pairs if mine != other
    )


def go(
    cells: Sequence[Cell],
    runs: Path,
    report: Reporter,
    should_stop: Callable[[], bool],
    command: str | None = None,
    jobs: int = 1,
) -> Iterator[Ended]:
    """Train what is not finished; yields as soon as a run ends.

    A run whose loss does not stay finite has ended too: it holds a ``diverged.json``, and is not
    tried again as long as that is there.

    Args:
        cells: in this order.
        runs: folder of their directories.
        report: what the user sees: each run's own progress, or that of all if there are several
            at a time.
        should_stop: asked after each step.
        command: that makes them, for the record.
        jobs: so many at a time, in processes of their own that share the cores.

    Raises:
        ValueError: for a run that cannot be begun or gone on with, or whose process was killed.
        cclp.runs.start.Stopped: if ``should_stop`` said so; all is saved.
    """
    from cclp.runs.start import Stopped

    check_same(runs, cells)
    todo = unfinished(runs, cells)
    for cell in cells:
        if (runs / cell.name / DIVERGED).exists():
            yield Ended(cell, str(read_json(runs / cell.name, DIVERGED).get("problem")))
    if jobs > 1:
        yield from _together(todo, runs, report, should_stop, command, jobs)
        return
    total = sum(cell.steps for cell in cells)
    begun, before = time.monotonic(), sum(steps_done(runs, one) for one in cells)
    for number, cell in enumerate(todo, 1):
        if should_stop():
            raise Stopped("Stopped.")
        if len(todo) > 1:
            done = sum(steps_done(runs, one) for one in cells)
            left = ""
            if done > before:
                seconds = (time.monotonic() - begun) * (total - done) / (done - before)
                left = f", about {seconds / 60:.0f} min left"
            report.info(
                f"Run {number} of {len(todo)}: {cell.name} "
                f"({done / total:.0%} of all steps done{left})"
            )
        yield _run(cell, runs, report, should_stop, command)


def _run(
    cell: Cell, runs: Path, report: Reporter, should_stop: Callable[[], bool], command: str | None
) -> Ended:
    """Begin a run, or go on with it."""
    from cclp.runs.start import resume, train

    folder, config = runs / cell.name, cell.config
    try:
        if (folder / "config.json").exists():
            net, method = config.recipe.net, config.method  # code of one's own is named again
            resume(
                folder,
                report,
                should_stop,
                Path(config.data_dir) if config.data_dir is not None else None,
                net if is_user_code(net) else None,
                method if is_user_code(method) else None,
            )
        else:
            train(config, folder, report, should_stop, command)
    except FloatingPointError as problem:
        write_json(folder / DIVERGED, {"problem": str(problem)})
        return Ended(cell, str(problem))
    return Ended(cell)


def _together(
    todo: list[Cell],
    runs: Path,
    report: Reporter,
    should_stop: Callable[[], bool],
    command: str | None,
    jobs: int,
) -> Iterator[Ended]:
    """Several at a time, with one progress for all."""
    from joblib import Parallel, cpu_count, delayed
    from joblib.externals.loky.process_executor import BrokenProcessPool

    from cclp.runs.start import Stopped

    total = sum(cell.steps for cell in todo)
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
                for sentence in ended.said:
                    report.warn(f"{ended.cell.name}: {sentence}")
                yield ended
        except BrokenProcessPool:
            raise ValueError(
                "the process of a run was killed (was there too little memory for this many "
                "--jobs?): the same command goes on"
            ) from None
    if stopped:
        raise Stopped("Stopped.")


class _Remembering(Reporter):
    """Keeps what should not be missed."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def warn(self, text: str) -> None:
        self.said.append(text)


def _job(
    cell: Cell, runs: Path, threads: int, flag: Path, parent: int, command: str | None
) -> Ended | None:
    """One run in a process of its own; None if it was stopped."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent says when to stop
    import torch

    from cclp.runs.start import Stopped

    def should_stop() -> bool:
        return flag.exists() or os.getppid() != parent

    torch.set_num_threads(threads)
    report = _Remembering()
    if should_stop():
        return None
    try:
        ended = _run(cell, runs, report, should_stop, command)
    except Stopped:
        return None
    return ended._replace(said=tuple(report.said))


@contextmanager
def _watching(
    todo: list[Cell],
    runs: Path,
    advance: Callable[[int], None],
    should_stop: Callable[[], bool],
    flag: Path,
) -> Iterator[None]:
    """Meanwhile a thread shows how far the runs are, and raises the flag when it is time."""
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


def seconds_per_step(config: Config, shape: tuple[int, ...], num_classes: int) -> float:
    """How long a step of a run takes on this machine: one is timed, on noise."""
    from cclp.data.splits import Split
    from cclp.nets.registry import make_net
    from cclp.training.machine import make_fabric
    from cclp.training.seeding import own_randomness
    from cclp.training.trainer import Trainer

    recipe = config.recipe
    each = max(recipe.per_class, -(-recipe.unlabeled_batch // num_classes), 1)
    y = np.tile(np.arange(num_classes), each)
    x = np.random.default_rng(0).integers(0, 256, (len(y), *shape), np.uint8)
    everyone = np.arange(len(y))
    with own_randomness():
        trainer = Trainer(
            make_fabric(config.accelerator, config.precision),
            recipe,
            x,
            y,
            Split(everyone, everyone, everyone[:0]),
            make_net=lambda: make_net(recipe.net, shape, num_classes),
            make_methods=lambda: make_methods(config.method, num_classes, config.method_settings),
            labeled_batch=config.labeled_batch,
            seed=0,
        )
        trainer.step(0)  # whatever is done once
        return trainer.step(1).seconds


class Estimate(NamedTuple):
    """What is left of a run.

    Attributes:
        cell: which.
        state: in words.
        minutes: of training on this machine, with nothing else beside it.
    """

    cell: Cell
    state: str
    minutes: float


def estimate(cells: Sequence[Cell], runs: Path, report: Reporter) -> Iterator[Estimate]:
    """How long each run will take here, by timing one step of its kind.

    Evaluations and priors come on top; steps with labels alone take less.
    """
    check_same(runs, cells)
    timed: dict[tuple[object, ...], float] = {}
    for cell in cells:
        if not unfinished(runs, [cell]):
            yield Estimate(cell, "finished", 0.0)
            continue
        done, recipe = steps_done(runs, cell), cell.config.recipe
        kind = cell.config.data, cell.config.method, repr(replace(recipe, max_steps=1))
        if kind not in timed:
            report.info(f"Timing a step: {cell.config.method} on {cell.config.data}.")
            shape = (1, 28, 28) if recipe.net.startswith("mnist") else (3, 32, 32)
            timed[kind] = seconds_per_step(cell.config, shape, num_classes=10)
        state = f"step {done:,} of {cell.steps:,}" if done else f"{cell.steps:,} steps"
        yield Estimate(cell, state, (cell.steps - done) * timed[kind] / 60)
