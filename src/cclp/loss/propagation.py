"""Eq. 5: the graph without self-loops -> class posteriors of the unlabeled points.

P (N_U, N) is H without self-loops, Y (N_L, C) the labels, Phi (N, C) the posteriors, labeled rows
clamped to Y. Self-loops cancel from the harmonic solution exactly,
phi_i (1 - H_ii) = sum_{j != i} H_ij phi_j, but not in floating point: with them I - H_UU turns
singular as embeddings grow.

A factorisation in float64 is right as long as walks meet a label soon: its error is about 1e-16
times the expected number of moves before that, which it tells itself. Where it cannot be trusted,
elimination without subtraction takes its place (:mod:`cclp.loss.elimination`). That is a decision
on values, which a GPU and a compiled function cannot take without waiting for them: there the walk
jumps to a random label with probability 1e-10 at each move, which bounds the number of moves.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from cclp.checks import check_choice, check_number
from cclp.loss.autograd import first_order, outside_autocast
from cclp.loss.elimination import Elimination, eliminate, elimination_gradient
from cclp.loss.graph import (
    Metric,
    Similarity,
    double,
    log_adjacency,
    make_metric,
    make_points,
    similarities,
)
from cclp.loss.inputs import Batch, Prior, make_batch, make_prior, values_visible

Propagation = Literal["harmonic", "symmetric"]
PROPAGATIONS = ("harmonic", "symmetric")
_ZHOU_ALPHA = 0.99
_BLIND_SMOOTHING = 1e-10  # where values cannot be looked at
_TRUSTED_MOVES = 1e6


def check_smoothing(smoothing: float | None) -> float | None:
    """None, or a probability below one."""
    if smoothing is None:
        return None
    value = check_number("smoothing", smoothing)
    if not 0 <= value < 1:
        raise ValueError(f"smoothing must be at least 0 and below 1, got {smoothing!r}")
    return value


def check_propagation(propagation: str) -> None:
    """One of the two variants."""
    check_choice("propagation", propagation, PROPAGATIONS)


class Posteriors(NamedTuple):
    """What label propagation found for the unlabeled points.

    Attributes:
        phi: Phi_U, (N_U, C), rows summing to one, in float64.
        moves: expected number of moves before a label is met, (N_U,), where it was computed.
    """

    phi: Tensor
    moves: Tensor | None


class Harmonic(NamedTuple):
    """A solution of Eq. 5, and what its derivative needs; in float64.

    Attributes:
        phi: Phi_U, (N_U, C), rows summing to one.
        moves: expected number of moves before a label is met, (N_U,).
        P: (N_U, N).
        jump: probability of a jump.
        factors: LU factors and pivots of I - P_UU, or the elimination that took their place.
    """

    phi: Tensor
    moves: Tensor
    P: Tensor
    jump: float
    factors: tuple[Tensor, Tensor] | Elimination


def solve_harmonic(
    log_A: Tensor, y: Tensor, smoothing: float | None, kept: torch.dtype
) -> Harmonic:
    """Phi_U of Eq. 5.

    Args:
        log_A: similarities of the unlabeled rows, (N_U, N), in float64; changed.
        y: Y_L, (N_L, C), in float64.
        smoothing: probability of a jump to a random label at each move; None is 0, or 1e-10 where
            values cannot be looked at.
        kept: dtype in which P is kept for the derivative, if it is in range.
    """
    n_l, visible = len(y), values_visible(log_A)
    jump = smoothing if smoothing is not None else 0.0 if visible else _BLIND_SMOOTHING
    log_A[:, n_l:].diagonal().fill_(-torch.inf)
    P = log_A.softmax(1)
    A = P[:, n_l:] * (jump - 1)
    A.diagonal().fill_(1)
    b = P[:, :n_l] @ y
    if jump:
        b = torch.add(jump * y.mean(0), b, alpha=1 - jump)
    b = torch.cat([b, b.new_ones(len(b), 1)], 1)
    # Rows of A are diagonally dominant, so columns of A' are: its pivots stay on the diagonal,
    # nothing but the diagonal is ever subtracted from, and small posteriors keep their digits.
    LU, pivots, _ = torch.linalg.lu_factor_ex(A.mT)
    solution = torch.linalg.lu_solve(LU, pivots, b, adjoint=True)
    phi, moves = solution[:, :-1], solution[:, -1]
    if visible:
        least, most = (bound.item() for bound in moves.aminmax())
        # The inverse of A is not negative, so the largest number of moves is its norm.
        if not (least > 0 and most < _TRUSTED_MOVES):
            P.nan_to_num_(0)  # rows of points that reach nothing
            phi, moves, done = eliminate(P, log_A, y, jump)
            return Harmonic(phi, moves, P, jump, done)
        if kept == torch.float32:
            P[:, n_l:].diagonal().fill_(1)  # zeros that are none of the smallest
            if P.amin() > 1e-30:  # nothing is lost, and half of the memory
                P = P.to(kept)
            P[:, n_l:].diagonal().fill_(0)
    phi = phi.clamp_min(0)
    return Harmonic(phi / phi.sum(1, keepdim=True), moves, P, jump, (LU, pivots))


def harmonic_gradient(found: Harmonic, y: Tensor, grad: Tensor) -> Tensor:
    """Derivative in the similarities of the unlabeled rows, (N_U, N), from that in Phi_U."""
    phi, _, P, jump, factors = found
    # Posteriors cannot move along the all-ones direction: what would only feed rounding goes.
    grad = grad - (grad * phi).sum(1, keepdim=True)
    if isinstance(factors, Elimination):
        return elimination_gradient(factors, P, phi, y, jump, grad)
    visits = torch.linalg.lu_solve(*factors, grad)
    # d/dlogit_ij = (1-eps) P_ij visits_i . (phi_j - sum_k P_ik phi_k), and (1-eps) times
    # that sum is phi_i less its share of jumps.
    level = (visits * (phi - jump * y.mean(0) if jump else phi)).sum(1, keepdim=True)
    everyone = torch.cat([y, phi]).T
    return torch.addmm(-level, visits, everyone, alpha=1 - jump).mul_(P)


def posteriors(
    batch: Batch,
    logits: Tensor,
    metric: Metric,
    *,
    smoothing: float | None,
    propagation: str,
    prior: Prior | None = None,
) -> Posteriors:
    """Propagate the labels of a batch over its graph.

    Args:
        batch: embeddings and labels.
        logits: its similarities, (N, N); the gradient goes through them.
        metric: what they were computed with.
        smoothing: probability of a jump to a random label at each move.
        propagation: ``"harmonic"`` (Eq. 5) or ``"symmetric"`` (the paper's footnote).
        prior: takes its share of the posteriors.
    """
    n_l, y = batch.y.shape[0], double(batch.y)
    moves = None
    if batch.z.shape[0] == n_l:
        phi = y[:0]
    elif propagation == "harmonic":
        exact = exact_similarities(batch.z, logits, metric)[n_l:]
        phi, moves, *_ = _Harmonic.apply(logits[n_l:], exact, y, smoothing)  # type: ignore[no-untyped-call]
    else:
        own = callable(metric.similarity)
        exact = double(logits) if own else similarities(double(batch.z), metric)
        phi = _symmetric(exact, y, _BLIND_SMOOTHING if smoothing is None else smoothing)
    if prior is not None:
        phi = phi.lerp(double(prior.phi), prior.weight)
    return Posteriors(phi, moves)


@torch.no_grad()
def exact_similarities(z: Tensor, logits: Tensor, metric: Metric) -> Tensor:
    """In float64 and in memory of its own. A callable is trusted with its own precision."""
    if callable(metric.similarity):
        return double(logits).clone()
    return log_adjacency(make_points(z, metric), metric)


def harmonic(log_A: Tensor, y: Tensor, smoothing: float | None) -> Tensor:
    """Phi_U of Eq. 5 for similarities in float64, (N_U, N), that may be minus infinity."""
    phi: Tensor
    phi, *_ = _Harmonic.apply(log_A, log_A.detach().clone(), y, smoothing)  # type: ignore[no-untyped-call]
    return phi


class _Harmonic(torch.autograd.Function):
    """Values come from ``exact``, the gradient goes to ``logits``, the similarities of rows U.

    What only the derivative needs is returned too: torch.func lets nothing else be kept.
    """

    @staticmethod
    def forward(
        logits: Tensor, exact: Tensor, y: Tensor, smoothing: float | None
    ) -> tuple[Tensor | float, ...]:
        phi, moves, P, jump, factors = solve_harmonic(exact, y, smoothing, logits.dtype)
        return phi, moves, P, *(factor for factor in factors if factor is not None), jump

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        logits, _, y, _ = inputs
        *tensors, ctx.jump = output
        ctx.save_for_backward(y, *tensors)
        ctx.mark_non_differentiable(*tensors[1:])
        ctx.set_materialize_grads(False)
        ctx.home, ctx.dtype = logits.device, logits.dtype

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor, None, None, None]:
        y, phi, moves, P, *factors = ctx.saved_tensors
        lu = len(factors) == 2 and not factors[1].is_floating_point()
        found = Harmonic(
            phi, moves, P, ctx.jump, (factors[0], factors[1]) if lu else Elimination(*factors)
        )
        with outside_autocast(grad.device):
            d = harmonic_gradient(found, y, grad)
        return d.to(ctx.home, ctx.dtype), None, None, None


def _symmetric(logits: Tensor, y: Tensor, smoothing: float) -> Tensor:
    """Zhou et al. (2004), the paper's footnote: F = (I - 0.99 S)^-1 Y over all points."""
    n, n_l = logits.shape[0], y.shape[0]
    loops = torch.eye(n, dtype=torch.bool, device=logits.device)
    # A callable may be asymmetric; S exists for a symmetric graph only.
    logits = ((logits + logits.T) / 2).masked_fill(loops, -torch.inf)
    degree = logits.logsumexp(1)
    S = (logits - (degree[:, None] + degree) / 2).exp()
    eye = loops.to(logits.dtype)
    sources = torch.cat([y, y.new_zeros(n - n_l, y.shape[1])])
    F, _ = torch.linalg.solve_ex(eye - _ZHOU_ALPHA * S, sources, check_errors=False)
    # A group that no label reaches (F = 0) is given the mean label.
    F_u = F[n_l:].clamp_min(0) + smoothing * y.mean(0)
    phi: Tensor = F_u / F_u.sum(1, keepdim=True)
    return phi


def propagate_labels(
    z_labeled: Tensor,
    labels: Tensor,
    z_unlabeled: Tensor | None,
    *,
    num_classes: int,
    similarity: Similarity = "dot",
    temperature: float | None = None,
    bandwidth: float | Tensor = 1.0,
    smoothing: float | None = None,
    propagation: Propagation = "harmonic",
    prior: Tensor | None = None,
    prior_weight: float = 1.0,
) -> Tensor:
    r"""Class posteriors of unlabeled points by label propagation in closed form.

    Eq. 5: :math:`\Phi_U = (I - H_{UU})^{-1} H_{UL} Y_L`.

    Args:
        z_labeled: embeddings of labeled points, (N_L, F).
        labels: class indices, (N_L,), or soft labels, (N_L, C), rows summing to one.
        z_unlabeled: embeddings of unlabeled points, (N_U, F), or None.
        num_classes: C.
        similarity, temperature, bandwidth: the graph, as in :func:`cclp.transition_matrix`.
        smoothing: probability of a jump to a random label at each move of the walk. It bends the
            result by about its product with the number of moves before a label is met. None: 0 on
            the CPU, 1e-10 on a GPU and in a compiled function, where nothing may wait for values.
            With ``"symmetric"``, a prior of that weight on the mean label; None is 1e-10.
        propagation: ``"harmonic"`` (Eq. 5) or ``"symmetric"`` (the paper's footnote).
        prior, prior_weight: posteriors known from elsewhere, (N_U, C), and their share in [0, 1].

    Returns:
        Φ_U, (N_U, C), rows in [0, 1] summing to one, in at least float32. Differentiable. On the
        CPU right to 1e-6 at every norm. A point that no label can reach (a callable may return
        -inf with ``"harmonic"``) has the mean label.

    Raises:
        TypeError, ValueError: for a wrong argument, which is named.

    Differences from the paper:
        Self-loops are removed first, which leaves the solution as it is. As printed, Eq. 5 loses
        all digits in float32 at embedding norms near 9.

    Examples:
        >>> import torch
        >>> phi = propagate_labels(
        ...     torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]),
        ...     torch.tensor([[2.0, 0.1], [1.0, 1.0]]), num_classes=2)
        >>> [[round(p, 2) for p in row] for row in phi.tolist()]
        [[0.94, 0.06], [0.66, 0.34]]
    """
    batch = make_batch(z_labeled, labels, z_unlabeled, num_classes)
    metric = make_metric(similarity, temperature, bandwidth)
    check_smoothing(smoothing)
    check_propagation(propagation)
    with outside_autocast(batch.z.device):
        logits = similarities(batch.z, metric)
        found = posteriors(
            batch,
            logits,
            metric,
            smoothing=smoothing,
            propagation=propagation,
            prior=make_prior(prior, prior_weight, batch),
        )
        return found.phi.to(batch.z)
