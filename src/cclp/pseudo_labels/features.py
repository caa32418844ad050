"""Features of samples whose distances mean something: HOG of images, PCA of vectors.

Two pictures of one thing differ in most of their pixels if one is shifted a little, brighter, or
inverted. Their histograms of oriented gradients (HOG, Dalal & Triggs 2005) hardly do.
"""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cclp.data.normalize import CONSTANT, are_of_one_unit
from cclp.progress import Reporter

MAX_FEATURES = 64
SMALLEST_SIDE = 16  # of images: below it there is nothing to count
LONGEST_SIDE = 32
ORIENTATIONS = 8  # of an edge, without a sign
CELL, STRIDE = 5, 2  # pixels
HOG_RESOLUTION = 1e-4
_BATCH, _BATCH_VALUES = 500, 2_000_000
EXACT_PCA_VALUES = 2_000  # of more the covariance takes minutes, and memory by their square
PCA_SAMPLES = 10_000  # enough for the components, and of histograms no more are held at a time


def are_images(x: NDArray[Any]) -> bool:
    """Whether samples are images that are large enough for HOG."""
    return x.ndim == 4 and min(x.shape[2:]) >= SMALLEST_SIDE


@dataclass(frozen=True)
class FeatureMap:
    """How samples become points whose distances mean something, once and for new samples too.

    Attributes:
        hog: whether samples are images that become HOG first.
        centre, scale: of each value; z = (x − centre) / scale.
        components: of z, (values, at most 64), or None if all values are kept.
        resolution: to which points are rounded, or 0: a product's last digits depend on the place
            in the batch, and duplicates must stay equal.
        standardised: whether ``scale`` brings the columns of a table to one unit.
        spread: smallest and largest standard deviation of the values that vary.
    """

    hog: bool
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    components: NDArray[np.float32] | None
    resolution: float = 0.0
    standardised: bool = False
    spread: tuple[float, float] = (0.0, 0.0)

    def __call__(
        self,
        x: NDArray[Any],
        rows: NDArray[np.int64] | None = None,
        report: Reporter | None = None,
    ) -> NDArray[np.float32]:
        """Points of samples, or of these rows of them, (N, at most 64)."""
        rows = np.arange(len(x)) if rows is None else rows
        width = len(self.centre) if self.components is None else self.components.shape[1]
        points, start = np.empty((len(rows), width), np.float32), 0
        with (report or Reporter()).work("Describing samples", len(rows)) as done:
            for values in _values(x, rows, self.hog):
                z = ((values - self.centre) / self.scale).astype(np.float32)
                if self.components is not None:
                    z = z @ self.components
                if self.resolution:
                    z = (z / self.resolution).round() * self.resolution
                points[start : start + len(z)] = z
                start += len(z)
                done(len(z))
        return points


def fit_features(
    x: NDArray[Any], rows: NDArray[np.int64] | None = None, report: Reporter | None = None
) -> FeatureMap:
    """Learn from samples, or from these rows of them, how they become points.

    Images become HOG, unless they are tiny. Features of one unit (pixels, embeddings) are left in
    it: the largest standard deviation is at most ten times the median. Otherwise (columns of a
    table) each is standardised. More than 64 values are projected onto the principal components of
    at most 10,000 samples.
    """
    rows, report = np.arange(len(x)) if rows is None else rows, report or Reporter()
    order = np.random.default_rng(0).permutation(len(rows))
    sample = rows[np.sort(order[:PCA_SAMPLES])]
    if are_images(x):
        parts = []
        with report.work("Describing some samples", len(sample)) as done:
            for part in _values(x, sample, hog=True):
                parts.append(part)
                done(len(part))
        histograms = np.concatenate(parts)
        mean, one = histograms.mean(0, dtype=np.float64), np.ones(histograms.shape[1])
        if not np.ptp(histograms, axis=0).any():  # nothing tells them apart
            return FeatureMap(True, mean, one, np.zeros((len(mean), 1), np.float32))
        return FeatureMap(True, mean, one, _components(histograms - mean, report), HOG_RESOLUTION)
    deviation = _deviations(x, rows, report)
    some = deviation[deviation > 0]
    spread = (float(some.min()), float(some.max())) if len(some) else (0.0, 0.0)
    standardised = len(some) > 0 and not are_of_one_unit(deviation)
    if standardised:
        scale = np.where(deviation > 0, deviation, 1)
    else:  # squares of distances must be neither infinite nor zero
        power = np.floor(np.log2(spread[1])) if len(some) else 0.0
        scale = np.full(len(deviation), 2.0**power)
    values = np.concatenate(list(_values(x, sample, hog=False)))
    centre = np.median(values, axis=0).astype(np.float64)  # an outlier would move the mean away
    components, resolution = None, 0.0
    if len(centre) > MAX_FEATURES and len(rows) > MAX_FEATURES:
        z = (values - centre) / scale
        components = _components(z - z.mean(0), report)
        resolution = 1e-6 * float(np.median(np.linalg.norm(z, axis=1)))
    return FeatureMap(False, centre, scale, components, resolution, standardised, spread)


def make_features(x: NDArray[Any], rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """Points of samples, by :func:`fit_features` of the same samples."""
    return fit_features(x, rows)(x, rows)


def _deviations(x: NDArray[Any], rows: NDArray[np.int64], report: Reporter) -> NDArray[np.float64]:
    """Standard deviation of each value; zero where it is nothing but rounding."""
    total, largest, squares = np.zeros(()), np.zeros(()), np.zeros(())
    with report.work("Measuring how values vary", 2 * len(rows)) as done:
        for values in _values(x, rows, hog=False):
            total = total + values.sum(0, dtype=np.float64)
            largest = np.maximum(largest, np.abs(values).max(0, initial=0))
            done(len(values))
        mean, unit = total / len(rows), np.where(largest > 0, largest, 1).astype(np.float64)
        for values in _values(x, rows, hog=False):
            squares = squares + np.square((values - mean) / unit).sum(0)
            done(len(values))
    relative = np.sqrt(squares / len(rows))
    return np.where(relative > CONSTANT, unit * relative, 0)


def _components(centred: NDArray[Any], report: Reporter) -> NDArray[np.float32]:
    """At most 64 principal directions, (values, components)."""
    from sklearn.decomposition import PCA

    solver = "covariance_eigh" if centred.shape[1] <= EXACT_PCA_VALUES else "randomized"
    pca = PCA(min(MAX_FEATURES, *centred.shape), svd_solver=solver, random_state=0)
    with report.work("Finding what tells samples apart", None):
        found = pca.fit(centred.astype(np.float32))
    return np.ascontiguousarray(found.components_.T, np.float32)


def _values(x: NDArray[Any], rows: NDArray[np.int64], hog: bool) -> Iterator[NDArray[Any]]:
    """What is compared of samples, a batch of them at a time: histograms, or all values."""
    if hog:
        yield from _parts(x, rows)
        return
    size = math.prod(x.shape[1:])
    step = max(1, _BATCH_VALUES // max(size, 1))
    for start in range(0, len(rows), step):
        yield x[rows[start : start + step]].reshape(-1, size)


def hog_features(images: NDArray[Any]) -> NDArray[np.float32]:
    """Histograms of oriented gradients in overlapping cells.

    Larger images are first brought to a longer side of 32 pixels. The histograms of an image have
    length one, so that contrast does not count, and then their square root is taken.

    Args:
        images: (N, channels, height, width); of several channels the steepest counts.

    Returns:
        (N, 8 · cells).

    Examples:
        >>> stripes = np.tile(np.arange(16) % 4 < 2, (1, 1, 16, 1))
        >>> both = hog_features(np.concatenate([stripes, 1 - stripes, stripes.mT]))
        >>> both.shape
        (3, 512)
        >>> bool(np.allclose(both[0], both[1])), bool(np.allclose(both[0], both[2]))
        (True, False)
    """
    return np.concatenate(list(_parts(images, np.arange(len(images)))))


def batches(images: NDArray[Any], index: NDArray[np.int64]) -> Iterator[Tensor]:
    """Some of the images, a few at a time."""
    rows = max(1, min(_BATCH, _BATCH_VALUES // math.prod(images.shape[1:])))
    for start in range(0, len(index), rows):
        yield torch.tensor(images[index[start : start + rows]], dtype=torch.float32)


def _parts(images: NDArray[Any], index: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
    """Histograms of some of the images, a batch at a time."""
    for batch in batches(images, index):
        yield _histograms(batch).numpy()


def shrink(x: Tensor) -> Tensor:
    """Images with a longer side of 32 pixels, if it was more."""
    longer = max(x.shape[2:])
    if longer <= LONGEST_SIDE:
        return x
    height, width = (max(1, round(side * LONGEST_SIDE / longer)) for side in x.shape[2:])
    return F.adaptive_avg_pool2d(x, (height, width))


def steepest_gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    """Size and angle of each pixel's gradient, (N, 1, height, width), in its steepest channel."""
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    size, steepest = torch.hypot(across, down).max(1, keepdim=True)
    return size, torch.atan2(down, across).gather(1, steepest)


def _histograms(x: Tensor) -> Tensor:
    x = shrink(x)
    size, angle = steepest_gradients(x)
    place = angle.remainder(math.pi) * (ORIENTATIONS / math.pi)  # a share goes to each neighbour
    below = place.floor()
    share = place - below
    counts = x.new_zeros(len(x), ORIENTATIONS, *x.shape[2:])
    first = below.long() % ORIENTATIONS
    counts.scatter_add_(1, first, size * (1 - share))
    counts.scatter_add_(1, (first + 1) % ORIENTATIONS, size * share)
    cells = F.avg_pool2d(counts, CELL, STRIDE, padding=CELL // 2, count_include_pad=False)
    return F.normalize(cells.flatten(1)).sqrt()


def read_features(path: Path, count: int) -> NDArray[np.float32]:
    """The user's own features, (N, F), from an .npy file.

    Args:
        path: of the file.
        count: of training samples, in whose order the rows must be.

    Raises:
        ValueError: if the file is not an array of numbers with so many rows, or they are not
            finite.
    """
    try:
        features = np.load(io.BytesIO(path.read_bytes()))
    except Exception as error:  # numpy raises whatever it meets in a damaged file
        raise ValueError(f"pseudo_label_features {path} cannot be read as .npy: {error}") from None
    if not isinstance(features, np.ndarray) or features.dtype.kind not in "fiub":
        raise ValueError(f"pseudo_label_features {path} must be an .npy array of numbers")
    if features.ndim < 2 or len(features) != count or not features.size:
        raise ValueError(
            f"pseudo_label_features {path} must hold a row for each of the {count} training "
            f"samples, got shape {features.shape}"
        )
    with np.errstate(over="ignore"):
        features = np.ascontiguousarray(features.reshape(count, -1), np.float32)
    if not np.isfinite(features).all():
        raise ValueError(f"pseudo_label_features {path} must be finite")
    return features
