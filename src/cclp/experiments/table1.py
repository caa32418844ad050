"""The paper's Table 1: our runs, and its values beside them.

==================== ==============================================================
``results.json``     settings, what is known of each run, what that says of each claim
``runs/``            a run directory for each cell and seed
``table.md, .csv``   the table
``report.html``      all of it as a page
==================== ==============================================================
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

from cclp.experiments.folder import Claim
from cclp.experiments.grid import Grid
from cclp.experiments.sweep import Cell
from cclp.methods import check_methods, file_name, method_parts
from cclp.training.config import Config
from cclp.training.recipe import Recipe, make_recipe

Labels = Literal["few", "all"]
FEW = {"mnist": 100, "svhn": 1000, "cifar10": 4000}
TITLES = {"mnist": "MNIST", "svhn": "SVHN", "cifar10": "CIFAR-10"}
PAPER_SEEDS = 10
PRECISIONS = {"32": "float32", "bf16": "bfloat16"}


class Value(NamedTuple):
    """An error in %, with its spread over seeds if there is one.

    Attributes:
        mean: not a number if every run has diverged.
        deviation: over seeds.
        seeds: that it is the mean of.
        diverged: so many more.
    """

    mean: float
    deviation: float | None = None
    seeds: int | None = None
    diverged: int = 0

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        failed = f", {self.diverged} diverged" if self.diverged else ""
        return ("–" if math.isnan(self.mean) else f"{self.mean:.2f}{spread}") + failed


class Column(NamedTuple):
    """A column of the table."""

    data: str
    labels: Labels
    ssl: bool = True

    @property
    def title(self) -> str:
        if self.labels == "few":
            return f"{TITLES[self.data]}, {FEW[self.data]} labels"
        return f"{TITLES[self.data]}, all" if self.ssl else f"{TITLES[self.data]}, all, no SSL"


COLUMNS = tuple(
    column
    for data in FEW
    for column in (Column(data, "few"), Column(data, "all"), Column(data, "all", ssl=False))
)


def _quoted(*values: str) -> dict[Column, Value]:
    """Values as they are printed, a dash where there is none."""
    found = {}
    for column, value in zip(COLUMNS, values, strict=True):
        if value != "-":
            mean, _, deviation = value.partition("±")
            found[column] = Value(float(mean), float(deviation) if deviation else None)
    return found


# fmt: off
PAPER: dict[str, dict[Column, Value]] = {
    "conv-CatGAN": _quoted("1.39±0.28", "0.48", "-", "-", "-", "-", "19.58±0.46", "9.38", "-"),
    "Ladder (CNN-Γ)": _quoted("0.89±0.50", "-", "0.36", "-", "-", "-", "20.40±0.47", "-", "9.27"),
    "SDGM": _quoted("1.32±0.07", "-", "-", "16.61±0.24", "-", "-", "-", "-", "-"),
    "ADGM": _quoted("0.96±0.02", "-", "-", "22.86", "-", "-", "-", "-", "-"),
    "iGAN": _quoted("0.93±0.07", "-", "-", "8.11±1.3", "-", "-", "18.63±2.32", "-", "-"),
    "ALI": _quoted("-", "-", "-", "7.42±0.65", "-", "-", "17.99±1.62", "-", "-"),
    "VAT": _quoted("1.36", "0.64", "1.11", "6.83", "-", "-", "14.87", "5.81", "6.76"),
    "triple GAN": _quoted("0.91±0.58", "-", "-", "5.77±0.17", "-", "-", "16.99±0.36", "-", "-"),
    "mmCVAE": _quoted("1.24±0.54", "0.31", "-", "4.95±0.18", "3.09", "-", "-", "-", "-"),
    "BadGAN": _quoted("0.80±0.10", "-", "-", "4.25±0.03", "-", "-", "14.41±0.30", "-", "-"),
    "LBA": _quoted("0.89±0.08", "0.36±0.03", "-", "-", "-", "-", "-", "-", "-"),
    "LBA (the authors')": _quoted(
        "0.90±0.10", "0.36±0.03", "0.46±0.03", "9.25±0.65", "3.61±0.10", "4.26±0.10",
        "19.33±0.51", "8.46±0.18", "9.33±0.14"),
    "CCLP": _quoted(
        "0.75±0.14", "0.32±0.03", "0.46±0.03", "5.69±0.28", "3.04±0.05", "4.26±0.10",
        "18.57±0.41", "8.04±0.18", "9.33±0.14"),
    "Π model (larger net)": _quoted(
        "-", "-", "-", "5.43±0.25", "-", "-", "16.55±0.29", "-", "-"),
    "Mean teacher (larger net)": _quoted(
        "-", "-", "-", "5.21±0.21", "2.77±0.09", "3.04±0.04", "17.74±0.29", "7.21±0.24",
        "7.43±0.06"),
    "VAT-large (larger net)": _quoted("-", "-", "-", "5.77", "-", "-", "14.82", "-", "-"),
    "VAT-large-Ent (larger net)": _quoted("-", "-", "-", "4.28", "-", "-", "13.15", "-", "-"),
}
# fmt: on
BESIDE = {"cclp": "CCLP", "lba": "LBA (the authors')", "supervised": "CCLP"}


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        model: its name.
        measured: here, or else quoted from the paper.
        values: by column.
    """

    model: str
    measured: bool
    values: dict[Column, Value]


class Beside(NamedTuple):
    """One of our values and the paper's.

    Attributes:
        column, method: which.
        ours, paper: the two.
        differs: what else is different, in words.
    """

    column: Column
    method: str
    ours: Value
    paper: Value
    differs: str


def recipe_of(name: str, steps: int | None, data: str, labels: Labels) -> Recipe:
    """The recipe of a cell."""
    made = make_recipe(name, data, all_labels=labels == "all")
    return made if steps is None else replace(made, max_steps=steps)


def cell(
    recipe: str,
    steps: int | None,
    data: str,
    labels: Labels,
    method: str,
    seed: int,
    data_dir: str | None = None,
    verify: bool = True,
) -> Cell:
    """One run of the table."""
    amount = FEW[data] if labels == "few" else None
    return Cell(
        f"{data}-{amount or 'all'}-{file_name(method)}-seed{seed}",
        Config(
            data=data,
            recipe=recipe_of(recipe, steps, data, labels),
            num_labels=amount,
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
    steps: int | None,
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
        cell(recipe, steps, name, amount, method, seed, data_dir, verify)
        for seed in range(seeds)
        for name in data
        for amount in labels
        for method in methods
    ]


def column_of(record: dict[str, Any]) -> Column:
    """Where a run belongs."""
    few = record["labels"] == FEW[record["data"]]  # else all
    supervised = not few and record["method"] == "supervised"
    return Column(record["data"], "few" if few else "all", ssl=not supervised)


def row(record: dict[str, Any]) -> tuple[str, ...]:
    """To which runs of one length belong."""
    return record["method"], column_of(record).title


def values(records: list[dict[str, Any]]) -> dict[tuple[str, Column], Value]:
    """Errors by method and column, over seeds."""
    groups: dict[tuple[str, Column], list[float | None]] = {}
    for record in records:
        groups.setdefault((record["method"], column_of(record)), []).append(record["error"])
    found = {}
    for key, group in groups.items():
        errors = [100 * error for error in group if error is not None]
        deviation = stdev(errors) if len(errors) > 1 else None
        mean = fmean(errors) if errors else math.nan
        found[key] = Value(mean, deviation, len(errors), len(group) - len(errors))
    return found


def rows(records: list[dict[str, Any]]) -> list[Row]:
    """Ours first, each with the supervised error beside its own as the paper has it."""
    found = values(records)
    baseline = {column: v for (method, column), v in found.items() if not column.ssl}
    ours = [
        Row(
            method,
            True,
            {column: v for (name, column), v in found.items() if name == method} | baseline,
        )
        for method in dict.fromkeys(method for method, _ in found)
    ]
    return ours + [Row(model, False, quoted) for model, quoted in PAPER.items()]


def beside(records: list[dict[str, Any]]) -> list[Beside]:
    """Every value of ours that the paper has one for."""
    lines = []
    for (method, column), ours in values(records).items():
        paper = PAPER[BESIDE[method]].get(column) if method in BESIDE else None
        if paper is not None and ours.seeds and (method != "supervised" or not column.ssl):
            mine = [r for r in records if r["method"] == method and column_of(r) == column]
            lines.append(Beside(column, method, ours, paper, _differs(mine)))
    return sorted(lines, key=lambda line: (COLUMNS.index(line.column), line.method))


def _differs(records: list[dict[str, Any]]) -> str:
    """What the runs of a cell have not in common with the paper's, in words."""
    first = records[0]
    labels, ours = column_of(first).labels, first["recipe"]
    made = make_recipe("paper", first["data"], all_labels=labels == "all")
    theirs = json.loads(json.dumps(asdict(made)))

    def other(*names: str) -> bool:
        return any(ours[name] != theirs[name] for name in names)

    known = "" if labels == "few" else " (not published for all labels)"
    with_prior = ours["prior"] > 0 and "cclp" in method_parts(first["method"])
    seeds = len([record for record in records if record["error"] is not None])
    machines = {record["environment"]["machine"]["processor"] for record in records}
    precisions = {PRECISIONS.get(record["precision"], "?") for record in records}
    parts = {
        f"{ours['steps']:,} steps instead of {theirs['steps']:,}{known}": other("steps"),
        f"net {ours['net']}": other("net"),
        f"{10 * ours['per_class']} + {ours['unlabeled_batch']} images a step instead of "
        f"{10 * theirs['per_class']} + {theirs['unlabeled_batch']}": other(
            "per_class", "unlabeled_batch"
        ),
        "another course of the learning rate": other("learning_rate", "schedule"),
        "a prior": with_prior,
        "labels alone at first": with_prior and bool(ours.get("alone")),
        "batch norm settled": other("settle"),
        "images jittered": bool(ours.get("jitter")),
        "recoloured": bool(ours.get("recolour")),
        "mirrored": bool(ours.get("mirror")),
        "other settings of the loss": other("weight", "chain_steps", "similarity"),
        "not the published files": not all(record["verified"] for record in records),
        f"{seeds} of {PAPER_SEEDS} seeds": seeds != PAPER_SEEDS,
        f"{' and '.join(sorted(precisions))} on {' and '.join(sorted(machines))}": True,
    }
    return ", ".join(part for part, differs in parts.items() if differs)


def claims(records: list[dict[str, Any]]) -> list[Claim]:
    """What the paper says of the table, where it was measured."""
    found = values(records)
    made = []
    for data in FEW:
        few, everything = Column(data, "few"), Column(data, "all")
        pairs = [
            (("cclp", few), ("supervised", few), "supervision alone", f"{FEW[data]} labels"),
            (("cclp", few), ("lba", few), "LBA", f"{FEW[data]} labels"),
            (
                ("cclp", everything),
                ("supervised", Column(data, "all", ssl=False)),
                "supervision alone",
                "all labels",
            ),
            (("cclp", everything), ("lba", everything), "LBA", "all labels"),
        ]
        for ours, other, name, amount in pairs:
            if all(key in found and found[key].seeds for key in (ours, other)):
                made.append(
                    Claim(
                        f"The paper: on {TITLES[data]} with {amount}, CCLP makes fewer mistakes "
                        f"than {name}.",
                        f"{found[ours]} against {found[other]} %",
                        found[ours].mean < found[other].mean,
                    )
                )
    return made


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
    writer.writerow(
        [
            "model",
            "measured",
            "data",
            "labels",
            "ssl",
            "error_percent",
            "deviation",
            "seeds",
            "diverged",
        ]
    )
    for row in rows(records):
        for column, value in row.values.items():
            amount = FEW[column.data] if column.labels == "few" else "all"
            writer.writerow(
                [row.model, row.measured, column.data, amount, column.ssl, f"{value.mean:.2f}"]
                + ["" if part is None else f"{part:.3g}" for part in value[1:]]
            )
    return table.getvalue()
