"""Nearest-neighbour graphs of samples, and ``LabelGraph``: label propagation on one."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from cclp.phases import phase
from cclp.progress import Reporter
from cclp.pseudo_labels.components import join_components
from cclp.pseudo_labels.distortion import compare, gradient_fields
from cclp.pseudo_labels.features import are_images, fit_features
from cclp.pseudo_labels.leave_one_out import LeaveOneOut, LeftOut
from cclp.pseudo_labels.neighbours import CANDIDATES, Images, find_neighbours, take_nearest
from cclp.pseudo_labels.propagation import Propagation
from cclp.pseudo_labels.search import nearest
from cclp.pseudo_labels.share import ALONE, Share
from cclp.pseudo_labels.shares import estimate_shares
from cclp.pseudo_labels.solvers import (
    affinity,
    cross_affinity,
    equal_shares,
    smooth_predictions,
)

NEIGHBOURS = 5
IMAGE_SHARPNESS = 4.0  # how fast affinity falls with the distance; 1 for vectors


class NeighbourGraph:
    """The sparse graph of nearest neighbours of samples, with locally scaled weights.

    The graph of images is the sum of three, by the image distortion model in both directions and
    their mean. Duplicates are one node: with each other alone they would be an island.

    Args:
        x: samples; images are read some at a time, and need not fit into memory.
        rows: which N of the samples are meant; None: all.
        neighbours: of each sample, k.
        distortion: whether images are compared by the image distortion model, which takes minutes
            for 70,000 of them, or by HOG alone.
        cache: folder that keeps neighbours for the next time.
        report: shows progress.
        share: of the work, which this process does.

    Attributes:
        W: affinities of the n distinct samples, or None if there is one only.
        place: of each sample among them, (N,).
        first: the first sample of each, (n,).
    """

    @phase("neighbours")
    def __init__(
        self,
        x: NDArray[Any],
        rows: NDArray[np.int64] | None = None,
        *,
        neighbours: int = NEIGHBOURS,
        distortion: bool = True,
        cache: Path | None = None,
        report: Reporter | None = None,
        share: Share = ALONE,
    ) -> None:
        rows = np.arange(len(x)) if rows is None else rows
        self.count = neighbours
        self.features = fit_features(x, rows, report)
        mine = self.features(x, rows[share.rows(len(rows))], report)
        self.points: NDArray[np.float32] = share.whole(mine, len(rows))
        self.first, self.place = distinct_rows(self.points)
        if len(self.first) < len(self.points):
            self.points = self.points[self.first]
        self.images = Images(x, rows[self.first]) if are_images(x) and distortion else None
        self.sharpness = IMAGE_SHARPNESS if are_images(x) else 1.0
        self.W: sparse.csr_matrix | None = None
        if len(self.points) > 1:
            lists = find_neighbours(self.points, self.images, neighbours, cache, report, share)
            self.scales = [near.distances[:, -1] for near in lists]
            self.W = sum(affinity(near, self.sharpness) for near in lists).tocsr()

    def joined(self, y: NDArray[np.int64]) -> sparse.csr_matrix | None:
        """W with connected components that hold no label joined to their nearest neighbours.

        Args:
            y: classes of the samples, −1 where there is no label, (N,).
        """
        if self.W is None:
            return None
        return join_components(self.W, self.points, self.place[y >= 0])

    def connect(self, x: NDArray[Any]) -> sparse.csr_matrix:
        """Affinities of new samples to the nodes, (m, n)."""
        if self.W is None:
            return sparse.csr_matrix(np.ones((len(x), 1)))
        points = self.features(x)
        if self.images is None:
            lists = [nearest(self.points, self.count, points)]
        else:
            index = nearest(self.points, max(self.count, CANDIDATES), points).indices
            fields = gradient_fields(x, np.arange(len(x)))
            of = np.arange(len(x)).repeat(index.shape[1])
            to, back = (
                distance.reshape(index.shape)
                for distance in compare(fields, of, self._fields, index.ravel())
            )
            lists = [take_nearest(d, index, self.count) for d in (to, back, (to + back) / 2)]
        return sum(
            cross_affinity(near, near.distances[:, -1], scale, self.sharpness)
            for near, scale in zip(lists, self.scales, strict=True)
        ).tocsr()

    def detach(self) -> None:
        """Keep what :meth:`connect` needs of images, and let go of them."""
        if self.images is not None:
            self._fields = gradient_fields(*self.images)
            self.images = Images(np.empty(0), np.empty(0, np.int64))

    @cached_property
    def _fields(self) -> Tensor:
        assert self.images is not None
        return gradient_fields(*self.images)


def distinct_rows(points: NDArray[np.float32]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first of each kind of row, in their order, and the place of every row among them.

    Rows are told apart by a 64-bit hash: a sort of a million rows of 64 values would take a minute.
    """
    random = np.random.default_rng(0)
    bits = (points + 0.0).view(np.uint32)  # there is one zero
    hashes = np.zeros(len(points), np.uint64)
    for column in range(points.shape[1]):
        factor = np.uint64(random.integers(2**63)) | np.uint64(1)
        hashes = (hashes ^ bits[:, column]) * factor
        hashes ^= hashes >> np.uint64(29)
    _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
    order = first.argsort()
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[place]


class LabelGraph:
    """Classes of samples by label propagation over their nearest neighbours.

    Label spreading, (I − αS) F = Y (Zhou et al. 2004), on :class:`NeighbourGraph`. Then class mass
    normalisation, the largest class of each sample (F itself is so even that CCLP would pull all
    classes together), and MBO threshold dynamics. Of many classes, each is propagated around its
    labels only, and of very many there are no threshold dynamics: see :mod:`.solvers`.

    Args:
        x: samples; images are read some at a time, and need not fit into memory.
        y: classes, (N,), −1 where there is no label.
        num_classes: C.
        cache: folder that keeps neighbours for the next time, whatever the labels are then.
        rows: which N of the samples are meant; None: all.
        class_prior: shares of the classes among them, (C,), if they are known; None: estimated,
            see :mod:`.shares`.
        report: shows progress.
        neighbours: the graph of the samples, if there is one already.
        share: of the work, which this process does.

    Examples:
        >>> x = np.concatenate([np.arange(8.0), np.arange(100.0, 108.0)])[:, None]
        >>> y = np.full(16, -1)
        >>> y[[0, 1, 14, 15]] = 0, 0, 1, 1
        >>> graph = LabelGraph(x, y, 2)
        >>> graph.propagate().argmax(1).tolist()
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
        >>> graph.leave_one_out()
        LeaveOneOut(correct=4, tested=4, worst=1.0)
    """

    def __init__(
        self,
        x: NDArray[Any],
        y: NDArray[np.int64],
        num_classes: int,
        cache: Path | None = None,
        rows: NDArray[np.int64] | None = None,
        class_prior: NDArray[np.float64] | None = None,
        report: Reporter | None = None,
        neighbours: NeighbourGraph | None = None,
        share: Share = ALONE,
    ) -> None:
        self.y, self.num_classes, self.class_prior = y, num_classes, class_prior
        self.report = report or Reporter()
        self.neighbours = neighbours or NeighbourGraph(
            x, rows, cache=cache, report=report, share=share
        )
        W, place = self.neighbours.joined(y), self.neighbours.place
        self.equal = (
            None if W is None else Propagation(W, place, y, num_classes, report=self.report)
        )
        if self.equal is not None and share.size > 1:
            self.equal.divide(share)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Of the classes, as they are given or estimated, (C,)."""
        return self.estimated_shares if self.class_prior is None else self.class_prior

    @cached_property
    def estimated_shares(self) -> NDArray[np.float64]:
        """Of the classes, as the graph shows them, (C,)."""
        return equal_shares(self.num_classes) if self.equal is None else estimate_shares(self.equal)

    @cached_property
    def propagation(self) -> Propagation | None:
        """The labels on the graph; None if it has no edges."""
        if self.equal is None or np.array_equal(self.shares, equal_shares(self.num_classes)):
            return self.equal
        return self.equal.with_shares(self.shares)

    def propagate(self) -> NDArray[np.float32]:
        """Classes of all samples by the labels alone, (N, C).

        Returns:
            One-hot; the classes' shares for samples that no label reaches.
        """
        found = np.empty((len(self.y), self.num_classes), np.float32)
        if self.propagation is not None:
            propagation = self.propagation
            with self.report.work("Passing labels on to similar samples", None):
                found[:] = propagation.classes()[self.neighbours.place]
        else:
            found[:] = self.shares
        return self._with_labels(found)

    def smooth(self, predictions: NDArray[np.floating]) -> NDArray[np.float32]:
        """Classes of all samples by a classifier's predictions for them and their neighbours.

        The classifier and the graph make different mistakes: where one is wrong about a sample, the
        other often is not.

        Args:
            predictions: class probabilities, (N, C).

        Returns:
            One-hot, (N, C).
        """
        found = predictions.astype(np.float64)
        if self.equal is not None:
            walked = smooth_predictions(
                self.equal.walk,
                found[self.neighbours.first],
                self.equal.labels.toarray(),
            )
            found = walked[self.neighbours.place]
        return self._with_labels(np.eye(found.shape[1], dtype=np.float32)[found.argmax(1)])

    def leave_one_out(self) -> LeaveOneOut:
        """How well labels are predicted by the others."""
        return LeaveOneOut.of(self.left_out.correct, self.y[self.left_out.samples])

    @property
    def left_out(self) -> LeftOut:
        """Labels that were left out, and whether the others predict them: see
        :mod:`.leave_one_out`.
        """
        if self.propagation is not None:
            return self.propagation.left_out
        counts = np.bincount(self.y[self.y >= 0], minlength=self.num_classes)
        tested = np.flatnonzero((self.y >= 0) & (counts[self.y] > 1))
        return LeftOut(tested, np.zeros(len(tested), bool))

    def _with_labels(self, classes: NDArray[np.float32]) -> NDArray[np.float32]:
        known = np.flatnonzero(self.y >= 0)
        classes[known] = 0
        classes[known, self.y[known]] = 1
        return classes
