"""Eq. 6-9 at any dynamic range: in float64, and path by path where chains leave its range.

Symbols as in :mod:`cclp.loss.chains`, which turns here only if it must. An entry of K_s is lost if
it is zero in float64, though T or a longer chain needs it. Then it is computed as
log K_ij = log sum_k exp(log G_ik + log K_kj), k over all nodes, which costs N exponentials.
"""

from typing import NamedTuple

import torch
from torch import Tensor

NEGLIGIBLE = 1e-12  # of T: times any logarithm there may be, nothing beside the loss


class Chains(NamedTuple):
    """Sum of T_ij log H^(s)_ij over i, j and s, and its derivatives.

    Attributes:
        total: a scalar: -S N times Eq. 9, with 1/N for 1/N².
        dlogits: in the similarities, (N, N); None if not asked for.
        dPhi: in the posteriors, class-major, (C, N); None if not asked for.
    """

    total: Tensor
    dlogits: Tensor | None
    dPhi: Tensor | None  # noqa: N815


def class_shares(Phi: Tensor) -> Tensor:
    """U = phi_jc / m_c of Eq. 6, class-major, (C, N); exactly zero for a class without mass."""
    return Phi / Phi.sum(1, keepdim=True).clamp_min(torch.finfo(Phi.dtype).tiny)


def floor(dtype: torch.dtype) -> float:
    """Chains below it are out of range; its reciprocal is not. 1e-30 in float32."""
    return max(1e8 * torch.finfo(dtype).tiny, 1e-290)


def sum_paths(logits: Tensor, log_Phi: Tensor, chain_steps: int, gradient: bool) -> Chains:
    """What :func:`cclp.loss.chains.chains` returns, at any dynamic range.

    Args:
        logits: similarities, (N, N), in float64.
        log_Phi: logarithms of posteriors, class-major, (C, N), in float64.
        chain_steps: S, at least 2.
        gradient: whether derivatives are wanted.

    Returns:
        With the derivative in ``log_Phi`` for that in Phi.
    """
    Phi = log_Phi.exp()
    U = class_shares(Phi)
    T, M = Phi.T @ U, Phi.T @ Phi
    limit = floor(M.dtype)
    log_M = M.log()
    small = M < limit
    for i in small.any(1).nonzero().squeeze(1).tolist():
        columns = small[i].nonzero().squeeze(1)
        log_M[i, columns] = (log_Phi[:, i, None] + log_Phi[:, columns]).logsumexp(0)
    log_H = logits.log_softmax(1)
    log_G = log_M + log_H
    H, G = log_H.exp(), log_G.exp()
    needed = _needed(T, log_M, chain_steps)
    K, log_K = [H], [log_H]
    lost: list[Tensor] = []
    for _ in range(chain_steps - 1):
        K.append(G @ K[-1])  # Eq. 8
        lost.append((K[-1] < limit) & needed)
        K[-1].clamp_min_(1e-10 * limit)
        log_K.append(K[-1].log())
        _sum_lost(log_K[-1], lost[-1], log_G, log_K[-2])
    L = torch.stack(log_K).sum(0)
    LU = U @ L.T
    total = (Phi * LU).sum()
    if not gradient:
        return Chains(total, None, None)
    LtU = U @ L
    dlog_Phi = (LU + LtU - (U * LtU).sum(1, keepdim=True)).mul_(Phi)
    # D = d/dlog K_s, X = d/dK_s where K_s is in range, E = d/dlog G
    D, X = T.clone(), torch.zeros_like(T)
    E = torch.zeros_like(T)
    for s in range(chain_steps - 1, 0, -1):
        gone = lost[s - 1]
        X += D.masked_fill(gone, 0) / K[s]
        E.addcmul_(X @ K[s - 1].T, G)
        before = T.clone()
        _spread_lost(before, E, D, gone, log_G, log_K[s - 1], log_K[s])
        D, X = before, G.T @ X
    both = E + E.T  # d/dlog M, which is symmetric
    dlog_Phi += Phi * (Phi @ (both / M).masked_fill_(small, 0))
    for i in small.any(1).nonzero().squeeze(1).tolist():
        columns = (small[i] & (both[i] != 0)).nonzero().squeeze(1)
        share = log_Phi[:, i, None] + log_Phi[:, columns] - log_M[i, columns]
        dlog_Phi[:, i] += share.exp_() @ both[i, columns]
    D += E
    D.addcmul_(X, H)
    return Chains(total, D - H * D.sum(1, keepdim=True), dlog_Phi)


def _needed(T: Tensor, log_M: Tensor, chain_steps: int) -> Tensor:
    """Which entries of chains count: where T does, and what longer chains reach those by."""
    needed, related = T > NEGLIGIBLE, (log_M > -torch.inf).float()
    for _ in range(chain_steps - 2):
        more = needed | (related @ needed.float() > 0)
        if torch.equal(more, needed):
            break
        needed = more
    return needed


def _paths(i: int, lost: Tensor, log_G: Tensor, log_last: Tensor) -> tuple[Tensor, Tensor]:
    """Columns j of the lost entries of row i, and log G_ik + log K_kj for each, (J, N).

    ``log_last`` is transposed: log K_kj in row j.
    """
    columns = lost[i].nonzero().squeeze(1)
    return columns, log_last.index_select(0, columns).add_(log_G[i])


def _shares(paths: Tensor, whole: Tensor) -> Tensor:
    """exp(paths - whole), zero below 1e-35: exponentials that vanish are slow."""
    paths.sub_(whole[:, None])
    counts = paths > -80
    return paths.clamp_min_(-80).exp_().mul_(counts)


def _sum_lost(log_K: Tensor, lost: Tensor, log_G: Tensor, log_last: Tensor) -> None:
    log_last = log_last.T.contiguous()  # rows are read far faster than columns
    for i in lost.any(1).nonzero().squeeze(1).tolist():
        columns, paths = _paths(i, lost, log_G, log_last)
        top = paths.amax(1)
        log_K[i, columns] = _shares(paths, top).sum(1).log_().add_(top)


def _spread_lost(
    before: Tensor,
    E: Tensor,
    D: Tensor,
    lost: Tensor,
    log_G: Tensor,
    log_last: Tensor,
    log_K: Tensor,
) -> None:
    """Add the derivatives of lost entries to those in log K_(s-1) and in log G."""
    log_last, columnwise = log_last.T.contiguous(), torch.zeros_like(before)
    for i in lost.any(1).nonzero().squeeze(1).tolist():
        columns, paths = _paths(i, lost, log_G, log_last)
        share = _shares(paths, log_K[i, columns]).mul_(D[i, columns, None])
        E[i] += share.sum(0)
        columnwise.index_add_(0, columns, share)
    before += columnwise.T
