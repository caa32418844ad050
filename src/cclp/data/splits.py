"""Who is labeled, and who is held out."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class Split(NamedTuple):
    """Sorted indices into the training set."""

    labeled: Indices
    unlabeled: Indices
    held_out: Indices


def make_split(y: Indices, labels: int | None, held_out: int, seed: int) -> Split:
    """Divide a training set. The unlabeled set is all that is not held out, as in the paper.

    Args:
        y: class indices, (N,).
        labels: how many to label; None: all that are not held out.
        held_out: how many to keep from training.
        seed: of both draws.
    """
    hidden = held_out_subset(held_out, len(y), seed)
    unlabeled = np.delete(np.arange(len(y)), hidden)
    if labels is None:
        return Split(unlabeled, unlabeled, hidden)
    return Split(unlabeled[labeled_subset(y[unlabeled], labels, seed)], unlabeled, hidden)


def labeled_subset(y: Indices, count: int, seed: int) -> Indices:
    """Draw a class-balanced labeled set; a larger one of the same seed contains it.

    Classes take turns: the first sample of each, then the second of each, and so on, in a random
    order of classes within each turn. A class that runs out is passed over.

    Args:
        y: class indices of all training samples, (N,).
        count: how many to label, at least one per class and at most N.
        seed: of the draw.

    Returns:
        Sorted indices into ``y``, (count,).

    Raises:
        ValueError: if ``count`` is out of range.

    Example:
        >>> y = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
        >>> np.bincount(y[labeled_subset(y, 8, seed=0)])
        array([3, 2, 3])
    """
    classes, sizes = np.unique(y, return_counts=True)
    if not len(classes) <= count <= len(y):
        raise ValueError(
            f"labels must be from {len(classes)} (one per class) to {len(y)} (all), got {count}"
        )
    rng = np.random.default_rng([seed, 0x1ABE])
    order = rng.permutation(len(y))  # random within each class once it is stable-sorted by class
    by_class = order[np.argsort(y[order], kind="stable")]
    turn = np.concatenate([np.arange(size) for size in sizes])
    tie = rng.random(len(y))
    taken = by_class[np.lexsort((tie, turn))[:count]]
    return np.sort(taken)


def held_out_subset(count: int, total: int, seed: int) -> Indices:
    """Sorted indices of ``count`` samples out of ``total``, drawn at random."""
    if not 0 <= count < total:
        raise ValueError(f"held_out must be from 0 to {total - 1}, got {count}")
    rng = np.random.default_rng([seed, 0x0E1D])
    return np.sort(rng.permutation(total)[:count])
