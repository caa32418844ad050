"""A 2-D map of all samples: neighbours in the graph lie side by side."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cclp.progress import Reporter

Floats = NDArray[np.float64]
_SIDE = 20.0  # of the square that nodes begin in; forces reach about 1
_EPOCHS = 300  # of few nodes; of many a third
_MANY = 20_000
_REPELLED = 5  # nodes that push each node away, in each epoch
_FARTHEST = 0.002  # share of nodes that may lie outside before the square is scaled


def flat_map(
    vectors: Floats, values: Floats, W: sparse.csr_matrix, report: Reporter | None = None
) -> NDArray[np.float32]:
    """A place for each node in the unit square, (n, 2).

    By the forces of UMAP (McInnes et al. 2018, with a = b = 1), all edges at a time: neighbours
    attract each other, nodes drawn at random repel. It begins with the leading eigenvectors.

    Args:
        vectors, values: leading eigenvectors and eigenvalues of the graph.
        W: affinities.
        report: shows progress.
    """
    places = _begin(vectors, values)
    edges = sparse.triu(W, 1).tocoo()
    if edges.nnz:
        weight = (edges.data / edges.data.max()).astype(np.float32)
        places = _relax(places, edges.row, edges.col, weight, report or Reporter())
    low, high = np.quantile(places, (_FARTHEST, 1 - _FARTHEST), axis=0)
    centre, reach = (low + high) / 2, max(1e-12, float((high - low).max()) / 2)
    inside = np.clip((places - centre) / reach, -1.02, 1.02)  # stragglers come to the edge
    return np.asarray((inside / 1.02 + 1) / 2, np.float32)


def _begin(vectors: Floats, values: Floats) -> NDArray[np.float32]:
    """Two components of the leading eigenvectors, spread evenly along each axis."""
    from sklearn.decomposition import PCA

    points = vectors * values.clip(0) ** 8
    flat = np.zeros((len(points), 2))
    width = min(2, *points.shape)
    flat[:, :width] = PCA(width, random_state=0).fit_transform(points)
    ranks = flat.argsort(0, kind="stable").argsort(0, kind="stable")
    return np.asarray(_SIDE * (ranks / max(1, len(flat) - 1) - 0.5), np.float32)


def _relax(
    places: NDArray[np.float32],
    left: NDArray[np.intp],
    right: NDArray[np.intp],
    weight: NDArray[np.float32],
    report: Reporter,
) -> NDArray[np.float32]:
    """Places after the forces have moved them, less and less."""
    rng = np.random.default_rng(0)
    n = len(places)
    epochs = _EPOCHS if n < _MANY else _EPOCHS // 3
    degree = np.bincount(left, weight, n) + np.bincount(right, weight, n)
    share = (1 / np.maximum(degree, 1e-12)).astype(np.float32)[:, None]
    with report.work("Drawing the map", epochs) as done:
        for epoch in range(epochs):
            apart = places[left] - places[right]
            pull = (weight * 2 / (1 + np.square(apart).sum(1)))[:, None] * apart
            force = np.empty_like(places)
            for axis in (0, 1):
                force[:, axis] = np.bincount(right, pull[:, axis], n)
                force[:, axis] -= np.bincount(left, pull[:, axis], n)
            force *= share
            for _ in range(_REPELLED):
                others = np.roll(rng.permutation(n), 1)
                apart = places - places[others]
                square = np.square(apart).sum(1)
                push = 2 / ((0.01 + square) * (1 + square))
                force += (push[:, None] * apart).clip(-2, 2)
            places += np.float32(1 - epoch / epochs) * force.clip(-2, 2)
            done(1)
    return places
