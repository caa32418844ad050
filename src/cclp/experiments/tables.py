"""Experiments that are sweeps: Table 1, and the ablation over S.

Their results are read from the run directories anew each time, so that sweeps made on several
machines become one when their ``runs/`` are copied together.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from cclp.experiments import ablation, table1
from cclp.experiments.folder import Claim, Folder, damage_named, open_folder, read_results
from cclp.experiments.grid import Grid
from cclp.experiments.sweep import Cell, go, results, unfinished
from cclp.files import write_bytes
from cclp.progress import Reporter
from cclp.training.recipe import Recipe
from cclp.training.run import Stopped

Records = list[dict[str, Any]]


class Table(NamedTuple):
    """What records of runs become.

    Attributes:
        claims: of the paper, measured.
        grids: for the page and table.md.
        comma_separated: table.csv.
        expected: recipe that a run with this record must have had, by the sweep's settings.
    """

    claims: Callable[[Records], list[Claim]]
    grids: Callable[[Records], list[Grid]]
    comma_separated: Callable[[Records], str]
    expected: Callable[[dict[str, Any], dict[str, Any]], Recipe]


TABLES = {
    "table1": Table(table1.claims, table1.grids, table1.comma_separated, table1.expected),
    "ablation": Table(ablation.claims, ablation.grids, ablation.comma_separated, ablation.expected),
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
        cclp.training.run.Stopped: if ``should_stop`` said so; all is saved.
    """
    report = report or Reporter()
    with open_folder(out, name, settings) as folder:
        folder.content["command"] = command
        found = _conclude(folder)
        try:
            for cell, problem in go(cells, out / "runs", report, should_stop, command, jobs):
                if problem is not None:
                    report.say(f"{cell.name}: {problem}. Going on with the others.")
                found = _conclude(folder)
        except Stopped:
            left = [cell.name for cell in unfinished(out / "runs", cells)]
            report.say(f"{len(left)} of {len(cells)} runs are left: {', '.join(left)}.")
            raise
    return found


def refresh(out: Path) -> None:
    """Read the runs of a table again: some may have been copied there.

    Raises:
        ValueError: if ``out`` is in use, or holds a run of another table.
    """
    content = read_results(out)
    with open_folder(out, content["experiment"], content["settings"]) as folder:
        _conclude(folder)


def _conclude(folder: Folder) -> list[Claim]:
    """Write what the finished runs say."""
    table = TABLES[folder.content["experiment"]]
    records = {}
    for name, result in results(folder.out / "runs").items():
        with damage_named(folder.out / "runs" / name):
            records[name] = _record(result)
            wanted = table.expected(folder.content["settings"], records[name])
            unlike = _differences(result["recipe"], wanted)
        if unlike:
            raise ValueError(
                f"{folder.out / 'runs' / name} was trained with other settings ({unlike}): "
                "move it away"
            )
    folder.content["records"] = records
    rows = list(records.values())
    with damage_named(folder.out):
        claims = table.claims(rows)
        text = "\n".join(grid.markdown() for grid in table.grids(rows))
    write_bytes(folder.out / "table.md", text.encode())
    write_bytes(folder.out / "table.csv", table.comma_separated(rows).encode())
    folder.conclude(claims)
    return claims


def _record(result: dict[str, Any]) -> dict[str, Any]:
    """What a table needs to know of a run."""
    recipe = result["recipe"]
    same = ("error", "measured_on", "data", "labels", "method", "seed", "seconds", "environment")
    of_recipe = ("steps", "net", "prior", "chain_steps")
    return {
        **{name: result[name] for name in same},
        **{name: recipe[name] for name in of_recipe},
        "recipe": recipe["name"],
        "verified": result["data_verified"],
    }


def _differences(found: dict[str, Any], wanted: Recipe) -> str:
    """In words."""
    return ", ".join(
        f"{name} {found.get(name)} instead of {value}"
        for name, value in asdict(wanted).items()
        if name != "schedule" and found.get(name) != value
    )
