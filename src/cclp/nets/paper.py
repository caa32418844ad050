"""The paper's three networks: layers, noise and initialisation of the authors' released code."""

from torch import nn

from cclp.checks import check_integer
from cclp.draws import Dropout, Dropout2d
from cclp.nets.base import GaussianNoise, Net, Shape, convolutions, global_pool, image_shape


def mnist_net(num_classes: int = 10, in_channels: int = 1, width: int = 32) -> Net:
    """The paper's network for MNIST: (N, in_channels, 28, 28) to z of size 128.

    ``width`` is of the first layers; all others are multiples of it, z too. With 16 in place of 32
    a step takes about a third of the time.

    Examples:
        >>> import torch
        >>> net = mnist_net().eval()
        >>> net.features(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 128])
    """
    check_integer("width", width, least=1)
    features = nn.Sequential(
        GaussianNoise(0.3),
        *convolutions(in_channels, width, width),
        nn.MaxPool2d(2),
        *convolutions(width, 2 * width, 2 * width),
        nn.MaxPool2d(2),
        *convolutions(2 * width, 4 * width),
        Dropout2d(0.1),
        *convolutions(4 * width, 4 * width),
        *global_pool(),
    )
    return Net(features, 4 * width, num_classes, init="he")


def svhn_net(num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> Net:
    """The paper's network for SVHN: (N, in_channels, 32, 32) to z of size 128.

    Larger images are halved by a narrow layer and a pooling each, until the paper's layers see
    fewer than 64 x 64 pixels. Images must be of 4 x 4 pixels or more.

    Examples:
        >>> import torch
        >>> net = svhn_net(image_size=96).eval()
        >>> net.features(torch.zeros(2, 3, 96, 96)).shape
        torch.Size([2, 128])
    """
    check_integer("image_size", image_size, least=4)
    first: list[nn.Module] = [GaussianNoise(0.05), Dropout2d(0.1)]
    while image_size >= 64:
        first += [*convolutions(in_channels, 32), nn.MaxPool2d(2)]
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
        *convolutions(in_channels, narrow, narrow, narrow),
        nn.MaxPool2d(2),
        Dropout(0.5),
        *convolutions(narrow, wide, wide, wide),
        nn.MaxPool2d(2),
        Dropout(0.5),
        *convolutions(wide, wide, wide, wide),
        *global_pool(),
    )
    return Net(features, wide, num_classes, init="glorot")


def mnist(shape: Shape, num_classes: int) -> Net:
    """Net "mnist" of the registry."""
    return mnist_net(num_classes, image_shape("mnist", shape)[0])


def svhn(shape: Shape, num_classes: int) -> Net:
    """Net "svhn" of the registry."""
    channels, height, width = image_shape("svhn", shape)
    return svhn_net(num_classes, channels, min(height, width))


def cifar(shape: Shape, num_classes: int) -> Net:
    """Net "cifar" of the registry."""
    return cifar_net(num_classes, image_shape("cifar", shape)[0])
