"""A saved estimator predicts as it did, and whatever its file holds, nothing is run."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from torch import nn

from cclp.sklearn import CCLPClassifier

KEY = "cclp_estimator"
NAMES = ("a", "b", "c")


def some() -> tuple[NDArray[Any], NDArray[Any]]:
    X, truth = make_blobs(60, n_features=4, centers=3, random_state=0)
    return X, np.where(np.arange(60) < 20, truth, -1)


def model(**settings: Any) -> CCLPClassifier:
    plain = {"max_iter": 5, "hidden_sizes": (8,), "embedding_size": 6, "random_state": 0}
    return CCLPClassifier(**{**plain, **settings})


def own_net(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    net = nn.Module()
    net.features, net.classifier = nn.Linear(shape[0], 5), nn.Linear(5, num_classes)
    return net


def check_same(path: Path, fitted: CCLPClassifier, X: Any, **own: Any) -> CCLPClassifier:
    fitted.save(path)
    loaded = CCLPClassifier.load(path, **own)
    for name in ("predict", "predict_proba", "transform", "decision_function"):
        found, expected = getattr(loaded, name)(X), getattr(fitted, name)(X)
        assert found.dtype == expected.dtype
        if found.dtype == object:
            assert found.tolist() == expected.tolist()
        else:
            assert found.tobytes() == expected.tobytes()
    assert loaded.get_params() == fitted.get_params()
    public = [name for name in vars(fitted) if name.endswith("_") and name != "module_"]
    for name in public:
        np.testing.assert_equal(getattr(loaded, name), getattr(fitted, name))
    assert list(loaded.get_feature_names_out()) == list(fitted.get_feature_names_out())
    return loaded


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "mean_teacher", "class_weight": {0: 1.0, 1: 2.0, 2: 1.0}},
        {"net": "cnn", "image_shape": (28, 28), "max_iter": 1},
        {"net": "linear", "method": "supervised", "weight": None, "max_iter": np.int64(2)},
    ],
)
def test_a_loaded_estimator_predicts_the_same(settings: Any, tmp_path: Path) -> None:
    X, y = some()
    if settings.get("net") == "cnn":
        X = np.tile(X, (1, 28 * 28 // 4))
    fitted = model(**settings).fit(X, y)
    loaded = check_same(tmp_path / "saved.safetensors", fitted, X)
    if not settings:
        again = loaded.fit(X, y)  # from the start
        np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([*NAMES, None], object),
        np.array([0.5, 1.5, 2.5, -1], np.float32),
        np.array([*"012", ""]),
        np.array([3, 4, 5, -1], np.int16),
    ],
)
def test_classes_keep_their_type(labels: NDArray[Any], tmp_path: Path) -> None:
    X, y = some()
    if labels.dtype.kind == "f":
        labels = labels * 2  # scikit-learn takes fractions for regression
    frame = pandas.DataFrame(X, columns=["w", "x", "y", "z"])
    check_same(tmp_path / "saved", model(method="supervised").fit(frame, labels[y]), frame)


def test_what_auto_has_chosen_is_kept(tmp_path: Path) -> None:
    X, y = some()
    fitted = model(method="auto").fit(X, y)
    assert fitted.verdict_ is not None
    check_same(tmp_path / "saved", fitted, X)


def test_code_of_the_user_is_passed_again(tmp_path: Path) -> None:
    X, y = some()
    path = tmp_path / "saved"
    check_same(path, model(net=own_net, method="supervised").fit(X, y), X, net=own_net)
    with pytest.raises(ValueError, match="code of your own for net, got it for nothing"):
        CCLPClassifier.load(path)
    with pytest.raises(ValueError, match="for net, got it for net, method"):
        CCLPClassifier.load(path, net=own_net, method="mine:Method")


def test_what_cannot_be_saved_is_refused_and_nothing_overwritten(tmp_path: Path) -> None:
    X, y = some()
    path = tmp_path / "saved"
    with pytest.raises(NotFittedError):
        model().save(path)
    fitted = model(method="supervised", random_state=np.random.RandomState(0)).fit(X, y)
    with pytest.raises(ValueError, match=r"random_state must be a plain value .* RandomState"):
        fitted.save(path)
    fitted.set_params(random_state=None, hidden_sizes=(9,))
    with pytest.raises(ValueError, match="must be of shape"):
        fitted.save(path)
    fitted.set_params(hidden_sizes=(8,)).classes_ = np.array([date(2020, 1, d) for d in (1, 2, 3)])
    with pytest.raises(ValueError, match=r"classes must be strings, .* got date"):
        fitted.save(path)
    assert not path.exists()
    path.write_text("mine")
    fitted.classes_ = np.arange(3)
    with pytest.raises(ValueError, match="exists and is never overwritten"):
        fitted.save(path)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    X, y = some()
    path = tmp_path_factory.mktemp("estimator") / "saved"
    model(method="supervised").fit(X, y).save(path)
    return path.read_bytes()


HOSTILE: list[tuple[str, Any]] = [
    ("version", 2),
    ("parameters.method", "os:system"),
    ("parameters.method", 3),
    ("parameters.hidden_sizes", [10**9]),
    ("parameters.hidden_sizes", [1] * 100_000),
    ("parameters.embedding_size", 10**12),
    ("parameters.device", "cuda:0"),
    ("parameters.weight", {"pairs": [[{"pairs": []}, 1]]}),
    ("parameters.verbosity", 1),
    ("own_code", ["net"]),
    ("net", "os:system"),
    ("net", None),
    ("shape", [10**18, 10**18]),
    ("shape", []),
    ("shape", [2, 2]),
    ("classes.values", [0, 1]),
    ("classes.values", [0, 1, 1]),
    ("classes.values", [0, 1, 2.5]),
    ("classes.dtype", "int8, U99999999999"),
    ("classes", {"dtype": "str", "values": ["x" * 2**20, *map(str, range(2**10))]}),
    ("feature_names", ["a"]),
    ("feature_names", [1, 2, 3, 4]),
    ("temperature", 0),
    ("steps", "many"),
    ("history", {"cclp": ["x"]}),
    ("pseudo_labels", {"nothing": 1}),
    ("verdict", {"rows": []}),
]


def changed(saved: bytes, name: str, value: Any) -> bytes:
    size = int.from_bytes(saved[:8], "little")
    about = json.loads(json.loads(saved[8 : 8 + size])["__metadata__"][KEY])
    *parents, last = name.split(".")
    place = about[parents[0]] if parents else about
    place[last] = value
    return save_tensors(load_tensors(saved), {KEY: json.dumps(about)})


@pytest.mark.parametrize(("name", "value"), HOSTILE)
def test_hostile_values_are_refused(name: str, value: Any, saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(changed(saved, name, value))
    with pytest.raises(ValueError, match="hostile cannot be used: "):
        CCLPClassifier.load(path)


def test_other_tensors_and_damaged_files_are_refused(saved: bytes, tmp_path: Path) -> None:
    path, tensors = tmp_path / "hostile", load_tensors(saved)
    size = int.from_bytes(saved[:8], "little")
    metadata = json.loads(saved[8 : 8 + size])["__metadata__"]
    other: list[dict[str, Any]] = [
        {"offset": torch.zeros(4)},
        {"offset": torch.zeros(5, dtype=torch.float64)},
        {"normalizer.mean": torch.zeros(1, 1)},
        {"normalizer.other": torch.zeros(1, 4)},
        {"net.classifier.other": torch.zeros(1)},
    ]
    contents = [save_tensors({**tensors, **change}, metadata) for change in other]
    contents += [save_tensors(tensors), b"", saved[:-1], saved[8:], b"\x80\x04N."]
    contents += [save_tensors({n: t for n, t in tensors.items() if n != "offset"}, metadata)]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="hostile cannot be used: "):
            CCLPClassifier.load(path)
