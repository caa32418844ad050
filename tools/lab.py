"""Pictures of cclp lab for the README and docs, taken in a browser: ``python -m tools.lab``."""

import argparse
import base64
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page

from cclp.experiments.toy.descents import FRAMES
from cclp.files import write_bytes
from cclp.lab.export import make_page
from cclp.progress import make_reporter
from tests.browser import chromium, server

CIRCLES: dict[str, Any] = {
    "layout": {"name": "circles", "points": 200, "noise": 0.02, "seed": 0},
    "compare": "method",
    "show": {"entropy": True},
}
PLAYED = 300  # steps
COLOURS = 128


def still(page: Page) -> Image.Image:
    """What a page shows, in few colours."""
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return shot.quantize(COLOURS, dither=Image.Dither.NONE)


def animation(browser: Browser, exported: Path) -> bytes:
    """The exported page, its slider moved from end to end."""
    page = browser.new_page(viewport={"width": 760, "height": 430})
    page.goto(exported.as_uri())
    frames = []
    for number in range(len(FRAMES)):
        page.get_by_label("Step").fill(str(number))
        frames.append(still(page))
    content = io.BytesIO()
    times = [120] * (len(frames) - 1) + [2500]
    frames[0].save(content, "gif", save_all=True, append_images=frames[1:], duration=times, loop=0)
    return content.getvalue()


def side_by_side(browser: Browser, address: str) -> bytes:
    """Two circles, CCLP against entropy, after a while."""
    link = base64.urlsafe_b64encode(json.dumps(CIRCLES).encode()).decode().rstrip("=")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{address}#{link}")
    page.get_by_label("Speed").select_option("5")
    page.get_by_role("button", name="Play").click()
    while int(page.locator("#iteration").text_content() or 0) < PLAYED:
        page.wait_for_timeout(20)
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(1000)
    content = io.BytesIO()
    still(page).save(content, "png", optimize=True)
    return content.getvalue()


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/lab"), help="a folder")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
        with make_reporter(quiet=False) as report:
            exported = Path(temporary, "page.html")
            exported.write_text(make_page(report=report))
        write_bytes(folder / "moons.gif", animation(browser, exported))
        with server() as address:
            write_bytes(folder / "circles.png", side_by_side(browser, address))


if __name__ == "__main__":
    main()
