"""CCLPClassifier beside scikit-learn's own: errors, time and memory, as a table and as JSON.

A part is kept in a file of its own, and what is in it is not measured again: after a stop the same
command resumes.

- digits: 10, 30, 50 and 100 labels, drawn per class, stratified 75/25 splits, 10 seeds;
- others: wine, breast cancer, moons and blobs with features of noise; 1, 3 and 10 labels a class,
  10 seeds;
- mnist: 784 pixels as a vector, 100 labels, all 60,000 images in fit (needs MNIST, see
  ``cclp data fetch mnist``);
- memory: a mixture of 10 Gaussians in 384 dimensions, 100 labels, more and more samples.

Baselines: LabelSpreading with its best kernel (7 neighbours, or RBF with one of three bandwidths),
chosen by the test error, in its favour; SelfTrainingClassifier with an SVC; logistic regression on
the labels alone. Tables are standardised for them.

``CCLPClassifier(method="cclp")`` is without pseudo-labels; ``GraphLabelPropagation`` without a
network, its predictions for the test part by neighbours in the graph.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_blobs, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from cclp.data.load import load
from cclp.experiments.aggregate import percent
from cclp.files import marked_page, write_between, write_json
from cclp.runs.record import read_json
from cclp.sklearn import CCLPClassifier, GraphLabelPropagation
from cclp.training.machine import environment

ONLY: set[str] = set()  # models that are measured; empty: all
Array = NDArray[Any]
Result = dict[str, Any]
MARKS = "<!-- benchmarks/estimator.py writes from here -->", "<!-- to here: estimator -->"
OURS, WITHOUT = "CCLPClassifier", 'CCLPClassifier(method="cclp")'
GRAPH = "GraphLabelPropagation"
RENAMED = {"CCLPClassifier(prior=0)": WITHOUT}  # as version 0.1 recorded it
SPREADING = "LabelSpreading, best kernel"
ROWS = (OURS, GRAPH, WITHOUT, SPREADING, "SelfTraining(SVC)", "logistic regression")
SHARPNESS = (1, 10, 50)
SIZES = {"ours": (20_000, 63_000, 200_000), "spreading": (2_000, 4_000, 8_000, 16_000)}


def few_labels(y: Array, per_class: int, seed: int) -> Array:
    """The labels of ``per_class`` samples of each class; -1 elsewhere."""
    rng = np.random.default_rng(seed)
    few = np.full(len(y), -1)
    for c in np.unique(y):
        chosen = rng.permutation(np.flatnonzero(y == c))[:per_class]
        few[chosen] = c
    return few


def with_noise(X: Array, features: int, size: float, seed: int) -> Array:
    """Add columns of noise."""
    rng = np.random.default_rng(seed)
    return np.hstack([X, rng.normal(scale=size, size=(len(X), features))])


def moons(seed: int) -> tuple[Array, Array]:
    """Two moons among eight features of noise."""
    X, y = make_moons(1000, noise=0.1, random_state=seed)
    return with_noise(X, 8, 0.3, seed), y


def blobs(seed: int) -> tuple[Array, Array]:
    """Five overlapping groups among ten features of noise."""
    X, y = make_blobs(1000, n_features=10, centers=5, cluster_std=3, random_state=seed)
    return with_noise(X, 10, 3, seed), y


OTHERS: dict[str, tuple[Callable[[int], tuple[Array, Array]], bool]] = {
    "wine": (lambda seed: load_wine(return_X_y=True), True),
    "breast cancer": (lambda seed: load_breast_cancer(return_X_y=True), True),
    "moons + noise": (moons, False),
    "blobs + noise": (blobs, False),
}


def rbf(X: Array, sharpness: float) -> LabelSpreading:
    """RBF with gamma relative to the median squared distance to the tenth neighbour."""
    squares = (X**2).sum(1)
    some = X[:500]
    distances = squares[:500, None] + squares - 2 * some @ X.T
    tenth = np.partition(distances, min(10, len(X) - 1), axis=1)[:, min(10, len(X) - 1)]
    return LabelSpreading(kernel="rbf", gamma=float(sharpness / np.median(tenth)))


def models(seed: int) -> dict[str, Callable[[Array], Any]]:
    """By name: a function of the samples."""
    return {
        OURS: lambda X: CCLPClassifier(random_state=seed),
        WITHOUT: lambda X: CCLPClassifier(method="cclp", random_state=seed),
        GRAPH: lambda X: GraphLabelPropagation(),
        "SelfTraining(SVC)": lambda X: SelfTrainingClassifier(
            SVC(probability=True, random_state=seed)
        ),
        "logistic regression": lambda X: LogisticRegression(max_iter=1000),
        "LabelSpreading, 7 neighbours": lambda X: LabelSpreading(kernel="knn", n_neighbors=7),
        **{f"LabelSpreading, RBF {s}": partial(rbf, sharpness=s) for s in SHARPNESS},
    }


def measure(
    found: Result,
    save: Callable[[], None],
    get: Callable[[int], tuple[Array, Array]],
    per_class: tuple[int, ...],
    seeds: int,
    scale: bool,
) -> None:
    """Test errors by model, labels a class and seed, into ``found``, but for what it holds."""
    for labels, seed in product(per_class, range(seeds)):
        X, y = get(seed)
        X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=seed)
        few = few_labels(y, labels, seed)
        scaler = StandardScaler().fit(X)
        for name, make in models(seed).items():
            if ONLY and name not in ONLY:
                continue
            errors = found.setdefault(name, {}).setdefault(str(labels), [])
            if len(errors) > seed:
                continue
            print(f"{name}, {labels} labels a class, seed {seed}", file=sys.stderr, flush=True)
            ours = name in (OURS, GRAPH, WITHOUT)
            A, B = (scaler.transform(Z) if scale and not ours else Z for Z in (X, X_test))
            known = few >= 0 if name == "logistic regression" else slice(None)
            model = make(A).fit(A[known], few[known])
            errors.append(float((model.predict(B) != y_test).mean()))
            save()


def digits(found: Result, save: Callable[[], None]) -> None:
    """The part of that name."""
    measure(found, save, lambda seed: load_digits(return_X_y=True), (1, 3, 5, 10), 10, False)


def others(found: Result, save: Callable[[], None]) -> None:
    """The part of that name."""
    for name, (get, scale) in OTHERS.items():
        measure(found.setdefault(name, {}), save, get, (1, 3, 10), 10, scale)


def mnist(found: Result, save: Callable[[], None]) -> None:
    """The part of that name. One labeled set: it takes minutes."""
    data = load("mnist")
    X, X_test = (x.reshape(len(x), -1) / np.float32(255) for x in (data.train_x, data.test_x))
    few = few_labels(data.train_y, 10, 0)
    for name, model in (
        (OURS, CCLPClassifier(random_state=0)),
        (WITHOUT, CCLPClassifier(method="cclp", random_state=0)),
        ("LabelSpreading, 7 neighbours", LabelSpreading(kernel="knn", n_neighbors=7)),
        ("SelfTraining(logistic regression)", SelfTrainingClassifier(LogisticRegression())),
    ):
        if name not in found:
            begun = time.perf_counter()
            error = float((model.fit(X, few).predict(X_test) != data.test_y).mean())
            found[name] = {"error": error, "seconds": time.perf_counter() - begun}
            print(name, found[name], file=sys.stderr, flush=True)
            save()


def kilobytes(what: str) -> int:
    """Memory of this process, as Linux counts it: VmRSS is now, VmHWM the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


def footprint(kind: str, count: int) -> Result:
    """Seconds, and the largest memory a fit took beyond its data; in a process of its own."""
    rng = np.random.default_rng(0)
    truth = rng.integers(10, size=count)
    centres = rng.normal(size=(10, 384)).astype(np.float32)
    X = rng.standard_normal((count, 384), np.float32)
    X += centres[truth]
    few = few_labels(truth, 10, 0)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = kilobytes("VmRSS")
    begun = time.perf_counter()
    model = CCLPClassifier(random_state=0) if kind == "ours" else LabelSpreading(gamma=1 / 384)
    model.fit(X, few)
    seconds = time.perf_counter() - begun
    after = kilobytes("VmHWM")
    error = float((model.predict(X[:2000]) != truth[:2000]).mean())
    return {"samples": count, "megabytes": (after - before) / 1000, "seconds": seconds} | {
        "data_megabytes": X.nbytes / 1e6,
        "error": error,
    }


def memory(found: Result, save: Callable[[], None]) -> None:
    """The part of that name, and the time for digits."""
    if "digits_fit_seconds" not in found:
        X, y = load_digits(return_X_y=True)
        begun = time.perf_counter()
        CCLPClassifier(random_state=0).fit(X[:1347], few_labels(y[:1347], 5, 0))
        found["digits_fit_seconds"] = time.perf_counter() - begun
    for kind, sizes in SIZES.items():
        rows = found.setdefault(kind, [])
        for size in sizes[len(rows) :]:
            with get_context("spawn").Pool(1) as pool:
                rows.append(pool.apply(footprint, (kind, size)))
            print(kind, rows[-1], file=sys.stderr, flush=True)
            save()


PARTS: dict[str, Callable[[Result, Callable[[], None]], None]] = {
    "digits": digits,
    "others": others,
    "mnist": mnist,
    "memory": memory,
}


def cell(values: list[float]) -> str:
    """Mean and standard deviation, in percent."""
    return percent(values).text(digits=1)


def table(title: str, errors: Result) -> list[list[str]]:
    """Errors of one data set."""
    labels = list(errors[OURS])
    spreading = [row for name, row in errors.items() if name.startswith("LabelSpreading")]
    best = {count: min((row[count] for row in spreading), key=np.mean) for count in labels}
    shown = {**errors, SPREADING: best}
    return [
        [title, *(f"{count} a class" for count in labels)],
        ["---"] * (len(labels) + 1),
        *(
            [name, *(cell(shown[name][count]) for count in labels)]
            for name in ROWS
            if name in shown
        ),
        [],
    ]


def markdown(parts: dict[str, Result]) -> str:
    """The page's tables, of the parts there are."""
    tables: list[list[str]] = []
    if "digits" in parts:
        tables += table("digits, error in %", parts["digits"])
    for name, result in parts.get("others", {}).items():
        if OURS not in result:  # not measured yet
            continue
        tables += table(f"{name}, error in %", result)
    if "mnist" in parts:
        tables += [
            ["MNIST as vectors, 100 labels", "error in %", "fit and predict, s"],
            ["---"] * 3,
        ]
        for name, found in parts["mnist"].items():
            tables.append([name, f"{100 * found['error']:.2f}", f"{found['seconds']:.0f}"])
        tables.append([])
    if "memory" in parts:
        tables += [["384 features", "samples", "memory beyond the data, MB", "fit, s"], ["---"] * 4]
        for kind, name in (("ours", OURS), ("spreading", "LabelSpreading, RBF")):
            for found in parts["memory"][kind]:
                row = [f"{found['samples']:,}", f"{found['megabytes']:,.0f}"]
                tables.append([name, *row, f"{found['seconds']:.0f}"])
    return "\n".join(f"| {' | '.join(row)} |" if row else "" for row in tables)


def read_part(path: Path) -> Result:
    """The content of a part's file, under today's names."""
    content = read_json(path.parent, path.name)
    return {**content, "result": _renamed(content["result"])}


def _renamed(result: Any) -> Any:
    if not isinstance(result, dict):
        return result
    return {RENAMED.get(name, name): _renamed(value) for name, value in result.items()}


def main() -> None:
    """Measure what is missing, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all if there is none")
    parser.add_argument("--out", type=Path, default=Path("results/estimator"), help="folder")
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the tables into this file")
    parser.add_argument("--only", action="append", default=[], help="these models, of small data")
    options = parser.parse_args()
    ONLY.update(options.only)
    warnings.filterwarnings("ignore", category=FutureWarning)  # SVC(probability=True)
    warnings.filterwarnings("ignore", message=".*(converge|max_iter|graph is poor|different units)")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.parts or PARTS:
        path = options.out / f"{name}.json"
        content: Result = {"command": f"benchmarks/estimator.py {name}", "result": {}}
        if path.exists():
            content = read_part(path)
        content["environment"] = environment(torch.device("cpu"))
        PARTS[name](content["result"], lambda: write_json(path, content))  # noqa: B023 - used at once
    done = [name for name in PARTS if (options.out / f"{name}.json").exists()]
    parts = {name: read_part(options.out / f"{name}.json")["result"] for name in done}
    print(markdown(parts))
    if options.docs:
        write_between(options.docs, MARKS, markdown(parts))


if __name__ == "__main__":
    main()
