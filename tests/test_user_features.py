"""Features by a function of the user's own: images, arrays, texts; runs that use them."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cclp
from cclp.data.dataset import InputSpec
from cclp.data.load import load
from cclp.data.user.load import read_samples
from cclp.progress import Reporter
from cclp.runs.inference import evaluate, predict
from cclp.runs.record import read_record
from cclp.runs.start import Stopped, resume, train
from tests.command_line import call
from tests.runs import Messages, own_folder, stop_after, tiny_config

OWN = """
from pathlib import Path

import numpy as np

Path("imported").touch()


def colours(images):
    with open("calls", "a") as file:
        file.write(f"{images.shape} {images.dtype}\\n")
    x = images.reshape(len(images), -1, images.shape[-1]).astype(float)
    return np.concatenate([x.mean(1), x.std(1)], axis=1)


def brighter(images):
    return colours(images) + 40


def wider(images):
    return np.concatenate([colours(images)] * 2, axis=1)


def halves(x):
    return np.stack([x[:, :2].sum(1), x[:, 2:].sum(1)], axis=1)


def lengths(texts):
    assert isinstance(texts, list) and isinstance(texts[0], str)
    return np.array([[len(text), text.count("good"), text.count("bad")] for text in texts])


def too_few(images):
    return colours(images)[:1]


def flat(images):
    return colours(images).ravel()


def infinite(images):
    return colours(images) / np.zeros(1)


def words(images):
    return np.full((len(images), 2), "a")


def fails(images):
    raise KeyError("nothing")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with images and code of the user's, in which the user is."""
    (tmp_path / "own.py").write_text(OWN)
    own_folder(tmp_path / "photos", test=4)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def calls(here: Path) -> list[str]:
    path = here / "calls"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def test_images_become_vectors_and_are_read_once(here: Path) -> None:
    data = load("photos", features="own:colours")
    assert calls(here) == ["(2, 224, 224, 3) uint8", "(38, 224, 224, 3) uint8"]
    assert data.train_x.shape == (30, 6)
    assert data.train_x.dtype == np.float32
    assert data.spec.shape == (6,)
    assert data.spec.white is None
    dark, light = (data.train_x[data.train_y == k, 0] for k in (0, 1))
    assert dark.max() < 100 < light.min()
    assert data.train_pictures is not None
    assert data.train_pictures.shape == (30, 3, 32, 32)
    assert abs(float(data.train_pictures[0].mean()) - float(data.train_x[0, :3].mean())) < 2
    again = load("photos", features="own:colours")
    assert calls(here) == ["(2, 224, 224, 3) uint8"]  # to see that it is the same
    np.testing.assert_array_equal(again.train_x, data.train_x)
    np.testing.assert_array_equal(again.test_x, data.test_x)
    assert again.fingerprint == data.fingerprint
    assert load("photos", features="own:brighter").fingerprint != data.fingerprint
    shutil.copy("photos/light/0.jpg", "photos/dark/0.jpg")
    assert load("photos", features="own:colours").fingerprint != data.fingerprint
    assert load("photos", features="own:colours", image_size=16).spec.features.shape == (3, 16, 16)  # type: ignore[union-attr]
    spec = InputSpec.from_json(json.loads(json.dumps(data.spec.to_json())))
    assert spec == data.spec


def test_a_changed_function_and_a_damaged_cache_are_not_trusted(here: Path) -> None:
    load("photos", features="own:colours")
    (here / "own.py").write_text(OWN + "# changed")
    calls(here)
    load("photos", features="own:colours")
    assert len(calls(here)) == 2
    (block,) = (here / "cache" / "cclp" / "features").iterdir()
    block.write_bytes(block.read_bytes()[:-300])
    load("photos", features="own:colours")
    assert len(calls(here)) == 2


def test_images_that_cannot_be_read(here: Path) -> None:
    Path("photos/dark/3.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"1 of 38 images cannot be read: .*3\.jpg"):
        load("photos", features="own:colours")
    for _ in range(2):
        data = load("photos", features="own:colours", skip_bad=True)
        assert data.train_x.shape == (29, 6)
        assert "dark/3.jpg" not in data.train_names  # type: ignore[operator]
        assert "3.jpg" in data.left_out[0]


def test_a_run_with_features_from_end_to_end(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--features", "own:colours", "--method", "supervised", "--max-steps", "60"]
    assert call("train", "photos", *options, "--out", "run", "--quiet") == 0
    record = read_record(Path("run"))
    assert record.config.features == "own:colours"
    assert record.config.recipe.net in ("mlp", "linear")
    assert record.error == 0
    assert record.unlabeled is not None
    assert record.unlabeled.images is not None
    assert record.unlabeled.images.shape[1:] == (3, 32, 32)
    own_folder(here / "new", labeled=0, unlabeled=6)
    for command in (["predict", "run", "new"], ["evaluate", "run"], ["evaluate", "run", "photos"]):
        (here / "imported").unlink(missing_ok=True)
        capsys.readouterr()
        assert call(*command) == 2
        assert "imported only if you name it again: add --features own:colours" in (
            capsys.readouterr().err
        )
        assert not (here / "imported").exists()
        assert call(*command, "--features", "own:colours") == 0
    assert "error 0.00% on 8 samples" in capsys.readouterr().out
    again = ["--features", "own:colours", "--out", "predictions.csv"]
    assert call("predict", "run", "new", *again) == 0
    with open("predictions.csv", newline="") as file:
        found = {row["file"]: row["class"] for row in csv.DictReader(file)}
    assert found == {f"new/unlabeled/{k}.png": ("dark", "light")[k % 2] for k in range(6)}
    assert call("report", "run") == 0
    assert call("export", "run", "--format", "safetensors", "--out", "hub") == 0
    card = Path("hub/README.md").read_text()
    assert "N x 6 features, float32, made by own\\:colours, which is not part of the net" in card


@pytest.mark.parametrize("other", ["own:brighter", "own:wider"])
def test_a_run_refuses_other_features(here: Path, other: str) -> None:
    cclp.fit(
        "photos", features="own:colours", method="supervised", max_steps=2, verbose=False, out="run"
    )
    with pytest.raises(ValueError, match=f"features '{other}' are not what the run was trained"):
        list(predict(Path("run"), [Path("photos/dark/0.jpg")], features=other))
    with pytest.raises(ValueError, match=f"features '{other}' are not what the run was trained"):
        evaluate(Path("run"), features=other)
    with pytest.raises(ValueError, match=r"--features timm:resnet18: this run was trained with 'o"):
        evaluate(Path("run"), features="timm:resnet18")
    model = cclp.Model("run", features="own:colours")
    assert len(model.predict("photos/dark/0.jpg")) == 1


def test_a_run_without_features_refuses_them(here: Path) -> None:
    cclp.fit("photos", image_size=8, method="cclp", max_steps=2, verbose=False, out="run",
             per_class=2, unlabeled_batch=4)  # fmt: skip
    with pytest.raises(ValueError, match="--features own:colours has no effect: this run was"):
        list(predict(Path("run"), [Path("photos/dark/0.jpg")], features="own:colours"))
    assert not (here / "imported").exists()


def test_a_stopped_run_resumes_if_features_are_named_again(here: Path) -> None:
    changes: dict[str, Any] = {
        "data": str(here / "photos"), "features": "own:colours", "num_labels": None,
    }  # fmt: skip
    config = replace(tiny_config(), **changes)
    with pytest.raises(Stopped):
        train(config, Path("run"), should_stop=stop_after(5))
    with pytest.raises(ValueError, match="add --features own:colours"):
        resume(Path("run"))
    with pytest.raises(ValueError, match="are not what the run was trained with"):
        resume(Path("run"), features="own:brighter")
    assert resume(Path("run"), features="own:colours")["restarts"] == 1


def test_arrays_become_vectors(here: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 5)), np.arange(20) % 3 - 1
    np.savez("vectors.npz", X=x, y=y, X_test=x[:4], y_test=abs(y[:4]))
    data = load("vectors.npz", features="own:halves")
    expected = np.stack([x[:, :2].sum(1), x[:, 2:].sum(1)], axis=1)
    np.testing.assert_allclose(data.train_x, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(data.test_x, expected[:4], rtol=1e-4, atol=1e-5)
    assert data.train_pictures is None
    options: dict[str, Any] = {"skip_bad": False, "report": Reporter(), "features": "own:halves"}
    (samples,) = read_samples([Path("vectors.npz")], data.spec, **options)
    np.testing.assert_allclose(samples.x, expected, rtol=1e-4, atol=1e-5)
    pixels = rng.integers(0, 256, (20, 9, 7, 3), np.uint8)
    np.savez("pixels.npz", X=pixels, y=y)
    calls(here)
    found = load("pixels.npz", features="own:colours")
    assert calls(here) == ["(2, 9, 7, 3) uint8", "(20, 9, 7, 3) uint8"]
    np.testing.assert_allclose(found.train_x[:, :3], pixels.mean((1, 2)), rtol=1e-5)
    np.testing.assert_array_equal(found.train_pictures, pixels.transpose(0, 3, 1, 2))


def write_reviews(path: Path, rows: int = 60) -> None:
    """Texts that say their class, one missing; beside a column of numbers."""
    lines = ["review,stars,kind"]
    for k in range(rows):
        word = ("good", "bad")[k % 2]
        text = f"this is {word} {'indeed ' * (k % 5)}as number {k} says" if k != 4 else ""
        lines.append(f"{text},{k % 7},{('yes', 'no')[k % 2] if k % 6 < 2 else ''}")
    path.write_text("\n".join(lines) + "\n")


def test_texts_become_vectors(here: Path) -> None:
    write_reviews(here / "reviews.csv")
    said = Messages()
    data = load("reviews.csv", target="kind", features="own:lengths", report=said)
    assert "text: review (3 features)" in said.infos[0]
    assert not said.warnings
    assert data.spec.shape == (4,)
    np.testing.assert_array_equal(data.train_x[:6, 1:], [
        [1, 0, 0], [0, 1, 1], [1, 0, 2], [0, 1, 3], [0, 0, 4], [0, 1, 5]
    ])  # fmt: skip
    model = cclp.fit(
        "reviews.csv",
        target="kind",
        features="own:lengths",
        method="supervised",
        max_steps=60,
        verbose=False,
    )
    Path("new.csv").write_text(
        "stars,review\n3,this is good as number 9 says\n3,this is bad as number 9 says\n"
    )
    assert [p.label for p in model.predict("new.csv")] == ["yes", "no"]
    Path("t.csv").write_text("a,kind\n1,x\n2,y\n3,\n")
    with pytest.raises(ValueError, match=r"t\.csv has no column of free text"):
        load("t.csv", target="kind", features="own:lengths")


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (
            "own:too_few",
            r"'own:too_few' must give .* of shape \(2, D\) for 2 samples, got .*\(1, 6",
        ),
        ("own:flat", r"must give an array of numbers of shape \(2, D\) .* of shape \(12,\)"),
        ("own:words", "must give an array of numbers"),
        ("own:infinite", "'own:infinite' must be finite"),
        ("own:fails", "features 'own:fails' failed: KeyError: 'nothing'"),
        ("own:none", "has no function or class none"),
        ("nowhere:none", "features 'nowhere:none' cannot be imported"),
        ("resnet18", "features must be timm:NAME, torchvision:NAME, sentence_transformers:NAME or"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_functions_that_do_not_fit(
    here: Path, features: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=message):
        load("photos", features=features)
    assert call("train", "photos", "--features", features, "--out", "run", "--quiet") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not Path("run").exists()


def test_published_data_have_no_features(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("train", "digits", "--features", "own:colours") == 2
    assert "--features is for your own files, not for digits" in capsys.readouterr().err
    with pytest.raises(ValueError, match="--features is for your own files"):
        load("digits", features="own:colours")
    assert not (here / "imported").exists()
