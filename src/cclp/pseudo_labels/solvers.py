"""Label propagation and graph cuts on a sparse affinity matrix W, as plain functions.

Letters: W (n, n) symmetric affinities, D their row sums, L = D − W, S = D^(-1/2) W D^(-1/2),
P = D⁻¹ W the random walk, Y (n, C) given labels, F (n, C) propagated ones. ``shares`` are those of
the classes among all samples, (C,).

Cost: F has n C values. For many classes, the labels of each are propagated over a part of the graph
around them: far away, those of other classes are nearer.
"""

import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from cclp.pseudo_labels.search import Neighbours
from cclp.pseudo_labels.share import ALONE, Share

ALPHA = 0.99  # of Zhou et al. 2004
RESTART = 0.4  # probability of a return to the classifier's prediction in a random walk
WALK_STEPS = 10  # less than 1 % of a longer walk would come from further away
DIFFUSION_STEPS = (80, 40, 20, 10, 5)  # between two thresholds
NODES_PER_STEP = 50  # of a class, at least
MAX_THRESHOLDS = 50  # of each
MOST_CHANGED = 0.1  # of the samples, by threshold dynamics
TOLERANCE = 1e-12  # far from any label F is small, and still decides
FEW_CLASSES = 20  # up to here on the whole graph, whatever its size
MOST_VALUES = 1_200_000  # of F, if there are more classes
MOST_DYNAMIC_VALUES = 6_000_000  # of threshold dynamics, if there are more classes
LOCAL_VALUES = 300_000  # of F around the labels, at least
LOCAL_NODES = 5  # or so many times the class, on average
_LEAST_AFFINITY = 1e-6  # so that an outlier has neighbours
_ROUGH = 1e-4  # tolerance in float32, far above its rounding
_NEARLY_STILL = 1e-3  # of the samples change: enough before shorter diffusions
_MAX_ITERATIONS, _MAX_REFINEMENTS = 20_000, 30

Floats = NDArray[np.float64]


def affinity(near: Neighbours, sharpness: float) -> sparse.csr_matrix:
    """W of a k-nearest-neighbour graph with local scaling (Zelnik-Manor & Perona 2004).

    Args:
        near: of each point.
        sharpness: how fast affinity falls with the distance.
    """
    scale = near.distances[:, -1]
    W = cross_affinity(near, scale, scale, sharpness)
    return (W + W.T).tocsr()


def cross_affinity(
    near: Neighbours, own: NDArray[np.floating], scale: NDArray[np.floating], sharpness: float
) -> sparse.csr_matrix:
    """Affinities of points to their neighbours among n others, (m, n).

    Args:
        near: neighbours of each point.
        own: the width of each point's neighbourhood, (m,).
        scale: those of the others, (n,).
        sharpness: how fast affinity falls with the distance.
    """
    distance, index = near
    count, neighbours = index.shape
    width = own[:, None] * scale[index]
    nothing = np.where(distance > 0, np.inf, 0)  # where a neighbourhood has no size
    ratio = np.divide(distance**2, width, out=nothing, where=width > 0)
    weights = np.exp(-sharpness * ratio).clip(_LEAST_AFFINITY)
    rows = np.arange(0, count * neighbours + 1, neighbours)
    return sparse.csr_matrix((weights.ravel(), index.ravel(), rows), (count, len(scale)))


def degrees(W: sparse.csr_matrix) -> Floats:
    """Row sums of W, 1 for a point without neighbours."""
    sums = np.asarray(W.sum(1), np.float64).ravel()
    return np.where(sums > 0, sums, 1.0)


def normalised(W: sparse.csr_matrix) -> sparse.csr_matrix:
    """S = D^(-1/2) W D^(-1/2)."""
    root = sparse.diags(1 / np.sqrt(degrees(W)))
    return (root @ W @ root).tocsr()


def spreading_system(W: sparse.csr_matrix, alpha: float = ALPHA) -> sparse.csr_matrix:
    """I − αS of label spreading (Zhou et al. 2004)."""
    return (sparse.identity(W.shape[0]) - alpha * normalised(W)).tocsr()


def product(A: sparse.csr_matrix) -> Callable[[Tensor], Tensor]:
    """Multiplication by A in float32, by all threads of torch: some times faster than scipy's."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        matrix = torch.sparse_csr_tensor(
            torch.from_numpy(A.indptr.astype(np.int32)),
            torch.from_numpy(A.indices.astype(np.int32)),
            torch.from_numpy(A.data.astype(np.float32)),
            size=A.shape,
            check_invariants=False,
        )
    return lambda x: matrix @ x


def conjugate_gradients(
    system: sparse.csr_matrix, right: Floats, tolerance: float = TOLERANCE
) -> Floats:
    """The solution for all right sides at once, (n, C), each to its own relative tolerance.

    In float32, refined in float64: what is left of the right side is solved for again. The systems
    here have a constant diagonal, or are brought to one by D^(-1/2) from both sides: that is the
    Jacobi preconditioner.
    """
    multiply = product(system)
    x, residual = np.zeros_like(right), right
    left = whole = np.linalg.norm(right, axis=0)
    for _ in range(_MAX_REFINEMENTS):
        if (left <= tolerance * whole).all():
            break
        scale = np.where(left > 0, left, 1)
        rough = _solution(multiply, torch.from_numpy((residual / scale).astype(np.float32)), _ROUGH)
        new = x + scale * rough.numpy()
        remains = right - system @ new
        size = np.linalg.norm(remains, axis=0)
        better = size < left
        fallen = (size < 0.5 * left).any()
        x, residual = np.where(better, new, x), np.where(better, remains, residual)
        left = np.where(better, size, left)
        if not fallen:  # in float32 the system is another one
            break
    if (left <= 100 * tolerance * whole).all():
        return np.asarray(x)
    # Long chains, and groups that hardly any edge joins.
    exact = _solution(
        lambda z: torch.from_numpy(system @ z.numpy()), torch.from_numpy(residual), tolerance
    )
    return np.asarray(x + exact.numpy())


def _solution(multiply: Callable[[Tensor], Tensor], right: Tensor, tolerance: float) -> Tensor:
    """Conjugate gradients in the precision of the right side."""
    x, residual, direction = torch.zeros_like(right), right.clone(), right.clone()
    squares = right.square().sum(0)
    enough = tolerance**2 * squares
    for _ in range(_MAX_ITERATIONS):
        turned = multiply(direction)
        curvature = (direction * turned).sum(0)
        active = (squares > enough) & (curvature > 0)
        if not active.any():
            break
        step = torch.where(active, squares / curvature, 0)
        x.addcmul_(step, direction)
        residual.addcmul_(step, turned, value=-1)
        before, squares = squares, residual.square().sum(0)
        direction.mul_(torch.where(active, squares / before, 0)).add_(residual)
    return x


def spread(
    system: sparse.csr_matrix, labels: sparse.csc_matrix, share: Share = ALONE
) -> sparse.csc_matrix:
    """F of label spreading; what is not in a class's part of the graph is not stored, and zero.

    Args:
        system: I − αS.
        labels: Y.
        share: of the classes, which this process spreads; of many classes each does all.
    """
    n, classes = labels.shape
    if classes <= FEW_CLASSES or n * classes <= MOST_VALUES:
        mine = conjugate_gradients(system, labels.toarray()[:, share.rows(classes)])
        F = share.whole(mine.T, classes).T.clip(0)  # it is never negative
        rows, starts = np.tile(np.arange(n), classes), np.arange(0, n * classes + 1, n)
        return sparse.csc_matrix((F.ravel(order="F"), rows, starts), labels.shape)
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
    given = np.asarray(labels[part.indices, class_of], np.float64).ravel()
    F = conjugate_gradients(blocks, given[:, None])[:, 0].clip(0)
    return sparse.csc_matrix((F, part.indices, part.indptr), labels.shape)


def _around(walk: sparse.csr_matrix, labels: sparse.csc_matrix) -> sparse.csc_matrix:
    """The part of each class, its column not zero: what labels reach in as many moves as fit."""
    most = max(LOCAL_VALUES, LOCAL_NODES * labels.shape[0])
    near, further = labels, walk @ labels
    while near.nnz < further.nnz <= most:
        near, further = further, walk @ further
    near = near.tocsc()
    near.sort_indices()
    return near


def harmonic(W: sparse.csr_matrix, labels: Floats) -> Floats:
    """F of Gaussian fields and harmonic functions (Zhu et al. 2003): L_UU F_U = W_UL Y_L.

    Args:
        W: affinities.
        labels: how many labels of each class a point has, (n, C).

    Returns:
        Rows sum to one, or to zero where no label is in reach.
    """
    known = labels.any(1)
    F = np.zeros_like(labels)
    F[known] = labels[known] / labels[known].sum(1, keepdims=True)
    island = connected_components(W, directed=False)[1]
    unknown = np.flatnonzero(~known & np.isin(island, island[known]))
    if not len(unknown):
        return F
    to_labels = W[unknown][:, known] @ F[known]
    root = 1 / np.sqrt(degrees(W)[unknown])
    system = sparse.identity(len(unknown)) - (
        sparse.diags(root) @ W[unknown][:, unknown] @ sparse.diags(root)
    )
    found = conjugate_gradients(system.tocsr(), root[:, None] * to_labels)
    F[unknown] = row_normalised((root[:, None] * found).clip(0))
    return F


def poisson(W: sparse.csr_matrix, labels: Floats) -> Floats:
    """F of Poisson learning (Calder et al. 2020): L F = Y − Ȳ at the labels, zero elsewhere.

    On each connected part of the graph by itself, with its own mean Ȳ: only sources that sum to
    zero have a solution.

    Args:
        W: affinities.
        labels: how many labels of each class a point has, (n, C).

    Returns:
        Positive and negative values, (n, C), whose mean weighted by D is zero on each part; Ȳ on a
        part with labels of one class; zero where no label is in reach.
    """
    degree = degrees(W)[:, None]
    parts, island = connected_components(W, directed=False)
    members = sparse.csr_matrix(
        (np.ones(len(island)), (island, np.arange(len(island)))), (parts, len(island))
    )
    mean = row_normalised(members @ labels)
    source = labels - labels.sum(1, keepdims=True) * mean[island]
    root = 1 / np.sqrt(degree)
    system = (sparse.identity(len(degree)) - normalised(W)).tocsr()
    F = root * conjugate_gradients(system, root * source)
    F -= ((members @ (degree * F)) / (members @ degree))[island]
    single = (mean > 0).sum(1) == 1
    return np.where(single[island][:, None], mean[island], F)


def random_walk(W: sparse.csr_matrix) -> sparse.csr_matrix:
    """P = D⁻¹ W."""
    return (sparse.diags(1 / degrees(W)) @ W).tocsr()


def equal_shares(num_classes: int) -> Floats:
    """How many labels a class was given says little about its size, and F is so even that a class
    with several times the share of another would take all samples.
    """
    return np.full(num_classes, 1 / num_classes)


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
    2018): diffuse the classes, take the largest one again, until nothing changes.

    The borders between classes move to where they cut few edges. Where classes are large, first by
    long diffusions, which see past small obstacles, then by shorter and shorter ones. Where classes
    are no clusters there is no such place, and the borders would wander off: if more than a tenth
    of the samples change, short diffusions only, stopped before a tenth has changed. In a graph
    without any clusters one class would take all: if one has lost half of its samples, the classes
    are returned as they came.

    Args:
        classes: to begin with, one-hot or shares, (n, C).
        P: random walk.
        labels: how many labels of each class a point has, (n, C).
        shares: of the classes, (C,).
    """
    multiply, best = product(P), None
    *long, shortest = DIFFUSION_STEPS
    # a diffusion of more steps would mix a class with the others
    most = classes.shape[0] / classes.shape[1] / NODES_PER_STEP
    for schedule in ((*(steps for steps in long if steps <= most), shortest), (shortest,)):
        found = classes
        for steps in schedule:
            found, best = _thresholds(found, classes, multiply, labels, shares, steps)
            if best is not None:
                break
        else:
            return found
    assert best is not None
    return best


def _thresholds(
    classes: Floats,
    first: Floats,
    multiply: Callable[[Tensor], Tensor],
    labels: Floats,
    shares: Floats,
    steps: int,
) -> tuple[Floats, Floats | None]:
    """Classes after the dynamics; and if they went too far, where they were before that."""
    known, reached = labels.any(1), (first == 1).any(1)[:, None]
    given = labels[known] / labels[known].sum(1, keepdims=True)  # duplicates may disagree
    where, values = torch.from_numpy(np.flatnonzero(known)), torch.from_numpy(given).float()
    for _ in range(MAX_THRESHOLDS):
        diffused = torch.from_numpy(np.where(reached, classes, 0)).float()
        for _ in range(steps):
            diffused = multiply(diffused)
            diffused[where] = values
        before, classes = classes, largest_class(diffused.numpy().astype(np.float64), shares)
        if (classes.sum(0) < first.sum(0) / 2).any():
            return classes, first
        if (classes != first).any(1).mean() > MOST_CHANGED:
            return classes, before
        changed = (classes != before).any(1).mean()
        if changed <= (0 if steps == DIFFUSION_STEPS[-1] else _NEARLY_STILL):
            break
    return classes, None


def row_normalised(F: Floats) -> Floats:
    """F with rows that sum to one; rows of zeros stay."""
    total = F.sum(1, keepdims=True)
    return np.asarray(np.divide(F, total, out=np.zeros_like(F), where=total > 0))


def soft_classes(classes: NDArray[np.floating], P: sparse.csr_matrix, labels: Floats) -> Floats:
    """Class probabilities by a short random walk, of which the given class stays the largest.

    Args:
        classes: one-hot, (n, C); what is not one-hot, no label reaches.
        P: random walk.
        labels: how many labels of each class a point has, (n, C).
    """
    reached = (classes == 1).any(1)[:, None]
    known = labels.any(1)
    walked = product(P)(torch.from_numpy(np.where(reached, classes, 0)).float())
    soft = np.where(reached, (classes + walked.numpy()) / 2, 0)
    soft[known] = labels[known]
    return row_normalised(soft.astype(np.float64))


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
