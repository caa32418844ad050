"""What ``neighbours=k`` of the loss costs, and how far it is from the whole graph.

Time and memory: forward and backward on N points of 10 clusters with 128 features, a tenth of them
labeled, chains of 3 moves; each in a process of its own, its peak memory beyond what it held before
the call. Error: on the embeddings of 1,000 training samples of digits, 50 of them labeled, while
``cclp train`` trains on them with CCLP: the relative error of the loss, and the angle between its
gradient and that of the whole graph.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import cclp
from benchmarks.rows import Rows
from cclp.files import marked_page, write_between
from cclp.runs.start import train
from cclp.training.config import Config
from cclp.training.recipe import make_recipe

MARKS = "<!-- benchmarks/sparse.py writes from here -->", "<!-- to here: sparse -->"
SIZES, DENSE_SIZES = (1000, 2000, 5000, 10_000, 20_000), (1000, 2000, 5000, 10_000)
KEPT, NEIGHBOURS = 20, (5, 10, 20, 50, 100)
STEPS = (30, 90, 300)


def clusters(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings of n points, labels of the first tenth."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(n) % 10
    z = 0.3 * torch.randn(n, 128, generator=generator) + 5 * torch.eye(128)[classes]
    n_l = n // 10
    return z[:n_l].requires_grad_(), classes[:n_l], z[n_l:].requires_grad_()


def call(n: int, neighbours: int | None) -> dict[str, float]:
    """Seconds of a call in this process, and the megabytes that it needs."""
    z_labeled, labels, z_unlabeled = clusters(n)
    cclp.cclp_loss(z_labeled[:20], labels[:20], z_unlabeled[:20], num_classes=10)
    before, begun = resident("VmRSS"), time.perf_counter()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    loss = cclp.cclp_loss(z_labeled, labels, z_unlabeled, num_classes=10, neighbours=neighbours)
    torch.autograd.grad(loss, (z_labeled, z_unlabeled))
    seconds = time.perf_counter() - begun
    return {"loss": loss.item(), "seconds": seconds, "megabytes": resident("VmHWM") - before}


def resident(what: str) -> float:
    """Megabytes of this process: VmRSS now, VmHWM at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    raise ValueError(f"{what} is not in /proc/self/status")


def in_a_process(n: int, neighbours: int | None) -> dict[str, float]:
    """The same in one of its own."""
    code = "import json; from benchmarks.sparse import call; "
    code += f"print(json.dumps(call({n}, {neighbours})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(z: Tensor, y: Tensor, labeled: Tensor, neighbours: int) -> dict[str, float]:
    """The loss on a sparse graph against that on the whole graph."""
    z = torch.cat([z[labeled], z[~labeled]]).requires_grad_()
    n_l, found = int(labeled.sum()), []
    for k in (None, neighbours):
        loss = cclp.cclp_loss(z[:n_l], y[labeled], z[n_l:], num_classes=10, neighbours=k)
        (gradient,) = torch.autograd.grad(loss, z)
        found.append((loss.item(), gradient.flatten()))
    (whole, dense), (value, sparse) = found
    cosine = torch.cosine_similarity(dense, sparse, dim=0).clamp(-1, 1).item()
    return {"loss": value, "of_whole": whole, "degrees": math.degrees(math.acos(cosine))}


def errors(seed: int) -> list[dict[str, Any]]:
    """Along one training."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        run = Path(place, "run")
        config = Config(
            "digits", make_recipe("short", "digits"), method="cclp", num_labels=50, seed=seed,
            evaluate_every=30,
        )  # fmt: skip
        train(config, run)
        for step in STEPS:
            with np.load(run / f"embedding/{step:08d}.npz") as file:
                z, y, labeled = (torch.from_numpy(file[name]) for name in ("z", "y", "labeled"))
            for k in NEIGHBOURS:
                rows.append({"step": step, "k": k, "seed": seed, **compare(z, y, labeled, k)})
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """Two tables: costs by N, and errors by k."""
    costs = {(row["n"], row["k"]): row for row in rows if "n" in row}
    lines = [
        f"| N | seconds, k = {KEPT} | whole graph | megabytes, k = {KEPT} | whole graph |",
        "|---|---|---|---|---|",
    ]
    for n in sorted({n for n, _ in costs}):
        cells = [f"{n:,}"]
        for name in ("seconds", "megabytes"):
            for k in (KEPT, None):
                value = costs[n, k][name] if (n, k) in costs else None
                cells.append(
                    "–" if value is None else f"{value:,.{1 if name == 'seconds' else 0}f}"
                )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"| step | {' | '.join(f'k = {k}' for k in NEIGHBOURS)} |"]
    lines.append("|---|" + "---|" * len(NEIGHBOURS))
    for step in STEPS:
        cells = []
        for k in NEIGHBOURS:
            own = [row for row in rows if row.get("step") == step and row["k"] == k]
            error = np.mean([abs(row["loss"] / row["of_whole"] - 1) for row in own])
            cells.append(f"{error:.1%}, {np.mean([row['degrees'] for row in own]):.0f}°")
        lines.append(f"| {step} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results/sparse-benchmark.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="page to write the tables into")
    options = parser.parse_args()
    found = Rows(options.out, "python -m benchmarks.sparse")
    for seed in options.seeds:
        if {"step": STEPS[0], "seed": seed} not in found:
            for row in errors(seed):
                found.add(row)
    for n in options.sizes:
        for k in (KEPT, None) if n in DENSE_SIZES else (KEPT,):
            if {"n": n, "k": k} not in found:
                found.add({"n": n, "k": k, **in_a_process(n, k)})
    print(markdown(found.rows))
    if options.docs:
        write_between(options.docs, MARKS, markdown(found.rows))


if __name__ == "__main__":
    main()
