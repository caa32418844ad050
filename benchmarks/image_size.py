"""Whether images of 64 × 64 pixels are worth their time, on real pictures.

Debian's package ``openclipart-png`` holds some thousand pictures of a few hundred pixels, in
folders by subject (``apt-get download openclipart-png; dpkg -x openclipart-png*.deb clipart``). Of
eight subjects 20 pictures each are labeled; a quarter of all is kept for testing. The recipe is
what ``cclp train`` takes for images; all runs have the same number of steps.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import cclp
from benchmarks.rows import Rows
from cclp.experiments.aggregate import percent
from cclp.files import marked_page, write_between

MARKS = "<!-- benchmarks/image_size.py writes from here -->", "<!-- to here: image size -->"
PLACE = Path("usr/share/openclipart/png")
SUBJECTS = {
    "animals": "animals",
    "buildings": "buildings",
    "flags": "signs_and_symbols/flags",
    "food": "food",
    "people": "people",
    "plants": "plants",
    "tools": "tools",
    "transport": "transportation",
}
LABELS, TESTED = 20, 0.25
LARGEST, MOST_BYTES = 160, 300_000  # pixels that are kept; some files hold hundreds of millions


def pictures(root: Path, folder: Path, seed: int) -> None:
    """Write a folder for ``cclp train``: a quarter of the pictures for testing, 20 labels each."""
    rng = np.random.default_rng(seed)
    for name, place in SUBJECTS.items():
        files = sorted((root / PLACE / place).rglob("*.png"))
        files = [file for file in files if file.stat().st_size < MOST_BYTES]
        if len(files) < 2 * LABELS:
            raise ValueError(f"there are {len(files)} pictures in {root / PLACE / place}")
        count = int(TESTED * len(files))
        for number, i in enumerate(rng.permutation(len(files))):
            known = name if number < count + LABELS else "unlabeled"
            target = folder / (f"test/{name}" if number < count else known) / f"{name}-{i}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            with Image.open(files[i]) as picture:
                small = picture.convert("RGBA")
                small.thumbnail((LARGEST, LARGEST))
                small.save(target)


def measure(root: Path, size: int, method: str, steps: int, seed: int) -> dict[str, Any]:
    """The error of one run on test pictures."""
    with tempfile.TemporaryDirectory() as place:
        photos, run = Path(place, "photos"), Path(place, "run")
        pictures(root, photos, seed)
        cclp.fit(
            photos, method=method, image_size=size, max_steps=steps, seed=seed, out=run,
            verbose=False,
        )  # fmt: skip
        result = json.loads((run / "result.json").read_text())
    return {
        "error": result["error"],
        "tested": result["num_samples"],
        "minutes": round(result["seconds"] / 60, 1),
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """Errors by method and size."""
    lines = ["| size | method | steps | error, % | minutes |", "|---|---|---|---|---|"]
    kinds = dict.fromkeys((row["size"], row["method"], row["steps"]) for row in rows)
    for size, method, steps in sorted(kinds, key=lambda kind: (kind[1], kind[2], kind[0])):
        own = [r for r in rows if (r["size"], r["method"], r["steps"]) == (size, method, steps)]
        error = percent(row["error"] for row in own).text(digits=1)
        minutes = np.mean([row["minutes"] for row in own])
        lines.append(f"| {size} × {size} | `{method}` | {steps:,} | {error} | {minutes:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("clipart", type=Path, help="folder of the unpacked package")
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--methods", nargs="+", default=["supervised", "cclp+graph_pseudo_label"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--max-steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/image-size.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="page to write the table into")
    options = parser.parse_args()
    found = Rows(options.out, "python -m benchmarks.image_size clipart")
    for seed in options.seeds:
        for method in options.methods:
            for size in options.sizes:
                key = {"size": size, "method": method, "steps": options.max_steps, "seed": seed}
                if key not in found:
                    found.add(
                        {**key, **measure(options.clipart, size, method, options.max_steps, seed)}
                    )
    print(markdown(found.rows))
    if options.docs:
        write_between(options.docs, MARKS, markdown(found.rows))


if __name__ == "__main__":
    main()
