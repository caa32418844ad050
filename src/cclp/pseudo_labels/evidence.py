"""What left-out labels say about a teacher, and which labels teach."""

import numpy as np
from numpy.typing import NDArray

Classes = NDArray[np.int64]
Floats = NDArray[np.float64]


def log_evidence(correct: NDArray[np.bool_], y: Classes, shares: Floats) -> float:
    """Log-likelihood of left-out labels under a teacher that is right as often as it was.

    Classes count by their shares: with few labels of a large one, the whole counts as few (as many
    as would give the accuracy among all samples the same variance).

    Args:
        correct: whether each tested label was predicted right, (T,).
        y: their classes, (T,).
        shares: of all classes, (C,).
    """
    classes, counts = np.unique(y, return_counts=True)
    if not len(classes):
        return 0.0
    size, num_classes = shares[classes] / shares[classes].sum(), len(shares)
    tested = 1 / (size**2 / counts).sum()
    wrong = tested * size @ [1 - correct[y == c].mean() for c in classes]
    # Laplace's estimate; who is worse than chance is not believed to know what is false
    rate = min((wrong + 1) / (tested + 2), 1 - 1 / num_classes)
    right = (tested - wrong) * np.log(1 - rate)
    return float(right + wrong * np.log(rate / (num_classes - 1)))


def some_of_each_class(y: Classes, most: int) -> NDArray[np.intp]:
    """Labeled samples: the first of every class, the second of every class, and so on."""
    rng, rank = np.random.default_rng(0), np.full(len(y), len(y))
    for c in np.unique(y[y >= 0]):
        members = rng.permutation(np.flatnonzero(y == c))
        rank[members] = np.arange(len(members))
    order = np.argsort(rank, kind="stable")[: min(most, (y >= 0).sum())]
    return np.sort(order)
