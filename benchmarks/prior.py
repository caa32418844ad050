"""How good labels are that were spread over the inputs: no network, no training.

Of every training sample without a label: the share whose class is right, with neighbours by pixels,
by gradients, and by gradients of images that may be bent a little (what ``cclp train --prior``
takes), three labeled sets; and what leaving labels out says of it. Needs the published data
(``cclp data fetch``); SVHN of any copy is accepted, and what is not the published one is said to be
so.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cclp.pseudo_labels.prior import LabelGraph, comparable

from cclp.data.load import load
from cclp.data.splits import make_split
from cclp.files import check_marks, write_between, write_json
from cclp.training.machine import environment

MARKS = "<!-- benchmarks/prior.py writes from here -->", "<!-- to here: prior -->"
LABELS = {"mnist": 100, "fashion_mnist": 100, "svhn": 1000, "cifar10": 4000}


def measure(name: str, labels: int, seeds: int, data_dir: Path | None, cache: Path) -> list[Any]:
    """A row for each kind of neighbours."""
    data = load(name, data_dir, verify=name != "svhn")
    y = data.train_y
    rows = []
    kinds = {
        "pixels": data.train_x.reshape(len(y), -1),
        "gradients": comparable(data.train_x),
        "gradients, bent": data.train_x,
    }
    for kind, x in kinds.items():
        right, left_out = [], []
        for seed in range(seeds):
            labeled = make_split(y, labels, 0, seed).labeled
            few = np.full(len(y), -1)
            few[labeled] = y[labeled]
            graph = LabelGraph(x, few, data.num_classes, cache)
            right.append(float((graph.spread().argmax(1) == y)[few < 0].mean()))
            left_out.append(graph.leave_out()[:2])
        row = {"data": name, "verified": data.verified, "labels": labels, "neighbours": kind}
        rows.append({**row, "right": right, "left_out": left_out})
        print(name, labels, kind, ", ".join(f"{r:.2%}" for r in right), left_out, flush=True)
    return rows


def table(rows: list[Any]) -> str:
    """Shares in %, all labeled sets; and how many labels were right when left out."""
    lines = [
        "| data, labels | neighbours by | right, % | left out and right |",
        "|---|---|---|---|",
    ]
    for row in rows:
        unlike = "" if row["verified"] else ", not the published files"
        right = ", ".join(f"{100 * share:.1f}" for share in row["right"])
        left_out = ", ".join(f"{good} of {tried}" for good, tried in row["left_out"])
        about = f"{row['data']}, {row['labels']}{unlike}"
        lines.append(f"| {about} | {row['neighbours']} | {right} | {left_out} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--docs", type=Path, help="put the table into this page")
    parser.add_argument("--data", choices=LABELS, action="append", help="these sets only")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("CCLP_DATA"))
    parser.add_argument("--cache", type=Path, default=Path("build/neighbours"))
    options = parser.parse_args()
    if options.docs:
        check_marks(options.docs, MARKS)
    rows = []
    for name in options.data or LABELS:
        rows += measure(name, LABELS[name], options.seeds, options.data_dir, options.cache)
    if options.out:
        command = f"benchmarks/prior.py --seeds {options.seeds}"
        write_json(
            options.out,
            {"command": command, "rows": rows, "environment": environment(torch.device("cpu"))},
        )
    if options.docs:
        write_between(options.docs, MARKS, table(rows))


if __name__ == "__main__":
    main()
