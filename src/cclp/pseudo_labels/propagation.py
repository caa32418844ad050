"""``Propagation``: labels on a graph, and the methods that propagate them over it."""

from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cclp.progress import Reporter
from cclp.pseudo_labels import solvers
from cclp.pseudo_labels.leave_one_out import LeaveOneOut, LeftOut, leave_out
from cclp.pseudo_labels.share import ALONE, Share

PropagationMethod = Literal["mbo", "spreading", "harmonic", "poisson"]


class Propagation:
    """Labels on the nodes of a graph.

    Args:
        W: symmetric affinities of n nodes.
        place: the node of each sample, (N,).
        y: classes of the samples, −1 where there is no label, (N,).
        num_classes: C.
        class_prior: shares of the classes among all samples, (C,), if they are known; None: equal
            ones.
        alpha: of label spreading, Zhou's α.
        report: shows progress.
    """

    def __init__(
        self,
        W: sparse.csr_matrix,
        place: NDArray[np.intp],
        y: NDArray[np.int64],
        num_classes: int,
        class_prior: NDArray[np.float64] | None = None,
        alpha: float = solvers.ALPHA,
        report: Reporter | None = None,
    ) -> None:
        self.W, self.place, self.y, self.num_classes = W, place, y, num_classes
        self.class_prior, self.alpha, self.report = class_prior, alpha, report or Reporter()

    @property
    def shares(self) -> NDArray[np.float64]:
        """Shares of the classes, as they are given or equal ones."""
        if self.class_prior is not None:
            return self.class_prior
        return solvers.equal_shares(self.num_classes)

    def with_shares(self, shares: NDArray[np.float64]) -> "Propagation":
        """The same labels, spread already, with other shares of the classes."""
        found = Propagation(
            self.W, self.place, self.y, self.num_classes, shares, self.alpha, self.report
        )
        found.__dict__ |= {"spread": self.spread, "walk": self.walk, "labels": self.labels}
        return found

    @cached_property
    def labels(self) -> sparse.csc_matrix:
        """How many labels of each class the nodes have, (n, C)."""
        return self._count(self.y)

    @cached_property
    def walk(self) -> sparse.csr_matrix:
        """P = D⁻¹ W."""
        return solvers.random_walk(self.W)

    @cached_property
    def spread(self) -> tuple[sparse.csr_matrix, sparse.csc_matrix]:
        """I − αS of label spreading, and its solution F, (n, C)."""
        return self._spread(ALONE)

    def _spread(self, share: Share) -> tuple[sparse.csr_matrix, sparse.csc_matrix]:
        system = solvers.spreading_system(self.W, self.alpha)
        return system, solvers.spread(system, self.labels, share)

    def divide(self, share: Share) -> None:
        """Spread the labels and test them now, together with the other processes.

        Args:
            share: of this one.
        """
        self.spread = self._spread(share)
        self.left_out = self._leave_out(share)

    def classes(self) -> NDArray[np.floating]:
        """Label spreading, class mass normalisation, MBO threshold dynamics: one-hot, (n, C).

        The shares of the classes where no label reaches.
        """
        F, shares = self.spread[1], self.shares
        few = self.num_classes <= solvers.FEW_CLASSES
        if not few and np.prod(F.shape) > solvers.MOST_DYNAMIC_VALUES:
            return solvers.largest_of_many(F, shares)
        return self._dynamics(F.toarray(), self.y)

    def _dynamics(self, F: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float64]:
        first = solvers.largest_class(F, self.shares)
        return solvers.threshold_dynamics(first, self.walk, self._count(y).toarray(), self.shares)

    def _count(self, y: NDArray[np.int64]) -> sparse.csc_matrix:
        known = y >= 0
        where = self.place[known], y[known]
        return sparse.csc_matrix((np.ones(known.sum()), where), (self.W.shape[0], self.num_classes))

    def distributions(self, method: PropagationMethod) -> NDArray[np.float64]:
        """Class probabilities of the nodes, (n, C); rows of zeros where no label reaches.

        ``class_prior`` counts if it is given: as class mass normalisation for "spreading" and
        "harmonic", as the factors of Calder et al. for "poisson". For "mbo" it always counts, and
        a node's probabilities are those of a short walk over the classes around it.
        """
        labels = self.labels.toarray()
        if method == "mbo":
            return solvers.soft_classes(self.classes(), self.walk, labels)
        if method == "poisson":
            F = solvers.poisson(self.W, labels).clip(0)
            if self.class_prior is not None:
                given = labels.sum(0) / labels.sum()
                F *= np.divide(self.class_prior, given, out=np.ones_like(given), where=given > 0)
        else:
            F = solvers.harmonic(self.W, labels) if method == "harmonic" else self._spread_dense()
            if self.class_prior is not None:
                F = F * solvers.class_scale(self.class_prior, F.sum(0))
        return solvers.row_normalised(F)

    def _spread_dense(self) -> NDArray[np.float64]:
        return np.asarray(self.spread[1].toarray(), np.float64)

    @cached_property
    def left_out(self) -> LeftOut:
        """How well labels are predicted by the others: see :mod:`.leave_one_out`."""
        return self._leave_out(ALONE)

    def _leave_out(self, share: Share) -> LeftOut:
        about = self.W, *self.spread, self.y, self.place, self.shares
        return leave_out(*about, self._dynamics, self.report, share)

    def leave_one_out(self) -> LeaveOneOut:
        """The accuracy of that test."""
        return LeaveOneOut.of(self.left_out.correct, self.y[self.left_out.samples])
