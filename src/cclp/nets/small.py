"""A small convolutional network for short trainings on a CPU."""

from torch import nn

from cclp.checks import check_integer
from cclp.nets.base import Crop, Net, Shape, convolutions, global_pool, image_shape

MNIST_MARGIN = 2  # pixels at every border of MNIST's images: they are empty


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
        >>> import torch
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
        for layer in (
            nn.MaxPool2d(2),
            *convolutions(4 * width, 4 * width, 4 * width, activation=nn.ReLU),
        )
    )
    features = nn.Sequential(
        Crop(margin),
        nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
        nn.MaxPool2d(2),  # of what comes next, too: a quarter of the work
        nn.BatchNorm2d(width, eps=1e-3, momentum=0.01),
        nn.ReLU(inplace=True),
        *convolutions(width, 2 * width, 2 * width, activation=nn.ReLU),
        nn.MaxPool2d(2),
        *convolutions(2 * width, 4 * width, 4 * width, activation=nn.ReLU),
        *later,
        *global_pool(),
    )
    return Net(features, 4 * width, num_classes, dropout=dropout, init="he")


def small(shape: Shape, num_classes: int) -> Net:
    """Net "small" of the registry: from 8 x 8 pixels on, 2 x 2 to 4 x 4 are left in the end."""
    channels, height, width = image_shape("small", shape)
    poolings = max(2, (min(height, width) - 1).bit_length() - 2)
    return small_net(num_classes, channels, poolings=poolings)


def mnist_small(shape: Shape, num_classes: int) -> Net:
    """Net "mnist_small" of the registry: "small" for MNIST, without the empty border."""
    channels, _, _ = image_shape("mnist_small", shape, least=8)  # 2 to the poolings, and margins
    return small_net(num_classes, channels, width=16, poolings=2, margin=MNIST_MARGIN, dropout=0.0)
