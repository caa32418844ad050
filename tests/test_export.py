"""What is exported gives what the run's network gives."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from cclp.data.load import load
from cclp.runs.export import export, load_exported, markdown
from cclp.runs.inference import open_run
from cclp.runs.start import Stopped, train
from cclp.training.evaluation import run_net
from cclp.training.recipe import make_recipe
from tests.command_line import call
from tests.runs import own_table, tiny_config, write_mnist


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "run"
    train(tiny_config(), out)
    return out


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of a convolutional network on images, and its data."""
    folder = tmp_path_factory.mktemp("export")
    write_mnist(folder / "mnist")
    recipe = replace(make_recipe("fast", "mnist"), max_steps=3, per_class=2, unlabeled_batch=10)
    config = replace(
        tiny_config(num_labels=20, data_dir=str(folder), verify=False),
        data="mnist",
        recipe=recipe,
        method="cclp",
    )
    train(config, folder / "run")
    return folder / "run", folder


def expected(run: Path, x: np.ndarray) -> list[np.ndarray]:
    trained = open_run(run)
    outputs = run_net(trained.fabric, trained.objective, x)
    return [outputs.logits.numpy(), outputs.z.numpy()]


def test_onnx_gives_the_same(images: tuple[Path, Path], tmp_path: Path) -> None:
    run, folder = images
    card = export(run, tmp_path / "out", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "out" / card["file"])
    for count in (1, 20):
        x = load("mnist", folder, verify=False).test_x[:count]
        found = session.run(["logits", "embedding"], {"x": x.astype(np.float32)})
        for mine, theirs in zip(found, expected(run, x), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_safetensors_give_the_same(images: tuple[Path, Path], tmp_path: Path) -> None:
    run, folder = images
    export(run, tmp_path / "out", "safetensors")
    x = load("mnist", folder, verify=False).test_x
    with torch.no_grad():
        found = load_exported(tmp_path / "out")(torch.tensor(x))
    for mine, theirs in zip(found, expected(run, x), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-4, atol=1e-4)


def test_the_command_writes_a_card(
    digits: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("export", str(digits), "--format", "safetensors") == 0
    printed = capsys.readouterr().out
    assert printed == "run-safetensors/model.safetensors and its card, run-safetensors/card.md\n"
    card = json.loads(Path("run-safetensors/card.json").read_text())
    result = json.loads((digits / "result.json").read_text())
    assert (card["error"], card["evaluated_on"]) == (result["error"], "test")
    assert (card["num_labels"], card["num_samples"]) == (30, 450)
    assert card["configuration"]["method"] == "cclp"
    text = Path("run-safetensors/card.md").read_text()
    assert f"{result['error']:.2%} error on the test set, 450 samples" in text
    assert "N x 1 x 8 x 8 pixels, float32, whole numbers from 0 to 16" in text
    assert call("export", str(digits), "--format", "safetensors") == 2
    assert "run-safetensors exists and is never overwritten" in capsys.readouterr().err
    assert not list(tmp_path.glob(".export-*"))


def test_a_table_and_a_run_that_is_not_finished(tmp_path: Path) -> None:
    own_table(tmp_path / "mine.csv")
    config = replace(tiny_config(num_labels=None), data=str(tmp_path / "mine.csv"), target="kind")
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=lambda: True)
    card = export(tmp_path / "run", tmp_path / "out", "safetensors")
    assert (card["finished"], card["error"]) == (False, None)
    text = markdown(card)
    assert "the training was not finished" in text
    assert "| Classes | 2: no, yes |" in text
    assert "features, float32; normalised inside" in text


def test_names_stay_in_their_cell(digits: Path, tmp_path: Path) -> None:
    card = export(digits, tmp_path / "out", "safetensors")
    card["input"]["classes"] = ["a|b", "<script>\nx"]
    assert "| Classes | 2: a\\|b, &lt;script> x |" in markdown(card)


def test_what_was_changed_is_refused(digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(digits, out, "safetensors")
    weights, card = out / "model.safetensors", out / "card.json"
    content, about = weights.read_bytes(), json.loads(card.read_text())
    weights.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="not the file that card"):
        load_exported(out)
    weights.write_bytes(content)
    changes: tuple[dict[str, Any], ...] = (
        {"input": None},
        {"configuration": {}},
        {"configuration": {**about["configuration"], "recipe": {"net": "svhn"}}},
    )
    for change in changes:
        card.write_text(json.dumps({**about, **change}))
        with pytest.raises(ValueError, match=r"out cannot be used: "):
            load_exported(out)


def test_onnx_missing_is_explained(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ValueError, match=r"pip install 'cclp\[onnx\]', or choose --format"):
        export(digits, tmp_path / "out")
    assert not (tmp_path / "out").exists()
