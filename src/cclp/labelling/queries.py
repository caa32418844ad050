"""Which sample to ask about next.

A label tells about the samples that follow it on the graph. With the kernel K = (I − αS)⁻¹ of label
spreading as the covariance of a Gaussian field, a label at i lowers the variance at j by
K_ij² / (K_ii + σ²): the best first question lowers the sum most (V-optimality, Ji & Han 2012).
Later the variance counts where labels are uncertain only.

K_ii is large in small groups that hardly anything leaves: their few samples would have as much
variance as all others together, and would be asked about first. So each sample's deviation is
replaced by its square root; correlations stay.
"""

import numpy as np
from numpy.typing import NDArray

from cclp.labelling.spectrum import kernel_factor

NOISE = 0.1  # σ², in units of the mean variance
_EQUAL = 0.5  # how far variances are drawn towards equal ones: 0 not, 1 fully

Floats = NDArray[np.float64]


class Influence:
    """What a label at each node would tell about the others, given the labels so far.

    Args:
        values, vectors: of the graph, see :func:`cclp.labelling.spectrum.leading_vectors`.
        members: samples of each node, (n,).
    """

    def __init__(self, values: Floats, vectors: Floats, members: NDArray[np.int64]) -> None:
        self.members = members.astype(np.float64)
        self.prior: Floats = np.diag(kernel_factor(values))
        self.covariance: Floats = self.prior.copy()
        self._open: Floats | None = None
        variance = np.maximum(np.square(vectors) @ self.prior.diagonal(), 1e-12)
        self.U: Floats = vectors / variance[:, None] ** (_EQUAL / 2)
        self._variance = variance ** (1 - _EQUAL)
        self.noise = NOISE * float(self._variance.mean())

    def restart(self, nodes: NDArray[np.intp]) -> None:
        """Forget all labels but those at these nodes."""
        some = self.U[np.unique(nodes)]
        # Woodbury: (Λ⁻¹ + UᵀU / σ²)⁻¹
        precision = np.diag(1 / self.prior.diagonal()) + some.T @ some / self.noise
        self.covariance = np.asarray(np.linalg.inv(precision), np.float64)
        self._open = None

    def add(self, node: int) -> None:
        """One more label."""
        k = self.covariance @ self.U[node]
        self.covariance -= np.outer(k, k) / (self.noise + self.U[node] @ k)
        self._open = None

    def gains(self, weight: Floats | None = None) -> Floats:
        """By how much a label at each node would lower the sum of variances, (n,).

        Args:
            weight: of each node in the sum; None: how many samples it stands for.
        """
        weight = self.members if weight is None else weight
        gram = (self.U * weight[:, None]).T @ self.U
        k = self.U @ self.covariance
        return np.asarray(((k @ gram) * k).sum(1) / (self.noise + (k * self.U).sum(1)))

    def openness(self) -> Floats:
        """Share of each node's prior variance that the labels leave, (n,)."""
        if self._open is None:
            left = ((self.U @ self.covariance) * self.U).sum(1)
            self._open = np.asarray((left / self._variance).clip(0, 1))
        return self._open

    def openness_without(self, nodes: NDArray[np.intp]) -> Floats:
        """The same of labeled nodes without their own label."""
        some = self.U[nodes]
        left = ((some @ self.covariance) * some).sum(1)
        before = left * self.noise / np.maximum(self.noise - left, 1e-9 * self.noise)
        return np.asarray((before / self._variance[nodes]).clip(0, 1))

    def classify(
        self, nodes: NDArray[np.intp], columns: NDArray[np.int64], classes: int
    ) -> NDArray[np.intp]:
        """The column of the likeliest class of each node, by regression on the same field, (n,).

        Args:
            nodes: with a label.
            columns: of their classes.
            classes: how many columns there are.
        """
        labels = np.zeros((self.U.shape[1], classes))
        np.add.at(labels.T, columns, self.U[nodes])
        return np.asarray((self.U @ (self.covariance @ labels)).argmax(1))

    def followers(self, node: int, alike: float) -> NDArray[np.bool_]:
        """Nodes of which a label at this node would tell much, (n,).

        Args:
            node: that would be labeled.
            alike: least squared correlation with it.
        """
        own = self.U @ (self.prior @ self.U[node])
        return np.asarray(own**2 >= alike * self._variance[node] * self._variance)

    def copy(self) -> "Influence":
        """Another one, to try labels on."""
        other = Influence.__new__(Influence)
        other.__dict__ |= self.__dict__ | {"covariance": self.covariance.copy()}
        return other


def uncertainty(probabilities: Floats) -> Floats:
    """One less the margin between the two likeliest classes, (n,); 1 with fewer than two classes.

    >>> uncertainty(np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])).tolist()
    [1.0, 0.0]
    """
    if probabilities.shape[1] < 2:
        return np.ones(len(probabilities))
    two = np.partition(probabilities, -2, axis=1)[:, -2:]
    return np.asarray(1 - (two[:, 1] - two[:, 0]))
