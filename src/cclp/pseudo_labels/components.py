"""Edges to connected components of a graph that hold no label, so that labels reach them too."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

_PAIRS = 10**8  # of points that are compared, beyond one of each component with all
_BLOCK_VALUES = 2**24  # of distances at a time
_CANDIDATES = 16  # nearest by products, of which the nearest by differences is taken


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
        >>> W = sparse.csr_matrix([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
        >>> points = np.array([[0], [1], [3], [4]], np.float32)
        >>> join_components(W, points, np.array([0])).toarray()[1]
        array([1., 0., 1., 0.])
        >>> join_components(W, points, np.array([0, 3])).toarray()[1]
        array([1, 0, 0, 0])
    """
    assert len(labeled)
    weight = np.median(W.data)  # a weaker one, and after some components labels would be rounding
    while not (reached := are_reached(W, labeled)).all():
        component = connected_components(W, directed=False)[1]
        ends = _bridges(points, component, np.flatnonzero(~reached))
        bridges = sparse.csr_matrix((np.full(len(ends[0]), weight), ends), W.shape)
        W = W.maximum(bridges).maximum(bridges.T).tocsr()
    return W


def are_reached(W: sparse.csr_matrix, labeled: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether each node has a label in its connected component, (n,)."""
    component = connected_components(W, directed=False)[1]
    return np.isin(component, component[labeled])


def _bridges(
    points: NDArray[np.float32], component: NDArray[np.int32], asking: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For each component of the points that ask, the nearest pair with a point of another.

    Of many points some only are asked, at least one of each component.
    """
    order = np.random.default_rng(0).permutation(asking)
    order = order[component[order].argsort(kind="stable")]
    members, first = np.unique(component[order], return_index=True)
    rank = np.arange(len(order)) - first[np.searchsorted(members, component[order])]
    queries = order[rank < max(1, _PAIRS // len(points) // len(members))]

    x, part = torch.from_numpy(points), torch.from_numpy(component)
    squares = x.square().sum(1)
    to, distance = np.empty(len(queries), np.intp), np.empty(len(queries))
    rows = max(1, _BLOCK_VALUES // len(points))
    for start in range(0, len(queries), rows):
        some = torch.from_numpy(queries[start : start + rows])
        scores = (squares - 2 * x[some] @ x.T).nan_to_num_()  # below ∞, which is their own
        scores.masked_fill_(part[some][:, None] == part, torch.inf)
        near = scores.topk(min(_CANDIDATES, len(x)), largest=False).indices
        # By differences: products lose small distances far from the origin.
        apart = (x[near] - x[some][:, None]).square().sum(2).nan_to_num_()
        apart.masked_fill_(part[some][:, None] == part[near], torch.inf)
        distance[start : start + rows], best = apart.min(1)
        to[start : start + rows] = near.gather(1, best[:, None])[:, 0]
    nearest = np.lexsort((distance, component[queries]))
    first = np.unique(component[queries][nearest], return_index=True)[1]
    return queries[nearest[first]], to[nearest[first]]
