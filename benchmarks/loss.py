"""What the loss costs: ratios taken in one run, printed as a table and written as JSON.

For N points, half of them labeled, 128 features, 10 classes and chains of 3 moves, forward and
backward, best of many interleaved repeats:

- floor: six plain float32 products of N x N matrices, which chains need if no entry is known to be
  zero;
- transcription: Algorithm 1 written down in plain autograd;
- compiled: the loss by torch.compile, where N is small;
- peak memory of loss and transcription, as the allocator of PyTorch counts it.

What the loss adds to a training step is ``cclp reproduce overhead``.
"""

import argparse
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import cclp
from cclp.experiments.overhead import CLASSES, best_of, embeddings
from cclp.files import marked_page, write_between, write_json
from cclp.training.machine import processor

FEATURES, CHAIN_STEPS = 128, 3
MARKS = "<!-- benchmarks/loss.py writes from here -->", "<!-- to here -->"
SIZES, COMPILED = (200, 500, 1000, 2000), (200, 500)
WIDE = "AVX512" in torch.backends.cpu.get_cpu_capability()
TARGETS = {  # by figure and N, as JSON has it
    "over_floor": {"500": 2.0 if WIDE else 1.6, "1000": 1.3, "2000": 1.2 if WIDE else 1.15},
    "over_transcription": {"200": 1.0, "1000": 0.85},
    "memory_over_transcription": {f"{n}": 0.6 for n in SIZES},
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
    for _ in range(CHAIN_STEPS - 1):
        H_s = G @ H_s
        loss = loss - (T * H_s.log()).sum()
    return loss / (CHAIN_STEPS * N)


def ours(z_labeled: Tensor, labels: Tensor, z_unlabeled: Tensor) -> Tensor:
    """The loss as users call it."""
    return cclp.cclp_loss(
        z_labeled, labels, z_unlabeled, num_classes=CLASSES, chain_steps=CHAIN_STEPS
    )


def forward_backward(loss: Callable[..., Tensor], n: int) -> Callable[[], None]:
    """One call of it on a batch of n points."""
    z_labeled, labels, z_unlabeled = embeddings(n, FEATURES)

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


def measure(
    sizes: tuple[int, ...], seconds: float, compiled: tuple[int, ...] = ()
) -> dict[str, Any]:
    """All ratios, spending about ``seconds`` on each size; some are compiled too."""
    # Any training step has freed memory of this size, so that glibc keeps it for reuse.
    torch.empty(8_000_000).fill_(0)
    result: dict[str, Any] = {"loss": []}
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
        if n in compiled:  # apart from the others: its threads would wait beside them
            other = forward_backward(torch.compile(ours, dynamic=False), n)
            best = best_of({"ours": calls["ours"], "compiled": other}, seconds / 2)
            row["compiled_over_eager"] = best["compiled"] / best["ours"]
        result["loss"].append(row)
        print(" | ".join(loss_cells(row, TARGETS)), flush=True)
    return result


def _against(value: str, target: float | None) -> str:
    return value if target is None else f"{value} (≤ {target:g})"


def loss_cells(row: dict[str, Any], targets: dict[str, dict[str, float]]) -> list[str]:
    """A row of the table of times and memory, targets in brackets."""
    n = row["n"]
    keys = ("over_floor", "over_transcription", "memory_over_transcription")
    ratios = [_against(f"{row[key]:.2f}", targets[key].get(f"{n}")) for key in keys]
    compiled = f"{row['compiled_over_eager']:.2f}" if "compiled_over_eager" in row else "–"
    return [f"{n}", f"{row['milliseconds']['ours']:.1f} ms", *ratios, compiled]


def markdown(result: dict[str, Any]) -> str:
    """The page's table."""
    table = [
        [
            "N",
            "forward + backward",
            "÷ floor",
            "÷ transcription",
            "memory ÷ transcription",
            "compiled ÷ eager",
        ],
        ["---"] * 6,
        *(loss_cells(row, result.get("targets", TARGETS)) for row in result["loss"]),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this file")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for PyTorch")
    parser.add_argument("--seconds", type=float, default=60, help="for each size")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result = {
        "command": f"benchmarks/loss.py --threads {options.threads} --seconds {options.seconds:g}",
        "settings": {
            "features": FEATURES,
            "classes": CLASSES,
            "chain_steps": CHAIN_STEPS,
            "seed": 0,
        },
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
        },
        "versions": {
            "cclp": cclp.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "targets": TARGETS,
        **measure(SIZES, options.seconds, COMPILED),
    }
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.out, result)
    if options.docs:
        write_between(options.docs, MARKS, markdown(result))


if __name__ == "__main__":
    main()
