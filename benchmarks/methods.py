"""What a step of each method costs, and what each has reached on MNIST with 100 labels.

A step of the method and one of labels only, with the same network and batches, take turns; the cost
is the ratio of the medians. Batches, nets and settings are those of ``cclp reproduce table1
--recipe short``; images are noise. Errors are read from the runs in ``results/table1``, where all
methods have the same number of steps, and ``results/table1-peers``, where some have others.
"""

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from cclp.experiments import table1
from cclp.experiments.aggregate import Summary, percent
from cclp.experiments.estimate import trainer_on_noise
from cclp.experiments.outcomes import Record, read_outcomes
from cclp.experiments.paper import MODELS, PAPER, Column
from cclp.files import marked_page, write_between, write_json
from cclp.methods import METHODS
from cclp.runs.record import read_json
from cclp.training.machine import environment

ROOT = Path(__file__).parent.parent
MARKS = "<!-- benchmarks/methods.py writes from here -->", "<!-- to here: methods -->"
SHAPE = (1, 28, 28)
NOT_TIMED = ("supervised", "graph_pseudo_label")  # the latter costs nothing in a step
MNIST = Column("mnist", "few")
IN_THEIR_PAPERS = {
    "ladder": Summary(1.06, 0.37),
    "m2": Summary(11.97),
    "m1_m2": Summary(3.33),
}  # and not in the table


def parameters(module: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def cost(method: str, turns: int) -> dict[str, Any]:
    """Of a step of the method, relative to one of labels only."""
    config = table1.cell("short", None, "mnist", "few", method, 0).config
    labels_only = replace(config, method="supervised", settings={})
    ours, theirs = (trainer_on_noise(c, SHAPE, 10) for c in (config, labels_only))
    seconds: list[list[float]] = [[], []]
    for turn in range(turns + 1):
        for trainer, times in zip((ours, theirs), seconds, strict=True):
            times.append(trainer.step(turn).seconds)
    mine, other = (statistics.median(times[1:]) for times in seconds)  # the first does more
    methods = cast(list[nn.Module], list(ours.objective.methods))
    return {
        "net": config.recipe.net,
        "seconds": mine,
        "over_labels_only": mine / other,
        "parameters": parameters(ours.objective.net),
        "own_parameters": sum(map(parameters, methods)),
    }


def on_mnist(records: list[Record]) -> dict[str, list[Record]]:
    """The runs on MNIST with 100 labels, by row of the paper's table."""
    groups = table1.groups(records)
    return {row: group for (row, column), group in groups.items() if column == MNIST}


def table(costs: dict[str, Any], records: list[Record], longer: list[Record]) -> str:
    """A row for each method, from runs of equal length and, for some, of other steps."""
    reached, more = on_mnist(records), on_mnist(longer)
    equal = {run["recipe"]["max_steps"] for runs in reached.values() for run in runs}
    if len(equal) > 1:
        raise ValueError(f"runs must have the same number of steps, got {sorted(equal)}")
    steps = "".join(f" {count:,} steps," for count in equal)
    lines = [
        "| method | network (weights) | its own weights | step ÷ labels only | MNIST, 100 labels,"
        f"{steps} error, % | minutes | other steps, % | published, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        about, runs = costs.get(method), reached.get(method)
        cells = ["–"] * 6
        if about is not None:
            cells[0] = f"{about['net']} ({about['parameters'] / 1e6:.2g} M)"
            own = about["own_parameters"]
            cells[1] = f"{own / 1e6:.2g} M" if own else "none"
            cells[2] = f"{about['over_labels_only']:.1f}"
        if runs is not None:
            cells[3] = str(percent(run["error"] for run in runs))
            cells[4] = f"{statistics.fmean(run['seconds'] for run in runs) / 60:.0f}"
        if method in more:
            error = percent(run["error"] for run in more[method])
            cells[5] = f"{error} ({more[method][0]['recipe']['max_steps']:,} steps)"
        quoted = IN_THEIR_PAPERS.get(method)
        if method in MODELS and method != "supervised":
            quoted = PAPER[MODELS[method]].get(MNIST)
        published = str(quoted) if quoted else "–"
        lines.append(f"| `{method}` | {' | '.join([*cells, published])} |")
    return "\n".join(lines)


def read() -> str:
    """The table of what is recorded."""
    content = read_json(ROOT / "results", "methods-benchmark.json")
    equal, longer = (
        list(read_outcomes(ROOT / "results" / name / "runs").values())
        for name in ("table1", "table1-peers")
    )
    return table(content["costs"], equal, longer)


def main() -> None:
    """Time all methods and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="steps of each")
    parser.add_argument("--out", type=Path, default=ROOT / "results/methods-benchmark.json")
    parser.add_argument("--docs", type=marked_page(MARKS), help="page to write the table into")
    arguments = parser.parse_args()
    costs = {}
    for method in (name for name in METHODS if name not in NOT_TIMED):
        costs[method] = cost(method, arguments.turns)
        print(f"{method:20} {costs[method]['over_labels_only']:.1f}", flush=True)
    command = f"python -m benchmarks.methods --turns {arguments.turns}"
    content = {"command": command, "costs": costs, "environment": environment(torch.device("cpu"))}
    write_json(arguments.out, content)
    if arguments.docs:
        write_between(arguments.docs, MARKS, read())


if __name__ == "__main__":
    main()
