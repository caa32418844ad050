"""The pages become a site without a broken link, and the site asks for nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr[-3000:]
    return out


def test_every_page_is_in_the_site(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").is_file()
    configuration = (ROOT / "mkdocs.yml").read_text()
    assert all(f": {page.name}\n" in configuration for page in (ROOT / "docs").glob("*.md"))


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        tags = re.findall(r"<(?:script|img|link|iframe)[^>]*>", page.read_text())
        assert not [tag for tag in tags if "http" in tag]


def test_formulas_and_names_are_drawn(site: Path) -> None:
    assert "<math" in (site / "how-it-works.html").read_text()
    api = (site / "api.html").read_text()
    assert "<math" in api
    assert not re.search(r":(?:math|func|class):", api)
