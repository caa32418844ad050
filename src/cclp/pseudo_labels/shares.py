"""Shares of the classes among all samples, estimated from the graph.

Labels rarely come in the shares of the classes: people label as many of a rare class as of a common
one, or whatever they meet first. A method that forces wrong shares fails in silence.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cclp.pseudo_labels.solvers import MOST_DYNAMIC_VALUES, Floats, equal_shares

if TYPE_CHECKING:
    from cclp.pseudo_labels.propagation import Propagation

SMALLEST = 0.1  # of an equal share


def estimate_shares(equal: "Propagation") -> Floats:
    """Shares of the classes as the graph shows them, (C,).

    All labels of a class together are one unit of what is spread, however many they are. Where
    every sample then goes to the class that it has most of, the counts are an estimate. It is drawn
    towards equal shares by how often the graph is wrong about left-out labels (as Stein's estimator
    does with a known noise): equal shares stay where the difference may be mistakes.

    Args:
        equal: labels on a graph, with equal shares.
    """
    shares = equal_shares(equal.num_classes)
    left_out, F = equal.left_out, equal.spread[1]
    if not len(left_out.samples) or np.prod(F.shape) > MOST_DYNAMIC_VALUES:
        return shares
    counts = np.bincount(equal.y[equal.y >= 0], minlength=equal.num_classes)
    units = F.toarray() / np.maximum(counts, 1)
    reached = units.any(1)[equal.place]
    found = units.argmax(1)[equal.place][reached]
    estimate = np.bincount(found, minlength=equal.num_classes) / max(1, len(found))
    wrong = balanced_error(left_out.correct, equal.y[left_out.samples])
    kept = 1 - (wrong / max(distance(estimate, shares), 1e-9)) ** 2
    drawn = shares + max(0.0, kept) * (estimate - shares)
    drawn = np.maximum(drawn, SMALLEST / len(drawn))
    return np.asarray(drawn / drawn.sum())


def distance(first: Floats, second: Floats) -> float:
    """Total variation: the share of the samples that would have to change their class.

    >>> distance(np.array([0.5, 0.5]), np.array([0.9, 0.1]))
    0.4
    """
    return float(np.abs(first - second).sum() / 2)


def balanced_error(correct: NDArray[np.bool_], y: NDArray[np.int64]) -> float:
    """Mean over the classes of the share of wrong predictions, by Laplace's estimate for each."""
    each = [(np.sum(~correct[y == c]) + 1) / (np.sum(y == c) + 2) for c in np.unique(y)]
    return float(np.mean(each))
