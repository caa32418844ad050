"""Edges to connected components of a graph that hold no label, so that labels reach them too."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

_QUERIES = 20_000  # points that look for another component, at least one of each
_BLOCK_VALUES = 2**24  # of distances at a time


def join_components(
    W: sparse.csr_matrix, points: NDArray[np.float32], labeled: NDArray[np.intp]
) -> sparse.csr_matrix:
    """W with an edge from each connected component without a label to the nearest other point.

    Repeated until every component has a label (Borůvka's algorithm). Components with labels are
    never joined: far from its label a class is so weak that any edge to another would win.

    Args:
        W: symmetric affinities, (n, n).
        points: whose neighbours they are, (n, F).
        labeled: nodes with a label, at least one.

    Examples:
        >>> W = sparse.csr_matrix([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0.5], [0, 0, 0.5, 0]])
        >>> points = np.array([[0], [1], [3], [4]], np.float32)
        >>> join_components(W, points, np.array([0])).toarray()[1]
        array([1. , 0. , 0.5, 0. ])
        >>> join_components(W, points, np.array([0, 3])).toarray()[1]
        array([1., 0., 0., 0.])
    """
    while not (reached := are_reached(W, labeled)).all():
        component = connected_components(W, directed=False)[1]
        bridges = _bridges(points, component, np.flatnonzero(~reached))
        ends = np.concatenate([bridges, bridges[::-1]], 1)
        weights = np.full(ends.shape[1], W.data.min())
        W = W.maximum(sparse.csr_matrix((weights, tuple(ends)), W.shape)).tocsr()
    return W


def are_reached(W: sparse.csr_matrix, labeled: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether each node has a label in its connected component, (n,)."""
    component = connected_components(W, directed=False)[1]
    return np.isin(component, component[labeled])


def _bridges(
    points: NDArray[np.float32], component: NDArray[np.int32], asking: NDArray[np.intp]
) -> NDArray[np.int64]:
    """For each component of the points that ask, the nearest pair with one of another: (2, pairs).

    Of many points some only are asked, at least one of each component.
    """
    order = np.random.default_rng(0).permutation(asking)
    order = order[component[order].argsort(kind="stable")]
    members, first = np.unique(component[order], return_index=True)
    rank = np.arange(len(order)) - first[np.searchsorted(members, component[order])]
    queries = order[rank < max(1, _QUERIES // len(members))]

    x, part = torch.from_numpy(points), torch.from_numpy(component)
    squares = x.square().sum(1)
    to, distance = np.empty(len(queries), np.int64), np.empty(len(queries))
    rows = max(1, _BLOCK_VALUES // len(points))
    for start in range(0, len(queries), rows):
        some = torch.from_numpy(queries[start : start + rows])
        scores = (squares - 2 * x[some] @ x.T).nan_to_num_()  # other components stay below ∞
        scores.masked_fill_(part[some][:, None] == part, torch.inf)
        least, index = scores.min(1)
        to[start : start + rows] = index
        distance[start : start + rows] = least + squares[some]
    nearest = np.lexsort((distance, component[queries]))
    first = np.unique(component[queries][nearest], return_index=True)[1]
    return np.stack([queries, to])[:, nearest[first]]
