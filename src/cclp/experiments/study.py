"""A study: many runs of ``cclp train``. Finished runs are kept, and stopped ones are resumed.

A run of it is a cell. What the runs have found is read by outcomes.py and averaged by aggregate.py.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from cclp.data.published.catalog import CATALOG
from cclp.experiments.settings import differences
from cclp.files import write_json
from cclp.progress import Reporter
from cclp.runs.record import read_config, read_json, read_metrics
from cclp.training.config import Config
from cclp.user_code import is_user_code

DIVERGED = "diverged.json"
T = TypeVar("T")


class Cell(NamedTuple):
    """One run of a study.

    Attributes:
        name: of its directory.
        config: of the run.
    """

    name: str
    config: Config

    @property
    def max_steps(self) -> int:
        return self.config.recipe.max_steps


class Ended(NamedTuple):
    """A run that has come to an end.

    Attributes:
        cell: which.
        problem: why it could not be finished; None if it was.
        warnings: of the run, if the user has not seen them yet.
    """

    cell: Cell
    problem: str | None = None
    warnings: tuple[str, ...] = ()


def steps_done(runs: Path, cell: Cell) -> int:
    """How many steps of a run are logged."""
    if not unfinished(runs, [cell]):
        return cell.max_steps
    lines = read_metrics(runs / cell.name)
    return int(lines[-1]["step"]) if lines else 0


def unfinished(runs: Path, cells: Sequence[Cell]) -> list[Cell]:
    """The cells that are neither finished nor diverged."""
    ends = ("result.json", DIVERGED)
    return [cell for cell in cells if not any((runs / cell.name / end).exists() for end in ends)]


def check_same(runs: Path, cells: Sequence[Cell]) -> None:
    """Make sure that runs in the directory have the configurations of the cells.

    Raises:
        ValueError: if one has other settings.
    """
    for cell in cells:
        folder = runs / cell.name
        if (folder / "config.json").exists():
            unlike = differences(read_config(folder)[1], cell.config)
            if unlike:
                raise ValueError(f"{folder} has other settings: {unlike}")


def run_study(
    cells: Sequence[Cell],
    runs: Path,
    report: Reporter,
    should_stop: Callable[[], bool],
    write_results: Callable[[], T],
    command: str | None = None,
    jobs: int = 1,
) -> T:
    """Train every cell that is not finished, and write the results first and after each run.

    A run whose loss does not stay finite is a result too: the others are trained.

    Args:
        cells, runs, report, should_stop, command, jobs: as in :func:`train_cells`.
        write_results: reads the directory and writes what the runs have found so far.

    Returns:
        What ``write_results`` returned last.

    Raises:
        ValueError, cclp.runs.start.Stopped: as :func:`train_cells`.
    """
    from cclp.runs.start import Stopped

    found = write_results()
    try:
        for ended in train_cells(cells, runs, report, should_stop, command, jobs):
            if ended.problem is not None:
                report.warn(f"{ended.cell.name}: {ended.problem}. The other runs continue.")
            found = write_results()
    except Stopped:
        left = [cell.name for cell in unfinished(runs, cells)]
        report.warn(f"{len(left)} of {len(cells)} runs are left: {', '.join(left)}.")
        raise
    return found


def train_cells(
    cells: Sequence[Cell],
    runs: Path,
    report: Reporter,
    should_stop: Callable[[], bool] = lambda: False,
    command: str | None = None,
    jobs: int = 1,
) -> Iterator[Ended]:
    """Train what is not finished, and yield each run when it ends.

    A run whose loss does not stay finite has ended too: it holds a ``diverged.json``, and is not
    tried again as long as that is there.

    Args:
        cells: in this order.
        runs: folder of their directories.
        report: what the user sees: each run's own progress, or one for all if there are several
            at a time.
        should_stop: asked after each step.
        command: that makes them, for the record.
        jobs: number of runs at a time, in processes of their own that share the cores.

    Raises:
        ValueError: for a run that cannot be started or resumed, or whose process was killed.
        cclp.runs.start.Stopped: if ``should_stop`` said so; all is saved.
    """
    from cclp.experiments.jobs import train_in_jobs
    from cclp.runs.start import Stopped

    check_same(runs, cells)
    todo = unfinished(runs, cells)
    for cell in cells:
        if (runs / cell.name / DIVERGED).exists():
            yield Ended(cell, read_problem(runs / cell.name))
    if jobs > 1:
        yield from train_in_jobs(todo, runs, report, should_stop, command, jobs)
        return
    total = sum(cell.max_steps for cell in cells)
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
        yield train_cell(cell, runs, report, should_stop, command)


def train_cell(
    cell: Cell, runs: Path, report: Reporter, should_stop: Callable[[], bool], command: str | None
) -> Ended:
    """Start a run, or resume it."""
    from cclp.runs.start import resume, train

    folder, config = runs / cell.name, cell.config
    try:
        if (folder / "config.json").exists():
            net, method = config.recipe.net, config.method  # named again, like all outside the run
            place = config.data_dir if config.data in CATALOG else config.data
            features = config.pseudo_label_features
            resume(
                folder,
                report,
                should_stop,
                None if place is None else Path(place),
                net if is_user_code(net) else None,
                method if is_user_code(method) else None,
                devices=config.devices,
                pseudo_label_features=None if features is None else Path(features),
            )
        else:
            train(config, folder, report, should_stop, command)
    except FloatingPointError as problem:
        write_json(folder / DIVERGED, {"problem": str(problem)})
        return Ended(cell, str(problem))
    return Ended(cell)


def read_problem(run: Path) -> str:
    """Why a run diverged."""
    return str(read_json(run, DIVERGED).get("problem"))
