"""What the hand-written derivatives share."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., Tensor | tuple[Tensor | None, ...]]
REFUSED = (
    "cclp: second derivatives are not implemented; take the gradient of this loss without "
    "create_graph=True, apart from terms that need it"
)


def outside_autocast(device: torch.device) -> AbstractContextManager[object]:
    """The precision island: nothing inside is downcast, whatever surrounds it."""
    kind = device.type
    # Up to PyTorch 2.8 at least, the second cannot be compiled.
    known = torch.compiler.is_compiling() or torch.amp.is_autocast_available(kind)
    if known and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def first_order(backward: Backward) -> Backward:
    """Decorates a backward that has no derivative of its own.

    ``once_differentiable`` of PyTorch drops second derivatives without a word when the incoming
    gradient is a constant, as in ``autograd.grad(loss, z, create_graph=True)``.

    ``torch.func.grad`` always asks for a graph: there they are refused only when they are taken.
    """

    @wraps(backward)
    def checked(ctx: Any, *grads: Any) -> Tensor | tuple[Tensor | None, ...]:
        if grads[0] is None:  # where gradients are not materialised: of a loss that nobody uses
            return (None,) * len(ctx.needs_input_grad)
        asked = not torch.compiler.is_compiling() and torch.is_grad_enabled()
        if asked and not torch._C._are_functorch_transforms_active():
            raise RuntimeError(REFUSED)
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not asked:
            return found
        sources = [grads[0], *ctx.saved_tensors]
        if isinstance(found, Tensor):
            return _refusing(found, sources)
        return tuple(None if part is None else _refusing(part, sources) for part in found)

    return checked


def _refusing(found: Tensor, sources: list[Tensor]) -> Tensor:
    """The same, but not to be differentiated in what it was made of."""
    result: Tensor = _Refusing.apply(found, *sources)  # type: ignore[no-untyped-call]
    return result


class _Refusing(torch.autograd.Function):
    @staticmethod
    def forward(found: Tensor, *sources: Tensor) -> Tensor:
        return found.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        raise RuntimeError(REFUSED)
