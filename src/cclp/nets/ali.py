"""The network of ALI: a discriminator of pairs (x, z) that has an encoder for x alone."""

from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cclp import draws
from cclp.nets.base import GaussianNoise, Net, Shape
from cclp.nets.generators import layers

LATENT = 64


class JointFeatures(nn.Module):
    """The last hidden layer of D(x, z), at z = E(x) if a sample comes alone.

    Without batch norm, as the discriminator of the paper: it sees how large made-up samples are.
    Gradients do not pass from D to the encoder, whose aim is the opposite; see
    :class:`cclp.methods.ali.ALI`.

    Args:
        shape: of a sample.
        hidden: size of the hidden layers.
        embedding_size: of the last one.
        noise: standard deviation of the noise on x while training.
        dropout: of the hidden layers of D while training.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        hidden: int = 256,
        embedding_size: int = 128,
        noise: float = 0.1,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        size = prod(shape)
        self.encoder = nn.Sequential(
            *layers(size, hidden, hidden, activation=nn.LeakyReLU, norm=False),
            nn.Linear(hidden, 2 * LATENT),
        )
        self.of_x = nn.Sequential(
            GaussianNoise(noise), *layers(size, hidden, activation=nn.LeakyReLU, norm=False)
        )
        self.of_z = nn.Sequential(*layers(LATENT, hidden, activation=nn.LeakyReLU, norm=False))
        self.of_both = nn.Sequential(
            draws.Dropout(dropout),
            *layers(2 * hidden, hidden, activation=nn.LeakyReLU, norm=False),
            draws.Dropout(dropout),
            *layers(hidden, embedding_size, activation=nn.LeakyReLU, norm=False),
        )

    def encode(self, x: Tensor) -> Tensor:
        """z of q(z | x) = N(μ(x), σ(x)²) while training, else its mean; (N, LATENT)."""
        mean: Tensor
        mean, width = self.encoder(x.flatten(1)).float().chunk(2, 1)
        drawn: Tensor = mean + F.softplus(width) * draws.randn_like(mean)
        return drawn if self.training else mean

    def joint(self, x: Tensor, z: Tensor) -> Tensor:
        """Embeddings of pairs, (N, embedding_size)."""
        pair = torch.cat([self.of_x(x.flatten(1)), self.of_z(z)], 1)
        embeddings: Tensor = self.of_both(pair)
        return embeddings

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings of (x, E(x)); the encoder does not learn from them."""
        with torch.no_grad():
            z = self.encode(x)
        return self.joint(x, z)


def ali(shape: Shape, num_classes: int) -> Net:
    """Net "ali" of the registry: for vectors, and for images taken as vectors."""
    return Net(JointFeatures(shape, embedding_size=128), 128, num_classes, dropout=0.2)
