"""Networks by name. A net is one function of (shape, num_classes) and one line here."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from cclp.user_code import is_user_code, load_object, running

if TYPE_CHECKING:
    from cclp.nets.base import Net

NETS = {
    "mnist": "cclp.nets.paper:mnist",
    "svhn": "cclp.nets.paper:svhn",
    "cifar": "cclp.nets.paper:cifar",
    "small": "cclp.nets.small:small",
    "mnist_small": "cclp.nets.small:mnist_small",
    "mlp": "cclp.nets.perceptron:mlp_for",
    "linear": "cclp.nets.perceptron:linear_for",
    "large": "cclp.nets.large:large",
    "discriminator_mlp": "cclp.nets.large:discriminator_mlp",
    "ladder": "cclp.nets.ladder:perceptron",
    "ladder_gamma": "cclp.nets.ladder:gamma",
    "auxiliary": "cclp.nets.autoencoders:auxiliary",
    "latent": "cclp.nets.autoencoders:latent",
    "ali": "cclp.nets.ali:ali",
}


def check_net(name: str) -> None:
    """Make sure that there is such a net, or that the name asks for one of the user's own.

    Raises:
        ValueError: if not.
    """
    if name not in NETS and not is_user_code(name):
        raise ValueError(f"net must be one of {', '.join(NETS)}, or 'my_file:name', got {name!r}")


def make_net(name: str, shape: tuple[int, ...], num_classes: int) -> "Net":
    """The network of that name, or the user's own, for samples of this shape.

    Raises:
        ValueError: for an unknown name, or samples that the network is not for.
    """
    check_net(name)
    if is_user_code(name):
        return call_net(load_object("net", name), name, shape, num_classes)
    module, function = NETS[name].split(":")
    return cast("Net", getattr(import_module(module), function)(shape, num_classes))


def call_net(
    make: Callable[..., object], name: str, shape: tuple[int, ...], num_classes: int
) -> "Net":
    """What the user's function makes, tried on two samples.

    Raises:
        ValueError: if it fails or does not make a network with ``features`` and ``classifier``.
    """
    import torch
    from torch import nn

    with running("net", name):
        net = make(shape, num_classes)
    wanted = (
        f"net {name!r} must take (shape, num_classes) and give a torch.nn.Module with modules "
        "'features' (samples to embeddings) and 'classifier' (embeddings to logits)"
    )
    if not isinstance(net, nn.Module) or not all(
        isinstance(getattr(net, part, None), nn.Module) for part in ("features", "classifier")
    ):
        raise ValueError(f"{wanted}, got {type(net).__name__}")
    net.eval()
    with running("net", name), torch.no_grad():
        z = net.features(torch.zeros(2, *shape))  # type: ignore[operator]
        logits = net.classifier(z)  # type: ignore[operator]
    if z.ndim != 2 or logits.shape != (2, num_classes):
        raise ValueError(
            f"{wanted}: for 2 samples of shape {shape} it must give embeddings (2, any) and "
            f"logits (2, {num_classes}), got {tuple(z.shape)} and {tuple(logits.shape)}"
        )
    return cast("Net", net.train())
