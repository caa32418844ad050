"""Label propagation and graph cuts on a sparse affinity matrix W, as plain functions.

Letters: W (n, n) symmetric affinities, S = D^(-1/2) W D^(-1/2), P = D⁻¹ W the random walk, Y (n, C)
given labels, F (n, C) propagated ones. ``shares`` are those of the classes among all samples, (C,).

Cost: F has n C values. If these are more than ``MOST_VALUES``, the labels of each class are
propagated over a part of the graph around them: far away, those of other classes are nearer.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import cg

from cclp.pseudo_labels.neighbours import Neighbours

ALPHA = 0.99  # of Zhou et al. 2004
RESTART = 0.4  # probability of a return to the classifier's prediction in a random walk
WALK_STEPS = 10  # less than 1 % of a longer walk would come from further away
DIFFUSION_STEPS = 5  # between two thresholds
MAX_THRESHOLDS = 50
MOST_CHANGED = 0.1  # of the samples, by threshold dynamics
EXTRA_LABELS = 5  # a few labels say little about how large the classes are
TOLERANCE = 1e-12  # far from any label F is small, and still decides
MOST_VALUES = 1_200_000  # of F: 60,000 nodes and 20 classes
MOST_DYNAMIC_VALUES = 6_000_000  # of classes in threshold dynamics: about 20 seconds
LOCAL_VALUES = 300_000  # of F, if it would have more: at least five times the class on average
_LEAST_AFFINITY = 1e-6  # so that an outlier has neighbours

Floats = NDArray[np.float64]


def affinity(near: Neighbours, sharpness: float) -> sparse.csr_matrix:
    """W of a k-nearest-neighbour graph with local scaling (Zelnik-Manor & Perona 2004).

    Args:
        near: of each point.
        sharpness: how fast affinity falls with the distance.
    """
    distance, index = near
    count, neighbours = index.shape
    scale = distance[:, -1]
    width = scale[:, None] * scale[index]
    nothing = np.where(distance > 0, np.inf, 0)  # where a neighbourhood has no size
    ratio = np.divide(distance**2, width, out=nothing, where=width > 0)
    weights = np.exp(-sharpness * ratio).clip(_LEAST_AFFINITY)
    rows = np.arange(0, count * neighbours + 1, neighbours)
    W = sparse.csr_matrix((weights.ravel(), index.ravel(), rows), (count, count))
    return (W + W.T).tocsr()


def spreading_system(W: sparse.csr_matrix) -> sparse.csr_matrix:
    """I − αS of label spreading (Zhou et al. 2004)."""
    root = sparse.diags(1 / np.sqrt(np.asarray(W.sum(1)).ravel()))
    S = (root @ W @ root).tocsr()
    return sparse.identity(S.shape[0]) - ALPHA * S


def solve(system: sparse.csr_matrix, column: Floats, tolerance: float = TOLERANCE) -> Floats:
    """The solution for one right side by conjugate gradients; it is never negative."""
    return np.asarray(cg(system, column, rtol=tolerance)[0]).clip(0)


def propagate(system: sparse.csr_matrix, labels: sparse.csc_matrix) -> sparse.csc_matrix:
    """F of label spreading; what is not in a class's part of the graph is not stored, and zero.

    Args:
        system: I − αS.
        labels: Y.
    """
    n, classes = labels.shape
    if n * classes <= MOST_VALUES:
        columns = [solve(system, labels[:, [c]].toarray()[:, 0]) for c in range(classes)]
        rows, starts = np.tile(np.arange(n), classes), np.arange(0, n * classes + 1, n)
        return sparse.csc_matrix((np.concatenate(columns), rows, starts), labels.shape)
    # All parts as one system, block by block: one solve and not one for each class.
    part = _around(abs(system), labels)
    class_of = np.repeat(np.arange(classes), np.diff(part.indptr))
    keys = class_of * n + part.indices  # in order
    edges = system[part.indices].tocoo()
    ends = class_of[edges.row] * n + edges.col
    column = np.searchsorted(keys, ends)
    inside = keys.take(column, mode="clip") == ends
    blocks = sparse.csr_matrix(
        (edges.data[inside], (edges.row[inside], column[inside])), (len(keys), len(keys))
    )
    given = np.asarray(labels[part.indices, class_of]).ravel()
    return sparse.csc_matrix((solve(blocks, given), part.indices, part.indptr), labels.shape)


def solve_within(
    system: sparse.csr_matrix, part: NDArray[np.int32], column: Floats, tolerance: float
) -> Floats:
    """The solution on a part of the graph, if it is zero elsewhere."""
    whole = len(part) == system.shape[0]
    return solve(system if whole else system[part][:, part], column, tolerance)


def _around(walk: sparse.csr_matrix, labels: sparse.csc_matrix) -> sparse.csc_matrix:
    """The part of each class, its column not zero: what labels reach in as many moves as fit."""
    near, further = labels, walk @ labels
    while near.nnz < further.nnz <= LOCAL_VALUES:
        near, further = further, walk @ further
    near = near.tocsc()
    near.sort_indices()
    return near


def random_walk(W: sparse.csr_matrix) -> sparse.csr_matrix:
    """P = D⁻¹ W."""
    return (sparse.diags(1 / np.asarray(W.sum(1)).ravel()) @ W).tocsr()


def class_shares(counts: Floats) -> Floats:
    """Shares of the classes if there were five labels more of each."""
    some = counts + EXTRA_LABELS
    return np.asarray(some / some.sum())


def class_scale(shares: Floats, mass: Floats) -> Floats:
    """Factors that give every class its share of the mass (class mass normalisation)."""
    return shares / np.where(mass > 0, mass, 1)


def largest_class(F: Floats, shares: Floats) -> Floats:
    """One-hot classes after class mass normalisation; the shares where no label reaches."""
    balanced = F * class_scale(shares, F.sum(0))
    reached = balanced.max(1, keepdims=True) > 0
    return np.where(reached, np.eye(len(shares))[balanced.argmax(1)], shares)


def largest_of_many(F: sparse.csc_matrix, shares: Floats) -> NDArray[np.float32]:
    """:func:`largest_class` of a sparse F."""
    mass = np.asarray(F.sum(0)).ravel()
    balanced = (F @ sparse.diags(class_scale(shares, mass))).tocsr()
    best = np.asarray(balanced.argmax(1)).ravel()
    reached = balanced.max(1).toarray().ravel() > 0
    classes = np.zeros(F.shape, np.float32)
    classes[np.arange(len(best)), best] = 1
    classes[~reached] = shares
    return classes


def threshold_dynamics(
    classes: Floats, P: sparse.csr_matrix, labels: Floats, shares: Floats
) -> Floats:
    """MBO threshold dynamics (Merriman, Bence & Osher; on graphs with class sizes, Jacobs et al.
    2018): diffuse the classes for five steps, take the largest one again, until nothing changes.

    The borders between classes move to where they cut few edges. Where classes are no clusters
    there is no such place: the dynamics stop before a tenth of the samples have changed. In a graph
    without any clusters one class would take all: if one has lost half of its samples, the classes
    are returned as they came.

    Args:
        classes: to begin with, one-hot or shares, (n, C).
        P: random walk.
        labels: how many labels of each class a point has, (n, C).
        shares: of the classes, (C,).
    """
    known, reached = labels.any(1), (classes == 1).any(1)[:, None]
    given = labels[known] / labels[known].sum(1, keepdims=True)  # duplicates may disagree
    first = classes
    for _ in range(MAX_THRESHOLDS):
        diffused = np.where(reached, classes, 0)
        for _ in range(DIFFUSION_STEPS):
            diffused = P @ diffused
            diffused[known] = given
        before, classes = classes, largest_class(diffused, shares)
        if (classes.sum(0) < first.sum(0) / 2).any():
            return first
        if (classes != first).any(1).mean() > MOST_CHANGED:
            return before
        if (classes == before).all():
            break
    return classes


def smooth_predictions(P: sparse.csr_matrix, predictions: Floats, labels: Floats) -> Floats:
    """Predictions averaged over a random walk with restart; labeled points keep their labels.

    Args:
        P: random walk.
        predictions: class probabilities, (n, C).
        labels: how many labels of each class a point has, (n, C).
    """
    known = labels.any(1)
    start = predictions.copy()
    start[known] = labels[known] / labels[known].sum(1, keepdims=True)
    walked = start
    for _ in range(WALK_STEPS):
        walked = RESTART * start + (1 - RESTART) * (P @ walked)
        walked[known] = start[known]
    return walked
