"""The examples run, on tiny settings."""

import json
import re
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar, Self

import numpy as np
import pytest
from torch import nn

from cclp.sklearn import CCLPClassifier
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


class Sees:
    """A stand-in for every way: remembers the labels it is given, and takes all images for 3."""

    seen: ClassVar[list[np.ndarray]] = []

    def fit(self, x: np.ndarray, y: np.ndarray) -> Self:
        self.seen.append(y)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), 3)


def test_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, method in ((digits.ONLY, "supervised"), (digits.OURS, "cclp")):
        quick = partial(CCLPClassifier, method=method, max_iter=15, random_state=0)
        monkeypatch.setitem(digits.WAYS, name, quick)
    monkeypatch.setattr(sys, "argv", ["digits.py", "--out", str(tmp_path), "--sets", "2"])
    digits.main()
    errors = json.loads((tmp_path / "digits.json").read_text())["errors"]
    assert list(errors) == ["10", "50"]
    for found in errors.values():
        assert found.keys() == digits.WAYS.keys()
        assert all(0 < error < 0.9 for each in found.values() for error in each)
        assert {len(each) for each in found.values()} == {2}
        assert np.mean(found["GraphLabelPropagation"]) < np.mean(found["LabelSpreading"])
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text()
    assert "<td>".join(digits.rows(errors)[0]) in page
    printed = capsys.readouterr().out
    assert "50 labels, set 2 of 2:" in printed
    assert f"Table and figure, for a browser: {tmp_path}/report.html" in printed


def test_every_way_sees_the_same_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sees, "seen", [])
    for name in digits.WAYS:
        monkeypatch.setitem(digits.WAYS, name, Sees)
    errors, _ = digits.compare(sets=2)
    given = [Sees.seen[start : start + 5] for start in range(0, 20, 5)]
    for count, labels in zip((10, 10, 50, 50), given, strict=True):
        assert all(np.array_equal(y, labels[0]) for y in labels)
        assert np.bincount(labels[0][labels[0] >= 0]).tolist() == [count // 10] * 10
    assert not np.array_equal(given[2][0], given[3][0])
    assert errors["50"][digits.OURS] == [404 / 450] * 2  # 46 of the 450 images show a 3


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
