"""A data set: its arrays, and the specification of an input.

A run records the specification, so that other files can be brought to it.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cclp.checks import check_integer, check_number
from cclp.data.columns import Column, column_from_json

Kind = Literal["images", "vectors"]
MOST_VALUES = 2**26  # of a sample that a run records


@dataclass(frozen=True)
class FeatureSpec:
    """By what samples became vectors, and how to tell that it is still the same.

    Attributes:
        name: see :mod:`cclp.data.user.features`.
        width: how many features a sample has.
        probe: the first features of two made-up samples, to four digits.
        shape: of one sample before: (channels, height, width) or (features,); None: a text.
        white: value of a white pixel before; None if samples were not such pixels.
    """

    name: str
    width: int
    probe: tuple[float, ...]
    shape: tuple[int, ...] | None
    white: int | None

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "FeatureSpec":
        """From what ``dataclasses.asdict`` made.

        Raises:
            ValueError, TypeError, KeyError: if it is none.
        """
        shape, white = content["shape"], content["white"]
        return cls(
            name=str(content["name"]),
            width=check_integer("width", content["width"], least=1),
            probe=tuple(check_number("probe", value) for value in content["probe"]),
            shape=None if shape is None else _shape(shape),
            white=None if white is None else check_integer("white", white, least=1),
        )


def _shape(sizes: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(check_integer("shape", size, least=1) for size in sizes)
    if math.prod(shape) > MOST_VALUES:
        raise ValueError(f"shape must have at most {MOST_VALUES:,} values, got {shape}")
    return shape


@dataclass(frozen=True)
class InputSpec:
    """Names of the classes, and what an input looks like.

    Attributes:
        classes: their names; class index k is the k-th name.
        shape: of one sample: (channels, height, width) or (features,).
        white: value of a white pixel, a whole number; None if inputs are not such pixels.
        columns: of the table that inputs come from; None if they come from no table.
        target: name of the table's column of classes.
        pixel_range: values of image files that become 0 and ``white``; None: files of eight bits.
        means: of the features, if NaN marks missing values, which they replace; None: there are
            none.
        features: by what samples of files become inputs; None: they are the inputs.
    """

    classes: tuple[str, ...]
    shape: tuple[int, ...]
    white: int | None = 255
    columns: tuple[Column, ...] | None = None
    target: str | None = None
    pixel_range: tuple[float, float] | None = None
    means: tuple[float, ...] | None = None
    features: FeatureSpec | None = None

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def before_features(self) -> "InputSpec":
        """What samples look like in the files; of a table, as it is: its columns say it."""
        if self.features is None or self.features.shape is None:
            return self
        before = self.features.shape, self.features.white
        return replace(self, shape=before[0], white=before[1], features=None)

    def with_features(self, features: FeatureSpec) -> "InputSpec":
        """What inputs are once samples are features."""
        return replace(self, shape=(features.width,), white=None, features=features)

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which :meth:`from_json` makes an equal InputSpec."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "InputSpec":
        """The inverse of :meth:`to_json`; version 0.1 wrote "label" for "target", and less."""
        columns, white, means = content["columns"], content["white"], content.get("means")
        pixel_range = content.get("pixel_range")
        target = content["target"] if "target" in content else content["label"]
        features = content.get("features")
        return cls(
            classes=tuple(map(str, content["classes"])),
            shape=_shape(content["shape"]),
            white=None if white is None else check_integer("white", white, least=1),
            target=None if target is None else str(target),
            columns=None if columns is None else tuple(map(column_from_json, columns)),
            means=None if means is None else tuple(check_number("means", m) for m in means),
            pixel_range=None if pixel_range is None else check_finite_range(pixel_range),
            features=None if features is None else FeatureSpec.from_json(features),
        )


def check_finite_range(pixel_range: Sequence[float]) -> tuple[float, float]:
    """Refuse what is not two finite numbers in order.

    Raises:
        ValueError: for anything else.
    """
    low, high = map(float, pixel_range)
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"pixel_range must be two finite numbers in order, got {pixel_range}")
    return low, high


@dataclass(frozen=True)
class Dataset:
    """Samples and their classes, as training and test set.

    Attributes:
        name: short, for people.
        spec: what the samples look like.
        train_x, test_x: (N, channels, height, width) or (N, features); may be a memory map.
        train_y, test_y: class indices, (N,), int64; −1 is unlabeled, in the training set only. The
            test set may be empty.
        verified: whether every file is the published one, bit for bit; None for a user's own.
        train_names, test_names: of the samples, if they have names.
        left_out: files that cannot be read, with the reason.
        train_pictures, test_pictures: if samples are features of images, these, small:
            (N, 1 or 3, height, width) bytes.
        source: if samples are features, SHA-256 of what they were made of.
        folder: that names of image files begin in.
    """

    name: str
    spec: InputSpec
    train_x: NDArray[Any]
    train_y: NDArray[np.int64]
    test_x: NDArray[Any]
    test_y: NDArray[np.int64]
    verified: bool | None = None
    train_names: Sequence[str] | None = None
    test_names: Sequence[str] | None = None
    left_out: Sequence[str] = ()
    train_pictures: NDArray[np.uint8] | None = None
    test_pictures: NDArray[np.uint8] | None = None
    source: str | None = None
    folder: Path | None = None

    @property
    def num_classes(self) -> int:
        return self.spec.num_classes

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all arrays: a run resumes only on the data that it started with.

        Features may differ in their last bits on another machine: what they were made of, and by
        what, counts instead.
        """
        digest = hashlib.sha256()
        arrays = [self.train_x, self.train_y, self.test_x, self.test_y]
        if self.source is not None:
            digest.update(f"{self.spec.features}{self.source}".encode())
            arrays = [self.train_y, self.test_y]
        for array in arrays:
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()
