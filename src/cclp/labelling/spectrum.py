"""The leading eigenvectors of the graph: groups of samples, from the largest down."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from cclp.progress import Reporter
from cclp.pseudo_labels.solvers import ALPHA, normalised, product

DIMENSIONS = 48
_DEGREE, _ROUNDS = 24, 4  # of the polynomial, and how often it is applied
_CUT = 0.9  # eigenvalues of S above it are wanted

Floats = NDArray[np.float64]


def leading_vectors(
    W: sparse.csr_matrix, count: int = DIMENSIONS, report: Reporter | None = None
) -> tuple[Floats, Floats]:
    """Eigenvalues of S = D^(-1/2) W D^(-1/2) near 1, largest first, and their vectors, (n, count).

    By subspace iteration with Chebyshev polynomials (Zhou et al. 2006), which grow fast above
    ``_CUT`` and stay small below it. Vectors at the end of the list are approximate.
    """
    n = W.shape[0]
    count = min(count, n)
    S = normalised(W)
    if n <= 4 * count:
        values, vectors = np.linalg.eigh(S.toarray())
        return values[::-1][:count], vectors[:, ::-1][:, :count]
    multiply = product(S)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((n, count + 8))).float()
    half, centre = (_CUT + 1) / 2, (_CUT - 1) / 2  # of the interval that is damped, [−1, cut]
    with (report or Reporter()).work("Finding groups of samples", _ROUNDS * _DEGREE) as done:
        for _ in range(_ROUNDS):
            x = torch.linalg.qr(x)[0]
            before, now = x, (multiply(x) - centre * x) / half
            done(1)
            for _ in range(_DEGREE - 1):
                before, now = now, 2 / half * (multiply(now) - centre * now) - before
                done(1)
            x = now
    x = torch.linalg.qr(x)[0]
    small = (x.T @ multiply(x)).double().numpy()
    values, turn = np.linalg.eigh((small + small.T) / 2)
    order = values.argsort()[::-1][:count]
    return values[order], x.double().numpy() @ turn[:, order]


def kernel_factor(values: Floats) -> Floats:
    """Eigenvalues of (I − αS)⁻¹, from those of S."""
    return np.asarray(1 / (1 - ALPHA * values.clip(max=1)))
