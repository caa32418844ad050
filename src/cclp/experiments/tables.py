"""Experiments that are sweeps: Table 1, and the ablation over S.

Their results are read from the run directories anew each time, so that sweeps made on several
machines become one when their ``runs/`` are copied together.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cclp.experiments import ablation, table1
from cclp.experiments.folder import Claim, Folder, damage_named, open_folder, read_results
from cclp.experiments.grid import Grid
from cclp.experiments.sweep import DIVERGED, Cell, differences, go, unfinished
from cclp.files import write_bytes
from cclp.progress import Reporter
from cclp.runs.directory import InUse, read_json, read_run
from cclp.runs.start import Stopped
from cclp.training.config import Config

Records = list[dict[str, Any]]


class Table(NamedTuple):
    """What records of runs become.

    Attributes:
        cell_like: the cell that a run with such a configuration must be, by the sweep's recipe.
        row: of the table, to which a record belongs: of all its runs, the steps are the same.
        claims: of the paper, measured.
        grids: for the page and table.md.
        comma_separated: table.csv.
    """

    cell_like: Callable[[str, Config], Cell]
    row: Callable[[dict[str, Any]], tuple[str, ...]]
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
    """Train every cell, what is finished already excepted.

    Args:
        name: in :data:`TABLES`.
        cells: the runs.
        settings: what all runs of the table have in common.
        out: directory; one of the same experiment and settings is gone on with.
        report: what the user sees.
        should_stop: asked after each step.
        command: how this was called, for the record.
        jobs: so many runs at a time.

    Raises:
        ValueError: if ``out`` holds something else or is in use, or a run cannot be made.
        cclp.runs.start.Stopped: if ``should_stop`` said so; all is saved.
    """
    report = report or Reporter()
    with open_folder(out, name, settings) as folder:
        folder.content["command"] = command
        found = _conclude(folder)
        try:
            for ended in go(cells, out / "runs", report, should_stop, command, jobs):
                if ended.problem is not None:
                    report.warn(f"{ended.cell.name}: {ended.problem}. Going on with the others.")
                found = _conclude(folder)
        except Stopped:
            left = [cell.name for cell in unfinished(out / "runs", cells)]
            report.warn(f"{len(left)} of {len(cells)} runs are left: {', '.join(left)}.")
            raise
    return found


def refresh(out: Path) -> None:
    """Read the runs of a table again: some may have been copied there.

    While the table is being made, that is done by whoever makes it.

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
    """Write what the runs say that have come to an end."""
    table, recipe = TABLES[folder.content["experiment"]], folder.content["settings"]["recipe"]
    records = {}
    for path in sorted((folder.out / "runs").glob("*/config.json")):
        run = path.parent
        _check_belongs(table, recipe, run)
        if (run / "result.json").exists():
            with damage_named(run / "result.json"):
                records[run.name] = _record(read_json(run, "result.json"))
        elif (run / DIVERGED).exists():
            records[run.name] = _diverged(run)
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
    config = read_run(run)[1]
    try:
        cell = table.cell_like(recipe, config)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{run} is no run of this table ({error}): move it away") from None
    unlike = differences(config, cell.config)
    if unlike or cell.name != run.name:
        why = unlike or f"its name would be {cell.name}"
        raise ValueError(f"{run} is no run of this table ({why}): move it away")


def _check_steps(out: Path, table: Table, records: Records) -> None:
    """Make sure that runs of one row are of one length."""
    steps: dict[tuple[str, ...], int] = {}
    for record in records:
        row, here = table.row(record), record["recipe"]["steps"]
        if steps.setdefault(row, here) != here:
            raise ValueError(
                f"{out} holds runs of {steps[row]:,} and of {here:,} steps for {', '.join(row)}: "
                "move some of them away, or choose another --out"
            )


def _record(result: dict[str, Any]) -> dict[str, Any]:
    """What a table needs to know of a run."""
    same = ("error", "data", "labels", "method", "seed", "recipe", "precision", "environment")
    return {
        **{name: result[name] for name in same},
        "verified": result["data_verified"],
        "seconds": result["seconds"],
        "problem": None,
    }


def _diverged(run: Path) -> dict[str, Any]:
    """The same of a run that could not be finished."""
    about, config = read_run(run)
    with damage_named(run / "config.json"):
        return {
            "error": None,
            "data": config.data,
            "labels": len(about["labeled"]) if config.num_labels is not None else None,
            "method": config.method,
            "seed": config.seed,
            "recipe": config.to_json()["recipe"],
            "precision": config.precision,
            "environment": about["environment"],
            "verified": about["data"]["verified"],
            "seconds": None,
            "problem": str(read_json(run, DIVERGED).get("problem")),
        }
