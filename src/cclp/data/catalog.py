"""The data sets that can be asked for by name."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cclp.data.formats import read_idx


@dataclass(frozen=True)
class Dataset:
    """Images and their classes, split into training and test set as published.

    Attributes:
        name: under which it was asked for.
        train_x, test_x: images, (N, channels, height, width), unsigned bytes.
        train_y, test_y: class indices, (N,), int64.
        num_classes: C.
        verified: whether every file is, bit for bit, the published one.
    """

    name: str
    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    num_classes: int
    verified: bool

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all arrays: a run resumes only on the data it began with."""
        digest = hashlib.sha256()
        for array in (self.train_x, self.train_y, self.test_x, self.test_y):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """Load a data set of :data:`DATASETS`.

    Args:
        name: of the set.
        data_dir: folder with the files of sets that are not bundled; the environment variable
            ``CCLP_DATA`` if None.

    Raises:
        ValueError: for an unknown name, missing files, or files that are not what they should be.
    """
    if name not in DATASETS:
        raise ValueError(f"data must be one of {', '.join(DATASETS)}, got {name!r}")
    if data_dir is None and os.environ.get("CCLP_DATA"):
        data_dir = Path(os.environ["CCLP_DATA"])
    return DATASETS[name](data_dir)


def _digits(data_dir: Path | None) -> Dataset:
    """1,797 digits of 8 x 8 pixels in 0 … 16, bundled with scikit-learn.

    There is no published split. Ours is fixed: 450 images, in equal shares of each class, are the
    test set.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    x = bunch.images.astype(np.uint8)[:, None]
    y = bunch.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        x, y, test_size=450, stratify=y, random_state=0
    )
    return Dataset("digits", train_x, train_y, test_x, test_y, 10, verified=True)


# SHA-256 of the uncompressed files, so that gzipped and raw copies are recognised alike.
_MNIST = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def _mnist(data_dir: Path | None) -> Dataset:
    """MNIST from its four IDX files."""
    if data_dir is None:
        raise ValueError(
            "mnist needs its four IDX files: name their folder with --data-dir or CCLP_DATA"
        )
    arrays, verified = [], True
    for name, sha256 in _MNIST.items():
        parsed = read_idx(_find(data_dir, name), ndim=3 if "images" in name else 1)
        arrays.append(parsed.array)
        verified &= parsed.sha256 == sha256
    train_x, train_y, test_x, test_y = arrays
    for split, x, y in (("train", train_x, train_y), ("t10k", test_x, test_y)):
        if len(x) != len(y) or len(x) == 0 or y.max() > 9:
            raise ValueError(
                f"mnist in {data_dir}: the {split} files must hold as many images as labels, all "
                f"in 0 … 9, but hold {len(x)} images and {len(y)} labels up to "
                f"{y.max(initial=0)}"
            )
    return Dataset(
        "mnist",
        train_x[:, None],
        train_y.astype(np.int64),
        test_x[:, None],
        test_y.astype(np.int64),
        10,
        verified,
    )


def _find(data_dir: Path, name: str) -> Path:
    """The file, raw or gzipped, in the folder itself or where other tools put it."""
    folders = [data_dir, data_dir / "mnist", data_dir / "MNIST" / "raw"]
    for folder in folders:
        for candidate in (folder / name, folder / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    raise ValueError(f"mnist: no {name} or {name}.gz in {', '.join(map(str, folders))}")


DATASETS: dict[str, Callable[[Path | None], Dataset]] = {"digits": _digits, "mnist": _mnist}
