"""How far propagated labels can be trusted: each label is left out and predicted by the others."""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.stats import binom

from cclp.pseudo_labels.solvers import Floats, class_scale, class_shares, solve

TESTED = 100  # labels, at most
FEW_LABELS = 20  # of each class: from them alone a net learns less than the graph knows
GOOD = 0.9
POOR_LEVEL = 0.01  # of the test that calls a graph poor
_ROOT_TOLERANCE = 1e-7  # of eᵀA⁻¹e the error is the square of that of A⁻¹e


class LeaveOneOut(NamedTuple):
    """Leave-one-out accuracy of the labels.

    Attributes:
        correct: how many are predicted right by the others.
        tested: of so many.
        worst: accuracy of the class with the least, of those tested.
    """

    correct: int
    tested: int
    worst: float = 1.0

    def is_poor(self, num_classes: int) -> bool:
        """Whether it is nearly certain that less than halfway from chance to always is right."""
        halfway = (1 + 1 / num_classes) / 2
        return bool(self.tested and binom.cdf(self.correct, self.tested, halfway) < POOR_LEVEL)

    def is_good(self, per_class: float, num_classes: int) -> bool:
        """Whether a net trained on so many labels of each class alone would know no more."""
        if per_class <= FEW_LABELS:
            return not self.is_poor(num_classes)
        return self.correct >= GOOD * self.tested and self.worst > 0

    def __str__(self) -> str:
        if not self.tested:
            return "leave-one-out accuracy unknown (one label per class)"
        return f"leave-one-out accuracy {self.correct}/{self.tested}"


def leave_one_out(
    W: sparse.csr_matrix | None,
    system: sparse.csr_matrix,
    F: Floats,
    labels: Floats,
    place: np.ndarray[tuple[int], np.dtype[np.intp]],
    class_prior: Floats | None = None,
) -> LeaveOneOut:
    """Test at most 100 labels, of classes that have another one, one at a time.

    What each label has added to F is taken away again. It is F that is tested, before threshold
    dynamics.

    Args:
        W: affinities of the distinct points; None if nothing tells the samples apart.
        system, F: I − αS and its solution, of the distinct points.
        labels: one-hot labels of the samples, zero rows where there is none, (N, C).
        place: of the samples among the distinct points, (N,).
        class_prior: shares of the classes, (C,), if they are known.
    """
    counts, classes = labels.sum(0), labels.argmax(1)
    tested = np.flatnonzero(labels.any(1) & (counts[classes] > 1))[:TESTED]
    if W is None:
        return LeaveOneOut(0, len(tested), 0.0)
    if not len(tested):
        return LeaveOneOut(0, 0)
    correct, mass = np.zeros(len(tested), bool), F.sum(0)
    added = solve(system, np.ones(len(F)))
    island = connected_components(W)[1][place]
    for number, i in enumerate(tested):
        of, node = classes[i], place[i]
        itself = solve(system, np.eye(1, len(F), node)[0], _ROOT_TOLERANCE)[node]
        others = labels[island == island[i], of].sum() - 1
        rest, left = F[node].copy(), mass.copy()
        rest[of] = max(rest[of] - itself, 0) if others else 0  # and no rounding error
        left[of] -= added[node]
        shares = class_shares(counts - labels[i]) if class_prior is None else class_prior
        found = (rest * class_scale(shares, left)).argmax()
        correct[number] = rest[of] > 0 and found == of
    each = [correct[classes[tested] == of].mean() for of in np.unique(classes[tested])]
    return LeaveOneOut(int(correct.sum()), len(tested), float(min(each)))
