"""CCLPClassifier on many classes: test error and time beside labels only, as a table and as JSON.

Gaussian classes in 32 dimensions, 2 labels each, 20 training samples each (10 of 5,000 classes), 10
test samples each. A step holds labels of 200 classes at most; anchors stand for the others. What is
in the file is not measured again: after a stop the same command resumes.
"""

import argparse
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cclp.experiments.aggregate import percent
from cclp.files import marked_page, write_between, write_json
from cclp.runs.record import read_json
from cclp.sklearn import CCLPClassifier
from cclp.training.machine import environment

Array = NDArray[Any]
Row = dict[str, Any]
MARKS = "<!-- benchmarks/many_classes.py writes from here -->", "<!-- to here: many_classes -->"
METHODS = ("supervised", "cclp", "cclp+graph_pseudo_label")
SAMPLES = {100: 20, 400: 20, 1000: 20, 5000: 10}  # of each class, by the number of classes
FEATURES, SPREAD, LABELS, TESTED = 32, 1.4, 2, 10


def gaussians(num_classes: int, samples: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Training samples, their labels (-1: none), test samples and their classes.

    The centres are normal with a standard deviation of 1.4 in each feature, the classes of 1.
    """
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=SPREAD, size=(num_classes, 1, FEATURES))
    x = centres + rng.normal(size=(num_classes, samples + TESTED, FEATURES))
    y = np.repeat(np.arange(num_classes)[:, None], samples + TESTED, 1)
    train, test = x[:, :samples], x[:, samples:]
    few = np.where(np.arange(samples) < LABELS, y[:, :samples], -1)
    return (
        train.reshape(-1, FEATURES).astype(np.float32), few.ravel(),
        test.reshape(-1, FEATURES).astype(np.float32), y[:, samples:].ravel(),
    )  # fmt: skip


def measure(num_classes: int, method: str, seed: int, samples: int) -> Row:
    """Test error and seconds of one fit."""
    X, y, X_test, y_test = gaussians(num_classes, samples, seed)
    begun = time.perf_counter()
    model = CCLPClassifier(method=method, device="cpu", random_state=seed).fit(X, y)
    seconds = time.perf_counter() - begun
    error = float((model.predict(X_test) != y_test).mean())
    return {
        "classes": num_classes, "method": method, "seed": seed, "samples": len(X),
        "steps": model.n_iter_, "error": error, "seconds": seconds,
        "pseudo_labels": model.pseudo_label_decision_,
    }  # fmt: skip


def table(rows: list[Row]) -> str:
    """Errors by the number of classes and the method, and the longest fit."""
    lines = ["| classes | method | error, % | seeds | fit, s |", "|---|---|---|---|---|"]
    for num_classes, method in product(SAMPLES, METHODS):
        some = [row for row in rows if (row["classes"], row["method"]) == (num_classes, method)]
        if some:
            error = percent([row["error"] for row in some]).text(digits=1)
            seconds = max(row["seconds"] for row in some)
            lines.append(
                f"| {num_classes:,} | `{method}` | {error} | {len(some)} | {seconds:.0f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", type=int, choices=SAMPLES, action="append", help="only these")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/many-classes.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this page")
    options = parser.parse_args()
    rows: list[Row] = []
    if options.out.exists():
        rows = read_json(options.out.parent, options.out.name)["rows"]
    done = {(row["classes"], row["seed"], row["method"]) for row in rows}
    for case in product(options.classes or SAMPLES, range(options.seeds), METHODS):
        if case in done:
            continue
        num_classes, seed, method = case
        rows.append(measure(num_classes, method, seed, SAMPLES[num_classes]))
        print(rows[-1], file=sys.stderr, flush=True)
        content = {"command": "benchmarks/many_classes.py", "rows": rows}
        write_json(options.out, {**content, "environment": environment(torch.device("cpu"))})
    print(table(rows))
    if options.docs:
        write_between(options.docs, MARKS, table(rows))


if __name__ == "__main__":
    main()
