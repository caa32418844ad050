"""Networks that make samples: generators of GANs, decoders of autoencoders."""

from collections.abc import Callable, Iterable
from math import prod

import torch
from torch import Tensor, nn

from cclp import draws

LATENT = 100


def layers(
    inputs: int, *outputs: int, activation: Callable[[], nn.Module] = nn.ReLU, norm: bool = True
) -> Iterable[nn.Module]:
    """Linear layers, each followed by batch norm and an activation."""
    for size in outputs:
        yield nn.Linear(inputs, size, bias=not norm)
        if norm:
            yield nn.BatchNorm1d(size)
        yield activation()
        inputs = size


class Generator(nn.Module):
    """From random numbers, perhaps beside a class, to samples: two hidden layers with softplus.

    The generator of Salimans et al. (2016) for MNIST.

    Args:
        shape: of a sample.
        conditions: numbers that stand beside the random ones: of a class, one-hot.
        hidden: size of both hidden layers.
        latent: how many random numbers.

    Attributes:
        latent: how many random numbers.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        conditions: int = 0,
        *,
        hidden: int = 500,
        latent: int = LATENT,
    ) -> None:
        super().__init__()
        self.shape, self.latent = shape, latent
        self.body = nn.Sequential(
            *layers(latent + conditions, hidden, hidden, activation=nn.Softplus),
            nn.Linear(hidden, prod(shape)),
        )

    def forward(self, noise: Tensor, condition: Tensor | None = None) -> Tensor:
        """Logits of pixels, or features of vectors, (N, *shape).

        Args:
            noise: (N, latent).
            condition: (N, conditions).
        """
        given = noise if condition is None else torch.cat([noise, condition], 1)
        made: Tensor = self.body(given)
        return made.reshape(len(noise), *self.shape)

    def noise(self, count: int) -> Tensor:
        """Uniform in [0, 1], (count, latent), on the device of the weights."""
        weight = next(self.parameters())
        return draws.rand(count, self.latent, device=weight.device)
