"""The benchmark of ``cclp label`` reads the features that benchmarks/embeddings.py makes."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import embeddings, labelling
from benchmarks.rows import Rows
from cclp.progress import Reporter

SPAM = 20, 40  # samples: of each class


def make_features(folder: Path) -> None:
    """Two clouds in different directions, of all lengths."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], SPAM)
    x = np.array([[0.0, 0, 1], [1, 0, 0]])[y] + 0.1 * rng.normal(size=(len(y), 3))
    x *= rng.uniform(1, 50, size=(len(y), 1))
    np.savez(folder / "spam.npz", x=x.astype(np.float32), y=y)
    (folder / "spam.json").write_text(json.dumps({"classes": SPAM}))


def rows_of(folder: Path, found: Rows) -> list[dict[str, Any]]:
    options = argparse.Namespace(
        features=folder, data_dir=None, seeds=2, answers=12, strategy=["ours", "typiclust"]
    )
    return list(labelling.measure("spam", options, found, Reporter()))


def test_a_person_answers_about_features(tmp_path: Path) -> None:
    make_features(tmp_path)
    found = Rows(tmp_path / "out.json", "a test")
    rows = rows_of(tmp_path, found)
    assert [(row["strategy"], row["seed"]) for row in rows] == [
        ("ours", 0), ("typiclust", 0), ("ours", 1), ("typiclust", 1)
    ]  # fmt: skip
    for row in rows:
        assert row["data"] == "spam"
        assert len(row["accuracy"]) == row["answers"] == 12
        first = row["accuracy"][0]  # all others are held for the class that was met first
        assert any(first == pytest.approx((n - 1) / 59, abs=1e-5) for n in SPAM)
        assert row["classes"][-1] == 2
        assert row["accuracy"][3] > 0.98  # one sample of 56 may be wrong
        found.add(row)
    assert rows_of(tmp_path, found) == []
    assert json.loads((tmp_path / "out.json").read_text())["data"] == {
        "spam": {"classes": list(SPAM)}
    }
    assert "| spam | ours | 2 | 3 | 3 | 100.0% |" in labelling.table(rows)


def test_only_directions_count(tmp_path: Path) -> None:
    make_features(tmp_path)
    x, y = embeddings.read_features("spam", tmp_path, Rows(tmp_path / "out.json", "a test"))
    made = np.load(tmp_path / "spam.npz")
    np.testing.assert_array_equal(y, made["y"])
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose((x * made["x"]).sum(1), np.linalg.norm(made["x"], axis=1), rtol=1e-6)


def test_features_that_are_missing_or_others_are_refused(tmp_path: Path) -> None:
    found = Rows(tmp_path / "out.json", "a test")
    command = f"python -m benchmarks.embeddings features --data spam --features {tmp_path}"
    with pytest.raises(SystemExit, match="is missing") as missing:
        rows_of(tmp_path, found)
    assert command in str(missing.value)
    make_features(tmp_path)
    found.content["data"] = {"spam": {"classes": [1, 2]}}
    with pytest.raises(SystemExit, match="other features than those measured before"):
        rows_of(tmp_path, found)
    assert found.rows == []
