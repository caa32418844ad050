"""Eq. 5 by elimination that never subtracts: right where a factorisation is not.

Grassmann, Taksar and Heyman (1985). Nodes are eliminated from the last to the first: a move i -> k
becomes the moves i -> k -> j, W_ij += W_ik F_kj, where F_k is row k of W divided by its sum over
the nodes before k, labels among them. That sum stands where Gauss's elimination has its only
difference, the pivot 1 - W_kk. So every number is a sum or a product of positive ones, and every
posterior keeps its digits however long the walk takes.

W (N_U, N) holds in the end F_k, left of the diagonal, and W_ik as they were when k was eliminated,
right of it. The diagonal is never read. Derivatives are those of the elimination, in reverse. Below
the range of float64 all of it is done with logarithms, several times slower.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import solve_triangular

_BLOCK = 32
_LEAST_EXIT = 1e-290  # whatever is lost below 1e-308 is nothing beside it


class Elimination(NamedTuple):
    """What is left when all nodes are eliminated.

    Attributes:
        W: (N_U, N), see above.
        exits: the sums that rows of W were divided by, (N_U,).
        log_P: (N_U, N) if W and exits are logarithms, else None.
    """

    W: Tensor
    exits: Tensor
    log_P: Tensor | None = None  # noqa: N815


def eliminate(
    P: Tensor, log_A: Tensor, y: Tensor, jump: float
) -> tuple[Tensor, Tensor, Elimination]:
    """Solve Eq. 5.

    Args:
        P: transition probabilities of the unlabeled rows, (N_U, N), without self-loops.
        log_A: their similarities, with -inf for self-loops: looked at if P leaves the range.
        y: Y_L, (N_L, C).
        jump: probability of a jump to a random label at each move.

    Returns:
        Phi_U, (N_U, C), with the mean label where no label can be reached at all; the expected
        number of moves before a label is met, (N_U,); and what the derivative needs.
    """
    y = _targets(y, jump)
    if jump:
        P = torch.cat([P.new_full((len(P), 1), jump), (1 - jump) * P], 1)
    done = _eliminate(P, len(y))
    F = done.W
    if not bool(done.exits.min() > _LEAST_EXIT):
        done = _eliminate_logarithms(_log_moves(log_A, jump), len(y))
        F = done.W.exp()
    inside = F[:, len(y) :]
    phi = _substitute(inside, F[:, : len(y)] @ y)
    phi = phi / phi.sum(1, keepdim=True)  # one, but for rounding
    # I - P_UU = (exits - columns) (I - rows)
    exits = done.exits if done.log_P is None else done.exits.exp()
    columns = inside.triu(1).neg_()
    columns.diagonal().copy_(exits)
    moves = _substitute(inside, solve_triangular(columns, torch.ones_like(phi[:, :1]), upper=True))
    return phi, moves.squeeze(1).nan_to_num(torch.inf, torch.inf), done


def log_posteriors(log_A: Tensor, y: Tensor, jump: float) -> tuple[Tensor, Elimination]:
    """log Phi_U, (N_U, C), for who needs posteriors that are zero in float64, and what
    :func:`log_posteriors_gradient` needs.
    """
    log_y = _targets(y, jump).log()
    done = _eliminate_logarithms(_log_moves(log_A, jump), len(log_y))
    log_phi = torch.cat([log_y, log_y.new_empty(len(log_A), y.shape[1])])
    for k in range(len(log_y), len(log_phi)):
        log_phi[k] = (done.W[k - len(log_y), :k, None] + log_phi[:k]).logsumexp(0)
    return log_phi[len(log_y) :], done


def log_posteriors_gradient(
    done: Elimination, log_phi: Tensor, y: Tensor, jump: float, grad: Tensor
) -> Tensor:
    """Derivative in the similarities of the unlabeled rows, (N_U, N), from that in log Phi_U."""
    log_y = _targets(y, jump).log()
    n_l, W = len(log_y), done.W
    everyone = torch.cat([log_y, log_phi])
    slope = torch.cat([torch.zeros_like(log_y), grad])
    dF = torch.zeros_like(W)
    for k in range(len(W) - 1, -1, -1):
        m = n_l + k
        share = _share(W[k, :m, None] + everyone[:m] - log_phi[k])
        share.mul_(slope[m])
        slope[:m] += share
        dF[k, :m] = share.sum(1)
    d = _gradient_logarithms(done, dF, n_l)
    assert done.log_P is not None
    P = done.log_P.exp()
    if jump:  # a jump does not depend on the similarities
        d, P = d[:, 1:], P[:, 1:] / (1 - jump)
    return d.addcmul(P, d.sum(1, keepdim=True), value=-1)  # the softmax


def _log_moves(log_A: Tensor, jump: float) -> Tensor:
    """Logarithms of transition probabilities; -inf in a row that leads nowhere."""
    log_P = log_A.log_softmax(1).nan_to_num(-torch.inf, neginf=-torch.inf)
    if not jump:
        return log_P
    log_jump = log_P.new_full((len(log_P), 1), math.log(jump))
    return torch.cat([log_jump, log_P + math.log1p(-jump)], 1)


def _targets(y: Tensor, jump: float) -> Tensor:
    """A jump is a move to one more label, the mean of the others."""
    return torch.cat([y.mean(0, keepdim=True), y]) if jump else y


def _unit(F: Tensor) -> Tensor:
    """I - F strictly below the diagonal: to solve with it is to add."""
    return F.tril(-1).neg_().fill_diagonal_(1)


def _substitute(F: Tensor, b: Tensor) -> Tensor:
    """x_k = b_k + sum_{j < k} F_kj x_j, from the first node to the last."""
    x: Tensor = solve_triangular(_unit(F), b, upper=False, unitriangular=True)
    return x


def _eliminate(P: Tensor, n_l: int) -> Elimination:
    """In blocks: inside of one node by node, all before it by a product of matrices."""
    W, n_u = P.clone(), len(P)
    exits = P.new_empty(n_u)
    for end in range(n_u, 0, -_BLOCK):
        start = max(0, end - _BLOCK)
        block, inside, before = W[start:end], slice(n_l + start, n_l + end), n_l + start
        for k in range(end - 1, start - 1, -1):
            row = W[k, : n_l + k]
            exits[k] = row.sum()
            row.div_(exits[k])
            W[start:k, : n_l + k].addr_(W[start:k, n_l + k], row)
        if start:
            W[:start, inside] = columns = solve_triangular(
                _unit(block[:, inside]), W[:start, inside],
                upper=False, left=False, unitriangular=True,
            )  # fmt: skip
            W[:start, :before].addmm_(columns, block[:, :before])
    return Elimination(W, exits)


def _eliminate_logarithms(log_P: Tensor, n_l: int) -> Elimination:
    W, n_u = log_P.clone(), len(log_P)
    exits = W.new_empty(n_u)
    for k in range(n_u - 1, -1, -1):
        row, rest = W[k, : n_l + k], W[:k, : n_l + k]
        exits[k] = row.logsumexp(0)
        if exits[k] == -torch.inf:  # from here no label can be reached
            row[:n_l] = -math.log(n_l)
        else:
            row.sub_(exits[k])
        torch.logaddexp(rest, W[:k, n_l + k, None] + row, out=rest)
    return Elimination(W, exits, log_P)


def elimination_gradient(
    done: Elimination, P: Tensor, phi: Tensor, y: Tensor, jump: float, grad: Tensor
) -> Tensor:
    """Derivative in the similarities of the unlabeled rows, (N_U, N).

    Args:
        done: the elimination.
        P, y, jump: as :func:`eliminate` had them.
        phi: Phi_U, (N_U, C).
        grad: derivative in it, (N_U, C).
    """
    y = _targets(y, jump)
    everyone = torch.cat([y, phi])
    F = done.W if done.log_P is None else done.W.exp()
    inside = _unit(F[:, len(y) :])
    dF = solve_triangular(inside.mT, grad, upper=True, unitriangular=True) @ everyone.T
    if done.log_P is None:
        d = _gradient(done, dF, len(y))[:, -P.shape[1] :].mul_(P if jump == 0 else (1 - jump) * P)
    else:
        d = _gradient_logarithms(done, dF.mul_(F), len(y))[:, -P.shape[1] :]
    return d.addcmul_(P, d.sum(1, keepdim=True), value=-1)  # the softmax


def _gradient(done: Elimination, dF: Tensor, n_l: int) -> Tensor:
    """Derivative in P, (N_U, N), from what posteriors add to that in F, which is overwritten."""
    W, exits, _ = done
    Q = torch.zeros_like(W)
    for start in range(0, len(W), _BLOCK):
        end = min(len(W), start + _BLOCK)
        block, inside, before = W[start:end], slice(n_l + start, n_l + end), n_l + start
        if start:
            Q[:start, inside] = solve_triangular(
                _unit(block[:, inside]).mT, Q[:start, :before] @ block[:, :before].T,
                upper=True, left=False, unitriangular=True,
            )  # fmt: skip
            dF[start:end, : n_l + end].addmm_(W[:start, inside].T, Q[:start, : n_l + end])
        for k in range(start, end):
            m = n_l + k
            row, slope, above = W[k, :m], dF[k, :m], Q[start:k, :m]
            if k > start:
                Q[start:k, m] = above @ row
                slope.addmv_(above.T, W[start:k, m])
            torch.sub(slope, row @ slope, out=Q[k, :m]).div_(exits[k])
    return Q


def _gradient_logarithms(done: Elimination, dF: Tensor, n_l: int) -> Tensor:
    """Derivative in log P, (N_U, N), from what posteriors add to that in log F."""
    W, exits, log_P = done
    assert log_P is not None
    D = torch.zeros_like(W)
    sums = torch.where(torch.ones_like(W).tril(n_l - 1) > 0, W + exits[:, None], W)
    for k in range(len(W)):
        m = n_l + k
        # what a path by k has contributed to each sum
        share = _share(W[:k, m, None] + W[k, :m] - sums[:k, :m])
        share.mul_(D[:k, :m])
        D[:k, m] = share.sum(1)
        slope = share.sum(0).add_(dF[k, :m])
        if exits[k] > -torch.inf:
            D[k, :m] = slope - W[k, :m].exp() * slope.sum()
    return D.mul_(_share(log_P - sums))


def _share(logarithm: Tensor) -> Tensor:
    """What a part is of its sum, at most one: of logarithms near 1e17 rounding may leave more."""
    return logarithm.nan_to_num_(-torch.inf).clamp_max_(1).exp_()
