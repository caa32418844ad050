"""Which training samples are labeled, unlabeled and held out."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Source = Literal["test", "held_out", "labeled", "cross_validated"]  # what an error is measured on
SOURCES: dict[Source, str] = {
    "test": "test set",
    "held_out": "held-out training set",
    "labeled": "labeled samples",
    "cross_validated": "cross-validation over the labels",
}


class Split(NamedTuple):
    """Sorted indices into the training set."""

    labeled: Indices
    unlabeled: Indices
    held_out: Indices

    @property
    def all_labeled(self) -> bool:
        """Whether training sees no unlabeled sample."""
        return len(self.labeled) == len(self.unlabeled)


def make_split(y: Indices, num_labels: int | None, held_out: int, seed: int) -> Split:
    """Split a training set. The unlabeled set is all that is not held out, as in the paper.

    Args:
        y: class indices, (N,); −1 is unlabeled.
        num_labels: how many labels training sees; None: all that are not held out.
        held_out: how many labeled samples are kept from training.
        seed: of both draws.

    Raises:
        ValueError: if ``num_labels`` or ``held_out`` is out of range.
    """
    hidden = held_out_subset(y, held_out, seed)
    unlabeled = np.delete(np.arange(len(y)), hidden)
    known = unlabeled[y[unlabeled] >= 0]
    if num_labels is None:
        return Split(known, unlabeled, hidden)
    return Split(known[labeled_subset(y[known], num_labels, seed)], unlabeled, hidden)


def labeled_subset(y: Indices, count: int, seed: int) -> Indices:
    """Draw a class-balanced labeled set; a larger one of the same seed contains it.

    Classes take turns: the first sample of each, then the second of each, and so on, in a random
    order of classes within each turn. A class without samples left is skipped.

    Args:
        y: class indices of all training samples, (N,).
        count: size of the labeled set, at least one per class and at most N.
        seed: of the draw.

    Returns:
        Sorted indices into ``y``, (count,).

    Raises:
        ValueError: if ``count`` is out of range.

    Examples:
        >>> y = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
        >>> np.bincount(y[labeled_subset(y, 8, seed=0)])
        array([3, 2, 3])
    """
    classes, sizes = np.unique(y, return_counts=True)
    if not len(classes) <= count <= len(y):
        raise ValueError(
            f"num_labels must be from {len(classes)} (one per class) to {len(y)} (all), got {count}"
        )
    rng = np.random.default_rng([seed, 0x1ABE])
    order = rng.permutation(len(y))  # random within each class once it is stable-sorted by class
    by_class = order[np.argsort(y[order], kind="stable")]
    turn = np.concatenate([np.arange(size) for size in sizes])
    tie = rng.random(len(y))
    taken = by_class[np.lexsort((tie, turn))[:count]]
    return np.sort(taken)


def held_out_subset(y: Indices, count: int, seed: int) -> Indices:
    """Draw samples to hold out, stratified by class; each class keeps at least one.

    Args:
        y: class indices, (N,); samples with −1, unlabeled, are not drawn.
        count: how many.
        seed: of the draw.

    Returns:
        Sorted indices into ``y``, (count,).

    Raises:
        ValueError: if ``count`` is out of range.

    Examples:
        >>> y = np.array([0] * 60 + [1] * 30 + [-1] * 100)
        >>> np.bincount(y[held_out_subset(y, 30, seed=0)])
        array([20, 10])
    """
    known = np.flatnonzero(y >= 0)
    classes, sizes = np.unique(y[known], return_counts=True)
    if not 0 <= count <= len(known) - len(classes):
        raise ValueError(f"held_out must be from 0 to {len(known) - len(classes)}, got {count}")
    order = np.random.default_rng([seed, 0x0E1D]).permutation(known)
    by_class = order[np.argsort(y[order], kind="stable")]
    size = np.repeat(sizes, sizes)
    place = np.concatenate([np.arange(size) for size in sizes] or [np.empty(0, np.int64)])
    share = np.where(place == size - 1, np.inf, (place + 0.5) / size)  # each class keeps its last
    return np.sort(by_class[np.argsort(share, kind="stable")[:count]])
