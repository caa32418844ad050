"""The graph of the samples with what the page needs of it: built once, in the background."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cclp.labelling.layout import flat_map
from cclp.labelling.source import Source
from cclp.labelling.spectrum import leading_vectors
from cclp.progress import Reporter
from cclp.pseudo_labels.components import join_components
from cclp.pseudo_labels.graph import NeighbourGraph

ALIKE = 0.5  # squared correlation from which a sample follows another


@dataclass(frozen=True)
class Atlas:
    """The graph of the samples.

    Attributes:
        W: affinities of n nodes, connected.
        points: their features, (n, F).
        place: the node of each sample, (N,).
        typicality: how dense it is around each node, as a rank from 0 to 1, (n,).
        values, vectors: leading eigenvalues and eigenvectors of S.
        flat: a place of each node in the unit square.
    """

    W: sparse.csr_matrix
    points: NDArray[np.float32]
    place: NDArray[np.intp]
    typicality: NDArray[np.float64]
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    flat: NDArray[np.float32]

    @classmethod
    def build(
        cls, source: Source, *, distortion: bool, cache: Path | None, report: Reporter
    ) -> "Atlas":
        """Build it.

        Raises:
            ValueError: if nothing tells the samples apart.
        """
        graph = NeighbourGraph(source.x, distortion=distortion, cache=cache, report=report)
        if graph.W is None:
            raise ValueError(f"nothing tells the samples of {source.name} apart")
        with report.work("Connecting the graph", None):
            W = join_components(graph.W, graph.points, np.array([0]))
        values, vectors = leading_vectors(W, report=report)
        flat = flat_map(vectors, values, W, report)
        typicality = rank_density(graph.scales)
        return cls(W, graph.points, graph.place, typicality, values, vectors, flat)

    @cached_property
    def members(self) -> NDArray[np.int64]:
        """Samples of each node."""
        return np.bincount(self.place, minlength=self.W.shape[0])

    @cached_property
    def first(self) -> NDArray[np.intp]:
        """A sample of each node, (n,)."""
        first = np.empty(self.W.shape[0], np.intp)
        first[self.place[::-1]] = np.arange(len(self.place))[::-1]
        return first

    def nearest(self, sample: int, others: NDArray[np.int64], count: int) -> list[int]:
        """The nearest of some other samples."""
        here = self.points[self.place[sample]]
        apart = np.square(self.points[self.place[others]] - here).sum(1)
        some = others[np.argsort(apart, kind="stable")[: count + 1]]
        return [int(other) for other in some if other != sample][:count]


def rank_density(scales: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Ranks of the nodes by how near their neighbours are: 1 for the nearest.

    Args:
        scales: distance to the farthest of each node's neighbours, in one or more measures.

    >>> rank_density([np.array([3.0, 1.0])]).tolist()
    [0.5, 1.0]
    """
    far = np.sum([scale / max(float(scale.mean()), 1e-30) for scale in scales], axis=0)
    ranks = np.empty(len(far))
    ranks[np.argsort(-far, kind="stable")] = np.arange(1, len(far) + 1)
    return ranks / len(far)
