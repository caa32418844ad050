"""Arrays of a user: ``X`` and ``y``, and perhaps ``X_test`` and ``y_test``."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.data.budget import Budget, check_room
from cclp.data.dataset import Dataset, InputSpec, Kind
from cclp.data.user.feature_cache import features_of
from cclp.data.user.features import Extractor
from cclp.data.user.labels import clean_labels, encode_labels
from cclp.progress import Reporter

MOST_CHANNELS = 4
WHITE_AT_LEAST = 128  # whole numbers that stay below are no pixels of 0 … 255


PART = 2**22  # values that are looked at together

# Bytes in memory of a value in float32, of one whose gaps are replaced, of
# a label as a name, and of a value of a one-hot row while it is read.
_REAL, _REPLACED, _NAMED, _ONE_HOT = 4, 8, 64, 24

# Names of arrays in any case: of scikit-learn, of Keras, of MedMNIST.
_PAIRS = (
    ("x", "y"), ("x_train", "y_train"), ("train_images", "train_labels"), ("images", "labels"),
    ("features", "labels"), ("embeddings", "labels"),
)  # fmt: skip
_TEST_PAIRS = (("x_test", "y_test"), ("test_images", "test_labels"))

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ArrayReader:
    """Reads a file of named arrays.

    Attributes:
        read: all arrays of a file, by name, with labels.
        shapes: their shapes, without reading them.
        read_unlabeled: all arrays where labels are not needed; None: as ``read``.
    """

    read: Callable[[Path], Arrays]
    shapes: Callable[[Path], dict[str, tuple[int, ...]]]
    read_unlabeled: Callable[[Path], Arrays] | None = None
    takes_target = False

    def kind(self, path: Path) -> Kind:
        shapes = self.shapes(path)
        name = _find_inputs(shapes)
        return "vectors" if name is not None and len(shapes[name]) == 2 else "images"

    def load(
        self,
        path: Path,
        target: str | None,
        spec: InputSpec | None,
        report: Reporter,
        drop: Collection[str] = (),
        keep: Collection[str] = (),
        extractor: Extractor | None = None,
    ) -> Dataset:
        data = self._load(path, spec.before_features if spec else None, report)
        return data if extractor is None else _with_features(data, path, spec, extractor, report)

    def load_unlabeled(
        self,
        path: Path,
        target: str | None,
        report: Reporter,
        drop: Collection[str] = (),
        keep: Collection[str] = (),
        extractor: Extractor | None = None,
    ) -> Dataset:
        arrays = (self.read_unlabeled or self.read)(path)
        name = _find_inputs(arrays)
        if name is None:
            raise ValueError(f"{path} must hold X, but holds {_names(arrays)}")
        means = _means(arrays[name], name, path, report)
        x = _check_inputs(arrays[name], name, path, None, means)
        spec = InputSpec((), x.shape[1:], 255 if x.dtype == np.uint8 else None, means=means)
        none = np.empty(0, np.int64)
        data = Dataset(path.stem, spec, x, np.full(len(x), -1), x[:0], none)
        return data if extractor is None else _with_features(data, path, None, extractor, report)

    def _load(self, path: Path, spec: InputSpec | None, report: Reporter) -> Dataset:
        arrays = self.read(path)
        pair = _find_pair(arrays, _PAIRS, path)
        if pair is None:
            raise ValueError(f"{path} must hold X and y, but holds {_names(arrays)}")
        test_pair = _find_pair(arrays, _TEST_PAIRS, path)
        unused = arrays.keys() - {*pair, *(test_pair or ())}
        if unused:
            report.info(f"{path.name}: not read: {', '.join(sorted(unused))}")
        means = _means(arrays[pair[0]], pair[0], path, report) if spec is None else spec.means
        x = _check_inputs(arrays[pair[0]], pair[0], path, spec, means)
        budget = Budget(path.stat().st_size)
        budget.take(len(x) * _NAMED, f"{path}: {pair[1]}")
        labels = label_names(arrays[pair[1]], pair[1], path, len(x), spec, report)
        classes, y = encode_labels(labels, spec, f"{path}: {pair[1]}")
        white = 255 if x.dtype == np.uint8 else None
        spec = spec or InputSpec(classes, x.shape[1:], white, means=means)
        x_test, y_test = x[:0], y[:0]
        if test_pair is not None:
            x_test = _check_inputs(arrays[test_pair[0]], test_pair[0], path, spec, means)
            budget.take(len(x_test) * _NAMED, f"{path}: {test_pair[1]}")
            labels = label_names(
                arrays[test_pair[1]], test_pair[1], path, len(x_test), spec, report
            )
            y_test = encode_labels(labels, spec, f"{path}: {test_pair[1]}")[1]
            if (y_test < 0).any():
                raise ValueError(f"{path}: {test_pair[1]} must name a class for every sample")
        return Dataset(path.stem, spec, x, y, x_test, y_test)

    def read_inputs(
        self, path: Path, spec: InputSpec, report: Reporter, extractor: Extractor | None = None
    ) -> NDArray[Any]:
        spec = spec.before_features
        arrays = (self.read_unlabeled or self.read)(path)
        name = _find_inputs(arrays)
        if name is None:
            raise ValueError(f"{path} must hold X, but holds {_names(arrays)}")
        x = _check_inputs(arrays[name], name, path, spec, spec.means)
        return x if extractor is None else extractor(x)


def _with_features(
    data: Dataset, path: Path, spec: InputSpec | None, extractor: Extractor, report: Reporter
) -> Dataset:
    """The data with features of their samples; ``spec`` is of a run."""
    before = data.spec
    made = spec.features if spec else extractor.fit(before.shape, before.white)
    assert made is not None
    are_pictures = len(before.shape) == 3 and before.shape[0] in (1, 3) and before.white is not None
    train_x, test_x = (
        features_of(extractor, made, x, f"{path.absolute()}\0{part}", report)
        for part, x in (("train", data.train_x), ("test", data.test_x))
    )
    return replace(
        data,
        spec=before.with_features(made),
        train_x=train_x,
        test_x=test_x,
        train_pictures=data.train_x if are_pictures else None,
        test_pictures=data.test_x if are_pictures else None,
        source=data.fingerprint,
    )


def _names(arrays: Arrays) -> str:
    return ", ".join(arrays) or "nothing"


def _find_inputs(names: Collection[str]) -> str | None:
    """The name of the array of samples."""
    for wanted, _ in _PAIRS + _TEST_PAIRS:
        for name in names:
            if name.lower() == wanted:
                return name
    return None


def _find_pair(
    names: Collection[str], pairs: tuple[tuple[str, str], ...], path: Path
) -> tuple[str, str] | None:
    """The names of samples and their labels; None if there are neither.

    Raises:
        ValueError: if there is one without the other, or two names differ by case only.
    """
    found = {name.lower(): name for name in names}
    if len(found) < len(names):
        twice = sorted(name for name in names if found[name.lower()] != name)
        raise ValueError(f"{path} holds {twice[0]} and {found[twice[0].lower()]}: remove one")
    for inputs, labels in pairs:
        if inputs in found and labels in found:
            return found[inputs], found[labels]
    for inputs, labels in pairs:
        for here, missing in ((inputs, labels), (labels, inputs.replace("x", "X"))):
            if here in found:
                raise ValueError(f"{path} holds {found[here]} but no {missing}")
    return None


def _means(x: NDArray[Any], name: str, path: Path, report: Reporter) -> tuple[float, ...] | None:
    """Means of features that replace NaN, in vectors; None if there is none."""
    if x.ndim != 2 or x.dtype.kind != "f" or not len(x):
        return None
    if not any(np.isnan(part).any() for part in _parts(x)):
        return None
    gaps = np.isnan(x)
    known = np.where(gaps, 0, x).sum(0, dtype=np.float64)
    means = known / np.maximum((~gaps).sum(0), 1)
    if not np.isfinite(means).all():
        return None  # there are infinite values, which are refused
    report.info(
        f"{path.name}: {gaps.sum()} missing values (NaN) in {gaps.any(0).sum()} of "
        f"{x.shape[1]} features of {name} get the mean of their feature"
    )
    return tuple(means.tolist())


def _check_inputs(
    x: NDArray[Any],
    name: str,
    path: Path,
    spec: InputSpec | None,
    means: tuple[float, ...] | None,
) -> NDArray[Any]:
    """Vectors, or images with channels first, in float32; pixels in whole numbers as bytes."""
    x = _channels_first(x, name, path)
    if spec is not None and x.shape[1:] != spec.shape:
        raise ValueError(f"{path}: {name} must be of shape {spec.shape}, got {x.shape[1:]}")
    low, high = x.min(), x.max()
    whole = x.ndim == 4 and x.dtype.kind in "biu" and low >= 0
    if spec is not None and spec.white is not None and not (whole and high <= spec.white):
        raise ValueError(
            f"{path}: {name} must hold whole numbers from 0 to {spec.white}, as those trained on, "
            f"got {x.dtype} from {low:g} to {high:g}"
        )
    pixels = whole and WHITE_AT_LEAST <= high <= 255 if spec is None else spec.white is not None
    if pixels:
        return np.ascontiguousarray(x, np.uint8)
    if means is not None or x.dtype != np.float32 or not x.flags.c_contiguous:
        budget = Budget(path.stat().st_size)
        budget.take(x.size * (_REAL + (0 if means is None else _REPLACED)), f"{path}: {name}")
    if means is not None:
        x = np.where(np.isnan(x), np.array(means), x)
    with np.errstate(over="ignore"):
        real = np.ascontiguousarray(x, np.float32)
    row = 0
    for part in _parts(real):
        finite = np.isfinite(part).reshape(len(part), -1).all(1)
        if not finite.all():
            row += int((~finite).argmax())
            raise ValueError(f"{path}: {name} must be finite in float32, but row {row} is not")
        row += len(part)
    return real


def _parts(x: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Some rows after others: what is computed of all at once would take memory like they do."""
    rows = max(1, PART // max(1, prod(x.shape[1:])))
    return (x[start : start + rows] for start in range(0, len(x), rows))


def _channels_first(x: NDArray[Any], name: str, path: Path) -> NDArray[Any]:
    """Vectors, (N, features), as they are; images as (N, channels, height, width)."""
    if x.ndim not in (2, 3, 4) or x.dtype.kind not in "biuf" or 0 in x.shape:
        raise ValueError(
            f"{path}: {name} must hold numbers of shape (samples, features) or (samples, height, "
            f"width), with or without channels, got {x.dtype} of shape {x.shape}"
        )
    if x.ndim == 2:
        return x
    if x.ndim == 3:
        return x[:, None]
    first, last = x.shape[1] <= MOST_CHANNELS, x.shape[3] <= MOST_CHANNELS
    if first == last:
        raise ValueError(
            f"{path}: {name} must have at most {MOST_CHANNELS} channels, first or last, and more "
            f"pixels than that on each side, got shape {x.shape}"
        )
    return x.transpose(0, 3, 1, 2) if last else x


def label_names(
    y: NDArray[Any],
    name: str,
    path: Path,
    count: int,
    spec: InputSpec | None,
    report: Reporter,
) -> list[str]:
    """Labels as names, empty where there is none.

    Args:
        y: strings, whole numbers, or a one-hot row for each sample.
        name: of the array.
        path: of the file.
        count: of the samples.
        spec: of a run; names of its classes stay.
        report: is told which strings count as unlabeled.

    Raises:
        ValueError: if they are something else, or not as many as the samples.
    """
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim in (1, 2) and len(y) != count:
        raise ValueError(
            f"{path}: {name} must have a label for each of {count} samples, -1 for unlabeled ones, "
            f"got {len(y)}"
        )
    if y.ndim == 2 and y.shape[1] and y.dtype.kind in "biuf":
        y = _from_one_hot(y, name, path)
    if y.ndim != 1 or y.dtype.kind not in "biufUS":
        raise ValueError(
            f"{path}: {name} must hold {count} whole numbers or strings, got {y.dtype} of shape "
            f"{y.shape}"
        )
    if y.dtype.kind in "USb":
        labels, said = clean_labels([_text(label) for label in y.tolist()], spec)
        if said:
            report.info(f"{path.name}: {name}: {said}")
        return labels
    known = y[y == y] if y.dtype.kind == "f" else y
    if not np.isfinite(known).all() or (known != np.floor(known)).any():
        some = known[~(np.isfinite(known) & (known == np.floor(known)))]
        raise ValueError(
            f"{path}: {name} must hold {count} whole numbers or strings, got {some[0]:g}: if it is "
            "a quantity, bin it into classes"
        )
    if (known < -1).any():
        raise ValueError(
            f"{path}: {name} must be at least 0, or -1 for unlabeled, got {known.min()}"
        )
    return ["" if value == -1 or value != value else str(int(value)) for value in y.tolist()]


def _text(label: object) -> str:
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)


def _from_one_hot(y: NDArray[Any], name: str, path: Path) -> NDArray[np.int64]:
    """Class indices of one-hot rows; −1 for rows of zeros, or of NaN."""
    check_room(y.size * _ONE_HOT, f"{path}: {name}")
    with np.errstate(all="ignore"):  # signalling NaN, sums of the largest numbers
        real = np.nan_to_num(y.astype(np.float64), nan=0.0)
        total = real.sum(1)
    if not (((real == 0) | (real == 1)).all() and (total <= 1).all()):
        raise ValueError(
            f"{path}: {name} of shape {y.shape} must have one 1 in each row and else zeros, or "
            "zeros only where unlabeled"
        )
    return np.where(total == 1, real.argmax(1), -1)
