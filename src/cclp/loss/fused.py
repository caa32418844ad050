"""Eq. 2 to 9 in one go, for a built-in similarity: what :func:`cclp.cclp_loss` usually is.

The same functions that graph, propagation and chains offer, without autograd between them. So
nothing but the gradient in Z outlives the call, and buffers are shared.
"""

import inspect
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cclp.loss.autograd import first_order
from cclp.loss.chains import Blocks, chains
from cclp.loss.elimination import log_posteriors, log_posteriors_gradient
from cclp.loss.graph import (
    Metric,
    adjacency_gradient,
    check_bandwidth,
    double,
    log_adjacency,
    make_points,
    rounded,
)
from cclp.loss.inputs import Batch, Prior, values_visible
from cclp.loss.paths import Chains, sum_paths
from cclp.loss.propagation import harmonic_gradient, solve_harmonic

_LARGE, _BLOCK = 400, 32  # points from which on classes are blocks, and least rows of a block


class Settings(NamedTuple):
    """Of the loss: arguments of :func:`cclp.cclp_loss`, and the factor of its sum over s, i, j."""

    metric: Metric
    chain_steps: int
    scale: float
    smoothing: float | None
    detach_posteriors: bool


def fused_loss(
    batch: Batch, prior: Prior | None, settings: Settings, *, hard_labels: bool
) -> Tensor:
    """The loss of a batch, a scalar.

    Args:
        batch: embeddings and labels.
        prior: takes its share of the posteriors.
        settings: of the loss.
        hard_labels: whether every labeled point is of one class.
    """
    blocks = None
    if hard_labels:
        batch, blocks = _sorted_by_class(batch)
    bandwidth = check_bandwidth(settings.metric, batch.z.shape[1])
    leaves = batch.z.requires_grad or (bandwidth is not None and bandwidth.requires_grad)
    loss: Tensor
    loss, *_ = _Fused.apply(  # type: ignore[no-untyped-call]
        batch.z, bandwidth, batch.y, prior, settings, blocks, leaves and torch.is_grad_enabled()
    )
    return loss


def _sorted_by_class(batch: Batch) -> tuple[Batch, Blocks | None]:
    """The batch with its labeled points in the order of their classes, and the blocks they form.

    Not where that saves little: in a small batch, or with few labels.
    """
    n, n_l = batch.z.shape[0], batch.y.shape[0]
    if n < _LARGE or 8 * n_l**2 < n**2 or not values_visible(batch.z):
        return batch, None
    order = batch.y.argmax(1).argsort(stable=True)
    starts = [0]
    for end in batch.y.sum(0).cumsum(0).int().tolist():
        if end - starts[-1] >= _BLOCK or end == n_l > starts[-1]:
            starts.append(end)
    rows = tuple(slice(start, end) for start, end in pairwise(starts))
    everyone = torch.cat([order, torch.arange(n_l, n)])
    return Batch(batch.z.index_select(0, everyone), batch.y[order]), Blocks(rows, n_l)


def _with_logarithms(
    z: Tensor,
    logits: Tensor,
    y: Tensor,
    prior: Prior | None,
    settings: Settings,
    gradient: bool,
) -> Chains:
    """Eq. 5 to 9 where chains, and the posteriors they hang on, are below the range of float64.

    Returns:
        With the derivative in posteriors in that in the similarities, and None in its place.
    """
    n_l, jump = len(y), settings.smoothing or 0.0
    log_A = log_adjacency(make_points(z, settings.metric), settings.metric, n_l)
    log_A[:, n_l:].diagonal().fill_(-torch.inf)
    log_phi, done = log_posteriors(log_A, y, jump)
    mixed, own = log_phi, None
    if prior is not None:
        weight = log_phi.new_tensor(prior.weight)
        mixed = torch.logaddexp(log_phi + (1 - weight).log(), double(prior.phi * weight).log())
        own = (log_phi + (1 - weight).log() - mixed).nan_to_num_(-torch.inf).exp_()
    log_Phi = torch.cat([y.log(), mixed]).T.contiguous()
    total, dlogits, dlog_Phi = sum_paths(logits.double(), log_Phi, settings.chain_steps, gradient)
    if dlogits is not None and dlog_Phi is not None and not settings.detach_posteriors:
        dlog_phi = dlog_Phi[:, n_l:].T if own is None else dlog_Phi[:, n_l:].T * own
        dlogits[n_l:] += log_posteriors_gradient(done, log_phi, y, jump, dlog_phi)
    return Chains(total, dlogits, None)


class _Fused(torch.autograd.Function):
    """One node of autograd's graph. The gradient is computed with the value, returned after it."""

    @staticmethod
    def forward(
        z: Tensor,
        bandwidth: Tensor | None,
        y: Tensor,
        prior: Prior | None,
        settings: Settings,
        blocks: Blocks | None,
        gradient: bool,
    ) -> tuple[Tensor, ...]:
        n_l, n = len(y), len(z)
        metric, chain_steps, scale, smoothing, detach_posteriors = settings
        log_A = log_adjacency(make_points(z, metric), metric)  # Eq. 2
        logits = rounded(log_A, z)
        labels = double(y)
        Phi = labels.T.contiguous()
        if n > n_l:
            found = solve_harmonic(log_A[n_l:], labels, smoothing, z.dtype)  # Eq. 5
            phi = found.phi
            if prior is not None:
                phi = phi.lerp(double(prior.phi), prior.weight)
            Phi = torch.cat([Phi, phi.T], 1)
        del log_A
        result = chains(logits, Phi, chain_steps, gradient=gradient, blocks=blocks)  # Eq. 3, 6-9
        if result is None:
            result = _with_logarithms(z, logits, labels, prior, settings, gradient)
        total, dlogits, dPhi = result
        loss = total.to(z) * -scale
        if dlogits is None:
            return (loss,)
        if dPhi is not None and n > n_l and not detach_posteriors:
            dphi = double(dPhi[:, n_l:].T)
            if prior is not None:
                dphi = dphi * (1 - prior.weight)
            dlogits[n_l:].add_(harmonic_gradient(found, labels, dphi).to(dlogits.device))
        dz, dbandwidth = adjacency_gradient(dlogits, z, bandwidth, metric)
        return (loss, dz) if dbandwidth is None else (loss, dz, dbandwidth)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        # z only for a second derivative to be refused in it
        ctx.save_for_backward(inputs[0], *output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.scale = -inputs[4].scale

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        _, *found = ctx.saved_tensors
        grad = grad * ctx.scale
        return *(part * grad for part in found), *[None] * (7 - len(found))


# torch looks at the signature in every call, which takes longer than ten operations on tensors.
_Fused.forward.__signature__ = inspect.signature(_Fused.forward)  # type: ignore[attr-defined]
