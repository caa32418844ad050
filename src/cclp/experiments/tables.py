"""Experiments that are studies: Table 1, and the ablation over S.

Their results are read from the run directories anew each time, so that studies made on several
machines become one when their ``runs/`` are copied together.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cclp.experiments import ablation, table1
from cclp.experiments.folder import Claim, Folder, open_folder, read_results
from cclp.experiments.grid import Grid
from cclp.experiments.outcomes import Record, read_outcomes
from cclp.experiments.settings import differences
from cclp.experiments.study import Cell, run_study
from cclp.files import write_bytes
from cclp.progress import Reporter
from cclp.runs.directory import InUse
from cclp.runs.record import read_config
from cclp.training.config import Config

Records = list[Record]


class Table(NamedTuple):
    """What records of runs become.

    Attributes:
        cell_like: the cell that a run with such a configuration must be, by the study's recipe.
        row: of the table, to which a record belongs: all its runs have the same number of steps.
        claims: of the paper, measured.
        grids: for the page and table.md.
        comma_separated: table.csv.
    """

    cell_like: Callable[[str, Config], Cell]
    row: Callable[[Record], tuple[str, ...]]
    claims: Callable[[Records], list[Claim]]
    grids: Callable[[Records], list[Grid]]
    comma_separated: Callable[[Records], str]


TABLES = {
    name: Table(module.cell_like, module.row, module.claims, module.grids, module.comma_separated)
    for name, module in (("table1", table1), ("ablation", ablation))
}


def reproduce(
    name: str,
    cells: Sequence[Cell],
    settings: dict[str, Any],
    out: Path,
    report: Reporter | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    command: str | None = None,
    jobs: int = 1,
) -> list[Claim]:
    """Train every cell that is not finished.

    Args:
        name: in :data:`TABLES`.
        cells: the runs.
        settings: what all runs of the table have in common.
        out: directory; one of the same experiment and settings is resumed.
        report: what the user sees.
        should_stop: asked after each step.
        command: how this was called, for the record.
        jobs: number of runs at a time.

    Raises:
        ValueError: if ``out`` holds something else or is in use, or a run cannot be made.
        cclp.runs.start.Stopped: if ``should_stop`` said so; all is saved.
    """
    report = report or Reporter()
    with open_folder(out, name, settings) as folder:
        folder.content["command"] = command
        conclude = partial(_conclude, folder)
        return run_study(cells, out / "runs", report, should_stop, conclude, command, jobs)


def refresh(out: Path) -> None:
    """Read the runs of a table again: some may have been copied there.

    While the table is being made, the process that makes it does that.

    Raises:
        ValueError: if ``out`` holds a run of another table.
    """
    content = read_results(out)
    try:
        with open_folder(out, content["experiment"], content["settings"]) as folder:
            _conclude(folder)
    except InUse:
        pass


def _conclude(folder: Folder) -> list[Claim]:
    """Write what the runs have found that are finished or have diverged."""
    table, recipe = TABLES[folder.content["experiment"]], folder.content["settings"]["recipe"]
    for path in sorted((folder.out / "runs").glob("*/config.json")):
        _check_belongs(table, recipe, path.parent)
    records = read_outcomes(folder.out / "runs")
    rows = list(records.values())
    _check_steps(folder.out, table, rows)
    claims = table.claims(rows)
    text = "\n".join(grid.markdown() for grid in table.grids(rows))
    write_bytes(folder.out / "table.md", text.encode())
    write_bytes(folder.out / "table.csv", table.comma_separated(rows).encode())
    folder.content["records"] = records
    folder.conclude(claims)
    return claims


def _check_belongs(table: Table, recipe: str, run: Path) -> None:
    """Make sure that a run is one of the table's, and in its place."""
    config = read_config(run)[1]
    try:
        cell = table.cell_like(recipe, config)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{run} is no run of this table ({error}): move it away") from None
    unlike = differences(config, cell.config)
    if unlike or cell.name != run.name:
        why = unlike or f"its name would be {cell.name}"
        raise ValueError(f"{run} is no run of this table ({why}): move it away")


def _check_steps(out: Path, table: Table, records: Records) -> None:
    """Make sure that all runs of a row have the same number of steps."""
    steps: dict[tuple[str, ...], int] = {}
    for record in records:
        row, here = table.row(record), record["recipe"]["max_steps"]
        if steps.setdefault(row, here) != here:
            raise ValueError(
                f"{out} holds runs of {steps[row]:,} and of {here:,} steps for {', '.join(row)}: "
                "move some of them away, or choose another --out"
            )
