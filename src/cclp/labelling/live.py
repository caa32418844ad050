"""Labels propagated again after every answer, without starting over.

Label spreading, F = (I − αS)⁻¹ Y (Zhou et al. 2004), is linear in the labels: a new label of class
c adds one column of the inverse to column c of F, and a label that is taken back subtracts it. So
an answer costs one solve, whatever the number of labels and classes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cclp.labelling.labels import Change
from cclp.pseudo_labels.leave_one_out import LeftOut
from cclp.pseudo_labels.shares import balanced_error, drawn_to_equal
from cclp.pseudo_labels.solvers import (
    class_scale,
    conjugate_gradients,
    equal_shares,
    row_normalised,
    spreading_system,
)

TOLERANCE = 1e-6  # of each solve: on MNIST no value of F is wrong by more than 1e-4 of itself
_OWN_TOLERANCE = 1e-2  # of eᵀA⁻¹e the error is the square of that of A⁻¹e
_AT_ONCE = 16  # columns
_ROOM = 8  # classes, at first

Floats = NDArray[np.float64]


class LiveGraph:
    """Labels on a graph, kept propagated.

    Args:
        W: symmetric affinities of n nodes, connected.
        place: the node of each sample, (N,).

    Attributes:
        F: what has been propagated, a column for each class id, (n, room).
        counts: labels of each class, (room,).
    """

    def __init__(self, W: sparse.csr_matrix, place: NDArray[np.intp]) -> None:
        self.W, self.place = W, place
        self.system = spreading_system(W)
        n = W.shape[0]
        self.F, self.counts = np.zeros((n, _ROOM)), np.zeros(_ROOM, np.int64)
        self.members = np.bincount(place, minlength=n)
        self._own = np.full(n, np.nan)
        # What a label adds to its class in all: the system is symmetric.
        self._mass = conjugate_gradients(self.system, np.ones((n, 1)), TOLERANCE)[:, 0]

    def update(self, change: Change) -> None:
        """Propagate what has changed."""
        given = [(change.before, -1), (change.after, 1)]
        codes = sorted({int(c) for values, _ in given for c in np.unique(values) if c >= 0})
        if not codes:
            return
        self._make_room(codes[-1] + 1)
        right = np.zeros((len(self.F), len(codes)))
        nodes = self.place[change.samples]
        for number, code in enumerate(codes):
            for values, sign in given:
                of = values == code
                np.add.at(right[:, number], nodes[of], sign)
                self.counts[code] += sign * int(of.sum())
        for start in range(0, len(codes), _AT_ONCE):
            some = codes[start : start + _AT_ONCE]
            alive = [number for number, code in enumerate(some) if self.counts[code]]
            self.F[:, [code for code in some if not self.counts[code]]] = 0
            if not alive:
                continue
            block = right[:, start : start + _AT_ONCE][:, alive]
            found = conjugate_gradients(self.system, block, TOLERANCE)
            where = [some[number] for number in alive]
            self.F[:, where] = (self.F[:, where] + found).clip(0)
            if len(nodes) == 1:
                self._own[nodes[0]] = abs(found[nodes[0], 0])

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Whether it is known what a label at each sample adds to itself, (N,)."""
        return ~np.isnan(self._own[self.place])

    def shares(
        self, classes: Sequence[int], left_out: LeftOut, columns: NDArray[np.int64]
    ) -> Floats:
        """Shares of the classes, estimated as in :mod:`cclp.pseudo_labels.shares`, without MBO.

        Args:
            classes: ids.
            left_out: labels predicted by the others.
            columns: of those labels' classes.
        """
        equal = equal_shares(max(1, len(classes)))
        if not len(left_out.samples) or len(classes) < 2:
            return equal
        units = self.F[:, classes] / np.maximum(self.counts[list(classes)], 1)
        most = np.bincount(units.argmax(1), self.members, len(classes)) / self.members.sum()
        wrong = balanced_error(left_out.correct, columns)
        return drawn_to_equal(most, wrong)

    def balanced(self, classes: Sequence[int], shares: Floats) -> Floats:
        """F after class mass normalisation, rows that sum to one, (n, C)."""
        some = self.F[:, list(classes)]
        scaled = some * class_scale(shares, np.asarray(self.members @ some, np.float64))
        return row_normalised(scaled)

    def left_out(
        self,
        samples: NDArray[np.int64],
        values: NDArray[np.int16],
        classes: Sequence[int],
        shares: Floats,
    ) -> Floats:
        """What :meth:`balanced` would say of labeled samples without their own label, (T, C).

        Args:
            samples: labeled ones.
            values: ids of their classes.
            classes: ids of all classes.
            shares: of them.
        """
        nodes, columns = self.place[samples], np.searchsorted(classes, values)
        self.find_own(nodes)
        rows = np.arange(len(nodes))
        rest = self.F[nodes][:, list(classes)]
        rest[rows, columns] = (rest[rows, columns] - self._own[nodes]).clip(0)
        mass = np.tile(self.members @ self.F[:, list(classes)], (len(nodes), 1))
        mass[rows, columns] = (mass[rows, columns] - self._mass[nodes]).clip(0)
        single = self.counts[values] < 2
        rest[rows[single], columns[single]] = 0
        scaled = np.divide(rest * shares, mass, out=np.zeros_like(rest), where=mass > 0)
        return row_normalised(scaled)

    def find_own(self, nodes: NDArray[np.intp]) -> None:
        """What a label at each of these nodes adds to itself."""
        missing = np.unique(nodes[np.isnan(self._own[nodes])])
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            right = np.zeros((len(self.F), len(some)))
            right[some, np.arange(len(some))] = 1
            found = conjugate_gradients(self.system, right, _OWN_TOLERANCE)
            self._own[some] = found[some, np.arange(len(some))]

    def _make_room(self, classes: int) -> None:
        more = classes - self.F.shape[1]
        if more > 0:
            more = max(more, self.F.shape[1])
            self.F = np.pad(self.F, ((0, 0), (0, more)))
            self.counts = np.pad(self.counts, (0, more))
