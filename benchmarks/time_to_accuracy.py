"""Error against minutes: candidates for the recipe "fast", and what each part is worth.

``choice``: candidates on 5,000 held-out training images of MNIST, 100 labels, five labeled sets
(seeds 100 to 104), a quarter of the steps. ``test``: the recipe itself on the test set, five other
labeled sets (seeds 0 to 4). ``failures``: the same on ten more (seeds 10 to 19), a tenth of the
steps: whether one converges to a poor solution. ``share``: the recipe with and without the loss of
CCLP, as in ``choice``. ``svhn`` and ``cifar10``: the same on theirs, 1,000
and 4,000 labels, one labeled set, with the curve of error against minutes. ``fashion_mnist``:
images that the recipe was not made for, 100 labels, beside the recipe "short", both with a quarter
of the steps.

Every run is one of ``cclp train``; the last iterate counts. Runs are kept in ``--work`` and their
results in ``--out``: finished ones are not trained again, and a stopped run is resumed. Train one
at a time, with all cores: minutes are part of the result.

Needs the data: ``cclp data fetch mnist``.
"""

import argparse
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from cclp.experiments.aggregate import percent, summarize
from cclp.experiments.paper import FEW, PAPER, TITLES, Column
from cclp.experiments.study import Cell, train_cells
from cclp.files import check_marks, write_between, write_bytes, write_json
from cclp.progress import Reporter, make_reporter
from cclp.report.figures import house_style, plain, png
from cclp.runs.record import read_json, read_metrics
from cclp.runs.upgrade import upgrade_result
from cclp.training.config import Config
from cclp.training.recipe import Recipe, make_recipe

FAILED = 0.03
WITHOUT = "no cclp, pseudo-labels only"


class Part(NamedTuple):
    """A part of the comparison.

    Attributes:
        data: its name.
        seeds: of the labeled sets.
        held_out: training samples that errors are measured on; None: the test set.
        share: of the recipe's steps.
        curve: whether error against minutes is shown.
        only: these variants; None: all.
    """

    data: str
    seeds: range
    held_out: int | None = None
    share: float = 1.0
    curve: bool = False
    only: list[str] | None = None


RENAMED = {  # variants as version 0.1 recorded them
    "the classifier learns from labels only": "no cross-entropy on pseudo-labels",
    "prior renewed three times": "pseudo-labels refreshed three times",
    "prior gives way within 30 %": "pseudo-labels decay within 30 %",
    "no prior": "no pseudo-labels",
    "statistics not settled": "batch norm not recalibrated",
}


def variants(data: str = "mnist") -> dict[str, Recipe]:
    """Recipes by name: "fast", "fast" with one change each, and "short"."""
    fast, short = make_recipe("fast", data), make_recipe("short", data)
    if data == "fashion_mnist":
        return {"fast": fast, "short": short}
    if data != "mnist":
        return {"fast": fast}

    def pseudo_labels(**settings: float) -> Recipe:
        return replace(fast, settings={"graph_pseudo_label": {**settings}})

    return {
        "fast": fast,
        "no cross-entropy on pseudo-labels": pseudo_labels(weight=0.0),
        "pseudo-labels refreshed three times": pseudo_labels(refreshes=3),
        "pseudo-labels decay within 30 %": pseudo_labels(decay=0.3),
        "no pseudo-labels": replace(fast, method="cclp"),
        WITHOUT: replace(fast, method="graph_pseudo_label"),
        "batch norm not recalibrated": replace(fast, recalibrate_batchnorm=False),
        "10 a class + 100 unlabeled": replace(fast, per_class=10, unlabeled_batch=100),
        "the paper's net, a sixth of the steps": replace(fast, net="mnist", max_steps=670),
        "short": short,
    }


PARTS = {
    "choice": Part(
        "mnist",
        range(100, 105),
        held_out=5000,
        share=0.25,
        only=[name for name in variants() if name != WITHOUT],
    ),
    "share": Part("mnist", range(100, 105), held_out=5000, share=0.25, only=["fast", WITHOUT]),
    "test": Part("mnist", range(5), only=["fast"]),
    "failures": Part("mnist", range(10, 20), share=0.1, only=["fast"]),
    "svhn": Part("svhn", range(1), curve=True),
    "cifar10": Part("cifar10", range(1), curve=True),
    "fashion_mnist": Part("fashion_mnist", range(1), share=0.25),
}
LABELS = FEW | {"fashion_mnist": 100}
MARKS = {
    part: (
        f"<!-- benchmarks/time_to_accuracy.py {part} writes from here -->",
        f"<!-- to here: {part} -->",
    )
    for part in PARTS
}


def file_name(variant: str, seed: int) -> str:
    """The name of a run and of its result."""
    return f"{re.sub('[^a-z0-9]+', '-', variant).strip('-')}-seed{seed}"


def train_missing(
    configs: Iterable[tuple[str, Config]], folder: Path, work: Path, report: Reporter
) -> None:
    """Train the runs whose results are missing, and write each result.

    Args:
        configs: with the names of their variants.
        folder: of results.
        work: folder of run directories.
        report: what the user sees.

    Raises:
        ValueError: if there is a run or a result of that name with another recipe.
        FloatingPointError: if a run diverges.
    """
    missing = {}
    for variant, config in configs:
        path = folder / f"{file_name(variant, config.seed)}.json"
        if not path.exists():
            missing[path.stem] = variant, config
        elif Recipe.from_json(read_result(path)["recipe"]) != config.recipe:
            raise ValueError(f"{path} was made with another recipe: move it away")
    cells = [Cell(name, config) for name, (_, config) in missing.items()]
    for ended in train_cells(cells, work, report):
        if ended.problem is not None:
            raise FloatingPointError(f"{ended.cell.name}: {ended.problem}")
        run = work / ended.cell.name
        lines = [line for line in read_metrics(run) if "error" in line]
        course = [[line["step"], round(line["seconds"], 1), line["error"]] for line in lines]
        result = {"variant": missing[run.name][0], **read_json(run, "result.json")}
        write_json(folder / f"{run.name}.json", {**result, "course": course})


def read_result(path: Path) -> dict[str, Any]:
    """A result under today's names."""
    result = upgrade_result(read_json(path.parent, path.name))
    return result | {"variant": RENAMED.get(result["variant"], result["variant"])}


def read_results(folder: Path) -> list[dict[str, Any]]:
    """All results of a part."""
    return [read_result(path) for path in sorted(folder.glob("*.json"))]


def table(results: list[dict[str, Any]], failures: bool = True) -> str:
    """One row for each variant: errors of all seeds in %, failures, minutes."""
    above = "| above 3 % " if failures else ""
    rows = [f"| variant | mean ± s.d., % | each seed, % {above}| minutes |"]
    rows.append("|---|---|---|---|---|" if failures else "|---|---|---|---|")
    for name in dict.fromkeys(item["variant"] for item in results):
        mine = sorted((o for o in results if o["variant"] == name), key=lambda o: o["seed"])
        errors = [o["error"] for o in mine]
        minutes = summarize(o["seconds"] / 60 for o in mine).mean
        failed = f"| {sum(e > FAILED for e in errors)} of {len(errors)} " if failures else ""
        rows.append(
            f"| {name} | {percent(errors).text()} | {', '.join(f'{100 * e:.2f}' for e in errors)} "
            f"{failed}| {minutes:.1f} |"
        )
    return "\n".join(rows)


def curve(run: dict[str, Any]) -> str:
    """Minutes and errors of a run, a column for each evaluation."""
    course = run["course"]
    rows = [
        ["minutes", *(f"{seconds / 60:.0f}" for _, seconds, _ in course)],
        ["---"] * (len(course) + 1),
        ["error, %", *(f"{100 * error:.1f}" for _, _, error in course)],
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def text(part: str, results: list[dict[str, Any]]) -> str:
    """The table of a part, or its curve."""
    if PARTS[part].curve:
        return curve(results[0])
    return table(results, failures=PARTS[part].data == "mnist")  # elsewhere 3 % is not the limit


def figure(run: dict[str, Any]) -> bytes:
    """The curve, drawn, and the paper's final error."""
    title = f"{TITLES[run['data']]}, {run['num_labels']} labels, seed {run['seed']}"
    title += "" if run["data_verified"] else " (not the published files)"
    minutes = [seconds / 60 for _, seconds, _ in run["course"]]
    errors = [100 * error for _, _, error in run["course"]]
    with house_style():
        drawing = Figure(figsize=(6.4, 3.4), layout="constrained")
        axis = drawing.subplots()
        axis.plot(minutes, errors, "o-", ms=4, color="#2b5fc1")
        last = (minutes[-1], errors[-1])
        paper = PAPER["CCLP"][Column(run["data"], "few")].mean
        axis.axhline(paper, ls=":", color="#666666")
        beyond = (0, 7) if errors[-1] > paper else (0, -14)  # not on that line
        axis.annotate(f"{errors[-1]:.1f} %", last, beyond, textcoords="offset points", ha="right")
        axis.annotate(
            f"the paper: {paper} %", (0, paper), (6, -4), textcoords="offset points", va="top"
        )
        axis.set(xlabel="minutes", ylabel="test error, %", title=title)
        axis.set(xlim=(0, None), ylim=(0, None))
        plain(axis)
        return png(drawing)


def main() -> None:
    """Train what is missing, write, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS, nargs="?", default="test")
    parser.add_argument("--only", choices=variants(), action="append", help="these variants")
    parser.add_argument("--seeds", type=int, help="number of labeled sets (default: all)")
    parser.add_argument("--out", type=Path, default=Path("results/time-to-accuracy"))
    parser.add_argument("--work", type=Path, default=Path("build/time-to-accuracy"))
    parser.add_argument("--docs", type=Path, help="put the table into this page")
    parser.add_argument("--data-dir", default=os.environ.get("CCLP_DATA"))
    parser.add_argument("--no-verify", action="store_true", help="accept unpublished files")
    options = parser.parse_args()
    part, marks = PARTS[options.part], MARKS[options.part]
    if options.docs:
        check_marks(options.docs, marks)
    folder = options.out / options.part
    known = variants(part.data)
    chosen = options.only or part.only or list(known)
    if not set(chosen) <= set(known):
        parser.error(f"--only: on {part.data} there is {', '.join(known)}")
    if options.seeds is not None and options.seeds < 1:
        parser.error(f"--seeds must be at least 1, got {options.seeds}")
    folder.mkdir(parents=True, exist_ok=True)
    configs = [
        (
            name,
            Config(
                data=part.data,
                recipe=replace(known[name], max_steps=round(part.share * known[name].max_steps)),
                num_labels=LABELS[part.data],
                seed=seed,
                held_out=part.held_out,
                data_dir=options.data_dir,
                verify=not options.no_verify,
            ),
        )
        for seed in part.seeds[: options.seeds]
        for name in chosen
    ]
    with make_reporter(quiet=False) as report:
        try:
            train_missing(configs, folder, options.work / options.part, report)
        except ValueError as error:
            parser.error(str(error))
    results = read_results(folder)
    if part.curve:
        write_bytes(folder / "figure.png", figure(results[0]))
    content = text(options.part, results)
    write_bytes(folder / "results.md", f"{content}\n".encode())
    if options.docs:
        write_between(options.docs, marks, content)
    print(content)


if __name__ == "__main__":
    main()
