"""What the hand-written derivatives share."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def outside_autocast(device: torch.device) -> AbstractContextManager[object]:
    """The precision island: nothing inside is downcast, whatever surrounds it."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def first_order(backward: Callable[P, R]) -> Callable[P, R]:
    """Decorates a backward that has no derivative of its own.

    ``once_differentiable`` of PyTorch drops second derivatives without a word when the incoming
    gradient is a constant, as in ``autograd.grad(loss, z, create_graph=True)``.
    """

    @wraps(backward)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            raise RuntimeError(
                "cclp: second derivatives are not implemented; take the gradient of this loss "
                "without create_graph=True, apart from terms that need it"
            )
        with torch.no_grad():
            return backward(*args, **kwargs)

    return checked
