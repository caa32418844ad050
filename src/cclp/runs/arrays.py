"""The arrays of a run directory: embeddings over time, predictions, and what is unlabeled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.data.budget import Budget, check_room
from cclp.data.npz import read_npz
from cclp.files import Directory

FRAMES = 40  # of an embedding at most: more make the page heavy and show no more
UNLABELED = 20_000  # predictions at most in unlabeled.npz
DOUBTFUL = 48  # of them are shown first
MOST_POINTS, MOST_SHOWN = 2_000, 1_000  # that are read; half of them is written at most

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Embedding:
    """The same P points at T steps.

    Attributes:
        steps: T of them, ascending.
        z: (T, P, F), finite.
        predicted: class indices, (T, P).
        y: class indices, (P,); −1 if unknown.
        labeled: whether training saw the class, (P,).
        index: of the points in the training set, (P,).
        recorded: how many steps the directory holds; T of them were read.
    """

    steps: list[int]
    z: Floats
    predicted: Ints
    y: Ints
    labeled: NDArray[np.bool_]
    index: Ints
    recorded: int


@dataclass(frozen=True)
class Predictions:
    """Predictions of the trained net for N samples.

    Attributes:
        y, predicted: class indices, (N,).
        probability: of the predicted class, (N,).
        mistakes: indices of the most confident ones, (K,).
        names: of those, K of them.
        images: of those, (K, 1 or 3, H, W); None if they are no images.
    """

    y: Ints
    predicted: Ints
    probability: Floats
    mistakes: Ints
    names: list[str]
    images: NDArray[np.uint8] | None


@dataclass(frozen=True)
class Unlabeled:
    """Predictions of the trained net for N unlabeled training samples.

    Attributes:
        index: of them in the training set, (N,).
        predicted, second: the most probable class and the next one, (N,).
        probability: of the most probable class, (N,).
        shown: positions among the N, (K,): the 48 most doubtful ones, most doubtful first, and
            after them the most certain ones of each class.
        names: of those, K of them.
        images: of those, (K, 1 or 3, H, W); None if they are no images.
    """

    index: Ints
    predicted: Ints
    second: Ints
    probability: Floats
    shown: Ints
    names: list[str]
    images: NDArray[np.uint8] | None


def _load(
    folder: Directory, file: Path, names: Sequence[str], budget: Budget | None = None
) -> dict[str, NDArray[Any]]:
    """Arrays of an npz file, these among them."""
    arrays = read_npz(file, folder.read_bytes(file.name), budget)
    for name in names:
        if name not in arrays:
            raise ValueError(f"{file} is damaged: expected an array {name!r}")
    return arrays


def _check(file: Path, name: str, array: NDArray[Any], kinds: str, *shape: int) -> None:
    """``kinds`` are letters of numpy.dtype.kind; a −1 in the shape fits any length."""
    fits = array.ndim == len(shape) and all(
        n in (-1, m) for n, m in zip(shape, array.shape, strict=True)
    )
    if array.dtype.kind not in kinds or not fits:
        raise ValueError(
            f"{file} is damaged: expected {name!r} of shape {shape}, "
            f"got {array.dtype} of shape {array.shape}"
        )


def read_embedding(folder: Path) -> Embedding | None:
    """The embeddings of ``embedding/STEP.npz``; None if there are none that are finite.

    Raises:
        ValueError: if a file is damaged. It is named.
    """
    found = Directory(folder.parent, folder.name)
    files = sorted((folder / name for name in found.names(r"[0-9]{1,18}\.npz")), key=_step)
    if not files:
        return None
    chosen = np.unique(np.linspace(0, len(files) - 1, FRAMES).round().astype(int))
    frames: list[dict[str, NDArray[Any]]] = []
    steps = []
    budget = Budget(sum(files[i].lstat().st_size for i in chosen))
    for file in (files[i] for i in chosen):
        arrays = _load(found, file, ("z", "predicted", "y", "labeled", "index"), budget)
        _check(file, "z", arrays["z"], "f", *(frames[0]["z"].shape if frames else (-1, -1)))
        for name, kinds in (("predicted", "iu"), ("y", "iu"), ("index", "iu"), ("labeled", "b")):
            _check(file, name, arrays[name], kinds, len(arrays["z"]))
        if len(arrays["z"]) > MOST_POINTS:
            raise ValueError(
                f"{file} is damaged: expected at most {MOST_POINTS:,} points, got "
                f"{len(arrays['z']):,}"
            )
        check_room(arrays["z"].size, str(file))
        if np.isfinite(arrays["z"]).all() and arrays["z"].size:
            frames.append(arrays)
            steps.append(_step(file))
    if not frames:
        return None
    last = frames[-1]
    # In float64, and as much again for each of centring and projecting.
    check_room(3 * 8 * len(frames) * last["z"].size, f"{folder} of {len(frames)} steps")
    return Embedding(
        steps=steps,
        z=np.stack([frame["z"] for frame in frames]).astype(np.float64),
        predicted=np.stack([frame["predicted"] for frame in frames]).astype(np.int64),
        y=last["y"].astype(np.int64),
        labeled=last["labeled"],
        index=last["index"].astype(np.int64),
        recorded=len(files),
    )


def read_predictions(file: Path) -> Predictions | None:
    """The content of ``predictions.npz``; None if the file is not there.

    Raises:
        ValueError: if it is damaged. It is named.
    """
    folder = Directory(file.parent)
    if not folder.has(file.name):
        return None
    arrays = _load(folder, file, ("y", "predicted", "probability", "mistakes", "mistake_names"))
    _check(file, "y", arrays["y"], "iu", -1)
    _check(file, "mistakes", arrays["mistakes"], "iu", -1)
    count, few = len(arrays["y"]), _few(file, "mistakes", arrays["mistakes"])
    _check(file, "predicted", arrays["predicted"], "iu", count)
    _check(file, "probability", arrays["probability"], "f", count)
    _check(file, "mistake_names", arrays["mistake_names"], "U", few)
    _check_indices(file, "mistakes", arrays["mistakes"], count)
    return Predictions(
        y=arrays["y"].astype(np.int64),
        predicted=arrays["predicted"].astype(np.int64),
        probability=arrays["probability"].astype(np.float64),
        mistakes=arrays["mistakes"].astype(np.int64),
        names=[str(name) for name in arrays["mistake_names"]],
        images=_images(file, arrays, "mistake_inputs", few),
    )


def read_unlabeled(file: Path) -> Unlabeled | None:
    """The content of ``unlabeled.npz``; None if the file is not there.

    Raises:
        ValueError: if it is damaged. It is named.
    """
    folder = Directory(file.parent)
    if not folder.has(file.name):
        return None
    required = ("index", "predicted", "second", "probability", "shown", "shown_names")
    arrays = _load(folder, file, required)
    _check(file, "index", arrays["index"], "iu", -1)
    _check(file, "shown", arrays["shown"], "iu", -1)
    count, few = len(arrays["index"]), _few(file, "shown", arrays["shown"])
    for name in ("predicted", "second"):
        _check(file, name, arrays[name], "iu", count)
    _check(file, "probability", arrays["probability"], "f", count)
    _check(file, "shown_names", arrays["shown_names"], "U", few)
    _check_indices(file, "shown", arrays["shown"], count)
    return Unlabeled(
        index=arrays["index"].astype(np.int64),
        predicted=arrays["predicted"].astype(np.int64),
        second=arrays["second"].astype(np.int64),
        probability=arrays["probability"].astype(np.float64),
        shown=arrays["shown"].astype(np.int64),
        names=[str(name) for name in arrays["shown_names"]],
        images=_images(file, arrays, "shown_inputs", few),
    )


def read_generated(file: Path) -> NDArray[np.uint8] | None:
    """The images of ``generated.npz``, (N, 1 or 3, H, W); None if the file is not there.

    Raises:
        ValueError: if it is damaged. It is named.
    """
    folder = Directory(file.parent)
    if not folder.has(file.name):
        return None
    arrays = _load(folder, file, ("images",))
    if not arrays["images"].ndim:
        raise ValueError(f"{file} is damaged: 'images' must be an array of images")
    return _images(file, arrays, "images", _few(file, "images", arrays["images"]))


def _step(file: Path) -> int:
    return int(file.stem)


def _few(file: Path, name: str, array: NDArray[Any]) -> int:
    """How many samples are shown one by one."""
    if len(array) > MOST_SHOWN:
        raise ValueError(
            f"{file} is damaged: expected at most {MOST_SHOWN} {name!r}, got {len(array):,}"
        )
    return len(array)


def _check_indices(file: Path, name: str, array: NDArray[Any], count: int) -> None:
    if len(array) and not (0 <= array.min() and array.max() < count):
        raise ValueError(f"{file} is damaged: {name!r} must be indices below {count}")


def _images(
    file: Path, arrays: dict[str, NDArray[Any]], name: str, count: int
) -> NDArray[np.uint8] | None:
    """An array of so many images; None if it is not there, or if they are no images."""
    images = arrays.get(name)
    if images is None:
        return None
    if images.shape[:1] != (count,):
        raise ValueError(
            f"{file} is damaged: expected {name!r} of {count} samples, got shape {images.shape}"
        )
    fit = images.dtype == np.uint8 and images.ndim == 4 and images.shape[1] in (1, 3)
    return images if fit and images.size else None
