"""Reference for CCLP in float64 NumPy: Algorithm 1 of the paper written out in plain loops.

Equation numbers are those of Kamnitsas et al., ICML 2018. Labeled points always come first.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def _log_sum_exp(values: Iterable[float]) -> float:
    """Logarithm of the sum of exponentials."""
    values = [float(value) for value in values]
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def _softmax(values: Iterable[float]) -> list[float]:
    """Exponentials divided by their sum; only the maximum is subtracted."""
    values = [float(value) for value in values]
    top = max(values)
    weights = [math.exp(value - top) for value in values]
    total = sum(weights)
    return [weight / total for weight in weights]


def _product(A: Array, B: Array) -> Array:
    """Product of two matrices, entry by entry."""
    AB = np.zeros((A.shape[0], B.shape[1]))
    for i in range(A.shape[0]):
        for j in range(B.shape[1]):
            AB[i, j] = np.dot(A[i, :], B[:, j])
    return AB


def similarity(
    Z: Array, kind: str = "dot", temperature: float = 1.0, bandwidth: float | Array = 1.0
) -> Array:
    """Logarithm of the adjacency matrix of Eq. 2; a zero vector has cosine 0 with every point."""
    n, n_features = Z.shape
    sigma = np.broadcast_to(np.asarray(bandwidth, dtype=np.float64), (n_features,))
    logits = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            dot = sum(float(Z[i, f]) * float(Z[j, f]) for f in range(n_features))
            if kind == "dot":
                value = dot
            elif kind == "cosine":
                norm_i = math.sqrt(sum(float(z) ** 2 for z in Z[i]))
                norm_j = math.sqrt(sum(float(z) ** 2 for z in Z[j]))
                value = dot / (norm_i * norm_j) if norm_i > 0 and norm_j > 0 else 0.0
            elif kind == "euclidean":
                value = 0.0
                for f in range(n_features):
                    value -= float(Z[i, f] - Z[j, f]) ** 2 / float(sigma[f]) ** 2
            else:
                raise ValueError(f"unknown similarity: {kind}")
            logits[i, j] = value / temperature
    return logits


def transition_matrix(logits: Array) -> Array:
    """Eq. 2-3: H_ij = A_ij / sum_k A_ik with A = exp(logits), self-loops included."""
    H = np.zeros(logits.shape)
    for i in range(len(logits)):
        H[i, :] = _softmax(logits[i])
    return H


def propagate(H: Array, Y_L: Array) -> Array:
    """Eq. 5 as printed: Phi_U = (I - H_UU)^-1 H_UL Y_L."""
    n_labeled = len(Y_L)
    # Eq. 4, with rows = from and columns = to, as Eq. 5 needs it.
    H_UL, H_UU = H[n_labeled:, :n_labeled], H[n_labeled:, n_labeled:]
    # Eq. 5
    Phi_U = np.linalg.solve(np.eye(len(H_UU)) - H_UU, _product(H_UL, Y_L))
    return Phi_U.astype(np.float64)


def propagate_by_iteration(H: Array, Y_L: Array, iterations: int) -> Array:
    """The iteration behind Eq. 5: Phi <- H Phi with the labeled rows clamped to Y_L."""
    n_labeled = len(Y_L)
    Phi = np.zeros((len(H), Y_L.shape[1]))
    Phi[:n_labeled] = Y_L
    for _ in range(iterations):
        Phi = _product(H, Phi)
        Phi[:n_labeled] = Y_L
    return Phi[n_labeled:]


def propagate_exactly(logits: Array, Y_L: Array) -> Array:
    """The solution of Eq. 5 by GTH elimination without self-loops, right at any dynamic range.

    No two weights are ever subtracted; they are kept as logarithms, so that none becomes zero.
    """
    n, n_labeled = len(logits), len(Y_L)
    # Off-diagonal weights, row maximum subtracted. The scale of a row has no influence.
    W = np.full((n, n), -math.inf)
    for i in range(n_labeled, n):
        top = max(float(logits[i, j]) for j in range(n) if j != i)
        for j in range(n):
            if j != i:
                W[i, j] = logits[i, j] - top
    # Elimination: a step i -> k becomes steps i -> k -> j, where k moves on to j < k with
    # probability W_kj / (sum of W_k over the nodes before k). Self-loops i -> k -> i are dropped.
    for k in range(n - 1, n_labeled - 1, -1):
        total = _log_sum_exp(W[k, :k])
        for i in range(n_labeled, k):
            for j in range(k):
                if j != i:
                    W[i, j] = np.logaddexp(W[i, j], W[i, k] + (W[k, j] - total))
    # Back-substitution: each node is a weighted mean of the nodes before it.
    Phi = np.zeros((n, Y_L.shape[1]))
    Phi[:n_labeled] = Y_L
    for i in range(n_labeled, n):
        weights = _softmax(W[i, :i])
        for j in range(i):
            Phi[i, :] += weights[j] * Phi[j, :]
    return Phi[n_labeled:]


def propagate_symmetrically(logits: Array, Y_L: Array) -> Array:
    """The variant in the paper's footnote: F = (I - 0.99 S)^-1 Y, rows normalised."""
    n, n_labeled = len(logits), len(Y_L)
    if n == n_labeled:
        return np.zeros((0, Y_L.shape[1]))
    # S = D^-1/2 A D^-1/2 with zero diagonal, from logarithms.
    lse = [_log_sum_exp(logits[i, j] for j in range(n) if j != i) for i in range(n)]
    S = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                S[i, j] = math.exp(logits[i, j] - (lse[i] + lse[j]) / 2)
    # Labels, zero for unlabeled rows.
    Y = np.concatenate([Y_L, np.zeros((n - n_labeled, Y_L.shape[1]))])
    F = np.linalg.solve(np.eye(n) - 0.99 * S, Y)
    # Only unlabeled rows are returned; labeled rows are clamped to Y_L.
    Phi_U = np.zeros((n - n_labeled, Y_L.shape[1]))
    for i in range(n_labeled, n):
        Phi_U[i - n_labeled, :] = F[i, :] / sum(float(f) for f in F[i])
    return Phi_U


def cross_entropy_of_chains(
    H: Array, Phi: Array, steps: int, mass_offset: float, log_offset: float
) -> float:
    """Sum over s, i and j of -T_ij log H^(s)_ij: Eq. 6, 8 and 9 without the factor in front."""
    n, n_classes = Phi.shape
    # Eq. 6: T_ij = sum_c phi_ic phi_jc / m_c; a class without mass contributes nothing.
    T = np.zeros((n, n))
    for c in range(n_classes):
        mass = sum(float(phi) for phi in Phi[:, c])
        if mass > 0:
            for i in range(n):
                for j in range(n):
                    T[i, j] += Phi[i, c] * Phi[j, c] / (mass + mass_offset)
    # Agreement of labels: M = Phi Phi^T, and H o M.
    H_and_M = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            H_and_M[i, j] = H[i, j] * np.dot(Phi[i], Phi[j])
    total, H_s = 0.0, H
    for s in range(1, steps + 1):
        # Eq. 8: H^(s) = (H o M) H^(s-1), H^(1) = H.
        if s > 1:
            H_s = _product(H_and_M, H_s)
        # Eq. 9 (Eq. 7 for s = 1); 0 log 0 = 0.
        for i in range(n):
            for j in range(n):
                if T[i, j] != 0:
                    p = float(H_s[i, j]) + log_offset
                    total -= float(T[i, j]) * (math.log(p) if p > 0 else -math.inf)
    return total


def cclp_as_printed(
    Z_L: Array, Y_L: Array, Z_U: Array, steps: int, **similarity_options: Any
) -> float:
    """L_CCLP of Algorithm 1 (Eq. 9) with the printed factor 1 / (S N^2)."""
    Z = np.concatenate([Z_L, Z_U])
    H = transition_matrix(similarity(Z, **similarity_options))
    Phi = np.concatenate([Y_L, propagate(H, Y_L)])
    return cross_entropy_of_chains(H, Phi, steps, 0.0, 0.0) / (steps * len(Z) ** 2)


def cclp_as_released(
    Z_L: Array, Y_L: Array, Z_U: Array, steps: int, **similarity_options: Any
) -> float:
    """What the authors' TensorFlow code computes: smoothed H, two offsets, factor 1 / (S N).

    A single unlabeled sample is dropped.
    """
    Z = np.concatenate([Z_L, Z_U] if len(Z_U) > 1 else [Z_L])
    n, eps = len(Z), 1e-5
    H = eps / n + (1 - eps) * transition_matrix(similarity(Z, **similarity_options))
    Phi = np.concatenate([Y_L, propagate(H, Y_L)])
    return cross_entropy_of_chains(H, Phi, steps, 1e-5, 1e-6) / (steps * n)


def cclp_over_neighbours(
    Z_L: Array, Y_L: Array, Z_U: Array, steps: int, k: int, jump: float, **similarity_options: Any
) -> float:
    """The loss with walks over the k most similar points, as ``neighbours=k`` defines it."""
    Z, n_labeled = np.concatenate([Z_L, Z_U]), len(Y_L)
    logits = similarity(Z, **similarity_options)
    n = len(logits)
    P, near = np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        others = sorted((j for j in range(n) if j != i), key=lambda j: -logits[i, j])
        if i >= n_labeled:  # the most similar labeled point is always one of them
            others.sort(key=lambda j: j != max(range(n_labeled), key=lambda j: logits[i, j]))
        others = others[:k]
        P[i, others] = _softmax(logits[i, others])
        near[i, [i, *others]] = _softmax(logits[i, [i, *others]])
    # Eq. 5, with a jump to a random label
    b = (1 - jump) * _product(P[n_labeled:, :n_labeled], Y_L) + jump * Y_L.mean(0)
    A = np.eye(n - n_labeled) - (1 - jump) * P[n_labeled:, n_labeled:]
    Phi = np.concatenate([Y_L, np.linalg.solve(A, b)])
    # Eq. 8: all moves but the last go over near points.
    H, total = transition_matrix(logits), 0.0
    mass = Phi.sum(0)
    T = _product(Phi, (Phi / np.where(mass > 0, mass, 1)).T)
    H_s = H
    for s in range(1, steps + 1):
        if s > 1:
            H_s = _product(near * _product(Phi, Phi.T), H_s)
        total -= float((T * np.log(H_s))[T > 0].sum())
    return total / (steps * n)
