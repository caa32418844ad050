"""docs/reliability.md names tests that are there, and shows the last figures."""

import ast
import json
import re
from pathlib import Path

from benchmarks import soak
from tests import fuzz

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reliability.md").read_text()


def test_every_promise_has_its_test() -> None:
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", PAGE)
    assert len(named) > 20
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text())
        assert name in {part.name for part in tree.body if isinstance(part, ast.FunctionDef)}, name


def test_the_page_shows_the_last_figures() -> None:
    record = json.loads((ROOT / "results" / "fuzz.json").read_text())
    assert fuzz.table(record) in PAGE
    assert min(sum(counts.values()) for counts in record["kinds"].values()) >= 10_000
    record = json.loads((ROOT / "results" / "soak.json").read_text())
    assert soak.markdown(record) in PAGE
    assert not soak.problems([soak.Sample(**values) for values in record["samples"]])


def test_growth_is_seen() -> None:
    calm = [soak.Sample(10, 1000, 7, 2), soak.Sample(100, 1015, 7, 2)]
    assert soak.problems(calm) == []
    worse = [calm[0], soak.Sample(100, 1025, 8, 3)]
    assert soak.problems(worse) == [
        "resident memory: +2.5%", "open files: [7, 8]", "threads: [2, 3]",
    ]  # fmt: skip


def test_a_training_is_sampled() -> None:
    samples = soak.soak(20)
    assert [s.step for s in samples] == list(range(2, 21, 2))
    assert all(s.resident > 10**7 and s.files > 2 and s.threads > 0 for s in samples)
