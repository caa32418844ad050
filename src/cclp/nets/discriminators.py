"""Networks that judge samples together with something else: a class, a code."""

from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from cclp.nets.base import GaussianNoise


class PairDiscriminator(nn.Module):
    """Whether a sample and what stands beside it are a real pair: an MLP without batch norm.

    As the discriminator of Li et al. (2017) for MNIST, with fewer layers and without weight
    normalisation: the condition is joined to the inputs of every layer, which get Gaussian noise.

    Args:
        shape: of a sample.
        conditions: numbers that stand beside it: of a class, one-hot.
        hidden: sizes of the hidden layers.
        noise: standard deviation of the noise on the inputs of each layer while training.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        conditions: int,
        *,
        hidden: tuple[int, ...] = (500, 250, 250),
        noise: float = 0.3,
    ) -> None:
        super().__init__()
        self.noise, self.activation = GaussianNoise(noise), nn.LeakyReLU(0.2)
        self.hidden = nn.ModuleList(
            nn.Linear(inputs + conditions, outputs)
            for inputs, outputs in pairwise((prod(shape), *hidden))
        )
        self.last = nn.Linear(hidden[-1] + conditions, 1)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Logits of "real", (N,), of samples (N, *shape) and conditions (N, conditions)."""
        z = x.flatten(1)
        for layer in self.hidden:
            z = self.activation(layer(torch.cat([self.noise(z), condition], 1)))
        logits: Tensor = self.last(torch.cat([z, condition], 1))
        return logits.squeeze(1)
