"""What the loss costs: ratios taken in one run, printed as a table and written as JSON.

For N points, half of them labeled, 128 features, 10 classes and chains of 3 moves, forward and
backward, best of many interleaved repeats:

- floor: six plain float32 products of N x N matrices, which no implementation can avoid;
- transcription: Algorithm 1 written down in plain autograd;
- peak memory of either, as the allocator of PyTorch counts it;
- a training step of each of the paper's networks on 200 images, channels_last, with bf16 autocast
  where the processor multiplies bfloat16, in float32 where it does not.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import cclp
from cclp.files import check_marks, write_between, write_json
from cclp.nets import Net, cifar_net, mnist_net, svhn_net
from cclp.training.machine import has_bfloat16, processor

FEATURES, CLASSES, STEPS = 128, 10, 3
NETS: dict[str, tuple[Callable[[], Net], tuple[int, int, int]]] = {
    "mnist": (mnist_net, (1, 28, 28)),
    "svhn": (svhn_net, (3, 32, 32)),
    "cifar": (cifar_net, (3, 32, 32)),
}
MARKS = "<!-- benchmarks/loss.py writes from here -->", "<!-- to here -->"
TARGETS = {
    "over_floor": {1000: 1.3, 2000: 1.3},
    "over_transcription": {200: 1.0, 1000: 0.9},
    "memory_over_transcription": {1000: 0.6},
    "share_of_step": {200: 0.02, 1000: 0.10},
}


def transcription(z_labeled: Tensor, labels: Tensor, z_unlabeled: Tensor) -> Tensor:
    """Algorithm 1, line by line, scaled by 1/N."""
    n_l = len(z_labeled)
    Z = torch.cat([z_labeled, z_unlabeled])
    N = len(Z)
    Y = F.one_hot(labels, CLASSES).to(Z.dtype)
    A = torch.exp(Z @ Z.T)
    H = A / A.sum(1, keepdim=True)
    Phi_U = torch.linalg.solve(torch.eye(N - n_l) - H[n_l:, n_l:], H[n_l:, :n_l] @ Y)
    Phi = torch.cat([Y, Phi_U])
    T = Phi @ (Phi / Phi.sum(0)).T
    M = Phi @ Phi.T
    G = H * M
    H_s = H
    loss = -(T * H_s.log()).sum()
    for _ in range(STEPS - 1):
        H_s = G @ H_s
        loss = loss - (T * H_s.log()).sum()
    return loss / (STEPS * N)


def ours(z_labeled: Tensor, labels: Tensor, z_unlabeled: Tensor) -> Tensor:
    """The loss as users call it."""
    return cclp.cclp_loss(z_labeled, labels, z_unlabeled, num_classes=CLASSES, steps=STEPS)


def embeddings(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """A batch of norm about 1.7, where the transcription does not overflow."""
    generator = torch.Generator().manual_seed(0)
    z = 0.15 * torch.randn(n, FEATURES, generator=generator)
    half = n // 2
    return z[:half].requires_grad_(), torch.arange(half) % CLASSES, z[half:].requires_grad_()


def forward_backward(loss: Callable[..., Tensor], n: int) -> Callable[[], None]:
    """One call of it on a batch of n points."""
    z_labeled, labels, z_unlabeled = embeddings(n)

    def call() -> None:
        torch.autograd.grad(loss(z_labeled, labels, z_unlabeled), (z_labeled, z_unlabeled))

    return call


def six_products(n: int) -> Callable[[], None]:
    """The floor: 2 products forward and 4 backward, into memory that is there already."""
    a, b, c = torch.rand(n, n), torch.rand(n, n), torch.empty(n, n)

    def call() -> None:
        for _ in range(6):
            torch.mm(a, b, out=c)

    return call


def training_step(name: str) -> Callable[[], None]:
    """Forward and backward of a network with cross entropy, without the loss."""
    make, shape = NETS[name]
    net = make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(200, *shape).to(memory_format=torch.channels_last)
    labels = torch.arange(200) % CLASSES

    def call() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bfloat16(torch.device("cpu"))):
            loss = F.cross_entropy(net(x), labels)
        loss.backward()  # type: ignore[no-untyped-call]

    return call


def best_of(calls: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """Shortest time of each, taking turns for so many seconds, each turn warmed up by one call."""
    best = dict.fromkeys(calls, float("inf"))
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or float("inf") in best.values():
        for name, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_bytes(call: Callable[[], None]) -> int:
    """Most memory held at once beyond what was held before."""
    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    held = peak = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def measure(sizes: tuple[int, ...], nets: tuple[str, ...], seconds: float) -> dict[str, Any]:
    """All ratios, spending about so many seconds on each size and net."""
    # Any training step has freed memory of this size, which teaches glibc to keep it for reuse.
    torch.empty(8_000_000).fill_(0)
    result: dict[str, Any] = {"loss": [], "share_of_step": []}
    for n in sizes:
        calls = {
            "floor": six_products(n),
            "transcription": forward_backward(transcription, n),
            "ours": forward_backward(ours, n),
        }
        best = best_of(calls, seconds)
        memory = {name: peak_bytes(calls[name]) for name in ("transcription", "ours")}
        row = {
            "n": n,
            "milliseconds": {name: 1e3 * value for name, value in best.items()},
            "over_floor": best["ours"] / best["floor"],
            "over_transcription": best["ours"] / best["transcription"],
            "peak_megabytes": {name: value / 1e6 for name, value in memory.items()},
            "memory_over_transcription": memory["ours"] / memory["transcription"],
        }
        result["loss"].append(row)
        print(" | ".join(loss_cells(row)), flush=True)
    compared = [n for n in sizes if n in (200, 1000)]
    for net in nets:
        calls = {str(n): forward_backward(ours, n) for n in compared}
        best = best_of({"step": training_step(net), **calls}, seconds)
        for n in compared:
            # The net's cost grows with the images in a step, 200 when measured.
            step = best["step"] * n / 200
            share = best[str(n)] / (step + best[str(n)])
            row = {"net": net, "n": n, "step_seconds": step, "share": share}
            result["share_of_step"].append(row)
            print(" | ".join(share_cells(row)), flush=True)
    return result


def _against(value: str, target: float | None, scale: float = 1) -> str:
    return value if target is None else f"{value} (≤ {scale * target:g})"


def loss_cells(row: dict[str, Any]) -> list[str]:
    """A row of the table of times and memory, targets in brackets."""
    n = row["n"]
    keys = ("over_floor", "over_transcription", "memory_over_transcription")
    ratios = [_against(f"{row[key]:.2f}", TARGETS[key].get(n)) for key in keys]
    return [f"{n}", f"{row['milliseconds']['ours']:.1f} ms", *ratios]


def share_cells(row: dict[str, Any]) -> list[str]:
    """A row of the table of shares of a training step, targets in brackets."""
    share = _against(f"{100 * row['share']:.1f} %", TARGETS["share_of_step"].get(row["n"]), 100)
    return [row["net"], f"{row['n']}", share]


def markdown(result: dict[str, Any]) -> str:
    """The README's tables."""
    tables = [
        ["N", "forward + backward", "÷ floor", "÷ transcription", "memory ÷ transcription"],
        ["---"] * 5,
        *map(loss_cells, result["loss"]),
        [],
        ["net", "N", "share of a training step"],
        ["---"] * 3,
        *map(share_cells, result["share_of_step"]),
    ]
    return "\n".join(f"| {' | '.join(row)} |" if row else "" for row in tables)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--readme", type=Path, help="put the tables into this file")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for PyTorch")
    parser.add_argument("--seconds", type=float, default=60, help="for each size and each net")
    options = parser.parse_args()
    if options.readme:
        try:
            check_marks(options.readme, MARKS)
        except ValueError as error:
            parser.error(f"--readme: {error}")
    torch.set_num_threads(options.threads)
    result = {
        "command": f"benchmarks/loss.py --threads {options.threads} --seconds {options.seconds:g}",
        "settings": {"features": FEATURES, "classes": CLASSES, "steps": STEPS, "seed": 0},
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "training_precision": "bf16 autocast"
            if has_bfloat16(torch.device("cpu"))
            else "float32",
        },
        "versions": {
            "cclp": cclp.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "targets": TARGETS,
        **measure((200, 500, 1000, 2000), tuple(NETS), options.seconds),
    }
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.out, result)
    if options.readme:
        write_between(options.readme, MARKS, markdown(result))


if __name__ == "__main__":
    main()
