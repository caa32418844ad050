"""CCLPClassifier on data of which one class is 5 %: balanced accuracy with and without the options.

Each data set has 95 % of class 0 and 5 % of class 1, and two sets of labels:

- 40 labels drawn as the samples come, 38 and 2: ``class_weight="balanced"`` against None;
- 10 labels of each class: ``class_prior={0: 0.95, 1: 0.05}`` against None.

Data: two overlapping Gaussians in ten dimensions; breast cancer (malignant is rare); digits (8
against the others). All samples that are not used for training are the test set; the error is that
of a test set with 5 % of class 1, from the recalls of both classes. Baseline: logistic regression
on the labels alone, standardised.
"""

import argparse
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cclp.experiments.aggregate import percent
from cclp.files import marked_page, write_between, write_json
from cclp.sklearn import CCLPClassifier
from cclp.training.machine import environment

Array = NDArray[Any]
MARKS = "<!-- benchmarks/imbalance.py writes from here -->", "<!-- to here: imbalance -->"
SHARES = {0: 0.95, 1: 0.05}
LABELS: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "38 + 2": ((38, 2), {"class_weight": "balanced"}),
    "10 + 10": ((10, 10), {"class_prior": SHARES}),
}
METHODS = ("supervised", "cclp", "cclp+graph_pseudo_label")
BASELINE = "logistic regression"


def gaussians(rng: np.random.Generator) -> tuple[Array, Array]:
    """Two of them, 3.5 standard deviations apart, in ten dimensions."""
    y = np.repeat([0, 1], [2140, 1060])
    X = rng.normal(size=(len(y), 10))
    X[:, :2] += 3.5 / np.sqrt(2) * y[:, None]
    return X, y


def breast_cancer(rng: np.random.Generator) -> tuple[Array, Array]:
    """Malignant is class 1."""
    X, y = load_breast_cancer(return_X_y=True)
    return X, 1 - y


def digits(rng: np.random.Generator) -> tuple[Array, Array]:
    """The digit 8 is class 1."""
    X, y = load_digits(return_X_y=True)
    return X, (y == 8).astype(int)


DATA: dict[str, tuple[Callable[[np.random.Generator], tuple[Array, Array]], tuple[int, int]]] = {
    "two Gaussians": (gaussians, (1140, 60)),
    "breast cancer": (breast_cancer, (228, 12)),
    "digits, 8 or not": (digits, (1140, 60)),
}


def split(name: str, labels: tuple[int, int], seed: int) -> tuple[Array, Array, Array, Array]:
    """Training samples, their labels (-1: unlabeled), test samples, their classes."""
    rng = np.random.default_rng(seed)
    make, sizes = DATA[name]
    X, truth = make(rng)
    train, y = [], []
    for c, size in enumerate(sizes):
        train.append(rng.permutation(np.flatnonzero(truth == c))[:size])
        y.append(np.where(np.arange(size) < labels[c], c, -1))
    index = np.concatenate(train)
    test = np.setdiff1d(np.arange(len(X)), index)
    return X[index], np.concatenate(y), X[test], truth[test]


def score(model: Any, X: Array, y: Array) -> tuple[float, float]:
    """Balanced accuracy, and the error if 5 % were of class 1."""
    predicted = model.predict(X)
    recalls = [float((predicted[y == c] == c).mean()) for c in SHARES]
    error = 1 - sum(share * recall for share, recall in zip(SHARES.values(), recalls, strict=True))
    return float(np.mean(recalls)), error


def measure(seeds: int, methods: tuple[str, ...] = METHODS, **settings: Any) -> list[Any]:
    """A row for each data set, labels, method and option."""
    rows: list[Any] = []
    nothing: dict[str, Any] = {}
    for (name, (labels, (counts, option))), method in product(
        product(DATA, LABELS.items()), (*methods, BASELINE)
    ):
        for given in (nothing, option):
            found = []
            for seed in range(seeds):
                X, y, X_test, y_test = split(name, counts, seed)
                if method == BASELINE:  # knows of weights, not of shares
                    weight = "balanced" if given else None
                    logistic = LogisticRegression(max_iter=1000, class_weight=weight)
                    model = make_pipeline(StandardScaler(), logistic).fit(X[y >= 0], y[y >= 0])
                else:
                    made = CCLPClassifier(method=method, random_state=seed, **given, **settings)
                    model = made.fit(X, y)
                found.append(score(model, X_test, y_test))
            balanced, errors = (list(values) for values in zip(*found, strict=True))
            rows.append(
                {
                    "data": name,
                    "labels": labels,
                    "method": method,
                    "option": {
                        k: v if isinstance(v, str) else list(v.values()) for k, v in given.items()
                    },
                    "balanced_accuracy": balanced,
                    "error": errors,
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def table(rows: list[Any]) -> str:
    """Means and standard deviations in percent, without the option and with it."""
    lines = [
        "| data, labels | method | balanced accuracy, % | with it | error, % | with it |",
        "|---|---|---|---|---|---|",
    ]
    for without, given in zip(rows[::2], rows[1::2], strict=True):
        cells = [
            percent(row[what]).text(digits=1)
            for what in ("balanced_accuracy", "error")
            for row in (without, given)
        ]
        about = f"{without['data']}, {without['labels']}"
        lines.append(f"| {about} | {without['method']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this page")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    rows = measure(options.seeds)
    print(table(rows))
    if options.out:
        content = {
            "command": f"benchmarks/imbalance.py --seeds {options.seeds}",
            "seeds": list(range(options.seeds)),
            "configuration": "CCLPClassifier's defaults but for method and option",
            "rows": rows,
            "environment": environment(torch.device("cpu")),
        }
        write_json(options.out, content)
    if options.docs:
        write_between(options.docs, MARKS, table(rows))


if __name__ == "__main__":
    main()
