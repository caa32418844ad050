"""A user's arrays: .npz of many names, .npy beside each other, labels of every kind."""

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cclp.data import npz
from cclp.data.dataset import InputSpec
from cclp.data.load import find_kind, load
from cclp.data.user import arrays
from cclp.data.user import load as user_load
from cclp.data.user.load import load_user_data, read_samples
from cclp.progress import Reporter
from tests.runs import Messages


def test_npz_of_vectors_and_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    x = np.arange(12.0).reshape(4, 3)
    np.savez(path, X=x, y=np.array(["cat", "", "ant", "cat"]), X_test=x[:1], y_test=["ant"])
    data = load(str(path))
    assert find_kind(str(path)) == "vectors"
    assert data.spec == InputSpec(("ant", "cat"), (3,), None)
    assert data.train_x.dtype == np.float32
    assert data.train_y.tolist() == [1, -1, 0, 1]
    assert data.test_y.tolist() == [0]


def test_npz_classes_are_ordered_as_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.zeros((4, 2)), y=[10, 9, -1, 2])
    data = load(str(tmp_path / "a.npz"))
    assert data.spec.classes == ("2", "9", "10")
    assert data.train_y.tolist() == [2, 1, -1, 0]
    assert len(data.test_x) == 0


@pytest.mark.parametrize(
    ("x", "shape", "white"),
    [
        (np.zeros((4, 9, 7), np.uint8) + 128, (1, 9, 7), 255),
        (np.zeros((4, 9, 7, 3), np.uint8) + 128, (3, 9, 7), 255),
        (np.zeros((4, 3, 9, 7), np.int64) + 255, (3, 9, 7), 255),
        (np.zeros((4, 3, 9, 7)), (3, 9, 7), None),
        (np.zeros((4, 9, 7), np.int64) + 256, (1, 9, 7), None),
        (np.zeros((4, 9, 7), np.uint8) + 16, (1, 9, 7), None),  # the value of white is unknown
        (np.ones((4, 9, 7), bool), (1, 9, 7), None),
    ],
)
def test_npz_of_images(
    tmp_path: Path, x: np.ndarray[Any, Any], shape: tuple[int, ...], white: int | None
) -> None:
    np.savez(tmp_path / "a.npz", X=x, y=[0, 1, -1, -1])
    data = load(str(tmp_path / "a.npz"))
    assert find_kind(str(tmp_path / "a.npz")) == "images"
    assert (data.spec.shape, data.spec.white) == (shape, white)
    assert data.train_x.dtype == (np.float32 if white is None else np.uint8)
    assert data.train_x.max() == x.max()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": [1]}, "must hold X and y, but holds z"),
        ({"x": [1]}, "holds x but no y"),
        ({"y": [1]}, "holds y but no X"),
        ({"X": np.zeros((2, 2)), "x": [1], "y": [0, 1]}, "holds X and x: remove one"),
        ({"X": np.zeros((2, 2))}, "holds X but no y"),
        ({"X": np.zeros((2, 2)), "y": [0, 1], "X_test": [[0, 0]]}, "holds X_test but no y_test"),
        (
            {"X": np.zeros((2, 2)), "y": [0, 1, 1]},
            "a label for each of 2 samples, .* got 3",
        ),
        (
            {"X": np.zeros((2, 2)), "y": [0.5, 1]},
            "2 whole numbers or strings, got 0.5: if it is",
        ),
        ({"X": np.zeros((2, 2)), "y": [-2, 1]}, "at least 0, or -1 for unlabeled, got -2"),
        ({"X": np.zeros((2, 2)), "y": [1, -1]}, "two or more classes, got 1"),
        ({"X": np.zeros(2), "y": [0, 1]}, r"X must hold numbers of shape .*got float64 .*\(2,\)"),
        ({"X": np.array([["a"], ["b"]]), "y": [0, 1]}, "X must hold numbers"),
        ({"X": np.zeros((2, 0)), "y": [0, 1]}, r"got float64 of shape \(2, 0\)"),
        ({"X": [[0.0], [np.inf]], "y": [0, 1]}, "X must be finite in float32, but row 1 is not"),
        ({"X": [[np.nan], [np.inf]], "y": [0, 1]}, "X must be finite in float32, but row 0 is no"),
        ({"X": np.zeros((2, 2)), "y": [[0.5, 0.5], [0, 1]]}, "must have one 1 in each row"),
        ({"X": [[0.0], [1e300]], "y": [0, 1]}, "X must be finite in float32, but row 1 is not"),
        ({"X": np.zeros((2, 9, 9, 9)), "y": [0, 1]}, "at most 4 channels"),
        ({"X": np.zeros((2, 1, 9, 4)), "y": [0, 1]}, "at most 4 channels, first or last"),
        ({"X": np.zeros(()), "y": [0, 1]}, r"X must hold numbers of shape .* of shape \(\)"),
        ({"X": np.zeros((2, 2)), "y": [0, np.inf]}, "y must hold 2 whole numbers or strings"),
        ({"X": np.zeros((2, 2)), "y": 1}, r"y must hold 2 whole numbers .* of shape \(\)"),
        (
            {"X": np.zeros((2, 2)), "y": [0, 1], "X_test": [[0]], "y_test": [0]},
            r"X_test must be of shape \(2,\), got \(1,\)",
        ),
        (
            {"X": np.zeros((2, 2)), "y": [0, 1], "X_test": [[0, 0]], "y_test": [7]},
            "y_test: there is no class '7', only 0, 1",
        ),
        (
            {"X": np.zeros((2, 2)), "y": [0, 1], "X_test": [[0, 0]], "y_test": [-1]},
            "y_test must name a class for every sample",
        ),
    ],
)
def test_npz_that_is_no_data(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=rf"a\.npz.*{message}"):
        load(str(tmp_path / "a.npz"))


@pytest.mark.parametrize(
    ("x", "fits"),
    [
        (np.full((2, 8, 8), 16, np.uint8), True),
        (np.full((2, 8, 8), 16), True),
        (np.full((2, 8, 8), 17), False),
        (np.full((2, 8, 8), 255, np.uint8), False),
        (np.full((2, 8, 8), 0.5), False),
        (np.full((2, 8, 8), -1), False),
    ],
)
def test_pixels_must_have_the_scale_of_those_trained_on(
    tmp_path: Path, x: np.ndarray[Any, Any], fits: bool
) -> None:
    np.savez(tmp_path / "a.npz", X=x, y=[0, 1])
    spec = InputSpec(tuple("0123456789"), (1, 8, 8), 16)
    if fits:
        assert load_user_data(tmp_path / "a.npz", spec=spec).train_x.dtype == np.uint8
    else:
        with pytest.raises(ValueError, match="X must hold whole numbers from 0 to 16, as those"):
            load_user_data(tmp_path / "a.npz", spec=spec)


SHAPES = st.lists(st.integers(0, 6), max_size=5).map(tuple)
KINDS = st.sampled_from(["u1", "i1", "i8", "f4", "f8", "?", "U3", "c8", "M8[s]"])


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(x_shape=SHAPES, x_kind=KINDS, y_shape=SHAPES, y_kind=KINDS, seed=st.integers(0, 9))
def test_any_arrays_are_data_or_an_error_in_words(
    tmp_path: Path,
    x_shape: tuple[int, ...],
    x_kind: str,
    y_shape: tuple[int, ...],
    y_kind: str,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...], kind: str) -> np.ndarray[Any, Any]:
        content = rng.integers(0, 256, int(np.prod(shape)) * np.dtype(kind).itemsize, np.uint8)
        plain = kind in ("?", "U3", "M8[s]")
        values = rng.integers(0, 2, shape) if plain else content.view(kind).reshape(shape)
        return values.astype(kind)

    np.savez(tmp_path / "a.npz", X=draw(x_shape, x_kind), y=draw(y_shape, y_kind))
    try:
        data = load(str(tmp_path / "a.npz"))
    except ValueError as error:
        message = str(error)
        data = None
    if data is None:
        assert "a.npz" in message
        assert len(message.split()) > 4
    else:
        assert np.isfinite(data.train_x).all()
        assert data.train_x.shape == (len(data.train_y), *data.spec.shape)
        assert data.train_y.max() < data.num_classes >= 2


@pytest.mark.parametrize(
    ("names", "unused"),
    [
        (("X", "y", "X_test", "y_test"), ""),
        (("x", "y", "x_test", "y_test"), ""),
        (("x_train", "y_train", "x_test", "y_test"), ""),
        (("X_train", "Y_train", "X_test", "Y_test"), "X_val"),
        (("train_images", "train_labels", "test_images", "test_labels"), "val_images"),
        (("images", "labels", "x_test", "y_test"), ""),
        (("embeddings", "labels", "x_test", "y_test"), ""),
    ],
)
def test_names_of_arrays(tmp_path: Path, names: tuple[str, ...], unused: str) -> None:
    x = np.arange(12.0).reshape(4, 3)
    arrays: list[Any] = [x, [0, 1, -1, 0], x[:2], [1, 0]]
    others: dict[str, Any] = {unused: x} if unused else {}
    np.savez(tmp_path / "a.npz", **dict(zip(names, arrays, strict=True)), **others)
    said = Messages()
    data = load(str(tmp_path / "a.npz"), report=said)
    assert find_kind(str(tmp_path / "a.npz")) == "vectors"
    assert data.train_x.tolist() == x.tolist()
    assert data.train_y.tolist() == [0, 1, -1, 0]
    assert data.test_x.tolist() == x[:2].tolist()
    assert data.test_y.tolist() == [1, 0]
    assert said.infos == ([f"a.npz: not read: {unused}"] if unused else [])
    (samples,) = read_samples([tmp_path / "a.npz"], data.spec, skip_bad=False, report=Reporter())
    assert samples.x.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("y", "classes", "codes"),
    [
        (np.array([2.0, np.nan, -1, 0]), ("0", "2"), [1, -1, -1, 0]),
        (np.array([[2], [-1], [0], [0]]), ("0", "2"), [1, -1, 0, 0]),
        (np.array([[1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 1]]), ("0", "2"), [0, -1, 1, 1]),
        (np.array([[1.0, 0], [np.nan, np.nan], [0, 1], [0, 1]]), ("0", "1"), [0, -1, 1, 1]),
        (np.array([[True, False], [False, False], [False, True], [False, True]]), ("0", "1"),
         [0, -1, 1, 1]),
        (np.array([True, False, False, True]), ("False", "True"), [1, 0, 0, 1]),
        (np.array(["b", "", "a", "NA"]), ("a", "b"), [1, -1, 0, -1]),
        (np.array([["b"], ["?"], ["a"], ["Unlabeled"]]), ("a", "b"), [1, -1, 0, -1]),
        (np.array([b"b", b"", b"a", b"nan"]), ("a", "b"), [1, -1, 0, -1]),
        (np.array([3, 255, 3, 3], np.uint8), ("3", "255"), [0, 1, 0, 0]),
    ],
)  # fmt: skip
def test_labels_of_arrays(
    tmp_path: Path, y: np.ndarray[Any, Any], classes: tuple[str, ...], codes: list[int]
) -> None:
    np.savez(tmp_path / "a.npz", X=np.zeros((4, 2)), y=y)
    data = load(str(tmp_path / "a.npz"))
    assert data.spec.classes == classes
    assert data.train_y.tolist() == codes


def test_words_for_unlabeled_are_named(tmp_path: Path) -> None:
    said = Messages()
    np.savez(tmp_path / "a.npz", X=np.zeros((5, 2)), y=["b", "NA", "a", "", "NA"])
    load(str(tmp_path / "a.npz"), report=said)
    assert said.infos == ["a.npz: y: 2 'NA' taken as unlabeled"]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_missing_values_get_the_mean_of_their_feature(tmp_path: Path, dtype: str) -> None:
    x = np.array([[1, np.nan, 5], [3, np.nan, 5], [np.nan, np.nan, 5]], dtype)
    np.savez(tmp_path / "a.npz", X=x, y=[0, 1, -1], X_test=x[2:], y_test=[1])
    said = Messages()
    data = load(str(tmp_path / "a.npz"), report=said)
    assert data.spec.means == (2.0, 0.0, 5.0)
    assert InputSpec.from_json(data.spec.to_json()) == data.spec
    assert data.train_x.tolist() == [[1, 0, 5], [3, 0, 5], [2, 0, 5]]
    assert data.test_x.tolist() == [[2, 0, 5]]
    assert said.infos == [
        "a.npz: 4 missing values (NaN) in 2 of 3 features of X get the mean of their feature"
    ]
    np.save(tmp_path / "new.npy", np.array([[np.nan, 1, 2]]))
    (samples,) = read_samples([tmp_path / "new.npy"], data.spec, skip_bad=False, report=Reporter())
    assert samples.x.tolist() == [[2, 1, 2]]
    whole = InputSpec(("0", "1"), (3,), None)
    with pytest.raises(ValueError, match="X must be finite in float32, but row 0 is not"):
        list(read_samples([tmp_path / "new.npy"], whole, skip_bad=False, report=Reporter()))


@pytest.mark.parametrize(
    ("files", "test"),
    [
        (("X.npy", "y.npy"), ("X_test.npy", "y_test.npy")),
        (("x.npy", "Y.npy"), None),
        (("X_train.npy", "y_train.npy"), ("X_test.npy", "y_test.npy")),
        (("x-train-small.npy", "y-train-small.npy"), ("x-test-small.npy", "y-test-small.npy")),
        (("embeddings.npy", "labels.npy"), ("embeddings_test.npy", "labels_test.npy")),
        (("train_features.npy", "train_labels.npy"), ("test_features.npy", "test_labels.npy")),
        (("images.npy", "y.npy"), None),
        (("mine.npy", "labels.npy"), None),
    ],
)
def test_npy_files_beside_each_other(
    tmp_path: Path, files: tuple[str, str], test: tuple[str, str] | None
) -> None:
    x = np.arange(8.0).reshape(4, 2)
    np.save(tmp_path / files[0], x)
    np.save(tmp_path / files[1], np.array(["a", "b", "", "a"]))
    if test:
        np.save(tmp_path / test[0], x[:1] + 9)
        np.save(tmp_path / test[1], np.array(["b"]))
    assert find_kind(str(tmp_path / files[0])) == "vectors"
    data = load(str(tmp_path / files[0]))
    assert data.train_x.tolist() == x.tolist()
    assert data.train_y.tolist() == [0, 1, -1, 0]
    assert data.test_x.tolist() == ([[9, 10]] if test else [])
    assert data.test_y.tolist() == ([1] if test else [])
    (tmp_path / files[1]).unlink()
    (samples,) = read_samples([tmp_path / files[0]], data.spec, skip_bad=False, report=Reporter())
    assert samples.x.tolist() == x.tolist()


def test_npy_files_that_are_no_data(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"X\.npy holds .* looked for y\.npy and Y\.npy"):
        load(str(tmp_path / "X.npy"))
    np.save(tmp_path / "features.npy", np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"looked for labels\.npy and y\.npy"):
        load(str(tmp_path / "features.npy"))
    np.save(tmp_path / "y.npy", np.array([0, 1]))
    with pytest.raises(ValueError, match="a label for each of 3 samples, -1 for unlabeled ones"):
        load(str(tmp_path / "X.npy"))
    np.save(tmp_path / "y.npy", np.array([0, 1, None], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"y\.npy must be .* Python objects, which are never"):
        load(str(tmp_path / "X.npy"))
    content = (tmp_path / "X.npy").read_bytes()
    (tmp_path / "X.npy").write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"shape \(3, 2\) takes 48 bytes, not 47"):
        load(str(tmp_path / "X.npy"))
    (tmp_path / "X.npy").write_text("nothing")
    with pytest.raises(ValueError, match=r"X\.npy must be an \.npy file of NumPy"):
        find_kind(str(tmp_path / "X.npy"))


def test_large_npy_files_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    np.save(tmp_path / "X.npy", x)
    np.save(tmp_path / "y.npy", np.arange(50) % 2)
    read = load(str(tmp_path / "X.npy"))
    monkeypatch.setattr(npz, "MAPPED", 1)
    monkeypatch.setattr(arrays, "PART", 30)  # ten rows at a time
    data = load(str(tmp_path / "X.npy"))
    assert isinstance(memory_of(data.train_x), mmap.mmap)
    assert not data.train_x.flags.writeable
    assert data.fingerprint == read.fingerprint
    some = [*read_samples([tmp_path / "X.npy"], data.spec, skip_bad=False, report=Reporter())]
    assert isinstance(memory_of(some[0].x), mmap.mmap)
    x[37, 1] = np.inf
    np.save(tmp_path / "X.npy", x)
    with pytest.raises(ValueError, match="must be finite in float32, but row 37 is not"):
        load(str(tmp_path / "X.npy"))
    np.save(tmp_path / "X.npy", np.asfortranarray(x[:37]))  # has to be copied
    np.save(tmp_path / "y.npy", np.arange(37) % 2)
    assert load(str(tmp_path / "X.npy")).train_x.tolist() == x[:37].tolist()
    content = (tmp_path / "X.npy").read_bytes()
    for wrong, size in ((content[:-1], "443"), (content + b"1", "more")):
        (tmp_path / "X.npy").write_bytes(wrong)
        with pytest.raises(ValueError, match=rf"shape \(37, 3\) takes 444 bytes, not {size}"):
            load(str(tmp_path / "X.npy"))


def memory_of(x: Any) -> Any:
    """What an array is a view of."""
    while isinstance(x, np.ndarray):
        x = x.base
    return x


def test_rows_are_predicted_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.save(tmp_path / "X.npy", x)
    monkeypatch.setattr(user_load, "ROWS", 2)
    spec = InputSpec(("a", "b"), (2,), None)
    found = list(read_samples([tmp_path / "X.npy"], spec, skip_bad=False, report=Reporter()))
    assert [len(samples.x) for samples in found] == [2, 2, 1]
    assert [row for samples in found for _, row in samples.places] == [0, 1, 2, 3, 4]
    assert np.concatenate([samples.x for samples in found]).tolist() == x.tolist()


def test_one_hot_rows_of_numbers_that_are_none_are_no_warnings(tmp_path: Path) -> None:
    """A signalling NaN is NaN; infinite numbers, whose sum would overflow, are refused."""
    x = np.zeros((4, 2), np.float32)
    nan, one = 0x7F800001, 0x3F800000
    rows = np.array([[nan, 0], [one, 0], [nan, nan], [0, one]], np.uint32)
    np.savez(tmp_path / "a.npz", X=x, y=rows.view(np.float32))
    assert load(str(tmp_path / "a.npz")).train_y.tolist() == [-1, 0, -1, 1]
    np.savez(tmp_path / "b.npz", X=x, y=np.full((4, 2), np.inf))
    with pytest.raises(ValueError, match="must have one 1 in each row"):
        load(str(tmp_path / "b.npz"))
