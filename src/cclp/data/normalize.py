"""Inputs as z-scores per channel.

Statistics come from the training set alone and are buffers, so they are saved with the weights.
"""

from collections.abc import Iterator
from math import prod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cclp.data.splits import Indices

SAME_UNIT = 10.0
CONSTANT = 1e-12  # of a feature's size: a smaller standard deviation is rounding
_CHUNK, _CHUNK_VALUES = 4096, 2**24


class ZScore(nn.Module):
    """(x − mean) · scale; the scale is one over the standard deviation.

    Features of vectors that are of one unit have one scale: each by its own, those that vary little
    would be blown up, and they may be nothing but noise.

    Args:
        mean, scale: per channel (images) or per feature (vectors), in a shape that broadcasts.
    """

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.mean: Tensor
        self.scale: Tensor

    @classmethod
    def fit(cls, x: NDArray[Any], index: Indices | None = None) -> Self:
        """Mean and standard deviation of a training set.

        Args:
            x: samples, (N, channels, …); may be a memory map larger than memory.
            index: of the samples to fit on; None: all.
        """
        index = np.arange(len(x)) if index is None else index
        axes = (0, *range(2, x.ndim))
        count = len(index) * prod(x.shape[2:])
        shape = (1, -1, *[1] * (x.ndim - 2))
        mean = sum(chunk.sum(axes) for chunk in _chunks(x, index)) / count
        square = sum(((chunk - mean.reshape(shape)) ** 2).sum(axes) for chunk in _chunks(x, index))
        std = np.sqrt(square / count)
        std = np.where(std > CONSTANT * np.abs(mean), std, 0)
        if x.ndim == 2 and are_of_one_unit(std):
            std = np.where(std > 0, np.sqrt(np.mean(std[std > 0] ** 2)), 0)
        scale = 1 / np.where(std > 0, std, 1)  # a constant channel stays 0
        return cls(_float(mean).reshape(shape), _float(scale).reshape(shape))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of any dtype, (N, channels, …), in float32."""
        return (x.float() - self.mean) * self.scale


def value_range(x: NDArray[Any], index: Indices) -> tuple[float, float]:
    """Smallest and largest value of images; 0 and 0 for vectors.

    Those that are there, of bytes too: the bundled digits are bytes of 0 to 16.

    Args:
        x: samples, (N, …).
        index: of those that may be looked at.
    """
    if x.ndim != 4:
        return 0.0, 0.0
    ends = [(float(chunk.min()), float(chunk.max())) for chunk in _chunks(x, index)]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return (low, high) if high > low else (low, low + 1)


def are_of_one_unit(deviations: NDArray[Any]) -> bool:
    """Whether features of these standard deviations are of one unit (pixels, embeddings, places).

    The largest is at most ten times the median. Then small ones are left small: they may be nothing
    but noise.
    """
    some = deviations[deviations > 0]
    return bool(len(some) and some.max() <= SAME_UNIT * np.median(some))


def _float(array: Any) -> Tensor:
    return torch.tensor(array, dtype=torch.float32)


def _chunks(x: NDArray[Any], index: Indices) -> Iterator[NDArray[np.float64]]:
    """Samples in float64, a part at a time: the whole would take eight times its memory."""
    rows = max(1, min(_CHUNK, _CHUNK_VALUES // prod(x.shape[1:])))
    for start in range(0, len(index), rows):
        yield x[index[start : start + rows]].astype(np.float64)
