"""Eq. 6-9: similarities and posteriors -> ideal transitions, Markov chains, their cross entropy.

H (N, N) transitions, Phi (N, C) posteriors, m (C,) class masses, U = Phi / m, T = Phi U' ideal
transitions (Eq. 6), M = Phi Phi' agreement, G = H o M, K_s = H^(s) = G H^(s-1) chains of s moves
(Eq. 8). All of it is positive: products lose no digits while they stay in range. So chains are
multiplied in float32 where all that T weights stays in its range, else in float64; and what leaves
that too, far points of one class at norms beyond 25, is left to sums over paths, as logarithms
(:mod:`cclp.loss.paths`). There is no floor under the logarithm.

On a GPU and in a compiled function no value may decide what is done next. There chains are
multiplied in float64, and one of two or more moves below 1e-290 counts as 1e-290.

Value and derivatives are computed in one go: nothing but the derivatives outlives it. T and M have
rank C. What has a class index is kept class-major, (C, N): products with a narrow right factor are
several times slower. Buffers are reused by hand, as a fresh N x N matrix can cost more than the
arithmetic that fills it.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cclp.loss.autograd import first_order
from cclp.loss.inputs import values_visible
from cclp.loss.paths import NEGLIGIBLE, Chains, class_shares, floor, sum_paths


class Blocks(NamedTuple):
    """Labeled nodes sorted by class: G is zero between nodes of different classes.

    Attributes:
        rows: of one or more classes each, in the order of the nodes.
        labeled: number of labeled nodes; those after them are unlabeled.
    """

    rows: tuple[slice, ...]
    labeled: int


def chains(
    logits: Tensor,
    Phi: Tensor,
    chain_steps: int,
    *,
    gradient: bool,
    blocks: Blocks | None = None,
) -> Chains | None:
    """Cross entropy between ideal transitions and Markov chains of 1 to ``chain_steps`` moves.

    Args:
        logits: similarities, (N, N), the logarithm of A in Eq. 2; overwritten.
        Phi: class posteriors, class-major, (C, N), columns summing to one, in float64: a chain may
            hang on a posterior that is zero in float32.
        chain_steps: S.
        gradient: whether derivatives are wanted.
        blocks: of G, where it is known to be zero outside of them. Then the derivative in
            posteriors of labeled nodes is left undefined.

    Returns:
        In the dtype it took; finite if ``logits`` are. None, with them as they were, if a chain
        that matters is out of any range: then :func:`cclp.loss.paths.sum_paths`.
    """
    dtypes = [torch.float64] if logits.dtype == torch.float64 else [torch.float32, torch.float64]
    if chain_steps > 1 and not values_visible(logits) and logits.device.type != "mps":
        dtypes = [torch.float64]
    for dtype in dtypes:
        found = _multiply(
            logits.to(dtype), Phi.to(logits.device, dtype), chain_steps, gradient, blocks
        )
        if found is not None:
            return found
    return None


def _multiply(
    logits: Tensor, Phi: Tensor, chain_steps: int, gradient: bool, blocks: Blocks | None
) -> Chains | None:
    """S-1 products of N x N matrices, and 2(S-1) for the derivatives.

    Returns:
        None, with ``logits`` as they were, if a chain that matters is out of range.
    """
    U = class_shares(Phi)
    H = logits.softmax(1)  # Eq. 3
    log_sums = logits.amax(1) - H.amax(1).log()
    links = [H]  # K_1 ... K_S
    if chain_steps > 1:
        G = (Phi.T @ Phi).mul_(H)
        buffer = torch.empty_like(H)
        visible, limit = values_visible(H), floor(H.dtype)
        # No chain is less likely than the least likely move after S-1 of the least likely stays.
        least = _log(H.amin()) + (chain_steps - 1) * _log(G.sum(1).amin()) if visible else -math.inf
        inside = least > math.log(limit)
        if not inside:
            # Products of denormal numbers take a hundred times as long.
            H.clamp_min_(torch.finfo(H.dtype).tiny)
            torch.threshold_(G, torch.finfo(G.dtype).tiny, 0)
            logits = logits.clone()
            matters = Phi.T @ U > NEGLIGIBLE
        product, factors = None, 0  # while a product of chains is in range, one logarithm does
        for s in range(2, chain_steps + 1):
            K = _product(G, links[-1], blocks)  # Eq. 8
            links.append(K)
            if not inside:
                if visible and bool((matters & (K < limit)).any()):
                    return None
                K.clamp_min_(1e-4 * limit)
            product = K if product is None else torch.mul(product, K, out=buffer)
            factors += 1
            if s == chain_steps or (factors + 1) * least < math.log(limit):
                logits.add_(torch.log(product, out=buffer))
                product, factors = None, 0
    # sum_ij T_ij L_ij = sum_ic phi_ic (L U)_ic: the value and its derivative in T are O(N² C).
    LU = (U @ logits.T).sub_(log_sums)  # rows of T sum to one
    total = (Phi * LU).sum()
    if not gradient:
        return Chains(total, None, None)
    LtU = U @ logits
    dPhi = LU.add_(LtU).sub_((U * LtU).sum(1, keepdim=True))
    if chain_steps == 1:
        T = torch.mm(Phi.T, U, out=logits)
    else:
        # X = d/dK_s. T is cheaper to compute again than to keep.
        X = links.pop()
        torch.div(torch.mm(Phi.T, U, out=buffer), X, out=X)
        dG = _outer_product(X, links[-1], blocks, logits, keep=False)
        free, X = X, _product(G.T, X, blocks, buffer)
        T = torch.mm(Phi.T, U, out=free)
        while len(links) > 1:
            K = links.pop()
            X.addcdiv_(T, K)
            _outer_product(X, links[-1], blocks, dG, keep=True)
            X = _product(G.T, X, blocks, K)
        T.addcmul_(dG, G).addcmul_(X, H)
        dM = dG.mul_(H)
        dPhi = torch.addmm(dPhi, Phi, dM).addmm_(Phi, dM.T)
    # T is now d/dlog H; then through the softmax.
    return Chains(total, T.addcmul_(H, T.sum(1, keepdim=True), value=-1), dPhi)


def _product(G: Tensor, K: Tensor, blocks: Blocks | None, out: Tensor | None = None) -> Tensor:
    """G K, without what is zero in G."""
    if out is None:
        out = torch.empty_like(K)
    if blocks is None:
        return torch.mm(G, K, out=out)
    n_l = blocks.labeled
    for rows in blocks.rows:
        torch.mm(G[rows, rows], K[rows], out=out[rows])
    out[:n_l].addmm_(G[:n_l, n_l:], K[n_l:])
    torch.mm(G[n_l:], K, out=out[n_l:])
    return out


def _outer_product(
    X: Tensor, K: Tensor, blocks: Blocks | None, out: Tensor, *, keep: bool
) -> Tensor:
    """X K' where G is not zero, added to ``out`` if that is to be kept."""
    beta = 1 if keep else 0
    if blocks is None:
        return out.addmm_(X, K.T, beta=beta)
    n_l = blocks.labeled
    for rows in blocks.rows:
        out[rows, rows].addmm_(X[rows], K[rows].T, beta=beta)
    out[:n_l, n_l:].addmm_(X[:n_l], K[n_l:].T, beta=beta)
    out[n_l:].addmm_(X[n_l:], K.T, beta=beta)
    return out


def _log(x: Tensor) -> float:
    value = x.item()
    return math.log(value) if value > 0 else -math.inf


class _ChainLoss(torch.autograd.Function):
    """The derivatives are returned after the value: torch.func lets nothing else be kept."""

    @staticmethod
    def forward(logits: Tensor, Phi: Tensor, chain_steps: int) -> tuple[Tensor, Tensor, Tensor]:
        found = chains(logits.clone(), Phi.T.contiguous(), chain_steps, gradient=True)
        if found is None:
            wide = Phi.T.double()
            found = sum_paths(logits.double(), wide.log(), chain_steps, True)
            assert found.dPhi is not None
            # what hangs on smaller ones could not be represented: they are constants here
            inside = wide > floor(wide.dtype)
            found = found._replace(dPhi=found.dPhi / torch.where(inside, wide, torch.inf))
        total, dlogits, dPhi = found
        assert dlogits is not None
        assert dPhi is not None
        # Phi may be on the CPU where logits are on a device without float64
        parts = (total, logits), (dlogits, logits), (dPhi.T, Phi)
        return tuple((part / -chain_steps).to(like) for part, like in parts)  # type: ignore[return-value]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:2], *output[1:])  # to refuse second derivatives in them
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor, Tensor, None]:
        _, _, dlogits, dPhi = ctx.saved_tensors
        return dlogits * grad, dPhi * grad, None


def chain_loss(logits: Tensor, Phi: Tensor, chain_steps: int) -> Tensor:
    """Eq. 9 without its 1/N²: -1/S sum_s sum_ij T_ij log H^(s)_ij.

    Args:
        logits: similarities, (N, N), the logarithm of A in Eq. 2.
        Phi: class posteriors, (N, C), rows summing to one, in float64.
        chain_steps: S.

    Returns:
        A scalar in the dtype of ``logits``. Value and gradient are finite for finite ``logits``.
    """
    loss: Tensor
    loss, *_ = _ChainLoss.apply(logits, Phi, chain_steps)  # type: ignore[no-untyped-call]
    return loss
