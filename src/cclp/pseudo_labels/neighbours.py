"""The nearest neighbours of every sample, searched for once and kept in a cache."""

import hashlib
import io
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cclp.files import write_bytes
from cclp.progress import Reporter
from cclp.pseudo_labels.distortion import REACH, distortion_distances, gradient_fields
from cclp.pseudo_labels.search import Neighbours, is_approximate, nearest
from cclp.pseudo_labels.share import ALONE, Share

CANDIDATES = 32  # nearest images by HOG features, of which the nearest by distortion are taken
_DIGEST = 32  # bytes
_VERSION = 4  # of the files in the cache: another number, and neighbours are searched for again


class Images(NamedTuple):
    """Some of many images."""

    all: NDArray[Any]
    chosen: NDArray[np.int64]


def find_neighbours(
    points: NDArray[np.float32],
    images: Images | None,
    count: int,
    cache: Path | None = None,
    report: Reporter | None = None,
    share: Share = ALONE,
) -> list[Neighbours]:
    """The nearest others of each point: by one distance, or by three for images.

    Args:
        points: vectors, (n, F).
        images: whose features they are, if they are to be compared by the image distortion model:
            the 32 nearest by features are compared again. It is not symmetric, so there are three
            lists: by the distance to the others, from them, and by the mean of both.
        count: k.
        cache: folder that keeps the result for the next time.
        report: shows progress.
        share: of the work, which this process does.
    """
    report = report or Reporter()
    if cache is None:
        return _search(points, images, count, report, share)
    how = (count, is_approximate(len(points)), *((CANDIDATES, REACH) if images else ()))
    key = f"{_VERSION} {how} {points.shape}".encode()
    path = cache / hashlib.sha256(key + points.tobytes()).hexdigest()
    kept = _read(path)
    if share.all_have(kept is not None):
        assert kept is not None
        return kept
    found = _search(points, images, count, report, share)
    distance, index = map(np.stack, zip(*found, strict=True))
    file = io.BytesIO()
    np.savez(file, distance=distance, index=index)
    with suppress(OSError):  # it costs time again, no more
        cache.mkdir(parents=True, exist_ok=True)
        write_bytes(path, hashlib.sha256(file.getvalue()).digest() + file.getvalue())
    return found


def _read(path: Path) -> list[Neighbours] | None:
    """What is in the cache, if it is whole."""
    with suppress(OSError, ValueError):
        content = path.read_bytes()
        if hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
            kept = np.load(io.BytesIO(content[_DIGEST:]))
            return list(map(Neighbours, kept["distance"], kept["index"]))
    return None


def _search(
    points: NDArray[np.float32],
    images: Images | None,
    count: int,
    report: Reporter,
    share: Share,
) -> list[Neighbours]:
    if images is None:
        return [nearest(points, count, report=report, share=share)]
    index = nearest(points, max(count, CANDIDATES), report=report, share=share).indices
    fields = gradient_fields(*images, report)
    to, back = distortion_distances(fields, index, report, share)
    return [take_nearest(distance, index, count) for distance in (to, back, (to + back) / 2)]


def take_nearest(
    distance: NDArray[np.floating], index: NDArray[np.int64], count: int
) -> Neighbours:
    """The nearest of some candidates."""
    order = distance.argsort(1, kind="stable")[:, :count]
    return Neighbours(np.take_along_axis(distance, order, 1), np.take_along_axis(index, order, 1))
