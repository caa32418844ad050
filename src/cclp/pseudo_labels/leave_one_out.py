"""How far propagated labels can be trusted: each label is left out and predicted by the others."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.stats import binom

from cclp.progress import Reporter
from cclp.pseudo_labels.share import ALONE, Share
from cclp.pseudo_labels.solvers import Floats, class_scale, conjugate_gradients

TESTED = 100  # labels, at most
FEW_LABELS = 20  # of each class: from them alone a net learns less than the graph knows
GOOD = 0.9
POOR_LEVEL = 0.01  # of the test that calls a graph poor
_FEWEST, _MOST_VALUES = 10, 20_000_000  # labels on a large graph; nodes times labels
_BLOCK_VALUES = 2_000_000  # solved for at a time
_DYNAMIC_VALUES = 30_000  # of F, up to which threshold dynamics are tested too: some seconds
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

    @classmethod
    def of(cls, correct: NDArray[np.bool_], y: NDArray[np.int64]) -> "LeaveOneOut":
        """Of tested labels: whether each was predicted right, and their classes."""
        each = [float(correct[y == c].mean()) for c in np.unique(y)]
        return cls(int(correct.sum()), len(correct), min(each, default=1.0))

    def is_poor(self, num_classes: int, least: float = 0.5) -> bool:
        """Whether it is nearly certain that less than halfway from chance to always is right.

        Args:
            num_classes: C.
            least: how far from chance to always it must be.
        """
        rate = least + (1 - least) / num_classes
        return bool(self.tested and binom.cdf(self.correct, self.tested, rate) < POOR_LEVEL)

    def is_good(self, per_class: float, num_classes: int) -> bool:
        """Whether a net trained on so many labels of each class alone would know no more."""
        if per_class <= FEW_LABELS:
            return not self.is_poor(num_classes)
        return self.correct >= GOOD * self.tested and self.worst > 0

    def __str__(self) -> str:
        if not self.tested:
            return "leave-one-out accuracy unknown (one label per class)"
        return f"leave-one-out accuracy {self.correct}/{self.tested}"


class LeftOut(NamedTuple):
    """Labels that were left out: which samples', and whether each was predicted right, (T,)."""

    samples: NDArray[np.intp]
    correct: NDArray[np.bool_]


def leave_out(
    W: sparse.csr_matrix,
    system: sparse.csr_matrix,
    F: sparse.csc_matrix,
    y: NDArray[np.int64],
    place: NDArray[np.intp],
    shares: Floats,
    dynamics: Callable[[Floats, NDArray[np.int64]], Floats],
    report: Reporter,
    share: Share = ALONE,
) -> LeftOut:
    """Test at most 100 labels, of classes that have another one, one at a time.

    What each label has added to F is taken away again. On a large graph it is F that is tested,
    before threshold dynamics, and of more than 200,000 nodes fewer labels are.

    Args:
        W: affinities of the nodes.
        system, F: I − αS and its solution.
        y: classes of the samples, −1 where there is no label, (N,).
        place: of the samples among the nodes, (N,).
        shares: of the classes, (C,).
        dynamics: classes of all nodes, (n, C), after threshold dynamics, from F and y.
        report: shows progress.
        share: of the labels, which this process tests.
    """
    counts = np.bincount(y[y >= 0], minlength=len(shares))
    tested = np.flatnonzero((y >= 0) & (counts[y] > 1))
    most = min(TESTED, max(_FEWEST, _MOST_VALUES // W.shape[0]))
    tested = np.sort(np.random.default_rng(0).permutation(tested)[:most])
    mine = tested[share.rows(len(tested))]
    correct, mass = np.zeros(len(mine), bool), np.asarray(F.sum(0)).ravel()
    rows = F.tocsr()[place[mine]].toarray()
    island = connected_components(W, directed=False)[1][place]
    small = F.nnz == F.shape[0] * F.shape[1] <= _DYNAMIC_VALUES
    dense = F.toarray() if small else None
    with report.work("Testing on labels that are held back", len(mine)) as done:
        for number, added in enumerate(_added(system, F, y[mine], place[mine])):
            done(1)
            i = mine[number]
            of, rest = y[i], rows[number]
            if (y[island == island[i]] == of).sum() == 1:
                continue  # no other label of its class is in reach
            if dense is not None:
                without = dense.copy()
                without[:, of] = (without[:, of] - added.column).clip(0)
                others = y.copy()
                others[i] = -1
                found = dynamics(without, others)[place[i]].argmax()
            else:
                rest[of] = max(rest[of] - added.itself, 0)
                left = mass.copy()
                left[of] -= added.column.sum()
                found = (rest * class_scale(shares, left)).argmax()
            correct[number] = found == of
    return LeftOut(tested, share.whole(correct, len(tested)))


class _Added(NamedTuple):
    """What one label has added to its class in F: at its own node, and at all of its part."""

    itself: float
    column: Floats


def _added(
    system: sparse.csr_matrix,
    F: sparse.csc_matrix,
    classes: NDArray[np.int64],
    nodes: NDArray[np.intp],
) -> Iterator[_Added]:
    n = system.shape[0]
    at_a_time = max(1, _BLOCK_VALUES // n) if F.nnz == n * F.shape[1] else 1
    for start in range(0, len(nodes), at_a_time):
        some = nodes[start : start + at_a_time]
        of = classes[start]
        part = F.indices[F.indptr[of] : F.indptr[of + 1]]  # over which the class was propagated
        whole = len(part) == n
        inside = system if whole else system[part][:, part]
        where = some if whole else np.searchsorted(part, some)
        right = np.zeros((len(part), len(some)))
        right[where, np.arange(len(some))] = 1
        found = conjugate_gradients(inside, right, _ROOT_TOLERANCE).clip(0)
        for number, node in enumerate(where):
            yield _Added(float(found[node, number]), found[:, number])
