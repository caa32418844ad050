"""Densities and bounds that variational autoencoders share: sums over dimensions, in nats."""

import math

import torch.nn.functional as F
from torch import Tensor

from cclp.methods.base import Inputs

LN_2PI = math.log(2 * math.pi)


def log_normal(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """ln N(x; mean, variance), (…)."""
    scaled = (x - mean).square() * (-log_variance).exp()
    return -0.5 * (LN_2PI + log_variance + scaled).sum(-1)


def kl_to_standard(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, variance) ‖ N(0, 1)), (…)."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


def log_likelihood(x: Tensor, made: Tensor, inputs: Inputs) -> Tensor:
    """ln p(x|…), (…): Bernoulli for pixels, N(made, 1) for vectors.

    Args:
        x: from :func:`observed`. Pixels are used as probabilities: the mean of ln p over bits that
            are drawn from them.
        made: by a decoder, (…, D): logits of pixels, or means.
        inputs: which of them.
    """
    made = made.float()
    if inputs.are_images:  # x ln σ(l) + (1 − x) ln(1 − σ(l)) = x l − softplus(l)
        return (x * made - F.softplus(made)).sum(-1)
    return -0.5 * (LN_2PI + (x - made).square()).sum(-1)


def observed(x: Tensor, inputs: Inputs) -> Tensor:
    """What the model explains, (N, D): pixels in [0, 1], or vectors as the network takes them."""
    return (inputs.to_pixels(x) if inputs.are_images else x).flatten(1).float()


def bound_over_classes(logits: Tensor, elbo: Tensor) -> Tensor:
    """Σ_y q(y) [ELBO(x, y) − ln q(y)] ≤ ln p(x), (N,).

    Args:
        logits: of q(y|…), (N, C).
        elbo: ELBO(x, y) ≤ ln p(x, y) of every class, (N, C).
    """
    log_q = logits.float().log_softmax(1)
    return (log_q.exp() * (elbo - log_q)).sum(1)
