"""Seconds until a program has loaded what it needs, and until a command has ended.

Each line is a process of its own; lines take turns, and the median is given. "cclp train digits"
does one step, so that nearly all of its time is loading.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from cclp.files import marked_page, write_between, write_json
from cclp.training.machine import environment

MARKS = "<!-- benchmarks/startup.py writes from here -->", "<!-- to here: startup -->"
RUN = "{run}"  # a directory that does not exist
LINES: dict[str, list[str]] = {
    "`import torch`": ["-c", "import torch"],
    "`import torch, sklearn.base`": ["-c", "import torch, sklearn.base"],
    "`import cclp`": ["-c", "import cclp"],
    "`import cclp.sklearn`": ["-c", "import cclp.sklearn"],
    "`cclp train --help`": ["-m", "cclp", "train", "--help"],
    "`cclp train nonsense`, refused": ["-m", "cclp", "train", "nonsense"],
    "`cclp train digits --max-steps 1`": [
        *("-m", "cclp", "train", "digits", "--num-labels", "50", "--max-steps", "1"),
        *("--quiet", "--out", RUN),
    ],
}


def words(line: list[str], run: Path) -> list[str]:
    """The words after ``python``, with a directory for the run."""
    return [str(run) if word == RUN else word for word in line]


def seconds_of(line: list[str]) -> float:
    """Of a process, to its end."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, *words(line, Path(place, "run"))]
        begun = time.perf_counter()
        subprocess.run(command, capture_output=True, check=False)
        return time.perf_counter() - begun


def measure(turns: int) -> dict[str, float]:
    """The median of every line, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in LINES}
    for _ in range(turns):
        for name, line in LINES.items():
            times[name].append(seconds_of(line))
    return {name: round(statistics.median(values), 3) for name, values in times.items()}


def markdown(seconds: dict[str, float]) -> str:
    """A line for each."""
    torch_alone = seconds["`import torch`"]
    lines = ["| | seconds | ÷ `import torch` |", "|---|---|---|"]
    lines += [f"| {name} | {s:.2f} | {s / torch_alone:.2f} |" for name, s in seconds.items()]
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--docs", type=marked_page(MARKS), help="page to write the table into")
    options = parser.parse_args()
    found: dict[str, Any] = {"command": f"python -m benchmarks.startup --turns {options.turns}"}
    found["seconds"] = measure(options.turns)
    found["environment"] = environment(torch.device("cpu"))
    print(markdown(found["seconds"]))
    if options.out:
        write_json(options.out, found)
    if options.docs:
        write_between(options.docs, MARKS, markdown(found["seconds"]))


if __name__ == "__main__":
    main()
