"""Arrays in ``.npy`` files beside each other: ``X.npy``, ``y.npy``, and perhaps those of a test."""

import re
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cclp.data.npz import read_npy

_INPUTS = re.compile(
    r"(?P<before>(?:.*[^a-z])?)(?P<word>x|features|embeddings|images)(?P<after>(?:[^a-z].*)?)", re.I
)


def read_npy_files(path: Path) -> dict[str, NDArray[Any]]:
    """The array of a file as X, and as y the one beside it; X_test and y_test if they are there.

    ``X_train.npy`` goes with ``y_train.npy``, ``X_test.npy`` and ``y_test.npy``;
    ``embeddings.npy`` with ``labels.npy``.

    Raises:
        ValueError: if a file cannot be read, or there are no labels.
    """
    arrays = {"X": read_npy(path)["X"], "y": read_npy(_labels_beside(path))["X"]}
    test = _test_beside(path)
    if test is not None:
        arrays |= {"X_test": read_npy(test)["X"], "y_test": read_npy(_labels_beside(test))["X"]}
    return arrays


def _labels_beside(path: Path) -> Path:
    match = _INPUTS.fullmatch(path.stem)
    before, word, after = match.group("before", "word", "after") if match else ("", "", "")
    words = ("y", "Y") if word.lower() == "x" else ("labels", "y")
    places = [path.with_name(f"{before}{name}{after}{path.suffix}") for name in words]
    for place in places:
        if place.is_file() and place != path:
            return place
    raise ValueError(
        f"{path} holds samples, but there is no file of their labels beside it: looked for "
        f"{' and '.join(place.name for place in places)}"
    )


def _test_beside(path: Path) -> Path | None:
    if re.search("train", path.stem, re.I):
        stem = re.sub("train", lambda found: _like(found[0], "test"), path.stem, flags=re.I)
    else:
        stem = f"{path.stem}_test"
    place = path.with_name(f"{stem}{path.suffix}")
    return place if place.is_file() else None


def _like(example: str, word: str) -> str:
    """The word, in capitals if the example is."""
    return word.upper() if example.isupper() else word
