"""The examples run, on tiny settings."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from torch import nn

from cclp.data.load import load
from examples import (
    backbone,
    digits,
    image_folder,
    lightning_module,
    plain_loop,
    regularise_supervised,
    segmentation,
    sklearn_pipeline,
)


def test_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["digits.py", "--out", str(tmp_path), "--seeds", "1", "--max-steps", "15"]
    monkeypatch.setattr(sys, "argv", arguments)
    digits.main()
    content = json.loads((tmp_path / "digits.json").read_text())
    assert content["errors"].keys() == {"supervised", "cclp", "LabelSpreading", "SelfTraining"}
    assert content["recipe"]["max_steps"] == 15
    assert content["recipe"]["method"] == "cclp"
    assert all(0 < error < 0.5 for (error,) in content["errors"].values())
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text()
    assert "2 runs compared" in page
    assert "cclp train digits --num-labels 50 --method cclp --seed 0 --precision 32" in page
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


TWO = ["labels only", "with CCLP"]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*many workers", "ignore:.*treespec")
@pytest.mark.parametrize(
    ("example", "arguments", "names"),
    [
        (plain_loop, "--seeds 1 --max-steps 30", TWO),
        (lightning_module, "--seeds 1 --max-steps 30", TWO),
        (backbone, "--seeds 1 --max-steps 20", TWO),
        (regularise_supervised, "--seeds 1 --epochs 2", ["cross entropy", "with CCLP"]),
        (
            sklearn_pipeline,
            "--seeds 1 --max-steps 30",
            ["CCLPClassifier", "LabelSpreading", "SelfTraining"],
        ),
    ],
)
def test_errors_are_printed(
    example: ModuleType,
    arguments: str,
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["example", *arguments.split()])
    example.main()
    errors = dict(
        re.findall(r"^(.+): (.+)% of test images wrong \(\2%\)$", capsys.readouterr().out, re.M)
    )
    assert list(errors) == names
    assert all(0 < float(error) < 60 for error in errors.values())


def test_image_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["example", "--out", str(tmp_path), "--max-steps", "5"])
    image_folder.main()
    assert len(list(tmp_path.glob("images/unlabeled/*.png"))) == 300
    printed = capsys.readouterr().out
    assert re.search(r"^cclp\+graph_pseudo_label: [\d.]+% of 150 test images wrong$", printed, re.M)
    assert re.search(r"new/square01.png: (circle|square|triangle), \d+%$", printed, re.M)


def test_segmentation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["example", "--seeds", "1", "--max-steps", "10"])
    segmentation.main()
    scores = re.findall(r"^CCLP weight (.+): mean IoU (.+) \(\2\)$", capsys.readouterr().out, re.M)
    assert [weight for weight, _ in scores] == ["0", "0.1"]
    assert all(0.1 < float(score) < 1 for _, score in scores)


def test_a_backbone_of_timm_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """timm needs torchvision, which does not load here: a stand-in with random weights."""
    asked: list[tuple[str, dict[str, object]]] = []

    def create_model(name: str, **settings: object) -> nn.Module:
        asked.append((name, settings))
        return nn.Sequential(nn.Conv2d(3, 6, 5, stride=4), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    arguments = "example --timm resnet18 --image-size 16 --seeds 1 --max-steps 3"
    monkeypatch.setattr(sys, "argv", arguments.split())
    backbone.main()
    assert asked == [("resnet18", {"pretrained": True, "num_classes": 0})]
