"""Handwritten digits with 10 or 50 labels, classified in five ways.

1,347 images of scikit-learn's digits are for training; almost all of their labels are hidden. The
errors are on 450 other images. Each labeled set has as many labels of every class. Everything is
called as a user would: the defaults, except where a comment says why not.

    python examples/digits.py --out build/demo
"""

import argparse
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from cclp.experiments.aggregate import percent
from cclp.files import write_json
from cclp.sklearn import CCLPClassifier, GraphLabelPropagation
from cclp.training.machine import environment

LABELS = (10, 50)
ONLY, OURS = "labels only", "CCLPClassifier"
WAYS: dict[str, Callable[[], Any]] = {
    ONLY: lambda: CCLPClassifier(method="supervised", random_state=0),  # the same network
    "SelfTraining": lambda: make_pipeline(
        StandardScaler(), SelfTrainingClassifier(LogisticRegression(max_iter=1000))
    ),
    "LabelSpreading": lambda: LabelSpreading(),
    "GraphLabelPropagation": lambda: GraphLabelPropagation(),
    OURS: lambda: CCLPClassifier(random_state=0),
}
FROM = {"SelfTraining": "scikit-learn", "LabelSpreading": "scikit-learn"}
COLOURS = [
    "#332288", "#0088cc", "#229988", "#117733", "#777711",
    "#cc8800", "#dd5566", "#882255", "#aa4499", "#666666",
]  # fmt: skip
BARS = {"GraphLabelPropagation": "#f3cf80", OURS: "#e69f00"}
Errors = dict[str, dict[str, list[float]]]  # by number of labels, then by name


def hide_labels(truth: NDArray[Any], count: int, seed: int) -> NDArray[Any]:
    """All labels become -1, which is unlabeled, but for ``count``: as many of every class."""
    y = np.full_like(truth, -1)
    for c, random in enumerate(np.random.default_rng(seed).spawn(10)):
        chosen = random.choice(np.flatnonzero(truth == c), count // 10, replace=False)
        y[chosen] = c
    return y


def compare(sets: int) -> tuple[Errors, dict[str, Any]]:
    """Test errors of every way, and what the first set of 50 labels looks like embedded."""
    pixels, truth = load_digits(return_X_y=True)
    X, X_test, truth, y_test = train_test_split(
        pixels / 16, truth, test_size=450, stratify=truth, random_state=0
    )
    errors: Errors = {str(count): {name: [] for name in WAYS} for count in LABELS}
    embedded: dict[str, Any] = {}
    print("Wrong of 450 test images:", " ".join(f"{name:>{len(name) + 1}}" for name in WAYS))
    for count in LABELS:
        for seed in range(sets):
            print(f"  {count} labels, set {seed + 1} of {sets}:", end="   ", flush=True)
            y = hide_labels(truth, count, seed)
            for name, make in WAYS.items():
                model = make().fit(X, y)
                wrong = model.predict(X_test) != y_test
                errors[str(count)][name].append(float(wrong.mean()))
                print(f"{wrong.mean():>{len(name) + 2}.1%}", end="", flush=True)
                if isinstance(model, CCLPClassifier) and count == LABELS[-1] and seed == 0:
                    z, z_labeled = model.transform(X_test), model.transform(X[y >= 0])
                    embedded[name] = z, y_test, wrong, z_labeled, y[y >= 0]
            print()
    return errors, embedded


def rows(errors: Errors) -> list[list[str]]:
    """A row of a table for each way, mean ± standard deviation in percent; the best last."""
    best_last = sorted(WAYS, key=lambda name: -np.mean([e[name] for e in errors.values()]))
    return [
        [
            f"{name} ({FROM[name]})" if name in FROM else name,
            *(percent(e[name]).text(digits=1) for e in errors.values()),
        ]
        for name in best_last
    ]


def draw(errors: Errors, embedded: dict[str, Any], path: Path) -> None:
    """The embeddings of two networks in their two main directions, and all errors."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(8.6, 6.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.75, 1))  # type: ignore[misc]
    for axis, name in zip(above.subplots(1, 2), (ONLY, OURS), strict=True):
        z, truth, wrong, z_labeled, known = embedded[name]
        plane = PCA(2, svd_solver="full").fit(z)
        for c, colour in enumerate(COLOURS):
            x, y = plane.transform(z[truth == c]).T
            axis.scatter(x, y, s=30, marker=f"${c}$", color=colour, linewidths=0.3)
            x, y = plane.transform(z_labeled[known == c]).T
            axis.scatter(x, y, s=110, color=colour, edgecolors="black", linewidths=0.8, zorder=2)
            axis.scatter(x, y, s=36, marker=f"${c}$", color="white", linewidths=0.4, zorder=3)
        axis.set(xticks=[], yticks=[])
        title = "trained on 50 labels only" if name == ONLY else f"{name}, the same labels"
        axis.set_title(f"{title}: {wrong.mean():.1%} wrong", fontsize=12.5)
    for axis, count in zip(below.subplots(1, len(errors), sharey=True), errors, strict=True):
        names = list(errors[count])
        for row, name in enumerate(reversed(names)):
            each = 100 * np.array(errors[count][name])
            axis.barh(row, each.mean(), color=BARS.get(name, "#c4c4c4"))
            axis.plot(each, [row] * len(each), "k|", ms=9)
            axis.annotate(
                f"{each.mean():.1f} %", (each.max(), row), (7, 0), va="center", fontsize=11,
                textcoords="offset points",
            )  # fmt: skip
        axis.set_yticks(range(len(names)), names[::-1], fontsize=11)
        axis.set_title(f"{count} labels: test error, %", fontsize=12)
        axis.margins(x=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def page(errors: Errors, figure: Path) -> str:
    """The table and the figure as one HTML file."""
    cells = "".join(f"<tr><td>{'<td>'.join(row)}" for row in rows(errors))
    picture = b64encode(figure.read_bytes()).decode()
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Digits</title>
<style>body {{ font: 16px sans-serif; max-width: 54em; margin: 2em auto; padding: 0 1em }}
img {{ width: 100% }} td, th {{ padding: .2em 1em; text-align: left }}</style>
<h1>Digits with few labels</h1>
<p>Test error in %, mean ± standard deviation of {len(errors["10"][ONLY])} labeled sets.
<table><tr><th><th>{"<th>".join(f"{count} labels" for count in errors)}{cells}</table>
<img alt="Embeddings and errors" src="data:image/png;base64,{picture}">"""


def main() -> None:
    """Compare, and write the errors, a figure and a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for results")
    parser.add_argument("--sets", type=int, default=5, help="labeled sets")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    errors, embedded = compare(options.sets)
    for row in rows(errors):
        print("{:>30}: {} % with 10 labels, {} % with 50".format(*row))
    write_json(
        options.out / "digits.json",
        {"data": "digits", "errors": errors, "environment": environment(torch.device("cpu"))},
    )
    draw(errors, embedded, options.out / "digits.png")
    (options.out / "report.html").write_text(page(errors, options.out / "digits.png"))
    print(f"Table and figure, for a browser: {options.out / 'report.html'}")


if __name__ == "__main__":
    main()
