"""What images look like to a neighbour search: which way their edges run, and where.

Two pictures of one thing differ in most of their pixels if one is moved a little, brighter, or
inverted. Their histograms of oriented gradients (Dalal & Triggs 2005) hardly do.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from torch import Tensor

SMALLEST_SIDE = 16  # below it there is nothing to count
MOST_SIDE = 32
DIRECTIONS = 8  # of an edge, without a sign
CELL, APART = 5, 2  # pixels
_BATCH, _BATCH_VALUES = 500, 2_000_000
_SAMPLED = 10_000  # enough for the components, and of histograms no more are held at a time


def hog_components(images: NDArray[Any], most: int, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Principal components of these images' histograms, (N, at most ``most``)."""
    order = np.random.default_rng(0).permutation(len(rows))
    sample = np.concatenate(list(_parts(images, rows[np.sort(order[:_SAMPLED])])))
    if not np.ptp(sample, axis=0).any():  # nothing tells them apart
        return np.zeros((len(rows), 1), np.float32)
    found = PCA(min(most, *sample.shape), svd_solver="covariance_eigh").fit(sample)
    parts = [found.transform(part) for part in _parts(images, rows)]
    # a product's last digits depend on the place in the batch: copies must stay copies
    return np.concatenate(parts).round(4).astype(np.float32)


def hog_features(images: NDArray[Any]) -> NDArray[np.float32]:
    """Oriented gradients of images in overlapping cells.

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
    """Some of the images, so many at a time as there is memory for in any case."""
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
    if longer <= MOST_SIDE:
        return x
    height, width = (max(1, round(side * MOST_SIDE / longer)) for side in x.shape[2:])
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
    place = angle.remainder(math.pi) * (DIRECTIONS / math.pi)  # a share goes to each neighbour
    below = place.floor()
    share = place - below
    counts = x.new_zeros(len(x), DIRECTIONS, *x.shape[2:])
    first = below.long() % DIRECTIONS
    counts.scatter_add_(1, first, size * (1 - share))
    counts.scatter_add_(1, (first + 1) % DIRECTIONS, size * share)
    cells = F.avg_pool2d(counts, CELL, APART, padding=CELL // 2, count_include_pad=False)
    return F.normalize(cells.flatten(1)).sqrt()
