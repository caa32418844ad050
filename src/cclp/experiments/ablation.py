"""The paper's Figure 4: error on held-out images against the length of the chains, S.

==================== ==============================================================
``results.json``     settings, the record of each run, the measured claims
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
from typing import Any

from cclp.experiments import table1
from cclp.experiments.aggregate import percent, summarize
from cclp.experiments.folder import Claim
from cclp.experiments.grid import Grid
from cclp.experiments.paper import FEW, TITLES, Labels
from cclp.experiments.settings import with_defaults
from cclp.experiments.study import Cell
from cclp.training.config import Config
from cclp.training.recipe import Settings

CHAINS = (0, 1, 2, 3, 4, 6, 10, 20)  # 0: no SSL
HELD_OUT = 10_000
BEST = range(3, 7)  # where the paper finds the least error
BAND = 0.05, 0.25  # below S = 1, by its share


def cell(
    recipe: str,
    max_steps: int | None,
    data: str,
    labels: Labels,
    chain_steps: int,
    seed: int,
    data_dir: str | None = None,
    verify: bool = True,
) -> Cell:
    """One run of the ablation."""
    if chain_steps not in CHAINS:
        raise ValueError(f"chain_steps must be one of {CHAINS}, got {chain_steps}")
    method = "cclp" if chain_steps else "supervised"
    settings: Settings = {"cclp": {"chain_steps": chain_steps}} if chain_steps else {}
    plain = table1.cell(recipe, max_steps, data, labels, method, seed, data_dir, verify).config
    return Cell(
        f"{data}-{FEW[data] if labels == 'few' else 'all'}-S{chain_steps}-seed{seed}",
        replace(plain, settings=settings, held_out=HELD_OUT),
    )


def cell_like(recipe: str, config: Config) -> Cell:
    """The cell that a run with such a configuration must be."""
    labels: Labels = "all" if config.num_labels is None else "few"
    chain_steps = _chain_steps(config.method_settings)
    return cell(recipe, config.recipe.max_steps, config.data, labels, chain_steps, config.seed)


def cells(
    recipe: str,
    max_steps: int | None,
    data: Sequence[str],
    labels: Sequence[Labels],
    seeds: int,
    data_dir: str | None = None,
    verify: bool = True,
) -> list[Cell]:
    """The runs, seed by seed, so that an unfinished ablation is a fair one."""
    return [
        cell(recipe, max_steps, name, amount, chain_steps, seed, data_dir, verify)
        for seed in range(seeds)
        for name in data
        for amount in labels
        for chain_steps in CHAINS
    ]


def _chain_steps(settings: Settings) -> int:
    """S by the settings of a run; 0 without CCLP."""
    return int(with_defaults(settings).get("cclp", {"chain_steps": 0})["chain_steps"])


def chain_of(record: dict[str, Any]) -> int:
    """S of a run; 0 without SSL."""
    return _chain_steps(record["settings"])


def curves(records: list[dict[str, Any]]) -> dict[tuple[str, Labels], dict[int, list[float]]]:
    """Errors in % of all seeds, by data and labels, then by S in its order."""
    found: dict[tuple[str, Labels], dict[int, list[float]]] = {}
    known = [record for record in records if record["error"] is not None]
    for record in sorted(known, key=lambda r: (list(FEW).index(r["data"]), chain_of(r))):
        curve = found.setdefault((record["data"], _labels(record)), {})
        curve.setdefault(chain_of(record), []).append(100 * record["error"])
    return found


def _labels(record: dict[str, Any]) -> Labels:
    return "all" if record["num_labels"] is None else "few"


def row(record: dict[str, Any]) -> tuple[str, ...]:
    """The curve that a run belongs to: all its runs have the same number of steps."""
    return (name_of(record["data"], _labels(record)),)


def name_of(data: str, labels: Labels) -> str:
    """The title of a curve."""
    return f"{TITLES[data]}, {FEW[data] if labels == 'few' else 'all'} labels"


def claims(records: list[dict[str, Any]]) -> list[Claim]:
    """The paper's claims about the figure, for every curve that has the runs they need."""
    made = []
    for (data, amount), curve in curves(records).items():
        name = name_of(data, amount)
        mean = {s: summarize(errors).mean for s, errors in curve.items()}
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
    """A row for each curve; mean and standard deviation over seeds."""
    found: dict[tuple[str, Labels], dict[int, list[float | None]]] = {}
    for record in sorted(records, key=lambda r: list(FEW).index(r["data"])):
        curve = found.setdefault((record["data"], _labels(record)), {})
        curve.setdefault(chain_of(record), []).append(record["error"])
    header = ("", *("no SSL" if not s else f"S = {s}" for s in CHAINS))
    table = [
        (name_of(*key), *(str(percent(curve.get(s, []))) for s in CHAINS))
        for key, curve in found.items()
    ]
    return [Grid("Error on held-out images, %", header, table)]


def comma_separated(records: list[dict[str, Any]]) -> str:
    """A line for each run."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["data", "num_labels", "chain_steps", "seed", "error_percent", "max_steps"])
    known = [record for record in records if record["error"] is not None]
    for record in sorted(known, key=lambda r: (r["data"], *_order(r))):
        amount = "all" if record["num_labels"] is None else record["num_labels"]
        writer.writerow(
            [
                *(record["data"], amount, chain_of(record), record["seed"]),
                *(f"{100 * record['error']:.2f}", record["recipe"]["max_steps"]),
            ]
        )
    return table.getvalue()


def _order(record: dict[str, Any]) -> tuple[str, int, int]:
    return _labels(record), chain_of(record), record["seed"]
