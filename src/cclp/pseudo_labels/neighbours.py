"""The nearest neighbours of every sample, searched for once and kept in a cache."""

import hashlib
import io
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from cclp.files import write_bytes
from cclp.pseudo_labels.distortion import REACH, distortion_distances

NEIGHBOURS = 5
CANDIDATES = 32  # nearest images by HOG features, of which the nearest by distortion are taken
_DIGEST = 32  # bytes
_VERSION = 3  # of the files in the cache: another number, and neighbours are searched for again


class Neighbours(NamedTuple):
    """Distances to the k nearest others of each point and their indices, (n, k)."""

    distances: NDArray[np.floating]
    indices: NDArray[np.int64]


class Images(NamedTuple):
    """Some of many images."""

    all: NDArray[Any]
    chosen: NDArray[np.int64]


def find_neighbours(
    points: NDArray[np.float32], images: Images | None, cache: Path | None
) -> list[Neighbours]:
    """The five nearest of each point: by one distance, or by three for images.

    Args:
        points: vectors, (n, F).
        images: whose features they are, if they are. The 32 nearest by features are compared again
            by the image distortion model. It is not symmetric, so there are three lists: by the
            distance to the others, from them, and by the mean of both.
        cache: folder that keeps the result for the next time.
    """
    if cache is None:
        return _search_all(points, images)
    how = NEIGHBOURS if images is None else (NEIGHBOURS, CANDIDATES, REACH)
    key = f"{_VERSION} {how} {points.shape}".encode()
    path = cache / hashlib.sha256(key + points.tobytes()).hexdigest()
    with suppress(OSError, ValueError):
        content = path.read_bytes()
        if hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
            kept = np.load(io.BytesIO(content[_DIGEST:]))
            return list(map(Neighbours, kept["distance"], kept["index"]))
    found = _search_all(points, images)
    distance, index = map(np.stack, zip(*found, strict=True))
    file = io.BytesIO()
    np.savez(file, distance=distance, index=index)
    with suppress(OSError):  # it costs time again, no more
        cache.mkdir(parents=True, exist_ok=True)
        write_bytes(path, hashlib.sha256(file.getvalue()).digest() + file.getvalue())
    return found


def _search_all(points: NDArray[np.float32], images: Images | None) -> list[Neighbours]:
    if images is None:
        return [_search(points, NEIGHBOURS)]
    index = _search(points, CANDIDATES).indices
    to, back = distortion_distances(images.all, images.chosen, index)
    return [_nearest(distance, index) for distance in (to, back, (to + back) / 2)]


def _nearest(distance: NDArray[np.floating], index: NDArray[np.int64]) -> Neighbours:
    """The nearest of some candidates."""
    order = distance.argsort(1, kind="stable")[:, :NEIGHBOURS]
    return Neighbours(np.take_along_axis(distance, order, 1), np.take_along_axis(index, order, 1))


def _search(points: NDArray[np.float32], most: int) -> Neighbours:
    few = min(most, len(points) - 1)
    search = NearestNeighbors(n_neighbors=few, algorithm="brute").fit(points)
    return Neighbours(*search.kneighbors())
