"""A neighbour of each sample, drawn from the nearest-neighbour graph: a step of a random walk."""

import numpy as np
from numpy.typing import NDArray

from cclp.pseudo_labels.graph import NeighbourGraph


class RandomNeighbours:
    """Neighbours j of samples i, drawn with probability W_ij / Σ_j W_ij.

    Args:
        graph: of some of the samples.
        rows: which these are, in the order of the graph.
        size: number of all samples, N.
    """

    def __init__(self, graph: NeighbourGraph, rows: NDArray[np.int64], size: int) -> None:
        self.node = np.zeros(size, np.int64)
        self.node[rows] = graph.place
        self.sample = rows[graph.first]  # of each node
        if graph.W is not None:
            self.begin, self.others = graph.W.indptr.astype(np.int64), graph.W.indices
            self.sums = np.cumsum(graph.W.data, dtype=np.float64)

    def __call__(
        self, samples: NDArray[np.int64], uniform: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """A neighbour of each sample.

        Args:
            samples: in the graph, (B,).
            uniform: random numbers in [0, 1), (B,).
        """
        if len(self.sample) == 1:  # all samples are equal
            return samples
        first, last = (self.begin[self.node[samples] + k] for k in (0, 1))
        below = np.where(first > 0, self.sums[first - 1], 0.0)
        drawn = below + uniform * (self.sums[last - 1] - below)
        edge = np.searchsorted(self.sums, drawn, side="right").clip(first, last - 1)
        return np.asarray(self.sample[self.others[edge]])
