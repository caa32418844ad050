r"""Eq. 2-9 with walks over the k most similar points: memory O(N k) in place of N².

H' is the softmax over the k most similar points and the point itself, where H is that over all. One
of the k is the most similar labeled point, so that no part of the graph is without labels. Labels
are propagated over H' (Eq. 5, without self-loops), and chains move by it, but for their last move,
which is one of H: K_s = (H' o M)^(s-1) H. So each transition has a probability of its own, none is
zero, and with k = N - 1 all is as in :mod:`cclp.loss.chains`.

Chains are multiplied some columns at a time, in float64, and one below 1e-290 counts as 1e-290. The
gradient is computed with the value, and nothing else outlives it. Time is O(N² (F + C + S k)).
Several processes that have the same batch take a part of the rows and columns each.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from cclp.loss.autograd import first_order
from cclp.loss.gather import my_share, sum_of_all, world_size
from cclp.loss.graph import Metric, check_bandwidth, check_range, double
from cclp.loss.inputs import Batch, Prior
from cclp.loss.krylov import solve
from cclp.loss.propagation import harmonic

ENTRIES = 2**18  # of a matrix of which some rows or columns are there at a time
LEAST = 64  # columns: each part of them costs as much as N rows of all gradients
DIRECT = 4000  # unlabeled points for which the solver of the whole graph is quick and small
SMOOTHING, HIGHEST = 1e-10, 1e-2  # of more points: where None is given, and what it is raised to
_LIMIT = 1e-290
_ACCURACY = 1e-8
_INEXACT = 1e4  # times the residual that is aimed at: worth a warning


class Settings(NamedTuple):
    """Of the loss: arguments of :func:`cclp.cclp_loss`."""

    neighbours: int
    chain_steps: int
    smoothing: float | None
    detach_posteriors: bool
    divided: bool  # all processes have the same batch: each does a part


def sparse_loss(batch: Batch, prior: Prior | None, metric: Metric, settings: Settings) -> Tensor:
    """-1/S sum_s sum_ij T_ij log K_s[i, j], a scalar.

    Args:
        batch: embeddings and labels.
        prior: takes its share of the posteriors.
        metric: a built-in similarity.
        settings: of the loss.
    """
    y, c = _points(batch.z, metric)
    # Several processes send the same numbers to each other, whether their own points learn or not.
    gradient = torch.is_grad_enabled() and (y.requires_grad or settings.divided)
    loss: Tensor
    loss, *_ = _Sparse.apply(y, c, double(batch.y), prior, settings, gradient)  # type: ignore[no-untyped-call]
    return loss.to(batch.z)


def _points(z: Tensor, metric: Metric) -> tuple[Tensor, Tensor]:
    """Y (N, F) and c (N,) with log A_ij = y_i . y_j + c_i + c_j, in float64."""
    x, scale = double(z), metric.temperature**0.5
    if metric.similarity == "cosine":  # as in cclp.loss.graph.make_points
        largest = x.detach().abs().amax(1, keepdim=True)
        nonzero = largest > 1e8 * torch.finfo(z.dtype).tiny
        largest = torch.where(nonzero, largest, 1)
        x = x / largest
        x = x / torch.where(nonzero, torch.where(nonzero, x, 1).norm(dim=1, keepdim=True), 1)
    y = x / scale
    if metric.similarity != "euclidean":
        return y, y.new_zeros(len(y))
    bandwidth = check_bandwidth(metric, z.shape[1])
    centred = y - y.detach().mean(0)
    y = centred / (metric.bandwidth if bandwidth is None else double(bandwidth))
    check_range(y.detach(), centred.detach(), z.dtype)
    return 2**0.5 * y, -y.square().sum(1)


class _Sparse(torch.autograd.Function):
    """The derivatives are computed with the value, returned after it."""

    @staticmethod
    def forward(
        y: Tensor,
        c: Tensor,
        labels: Tensor,
        prior: Prior | None,
        settings: Settings,
        gradient: bool,
    ) -> tuple[Tensor, ...]:
        return _loss_and_gradient(y.detach(), c.detach(), labels, prior, settings, gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:2], *output[1:])  # to refuse second derivatives in them
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        _, _, dy, dc = ctx.saved_tensors
        return dy * grad, dc * grad, None, None, None, None


def _loss_and_gradient(
    y: Tensor,
    c: Tensor,
    labels: Tensor,
    prior: Prior | None,
    settings: Settings,
    gradient: bool,
) -> tuple[Tensor, ...]:
    """The loss and, if wanted, its derivatives in ``y`` and ``c``."""
    n, n_l = len(y), len(labels)
    mine = list(_parts(n, n, least=LEAST))
    if settings.divided:
        mine = my_share(_parts(n, n, -(-n // world_size()), LEAST))
    index, to_all = _nearest(y, c, min(settings.neighbours, n - 1), n_l, mine)
    if settings.divided:
        sum_of_all([index, to_all])
    with torch.set_grad_enabled(gradient):
        y, c, to_all = (_leaf(x, gradient) for x in (y, c, to_all))
        near = _dots(y, index) + c[:, None] + c[index]
        own = (y * y).sum(1) + 2 * c
        phi = _propagate(index[n_l:], near[n_l:], labels, settings.smoothing)
        if prior is not None:
            phi = phi.lerp(double(prior.phi), prior.weight)
        if settings.detach_posteriors:
            phi = phi.detach()
        Phi = torch.cat([labels, phi])
        index = torch.cat([torch.arange(n, device=y.device)[:, None], index], 1)
        stays = torch.cat([own[:, None], near], 1).softmax(1) * _dots(Phi, index)
        heads = [y, c, to_all, stays, Phi]
        leaves = [_leaf(head, gradient) for head in heads]
        total, sums = y.new_zeros(()), [torch.zeros_like(leaf) for leaf in leaves]
        for columns in mine:
            part = _cross_entropy(index, columns, settings.chain_steps, *leaves)
            total += part.detach()
            if gradient:
                found = torch.autograd.grad(part, leaves, materialize_grads=True)
                for whole, own_part in zip(sums, found, strict=True):
                    whole += own_part
        if settings.divided:
            sum_of_all([total, *sums])
        if not gradient:
            return (total,)
        _send_back(heads, sums)
        assert to_all.grad is not None
        last = [torch.zeros_like(y), torch.zeros_like(c)]
        for rows in mine:
            part = _similarities(y, c, rows).logsumexp(1) @ to_all.grad[rows]
            for whole, own_part in zip(last, torch.autograd.grad(part, (y, c)), strict=True):
                whole += own_part
        if settings.divided:
            sum_of_all(last)
        assert y.grad is not None
        assert c.grad is not None
    return total, y.grad + last[0], c.grad + last[1]


def _leaf(x: Tensor, gradient: bool) -> Tensor:
    return x.detach().requires_grad_(gradient)


def _send_back(heads: list[Tensor], gradients: list[Tensor]) -> None:
    """Derivatives in ``heads`` to the leaves of autograd's graph."""
    kept = [(h, g) for h, g in zip(heads, gradients, strict=True) if h.requires_grad]
    torch.autograd.backward([h for h, _ in kept], [g for _, g in kept])


def _parts(count: int, width: int, most: int | None = None, least: int = 1) -> Iterator[slice]:
    """Slices of so many rows, or columns, that a part of a matrix of that width is not large."""
    size = max(1, min(most or count, max(least, ENTRIES // max(width, 1))))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _similarities(y: Tensor, c: Tensor, rows: slice) -> Tensor:
    """Some rows of log A."""
    return torch.addmm(c, y[rows], y.T) + c[rows, None]


@torch.no_grad()
def _nearest(
    y: Tensor, c: Tensor, k: int, n_l: int, parts: Sequence[slice]
) -> tuple[Tensor, Tensor]:
    """Indices of the k most similar others, (N, k), and logarithms of the row sums of A, (N,).

    Among those of an unlabeled point is the most similar of the ``n_l`` labeled ones. Rows that are
    in none of the ``parts`` are zero.
    """
    index, to_all = torch.zeros(len(y), k, dtype=torch.long, device=y.device), torch.zeros_like(c)
    for rows in parts:
        logs = _similarities(y, c, rows)
        to_all[rows] = logs.logsumexp(1)
        logs[:, rows].fill_diagonal_(-torch.inf)
        unlabeled = logs[max(n_l - rows.start, 0) :]
        unlabeled.scatter_(1, unlabeled[:, :n_l].argmax(1, keepdim=True), torch.inf)
        index[rows] = logs.topk(k, sorted=False).indices
    return index, to_all


def _dots(x: Tensor, index: Tensor) -> Tensor:
    """x_i . x_j for the indices j of each row i."""
    found: Tensor = _Dots.apply(x, index)  # type: ignore[no-untyped-call]
    return found


class _Dots(torch.autograd.Function):
    """Some rows after others: all rows of x that the indices name would be (N, k, F)."""

    @staticmethod
    def forward(x: Tensor, index: Tensor) -> Tensor:
        parts = _parts(len(index), index.shape[1] * x.shape[1])
        return torch.cat([torch.bmm(x[index[rows]], x[rows, :, None])[:, :, 0] for rows in parts])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, index = ctx.saved_tensors
        dx = torch.zeros_like(x)
        for rows in _parts(len(index), index.shape[1] * x.shape[1]):
            dx[rows] += torch.bmm(grad[rows, None], x[index[rows]])[:, 0]
            sent = grad[rows, :, None] * x[rows, None]
            dx.index_add_(0, index[rows].flatten(), sent.flatten(0, 1))
        return dx, None


def _cross_entropy(
    index: Tensor,
    columns: slice,
    chain_steps: int,
    y: Tensor,
    c: Tensor,
    to_all: Tensor,
    stays: Tensor,
    Phi: Tensor,
) -> Tensor:
    """-1/S sum_s sum_ij T_ij log K_s[i, j] for some columns j.

    Args:
        index: of the points that are near, and of the point itself.
        columns: j.
        chain_steps: S.
        y, c: of the similarities.
        to_all: logarithms of the row sums of A, (N,).
        stays: H'_ik M_ik for the indices k of each row.
        Phi: posteriors, (N, C).
    """
    U = Phi / Phi.sum(0).clamp_min(torch.finfo(Phi.dtype).tiny)
    T = Phi @ U[columns].T
    log_K = _similarities(y, c, columns).T - to_all[:, None]  # A is symmetric
    total, K = (T * log_K).sum(), log_K.exp()
    for _ in range(chain_steps - 1):
        K = _gather(index, stays, K)
        total = total + (T * K.clamp_min(_LIMIT).log()).sum()
    return -total / chain_steps


def _gather(index: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """Rows sum_k weights_ik x_j, j the k-th index of row i."""
    found: Tensor = embedding_bag(index, x, per_sample_weights=weights, mode="sum")
    return found


def _propagate(index: Tensor, near: Tensor, labels: Tensor, smoothing: float | None) -> Tensor:
    """Posteriors of the unlabeled points from their similarities to the k, both (N_U, k)."""
    n_u, n = len(index), len(labels) + len(index)
    if n_u <= DIRECT:
        log_A = near.new_full((n_u, n), -torch.inf).scatter(1, index, near)
        return harmonic(log_A, labels, smoothing) if n_u else labels[:0]
    found: Tensor = _Iterate.apply(index, near.softmax(1), labels, smoothing)  # type: ignore[no-untyped-call]
    return found


class _Iterate(torch.autograd.Function):
    """Eq. 5 over the sparse walk: probabilities of moves to posteriors of the unlabeled points.

    A residual is an error once it is multiplied by the number of moves before a label is met.
    """

    @staticmethod
    def forward(
        ctx: Any, index: Tensor, moves: Tensor, labels: Tensor, smoothing: float | None
    ) -> Tensor:
        ones, n_l = labels.new_ones(len(index), 1), len(labels)
        nothing = labels.new_zeros(len(index), labels.shape[1])
        arrived = _gather(index, moves, torch.cat([labels, nothing]))
        jump, raised = SMOOTHING if smoothing is None else smoothing, False
        while True:
            b = torch.cat([(1 - jump) * arrived + jump * labels.mean(0), ones], 1)

            def stay(x: Tensor, kept: float = 1 - jump) -> Tensor:
                zeros = x.new_zeros(n_l, x.shape[1])
                return x - kept * _gather(index, moves, torch.cat([zeros, x]))

            x, residual = solve(stay, b, lambda x: _ACCURACY / x[:, -1].abs().max().item())
            longest = x[:, -1].abs().max().item()
            if residual * longest <= _ACCURACY or not math.isfinite(residual):
                break  # embeddings that are not finite give a loss that is not
            if smoothing is not None or jump == HIGHEST:
                raise ValueError(
                    "neighbours: labels do not arrive at all points over the graph of the nearest "
                    f"with smoothing={jump:g}: raise smoothing, temperature or neighbours"
                )
            jump, raised = min(1e4 * jump, HIGHEST), True
        if raised:
            warnings.warn(
                f"neighbours: labels are propagated with smoothing={jump:g}, as they would not "
                "arrive at some points: a higher temperature or more neighbours would help",
                stacklevel=2,
            )
        phi = x[:, :-1].clamp_min(0)
        phi = phi / phi.sum(1, keepdim=True).clamp_min(torch.finfo(phi.dtype).tiny)
        ctx.save_for_backward(index, moves, labels, phi)
        ctx.kept, ctx.longest = 1 - jump, longest
        return phi

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, moves, labels, phi = ctx.saved_tensors
        everyone, kept = torch.cat([labels, phi]), float(ctx.kept)

        parts = list(_parts(len(index), index.shape[1] * labels.shape[1]))

        def stay_transposed(v: Tensor) -> Tensor:
            back = torch.zeros_like(everyone)
            for rows in parts:
                sent = moves[rows, :, None] * v[rows, None]
                back.index_add_(0, index[rows].flatten(), sent.flatten(0, 1))
            return v - kept * back[len(labels) :]

        grad = grad - (grad * phi).sum(1, keepdim=True)  # posteriors sum to one
        limit = _ACCURACY / ctx.longest * grad.abs().max().item()
        visits, residual = solve(stay_transposed, grad, lambda x: limit)
        if residual > _INEXACT * limit:
            warnings.warn(
                "neighbours: the gradient that reaches points through propagated labels is inexact "
                f"(a residual of {residual:.1e}): raise smoothing, temperature or neighbours",
                stacklevel=2,
            )
        visits = kept * visits
        dmoves = [
            torch.bmm(everyone[index[rows]], visits[rows, :, None])[:, :, 0] for rows in parts
        ]
        return None, torch.cat(dmoves), None, None
