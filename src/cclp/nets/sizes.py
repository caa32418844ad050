"""Whether a network is as large as its weights, before its memory is taken."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class _WithoutValues(TorchFunctionMode):
    """Leaves out what initialises weights: of tensors that are sizes alone, that takes seconds."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        return func(*args, **(kwargs or {}))


def compare_sizes(make: Callable[[], nn.Module], tensors: Mapping[str, Tensor]) -> None:
    """Make sure that weights, which may be a stranger's, have the sizes of a network.

    Args:
        make: the network; not code of the user's own, which may do more than that.
        tensors: weights by name.

    Raises:
        RuntimeError: if they have not.
    """
    with torch.device("meta"), _WithoutValues():
        expected = make().state_dict()
    for name, tensor in tensors.items():
        if name in expected and expected[name].shape != tensor.shape:
            raise RuntimeError(
                f"{name} must be of shape {tuple(expected[name].shape)}, got {tuple(tensor.shape)}"
            )
