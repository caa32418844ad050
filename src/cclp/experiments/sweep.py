"""Many runs of ``cclp train``: what is finished is kept, what was killed goes on.

Several at a time if asked for. What the runs say together is in tables.py and compare.py.
"""

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cclp.methods import make_methods
from cclp.progress import Reporter
from cclp.training.config import Config
from cclp.training.directory import Metrics, read_json
from cclp.user_code import is_user_code

POLL_SECONDS = 1.0


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
        return self.config.recipe.steps


class Ended(NamedTuple):
    """A run that has come to an end.

    Attributes:
        cell: which.
        problem: why it could not be finished; None if it was.
    """

    cell: Cell
    problem: str | None = None


def steps_done(runs: Path, cell: Cell) -> int:
    """How far a run is, by what it has logged."""
    folder = runs / cell.name
    if (folder / "result.json").exists():
        return cell.steps
    lines = Metrics(folder / "metrics.jsonl").lines()
    return int(lines[-1]["step"]) if lines else 0


def unfinished(runs: Path, cells: Sequence[Cell]) -> list[Cell]:
    """Those that have no result yet."""
    return [cell for cell in cells if not (runs / cell.name / "result.json").exists()]


def results(runs: Path) -> dict[str, dict[str, Any]]:
    """Contents of result.json by name of the run, of all that are finished."""
    found = sorted(runs.glob("*/result.json"))
    return {path.parent.name: read_json(path.parent, "result.json") for path in found}


def go(
    cells: Sequence[Cell],
    runs: Path,
    report: Reporter,
    should_stop: Callable[[], bool],
    command: str | None = None,
    jobs: int = 1,
) -> Iterator[Ended]:
    """Train what is not finished; yields as soon as a run ends.

    A run whose loss does not stay finite has ended too, without a result.

    Args:
        cells: in this order.
        runs: folder of their directories.
        report: what the user sees: each run's own progress, or that of all if there are several
            at a time.
        should_stop: asked after each step.
        command: that makes them, for the record.
        jobs: so many at a time, in processes of their own that share the cores.

    Raises:
        ValueError: for a run that cannot be begun or gone on with.
        cclp.training.run.Stopped: if ``should_stop`` said so; all is saved.
    """
    todo = unfinished(runs, cells)
    if jobs == 1:
        for number, cell in enumerate(todo, 1):
            if len(todo) > 1:
                report.tell(f"Run {number} of {len(todo)}: {cell.name}")
            yield _run(cell, runs, report, should_stop, command)
    else:
        yield from _together(todo, runs, report, should_stop, command, jobs)


def _run(
    cell: Cell, runs: Path, report: Reporter, should_stop: Callable[[], bool], command: str | None
) -> Ended:
    """Begin a run, or go on with it."""
    from cclp.training.run import resume, train

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
    from joblib import Parallel, delayed

    from cclp.training.run import Stopped

    total = sum(cell.steps for cell in todo)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ExitStack() as stack:
        advance = stack.enter_context(report.work(f"{len(todo)} runs, {jobs} at a time", total))
        flag = Path(stack.enter_context(tempfile.TemporaryDirectory()), "stop")
        stack.enter_context(_watching(todo, runs, advance, should_stop, flag))
        stopped = False
        for ended in Parallel(n_jobs=jobs, return_as="generator_unordered")(
            delayed(_job)(cell, runs, threads, flag, command) for cell in todo
        ):
            if ended is None:
                stopped = True
            else:
                yield ended
        if stopped:
            raise Stopped("Stopped, saved.")


def _job(cell: Cell, runs: Path, threads: int, flag: Path, command: str | None) -> Ended | None:
    """One run in a process of its own; None if it was stopped."""
    import torch

    from cclp.training.run import Stopped

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    torch.set_num_threads(threads)
    if flag.exists():
        return None
    try:
        return _run(cell, runs, Reporter(), flag.exists, command)
    except Stopped:
        return None


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

    def watch() -> None:
        before = sum(steps_done(runs, cell) for cell in todo)
        advance(before)
        while not over.wait(POLL_SECONDS):
            if should_stop():
                flag.touch()
            now = sum(steps_done(runs, cell) for cell in todo)
            advance(now - before)
            before = now

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def seconds_per_step(config: Config, shape: tuple[int, ...], num_classes: int) -> float:
    """How long a step of a run takes on this machine: one is timed, on noise."""
    from cclp.data.form import Form
    from cclp.data.splits import Split
    from cclp.training.loop import cclp_settings, make_net, own_randomness, set_up, train_steps
    from cclp.training.machine import make_fabric

    recipe, form = config.recipe, Form(tuple(map(str, range(num_classes))), shape)
    each = max(recipe.per_class, -(-recipe.unlabeled_batch // num_classes), 1)
    y = np.tile(np.arange(num_classes), each)
    x = np.random.default_rng(0).integers(0, 256, (len(y), *shape), np.uint8)
    everyone = np.arange(len(y))
    split = Split(everyone, everyone, everyone[:0])
    fabric = make_fabric(config.accelerator, config.precision)
    with own_randomness():
        training = set_up(
            fabric,
            x,
            y,
            split,
            recipe,
            lambda: make_net(recipe.net, form),
            lambda: make_methods(config.method, num_classes, {"cclp": cclp_settings(recipe)}),
            normalization=config.normalization,
            labeled_batch=config.labeled_batch,
            seed=0,
        )
        steps = train_steps(
            fabric, training.module, training.stepper, training.batches, x, y, recipe, seed=0
        )
        next(steps)  # whatever is done once
        return next(steps).seconds


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
    """How long each run will take here, by timing one step of its kind."""
    timed: dict[tuple[object, ...], float] = {}
    for cell in cells:
        done, recipe = steps_done(runs, cell), cell.config.recipe
        if done == cell.steps:
            yield Estimate(cell, "finished", 0.0)
            continue
        kind = cell.config.data, cell.config.method, replace(recipe, steps=1)
        if kind not in timed:
            report.tell(f"Timing a step: {cell.config.method} on {cell.config.data}.")
            shape = (1, 28, 28) if recipe.net.startswith("mnist") else (3, 32, 32)
            timed[kind] = seconds_per_step(cell.config, shape, num_classes=10)
        state = f"step {done:,} of {cell.steps:,}" if done else f"{cell.steps:,} steps"
        yield Estimate(cell, state, (cell.steps - done) * timed[kind] / 60)
