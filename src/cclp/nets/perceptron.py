"""A multi-layer perceptron for vectors."""

from collections.abc import Iterable
from itertools import pairwise
from math import prod

from torch import nn

from cclp.checks import check_integer, check_number
from cclp.nets.base import GaussianNoise, Net, Shape


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
        >>> import torch
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


def linear_for(shape: Shape, num_classes: int) -> Net:
    """Net "linear" of the registry: logistic regression on the inputs, which are its embeddings."""
    net = Net(nn.Flatten(), prod(shape), num_classes, dropout=0.0)
    linear = net.classifier[1]
    assert isinstance(linear, nn.Linear)
    nn.init.zeros_(linear.weight)  # the loss is convex: there is no symmetry to break
    return net


def mlp_for(shape: Shape, num_classes: int) -> Net:
    """Net "mlp" of the registry."""
    return mlp(prod(shape), num_classes)
