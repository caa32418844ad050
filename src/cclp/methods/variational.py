"""What variational autoencoders share: settings, samples, and densities in nats, summed."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cclp import draws
from cclp.checks import check_integer
from cclp.methods.base import Inputs, Method, check_weight

LN_2PI = math.log(2 * math.pi)


class Autoencoder(Method):
    """A model of samples given a class and z ~ N(0, 1).

    Args:
        num_classes: C.
        weight: of both bounds, which are in nats per sample.
        latent: size of z.
        hidden: size of the two hidden layers of each network.
    """

    inputs: Inputs

    def __init__(
        self, num_classes: int, weight: float = 0.1, latent: int = 50, hidden: int = 256
    ) -> None:
        super().__init__()
        self.num_classes, self.weight = num_classes, check_weight(weight)
        self.latent = check_integer("latent", latent, least=1)
        self.hidden = check_integer("hidden", hidden, least=1)

    def make(self, z: Tensor, y: Tensor) -> Tensor:
        """Logits of pixels or means of vectors, (N, D), of z and one-hot classes."""
        raise NotImplementedError

    def draw(self, count: int) -> Tensor | None:
        """Classes in turn."""
        device = next(self.parameters()).device
        y = F.one_hot(torch.arange(count, device=device) % self.num_classes, self.num_classes)
        made = self.make(draws.randn(count, self.latent, device=device), y.float())
        return self.inputs.from_generator(made.reshape(count, *self.inputs.shape))


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
