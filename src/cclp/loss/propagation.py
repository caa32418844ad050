"""Eq. 5: the graph without self-loops -> class posteriors of the unlabeled points.

P (N_U, N) is H without self-loops, Y (N_L, C) the labels, Phi (N, C) the posteriors, labeled rows
clamped to Y. Self-loops cancel from the harmonic solution exactly,
phi_i (1 - H_ii) = sum_{j != i} H_ij phi_j, but not in floating point: with them I - H_UU turns
singular as embeddings grow.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from cclp.checks import check_choice, check_number
from cclp.loss.autograd import first_order, outside_autocast
from cclp.loss.graph import Metric, Similarity, make_metric, similarities
from cclp.loss.inputs import Batch, Prior, make_batch, make_prior

Propagation = Literal["harmonic", "symmetric"]
PROPAGATIONS = ("harmonic", "symmetric")
_ZHOU_ALPHA = 0.99


def check_smoothing(smoothing: float) -> float:
    """A probability below one."""
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
        phi: Phi_U, (N_U, C), rows summing to one, in the dtype of the batch.
        mass: sums of its rows before they were normalised, (N_U,): one, but for rounding.
    """

    phi: Tensor
    mass: Tensor


def posteriors(
    batch: Batch,
    logits: Tensor,
    metric: Metric,
    *,
    smoothing: float,
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
    y = _double(batch.y)
    if batch.z.shape[0] == batch.num_labeled:
        phi, mass = y[:0], y[:0, 0]
    elif propagation == "harmonic":
        P = _moves(batch, logits, metric)
        phi, mass, *_ = _Harmonic.apply(logits[batch.num_labeled :], P, y, smoothing)  # type: ignore[no-untyped-call]
    else:
        own = callable(metric.similarity)
        exact = _double(logits) if own else similarities(_double(batch.z), metric)
        phi, mass = _symmetric(exact, y, smoothing)
    phi = phi.to(batch.z.device, batch.z.dtype)
    return Posteriors(phi if prior is None else phi.lerp(prior.phi, prior.weight), mass)


def _double(x: Tensor) -> Tensor:
    # Apple's MPS has neither float64 nor a trustworthy backward of a solve.
    return x.to("cpu" if x.device.type == "mps" else x.device, torch.float64)


@torch.no_grad()
def _moves(batch: Batch, logits: Tensor, metric: Metric) -> Tensor:
    """P, (N_U, N), in float64.

    Similarities are computed anew from Z: with float32 logits a single blob at norm 1000 is off
    by 3e-2. A callable is trusted with its own precision.
    """
    n_l = batch.num_labeled
    if callable(metric.similarity) or logits.dtype == torch.float64:
        P = _double(logits[n_l:]).clone()
    else:
        P = similarities(_double(batch.z), metric, first_row=n_l)
    P[:, n_l:].diagonal().fill_(-torch.inf)
    return P.softmax(1)


class _Harmonic(torch.autograd.Function):
    """(I - P_UU) Phi_U = P_UL Y in float64: one LU factorisation, forward and backward.

    Values come from ``P``, the gradient goes to ``logits``, the similarities of rows U. What only
    the derivative needs is returned too: torch.func lets nothing else be kept.
    """

    @staticmethod
    def forward(logits: Tensor, P: Tensor, y: Tensor, smoothing: float) -> tuple[Tensor, ...]:
        n_l = y.shape[0]
        # The teleport bounds the condition number by 1/smoothing where a tight group of unlabeled
        # points hardly ever reaches a label.
        jump = smoothing * y.mean(0)
        A = P[:, n_l:] * (smoothing - 1)
        A.diagonal().fill_(1)
        b = torch.addmm(jump, P[:, :n_l], y, alpha=1 - smoothing)
        # Rows of A are diagonally dominant, so columns of A' are: its pivots stay on the diagonal,
        # nothing but the diagonal is ever subtracted from, and small posteriors keep their digits.
        LU, pivots, _ = torch.linalg.lu_factor_ex(A.mT)
        phi = torch.linalg.lu_solve(LU, pivots, b, adjoint=True).clamp_min_(0)
        mass = phi.sum(1)
        phi.div_(mass[:, None])
        return phi, mass, LU, pivots, jump

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, P, y, ctx.smoothing = inputs
        # The derivative in the logits is rounded to their dtype anyway: keep P in it.
        ctx.save_for_backward(P.to(logits.dtype), y, *output)
        ctx.home = logits.device
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor, None, None, None]:
        P, y, phi, mass, LU, pivots, jump = ctx.saved_tensors
        with outside_autocast(grad.device):
            # Through the normalisation of rows. Posteriors cannot move along the all-ones
            # direction, so this also removes what would only feed rounding.
            grad = (grad - (grad * phi).sum(1, keepdim=True)) / mass[:, None]
            visits = torch.linalg.lu_solve(LU, pivots, grad)
            # d/dlogit_ij = (1-eps) P_ij visits_i . (phi_j - sum_k P_ik phi_k), and (1-eps) times
            # that sum is phi_i less its share of jumps.
            level = (visits * (phi - jump)).sum(1, keepdim=True)
            everyone = torch.cat([y, phi]).T
            d = torch.addmm(-level, visits, everyone, alpha=1 - ctx.smoothing).mul_(P)
        return d.to(ctx.home, P.dtype), None, None, None


def _symmetric(logits: Tensor, y: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
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
    phi = F_u / F_u.sum(1, keepdim=True)
    return phi, phi.sum(1)


def propagate_labels(
    z_labeled: Tensor,
    labels: Tensor,
    z_unlabeled: Tensor | None,
    *,
    num_classes: int,
    similarity: Similarity = "dot",
    temperature: float | None = None,
    bandwidth: float | Tensor = 1.0,
    smoothing: float = 1e-10,
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
            result by about its product with the number of moves before a label is met.
            With ``"symmetric"``, a prior of that weight on the mean label.
        propagation: ``"harmonic"`` (Eq. 5) or ``"symmetric"`` (the paper's footnote).
        prior, prior_weight: posteriors known from elsewhere, (N_U, C), and their share in [0, 1].

    Returns:
        Φ_U, (N_U, C), rows in [0, 1] summing to one, in at least float32. Differentiable.

    Raises:
        TypeError, ValueError: for a wrong argument, which is named.

    Differences from the paper:
        Self-loops are removed first, which leaves the solution as it is, and the solve runs in
        float64 with a jump of probability ``smoothing``. As printed, Eq. 5 loses all digits in
        float32 at embedding norms near 9.

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
        return posteriors(
            batch,
            logits,
            metric,
            smoothing=smoothing,
            propagation=propagation,
            prior=make_prior(prior, prior_weight, batch),
        ).phi
