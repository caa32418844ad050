"""What CCLP adds: labels only, graph pseudo-labels, CCLP and both, by the weight of the loss.

Everybody has the same network, batches, steps and labeled sets, and no augmentation; errors are
those of the last iterate on held-out training samples. So nothing is known of a test set, and the
defaults may be chosen by this table. A run is one of ``cclp train``; runs are kept in ``--work``,
so that a stopped one is resumed, and rows in ``--out``.

``digits`` and the two tables take seconds a run. Images take some minutes each with one thread, and
need the data: ``cclp data fetch mnist``.
"""

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer

from benchmarks.own_data import embeddings_of_clouds
from benchmarks.rows import Row, Rows
from cclp.experiments.aggregate import paired_differences, percent
from cclp.experiments.study import Cell, train_cell
from cclp.files import marked_page, write_between
from cclp.progress import make_reporter
from cclp.runs.record import read_result
from cclp.training.config import Config
from cclp.training.recipe import Recipe, Settings, make_recipe, vectors

MARKS = "<!-- benchmarks/added.py writes from here -->", "<!-- to here: added -->"
WEIGHTS = (0.01, 0.03, 0.1, 0.3, 1.0)
ALONE = ("supervised", "graph_pseudo_label")
BOTH = "cclp+graph_pseudo_label"
SEEDS = range(100, 105)


class Case(NamedTuple):
    """Data, with few labels.

    Attributes:
        num_labels, held_out: samples.
        recipe: of all its runs, but for the method.
        data: a published name; None: a table that is made.
    """

    num_labels: int
    held_out: int
    recipe: Recipe
    data: str | None = None


def small(data: str, net: str, steps: int) -> Recipe:
    """The recipe "short" with a small network and few steps."""
    return replace(make_recipe("short", data), net=net, max_steps=steps)


def table() -> Recipe:
    """As :class:`cclp.sklearn.CCLPClassifier` has it, without a method of its own."""
    return replace(vectors(2000), method="supervised")


CASES = {
    "digits": Case(50, 400, make_recipe("short", "digits"), "digits"),
    "breast cancer": Case(20, 250, table()),
    "embeddings": Case(100, 1000, table()),
    "MNIST": Case(100, 5000, small("mnist", "mnist_small", 2000), "mnist"),
    "Fashion-MNIST": Case(100, 5000, small("fashion_mnist", "mnist_small", 2000), "fashion_mnist"),
    "SVHN": Case(1000, 5000, small("svhn", "small", 1000), "svhn"),
    "CIFAR-10": Case(4000, 5000, small("cifar10", "small", 1000), "cifar10"),
}


def made_table(name: str, folder: Path) -> Path:
    """A table with all labels, written to a file."""
    path = folder / f"{name.replace(' ', '-')}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        X, y = (
            load_breast_cancer(return_X_y=True)
            if name == "breast cancer"
            else embeddings_of_clouds(seed=0)
        )
        np.savez(path, X=np.asarray(X, np.float32), y=y)
    return path


def kinds() -> list[tuple[str, float | None]]:
    """Methods, those with CCLP once for each weight."""
    return [(m, None) for m in ALONE] + [(m, w) for m in ("cclp", BOTH) for w in WEIGHTS]


def config(name: str, method: str, weight: float | None, seed: int, work: Path) -> Config:
    """Of one run."""
    case = CASES[name]
    own: Settings = {} if weight is None else {"cclp": {"weight": weight}}
    return Config(
        case.data or str(made_table(name, work / "tables").resolve()),
        case.recipe,
        num_labels=case.num_labels,
        held_out=case.held_out,
        method=method,
        settings=own,
        seed=seed,
        verify=case.data != "svhn",
    )


def measure(name: str, method: str, weight: float | None, seed: int, work: Path) -> float | None:
    """The error of one run; None if it diverged."""
    of = "" if weight is None else f"-{weight:g}"
    cell = Cell(
        f"{name.replace(' ', '-')}-{method}{of}-seed{seed}",
        config(name, method, weight, seed, work),
    )
    with make_reporter(quiet=True) as report:
        ended = train_cell(cell, work / "runs", report, lambda: False, None)
    if ended.problem is not None:
        return None
    result = read_result(work / "runs" / cell.name)
    assert result is not None
    return result.error


def of_row(rows: list[Row], name: str, method: str, weight: float | None) -> dict[int, Any]:
    """Errors by seed."""
    key = {"data": name, "method": method, "weight": weight}
    return {row["seed"]: row["error"] for row in rows if key.items() <= row.items()}


def added(rows: list[Row], name: str, method: str, weight: float, without: str) -> str:
    """The paired difference that the loss makes, in points, with its standard error."""
    with_it = of_row(rows, name, method, weight)
    pairs = paired_differences(with_it, of_row(rows, name, without, None))
    if len(pairs) < 2:
        return "–"
    points = 100 * np.array(pairs)
    return f"{points.mean():+.2f} ± {points.std(ddof=1) / math.sqrt(len(points)):.2f}"


def markdown(rows: list[Row]) -> str:
    """Errors by data and weight, and what the loss adds at each weight."""
    names = [name for name in CASES if any(row["data"] == name for row in rows)]
    weights = " | ".join(f"w = {weight:g}" for weight in WEIGHTS)
    lines = [
        f"| data | method | without CCLP | {weights} |",
        "|---|---|---|" + "---|" * len(WEIGHTS),
    ]
    for name in names:
        case = CASES[name]
        for without, method in zip(ALONE, ("cclp", BOTH), strict=True):
            plain = percent(of_row(rows, name, without, None).values())
            cells = [percent(of_row(rows, name, method, w).values()).text() for w in WEIGHTS]
            title = f"{name}, {case.num_labels} labels" if without == ALONE[0] else ""
            beside = "labels only" if without == ALONE[0] else "graph pseudo-labels"
            lines.append(f"| {title} | {beside} | {plain.text()} | {' | '.join(cells)} |")
            gains = [added(rows, name, method, w, without) for w in WEIGHTS]
            lines.append(f"| | *difference* | | {' | '.join(gains)} |")
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", nargs="*", choices=[[], *CASES], help="default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--work", type=Path, default=Path("runs/added"), help="of the runs")
    parser.add_argument("--out", type=Path, default=Path("results/added.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="page to write the table into")
    options = parser.parse_args()
    found = Rows(options.out, "python -m benchmarks.added")
    for name in options.data or CASES:
        for seed in options.seeds:
            for method, weight in kinds():
                key = {"data": name, "method": method, "weight": weight, "seed": seed}
                if key not in found:
                    error = measure(name, method, weight, seed, options.work)
                    found.add({**key, "error": error, "steps": CASES[name].recipe.max_steps})
    print(markdown(found.rows))
    if options.docs:
        write_between(options.docs, MARKS, markdown(found.rows))


if __name__ == "__main__":
    main()
