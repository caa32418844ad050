"""Pictures of cclp label for the docs, taken in a browser: ``python -m tools.label``."""

import argparse
import io
import re
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from cclp.data.load import load
from cclp.files import write_bytes
from tests.browser import chromium, server

ANSWERS = 30


def answer(page: Page, names: list[str], count: int) -> None:
    """Answer so many questions with the truth, by the keyboard."""
    what, known = page.locator("#what"), set[str]()
    for _ in range(count):
        expect(what).to_have_attribute("data-sample", re.compile(r"\d"))
        sample = what.get_attribute("data-sample") or ""
        name = names[int(sample)]
        if name in known:
            page.keyboard.press(name)  # a class that is named like a key gets it
        else:
            page.keyboard.press("n")
            page.get_by_label("Name of the class").press_sequentially(name)
            page.keyboard.press("Enter")
            known.add(name)
        expect(what).not_to_have_attribute("data-sample", sample)


def still(page: Page) -> bytes:
    """What a page shows, with all its colours: those of the classes must stay apart."""
    page.wait_for_timeout(4000)  # beliefs are refined after the last answer
    content = io.BytesIO()
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shot.save(content, "png", optimize=True)
    return content.getvalue()


def pictures(browser: Browser, address: str) -> dict[str, bytes]:
    """A question in light, the map in dark."""
    data = load("digits")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(address)
    answer(page, [data.spec.classes[c] for c in data.train_y], ANSWERS)
    found = {"question.png": still(page)}
    page.keyboard.press("m")
    page.get_by_role("button", name="Light or dark").click()
    page.locator("#points").click()
    found["map.png"] = still(page)
    return found


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/label"), help="a folder")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
        arguments = ("digits", "--port", "0", "--out", str(Path(temporary, "digits.labels")))
        with server(*arguments, command="label") as address:
            for name, content in pictures(browser, address).items():
                write_bytes(folder / name, content)


if __name__ == "__main__":
    main()
