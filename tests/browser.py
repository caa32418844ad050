"""A real server of a local page, and a real browser to look at it."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests import children

NAMES = ("chromium", "chromium-browser", "google-chrome")
expect.set_options(timeout=60_000)  # of a busy machine; what is there is seen at once


@contextmanager
def server(*arguments: str, command: str = "lab") -> Iterator[str]:
    """``cclp lab`` or another command with a page as a process of its own; gives its address."""
    line = [sys.executable, "-m", "cclp", command, "--no-browser", *arguments]
    with children.ended():
        process = children.start(line, stderr=None)
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert found
        yield found[0]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium without a window: this machine's own, as Playwright's cannot be had everywhere."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        _no_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def _no_browser() -> NoReturn:
    """Skip; fail where CCLP_BROWSER=required says that there must be one."""
    reason = "No Chromium here: pages were NOT tested in a browser (apt-get install chromium)."
    if os.environ.get("CCLP_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def clean_page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that must report no error and send no request to another host."""
    trouble: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: _check(request.url, address, trouble))
    page.goto(address)
    yield page
    page.close()
    assert not trouble


def _check(url: str, address: str, trouble: list[str]) -> None:
    if not url.startswith((address.partition("#")[0], "data:", "blob:")):
        trouble.append(f"requested {url}")
