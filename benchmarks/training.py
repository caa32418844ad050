"""What the trainer adds to a step: its time over the bare network, loss and optimizer.

Both train the MNIST net on the same samples, 100 labeled and 100 unlabeled, taking turns: one step
of :class:`cclp.training.trainer.Trainer` with all it does (seeds, batch, normalization, Fabric,
checks), and one step written out on tensors that are ready. Also: a step of the MNIST and of the
CIFAR net over what its convolutions and products would take at the rate of one large product; the
time of a checkpoint, of ``cclp --help``, and of loading MNIST if its folder is named.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import cclp
from cclp.data.dataset import Dataset, InputSpec
from cclp.data.load import load
from cclp.files import write_json
from cclp.progress import Reporter
from cclp.runs.callbacks import WriteCheckpoints
from cclp.runs.directory import Metrics, create
from cclp.runs.run import Run
from cclp.training.config import Config
from cclp.training.machine import environment, fabric_precision, make_fabric
from cclp.training.recipe import make_recipe

TARGETS = {
    "loop_over_bare": 1.03,
    "mnist_step_over_peak": 1.6,
    "cifar10_step_over_peak": 1.4,
    "help_seconds": 1.0,
    "load_mnist_seconds": 3.0,
}
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


def random_data(name: str) -> Dataset:
    """Random images in the shape of published ones."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (10_000, *SHAPES[name]), np.uint8)
    y = np.arange(10_000) % 10
    spec = InputSpec(tuple("0123456789"), SHAPES[name])
    return Dataset(name, spec, x, y, x[:100], y[:100], verified=False)


def bare_step(run: Run) -> Callable[[], None]:
    """The step written out, on tensors that are ready."""
    trainer, data = run.trainer, run.data
    objective, optimizer = trainer.objective, trainer.optimizer
    regulariser = cclp.CCLPLoss(10)
    batch = trainer.batches(0)
    labels = torch.from_numpy(data.train_y[batch.labeled])
    x_labeled, x_unlabeled = (
        objective.inputs(torch.from_numpy(data.train_x[indices])) for indices in batch
    )
    net = objective.net.train()

    def step() -> None:
        optimizer.zero_grad()
        with run.fabric.autocast():
            z_labeled, z_unlabeled = net.features(x_labeled), net.features(x_unlabeled)
            cross_entropy = F.cross_entropy(net.classifier(z_labeled), labels)
            loss = cross_entropy + regulariser(z_labeled, labels, z_unlabeled)
        loss.backward()
        optimizer.step()

    return step


def seconds(call: Callable[[], Any]) -> float:
    """Of one call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def new_run(folder: Path, config: Config, data: Dataset) -> Run:
    """A training that is set up, on one device."""
    return Run(make_fabric("auto", "auto"), folder, config, data, Reporter())


def measure(turns: int) -> dict[str, Any]:
    """Times of both kinds of step, taking turns."""
    config = Config(data="mnist", recipe=make_recipe("paper", "mnist"))
    data = random_data("mnist")
    with tempfile.TemporaryDirectory() as folder:
        loop, bare = (new_run(Path(folder), config, data) for _ in range(2))
        create(Path(folder), {"config": config.to_json()})
        trainer, step = loop.trainer, bare_step(bare)
        trainer.module.train()
        times: dict[str, list[float]] = {"loop": [], "bare": []}
        for turn in range(turns + 2):
            for name, call in (("loop", lambda: trainer.step(turn)), ("bare", step)):  # noqa: B023
                taken = seconds(call)
                if turn >= 2:  # the first two warm up
                    times[name].append(taken)
        out = Path(folder)
        writer = WriteCheckpoints(out, 100, Metrics(out / "metrics.jsonl"), dict, None)
        checkpoint = seconds(lambda: writer.save(trainer))
    best = {name: min(values) for name, values in times.items()}
    middle = {name: statistics.median(values) for name, values in times.items()}
    return {
        "turns": turns,
        "best_milliseconds": {name: 1000 * value for name, value in best.items()},
        "median_milliseconds": {name: 1000 * value for name, value in middle.items()},
        "loop_over_bare": best["loop"] / best["bare"],
        "median_loop_over_bare": middle["loop"] / middle["bare"],
        "checkpoint_milliseconds": 1000 * checkpoint,
        "precision": fabric_precision(config.precision, loop.fabric.device),
    }


def peak(dtype: torch.dtype, size: int) -> float:
    """Operations a second in a large product."""
    a, b = torch.randn(2, size, size).to(dtype)
    return 2 * size**3 / min(seconds(lambda: a @ b) for _ in range(10))


def efficiency(name: str, turns: int, size: int = 2048) -> dict[str, float]:
    """A step of the paper's recipe, with all the trainer does, over its products at their peak."""
    config, data = Config(data=name, recipe=make_recipe("paper", name)), random_data(name)
    with tempfile.TemporaryDirectory() as folder:
        run = new_run(Path(folder), config, data)
        with FlopCounterMode(display=False) as counter:
            run.trainer.step(0)
        best = min(seconds(lambda: run.trainer.step(1)) for _ in range(turns))
    half = fabric_precision(config.precision, run.fabric.device) == "bf16-mixed"
    rate = peak(torch.bfloat16 if half else torch.float32, size)
    return {
        f"{name}_step_gflop": counter.get_total_flops() / 1e9,
        f"{name}_step_milliseconds": 1000 * best,
        f"{name}_peak_gflops": rate / 1e9,
        f"{name}_step_over_peak": best * rate / counter.get_total_flops(),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=os.environ.get("CCLP_DATA"),
        help="folder of MNIST, to time its loading (default: CCLP_DATA)",
    )
    options = parser.parse_args()
    command = [sys.executable, "-m", "cclp", "--help"]
    result = {
        "command": f"benchmarks/training.py --turns {options.turns}",
        **measure(options.turns),
        **efficiency("mnist", options.turns),
        **efficiency("cifar10", max(1, options.turns // 10)),
        "help_seconds": min(
            seconds(lambda: subprocess.run(command, check=True, capture_output=True))
            for _ in range(3)
        ),
        "targets": TARGETS,
        "environment": environment(torch.device("cpu")),
    }
    if options.data_dir:
        result["load_mnist_seconds"] = min(
            seconds(lambda: load("mnist", options.data_dir).fingerprint) for _ in range(3)
        )
    for name, target in TARGETS.items():
        if name in result:
            print(f"{name} {result[name]:.3f} (target {target:g})")
    print(f"median_loop_over_bare {result['median_loop_over_bare']:.3f}")
    print(f"checkpoint {result['checkpoint_milliseconds']:.0f} ms, every 100 steps")
    if options.out:
        write_json(options.out, result)


if __name__ == "__main__":
    main()
