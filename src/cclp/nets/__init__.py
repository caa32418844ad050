"""Networks: the paper's three, a small one, and an MLP. torch is loaded with the first one used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "Crop": "base",
    "GaussianNoise": "base",
    "Net": "base",
    "batch_norms": "base",
    "cifar_net": "paper",
    "mlp": "perceptron",
    "mnist_net": "paper",
    "small_net": "small",
    "svhn_net": "paper",
}

__all__ = [
    "Crop", "GaussianNoise", "Net", "batch_norms", "cifar_net", "mlp", "mnist_net", "small_net",
    "svhn_net",
]  # fmt: skip

if TYPE_CHECKING:
    from cclp.nets.base import Crop, GaussianNoise, Net, batch_norms
    from cclp.nets.paper import cifar_net, mnist_net, svhn_net
    from cclp.nets.perceptron import mlp
    from cclp.nets.small import small_net


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cclp.nets' has no attribute {name!r}")
    return getattr(import_module(f"cclp.nets.{_HOME[name]}"), name)
