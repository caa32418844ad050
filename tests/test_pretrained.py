"""Features by pretrained networks for images and models for texts, all with random weights."""

import json
import sys
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401 - it looks for torchvision: before there is a stand-in
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import cclp
from cclp.data.load import load
from cclp.data.user.features import open_extractor
from cclp.runs.inference import predict
from tests.command_line import call
from tests.runs import Messages, own_folder
from tests.stand_ins import (
    make_sentence_transformers,
    make_timm,
    make_torchvision,
    make_transformers_logging,
)


class Weights:
    """Whether weights were fetched, and whether that works."""

    def __init__(self) -> None:
        self.fetched, self.fails = 0, False

    def __call__(self) -> None:
        self.fetched += 1
        if self.fails:
            raise OSError("Name or service\nnot known")
        torch.manual_seed(1)


@pytest.fixture
def fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """In a folder with images; libraries of models are stand-ins."""
    weights = Weights()
    texts = make_sentence_transformers(weights)
    monkeypatch.setitem(sys.modules, "sentence_transformers", texts)
    logging = make_transformers_logging()
    monkeypatch.setitem(sys.modules, "transformers.utils.logging", logging)
    monkeypatch.setitem(sys.modules, "timm", make_timm(weights))
    monkeypatch.setitem(sys.modules, "torchvision", make_torchvision(weights))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    own_folder(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    return weights


def network(name: str = "resnet18", seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    found: nn.Module = make_timm(lambda: None).create_model(name, num_classes=7)
    return found.eval()


@pytest.mark.parametrize("family", ["timm", "torchvision"])
@pytest.mark.parametrize("file", ["a.safetensors", "a.pth", "wrapped.pt"])
def test_features_are_those_of_the_network_in_the_file(
    fetch: Weights, family: str, file: str
) -> None:
    made = network()
    if file == "a.safetensors":
        save_file(made.state_dict(), file)
    elif file == "a.pth":
        torch.save(made.state_dict(), file)
    else:
        wrapped = {f"module.{key}": value for key, value in made.state_dict().items()}
        torch.save({"state_dict": wrapped, "epoch": 3}, file)
    extractor = open_extractor(f"{family}:resnet18@{file}", fetch=False)
    assert extractor.name == f"{family}:resnet18@{Path(file).resolve()}"
    assert (extractor.image_size, extractor.channels) == (24, 3)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 24, 24), np.uint8)
    x = torch.from_numpy(pixels) / 255
    x = (x - torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)) / 0.2
    with torch.no_grad():
        expected = made.body(x).mean((2, 3)).numpy()  # type: ignore[operator]
    np.testing.assert_allclose(extractor(pixels), expected, rtol=1e-4, atol=1e-5)
    grey, large = pixels[:, :1], pixels.repeat(2, axis=2).repeat(2, axis=3)
    np.testing.assert_allclose(extractor(grey), extractor(grey.repeat(3, axis=1)), atol=1e-5)
    assert extractor(large).shape == (3, 5)
    assert fetch.fetched == 0


def test_a_folder_by_a_network_and_new_files(fetch: Weights) -> None:
    save_file(network().state_dict(), "w.safetensors")
    save_file(network(seed=5).state_dict(), "other.safetensors")
    options: dict[str, Any] = {"method": "supervised", "max_steps": 60, "verbose": False}
    cclp.fit("photos", features="timm:resnet18@w.safetensors", out="run", **options)
    about = json.loads(Path("run/config.json").read_text())
    assert about["data"]["features"]["shape"] == [3, 24, 24]
    assert about["data"]["shape"] == [5]
    assert about["config"]["features"] == f"timm:resnet18@{Path('w.safetensors').resolve()}"
    own_folder(Path("new"), labeled=0, unlabeled=4)
    labels = [found.label for found in predict(Path("run"), [Path("new")])]  # not named again
    assert labels == ["dark", "light"] * 2
    with pytest.raises(ValueError, match=r"other\.safetensors' are not what the run was trained"):
        list(predict(Path("run"), [Path("new")], features="timm:resnet18@other.safetensors"))
    Path("w.safetensors").rename("moved.safetensors")
    with pytest.raises(ValueError, match=r"w\.safetensors must be weights"):
        list(predict(Path("run"), [Path("new")]))
    again = predict(Path("run"), [Path("new")], features="timm:resnet18@moved.safetensors")
    assert [found.label for found in again] == labels
    assert cclp.Model("run").export("hub").is_dir()
    card = Path("hub/README.md").read_text()
    assert r"made by timm\:resnet18\@w.safetensors, which is not part of the network" in card
    assert fetch.fetched == 0


@pytest.mark.parametrize("family", ["timm", "torchvision"])
def test_weights_are_fetched_only_if_the_command_names_them(fetch: Weights, family: str) -> None:
    name = f"{family}:resnet18"
    options: dict[str, Any] = {"method": "supervised", "max_steps": 2, "verbose": False}
    cclp.fit("photos", features=name, out="run", **options)
    assert fetch.fetched == 1
    with pytest.raises(ValueError, match=f"weights of {name} are not on this machine, and are"):
        list(predict(Path("run"), [Path("photos")]))
    assert fetch.fetched == 1
    assert len(list(predict(Path("run"), [Path("photos")], features=name))) == 30
    assert fetch.fetched == 2
    fetch.fails = True
    with pytest.raises(ValueError) as said:  # noqa: PT011 - its whole text is compared
        load("photos", features=name)
    assert str(said.value) == (
        f"the weights of {name} cannot be fetched (Name or service not known): {name}@FILE takes a "
        "local one"
    )


def test_files_of_a_model_that_a_strangers_run_names_are_named_again(
    fetch: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file(network().state_dict(), "w.safetensors")
    name = "timm:resnet18@w.safetensors"
    options: dict[str, Any] = {"method": "supervised", "max_steps": 2, "verbose": False}
    cclp.fit("photos", features=name, out="run", **options)
    assert len(list(predict(Path("run"), [Path("photos")]))) == 30
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path("of another").resolve()))
    with pytest.raises(ValueError, match=r"not made by you .* add --features timm:resnet18@/.*w\."):
        list(predict(Path("run"), [Path("photos")]))
    assert len(list(predict(Path("run"), [Path("photos")], features=name))) == 30


def test_weights_that_were_fetched_before_are_used_without_network(
    fetch: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file(network().state_dict(), "w.safetensors")
    cached = {("timm/resnet18", "model.safetensors"): "w.safetensors"}
    monkeypatch.setattr(
        "huggingface_hub.try_to_load_from_cache", lambda repo, name: cached.get((repo, name))
    )
    by_hub = open_extractor("timm:resnet18", fetch=False)
    by_file = open_extractor("timm:resnet18@w.safetensors", fetch=False)
    assert by_hub.fit((3, 24, 24), 255).probe == by_file.fit((3, 24, 24), 255).probe
    assert fetch.fetched == 0
    with pytest.raises(ValueError, match=r"weights of timm:resnet18\.wrong are not on this mach"):
        open_extractor("timm:resnet18.wrong", fetch=False)
    fetched = Path(torch.hub.get_dir(), "checkpoints", "resnet18-0.pth")
    fetched.parent.mkdir(parents=True)
    fetched.touch()  # the stand-in does not read it
    assert open_extractor("torchvision:resnet18", fetch=False).image_size == 24


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("timm:resnt18", "timm has no network 'resnt18'; near names: resnet18"),
        ("torchvision:resnet19", "torchvision has no network 'resnet19'; near names: resnet18"),
        ("timm:hf-hub:me/resnet18", "timm has no network 'hf-hub:me/resnet18'"),
        ("timm:resnet18@none.pth", r"none\.pth must be weights.*No such file"),
        ("timm:resnet18@text.pth", r"text\.pth must be weights, \.safetensors or a state dict"),
        ("timm:resnet18@text.safetensors", r"text\.safetensors must be weights"),
        ("timm:resnet18@whole.pth", r"whole\.pth must be .* it holds Python objects, which are"),
        ("timm:resnet50@w.safetensors", "the weights are of another network: .*size mismatch"),
        ("torchvision:resnet50@w.safetensors", "the weights are of another network"),
    ],
)
def test_networks_that_are_not_to_be_had(fetch: Weights, features: str, message: str) -> None:
    save_file(network().state_dict(), "w.safetensors")
    torch.save(network(), "whole.pth")
    for name in ("text.pth", "text.safetensors"):
        Path(name).write_text("no weights")
    with pytest.raises(ValueError, match=message):
        load("photos", features=features)


def test_networks_are_for_images(fetch: Weights) -> None:
    save_file(network().state_dict(), "w.safetensors")
    np.savez("v.npz", X=np.eye(4), y=[0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"are for images .* not for samples of shape \(4,\)"):
        load("v.npz", features="timm:resnet18@w.safetensors")
    Path("t.csv").write_text("text,kind\na b c,x\nd e f,y\n")
    with pytest.raises(ValueError, match=r"are for images in whole numbers .* not for tables"):
        load("t.csv", target="kind", features="timm:resnet18@w.safetensors")


@pytest.mark.parametrize(
    ("features", "extra"),
    [
        ("timm:resnet18", "timm is not installed: pip install 'cclp[vision]'"),
        ("torchvision:resnet18", "torchvision is not installed: pip install 'cclp[vision]'"),
        ("sentence_transformers:a", "sentence_transformers is not installed: pip install 'cclp[te"),
    ],
)
def test_a_missing_library_says_how_to_install_it(
    fetch: Weights,
    features: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    family = features.partition(":")[0]
    monkeypatch.delitem(sys.modules, family, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Missing(family), *sys.meta_path])
    assert call("train", "photos", "--features", features, "--out", "run", "--quiet") == 2
    assert extra in capsys.readouterr().err


class Missing:
    """An import system that has not one module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, *_: object) -> None:
        if name == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_library_that_does_not_load_beside_this_torch(
    fetch: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator nms does not exist')")
    monkeypatch.delitem(sys.modules, "torchvision")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"torchvision cannot be loaded \(operator nms does not"):
        load("photos", features="torchvision:resnet18")


def write_model(folder: str, seed: int) -> str:
    Path(folder).mkdir()
    Path(folder, "modules.json").write_text(str(seed))
    return f"sentence_transformers:{folder}"


def write_reviews(rows: int = 40) -> None:
    """Texts that say their class, one missing."""
    lines = ["review,kind"]
    for k in range(rows):
        text = f"it was {('a joy' * 3, 'sour mud' * 2)[k % 2]} to number {k}" if k != 5 else ""
        lines.append(f"{text},{('yes', 'no')[k % 2] if k < 16 else ''}")
    Path("reviews.csv").write_text("\n".join(lines) + "\n")


def test_texts_by_a_model_of_a_folder(fetch: Weights) -> None:
    name = write_model("mini", seed=3)
    write_reviews()
    said = Messages()
    data = load("reviews.csv", target="kind", features=name, report=said)
    assert "text: review (12 features)" in said.infos[0]
    assert data.train_x.shape == (40, 12)
    np.testing.assert_allclose(
        np.linalg.norm(data.train_x, axis=1), np.arange(40) != 5, rtol=1e-5, atol=0
    )
    options: dict[str, Any] = {"method": "supervised", "max_steps": 60, "verbose": False}
    model = cclp.fit("reviews.csv", target="kind", features=name, out="run", **options)
    about = json.loads(Path("run/config.json").read_text())["data"]
    assert about["features"]["name"] == f"sentence_transformers:{Path('mini').resolve()}"
    assert about["columns"] == [{"name": "review", "width": 12, "kind": "embedding"}]
    assert about["fingerprint"] == data.fingerprint
    (Path("new.csv")).write_text(
        "review\nit was a joya joya joy to number 9\nit was sour mudsour mud to number 8\n"
    )
    assert [found.label for found in model.predict("new.csv")] == ["yes", "no"]
    assert [found.label for found in predict(Path("run"), [Path("new.csv")])] == ["yes", "no"]
    other = write_model("other", seed=4)
    with pytest.raises(ValueError, match="it gives other features of the same samples"):
        list(predict(Path("run"), [Path("new.csv")], features=other))
    assert load("reviews.csv", target="kind", features=other).fingerprint != data.fingerprint
    assert fetch.fetched == 0
    Path("broken").mkdir()
    with pytest.raises(ValueError, match=r"broken cannot be loaded: .*modules\.json"):
        load("reviews.csv", target="kind", features="sentence_transformers:broken")
    with pytest.raises(ValueError, match="are for columns of text in a table"):
        load("photos", features=name)


def test_models_of_the_hub_are_fetched_only_if_the_command_names_them(fetch: Weights) -> None:
    write_reviews()
    name = "sentence_transformers:mini"
    options: dict[str, Any] = {"method": "supervised", "max_steps": 2, "verbose": False}
    cclp.fit("reviews.csv", target="kind", features=name, out="run", **options)
    assert fetch.fetched == 1
    with pytest.raises(ValueError, match=f"weights of {name} are not on this machine"):
        list(predict(Path("run"), [Path("reviews.csv")]))
    assert fetch.fetched == 1
    fetch.fails = True
    message = r"cannot be fetched \(Name or service not known\): sentence_transformers:FOLDER takes"
    with pytest.raises(ValueError, match=message):
        load("reviews.csv", target="kind", features=name)


def test_versions_that_import_what_a_model_names_are_refused(
    fetch: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_sentence_transformers(fetch, version="5.4.1")
    monkeypatch.setitem(sys.modules, "sentence_transformers", old)
    write_reviews()
    with pytest.raises(ValueError, match=r"must be 6 or newer.*got 5\.4\.1"):
        load("reviews.csv", target="kind", features=write_model("mini", seed=3))
