"""The examples run, on tiny settings."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from cclp.data.load import load
from examples import digits


def test_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["digits.py", "--out", str(tmp_path), "--seeds", "1", "--steps", "40"]
    monkeypatch.setattr(sys, "argv", arguments)
    digits.main()
    content = json.loads((tmp_path / "digits.json").read_text())
    assert content["errors"].keys() == {"supervised", "cclp", "LabelSpreading", "SelfTraining"}
    assert content["recipe"]["steps"] == 40
    assert all(0 < error < 0.5 for (error,) in content["errors"].values())
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text()
    assert "2 runs compared" in page
    assert "cclp train digits --labels 50 --method cclp --seed 0" in page
    printed = capsys.readouterr().out
    assert "LabelSpreading (scikit-learn)" in printed
    assert f"Report, for a browser: {tmp_path}/report.html" in printed


def test_peers_see_the_labels_of_the_same_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []

    class Peer:
        def fit(self, x: np.ndarray, y: np.ndarray) -> "Peer":
            seen.append(y)
            return self

        def predict(self, x: np.ndarray) -> np.ndarray:
            return np.full(len(x), -1)

    monkeypatch.setitem(digits.PEERS, "LabelSpreading", Peer)
    assert digits.peer_error("LabelSpreading", load("digits"), seed=3) == 1.0
    (y,) = seen
    assert (y >= 0).sum() == 50
    assert np.bincount(y[y >= 0]).tolist() == [5] * 10
