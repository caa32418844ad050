"""``LabelGraph``: label propagation on a k-nearest-neighbour graph of samples."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from cclp.pseudo_labels.features import are_images, make_features
from cclp.pseudo_labels.leave_one_out import LeaveOneOut, leave_one_out
from cclp.pseudo_labels.neighbours import Images, find_neighbours
from cclp.pseudo_labels.solvers import (
    MOST_DYNAMIC_VALUES,
    affinity,
    class_shares,
    largest_class,
    largest_of_many,
    propagate,
    random_walk,
    smooth_predictions,
    spreading_system,
    threshold_dynamics,
)

IMAGE_SHARPNESS = 4.0  # how fast affinity falls with the distance; 1 for vectors
MAX_NODES = 60_000


class LabelGraph:
    """Classes of samples by label propagation over their nearest neighbours.

    Label spreading, (I − αS) F = Y (Zhou et al. 2004), on the sparse graph of five neighbours each
    with locally scaled weights; the graph of images is the sum of three, by the image distortion
    model in both directions and their mean. Then class mass normalisation, the largest class of
    each sample (F itself is so even that CCLP would pull all classes together), and MBO threshold
    dynamics. Of more than 60,000 samples, so many are nodes, and the others get the class of their
    nearest node: time and memory grow in proportion. Of many classes, each is propagated around its
    labels only, and of very many there are no threshold dynamics: see :mod:`.solvers`.

    Args:
        x: samples; images are read some at a time, and need not fit into memory.
        y: classes, (N,), −1 where there is no label.
        num_classes: C.
        cache: folder that keeps neighbours for the next time, whatever the labels are then (of
            more than 60,000 samples, for the same labels).
        rows: which N of the samples are meant; None: all.
        class_prior: shares of the classes among them, (C,), if they are known; None: those of the
            labels if there were five more of each.

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
    ) -> None:
        self.class_prior = class_prior
        rows = np.arange(len(x)) if rows is None else rows
        self.y, self.num_classes = y, num_classes
        order = np.random.default_rng(0).permutation(len(rows))
        labeled_first = order[np.argsort(y[order] < 0, kind="stable")]
        self.nodes = labeled_first[:MAX_NODES]
        self.others = np.setdiff1d(order, self.nodes)
        self.points = make_features(x, rows)
        # duplicates are one point: with each other alone they would be an island
        distinct, self.first, self.place = np.unique(
            self.points[self.nodes], axis=0, return_index=True, return_inverse=True
        )
        images = Images(x, rows[self.nodes[self.first]]) if are_images(x) else None
        sharpness = 1.0 if images is None else IMAGE_SHARPNESS
        self.W: sparse.csr_matrix | None = (
            sum(affinity(near, sharpness) for near in find_neighbours(distinct, images, cache))
            if len(distinct) > 1
            else None
        )

    def propagate(self) -> NDArray[np.float32]:
        """Classes of all samples by the labels alone, (N, C).

        Returns:
            One-hot; the classes' shares for samples that no label reaches.
        """
        known = self.y[self.nodes]
        shares = self.class_prior
        if shares is None:
            counts = np.bincount(known[known >= 0], minlength=self.num_classes)
            shares = class_shares(counts.astype(np.float64))
        found = np.empty((len(self.y), self.num_classes), np.float32)
        if self.W is None:
            found[:] = shares
        else:
            F = self._propagated[1]
            classes: NDArray[np.floating]
            if np.prod(F.shape) > MOST_DYNAMIC_VALUES:
                classes = largest_of_many(F, shares)
            else:
                classes = threshold_dynamics(
                    largest_class(F.toarray(), shares),
                    random_walk(self.W),
                    self._distinct_labels.toarray(),
                    shares,
                )
            found[self.nodes] = classes[self.place]
        if len(self.others):
            search = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(self.points[self.nodes])
            nearest = search.kneighbors(self.points[self.others], return_distance=False)[:, 0]
            found[self.others] = found[self.nodes[nearest]]
        return self._with_labels(found)

    def smooth(self, predictions: NDArray[np.floating]) -> NDArray[np.float32]:
        """Classes of all samples by a classifier's predictions for them and their neighbours.

        The classifier and the graph make different mistakes: where one is wrong about a sample, the
        other often is not. Samples that are no nodes keep their own prediction.

        Args:
            predictions: class probabilities, (N, C).

        Returns:
            One-hot, (N, C).
        """
        found = predictions.astype(np.float64)
        if self.W is not None:
            walked = smooth_predictions(
                random_walk(self.W), found[self.nodes][self.first], self._distinct_labels.toarray()
            )
            found[self.nodes] = walked[self.place]
        return self._with_labels(np.eye(found.shape[1], dtype=np.float32)[found.argmax(1)])

    def leave_one_out(self) -> LeaveOneOut:
        """How well labels are predicted by the others: see :mod:`.leave_one_out`."""
        y = self.y[self.nodes]
        system, F = (None, None) if self.W is None else self._propagated
        return leave_one_out(self.W, system, F, y, self.place, self.num_classes, self.class_prior)

    def _with_labels(self, classes: NDArray[np.float32]) -> NDArray[np.float32]:
        known = np.flatnonzero(self.y >= 0)
        classes[known] = 0
        classes[known, self.y[known]] = 1
        return classes

    @cached_property
    def _propagated(self) -> tuple[sparse.csr_matrix, sparse.csc_matrix]:
        """I − αS, and F of the distinct points, (n, C)."""
        assert self.W is not None
        system = spreading_system(self.W)
        return system, propagate(system, self._distinct_labels)

    @cached_property
    def _distinct_labels(self) -> sparse.csc_matrix:
        """How many labels of each class the distinct points have, (n, C)."""
        known = self.y[self.nodes] >= 0
        where = self.place[known], self.y[self.nodes[known]]
        shape = len(self.first), self.num_classes
        return sparse.csc_matrix((np.ones(known.sum()), where), shape)
