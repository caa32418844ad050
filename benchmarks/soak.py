"""Whether a long training leaks: memory, open files and threads along many small steps.

Steps on the bundled digits, with an evaluation and a checkpoint every few of them. Called by
``make soak``; ends with code 1 if the resident memory at the end is not within 2 % of that after a
tenth of the steps, or if files or threads are left behind.
"""

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cclp.files import marked_page, write_between, write_json
from cclp.runs.start import train
from cclp.training.config import Config
from cclp.training.machine import environment
from cclp.training.recipe import make_recipe

MARKS = "<!-- make soak writes from here -->", "<!-- to here: soak -->"
MOST_GROWTH = 0.02
EVERY = 50  # steps an evaluation and a checkpoint


class Sample(NamedTuple):
    """Resident bytes, open files and system threads of the process after a step."""

    step: int
    resident: int
    files: int
    threads: int


def sample(step: int) -> Sample:
    """Sample this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(
        step,
        pages * os.sysconf("SC_PAGE_SIZE"),
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
    )


def soak(max_steps: int) -> list[Sample]:
    """Train, and sample the process after each tenth of the steps."""
    recipe = replace(make_recipe("short", "digits"), max_steps=max_steps, unlabeled_batch=100)
    config = Config(
        data="digits", recipe=recipe, num_labels=50, evaluate_every=EVERY, checkpoint_every=EVERY
    )
    found: list[Sample] = []
    done = 0

    def look() -> bool:
        nonlocal done
        done += 1
        if done % (max_steps // 10) == 0:
            found.append(sample(done))
        return False

    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run", should_stop=look)
    return found


def problems(samples: list[Sample]) -> list[str]:
    """What has grown since the first sample."""
    first, last = samples[0], samples[-1]
    found = []
    if abs(last.resident / first.resident - 1) > MOST_GROWTH:
        found.append(f"resident memory: {last.resident / first.resident - 1:+.1%}")
    if len({s.files for s in samples}) > 1:
        found.append(f"open files: {[s.files for s in samples]}")
    if len({s.threads for s in samples}) > 1:
        found.append(f"threads: {[s.threads for s in samples]}")
    return found


def markdown(record: dict[str, Any]) -> str:
    """A row for each sample."""
    lines = ["| steps | resident memory, MB | open files | threads |", "|---|---|---|---|"]
    for values in record["samples"]:
        s = Sample(**values)
        lines.append(f"| {s.step:,} | {s.resident / 1e6:.1f} | {s.files} | {s.threads} |")
    return "\n".join(lines)


def main() -> None:
    """Train, write, print; exit with 1 if something has grown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--max-steps", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("results/soak.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this page")
    options = parser.parse_args()
    begun = time.monotonic()
    samples = soak(options.max_steps)
    record = {
        "samples": [s._asdict() for s in samples],
        "every": EVERY,
        "seconds": round(time.monotonic() - begun),
        "environment": environment(torch.device("cpu")),
    }
    write_json(options.out, record)
    if options.docs:
        write_between(options.docs, MARKS, markdown(record))
    print(markdown(record))
    sys.exit("; ".join(problems(samples)) or 0)


if __name__ == "__main__":
    main()
