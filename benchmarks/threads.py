"""How long threads that wait should spin: the runtime's default, not at all, and cclp's choice.

All train 60 steps on the embedded digits by ``cclp train``, taking turns: on the machine as it is,
and beside processes that keep every core busy. "default" waits as the runtime does by itself,
"passive" never spins, "cclp" is what :mod:`cclp.threads` sets. Seconds are those of the training,
without loading torch.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from cclp.files import parse_json, write_json
from cclp.threads import WAITING
from cclp.training.machine import environment

POLICIES: dict[str, dict[str, str]] = {
    "default": {"KMP_BLOCKTIME": "200"},  # Intel's; libgomp ignores it, and cclp sets nothing
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "cclp": {},
}
BUSY = "while True: pass"


def train_seconds(steps: int, settings: dict[str, str], limit: float) -> float:
    """Of a training in a process of its own, with these environment variables; at most the limit,
    after which it is ended.
    """
    clean = {name: value for name, value in os.environ.items() if name not in WAITING}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        line = f"-m cclp train digits --num-labels 50 --max-steps {steps} --quiet --out".split()
        try:
            subprocess.run(
                [sys.executable, *line, str(out)],
                env=clean | settings,
                check=True,
                capture_output=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return limit
        return float(parse_json((out / "result.json").read_bytes())["seconds"])


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Within, so many processes compute without a pause."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(steps: int, turns: int, busy: int, limit: float) -> dict[str, Any]:
    """Medians of each, and their ratios, beside so many busy processes."""
    times: dict[str, list[float]] = {name: [] for name in POLICIES}
    with busy_processes(busy):
        for _ in range(turns):
            for name, settings in POLICIES.items():
                times[name].append(train_seconds(steps, settings, limit))
    middle = {name: statistics.median(values) for name, values in times.items()}
    return {
        "busy_processes": busy,
        "seconds": times,
        "median_seconds": middle,
        "over_cclp": {name: seconds / middle["cclp"] for name, seconds in middle.items()},
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--busy",
        type=int,
        default=os.cpu_count(),
        help="processes beside the training (default: one for each core)",
    )
    parser.add_argument(
        "--limit", type=float, default=180, help="seconds after which a training is ended"
    )
    options = parser.parse_args()
    command = f"--steps {options.steps} --turns {options.turns} --busy {options.busy}"
    command += f" --limit {options.limit:g}"
    result: dict[str, Any] = {"command": f"benchmarks/threads.py {command}"}
    for name, busy in (("quiet", 0), ("busy", options.busy)):
        result[name] = found = measure(options.steps, options.turns, busy, options.limit)
        said = (
            f"{policy} {seconds:.1f} s ({found['over_cclp'][policy]:.2f})"
            for policy, seconds in found["median_seconds"].items()
        )
        print(f"{name}: {', '.join(said)}")
    result["environment"] = environment(torch.device("cpu"))
    if options.out:
        write_json(options.out, result)


if __name__ == "__main__":
    main()
