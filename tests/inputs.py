"""What the inputs of a network are, for methods that make some."""

import torch

from cclp.methods.base import Inputs


def vector_inputs(size: int) -> Inputs:
    """Vectors that are normalised already."""
    return Inputs((size,), torch.zeros(1, size), torch.ones(1, size))


def image_inputs(channels: int, side: int) -> Inputs:
    """Images of bytes, normalised to about [−1, 1]."""
    shape = (1, channels, 1, 1)
    return Inputs(
        (channels, side, side), torch.full(shape, 127.5), torch.full(shape, 1 / 127.5), 0.0, 255.0
    )
