"""Error against minutes: candidates for the recipe "fast", and what each part is worth.

Two parts. ``choice``: candidates on 5,000 training images of MNIST that are held out, 100 labels,
five labeled sets (seeds 100 to 104). ``test``: the recipe as it is on the test set, five other
labeled sets (seeds 0 to 4). Every run is one of ``cclp train``; the last iterate counts. Runs
are kept in ``--work`` and their outcomes in ``--out``: what is there is not trained again, and a
run that was stopped goes on. Train one at a time, with all cores: minutes are part of the outcome.

Needs MNIST: ``cclp data fetch mnist``.
"""

import argparse
import os
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from cclp.experiments.sweep import Cell, go
from cclp.files import check_marks, write_between, write_bytes, write_json
from cclp.progress import Reporter, make_reporter
from cclp.training.config import Config
from cclp.training.directory import Metrics, read_json
from cclp.training.recipe import Recipe, make_recipe

FAILED = 0.03
MARKS = {
    part: (
        f"<!-- benchmarks/time_to_accuracy.py {part} writes from here -->",
        f"<!-- to here: {part} -->",
    )
    for part in ("choice", "test")
}
SEEDS = {"choice": range(100, 105), "test": range(5)}


def variants() -> dict[str, Recipe]:
    """Recipes by name: the one that is, that with one thing changed, and the one before it."""
    fast = make_recipe("fast", "mnist")
    return {
        "fast": fast,
        "the classifier learns from labels only": replace(fast, teach=0.0),
        "prior made once": replace(fast, renew=0),
        "prior gives way within 30 %": replace(fast, prior=0.3, renew=0),
        "no prior": replace(fast, prior=0.0),
        "statistics not settled": replace(fast, settle=False),
        "10 a class + 100 unlabeled": replace(fast, per_class=10, unlabeled_batch=100),
        "the paper's net, a third of the steps": replace(fast, net="mnist", steps=800),
        "short": make_recipe("short", "mnist"),
    }


def file_name(variant: str, seed: int) -> str:
    """Of its run and its outcome."""
    return f"{re.sub('[^a-z0-9]+', '-', variant)}-seed{seed}"


def outcome(config: Config, name: str, work: Path, report: Reporter) -> dict[str, Any]:
    """Of one run, which is trained to its end.

    Raises:
        ValueError: if there is a run of that name with other settings.
        FloatingPointError: if it diverges.
    """
    run = work / file_name(name, config.seed)
    for ended in go([Cell(run.name, config)], work, report, lambda: False):
        if ended.problem is not None:
            raise FloatingPointError(ended.problem)
    result = read_json(run, "result.json")
    lines = [line for line in Metrics(run / "metrics.jsonl").lines() if "error" in line]
    return {
        "variant": name,
        **result,
        "course": [[line["step"], round(line["seconds"], 1), line["error"]] for line in lines],
    }


def table(outcomes: list[dict[str, Any]]) -> str:
    """One row for each variant: errors of all seeds in %, failures, minutes."""
    rows = ["| variant | mean ± s.d., % | each seed, % | above 3 % | minutes |"]
    rows.append("|---|---|---|---|---|")
    for name in dict.fromkeys(item["variant"] for item in outcomes):
        mine = sorted((o for o in outcomes if o["variant"] == name), key=lambda o: o["seed"])
        errors = [100 * o["error"] for o in mine]
        spread = f" ± {stdev(errors):.2f}" if len(errors) > 1 else ""
        minutes = mean(o["seconds"] for o in mine) / 60
        rows.append(
            f"| {name} | {mean(errors):.2f}{spread} | {', '.join(f'{e:.2f}' for e in errors)} | "
            f"{sum(e > 100 * FAILED for e in errors)} of {len(errors)} | {minutes:.1f} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Train what is missing, write, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=SEEDS, nargs="?", default="test")
    parser.add_argument("--only", choices=variants(), action="append", help="these variants")
    parser.add_argument("--seeds", type=int, default=5, help="so many (default: 5)")
    parser.add_argument("--out", type=Path, default=Path("results/time-to-accuracy"))
    parser.add_argument("--work", type=Path, default=Path("build/time-to-accuracy"))
    parser.add_argument("--docs", type=Path, help="put the table into this page")
    parser.add_argument("--data-dir", default=os.environ.get("CCLP_DATA"))
    options = parser.parse_args()
    if options.docs:
        check_marks(options.docs, MARKS[options.part])
    folder = options.out / options.part
    folder.mkdir(parents=True, exist_ok=True)
    chosen = options.only or (["fast"] if options.part == "test" else list(variants()))
    with make_reporter(quiet=False) as report:
        for seed in SEEDS[options.part][: options.seeds]:
            for name in chosen:
                path = folder / f"{file_name(name, seed)}.json"
                if not path.exists():
                    config = Config(
                        data="mnist",
                        recipe=variants()[name],
                        seed=seed,
                        held_out=5000 if options.part == "choice" else None,
                        data_dir=options.data_dir,
                    )
                    write_json(path, outcome(config, name, options.work / options.part, report))
    outcomes = [read_json(folder, path.name) for path in sorted(folder.glob("*.json"))]
    write_bytes(folder / "results.md", f"{table(outcomes)}\n".encode())
    if options.docs:
        write_between(options.docs, MARKS[options.part], table(outcomes))
    print(table(outcomes))


if __name__ == "__main__":
    main()
