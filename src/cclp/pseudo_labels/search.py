"""k-nearest-neighbour search: exact by matrix products, by faiss where there are many points."""

import math
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cclp.progress import Reporter
from cclp.pseudo_labels.share import ALONE, Share

MOST_EXACT = 100_000  # points, if faiss is installed: about half a minute on two cores
_POINTS_PER_CENTROID = 64  # that faiss learns its cells from
_CELLS_PER_PROBE = 12  # one of so many cells is searched: fewer, and recall falls below 0.9
_QUERIES, _FEW_QUERIES = 50_000, 10_000  # of faiss at a time; searched exactly
_GROUP = 64  # points whose smallest distance stands for them at first
_EXTRA = 4  # candidates that are ranked again by exact distances
_BLOCK_VALUES = 2**24  # of distances at a time


class Neighbours(NamedTuple):
    """Distances to the k nearest others of each point and their indices, (n, k)."""

    distances: NDArray[np.floating]
    indices: NDArray[np.int64]


def is_approximate(count: int) -> bool:
    """Whether neighbours among so many points are searched for by faiss, if it is installed."""
    return count > MOST_EXACT and find_spec("faiss") is not None


def nearest(
    points: NDArray[np.float32],
    count: int,
    queries: NDArray[np.float32] | None = None,
    report: Reporter | None = None,
    share: Share = ALONE,
) -> Neighbours:
    """The nearest points of each query, in order.

    Exact up to 100,000 points, and beyond if faiss is not installed: then the time grows with the
    square of their number.

    Args:
        points: (n, F).
        count: k; fewer if there are fewer points.
        queries: (m, F); None: the points, each without itself.
        report: shows progress.
        share: of the queries, which this process searches for.
    """
    report = report or Reporter()
    few = queries is not None and len(queries) < _FEW_QUERIES  # an index would take longer
    search = _exact if few or not is_approximate(len(points)) else _approximate
    total = len(points if queries is None else queries)
    found = search(points, count, queries, share.rows(total), report)
    return Neighbours(*(share.whole(part, total) for part in found))


def _approximate(
    points: NDArray[np.float32],
    count: int,
    queries: NDArray[np.float32] | None,
    mine: slice,
    report: Reporter,
) -> Neighbours:
    """By faiss: cells of an inverted file, codes of four bits a value, distances of the best.

    Nine of ten neighbours are found in a mixture of Gaussians, nearly all where there are real
    clusters. Deterministic. Rows with fewer than k are searched for exactly.
    """
    import faiss

    n, width = points.shape
    cells = 2 ** round(math.log2(math.sqrt(n)))
    index: Any = faiss.index_factory(width, f"IVF{cells},PQ{width}x4fs,RFlat")
    inside: Any = faiss.try_extract_index_ivf(index)
    inside.cp.seed, inside.cp.max_points_per_centroid = 0, _POINTS_PER_CENTROID
    inside.nprobe = max(1, cells // _CELLS_PER_PROBE)
    index.k_factor = 10 if count <= 16 else 4
    threads = torch.get_num_threads()  # faiss and torch may share a runtime, and its setting
    faiss.omp_set_num_threads(threads)
    q, itself = (points, True) if queries is None else (queries, False)
    found: list[Neighbours] = []
    with report.work("Preparing the search for similar samples", None):
        index.train(points)
        index.add(points)
    with report.work("Searching for similar samples", mine.stop - mine.start) as done:
        for start in range(mine.start, mine.stop, _QUERIES):
            part = np.ascontiguousarray(q[start : min(start + _QUERIES, mine.stop)])
            squares, near = index.search(part, count + itself)
            if itself:  # it need not be the first: drop it, or the last one if it is not there
                own = near == np.arange(start, start + len(near))[:, None]
                own[~own.any(1), -1] = True
                squares, near = (z[~own].reshape(-1, count) for z in (squares, near))
            found.append(Neighbours(np.sqrt(squares.clip(0)).astype(np.float64), near))
            done(len(near))
    torch.set_num_threads(threads)
    whole = Neighbours(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
    return _complete(whole, points, queries, mine.start, report)


def _complete(
    near: Neighbours,
    points: NDArray[np.float32],
    queries: NDArray[np.float32] | None,
    first: int,
    report: Reporter,
) -> Neighbours:
    """Search exactly for rows, counted from the first, in which some neighbours are missing."""
    missing = np.flatnonzero((near.indices < 0).any(1))
    rows = first + missing
    if len(rows):
        count = near.indices.shape[1]
        q = (points if queries is None else queries)[rows]
        whole = slice(0, len(q))
        distances, indices = _exact(points, count + (queries is None), q, whole, report)
        if queries is None:
            own = indices == rows[:, None]
            own[~own.any(1), -1] = True
            distances, indices = (z[~own].reshape(-1, count) for z in (distances, indices))
        near.distances[missing], near.indices[missing] = distances, indices
    return near


def _exact(
    points: NDArray[np.float32],
    count: int,
    queries: NDArray[np.float32] | None,
    mine: slice,
    report: Reporter,
) -> Neighbours:
    """By blocks of |y|² − 2xy in float32; rows in which rounding may have hidden a neighbour again
    in float64.
    """
    itself = queries is None
    x = torch.from_numpy(points)
    q = x if queries is None else torch.from_numpy(queries)
    count = min(count, len(x) - itself)
    rows = max(16, min(256, _BLOCK_VALUES // len(x)))
    single, double = _Table(x), None
    total = mine.stop - mine.start
    distances, indices = np.empty((total, count)), np.empty((total, count), np.int64)
    with report.work("Searching for similar samples", total) as done:
        for start in range(mine.start, mine.stop, rows):
            block = q[start : min(start + rows, mine.stop)]
            own = torch.arange(start, start + len(block)) if itself else None
            distance, index, sure = single.nearest(block, own, count)
            if not sure.all():
                double = double or _Table(x.double())
                again = ~sure
                distance[again], index[again], _ = double.nearest(
                    block[again].double(), None if own is None else own[again], count
                )
            here = slice(start - mine.start, start - mine.start + len(block))
            distances[here], indices[here] = distance.numpy(), index.numpy()
            done(len(block))
    return Neighbours(distances, indices)


class _Table:
    """Points laid out for products: (x, |x|²) times (−2q, 1) is a squared distance less |q|²."""

    def __init__(self, x: Tensor) -> None:
        self.x, self.centre = x, x.double().mean(0).to(x.dtype)
        self.columns = math.ceil(len(x) / _GROUP)
        self.table = x.new_zeros(self.columns * _GROUP, x.shape[1] + 1)
        self.table[: len(x), :-1] = x - self.centre
        self.table[:, -1] = self.table.square().sum(1)
        self.table[len(x) :, -1] = torch.inf  # the room that is left over is far away

    def nearest(self, q: Tensor, own: Tensor | None, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Distances and indices of the nearest, and whether no other can be nearer, by row."""
        centred = q - self.centre
        scores = torch.cat([-2 * centred, q.new_ones(len(q), 1)], 1) @ self.table.T
        others = len(self.x)
        if own is not None:
            scores[torch.arange(len(q)), own] = torch.inf
            others -= 1
        some = min(count + _EXTRA, others)
        # The k nearest are in the k groups with the smallest members: few values are sorted.
        groups = scores.view(len(q), _GROUP, self.columns)
        near = min(some, self.columns)
        group = groups.amin(1).topk(near, largest=False, sorted=False).indices
        members = groups.gather(2, group[:, None].expand(-1, _GROUP, -1)).flatten(1)
        best = members.topk(some, largest=False)
        index = best.indices // near * self.columns + group.gather(1, best.indices % near)
        squares, order = (self.x[index] - q[:, None]).square().sum(2).sort(dim=1, stable=True)
        # What is not among the candidates has at least the largest score of one, but for rounding.
        size = centred.square().sum(1)
        rounding = 4 * q.shape[1] * torch.finfo(q.dtype).eps * size
        sure = best.values[:, -1] + size - rounding >= squares[:, count - 1]
        index = index.gather(1, order)[:, :count]
        return squares[:, :count].double().sqrt(), index, sure | (some == others)
