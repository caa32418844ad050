"""Inputs as the network sees them: z-scores per channel, or ZCA-whitened pixels.

Statistics come from the training set alone and are buffers, so they are saved with the weights.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cclp.data.splits import Indices

MOST_ZCA = 4096
_CHUNK, _CHUNK_VALUES = 4096, 2**24


class ZScore(nn.Module):
    """(x − mean) · scale; the scale is one over the standard deviation.

    Args:
        mean, scale: per channel (images) or per feature (vectors), as they are broadcast.
    """

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.mean: Tensor
        self.scale: Tensor

    @classmethod
    def fit(cls, x: NDArray[Any], index: Indices) -> "ZScore":
        axes = (0, *range(2, x.ndim))
        count = len(index) * prod(x.shape[2:])
        shape = (1, -1, *[1] * (x.ndim - 2))
        mean = sum(chunk.sum(axes) for chunk in _chunks(x, index)) / count
        square = sum(((chunk - mean.reshape(shape)) ** 2).sum(axes) for chunk in _chunks(x, index))
        std = np.sqrt(square / count)
        scale = 1 / np.where(std > 0, std, 1)  # a constant channel stays 0
        return cls(_float(mean).reshape(shape), _float(scale).reshape(shape))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of any dtype, (N, channels, …), in float32."""
        return (x.float() - self.mean) * self.scale


class ZCA(nn.Module):
    """Whitening that stays close to the input: W (x − mean), W = U (Λ + ε)^(-1/2) Uᵀ.

    U and Λ are eigenvectors and eigenvalues of the covariance of all pixels; ε is a hundredth of
    the mean eigenvalue, so that pixels which never change are not blown up.

    Args:
        mean: of each pixel.
        matrix: W.
    """

    def __init__(self, mean: Tensor, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("matrix", matrix)
        self.mean: Tensor
        self.matrix: Tensor

    @classmethod
    def fit(cls, x: NDArray[Any], index: Indices) -> "ZCA":
        size = prod(x.shape[1:])
        if size > MOST_ZCA:
            raise ValueError(
                f"normalization 'zca' is for at most {MOST_ZCA} values a sample, got {size}: use "
                "'zscore'"
            )
        mean = sum(chunk.reshape(-1, size).sum(0) for chunk in _chunks(x, index)) / len(index)
        covariance = np.zeros((size, size))
        for chunk in _chunks(x, index):
            centred = chunk.reshape(-1, size) - mean
            covariance += centred.T @ centred / len(index)
        values, vectors = np.linalg.eigh(covariance)
        floor = 0.01 * values.mean() or 1.0
        matrix = (vectors / np.sqrt(values.clip(0) + floor)) @ vectors.T
        return cls(_float(mean), _float(matrix))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of any dtype, (N, …), in float32 whatever autocast says."""
        with torch.autocast(x.device.type, enabled=False):
            return ((x.float().flatten(1) - self.mean) @ self.matrix).reshape(x.shape)


NORMALIZERS: dict[str, type[ZScore | ZCA]] = {"zscore": ZScore, "zca": ZCA}


def fit_normalizer(kind: str, x: NDArray[Any], index: Indices | None = None) -> nn.Module:
    """The module that turns raw inputs into the network's, fitted on the training set.

    Args:
        kind: "zscore" or "zca".
        x: samples, (N, channels, …); may be a memory map larger than memory.
        index: of those to fit on; None: all.
    """
    return NORMALIZERS[kind].fit(x, np.arange(len(x)) if index is None else index)


def saved_normalizer(kind: str, buffers: dict[str, Tensor]) -> nn.Module:
    """The module of that kind, from its buffers."""
    return NORMALIZERS[kind](**buffers)


def _float(array: Any) -> Tensor:
    return torch.tensor(array, dtype=torch.float32)


def _chunks(x: NDArray[Any], index: Indices) -> Iterator[NDArray[np.float64]]:
    """Samples in float64, a part at a time: the whole would take eight times its memory."""
    rows = max(1, min(_CHUNK, _CHUNK_VALUES // prod(x.shape[1:])))
    for start in range(0, len(index), rows):
        yield x[index[start : start + rows]].astype(np.float64)
