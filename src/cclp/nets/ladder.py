"""Networks of the ladder: in training their passes are noisy, in evaluation clean."""

from collections.abc import Iterable
from itertools import pairwise
from math import prod
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cclp import draws
from cclp.nets.base import Net, Shape, global_pool, image_shape

NOISE = 0.3
WIDE, NARROW = (1000, 500, 250, 250, 250), (250, 125, 60, 60, 60)
LARGE = 400  # values of a sample, for the paper's widths


class Level(nn.Module):
    """z = N(W h), then h = φ(γ (z + β)): N normalises by the statistics of the batch.

    In training z has noise, and those statistics are not remembered: running ones are of clean
    passes, by :meth:`clean`.

    Args:
        layer: W, without a bias.
        then: φ, and perhaps pooling.
        gain: whether there is γ; before a rectifier it would be one degree of freedom too many.
        noise: standard deviation.
    """

    def __init__(
        self,
        layer: nn.Linear | nn.Conv2d,
        *then: nn.Module,
        gain: bool = False,
        noise: float = NOISE,
    ) -> None:
        super().__init__()
        size, flat = layer.weight.shape[0], isinstance(layer, nn.Linear)
        kind = nn.BatchNorm1d if flat else nn.BatchNorm2d
        self.layer, self.noise = layer, noise
        self.norm = kind(size, momentum=0.01, affine=False)
        shape = (size,) if flat else (size, 1, 1)
        self.bias = nn.Parameter(torch.zeros(shape))
        self.gain = nn.Parameter(torch.ones(shape)) if gain else None
        self.then = nn.Sequential(*then)

    def noisy(self, h: Tensor) -> Tensor:
        """z with noise."""
        return add_noise(normalize(self.layer(h), self.norm.eps), self.noise)

    def after(self, z: Tensor) -> Tensor:
        """h of z."""
        z = z + self.bias
        h: Tensor = self.then(z if self.gain is None else self.gain * z)
        return h

    def clean(self, h: Tensor) -> Tensor:
        """h without noise, by what ``norm`` does: in training it remembers."""
        return self.after(self.norm(self.layer(h)))

    def forward(self, h: Tensor) -> Tensor:
        return self.after(self.noisy(h)) if self.training else self.clean(h)


class Encoder(nn.Module):
    """The levels below the classifier.

    A pass in training is followed by a clean one, without gradient, for the running statistics:
    those of the classifier too, which never sees a clean embedding in training.

    Args:
        levels: from below.
        top: the classifier's level, not a part of this module.
        flat: whether inputs are flattened.

    Attributes:
        noise: standard deviation of the noise on inputs.
    """

    def __init__(self, levels: Iterable[Level], top: Level, *, flat: bool) -> None:
        super().__init__()
        self.levels, self.flat, self.noise = nn.Sequential(*levels), flat, NOISE
        self._top = (top,)  # in a tuple: its weights are in the net once

    def forward(self, x: Tensor) -> Tensor:
        """z, (N, F)."""
        x = self.inputs(x)
        if self.training and self._top[0].norm.track_running_stats:
            with torch.no_grad():
                h = x
                for level in (*self.levels, *self._top):
                    h = cast(Level, level).clean(h)
        z: Tensor = self.levels(add_noise(x, self.noise) if self.training else x)
        return z

    def inputs(self, x: Tensor) -> Tensor:
        """As the first level takes them."""
        return x.flatten(1) if self.flat else x


class LadderNet(Net):
    """A network whose passes are noisy in training and clean in evaluation.

    Rasmus et al. 2015, Section 3. Its embeddings are what the last level below the classifier
    gives: in training they are noisy.

    Args:
        levels: below the classifier, from below.
        embedding_size: F.
        num_classes: C.
        flat: whether inputs are flattened.

    Attributes:
        top: the level that is the classifier.
    """

    def __init__(
        self, levels: Iterable[Level], embedding_size: int, num_classes: int, *, flat: bool
    ) -> None:
        top = Level(nn.Linear(embedding_size, num_classes, bias=False), gain=True)
        super().__init__(Encoder(levels, top, flat=flat), embedding_size, num_classes)
        nn.init.kaiming_normal_(top.layer.weight, nonlinearity="relu")
        self.classifier = nn.Sequential(top)

    @property
    def encoder(self) -> Encoder:
        return cast(Encoder, self.features)

    @property
    def top(self) -> Level:
        return cast(Level, self.classifier[0])

    @property
    def levels(self) -> list[Level]:
        """From below, the classifier's last."""
        return [*cast("list[Level]", list(self.encoder.levels)), self.top]

    def noisy(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """z̃ of inputs and all levels, and the logits."""
        z = [add_noise(self.encoder.inputs(x), self.encoder.noise)]
        h = z[0]
        for level in self.levels:
            z.append(level.noisy(h))
            h = level.after(z[-1])
        return z, h

    def clean(self, x: Tensor) -> list[Tensor]:
        """Inputs, and W h of all levels: z before it is normalised."""
        found = [self.encoder.inputs(x)]
        h = found[0]
        for level in self.levels:
            found.append(level.layer(h))
            h = level.after(normalize(found[-1], level.norm.eps))
        return found


class Combinator(nn.Module):
    """ẑ = (z̃ − μ(u)) v(u) + μ(u), the best denoising of a Gaussian z, for each unit by itself.

    μ(u) = a₁ σ(a₂ u + a₃) + a₄ u + a₅ and v(u) likewise, with a₆ to a₁₀: Rasmus et al. 2015, Eq. 2.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        first = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]).repeat(2)
        self.a = nn.Parameter(first[:, None].repeat(1, size))

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        """ẑ of noisy z̃ and of u, what comes from above; (N, size) each."""
        a = self.a
        mean = a[0] * torch.sigmoid(a[1] * u + a[2]) + a[3] * u + a[4]
        share = a[5] * torch.sigmoid(a[6] * u + a[7]) + a[8] * u + a[9]
        return (z - mean) * share + mean


class Decoder(nn.Module):
    """From the noisy prediction down to the inputs: ẑ of every level.

    Args:
        sizes: of the inputs and the levels, from below.
    """

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.combinators = nn.ModuleList(Combinator(size) for size in sizes)
        self.layers = nn.ModuleList(nn.Linear(b, a, bias=False) for a, b in pairwise(sizes))

    def forward(self, noisy: list[Tensor], probabilities: Tensor) -> list[Tensor]:
        """ẑ of the inputs and all levels, from below.

        Args:
            noisy: z̃ of the same.
            probabilities: of the classes, of the noisy pass.
        """
        u = normalize(probabilities)
        found = [self.combinators[-1](noisy[-1], u)]
        for z, layer, combine in reversed(
            list(zip(noisy[:-1], self.layers, self.combinators[:-1], strict=True))
        ):
            found.append(combine(z, normalize(layer(found[-1]))))
        return found[::-1]


def add_noise(x: Tensor, std: float) -> Tensor:
    """Of N(0, std²)."""
    return x + std * draws.randn_like(x)


def normalize(x: Tensor, eps: float = 1e-5) -> Tensor:
    """By the statistics of the batch, in float32."""
    return F.batch_norm(x.float(), None, None, training=True, eps=eps)


def perceptron(shape: Shape, num_classes: int) -> LadderNet:
    """Net "ladder" of the registry: an MLP, of the paper's widths if samples are large enough."""
    sizes = (prod(shape), *(WIDE if prod(shape) >= LARGE else NARROW))
    levels = [Level(nn.Linear(a, b, bias=False), nn.ReLU()) for a, b in pairwise(sizes)]
    return LadderNet(levels, sizes[-1], num_classes, flat=True)


def gamma(shape: Shape, num_classes: int) -> LadderNet:
    """Net "ladder_gamma" of the registry: the paper's CNN-Γ for images, an MLP for vectors."""
    if len(shape) == 1:
        return perceptron(shape, num_classes)
    channels, _, _ = image_shape("ladder_gamma", shape, least=8)

    def level(inputs: int, size: int, kernel: int, padding: int, *pooling: nn.Module) -> Level:
        conv = nn.Conv2d(inputs, size, kernel, padding=padding, bias=False)
        return Level(conv, nn.ReLU(), *pooling)

    levels = [
        level(channels, 32, 5, 4, nn.MaxPool2d(2)),
        level(32, 64, 3, 0),
        level(64, 64, 3, 2, nn.MaxPool2d(2)),
        level(64, 128, 3, 0),
        level(128, num_classes, 1, 0, *global_pool()),
    ]
    return LadderNet(levels, num_classes, num_classes, flat=False)
