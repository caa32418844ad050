"""How long a frame of ``cclp lab`` takes in the browser: compute, transfer and draw.

The page itself measures, from its question to the server to the last line drawn: moons with noise
0.05, S = 10, one step a frame, CCLP and supervised forces shown, in headless Chromium at 1280 × 800
on the machine of the server. Between two frames the page waits for the screen: the last column.
"""

import argparse
import base64
import json
import os
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from playwright.sync_api import Browser

from cclp.files import marked_page, write_between, write_json
from cclp.training.machine import environment
from tests.browser import chromium, server

POINTS = (100, 200, 300)
TARGETS = {200: 50, 300: 100}  # milliseconds
MARKS = "<!-- benchmarks/lab.py writes from here -->", "<!-- to here -->"
WAIT = 50  # milliseconds between two looks at the count of frames
READ = 'performance.getEntriesByName("frame").map((entry) => [entry.startTime, entry.duration])'


def frames(browser: Browser, address: str, points: int, count: int) -> list[tuple[float, float]]:
    """When each frame began, and how long it took, in milliseconds."""
    layout = {"name": "moons", "points": points, "noise": 0.05, "seed": 0}
    link = base64.urlsafe_b64encode(json.dumps({"layout": layout}).encode()).decode().rstrip("=")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{address}#{link}")
    page.get_by_text("linear accuracy").first.wait_for()
    page.get_by_role("button", name="Play").click()
    while int(page.locator("#iteration").text_content() or 0) < count:
        page.wait_for_timeout(WAIT)
    found: list[tuple[float, float]] = page.evaluate(READ)
    page.close()
    return found[5:count]  # the first ones warm up


def measure(points: tuple[int, ...], count: int) -> list[dict[str, Any]]:
    """Medians and 95 % quantiles, in milliseconds."""
    rows = []
    with server() as address, chromium() as browser:
        for n in points:
            found = frames(browser, address, n, count)
            times = [duration for _, duration in found]
            row = {
                "points": n,
                "frames": len(times),
                "median": median(times),
                "of_20_the_longest": quantiles(times, n=20)[-1],
                "apart": median(b[0] - a[0] for a, b in pairwise(found)),
            }
            rows.append(row)
            print(" | ".join(_cells(row)), flush=True)
    return rows


def _cells(row: dict[str, Any]) -> list[str]:
    target = TARGETS.get(row["points"])
    limit = "" if target is None else f" (≤ {target})"
    return [
        f"{row['points']}",
        f"{row['median']:.0f} ms{limit}",
        f"{row['of_20_the_longest']:.0f} ms",
        f"{row['apart']:.0f} ms",
    ]


def table(result: dict[str, Any]) -> str:
    """For the page in docs, with how busy the machine was otherwise."""
    head = ["points", "a frame, median", "95 % are shorter than", "from one to the next, median"]
    lines = [head, ["---"] * len(head), *map(_cells, result["rows"])]
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    cores = result["environment"]["machine"]["cores"]
    return f"{rows}\n\nLoad by other work before: {result['load_before']:.1f} on {cores} cores."


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this file")
    parser.add_argument("--frames", type=int, default=300, help="for each number of points")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.lab --frames {options.frames}",
        "settings": {"layout": "moons", "noise": 0.05, "chain_steps": 10},
        "environment": environment(torch.device("cpu")),
        "targets": TARGETS,
        "load_before": os.getloadavg()[0],  # of other work on the machine
        "rows": measure(POINTS, options.frames),
    }
    if options.out:
        write_json(options.out, result)
    if options.docs:
        write_between(options.docs, MARKS, table(result))


if __name__ == "__main__":
    main()
