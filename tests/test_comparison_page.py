"""Our values on the page about other libraries are those that are recorded."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cclp.experiments.aggregate import percent

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "comparison.md").read_text()


def result(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "results" / name).read_text())
    return content


@pytest.mark.parametrize(
    ("name", "folder"),
    [("MNIST", "mnist"), ("Fashion-MNIST", "fashion_mnist"), ("CIFAR-10", "cifar10")],
)
def test_label_propagation(name: str, folder: str) -> None:
    accuracy = result(f"graph/{folder}.json")["result"]["accuracy"]
    cells = [f"{100 * (1 - np.mean(accuracy[count])):.1f}" for count in ("1", "5", "10")]
    assert f"| {name}: ours | {' | '.join(cells)} |" in PAGE


def test_recipes() -> None:
    runs = [result(f"time-to-accuracy/test/fast-seed{seed}.json")["error"] for seed in range(5)]
    assert f"| ours, everything | {percent(runs).text()} | random affine |" in PAGE
    paper = percent([result("table1-paper/runs/mnist-100-cclp-seed0/result.json")["error"]])
    assert f"| ours, as in the paper | {paper.text()} | none |" in PAGE
    svhn, cifar = (
        percent([result(f"time-to-accuracy/{data}/fast-seed0.json")["error"]]).text()
        for data in ("svhn", "cifar10")
    )
    assert f"| ours, everything | {svhn} | {cifar} |" in PAGE
