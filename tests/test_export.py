"""What is exported gives what the run's network gives."""

import json
import re
import shutil
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from cclp.data.load import load
from cclp.runs.export import export, load_exported
from cclp.runs.inference import open_run, predict
from cclp.runs.model_card import model_card
from cclp.runs.start import Stopped, train
from cclp.training.evaluation import run_net
from cclp.training.recipe import make_recipe
from tests.command_line import call
from tests.records import make_verdict, write_verdict
from tests.runs import own_table, rewrite_config, tiny_config, write_mnist

OWN_NET = """
from torch import nn

class Own(nn.Module):
    def __init__(self, shape, num_classes):
        super().__init__()
        self.features = nn.Linear(shape[0], 6)
        self.classifier = nn.Sequential(nn.Linear(6, num_classes), nn.Softsign())
"""


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


def card_of(text: str) -> Any:
    """A model card as the Hub reads it."""
    return ModelCard(text)


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
    assert printed == "run-safetensors/model.safetensors and its card, run-safetensors/README.md\n"
    card = json.loads(Path("run-safetensors/config.json").read_text())
    result = json.loads((digits / "result.json").read_text())
    assert (card["error"], card["evaluated_on"]) == (result["error"], "test")
    assert (card["num_labels"], card["num_samples"]) == (30, 450)
    assert card["configuration"]["method"] == "cclp"
    assert card["labels_per_class"] == {str(c): 3 for c in range(10)}
    text = Path("run-safetensors/README.md").read_text()
    assert "| Labels | 30, 3 of each class |" in text
    assert f"{result['error']:.2%} error on the test set, 450 samples" in text
    assert "N x 1 x 8 x 8 pixels, float32, whole numbers from 0 to 16" in text
    assert call("export", str(digits), "--format", "safetensors") == 2
    assert "run-safetensors exists and is never overwritten" in capsys.readouterr().err
    assert not list(tmp_path.glob(".export-*"))
    assert sorted(file.name for file in Path("run-safetensors").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


def test_the_hub_reads_the_card(digits: Path, tmp_path: Path) -> None:
    config = export(digits, tmp_path / "out", "safetensors")
    card: Any = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.content.count("\n---\n") == 1
    about = card.data
    assert (about.library_name, about.pipeline_tag) == ("cclp", "image-classification")
    assert about.tags == ["cclp", "semi-supervised-learning", "safetensors"]
    assert (about.license, about.metrics) == (None, ["accuracy"])
    assert about.model_name == "cclp on digits"
    accuracy, error = about.eval_results
    assert accuracy.metric_value == pytest.approx(1 - config["error"], abs=1e-6)
    assert (error.metric_type, error.metric_name) == ("error", "Error (test set, 450 samples)")
    assert error.metric_value == pytest.approx(config["error"], abs=1e-6)
    for result in (accuracy, error):
        assert (result.dataset_name, result.dataset_type) == ("digits", "digits")
        assert (result.dataset_split, result.task_type) == ("test", "image-classification")
    assert card_of(str(card)).data.to_dict() == about.to_dict()  # as the Hub would write it


def test_exports_of_version_01_are_read(digits: Path, tmp_path: Path) -> None:
    """They had card.json and card.md."""
    new, old = tmp_path / "new", tmp_path / "old"
    export(digits, new, "safetensors")
    shutil.copytree(new, old)
    (old / "config.json").rename(old / "card.json")
    (old / "README.md").rename(old / "card.md")
    expected = load_exported(new).state_dict()
    for name, tensor in load_exported(old).state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0)
    (old / "card.json").unlink()
    with pytest.raises(ValueError, match=r"old .* has no config\.json"):
        load_exported(old)


def test_an_exported_network_is_no_run(digits: Path, tmp_path: Path) -> None:
    export(digits, tmp_path / "out", "safetensors")
    with pytest.raises(ValueError, match=r"out is not a run directory: it was made by cclp export"):
        open_run(tmp_path / "out")
    with pytest.raises(ValueError, match=r"run cannot be used: .*model\.safetensors"):
        load_exported(digits)


def test_a_table_and_a_run_that_is_not_finished(tmp_path: Path) -> None:
    own_table(tmp_path / "mine.csv")
    config = replace(tiny_config(num_labels=None), data=str(tmp_path / "mine.csv"), target="kind")
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=lambda: True)
    card = export(tmp_path / "run", tmp_path / "out", "safetensors")
    assert (card["finished"], card["error"]) == (False, None)
    text = model_card(card)
    about = card_of(text).data
    assert (about.pipeline_tag, about.metrics) == ("tabular-classification", None)
    assert about.eval_results is None
    assert "the training was not finished" in text
    assert "| Classes | 2: no, yes |" in text
    assert card["labels_per_class"] == {"no": 8, "yes": 8}  # a fifth is held out
    assert "| Labels | 16, 8 of each class |" in text
    assert "features, float32; normalised inside" in text


def own_net_run(folder: Path) -> tuple[Path, str]:
    """A run on a table by a network whose last layer is not linear; and how it is named."""
    own_table(folder / "mine.csv")
    (folder / "mine.py").write_text(OWN_NET)
    net, recipe = f"{folder / 'mine.py'}:Own", make_recipe("short", "digits")
    recipe = replace(recipe, net=net, max_steps=2, per_class=2, unlabeled_batch=4)
    config = tiny_config(num_labels=None, method="cclp", target="kind")
    train(replace(config, data=str(folder / "mine.csv"), recipe=recipe), folder / "run")
    return folder / "run", net


def test_a_stranger_learns_no_path_of_this_machine(tmp_path: Path) -> None:
    run, net = own_net_run(tmp_path)
    content = json.loads((run / "config.json").read_text())
    content["config"]["data_dir"] = str(tmp_path)
    content["config"]["pseudo_label_features"] = str(tmp_path / "f.npy")
    content["config"]["settings"] = {f"{tmp_path}/way.py:Way": {"weight": 1}}
    content["config"]["method"] = f"{tmp_path}/way.py:Way+graph_pseudo_label"
    rewrite_config(run, content)
    card = export(run, tmp_path / "out", "safetensors", net)
    for file in ("config.json", "README.md"):
        assert str(tmp_path) not in (tmp_path / "out" / file).read_text()
    found = card["configuration"]
    assert found["recipe"]["net"] == "mine.py:Own"
    assert found["pseudo_label_features"] == "f.npy"
    assert found["method"] == "way.py:Way+graph_pseudo_label"
    assert found["settings"] == {"way.py:Way": {"weight": 1}}
    assert load_exported(tmp_path / "out", net)(torch.zeros(2, 5))[0].shape == (2, 2)


def test_probabilities_are_calibrated_whatever_the_last_layer(tmp_path: Path) -> None:
    run, net = own_net_run(tmp_path)
    x = torch.zeros(1, 5)
    (tmp_path / "new.csv").write_text("amount,colour\n1.5,red\n")
    (before,) = predict(run, [tmp_path / "new.csv"], net=net)
    export(run, tmp_path / "before", "safetensors", net)
    write_verdict(run, make_verdict(temperature=2.0))
    (after,) = predict(run, [tmp_path / "new.csv"], net=net)
    root = np.sqrt(before.probabilities)
    np.testing.assert_allclose(after.probabilities, root / root.sum(), rtol=1e-5)
    card = export(run, tmp_path / "after", "safetensors", net)
    assert card["temperature"] == 2
    mine, theirs = (load_exported(tmp_path / name, net)(x)[0] for name in ("before", "after"))
    torch.testing.assert_close(theirs, mine / 2)


def test_labels_of_a_run_that_did_not_record_them(digits: Path, tmp_path: Path) -> None:
    old = shutil.copytree(digits, tmp_path / "old")
    content = json.loads((old / "config.json").read_text())
    content["labels_per_class"][0] = -1
    rewrite_config(old, content)
    with pytest.raises(ValueError, match=r"config\.json is damaged: labels_per_class .*-1"):
        export(old, tmp_path / "out", "safetensors")
    del content["labels_per_class"]
    rewrite_config(old, content)
    card = export(old, tmp_path / "out", "safetensors")
    assert card["labels_per_class"] is None
    assert "| Labels | 30 |" in model_card(card)


HOSTILE = [
    "a|b",
    "<script>alert(1)</script>",
    "![x](https://example.org/x.png)",
    "[x](javascript:x) <https://example.org> &lt; &amp;",
    "`code` *a* _b_ **c** ~~d~~ $e$ \\f \\| # g",
    "- {a: b, 'c': [\"d\"]} # e",
    "yes",
    "1e5",
    "é ☃ 𝒳",
    "www.example.org https://example.org me@example.org ==x== ^y^",
]
BROKEN = "x\n---\nlicense: mit\n# y\u2028\x00\x85\ud800\t"


def cells(text: str) -> dict[str, str]:
    """Rows of the table as a reader sees them; there is no other markup than code in them."""
    html = MarkdownIt("commonmark").enable("table").render(card_of(text).text)
    found = re.findall(r"<tr>\s*<td>(.*?)</td>\s*<td>(.*?)</td>", html, re.DOTALL)
    plain = {name: re.sub("</?code>", "", value) for name, value in found}
    assert not any("<" in value for value in plain.values()), plain
    return {name: unescape(value) for name, value in plain.items()}


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(digits: Path, tmp_path: Path, name: str) -> None:
    config = export(digits, tmp_path / "out", "safetensors")
    before = card_of(model_card(config)).data.to_dict()
    config["input"]["classes"], config["data"] = ["a", name], name
    config["configuration"]["method"] = config["configuration"]["recipe"]["net"] = name
    config["labels_per_class"] = {"a": 1, name: 2}
    text = model_card(config)
    found = cells(text)
    assert found["Classes"] == f"2: a, {name}"
    assert found["Labels"] == f"3: a 1, {name} 2"
    assert found["Data"] == name
    assert found["Method"].startswith(f"{name}, recipe ")
    assert found["Network"].startswith(f"{name}, ")
    card = card_of(text)
    assert card.data.model_name == f"{name} on {name}"
    assert card.data.eval_results[0].dataset_name == name
    assert card.data.to_dict().keys() == before.keys()
    for link in ("www.", "://", "@example"):  # GitHub and the Hub would make links of them
        assert re.search(rf"(?<!\\){re.escape(link)}", card.text) is None
    heading = MarkdownIt("commonmark").render(card.text.lstrip().splitlines()[0])
    assert unescape(heading) == f"<h1>model.safetensors: a classifier of {name}</h1>\n"


def test_a_card_holds_no_command_for_a_terminal(digits: Path, tmp_path: Path) -> None:
    """People print it by cat."""
    config = export(digits, tmp_path / "out", "safetensors")
    config["input"]["classes"] = ["a", "\x1b[2Jb\x9b1m"]
    config["data"] = "\x1b]0;title\x07\u202etac"
    text = model_card(config)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert cells(text)["Classes"] == r"2: a, \x1b[2Jb\x9b1m"


def test_a_name_cannot_leave_its_line(digits: Path, tmp_path: Path) -> None:
    config = export(digits, tmp_path / "out", "safetensors")
    config["input"]["classes"], config["data"] = ["a", BROKEN], BROKEN
    text = model_card(config).encode().decode()
    card = card_of(text)
    assert card.data.license is None
    said = BROKEN.replace("\ud800", "?")
    assert card.data.eval_results[0].dataset_name == said
    assert cells(text)["Classes"] == f"2: a, {' '.join(said.split())}".replace("\0", r"\x00")
    assert text.splitlines().count("---") == 2


def test_what_was_changed_is_refused(digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(digits, out, "safetensors")
    weights, card = out / "model.safetensors", out / "config.json"
    content, about = weights.read_bytes(), json.loads(card.read_text())
    weights.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"not the file that config\.json"):
        load_exported(out)
    weights.write_bytes(content)
    changes: tuple[dict[str, Any], ...] = (
        {"input": None},
        {"configuration": {}},
        {"temperature": 0},
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
