"""The paper's three networks, a small one, and an MLP.

A net is ``features(x) -> z`` and ``classifier(z)``.

The graph is built over z, so nothing random stands directly before it: dropout there would make
the graph too sparse. Layers, noise and initialisation of the paper's three follow the authors'
released configurations.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cclp.checks import check_integer, check_number

Init = Literal["he", "glorot"]


class Net(nn.Module):
    """A feature extractor and a linear classifier with dropout before it.

    Args:
        features: module from inputs to embeddings z, (N, embedding_size).
        embedding_size: F.
        num_classes: C.
        dropout: between z and the classifier.
        init: of convolutions and linear layers in ``features``: He or Glorot, uniform.
    """

    def __init__(
        self,
        features: nn.Module,
        embedding_size: int,
        num_classes: int,
        *,
        dropout: float = 0.5,
        init: Init = "he",
    ) -> None:
        super().__init__()
        self.embedding_size = embedding_size
        self.features = features
        linear = nn.Linear(embedding_size, num_classes)
        self.classifier = nn.Sequential(nn.Dropout(dropout), linear)
        for module in features.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                if init == "he":
                    nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
                else:
                    nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (N, C)."""
        logits: Tensor = self.classifier(self.features(x))
        return logits


def batch_norms(net: nn.Module) -> list[_BatchNorm]:
    """Its layers with running statistics."""
    return [m for m in net.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


class Crop(nn.Module):
    """Takes ``margin`` pixels away at every border of images."""

    def __init__(self, margin: int) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of (N, C, H, W) without them."""
        height, width = x.shape[2:]
        return x[:, :, self.margin : height - self.margin, self.margin : width - self.margin]

    def extra_repr(self) -> str:
        return f"margin={self.margin}"


class GaussianNoise(nn.Module):
    """Adds N(0, std²) while training."""

    def __init__(self, std: float) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Tensor) -> Tensor:
        """``x`` with noise, of the same shape."""
        return x + self.std * torch.randn_like(x) if self.training else x

    def extra_repr(self) -> str:
        return f"std={self.std:g}"


def _convs(
    inputs: int, *outputs: int, activation: type[nn.ELU] | type[nn.ReLU] = nn.ELU
) -> Iterable[nn.Module]:
    for size in outputs:
        yield nn.Conv2d(inputs, size, 3, padding=1, bias=False)
        yield nn.BatchNorm2d(size, eps=1e-3, momentum=0.01)  # a decay of 0.99
        yield activation(inplace=True)  # batch norm does not need its own output
        inputs = size


def _global_pool() -> Iterable[nn.Module]:
    yield nn.AdaptiveAvgPool2d(1)
    yield nn.Flatten()


def mnist_net(num_classes: int = 10, in_channels: int = 1, width: int = 32) -> Net:
    """The paper's network for MNIST: (N, in_channels, 28, 28) to z of size 128.

    ``width`` is of the first layers; all others are multiples of it, z too. With 16 in place of 32
    a step takes about a third of the time.

    Examples:
        >>> net = mnist_net().eval()
        >>> net.features(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 128])
    """
    check_integer("width", width, least=1)
    features = nn.Sequential(
        GaussianNoise(0.3),
        *_convs(in_channels, width, width),
        nn.MaxPool2d(2),
        *_convs(width, 2 * width, 2 * width),
        nn.MaxPool2d(2),
        *_convs(2 * width, 4 * width),
        nn.Dropout2d(0.1),
        *_convs(4 * width, 4 * width),
        *_global_pool(),
    )
    return Net(features, 4 * width, num_classes, init="he")


def small_net(
    num_classes: int = 10,
    in_channels: int = 3,
    *,
    width: int = 24,
    poolings: int = 3,
    margin: int = 0,
    dropout: float = 0.5,
) -> Net:
    """Ours, for the least error in minutes on a CPU: images to z of four times ``width``.

    The first layer is pooled at once, and nothing slows the first thousands of steps: there is no
    noise, and no dropout within. The third pooling and the two layers after it are a seventh of the
    work.

    Args:
        num_classes: C.
        in_channels: of the images.
        width: channels of the first layer.
        poolings: each halves the images; two or more.
        margin: pixels at every border of the images that are not looked at.
        dropout: between z and the classifier.

    Images must be of 2 to the power of ``poolings`` + 2 ``margin`` pixels a side or more.

    Examples:
        >>> net = small_net().eval()
        >>> net.features(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 96])
    """
    check_integer("width", width, least=1)
    check_integer("poolings", poolings, least=2)
    check_integer("margin", margin, least=0)
    later = (
        layer
        for _ in range(poolings - 2)
        for layer in (nn.MaxPool2d(2), *_convs(4 * width, 4 * width, 4 * width, activation=nn.ReLU))
    )
    features = nn.Sequential(
        Crop(margin),
        nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
        nn.MaxPool2d(2),  # of what comes next, too: a quarter of the work
        nn.BatchNorm2d(width, eps=1e-3, momentum=0.01),
        nn.ReLU(inplace=True),
        *_convs(width, 2 * width, 2 * width, activation=nn.ReLU),
        nn.MaxPool2d(2),
        *_convs(2 * width, 4 * width, 4 * width, activation=nn.ReLU),
        *later,
        *_global_pool(),
    )
    return Net(features, 4 * width, num_classes, dropout=dropout, init="he")


def svhn_net(num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> Net:
    """The paper's network for SVHN: (N, in_channels, 32, 32) to z of size 128.

    Larger images are halved by a narrow layer and a pooling each, until the paper's layers see
    fewer than 64 x 64 pixels. Images must be of 4 x 4 pixels or more.

    Examples:
        >>> net = svhn_net(image_size=96).eval()
        >>> net.features(torch.zeros(2, 3, 96, 96)).shape
        torch.Size([2, 128])
    """
    check_integer("image_size", image_size, least=4)
    first: list[nn.Module] = [GaussianNoise(0.05), nn.Dropout2d(0.1)]
    while image_size >= 64:
        first += [*_convs(in_channels, 32), nn.MaxPool2d(2)]
        in_channels, image_size = 32, image_size // 2
    return _nine_layers(first, 64, 128, in_channels, num_classes)


def cifar_net(num_classes: int = 10, in_channels: int = 3) -> Net:
    """The paper's network for CIFAR-10: (N, in_channels, 32, 32) to z of size 192."""
    return _nine_layers([GaussianNoise(0.03)], 96, 192, in_channels, num_classes)


def _nine_layers(
    first: list[nn.Module], narrow: int, wide: int, in_channels: int, num_classes: int
) -> Net:
    features = nn.Sequential(
        *first,
        *_convs(in_channels, narrow, narrow, narrow),
        nn.MaxPool2d(2),
        nn.Dropout(0.5),
        *_convs(narrow, wide, wide, wide),
        nn.MaxPool2d(2),
        nn.Dropout(0.5),
        *_convs(wide, wide, wide, wide),
        *_global_pool(),
    )
    return Net(features, wide, num_classes, init="glorot")


def mlp(
    in_features: int,
    num_classes: int,
    *,
    hidden_sizes: Iterable[int] = (256, 256),
    embedding_size: int = 128,
    noise: float = 0.1,
    dropout: float = 0.5,
) -> Net:
    """A multi-layer perceptron for vectors: (N, in_features) to z of size ``embedding_size``.

    Args:
        in_features: size of an input; inputs of any shape are flattened.
        num_classes: C.
        hidden_sizes: of the layers before z, each followed by batch norm and ELU.
        embedding_size: F.
        noise: standard deviation of the noise on inputs while training.
        dropout: between z and the classifier.

    Raises:
        TypeError, ValueError: for a size below one or a probability outside [0, 1).

    Examples:
        >>> net = mlp(64, 10, hidden_sizes=[32], embedding_size=16)
        >>> net(torch.zeros(4, 8, 8)).shape
        torch.Size([4, 10])
    """
    sizes = [in_features, *hidden_sizes, embedding_size]
    for name, size in zip(
        ["in_features", *["hidden_sizes"] * (len(sizes) - 2), "embedding_size"], sizes, strict=True
    ):
        check_integer(name, size, least=1)
    check_integer("num_classes", num_classes, least=2)
    check_number("noise", noise, least=0)
    if not 0 <= check_number("dropout", dropout) < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}")
    layers: list[nn.Module] = [nn.Flatten(), GaussianNoise(noise)]
    for inputs, outputs in pairwise(sizes):
        layers += [
            nn.Linear(inputs, outputs, bias=False),
            nn.BatchNorm1d(outputs, eps=1e-3, momentum=0.01),
            nn.ELU(inplace=True),
        ]
    return Net(nn.Sequential(*layers), embedding_size, num_classes, dropout=dropout, init="he")
