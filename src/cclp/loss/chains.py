"""Eq. 6-9: similarities and posteriors -> ideal transitions, Markov chains, the loss.

H (N, N) transitions, Phi (N, C) posteriors, m (C,) class masses, U = Phi / m, T = Phi U' ideal
transitions (Eq. 6), M = Phi Phi' agreement, G = H o M, H^(s) = G H^(s-1) chains of s moves (Eq. 8).

Chains shrink like C^-s. They are kept as H^(s) = exp(r_s) K_s, with rows of K_s summing to one and
r_s (N,) carried as a logarithm: K_s = B_s K_(s-1), where B_s is G exp(r_(s-1)) with its rows
normalised. Where K_s falls below the range of the dtype all the same (two tight clusters of one
class at norm 9), the sum over paths i -> k -> j is replaced by the larger of its two ends, k = i
and k = j, which have exact logarithms: max(G_ii H^(s-1)_ij, G_ij H^(s-1)_jj). So there is no floor
under the logarithm, and far points of a class attract each other at every norm.

Cost: T and M have rank C and never outlive the line that needs them. What has a class index is kept
class-major, (C, N): products with a narrow right factor are several times slower. Buffers are
reused by hand, as a fresh N x N matrix can cost more than the arithmetic that fills it.
"""

import math
from typing import Any

import torch
from torch import Tensor

from cclp.loss.autograd import first_order, outside_autocast
from cclp.loss.inputs import values_visible


def class_shares(Phi: Tensor) -> Tensor:
    """U = phi_jc / m_c of Eq. 6, class-major, (C, N); exactly zero for a class without mass."""
    return Phi / Phi.sum(1, keepdim=True).clamp_min(torch.finfo(Phi.dtype).tiny)


def chain_loss(logits: Tensor, Phi: Tensor, chain_steps: int) -> Tensor:
    """Cross entropy between ideal transitions and Markov chains of 1 to ``chain_steps`` moves.

    Eq. 9 without its 1/N²: -1/S sum_s sum_ij T_ij log H^(s)_ij.

    Args:
        logits: similarities, (N, N), the logarithm of A in Eq. 2.
        Phi: class posteriors, (N, C), rows summing to one.
        chain_steps: S.

    Returns:
        A scalar. Value and gradient are finite for finite ``logits``.
    """
    loss: Tensor
    loss, *_ = _ChainLoss.apply(logits, Phi, chain_steps)  # type: ignore[no-untyped-call]
    return loss


def _floor(dtype: torch.dtype) -> float:
    """Below it K_s counts as faint; its reciprocal can still be multiplied. 1e-30 in float32."""
    return 1e8 * torch.finfo(dtype).tiny


def _normalise_rows(B: Tensor) -> Tensor:
    """Divide the rows of B by their sums, in place, and return the sums."""
    total = B.sum(1).clamp_min_(torch.finfo(B.dtype).tiny)
    B.div_(total[:, None])
    return total


def _likelier_path(
    log_K: Tensor, K: Tensor, log_G: Tensor, log_last: Tensor
) -> tuple[Tensor, Tensor]:
    """Replace faint entries of log H^(s) by the likelier of the paths by i and by j.

    Returns:
        log H^(s), and the route of each entry: 1 by i, 0 by j, -1 where K_s is not faint.
    """
    by_i = log_last + log_G.diagonal()[:, None]
    by_j = log_G + log_last.diagonal()
    seen = K > _floor(K.dtype)
    route = (by_i >= by_j).to(K.dtype).masked_fill_(seen, -1)
    return torch.where(seen, log_K, torch.maximum(by_i, by_j)), route


def _not_faint(D: Tensor, K: Tensor, route: Tensor) -> Tensor:
    """D / K, and zero where K is faint."""
    return (D * route.clamp_max(0)).div_(K.clamp_min(_floor(K.dtype))).neg_()


class _ChainLoss(torch.autograd.Function):
    """S-1 products of N x N matrices forward, 2(S-1) backward, S+1 matrices kept in between.

    They are returned after the loss: torch.func lets nothing else be kept.
    """

    @staticmethod
    def forward(logits: Tensor, Phi: Tensor, chain_steps: int) -> tuple[Tensor, ...]:
        Phi = Phi.T.clone(memory_format=torch.contiguous_format)  # never a view of what came
        U = class_shares(Phi)
        log_H = logits.log_softmax(1)  # Eq. 3
        floor = _floor(log_H.dtype)
        # Denormal numbers are slow to make and to take logarithms of: keep clear of them.
        H = log_H.clamp_min(math.log(torch.finfo(log_H.dtype).tiny) + 1).exp_()
        links = [H]  # K_1 ... K_(S-1), then T / K_S, which is all the derivative needs of it
        moves = []  # B_2, and what turns it into B_3 ... B_S: exp(r_(s-1)) and the row sums
        routes = []  # if faint
        r_sum = H.new_zeros(H.shape[0])  # sum of r_s, where log_sum leaves them out
        log_sum = log_H
        faint = False
        if chain_steps > 1:
            B = B_2 = (Phi.T @ Phi).mul_(H)
            r = r_2 = _normalise_rows(B_2).log()
            moves.append(B_2)
            buffer = torch.empty_like(H)
            # If rows of B_s sum to one, no K_s is smaller than the smallest entry of H; and they
            # do, if the weights of B_s are in range, which differ by at most (s-2) min r_2.
            least = torch.minimum(log_H.min(), (chain_steps - 2) * r_2.min())
            faint = not (values_visible(least) and bool(least > math.log(floor)))
        if faint:
            log_G = (Phi.T @ Phi).log_().add_(log_H)
            log_sum, log_last = log_H.clone(), log_H
        for s in range(2, chain_steps + 1):
            if s > 2:
                top = r.max()
                weights = (r - top).exp_()
                B = torch.mul(B_2, weights, out=buffer)
                total = _normalise_rows(B)
                r = total.log().add_(r_2).add_(top)
                moves += [weights, total]
            K = B @ links[-1]  # Eq. 8
            if faint:
                log_K = torch.clamp_min(K, floor, out=buffer).log_().add_(r[:, None])
                log_K, route = _likelier_path(log_K, K, log_G, log_last)
                log_last = log_K
                routes.append(route)
            else:
                log_K = torch.log(K, out=buffer)
                r_sum += r
            log_sum.add_(log_K)
            links.append(K)
        if chain_steps > 1:
            T = torch.mm(Phi.T, U, out=buffer)
            K = links[-1]
            links[-1] = _not_faint(T, K, routes[-1]) if faint else torch.div(T, K, out=K)
        # sum_ij T_ij L_ij = sum_ic phi_ic (L U)_ic: the loss and its derivative in T are O(N² C).
        LU = (U @ log_sum.T).add_(r_sum)  # rows of T sum to one
        LtU = U @ log_sum
        loss = (Phi * LU).sum() / -chain_steps  # Eq. 9
        slope = LU.add_(LtU).sub_((U * LtU).sum(1, keepdim=True))
        return loss, Phi, U, slope, *links, *moves, *routes

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, *kept = output
        ctx.save_for_backward(*kept)
        ctx.mark_non_differentiable(*kept)
        ctx.set_materialize_grads(False)
        ctx.chain_steps = inputs[2]

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor, Tensor, None]:
        chain_steps = ctx.chain_steps
        Phi, U, dPhi, *rest = ctx.saved_tensors
        links, rest = rest[:chain_steps], rest[chain_steps:]
        count = max(0, 2 * chain_steps - 3)  # B_2, and two for each later move
        moves, routes = rest[:count], rest[count:]
        faint = bool(routes)
        H = links[0]
        with outside_autocast(H.device):
            if chain_steps == 1:
                dlog_H = Phi.T @ U
            else:
                # X = d/dK_s, E = d/dlog G, D = d/dlog H^(s), which is T unless chains are faint.
                # Scales are constants: the loss does not see them.
                B_2, X = moves[0], links[-1]
                E, buffer, spare = torch.zeros_like(H), torch.empty_like(H), torch.empty_like(H)
                if faint:
                    D = Phi.T @ U
                for s in range(chain_steps, 1, -1):
                    B = B_2
                    if s > 2:
                        weights, total = moves[2 * s - 5], moves[2 * s - 4]
                        B = torch.mul(B_2, weights, out=buffer).div_(total[:, None])
                    E.addcmul_(torch.mm(X, links[s - 2].T, out=spare), B)
                    last, X = X, torch.mm(B.T, X, out=spare)
                    if faint:
                        by_i = D * routes[s - 2].clamp_min(0)
                        by_j = D.addcmul_(D, routes[s - 2].abs(), value=-1)
                        E.add_(by_j).diagonal().add_(by_i.sum(1))
                        D = by_i.addmm_(Phi.T, U)
                        D.diagonal().add_(by_j.sum(0))
                        if s > 2:
                            X += _not_faint(D, links[s - 2], routes[s - 3])
                    elif s > 2:
                        X.addcdiv_(torch.mm(Phi.T, U, out=buffer), links[s - 2])
                    # Where the next product goes. The first X is not ours to overwrite, and the
                    # last move, B_2 itself, leaves its buffer free.
                    spare = buffer if s == 3 else torch.empty_like(H) if s == chain_steps else last
                if ctx.needs_input_grad[1]:
                    # Where M = 0 so is E: the floor only keeps 0/0 away. (Two labels that differ,
                    # or a class that unlabeled points cannot have: neither moves.)
                    M = torch.mm(Phi.T, Phi, out=spare).clamp_min_(_floor(H.dtype))
                    dM = torch.div(E, M, out=spare)
                    dPhi = torch.addmm(dPhi, Phi, dM).addmm_(Phi, dM.T)
                E = E.add_(D) if faint else E.addmm_(Phi.T, U)
                dlog_H = E.addcmul_(X, H)
            dlogits = dlog_H.addcmul_(H, dlog_H.sum(1, keepdim=True), value=-1)  # the softmax
            scale = grad / -chain_steps
        return dlogits.mul_(scale), dPhi.T * scale, None
