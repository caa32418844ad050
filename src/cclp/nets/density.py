"""How likely a sample is: an autoregressive model, p(x) = Π_d p(x_d | x_1 … x_{d−1})."""

import math
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cclp import draws


class MaskedLinear(nn.Linear):
    """A linear layer in which some inputs do not reach some outputs."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.mask, self.bias)


class MADE(nn.Module):
    """A masked autoencoder for density estimation (Germain et al. 2015), of one hidden layer.

    Each value is a mixture of Gaussians, given those before it. Values have noise added first, so
    that those that never change, such as the corners of images, have a finite density; no Gaussian
    is narrower than the noise.

    Args:
        shape: of a sample.
        hidden: size of the hidden layer.
        components: Gaussians of a value.
        noise: standard deviation of the noise; inputs are about of variance 1.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        hidden: int = 500,
        components: int = 3,
        noise: float = 0.1,
    ) -> None:
        super().__init__()
        size = prod(shape)
        self.components, self.noise = components, noise
        values = torch.arange(1, size + 1)
        units = torch.arange(hidden) % max(size - 1, 1) + 1  # a unit sees values up to this one
        outputs = values.repeat_interleave(3 * components)
        self.first = MaskedLinear(units[:, None] >= values)
        self.last = MaskedLinear(outputs[:, None] > units)
        with torch.no_grad():  # means that differ, or the Gaussians would remain the same
            spread = self.last.bias.view(size, 3, components)
            spread[:, 1] = torch.linspace(-1, 1, components) if components > 1 else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Log density of samples with noise, in nats per value, (N,)."""
        x = x.flatten(1).float()
        return self.log_density(x + self.noise * draws.randn_like(x)) / x.shape[1]

    def log_density(self, x: Tensor) -> Tensor:
        """ln p(x) = Σ_d ln Σ_m π_dm N(x_d; μ_dm, σ_dm²) of flat samples, (N,)."""
        made = self.last(F.relu(self.first(x))).float()
        weights, means, widths = made.view(*x.shape, 3, self.components).unbind(2)
        scale = self.noise + F.softplus(widths)
        standard = (x[:, :, None] - means) / scale
        log_normal = -0.5 * standard.square() - scale.log() - 0.5 * math.log(2 * math.pi)
        log_p: Tensor = (weights.log_softmax(2) + log_normal).logsumexp(2).sum(1)
        return log_p
