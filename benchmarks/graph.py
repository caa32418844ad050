"""Label propagation at very few labels: accuracy, time, memory. No network is trained.

Parts, each kept in a file of its own and resumed:

- mnist, fashion_mnist, cifar10, digits: transductive accuracy of ``GraphLabelPropagation`` on all
  images, training and test, over random draws of 1 to 160 labels a class (the published data are
  needed, see ``cclp data fetch``; digits are bundled);
- cifar10_features: the same of 20,000 images by features of a network trained on ImageNet, made by
  ``python -m benchmarks.embeddings features --data cifar10``;
- seconds: MNIST, 70,000 images from raw pixels to classes, by HOG and by HOG and IDM;
- scale: a mixture of 10 Gaussians in 384 dimensions, more and more samples, beside scikit-learn's
  LabelSpreading and, if it is installed, graphlearning's Poisson learning.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.semi_supervised import LabelSpreading

from benchmarks.estimator import few_labels, kilobytes
from cclp.data.load import load
from cclp.files import marked_page, write_between, write_json
from cclp.pseudo_labels.graph import NeighbourGraph
from cclp.pseudo_labels.propagation import Propagation
from cclp.runs.record import read_json
from cclp.sklearn import GraphLabelPropagation
from cclp.training.machine import environment

Result = dict[str, Any]
Save = Callable[[], None]
MARKS = "<!-- benchmarks/graph.py writes from here -->", "<!-- to here: graph -->"
FEATURES = "cifar10_features"
DATA = ("mnist", "fashion_mnist", "cifar10", FEATURES, "digits")
RATES = (1, 2, 3, 4, 5, 10, 40, 160)
# PoissonMBO of jwcalder/GraphLearning, mean of 100 draws, told the true class sizes
PUBLISHED = {
    "mnist": (96.5, 97.2, 97.2, 97.2, 97.2, 97.2, 97.2, 97.2),
    "fashion_mnist": (62.0, 67.2, 70.4, 72.1, 73.1, 76.1, 79.5, 81.6),
    "cifar10": (41.8, 50.2, 53.5, 56.5, 57.9, 61.8, 66.9, 70.3),
}
SIZES = {
    "GraphLabelPropagation": (10_000, 31_600, 100_000, 316_000, 1_000_000),
    "LabelSpreading, RBF": (2_000, 4_000, 8_000, 16_000),
    "graphlearning Poisson": (10_000, 31_600, 100_000),
}


def accuracy(name: str, options: argparse.Namespace, found: Result, save: Save) -> None:
    """The part of a data set: accuracies by labels a class, one for each draw."""
    if name == FEATURES:
        arrays = np.load(options.features)
        x, y = arrays["x"] / np.linalg.norm(arrays["x"], axis=1, keepdims=True), arrays["y"]
    else:
        data = load(name, options.data_dir if name != "digits" else None)
        x, y = (np.concatenate(both) for both in (
            (data.train_x, data.test_x), (data.train_y, data.test_y)
        ))  # fmt: skip
    num_classes = int(y.max()) + 1
    graph = NeighbourGraph(x, cache=options.cache)
    found["samples"] = len(y)
    for rate in RATES:
        if rate > 0.5 * np.bincount(y).min():
            break
        accuracies = found.setdefault("accuracy", {}).setdefault(str(rate), [])
        for draw in range(len(accuracies), options.draws):
            few = few_labels(y, rate, draw)
            begun = time.perf_counter()
            W = graph.joined(few)
            assert W is not None
            classes = Propagation(W, graph.place, few, num_classes).classes()
            right = (classes[graph.place].argmax(1) == y)[few < 0].mean()
            accuracies.append(float(right))
            seconds = time.perf_counter() - begun
            print(f"{name} {rate} a class, draw {draw}: {right:.2%}, {seconds:.1f} s",
                  file=sys.stderr, flush=True)  # fmt: skip
            save()


def seconds(options: argparse.Namespace, found: Result, save: Save) -> None:
    """The part of that name; in processes of their own, neighbours not cached."""
    for kind in ("hog", "idm"):
        if kind not in found:
            with get_context("spawn").Pool(1) as pool:
                found[kind] = pool.apply(fit_mnist, (kind, options.data_dir))
            print(kind, found[kind], file=sys.stderr, flush=True)
            save()


def fit_mnist(kind: str, data_dir: Path | None) -> Result:
    """Seconds and accuracy of a fit on all images of MNIST, 1 label a class."""
    data = load("mnist", data_dir)
    X = np.concatenate([data.train_x, data.test_x]).reshape(70_000, 784).astype(np.float32)
    y = np.concatenate([data.train_y, data.test_y])
    few = few_labels(y, 1, 0)
    model = GraphLabelPropagation(image_shape=(28, 28), image_distance=kind)
    return measured(lambda: model.fit(X, few)) | {
        "accuracy": float((model.transduction_ == y)[few < 0].mean())
    }


def scale(options: argparse.Namespace, found: Result, save: Save) -> None:
    """The part of that name; each size in a process of its own."""
    for kind, sizes in SIZES.items():
        if kind.startswith("graphlearning") and not all(map(find_spec, ("graphlearning", "annoy"))):
            continue
        rows = found.setdefault(kind, [])
        for size in sizes[len(rows) :]:
            if size > options.most:
                break
            with get_context("spawn").Pool(1) as pool:
                rows.append(pool.apply(fit_mixture, (kind, size)))
            print(kind, rows[-1], file=sys.stderr, flush=True)
            save()


def fit_mixture(kind: str, count: int) -> Result:
    """Seconds, memory beyond the data and accuracy on unlabeled samples, 10 labels a class."""
    rng = np.random.default_rng(0)
    truth = rng.integers(10, size=count)
    X = rng.standard_normal((count, 384), np.float32)
    X += rng.normal(size=(10, 384)).astype(np.float32)[truth]
    few = few_labels(truth, 10, 0)
    if kind.startswith("graphlearning"):
        return measured(lambda: poisson(X, few)) | _right(poisson.classes, few, truth)  # type: ignore[attr-defined]
    model = GraphLabelPropagation() if kind.startswith("Graph") else LabelSpreading(gamma=1 / 384)
    cost = measured(lambda: model.fit(X, few))
    return cost | _right(model.transduction_, few, truth)


def poisson(X: Any, few: Any) -> None:
    """Poisson learning by graphlearning, on its own graph of ten neighbours."""
    import graphlearning

    W = graphlearning.weightmatrix.knn(X, 10)
    known = np.flatnonzero(few >= 0)
    poisson.classes = graphlearning.ssl.poisson(W).fit_predict(known, few[known])  # type: ignore[attr-defined]


def measured(run: Callable[[], Any]) -> Result:
    """Seconds, and the largest memory it took beyond what there was."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before, begun, processor = kilobytes("VmRSS"), time.perf_counter(), time.process_time()
    run()
    return {
        "seconds": time.perf_counter() - begun,
        "processor_seconds": time.process_time() - processor,
        "megabytes": (kilobytes("VmHWM") - before) / 1000,
    }


def _right(classes: Any, few: Any, truth: Any) -> Result:
    return {"samples": len(truth), "accuracy": float((classes == truth)[few < 0].mean())}


def markdown(parts: dict[str, Result]) -> str:
    """The page's tables, of the parts there are."""
    lines = [
        "| transductive accuracy, % | " + " | ".join(map(str, RATES)) + " |",
        "|---|" + "---|" * len(RATES),
    ]
    for name in DATA:
        if name not in parts:
            continue
        rows = parts[name]["accuracy"]
        cells = [100 * np.array(rows.get(str(rate), [])) for rate in RATES]
        for title, of in (("mean", np.mean), ("worst", np.min)):
            shown = " | ".join(f"{of(cell):.1f}" if len(cell) else "–" for cell in cells)
            draws = sorted({len(cell) for cell in cells if len(cell)})
            some = f"{draws[0]} to {draws[-1]}" if len(draws) > 1 else f"{draws[0]}"
            lines.append(f"| {name}, {title} of {some} draws | {shown} |")
        if name in PUBLISHED:
            shown = " | ".join(f"{value:.1f}" for value in PUBLISHED[name])
            lines.append(f"| {name}, PoissonMBO as published | {shown} |")
    if "seconds" in parts:
        lines += ["", "| MNIST, 70,000 images | seconds | MB beyond the data | accuracy, % |"]
        lines.append("|---|---|---|---|")
        for kind, title in (("hog", "HOG"), ("idm", "HOG and IDM")):
            row = parts["seconds"][kind]
            lines.append(
                f"| {title} | {row['seconds']:.0f} | {row['megabytes']:,.0f} | "
                f"{100 * row['accuracy']:.1f} |"
            )
    if "scale" in parts:
        lines += ["", "| 384 features | samples | seconds | MB beyond the data | accuracy, % |"]
        lines.append("|---|---|---|---|---|")
        for kind, rows in parts["scale"].items():
            for row in rows:
                lines.append(
                    f"| {kind} | {row['samples']:,} | {row['seconds']:.1f} | "
                    f"{row['megabytes']:,.0f} | {100 * row['accuracy']:.1f} |"
                )
            if len(rows) > 2:
                sizes = [row["samples"] for row in rows]
                growth = [
                    exponent(sizes, [row[key] for row in rows]) for key in ("seconds", "megabytes")
                ]
                lines.append(f"| {kind}, fitted exponent | | {growth[0]:.2f} | {growth[1]:.2f} | |")
    return "\n".join(lines)


def exponent(sizes: list[int], values: list[float]) -> float:
    """Of the power of the size that fits the values best."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def main() -> None:
    """Measure what is missing, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = (*DATA, "seconds", "scale")
    parser.add_argument("parts", nargs="*", choices=[[], *names], help="all if there is none")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--most", type=int, default=1_000_000, help="samples of the scale part")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("CCLP_DATA"))
    made = Path("build/embeddings/cifar10.npz")
    parser.add_argument("--features", type=Path, default=made, help=f"of {FEATURES}")
    parser.add_argument("--cache", type=Path, default=Path("build/neighbours"))
    parser.add_argument("--out", type=Path, default=Path("results/graph"), help="folder")
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the tables into this file")
    options = parser.parse_args()
    options.data_dir = None if options.data_dir is None else Path(options.data_dir)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.parts or names:
        path = options.out / f"{name}.json"
        content: Result = {"command": f"python -m benchmarks.graph {name}", "result": {}}
        if path.exists():
            content = read_json(path.parent, path.name)
        content["environment"] = environment(torch.device("cpu"))
        found = content["result"]

        def save(path: Path = path, content: Result = content) -> None:
            write_json(path, content)

        if name == "seconds":
            seconds(options, found, save)
        elif name == "scale":
            scale(options, found, save)
        else:
            accuracy(name, options, found, save)
    done = [name for name in names if (options.out / f"{name}.json").exists()]
    parts = {name: read_json(options.out, f"{name}.json")["result"] for name in done}
    print(markdown(parts))
    if options.docs:
        write_between(options.docs, MARKS, markdown(parts))


if __name__ == "__main__":
    main()
