"""The paper's Table 1: our runs, and its values beside them.

==================== ==============================================================
``results.json``     settings, the record of each run, the measured claims
``runs/``            a run directory for each cell and seed
``table.md, .csv``   the table
``report.html``      all of it as a page
==================== ==============================================================

A row is a method as it was run: ``cclp+graph_pseudo_label`` is not ``cclp``.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cclp.experiments.aggregate import Summary, percent
from cclp.experiments.folder import Claim
from cclp.experiments.grid import Grid
from cclp.experiments.paper import (
    COLUMNS,
    FEW,
    PAPER,
    PSEUDO_LABELS,
    TITLES,
    Column,
    Labels,
    differs_from_paper,
    model_of,
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
    """

    model: str
    measured: bool
    values: dict[Column, Summary]


class Beside(NamedTuple):
    """One of our values and the paper's.

    Attributes:
        column, method: of our runs.
        ours, paper: errors in percent.
        differs: what else is different.
    """

    column: Column
    method: str
    ours: Summary
    paper: Summary
    differs: str


def recipe_of(name: str, max_steps: int | None, data: str, labels: Labels) -> Recipe:
    """The recipe of a cell."""
    made = make_recipe(name, data, all_labels=labels == "all")
    return made if max_steps is None else replace(made, max_steps=max_steps)


def cell(
    recipe: str,
    max_steps: int | None,
    data: str,
    labels: Labels,
    method: str,
    seed: int,
    data_dir: str | None = None,
    verify: bool = True,
) -> Cell:
    """One run of the table."""
    num_labels = FEW[data] if labels == "few" else None
    return Cell(
        f"{data}-{num_labels or 'all'}-{file_name(method)}-seed{seed}",
        Config(
            data=data,
            recipe=recipe_of(recipe, max_steps, data, labels),
            num_labels=num_labels,
            method=method,
            seed=seed,
            data_dir=data_dir,
            verify=verify,
        ),
    )


def cell_like(recipe: str, config: Config) -> Cell:
    """The cell that a run with such a configuration must be."""
    labels: Labels = "all" if config.num_labels is None else "few"
    return cell(recipe, config.recipe.max_steps, config.data, labels, config.method, config.seed)


def cells(
    recipe: str,
    max_steps: int | None,
    data: Sequence[str],
    labels: Sequence[Labels],
    methods: Sequence[str],
    seeds: int,
    data_dir: str | None = None,
    verify: bool = True,
) -> list[Cell]:
    """The runs of a table, seed by seed, so that an unfinished one is a fair one."""
    check_methods(methods)
    return [
        cell(recipe, max_steps, name, amount, method, seed, data_dir, verify)
        for seed in range(seeds)
        for name in data
        for amount in labels
        for method in methods
    ]


def column_of(record: dict[str, Any]) -> Column:
    """The column that a run belongs to."""
    few = record["num_labels"] is not None
    supervised = not few and record["method"] == "supervised"
    return Column(record["data"], "few" if few else "all", ssl=not supervised)


def row(record: dict[str, Any]) -> tuple[str, ...]:
    """The cell of the table that a run belongs to: all its runs have the same number of steps."""
    return record["method"], column_of(record).title


def groups(records: list[dict[str, Any]]) -> dict[tuple[str, Column], list[dict[str, Any]]]:
    """Records of all seeds, by method and column."""
    found: dict[tuple[str, Column], list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault((record["method"], column_of(record)), []).append(record)
    return found


def values(records: list[dict[str, Any]]) -> dict[tuple[str, Column], Summary]:
    """Errors in percent over seeds, by method and column."""
    return {key: percent(r["error"] for r in group) for key, group in groups(records).items()}


def rows(records: list[dict[str, Any]]) -> list[Row]:
    """Ours first, then the paper's."""
    found = values(records)
    ours = [
        Row(method, True, {column: v for (name, column), v in found.items() if name == method})
        for method in dict.fromkeys(method for method, _ in found)
    ]
    return ours + [Row(model, False, quoted) for model, quoted in PAPER.items()]


def beside(records: list[dict[str, Any]]) -> list[Beside]:
    """Every value of ours that the paper has one for."""
    lines = []
    for (method, column), group in groups(records).items():
        ours, model = percent(record["error"] for record in group), model_of(method)
        paper = None if model is None else PAPER[model].get(column)
        if paper is not None and ours.seeds and (method != "supervised" or not column.ssl):
            lines.append(Beside(column, method, ours, paper, differs_from_paper(group)))
    return sorted(lines, key=lambda line: (COLUMNS.index(line.column), line.method))


def claims(records: list[dict[str, Any]]) -> list[Claim]:
    """The paper's claims about the table, where both sides were run with the same help.

    That is the same recipe, and pseudo-labels for both or for none.
    """
    found = groups(records)
    by_parts = {
        (frozenset(method_parts(method)), column.data, column.labels): group
        for (method, column), group in found.items()
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
        table.rows.append((name, *(str(row.values.get(column, "–")) for column in COLUMNS)))
    near = Grid(
        "Ours beside the paper's: error, %",
        ("", "ours", "the paper's", "difference", "what differs"),
        [
            (
                f"{line.method}, {line.column.title}",
                str(line.ours),
                str(line.paper),
                f"{line.ours.mean - line.paper.mean:+.2f}",
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
