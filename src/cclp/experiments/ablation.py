"""The paper's Figure 4: error on held-out images against the length of the chains, S.

==================== ==============================================================
``results.json``     settings, what is known of each run, what that says of each claim
``runs/``            a run directory for each S, number of labels and seed
``figure.svg, .png`` error against S
``table.md, .csv``   the same in numbers
``report.html``      all of it as a page
==================== ==============================================================
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from cclp.experiments import table1
from cclp.experiments.folder import Claim
from cclp.experiments.grid import Grid
from cclp.experiments.sweep import Cell
from cclp.experiments.table1 import FEW, TITLES, Labels
from cclp.training.config import Config

CHAINS = (0, 1, 2, 3, 4, 6, 10, 20)  # 0: no SSL
HELD_OUT = 10_000
BEST = range(3, 7)  # where the paper finds the least error
BAND = 0.05, 0.25  # below S = 1, by its share


def cell(
    recipe: str,
    steps: int | None,
    data: str,
    labels: Labels,
    chain: int,
    seed: int,
    data_dir: str | None = None,
    verify: bool = True,
) -> Cell:
    """One run of the ablation."""
    if chain not in CHAINS:
        raise ValueError(f"S must be one of {CHAINS}, got {chain}")
    method = "cclp" if chain else "supervised"
    plain = table1.cell(recipe, steps, data, labels, method, seed, data_dir, verify).config
    return Cell(
        f"{data}-{FEW[data] if labels == 'few' else 'all'}-S{chain}-seed{seed}",
        replace(plain, recipe=replace(plain.recipe, chain_steps=max(chain, 1)), held_out=HELD_OUT),
    )


def cell_like(recipe: str, config: Config) -> Cell:
    """The cell that a run with such a configuration must be."""
    labels: Labels = "all" if config.num_labels is None else "few"
    chain = 0 if config.method == "supervised" else config.recipe.chain_steps
    return cell(recipe, config.recipe.max_steps, config.data, labels, chain, config.seed)


def cells(
    recipe: str,
    steps: int | None,
    data: Sequence[str],
    labels: Sequence[Labels],
    seeds: int,
    data_dir: str | None = None,
    verify: bool = True,
) -> list[Cell]:
    """The runs, seed by seed, so that an unfinished ablation is a fair one."""
    return [
        cell(recipe, steps, name, amount, chain, seed, data_dir, verify)
        for seed in range(seeds)
        for name in data
        for amount in labels
        for chain in CHAINS
    ]


def chain_of(record: dict[str, Any]) -> int:
    """S of a run; 0 without SSL."""
    return 0 if record["method"] == "supervised" else int(record["recipe"]["chain_steps"])


def curves(records: list[dict[str, Any]]) -> dict[tuple[str, Labels], dict[int, list[float]]]:
    """Errors in % of all seeds, by data and labels, then by S in its order."""
    found: dict[tuple[str, Labels], dict[int, list[float]]] = {}
    known = [record for record in records if record["error"] is not None]
    for record in sorted(known, key=lambda r: (list(FEW).index(r["data"]), chain_of(r))):
        amount: Labels = "few" if record["labels"] == FEW[record["data"]] else "all"
        curve = found.setdefault((record["data"], amount), {})
        curve.setdefault(chain_of(record), []).append(100 * record["error"])
    return found


def row(record: dict[str, Any]) -> tuple[str, ...]:
    """To which runs of one length belong."""
    return (name_of(record["data"], "few" if record["labels"] == FEW[record["data"]] else "all"),)


def name_of(data: str, labels: Labels) -> str:
    """For people."""
    return f"{TITLES[data]}, {FEW[data] if labels == 'few' else 'all'} labels"


def claims(records: list[dict[str, Any]]) -> list[Claim]:
    """What the paper says of the figure, of every curve that has what it takes."""
    made = []
    for (data, amount), curve in curves(records).items():
        name, mean = name_of(data, amount), {s: fmean(errors) for s, errors in curve.items()}
        if {0, 1} <= mean.keys():
            made.append(
                Claim(
                    f"The paper: chains of one step already help ({name}).",
                    f"{mean[1]:.2f} % with S = 1, {mean[0]:.2f} % without SSL",
                    mean[1] < mean[0],
                )
            )
        middle = {s: mean[s] for s in CHAINS if s in BEST and s in mean}
        if 1 in mean and len(middle) == sum(s in BEST for s in CHAINS):
            changes = {s: error / mean[1] - 1 for s, error in middle.items()}
            least, most = BAND
            made.append(
                Claim(
                    "The paper: 3 ≤ S ≤ 6 makes 5-25 % fewer mistakes than S = 1, in most "
                    f"settings ({name}).",
                    ", ".join(f"S = {s}: {change:+.0%}" for s, change in changes.items()),
                    sum(least <= -c <= most for c in changes.values()) > len(changes) / 2,
                )
            )
        if middle and 20 in mean:
            best = min(middle.values())
            made.append(
                Claim(
                    f"The paper: chains of more than ten steps help less ({name}).",
                    f"{mean[20]:.2f} % with S = 20, {best:.2f} % with the best of 3 to 6",
                    mean[20] > best,
                )
            )
    return made


def grids(records: list[dict[str, Any]]) -> list[Grid]:
    """A row for each curve; all seeds."""
    table = Grid(
        "Error on held-out images, %",
        ("", *("no SSL" if not s else f"S = {s}" for s in CHAINS)),
        [],
    )
    failed = sum(record["error"] is None for record in records)
    if failed:
        table = table._replace(title=f"{table.title}; {failed} runs have diverged")
    for (data, amount), curve in curves(records).items():
        errors = (", ".join(f"{e:.2f}" for e in curve.get(s, [])) or "–" for s in CHAINS)
        table.rows.append((name_of(data, amount), *errors))
    return [table]


def comma_separated(records: list[dict[str, Any]]) -> str:
    """A line for each run."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["data", "labels", "chain_steps", "seed", "error_percent", "steps"])
    known = [record for record in records if record["error"] is not None]
    for record in sorted(known, key=lambda r: (r["data"], r["labels"], chain_of(r), r["seed"])):
        writer.writerow(
            [
                *(record["data"], record["labels"], chain_of(record), record["seed"]),
                *(f"{100 * record['error']:.2f}", record["recipe"]["steps"]),
            ]
        )
    return table.getvalue()
