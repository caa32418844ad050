"""A data set: its arrays, and the specification of an input.

A run records the specification, so that other files can be brought to it.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cclp.checks import check_integer, check_number
from cclp.data.columns import Column, column_from_json

Kind = Literal["images", "vectors"]


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
    """

    classes: tuple[str, ...]
    shape: tuple[int, ...]
    white: int | None = 255
    columns: tuple[Column, ...] | None = None
    target: str | None = None
    pixel_range: tuple[float, float] | None = None
    means: tuple[float, ...] | None = None

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which :meth:`from_json` makes an equal InputSpec."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "InputSpec":
        """The inverse of :meth:`to_json`; version 0.1 wrote "label" for "target", and less."""
        columns, white, means = content["columns"], content["white"], content.get("means")
        pixel_range = content.get("pixel_range")
        target = content["target"] if "target" in content else content["label"]
        return cls(
            classes=tuple(map(str, content["classes"])),
            shape=tuple(check_integer("shape", size, least=1) for size in content["shape"]),
            white=None if white is None else check_integer("white", white, least=1),
            target=None if target is None else str(target),
            columns=None if columns is None else tuple(map(column_from_json, columns)),
            means=None if means is None else tuple(check_number("means", m) for m in means),
            pixel_range=None if pixel_range is None else check_finite_range(pixel_range),
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

    @property
    def num_classes(self) -> int:
        return self.spec.num_classes

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all arrays: a run resumes only on the data that it started with."""
        digest = hashlib.sha256()
        for array in (self.train_x, self.train_y, self.test_x, self.test_y):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()
