"""The larger classifiers of CCLP's peers."""

from functools import partial
from itertools import pairwise
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cclp.draws import Dropout
from cclp.nets.base import GaussianNoise, Net, Shape, convolutions, global_pool, image_shape

WIDTHS = (1000, 500, 250, 250, 250)


def large(shape: Shape, num_classes: int) -> Net:
    """Net "large" of the registry: "conv-large", of 13 layers with leaky rectifiers.

    Laine & Aila 2017 (Table 5), Tarvainen & Valpola 2017, Miyato et al. 2018. The noise on inputs
    is that of the first two; batch norm takes the place of the first one's weight normalisation.
    The seventh convolution is not padded if that leaves anything of the images.
    """
    channels, height, width = image_shape("large", shape)
    conv = partial(convolutions, activation=partial(nn.LeakyReLU, 0.1))
    features = nn.Sequential(
        GaussianNoise(0.15),
        *conv(channels, 128, 128, 128),
        nn.MaxPool2d(2),
        Dropout(0.5),
        *conv(128, 256, 256, 256),
        nn.MaxPool2d(2),
        Dropout(0.5),
        *conv(256, 512, padding=0 if min(height, width) >= 12 else 1),
        *conv(512, 256, 128, kernel=1, padding=0),
        *global_pool(),
    )
    return Net(features, 128, num_classes, dropout=0.0, init="he")


class WeightNormalized(nn.Module):
    """s (W x / ‖W‖ − m) + b, with ‖W‖ of each unit: its scale s is not learned.

    Salimans & Kingma 2016. s and m make the first batch in training z-scores, and stay: an
    initialisation by data. The last layer of a network has a scale to learn besides.

    Args:
        inputs, outputs: sizes.
        gain: whether a scale is learned.
    """

    scale: Tensor
    shift: Tensor
    ready: Tensor

    def __init__(self, inputs: int, outputs: int, *, gain: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        nn.init.normal_(self.weight, std=0.05)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.gain = nn.Parameter(torch.ones(outputs)) if gain else None
        self.register_buffer("scale", torch.ones(outputs))
        self.register_buffer("shift", torch.zeros(outputs))
        self.register_buffer("ready", torch.zeros((), dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs) to (N, outputs)."""
        y = F.linear(x, F.normalize(self.weight, dim=1)).float()
        if self.training and not self.ready:
            with torch.no_grad():
                self.shift.copy_(y.mean(0))
                self.scale.copy_(1 / (y.std(0, correction=0) + 1e-6))
                self.ready.fill_(True)
        y = (y - self.shift) * self.scale
        return (y if self.gain is None else y * self.gain) + self.bias


def discriminator_mlp(shape: Shape, num_classes: int) -> Net:
    """Net "discriminator_mlp" of the registry: that of GANs on MNIST (Salimans et al. 2016).

    Noise on inputs, and of 0.5 before each later layer. The paper's noise on MNIST's pixels in
    [0, 1] is 0.3; they have a standard deviation of 0.31, so that it is 1 on z-scores.
    """
    layers: list[nn.Module] = [nn.Flatten(), GaussianNoise(1.0 if len(shape) == 3 else 0.3)]
    for number, (inputs, outputs) in enumerate(pairwise((prod(shape), *WIDTHS))):
        layers += [GaussianNoise(0.5)] if number else []
        layers += [WeightNormalized(inputs, outputs), nn.ReLU()]
    net = Net(nn.Sequential(*layers), WIDTHS[-1], num_classes)
    last = WeightNormalized(WIDTHS[-1], num_classes, gain=True)
    net.classifier = nn.Sequential(GaussianNoise(0.5), last)
    return net
