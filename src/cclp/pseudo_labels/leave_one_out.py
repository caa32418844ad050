"""How far propagated labels can be trusted: each label is left out and predicted by the others."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.stats import binom

from cclp.pseudo_labels.solvers import Floats, class_scale, class_shares, conjugate_gradients

TESTED = 100  # labels, at most
FEW_LABELS = 20  # of each class: from them alone a net learns less than the graph knows
GOOD = 0.9
POOR_LEVEL = 0.01  # of the test that calls a graph poor
_FEWEST, _MOST_VALUES = 10, 20_000_000  # labels on a large graph; nodes times labels
_BLOCK_VALUES = 2_000_000  # solved for at a time
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
    W: sparse.csr_matrix,
    system: sparse.csr_matrix,
    F: sparse.csc_matrix,
    y: NDArray[np.int64],
    place: NDArray[np.intp],
    num_classes: int,
    class_prior: Floats | None = None,
) -> LeaveOneOut:
    """Test at most 100 labels, of classes that have another one, one at a time.

    What each label has added to F is taken away again. It is F that is tested, before threshold
    dynamics. Of more than 200,000 nodes, fewer labels are tested.

    Args:
        W: affinities of the nodes.
        system, F: I − αS and its solution.
        y: classes of the samples, −1 where there is no label, (N,).
        place: of the samples among the nodes, (N,).
        num_classes: C.
        class_prior: shares of the classes, (C,), if they are known.
    """
    counts = np.bincount(y[y >= 0], minlength=num_classes).astype(np.float64)
    tested = np.flatnonzero((y >= 0) & (counts[y] > 1))
    most = min(TESTED, max(_FEWEST, _MOST_VALUES // W.shape[0]))
    tested = np.random.default_rng(0).permutation(tested)[:most]
    if not len(tested):
        return LeaveOneOut(0, 0)
    correct, mass = np.zeros(len(tested), bool), np.asarray(F.sum(0)).ravel()
    rows = F.tocsr()[place[tested]].toarray()
    island = connected_components(W, directed=False)[1][place]
    itself, added = _added(system, F, y[tested], place[tested])
    for number, (i, rest) in enumerate(zip(tested, rows, strict=True)):
        of = y[i]
        others = (y[island == island[i]] == of).sum() - 1
        rest[of] = max(rest[of] - itself[number], 0) if others else 0  # and no rounding error
        left, fewer = mass.copy(), counts.copy()
        left[of] -= added[number]
        fewer[of] -= 1
        shares = class_shares(fewer) if class_prior is None else class_prior
        found = (rest * class_scale(shares, left)).argmax()
        correct[number] = rest[of] > 0 and found == of
    each = [correct[y[tested] == of].mean() for of in np.unique(y[tested])]
    return LeaveOneOut(int(correct.sum()), len(tested), float(min(each)))


def _added(
    system: sparse.csr_matrix,
    F: sparse.csc_matrix,
    classes: NDArray[np.int64],
    nodes: NDArray[np.intp],
) -> tuple[Floats, Floats]:
    """What one label of a class at a node has added to F: at that node, and in all."""
    n = system.shape[0]
    itself, added = np.empty(len(nodes)), np.empty(len(nodes))
    at_a_time = max(1, _BLOCK_VALUES // n) if F.nnz == n * F.shape[1] else 1
    for start in range(0, len(nodes), at_a_time):
        some = np.arange(start, min(start + at_a_time, len(nodes)))
        of = classes[start]
        part = F.indices[F.indptr[of] : F.indptr[of + 1]]  # over which the class was propagated
        whole = len(part) == n
        inside = system if whole else system[part][:, part]
        where = nodes[some] if whole else np.searchsorted(part, nodes[some])
        right = np.zeros((len(part), len(some)))
        right[where, some - start] = 1
        found = conjugate_gradients(inside, right, _ROOT_TOLERANCE).clip(0)
        itself[some], added[some] = found[where, some - start], found.sum(0)
    return itself, added
