"""k-nearest-neighbour search: exact by matrix products, approximate where there are many points."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cclp.progress import Reporter

MOST_EXACT = 100_000  # points: about half a minute on two cores
_GROUP = 64  # points whose smallest distance stands for them at first
_EXTRA = 4  # candidates that are ranked again by exact distances
_BLOCK_VALUES = 2**24  # of distances at a time


class Neighbours(NamedTuple):
    """Distances to the k nearest others of each point and their indices, (n, k)."""

    distances: NDArray[np.floating]
    indices: NDArray[np.int64]


def is_approximate(count: int) -> bool:
    """Whether neighbours among so many points are searched for approximately."""
    return False


def nearest(
    points: NDArray[np.float32],
    count: int,
    queries: NDArray[np.float32] | None = None,
    report: Reporter | None = None,
) -> Neighbours:
    """The nearest points of each query, in order.

    Args:
        points: (n, F).
        count: k; fewer if there are fewer points.
        queries: (m, F); None: the points, each without itself.
        report: shows progress.
    """
    return _exact(points, count, queries, report or Reporter())


def _exact(
    points: NDArray[np.float32], count: int, queries: NDArray[np.float32] | None, report: Reporter
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
    distances, indices = np.empty((len(q), count)), np.empty((len(q), count), np.int64)
    with report.work("Searching for nearest neighbours", len(q)) as done:
        for start in range(0, len(q), rows):
            block = q[start : start + rows]
            own = torch.arange(start, start + len(block)) if itself else None
            distance, index, sure = single.nearest(block, own, count)
            if not sure.all():
                double = double or _Table(x.double())
                again = ~sure
                distance[again], index[again], _ = double.nearest(
                    block[again].double(), None if own is None else own[again], count
                )
            distances[start : start + len(block)] = distance.numpy()
            indices[start : start + len(block)] = index.numpy()
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
