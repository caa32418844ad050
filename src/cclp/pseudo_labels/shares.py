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
ROUNDS = 2
FAR = 0.15  # distance of shares that are worth a word


def estimate_shares(equal: "Propagation") -> Floats:
    """Shares of the classes as the graph shows them, (C,).

    All labels of a class together are one unit of what is spread, however many they are. Where
    every sample then goes to the class that it has most of, the counts are an estimate. It is drawn
    towards equal shares by how often the graph is wrong about left-out labels (as Stein's estimator
    does with a known noise): equal shares stay where the difference may be mistakes. Where they do
    not, the counts of what is propagated with these shares are the next estimate, twice.

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
    most = units.argmax(1)[equal.place][reached]
    estimate = np.bincount(most, minlength=equal.num_classes) / max(1, len(most))
    found = _drawn(estimate, equal)
    for _ in range(ROUNDS):
        if np.array_equal(found, shares):
            break
        again = equal.with_shares(found)
        classes = again.classes().argmax(1)[equal.place]
        found = _drawn(np.bincount(classes, minlength=len(shares)) / len(classes), again)
    return found


def _drawn(estimate: Floats, tested: "Propagation") -> Floats:
    left_out = tested.left_out
    wrong = balanced_error(left_out.correct, tested.y[left_out.samples])
    return drawn_to_equal(estimate, wrong)


def drawn_to_equal(estimate: Floats, wrong: float) -> Floats:
    """Shares that were counted, drawn towards equal ones.

    Args:
        estimate: shares of the classes among predictions, (C,).
        wrong: balanced error of these predictions.

    Returns:
        (C,): equal shares where the difference may be mistakes.
    """
    shares = equal_shares(len(estimate))
    kept = 1 - (wrong / max(distance(estimate, shares), 1e-9)) ** 2
    if kept <= 0:
        return shares
    drawn = np.maximum(shares + kept * (estimate - shares), SMALLEST / len(shares))
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
