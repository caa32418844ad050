"""The paper's Table 1: our runs, and its values beside them.

==================== ==============================================================
``results.json``     settings, the record of each run, the measured claims
``runs/``            a run directory for each cell and seed
``table.md, .csv``   the table
``report.html``      all of it as a page
==================== ==============================================================

A row is a method as it was run: ``cclp+graph_pseudo_label`` is not ``cclp``. Two rows are VAT with
a larger network, ``vat_large`` and ``vat_large_ent``: see :data:`.paper.VARIANTS`.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from cclp.experiments.aggregate import Summary, percent
from cclp.experiments.folder import Claim
from cclp.experiments.grid import Grid
from cclp.experiments.paper import (
    COLUMNS,
    FEW,
    LARGER_NETS,
    PAPER,
    PSEUDO_LABELS,
    TITLES,
    VARIANTS,
    Column,
    Labels,
    differs_from_paper,
    model_of,
    row_name,
)
from cclp.experiments.study import Cell
from cclp.methods import check_methods, file_name, method_parts
from cclp.training.config import Config
from cclp.training.recipe import Recipe, make_recipe

_HEADER = (
    "model", "measured", "data", "num_labels", "ssl", "error_percent", "standard_deviation",
    "seeds", "diverged",
)  # fmt: skip


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        model: its name.
        measured: here, or else quoted from the paper.
        values: errors in percent, by column.
        steps: of the runs that were measured, by column.
    """

    model: str
    measured: bool
    values: dict[Column, Summary]
    steps: dict[Column, int]

    def text(self, column: Column) -> str:
        """The cell of a column, with the steps of our runs."""
        if column not in self.values:
            return "–"
        steps = f" ({self.steps[column]:,} steps)" if self.measured else ""
        return f"{self.values[column]}{steps}"


class Beside(NamedTuple):
    """One of our values and the paper's.

    Attributes:
        column, row: of our runs.
        ours, paper: errors in percent.
        steps: of a run.
        minutes: that a run took, on average; None if none was finished.
        differs: what else is different.
    """

    column: Column
    row: str
    ours: Summary
    paper: Summary
    steps: int
    minutes: float
    differs: str


def recipe_of(name: str, max_steps: int | None, data: str, labels: Labels, row: str) -> Recipe:
    """The recipe of a cell; but for ours, "fast", with the network of the row's own paper."""
    made = make_recipe(name, data, all_labels=labels == "all")
    net = VARIANTS[row].net if row in VARIANTS else None
    if name != "fast":
        net = net or LARGER_NETS.get((data, row))
    return replace(made, max_steps=max_steps or made.max_steps, net=net or made.net)


def cell(
    recipe: str,
    max_steps: int | None,
    data: str,
    labels: Labels,
    row: str,
    seed: int,
    data_dir: str | None = None,
    verify: bool = True,
) -> Cell:
    """One run of the table."""
    num_labels = FEW[data] if labels == "few" else None
    variant = VARIANTS.get(row)
    return Cell(
        f"{data}-{num_labels or 'all'}-{file_name(row)}-seed{seed}",
        Config(
            data=data,
            recipe=recipe_of(recipe, max_steps, data, labels, row),
            num_labels=num_labels,
            method=row if variant is None else variant.method,
            settings={} if variant is None else variant.settings,
            seed=seed,
            data_dir=data_dir,
            verify=verify,
        ),
    )


def cell_like(recipe: str, config: Config) -> Cell:
    """The cell that a run with such a configuration must be."""
    labels: Labels = "all" if config.num_labels is None else "few"
    row = row_name(config.method, config.recipe.net, config.method_settings)
    return cell(recipe, config.recipe.max_steps, config.data, labels, row, config.seed)


def cells(
    recipe: str,
    max_steps: int | None,
    data: Sequence[str],
    labels: Sequence[Labels],
    rows: Sequence[str],
    seeds: int,
    data_dir: str | None = None,
    verify: bool = True,
) -> list[Cell]:
    """The runs of a table, seed by seed, so that an unfinished one is a fair one."""
    check_methods([row for row in rows if row not in VARIANTS])
    return [
        cell(recipe, max_steps, name, amount, row, seed, data_dir, verify)
        for seed in range(seeds)
        for name in data
        for amount in labels
        for row in dict.fromkeys(rows)
    ]


def column_of(record: dict[str, Any]) -> Column:
    """The column that a run belongs to."""
    few = record["num_labels"] is not None
    supervised = not few and record["method"] == "supervised"
    return Column(record["data"], "few" if few else "all", ssl=not supervised)


def row_of(record: dict[str, Any]) -> str:
    """The row that a run belongs to."""
    return row_name(record["method"], record["recipe"]["net"], record["settings"])


def row(record: dict[str, Any]) -> tuple[str, ...]:
    """The cell of the table that a run belongs to: all its runs have the same number of steps."""
    return row_of(record), column_of(record).title


def groups(records: list[dict[str, Any]]) -> dict[tuple[str, Column], list[dict[str, Any]]]:
    """Records of all seeds, by row and column."""
    found: dict[tuple[str, Column], list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault((row_of(record), column_of(record)), []).append(record)
    return found


def rows(records: list[dict[str, Any]]) -> list[Row]:
    """Ours first, then the paper's."""
    ours: dict[str, Row] = {}
    for (row, column), group in groups(records).items():
        mine = ours.setdefault(row, Row(row, True, {}, {}))
        mine.values[column] = percent(record["error"] for record in group)
        mine.steps[column] = group[0]["recipe"]["max_steps"]
    return [*ours.values(), *(Row(model, False, quoted, {}) for model, quoted in PAPER.items())]


def beside(records: list[dict[str, Any]]) -> list[Beside]:
    """Every value of ours that the paper has one for."""
    lines = []
    for (row, column), group in groups(records).items():
        ours, model = percent(record["error"] for record in group), model_of(row)
        paper = None if model is None else PAPER[model].get(column)
        if paper is not None and ours.seeds and (row != "supervised" or not column.ssl):
            steps = group[0]["recipe"]["max_steps"]
            minutes = fmean(r["seconds"] for r in group if r["seconds"] is not None) / 60
            differs = differs_from_paper(group)
            lines.append(Beside(column, row, ours, paper, steps, minutes, differs))
    return sorted(lines, key=lambda line: (COLUMNS.index(line.column), line.row))


def claims(records: list[dict[str, Any]]) -> list[Claim]:
    """The paper's claims about the table, where both sides were run with the same help.

    That is the same recipe, and pseudo-labels for both or for none.
    """
    found = groups(records)
    by_parts = {
        (frozenset(method_parts(row)), column.data, column.labels): group
        for (row, column), group in found.items()
        if row not in VARIANTS
    }
    made = []
    for column in COLUMNS:
        for helped in (frozenset[str](), frozenset([PSEUDO_LABELS])):
            ours = by_parts.get((helped | {"cclp"}, column.data, column.labels))
            for other, name in ((helped, "supervision alone"), (helped | {"lba"}, "LBA")):
                theirs = by_parts.get((other, column.data, column.labels))
                if column.ssl and ours and theirs and _recipe(ours) == _recipe(theirs):
                    made += _claim(column, ours, theirs, name, bool(helped))
    return made


def _claim(
    column: Column,
    ours: list[dict[str, Any]],
    theirs: list[dict[str, Any]],
    name: str,
    helped: bool,
) -> list[Claim]:
    """One claim; none as long as all runs of one side have diverged."""
    mine, other = (percent(record["error"] for record in group) for group in (ours, theirs))
    if not mine.seeds or not other.seeds:
        return []
    amount = FEW[column.data] if column.labels == "few" else "all"
    both = ", both with pseudo-labels" if helped else ""
    return [
        Claim(
            f"The paper: on {TITLES[column.data]} with {amount} labels, CCLP makes fewer mistakes "
            f"than {name}{both}.",
            f"{mine} against {other} %",
            mine.mean < other.mean,
        )
    ]


def _recipe(group: list[dict[str, Any]]) -> dict[str, Any]:
    """The recipe of the runs in a cell of the table, but for its method and settings."""
    recipe = group[0]["recipe"]
    return {name: recipe[name] for name in recipe if name not in ("method", "settings")}


def grids(records: list[dict[str, Any]]) -> list[Grid]:
    """The table, and our values beside the paper's."""
    found = rows(records)
    table = Grid(
        "Table 1: error, %",
        ("", *(column.title for column in COLUMNS)),
        [],
        ours=sum(row.measured for row in found),
    )
    for row in found:
        name = f"{row.model}, measured" if row.measured else f"{row.model}, quoted"
        table.rows.append((name, *(row.text(column) for column in COLUMNS)))
    near = Grid(
        "Ours beside the paper's: error, %",
        ("", "ours", "the paper's", "difference", "steps", "minutes a run", "what differs"),
        [
            (
                f"{line.row}, {line.column.title}",
                str(line.ours),
                str(line.paper),
                f"{line.ours.mean - line.paper.mean:+.2f}",
                f"{line.steps:,}",
                f"{line.minutes:.1f}",
                line.differs,
            )
            for line in beside(records)
        ],
    )
    return [table, near]


def comma_separated(records: list[dict[str, Any]]) -> str:
    """A line for each value."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(_HEADER)
    for row in rows(records):
        for column, value in row.values.items():
            amount = FEW[column.data] if column.labels == "few" else "all"
            writer.writerow(
                [row.model, row.measured, column.data, amount, column.ssl, f"{value.mean:.2f}"]
                + ["" if part is None else f"{part:.3g}" for part in value[1:]]
            )
    return table.getvalue()
