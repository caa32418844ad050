"""What commands take as data grow: up to a million vectors, and 200,000 image files.

Generated: vectors of 384 features in 20 classes as ``.npy`` files, and a folder of 16 x 16 pixels
in 10 classes as PNG files; 1,000 samples have a label. Each command is a process of its own:

- train: ``cclp train DATA --method cclp --max-steps 200``;
- again: ``cclp train --resume`` of such a training that was killed after its first checkpoint; the
  last checkpoints of both have to be the same, bit for bit;
- report, predict: of the run, the classes of all samples.

Megabytes are the most that a process held at a time and that the system cannot have back: pages of
memory maps are not counted. What was measured is not measured again.
"""

import argparse
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from benchmarks.rows import Row, Rows
from cclp.files import marked_page, write_between

MARKS = "<!-- benchmarks/large.py writes from here -->", "<!-- to here: large -->"
SIZES = {"vectors": (62_500, 250_000, 1_000_000), "images": (12_500, 50_000, 200_000)}
FEATURES, SIDE, LABELS, STEPS = 384, 16, 1_000, 200
CLASSES = {"vectors": 20, "images": 10}
PART = 50_000  # vectors that are made at a time
COMMANDS = ("train", "again", "report", "predict")


class Cost(NamedTuple):
    """Of a process."""

    seconds: float
    megabytes: float


def make_vectors(folder: Path, count: int) -> Path:
    """A cloud for each class, at length 1."""
    rng = np.random.default_rng(0)
    centres = 0.25 * rng.normal(size=(CLASSES["vectors"], FEATURES)).astype(np.float32)
    y = rng.integers(len(centres), size=count)
    x = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (count, FEATURES))
    for start in range(0, count, PART):
        of = y[start : start + PART]
        some = centres[of] + rng.standard_normal((len(of), FEATURES), np.float32)
        x[start : start + PART] = some / np.linalg.norm(some, axis=1, keepdims=True)
    np.save(folder / "y.npy", np.where(np.arange(count) < LABELS, y, -1))
    return folder / "X.npy"


def make_images(folder: Path, count: int) -> Path:
    """A grey level and noise for each class; those without a label in ``unlabeled/``."""
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES["images"], size=count)
    for number, of in enumerate(y):
        place = folder / "photos" / (f"class-{of}" if number < LABELS else "unlabeled")
        place.mkdir(parents=True, exist_ok=True)
        pixels = 20 * of + rng.integers(60, size=(SIDE, SIDE))
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number:06}.png")
    return folder / "photos"


MAKE = {"vectors": make_vectors, "images": make_images}


def cclp(*words: object, until: Path | None = None) -> Cost:
    """What a command takes.

    Args:
        words: of it.
        until: a file with which it is killed.

    Raises:
        RuntimeError: if it fails.
    """
    begun, most = time.perf_counter(), 0
    command = [sys.executable, "-m", "cclp", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        with suppress(OSError, IndexError, ValueError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            most = max(most, int(status.split("RssAnon:")[1].split()[0]))
        if until is not None and until.exists():
            process.kill()
        time.sleep(0.02)
    if process.returncode and until is None:
        raise RuntimeError(f"{' '.join(command)} has ended with {process.returncode}")
    return Cost(round(time.perf_counter() - begun, 1), round(most * 1024 / 1e6))


def last_weights(run: Path) -> bytes:
    """The last checkpoint."""
    return max(run.glob("checkpoint/*.safetensors")).read_bytes()


def measure(kind: str, count: int, folder: Path, steps: int = STEPS) -> Row:
    """All commands on data of one size."""
    folder.mkdir(parents=True)
    data = MAKE[kind](folder, count)
    run, other = folder / "run", folder / "other"
    train = "train", data, "--method", "cclp", "--max-steps", steps, "--quiet"
    first = other / "checkpoint" / f"{steps // 2:08}.json"
    found = {"train": cclp(*train, "--checkpoint-every", steps // 2, "--out", run)}
    cclp(*train, "--checkpoint-every", steps // 2, "--out", other, until=first)
    found["again"] = cclp("train", "--resume", other, "--quiet")
    found["report"] = cclp("report", run)
    predictions = folder / "predictions.csv"
    found["predict"] = cclp("predict", run, data, "--quiet", "--out", predictions)
    row: Row = {"kind": kind, "samples": count}
    row |= {name: cost._asdict() for name, cost in found.items()}
    row["same"] = last_weights(run) == last_weights(other)
    return row


def table(rows: list[Row]) -> str:
    """Seconds and megabytes of each command."""
    lines = [
        f"| samples | {' | '.join(COMMANDS)} | again the same |",
        "|---" * (len(COMMANDS) + 2) + "|",
    ]
    for row in sorted(rows, key=lambda row: (row["kind"] != "vectors", row["samples"])):
        cells = [f"{row[name]['seconds']:.0f} s, {row[name]['megabytes']} MB" for name in COMMANDS]
        same = "yes" if row["same"] else "**no**"
        lines.append(f"| {row['samples']:,} {row['kind']} | {' | '.join(cells)} | {same} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, print, write."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--kind", choices=SIZES, action="append", help="only these")
    parser.add_argument("--most", type=int, default=1_000_000, help="samples")
    parser.add_argument("--data", type=Path, default=Path("build/large"), help="a new folder")
    parser.add_argument("--out", type=Path, default=Path("results/large.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this page")
    options = parser.parse_args()
    found = Rows(options.out, "benchmarks/large.py")
    for kind in options.kind or SIZES:
        for count in SIZES[kind]:
            if count <= options.most and {"kind": kind, "samples": count} not in found:
                found.add(measure(kind, count, options.data / f"{kind}-{count}"))
    print(table(found.rows))
    if options.docs:
        write_between(options.docs, MARKS, table(found.rows))


if __name__ == "__main__":
    main()
