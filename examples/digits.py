"""Digits with 50 labels: what 1,297 unlabeled images are worth.

The same network is trained twice: on the labels alone (method "supervised") and with CCLP. "CCLP"
is method "cclp", the paper's loss and nothing else: no pseudo-labels and no augmentation. Beside
them are two semi-supervised classifiers of scikit-learn. Each seed draws another labeled set.
Errors are on 450 test images.

    python examples/digits.py --out build/demo
"""

import argparse
import io
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from cclp.data.dataset import Dataset
from cclp.data.load import load
from cclp.data.splits import make_split
from cclp.files import write_bytes, write_json
from cclp.progress import make_reporter
from cclp.report.page import make_report
from cclp.runs.start import train
from cclp.training.config import Config
from cclp.training.machine import environment
from cclp.training.recipe import make_recipe

LABELS = 50
NAMES = {
    "supervised": "labels only",
    "LabelSpreading": "LabelSpreading (scikit-learn)",
    "SelfTraining": "SelfTraining (scikit-learn)",
    "cclp": "CCLP",
}
PEERS: dict[str, Callable[[], Any]] = {
    "LabelSpreading": lambda: LabelSpreading(kernel="knn", n_neighbors=10, max_iter=100),
    "SelfTraining": lambda: make_pipeline(
        StandardScaler(), SelfTrainingClassifier(LogisticRegression(max_iter=1000))
    ),
}


def peer_error(name: str, data: Dataset, seed: int) -> float:
    """Error of a classifier of scikit-learn, given the labeled set of that seed."""
    labeled = make_split(data.train_y, LABELS, 0, seed).labeled
    y = np.full(len(data.train_y), -1)
    y[labeled] = data.train_y[labeled]
    x_train, x_test = (
        x.reshape(len(x), -1).astype(np.float64) for x in (data.train_x, data.test_x)
    )
    return float((PEERS[name]().fit(x_train, y).predict(x_test) != data.test_y).mean())


def run(seeds: int, max_steps: int | None) -> dict[str, Any]:
    """Errors of every method for every seed; embeddings and a report of the first seed's runs."""
    data = load("digits")
    recipe = make_recipe("short", "digits")
    recipe = replace(recipe, max_steps=max_steps or recipe.max_steps)
    errors: dict[str, list[float]] = {name: [] for name in NAMES}
    embeddings: dict[str, dict[str, NDArray[Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            for name in PEERS:
                errors[name].append(peer_error(name, data, seed))
            for method in ("supervised", "cclp"):
                config = Config(
                    "digits", recipe, method, num_labels=LABELS, seed=seed, precision="32"
                )
                out = Path(folder, f"{method}-{seed}")
                command = f"cclp train digits --num-labels {LABELS} --method {method} --seed {seed}"
                command += " --precision 32"
                with make_reporter(quiet=False) as report:
                    result = train(config, out, report, command=command)
                errors[method].append(result["error"])
                if seed == 0:
                    with np.load(out / "embedding" / f"{recipe.max_steps:08d}.npz") as arrays:
                        embeddings[method] = dict(arrays)
        page = make_report([Path(folder, f"{method}-0") for method in ("cclp", "supervised")])
    return {
        "errors": errors,
        "embeddings": embeddings,
        "recipe": recipe.to_json(),
        "report": page,
    }


def print_table(errors: dict[str, list[float]]) -> None:
    """Mean error of each method, best last."""
    seeds = len(errors["cclp"])
    table = Table(
        title=f"digits, {LABELS} labels, error on 450 test images",
        caption="CCLP: method cclp, the paper's loss without pseudo-labels",
    )
    table.add_column("method")
    table.add_column(f"mean of {seeds} labeled sets", justify="right")
    table.add_column("each", justify="right")
    for name in sorted(errors, key=lambda name: -np.mean(errors[name])):
        each = "  ".join(f"{error:.1%}" for error in errors[name])
        table.add_row(NAMES[name], f"{np.mean(errors[name]):.1%}", each)
    Console().print(table)
    ratio = np.mean(errors["cclp"]) / np.mean(errors["supervised"])
    print(f"CCLP has {ratio:.2f} times the error of the same network trained on the labels only.")


def draw(found: dict[str, Any], path: Path) -> None:
    """Errors of all methods, and both embeddings in their two main directions."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    errors = found["errors"]
    order = sorted(errors, key=lambda name: np.mean(errors[name]))
    short = [NAMES[name].split(" (")[0] for name in order]
    colours = ["tab:orange" if name == "cclp" else "silver" for name in order]
    axes[0].barh(short, [100 * np.mean(errors[name]) for name in order], color=colours)
    for row, name in enumerate(order):
        axes[0].plot(100 * np.array(errors[name]), [row] * len(errors[name]), "k.", ms=5)
    axes[0].set_xlabel("test error, %")
    axes[0].set_title(f"{LABELS} labels; dots are labeled sets", fontsize=11)
    for axis, method in zip(axes[1:], ("supervised", "cclp"), strict=True):
        arrays = found["embeddings"][method]
        x, y = PCA(2, svd_solver="full").fit_transform(arrays["z"]).T
        labeled = arrays["labeled"]
        for marker, mask, size, edge in ((".", ~labeled, 24, "none"), ("*", labeled, 90, "black")):
            axis.scatter(
                x[mask], y[mask], c=arrays["y"][mask], cmap="tab10", vmin=0, vmax=9,
                marker=marker, s=size, edgecolors=edge, linewidths=0.7,
            )  # fmt: skip
        wrong = (arrays["predicted"] != arrays["y"])[~labeled].mean()
        axis.set_title(f"embedding, {NAMES[method]}: {wrong:.1%} wrong", fontsize=11)
        axis.set_xticks([])
        axis.set_yticks([])
    content = io.BytesIO()
    figure.savefig(content, dpi=110, format="png")
    write_bytes(path, content.getvalue())
    plt.close(figure)


def main() -> None:
    """Train, print a table, write the figure, the numbers and a report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for results")
    parser.add_argument("--seeds", type=int, default=3, help="labeled sets")
    parser.add_argument("--max-steps", type=int, help="of training; the recipe's if not given")
    options = parser.parse_args()
    found = run(options.seeds, options.max_steps)
    print_table(found["errors"])
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(
        options.out / "digits.json",
        {
            "data": "digits",
            "num_labels": LABELS,
            "seeds": list(range(options.seeds)),
            "errors": found["errors"],
            "recipe": found["recipe"],
            "environment": environment(torch.device("cpu")),
        },
    )
    draw(found, options.out / "digits.png")
    write_bytes(options.out / "report.html", found["report"].encode())
    print(f"Figure: {options.out / 'digits.png'}")
    print(f"Report, for a browser: {options.out / 'report.html'}")


if __name__ == "__main__":
    main()
