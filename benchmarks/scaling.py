"""One graph over all processes (``--graph global``) against one for each (``local``).

Time of the loss, forward and backward without a network, and bytes that a process receives, against
the number of processes and of samples in each: real processes on this machine, a thread each, that
communicate by gloo. *Sparse* is the global graph with ``neighbours=20``, of which each process does
a part. A model of the cost is fitted to them and extrapolated to 1,024 devices.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import nnls
from torch.multiprocessing.spawn import spawn

import cclp
from cclp.experiments.overhead import CLASSES, embeddings
from cclp.files import marked_page, write_between, write_json

MARKS = "<!-- benchmarks/scaling.py writes from here -->", "<!-- to here: scaling -->"
PROCESSES = (1, 2, 4)
SAMPLES = (100, 200, 400, 800)  # of each process
ALONE = (100, 200, 400, 800, 1600, 3200)  # N of one process
DEVICES = (1, 8, 64, 256, 1024)
SHOWN = 200  # samples a device in the model
FEATURES = 128
TURNS = 7
NEIGHBOURS = 20


def call(n: int, gather: bool, neighbours: int | None = None) -> Callable[[], None]:
    """Forward and backward of the loss on n samples of this process."""
    z_labeled, labels, z_unlabeled = embeddings(n, FEATURES)
    loss = cclp.CCLPLoss(CLASSES, gather=gather, neighbours=neighbours)

    def step() -> None:
        value = loss(z_labeled, labels, z_unlabeled)
        torch.autograd.grad(value, (z_labeled, z_unlabeled))

    return step


def seconds(step: Callable[[], None], turns: int) -> float:
    """Of the middle turn, by the clock of the slowest process."""
    step()
    taken = []
    for _ in range(turns):
        if dist.is_initialized():
            dist.barrier()
        begun = time.perf_counter()
        step()
        taken.append(time.perf_counter() - begun)
    slowest = torch.tensor(taken, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(median(slowest.tolist()))


def received(step: Callable[[], None]) -> int:
    """Bytes that this process gets from others in a step."""
    count, gather, reduce = 0.0, dist.all_gather, dist.all_reduce

    def gathered(parts: list[torch.Tensor], mine: torch.Tensor) -> None:
        nonlocal count
        count += sum(part.numel() * part.element_size() for part in parts[1:])
        gather(parts, mine)

    def reduced(tensor: torch.Tensor) -> None:
        nonlocal count
        others = 1 - 1 / dist.get_world_size()  # in a ring: once for the sum, once for the result
        count += 2 * others * tensor.numel() * tensor.element_size()
        reduce(tensor)

    with (
        mock.patch.object(dist, "all_gather", gathered),
        mock.patch.object(dist, "all_reduce", reduced),
    ):
        step()
    return round(count)


def process(rank: int, world: int, folder: str, samples: tuple[int, ...], turns: int) -> None:
    """One of several; the first writes the rows."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", world)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    rows = []
    for n in samples:
        local, joint = call(n, gather=False), call(n, gather=True)
        sparse = call(n, gather=True, neighbours=NEIGHBOURS)
        rows.append(
            {
                "processes": world,
                "samples": n,
                "local": seconds(local, turns),
                "global": seconds(joint, turns),
                "sparse": seconds(sparse, turns),
                "bytes": received(joint),
                "sparse_bytes": received(sparse),
            }
        )
    if rank == 0:
        write_json(Path(folder, "rows.json"), rows)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # now and then gloo's threads abort a process that ends as others do


def measure(
    processes: tuple[int, ...], samples: tuple[int, ...], alone: tuple[int, ...], turns: int
) -> dict[str, Any]:
    """Everything that is measured, on this machine."""
    rows: list[dict[str, Any]] = []
    for world in processes:
        with tempfile.TemporaryDirectory() as folder:
            spawn(process, (world, folder, samples, turns), nprocs=world)  # type: ignore[no-untyped-call]
            rows += json.loads(Path(folder, "rows.json").read_text())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sizes, sparse = (
        [[n, seconds(call(n, gather=False, neighbours=k), turns)] for n in alone]
        for k in (None, NEIGHBOURS)
    )
    torch.set_num_threads(threads)
    return {"rows": rows, "alone": sizes, "sparse_alone": sparse}


def fit(result: dict[str, Any]) -> dict[str, float]:
    """Seconds of N³, N² and 1 in a graph, of N² and N in a sparse one; of a byte, and of gathering.

    The first by relative error over graphs of one process; the second by what two processes take
    more than the model predicts for their joint graph: two, as there are two cores here.
    """
    n, taken = np.array(result["alone"], float).T
    terms = np.stack([n**3, n**2, np.ones_like(n)], 1)
    cube, square, fixed = nnls(terms / taken[:, None], np.ones_like(n))[0]

    def graph(size: float) -> float:
        return float(cube * size**3 + square * size**2 + fixed)

    pairs = [row for row in result["rows"] if row["processes"] == 2]
    more = [row["global"] - graph(2 * row["samples"]) for row in pairs]
    total = np.array([row["global"] for row in pairs])
    terms = np.stack([[row["bytes"] for row in pairs], np.ones(len(pairs))], 1)
    byte, start = nnls(terms / total[:, None], np.clip(more, 0, None) / total)[0]
    n, taken = np.array(result["sparse_alone"], float).T
    terms = np.stack([n**2, n], 1)
    sparse_square, each = nnls(terms / taken[:, None], np.ones_like(n))[0]
    return {
        "cube": cube, "square": square, "fixed": fixed, "byte": byte, "start": start,
        "sparse_square": sparse_square, "sparse_each": each,
    }  # fmt: skip


def predict(model: dict[str, float], devices: int, n: int) -> dict[str, float]:
    """Seconds and bytes of a step's loss on a number of devices with n samples each.

    ``sparse``: with neighbours; what grows with N² is divided, what grows with N every device does.
    """
    total = devices * n
    received = (devices - 1) * n * (FEATURES + CLASSES / 2) * 4
    communication = (
        model["start"] * np.log2(devices) + model["byte"] * received if devices > 1 else 0.0
    )
    products = model["cube"] * total**3 + model["square"] * total**2
    reduced = 8 * total * (2 * NEIGHBOURS + 2 * FEATURES + CLASSES + 6)  # index, sums, derivatives
    sparse = model["sparse_square"] * total**2 / devices + model["sparse_each"] * total
    if devices > 1:
        sparse += communication + 2 * model["byte"] * reduced
    return {
        "bytes": received,
        "local": model["cube"] * n**3 + model["square"] * n**2 + model["fixed"],
        "global": products + model["fixed"] + communication,
        "sparse": sparse,
        "matrix": 4.0 * total**2,
    }


def table(result: dict[str, Any]) -> str:
    """What was measured, the model, and its predictions for more devices."""
    lines = [
        "| processes | samples in each | local, ms | global, ms | sparse, ms | received, global "
        "| received, sparse |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        times = " | ".join(f"{1000 * row[name]:.1f}" for name in ("local", "global", "sparse"))
        sizes = " | ".join(f"{row[name] / 1000:,.0f} kB" for name in ("bytes", "sparse_bytes"))
        lines.append(f"| {row['processes']} | {row['samples']} | {times} | {sizes} |")
    model = result["model"]
    lines += [
        "",
        f"Seconds of a graph of N samples: {model['cube']:.2g} N³ + {model['square']:.2g} N² + "
        f"{model['fixed']:.2g}. Of gathering: {model['start']:.2g} for each doubling of the "
        f"processes, and {model['byte']:.2g} a byte received. Of a sparse graph: "
        f"{model['sparse_square']:.2g} N² divided by the processes + {model['sparse_each']:.2g} N.",
        "",
        f"| devices, {SHOWN} samples each | received by each | a matrix, N × N | local | global "
        "| global, sparse |",
        "|---|---|---|---|---|---|",
    ]
    for devices in DEVICES:
        found = predict(model, devices, SHOWN)
        times = " | ".join(_time(found[kind]) for kind in ("local", "global", "sparse"))
        sizes = f"{_size(found['bytes'])} | {_size(found['matrix'])}"
        lines.append(f"| {devices:,} | {sizes} | {times} |")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    for unit, length in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{1000 * seconds:.1f} ms"


def _size(count: float) -> str:
    for unit, length in (("GB", 1e9), ("MB", 1e6)):
        if count >= length:
            return f"{count / length:,.1f} {unit}"
    return f"{count / 1000:.0f} kB"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the tables into this page")
    options = parser.parse_args()
    from cclp.training.machine import environment  # not in the measured processes

    result = measure(PROCESSES, SAMPLES, ALONE, TURNS)
    result |= {
        "command": "benchmarks/scaling.py",
        "model": fit(result),
        "environment": environment(torch.device("cpu")),
    }
    print(table(result))
    if options.out:
        write_json(options.out, result)
    if options.docs:
        write_between(options.docs, MARKS, table(result))


if __name__ == "__main__":
    main()
