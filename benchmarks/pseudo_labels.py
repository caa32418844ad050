"""Accuracy of pseudo-labels from label propagation on a nearest-neighbour graph: no training.

The graph is of pixels, of HOG features, or of HOG features and the image distortion model (IDM),
which ``graph_pseudo_label`` uses for images. For each: the share of unlabeled training samples
whose pseudo-label is correct, and the leave-one-out accuracy of the labels, over three labeled
sets. Needs the published data (``cclp data fetch``); any copy of SVHN is accepted, and the table
marks one that is not the published.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cclp.data.load import load
from cclp.data.splits import make_split
from cclp.files import marked_page, write_between, write_json
from cclp.pseudo_labels.features import make_features
from cclp.pseudo_labels.graph import LabelGraph
from cclp.training.machine import environment

MARKS = (
    "<!-- benchmarks/pseudo_labels.py writes from here -->",
    "<!-- to here: pseudo_labels -->",
)
LABELS = {"mnist": 100, "fashion_mnist": 100, "svhn": 1000, "cifar10": 4000}
_OLD_KINDS = {"gradients": "HOG", "gradients, bent": "HOG and IDM"}
_OLD_NAMES = {
    "labels": "num_labels", "neighbours": "features", "right": "accuracy",
    "left_out": "leave_one_out",
}  # fmt: skip


def measure(
    name: str, num_labels: int, seeds: int, data_dir: Path | None, cache: Path
) -> list[dict[str, Any]]:
    """A row for each kind of features."""
    data = load(name, data_dir, verify=name != "svhn")
    y = data.train_y
    rows = []
    kinds = {
        "pixels": data.train_x.reshape(len(y), -1),
        "HOG": make_features(data.train_x),
        "HOG and IDM": data.train_x,
    }
    for kind, x in kinds.items():
        accuracy, leave_one_out = [], []
        for seed in range(seeds):
            labeled = make_split(y, num_labels, 0, seed).labeled
            few = np.full(len(y), -1)
            few[labeled] = y[labeled]
            graph = LabelGraph(x, few, data.num_classes, cache)
            accuracy.append(float((graph.propagate().argmax(1) == y)[few < 0].mean()))
            leave_one_out.append(list(graph.leave_one_out()[:2]))
        about = {"data": name, "verified": data.verified, "num_labels": num_labels}
        rows.append(
            {**about, "features": kind, "accuracy": accuracy, "leave_one_out": leave_one_out}
        )
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    return rows


def upgrade_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that version 0.1 recorded, under today's names."""
    renamed = [{_OLD_NAMES.get(name, name): value for name, value in row.items()} for row in rows]
    return [row | {"features": _OLD_KINDS.get(row["features"], row["features"])} for row in renamed]


def table(rows: list[dict[str, Any]]) -> str:
    """Accuracy of all labeled sets, and the labels that leave-one-out predicts correctly."""
    lines = [
        "| data, labels | features of the graph | accuracy, % | leave-one-out |",
        "|---|---|---|---|",
    ]
    for row in rows:
        unlike = "" if row["verified"] else ", not the published files"
        accuracy = ", ".join(f"{100 * share:.1f}" for share in row["accuracy"])
        tested = ", ".join(f"{correct} of {tested}" for correct, tested in row["leave_one_out"])
        about = f"{row['data']}, {row['num_labels']}{unlike}"
        lines.append(f"| {about} | {row['features']} | {accuracy} | {tested} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this page")
    parser.add_argument("--data", choices=[*LABELS, "digits"], action="append", help="only these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("CCLP_DATA"))
    parser.add_argument("--cache", type=Path, default=Path("build/neighbours"))
    options = parser.parse_args()
    rows = []
    for name in options.data or LABELS:
        labels = LABELS.get(name, 100)
        rows += measure(name, labels, options.seeds, options.data_dir, options.cache)
    if options.out:
        command = f"benchmarks/pseudo_labels.py --seeds {options.seeds}"
        write_json(
            options.out,
            {"command": command, "rows": rows, "environment": environment(torch.device("cpu"))},
        )
    if options.docs:
        write_between(options.docs, MARKS, table(rows))


if __name__ == "__main__":
    main()
