"""Networks of variational autoencoders: Gaussian densities given something, and decoders.

They are perceptrons on vectors: images are flattened. What they are given broadcasts, so that a
pass over all classes, (N, 1, D) beside (C, C), multiplies the samples by the first weights once. A
bound on the density of one sample must not depend on others, so layers are normalised by layer
norm, which also leaves the many passes with wrong classes without running statistics.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cclp import draws
from cclp.nets.base import GaussianNoise, Net, Shape

AUXILIARY = 50  # size of a
LATENT = 50  # size of z₁
_LOG_VARIANCE = 8.0  # log variances are within ± this, smoothly


class Joint(nn.Module):
    """Two hidden layers over several inputs that broadcast, and a linear layer.

    Args:
        sizes: of the inputs.
        outputs: size of the output.
        hidden: size of both hidden layers.
    """

    def __init__(self, sizes: Sequence[int], outputs: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.ModuleList(
            nn.Linear(size, hidden, bias=number == 0) for number, size in enumerate(sizes)
        )
        self.rest = nn.Sequential(
            nn.LayerNorm(hidden),
            nn.ELU(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.ELU(),
            nn.Linear(hidden, outputs),
        )

    def forward(self, *given: Tensor) -> Tensor:
        """Tensors (…, size) of each size to (…, outputs), in float32."""
        parts = [layer(part) for layer, part in zip(self.first, given, strict=True)]
        out: Tensor = self.rest(sum(parts[1:], parts[0]))
        return out.float()


class Gaussian(nn.Module):
    """A density N(mean, variance) whose two are functions of what is given.

    Args:
        sizes: of what is given.
        latent: number of dimensions, independent of each other.
        hidden: size of both hidden layers.
    """

    def __init__(self, sizes: Sequence[int], latent: int, hidden: int) -> None:
        super().__init__()
        self.body = Joint(sizes, 2 * latent, hidden)

    def forward(self, *given: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance, (…, latent)."""
        return split_gaussian(self.body(*given))


def split_gaussian(out: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log variance from the numbers of a last layer, in float32."""
    mean, raw = out.float().chunk(2, -1)
    return mean, _LOG_VARIANCE * torch.tanh(raw / _LOG_VARIANCE)


def draw_gaussian(mean: Tensor, log_variance: Tensor) -> Tensor:
    """A sample through which gradients pass: mean + standard deviation · N(0, 1)."""
    return mean + (0.5 * log_variance).exp() * draws.randn_like(mean)


class AuxiliaryFeatures(nn.Module):
    """From x to the last hidden layer of q(y|a, x), with a from q(a|x).

    Embeddings are those of the mean of a: with a sample of it the graph of CCLP would be noise.
    The bounds of the methods have samples.

    Args:
        inputs: size of a flattened sample.
        hidden: size of hidden layers.
        embedding_size: F.
        noise: standard deviation of the noise on inputs while training.
        size: of a.

    Attributes:
        size: of a.
    """

    def __init__(
        self, inputs: int, hidden: int, embedding_size: int, noise: float, size: int = AUXILIARY
    ) -> None:
        super().__init__()
        self.size = size
        self.noise = nn.Sequential(nn.Flatten(), GaussianNoise(noise))
        self.auxiliary = nn.Sequential(*_layers(inputs, hidden), nn.Linear(hidden, 2 * size))
        self.body = nn.Sequential(*_layers(inputs + size, hidden, hidden, embedding_size))

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings, (N, F)."""
        x = self.noise(x)
        mean, _ = split_gaussian(self.auxiliary(x))
        z: Tensor = self.body(torch.cat([x, mean], 1))
        return z

    def sample(self, x: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Embeddings of a sample of a, that sample, and mean and log variance of q(a|x).

        In evaluation the sample is the mean.
        """
        x = self.noise(x)
        q = split_gaussian(self.auxiliary(x))
        a = draw_gaussian(*q) if self.training else q[0]
        z: Tensor = self.body(torch.cat([x, a], 1))
        return z, a, q


class LatentFeatures(nn.Module):
    """From x to the last hidden layer of q(y|z₁), with z₁ from the encoder q(z₁|x) of M1.

    Embeddings are those of the mean of z₁. Gradients do not pass from them to the encoder, which
    learns as a part of its autoencoder alone.

    Args:
        inputs: size of a flattened sample.
        hidden: size of hidden layers.
        embedding_size: F.
        size: of z₁.

    Attributes:
        size: of z₁.
    """

    def __init__(self, inputs: int, hidden: int, embedding_size: int, size: int = LATENT) -> None:
        super().__init__()
        self.size = size
        self.encoder = Gaussian((inputs,), size, hidden)
        self.body = nn.Sequential(*_layers(size, hidden, embedding_size))

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings, (N, F)."""
        with torch.no_grad():
            mean, _ = self.encoder(x.flatten(1))
        z: Tensor = self.body(mean)
        return z


def _layers(inputs: int, *outputs: int) -> list[nn.Module]:
    """Those of the MLP: linear, batch norm, ELU."""
    layers: list[nn.Module] = []
    for size in outputs:
        layers += [
            nn.Linear(inputs, size, bias=False),
            nn.BatchNorm1d(size, eps=1e-3, momentum=0.01),
            nn.ELU(inplace=True),
        ]
        inputs = size
    return layers


def auxiliary(shape: Shape, num_classes: int) -> Net:
    """Net "auxiliary" of the registry: q(y|a, x) with the layers of "mlp", and q(a|x)."""
    features = AuxiliaryFeatures(math.prod(shape), 256, 128, noise=0.1)
    net = Net(features, 128, num_classes, dropout=0.5, init="he")
    last = features.auxiliary[-1]
    assert isinstance(last, nn.Linear)
    nn.init.normal_(last.weight, std=0.01)  # q(a|x) begins near N(0, 1)
    return net


def latent(shape: Shape, num_classes: int) -> Net:
    """Net "latent" of the registry: q(y|z₁) over the encoder of M1."""
    features = LatentFeatures(math.prod(shape), 256, 128)
    return Net(features, 128, num_classes, dropout=0.5, init="he")
