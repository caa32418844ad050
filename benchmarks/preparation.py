"""What several processes save before the first step: neighbours of all samples, and pseudo-labels.

CPU seconds of the process that takes the most, one thread each, as other work on the cores does not
count in them: 20,000 images of MNIST by the image distortion model, 50,000 vectors of 64 features
searched exactly, and 200,000 by faiss; 100 labels. Processes on this machine, gloo.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.multiprocessing.spawn import spawn

from benchmarks.rows import Row, Rows
from cclp.data.load import load
from cclp.files import marked_page, write_between, write_json
from cclp.pseudo_labels.graph import NeighbourGraph
from cclp.pseudo_labels.propagation import Propagation
from cclp.pseudo_labels.share import Share

MARKS = "<!-- benchmarks/preparation.py writes from here -->", "<!-- to here: preparation -->"
SIZES = {"images": 20_000, "vectors": 50_000, "many vectors": 200_000}
PROCESSES = (1, 2)
CLASSES, LABELS, FEATURES = 10, 100, 64


def samples(kind: str, count: int, data_dir: Path | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Samples and their classes, −1 where there is no label."""
    if kind == "images":
        data = load("mnist", data_dir)
        x, y = data.train_x[:count], data.train_y[:count]
    else:
        rng = np.random.default_rng(0)
        y = rng.integers(CLASSES, size=count)
        x = 0.7 * rng.normal(size=(CLASSES, FEATURES))[y] + rng.normal(size=(count, FEATURES))
        x = x.astype(np.float32)
    return x, np.where(np.arange(count) < LABELS, y, -1)


def process(
    rank: int, world: int, folder: str, kind: str, count: int, data_dir: Path | None
) -> None:
    """One of several."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", world)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    x, y = samples(kind, count, data_dir)
    share, times = Share(rank, world), [time.process_time()]
    graph = NeighbourGraph(x, share=share)
    times.append(time.process_time())
    W = graph.joined(y)
    assert W is not None
    propagation = Propagation(W, graph.place, y, CLASSES)
    propagation.divide(share)
    times.append(time.process_time())
    dist.barrier()
    digest = float(np.abs(propagation.spread[1].data).sum())
    write_json(Path(folder, f"{rank}.json"), [*np.diff(times).tolist(), digest])
    os._exit(0)  # now and then gloo's threads abort a process that ends as others do


def measure(kind: str, count: int, world: int, data_dir: Path | None = None) -> Row:
    """A row."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(process, (world, folder, kind, count, data_dir), nprocs=world)  # type: ignore[no-untyped-call]
        found = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(world)]
    neighbours, propagation = (round(max(times[i] for times in found), 1) for i in (0, 1))
    row: Row = {"kind": kind, "samples": count, "processes": world}
    return row | {"neighbours": neighbours, "propagation": propagation, "sum": found[0][2]}


def table(rows: list[Row]) -> str:
    """CPU seconds, by the number of processes."""
    lines = ["| samples | processes | neighbours, CPU s | labels, CPU s |", "|---|---|---|---|"]
    lines += [
        f"| {row['samples']:,} {row['kind'].removeprefix('many ')} | {row['processes']} "
        f"| {row['neighbours']:.0f} | {row['propagation']:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kind", choices=SIZES, action="append", help="only these")
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST")
    parser.add_argument("--out", type=Path, default=Path("results/preparation-benchmark.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this page")
    options = parser.parse_args()
    found = Rows(options.out, "benchmarks/preparation.py")
    for kind in options.kind or SIZES:
        for world in PROCESSES:
            if {"kind": kind, "processes": world} not in found:
                found.add(measure(kind, SIZES[kind], world, options.data_dir))
    print(table(found.rows))
    if options.docs:
        write_between(options.docs, MARKS, table(found.rows))


if __name__ == "__main__":
    main()
