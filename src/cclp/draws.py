"""Random numbers from a generator of the training's own, which no other thread draws from.

Within :func:`own_generator` the layers, augmentations and methods of this package draw from it on
the CPU. Elsewhere, on other devices and in compiled functions they draw from torch's global
generators, as torch itself does. The numbers for a seed are the same.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class _Own(threading.local):
    generator: torch.Generator | None = None


_own = _Own()
_OTHER = 1  # bit in which the seed of global generators differs: they give other numbers


@contextmanager
def own_generator() -> Iterator[None]:
    """This thread has a generator of its own within."""
    before, _own.generator = _own.generator, torch.Generator()
    try:
        yield
    finally:
        _own.generator = before


def generator_for(device: torch.device) -> torch.Generator | None:
    """To draw from; None: torch's global one."""
    if torch.compiler.is_compiling() or device.type != "cpu":
        return None
    return _own.generator


def seed_generators(seed: int) -> None:
    """Seed the thread's own generator, and the global ones for code that is not ours."""
    if _own.generator is not None:
        _own.generator.manual_seed(seed)
        seed ^= _OTHER
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # the same, without a stack trace for each kind of device that is not there
        torch.default_generator.manual_seed(seed)


@contextmanager
def seeded_generators(seed: int, device: torch.device) -> Iterator[None]:
    """Seed them; afterwards they go on as if nothing had been drawn."""
    own = _own.generator
    state = None if own is None else own.get_state()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed_generators(seed)
        try:
            yield
        finally:
            if own is not None and state is not None:
                own.set_state(state)


def rand(*size: int, device: torch.device) -> Tensor:
    """Uniform in [0, 1)."""
    return torch.rand(size, device=device, generator=generator_for(device))


def randn(*size: int, device: torch.device) -> Tensor:
    """N(0, 1)."""
    return torch.randn(size, device=device, generator=generator_for(device))


def randint(high: int, size: tuple[int, ...], device: torch.device) -> Tensor:
    """Integers from 0 to below ``high``."""
    return torch.randint(high, size, device=device, generator=generator_for(device))


def rand_like(x: Tensor) -> Tensor:
    """Uniform in [0, 1), as many as there are in ``x``."""
    if (generator := generator_for(x.device)) is None:
        return torch.rand_like(x)
    return torch.empty_like(x).uniform_(generator=generator)


def randn_like(x: Tensor) -> Tensor:
    """N(0, 1), as many as there are in ``x``."""
    if (generator := generator_for(x.device)) is None:
        return torch.randn_like(x)
    return torch.empty_like(x).normal_(generator=generator)


class Dropout(nn.Dropout):
    """torch's layer, with random numbers from here."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """``input``, some of it zero."""
        return _drop(self, super().forward, input, input.shape)


class Dropout2d(nn.Dropout2d):
    """torch's layer, with random numbers from here."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """``input`` of (N, C, H, W), some of its channels zero."""
        return _drop(self, super().forward, input, (*input.shape[:2], 1, 1))


def _drop(
    layer: nn.Dropout | nn.Dropout2d,
    torchs: Callable[[Tensor], Tensor],
    x: Tensor,
    shape: tuple[int, ...],
) -> Tensor:
    generator = generator_for(x.device)
    if generator is None or not layer.training or not 0 < layer.p < 1 or not x.numel():
        return torchs(x)
    kept = torch.empty_like(x) if shape == x.shape else x.new_empty(shape)  # in its memory format
    return x * kept.bernoulli_(1 - layer.p, generator=generator).div_(1 - layer.p)


class OwnInitialization(TorchFunctionMode):
    """Within, tensors on the CPU are filled with random numbers from the thread's own generator.

    torch's layers fill their weights when they are made. This is slow: not for training.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func in _FILLING and named.get("generator") is None:
            filled = args[0] if args else named["tensor"]
            named["generator"] = generator_for(filled.device)
        return func(*args, **named)


_FILLING = {
    Tensor.bernoulli_, Tensor.normal_, Tensor.uniform_,
    nn.init.kaiming_uniform_, nn.init.normal_, nn.init.uniform_,
}  # fmt: skip
