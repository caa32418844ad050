"""Arrays of a user: ``X`` and ``y``, and perhaps ``X_test`` and ``y_test``."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.data.dataset import Dataset, InputSpec, Kind
from cclp.data.user.labels import encode_labels
from cclp.progress import Reporter

MOST_CHANNELS = 4
WHITE_AT_LEAST = 128  # whole numbers that stay below are no pixels of 0 … 255


@dataclass(frozen=True)
class ArrayReader:
    """Reads a file of named arrays.

    Attributes:
        read: all arrays of a file, by name.
        shapes: their shapes, without reading them.
    """

    read: Callable[[Path], dict[str, NDArray[Any]]]
    shapes: Callable[[Path], dict[str, tuple[int, ...]]]
    takes_target = False

    def kind(self, path: Path) -> Kind:
        return "vectors" if len(self.shapes(path).get("X", ())) == 2 else "images"

    def load(
        self, path: Path, target: str | None, spec: InputSpec | None, report: Reporter
    ) -> Dataset:
        arrays = self.read(path)
        for name, needed in (("X", "y"), ("y", "X"), ("X_test", "y_test"), ("y_test", "X_test")):
            if name in arrays and needed not in arrays:
                raise ValueError(f"{path} holds {name} but no {needed}")
        if "X" not in arrays:
            raise ValueError(f"{path} must hold X and y, but holds {_names(arrays)}")
        x = _check_inputs(arrays["X"], "X", path, spec)
        labels = _label_names(arrays["y"], "y", len(x), path)
        classes, y = encode_labels(labels, spec, f"{path}: y")
        spec = spec or InputSpec(classes, x.shape[1:], 255 if x.dtype == np.uint8 else None)
        x_test, y_test = x[:0], y[:0]
        if "X_test" in arrays:
            x_test = _check_inputs(arrays["X_test"], "X_test", path, spec)
            labels = _label_names(arrays["y_test"], "y_test", len(x_test), path)
            y_test = encode_labels(labels, spec, f"{path}: y_test")[1]
            if (y_test < 0).any():
                raise ValueError(f"{path}: y_test must name a class for every sample")
        return Dataset(path.stem, spec, x, y, x_test, y_test)

    def read_inputs(self, path: Path, spec: InputSpec) -> NDArray[Any]:
        arrays = self.read(path)
        if "X" not in arrays:
            raise ValueError(f"{path} must hold X, but holds {_names(arrays)}")
        return _check_inputs(arrays["X"], "X", path, spec)


def _names(arrays: dict[str, NDArray[Any]]) -> str:
    return ", ".join(arrays) or "nothing"


def _check_inputs(x: NDArray[Any], name: str, path: Path, spec: InputSpec | None) -> NDArray[Any]:
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
    with np.errstate(over="ignore"):
        real = np.ascontiguousarray(x, np.float32)
    finite = np.isfinite(real).reshape(len(real), -1).all(1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise ValueError(f"{path}: {name} must be finite in float32, but row {row} is not")
    return real


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


def _label_names(y: NDArray[Any], name: str, count: int, path: Path) -> list[str]:
    """Labels as names, empty where there is none."""
    real = y.dtype.kind == "f" and bool(np.isfinite(y).all() and (y == np.floor(y)).all())
    whole = y.dtype.kind in "iu" or real
    if y.shape != (count,) or not (whole or y.dtype.kind == "U"):
        raise ValueError(
            f"{path}: {name} must hold {count} whole numbers or strings, got {y.dtype} of shape "
            f"{y.shape}"
        )
    if not whole:
        return [str(value) for value in y]
    if (y < -1).any():
        raise ValueError(f"{path}: {name} must be at least 0, or -1 for unlabeled, got {y.min()}")
    return ["" if value == -1 else str(int(value)) for value in y]
