"""Inputs as the network sees them: z-scores per channel, or ZCA-whitened pixels.

Statistics come from the training set alone and are buffers, so they are saved with the weights.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_CHUNK = 4096


class ZScore(nn.Module):
    """(x − mean) / standard deviation, per channel (images) or per feature (vectors)."""

    def __init__(self, train_x: NDArray[np.generic]) -> None:
        super().__init__()
        axes = (0, *range(2, train_x.ndim))
        count = train_x.size // train_x.shape[1]
        mean = sum(chunk.sum(axes) for chunk in _chunks(train_x)) / count
        shape = (1, -1, *[1] * (train_x.ndim - 2))
        square = sum(((chunk - mean.reshape(shape)) ** 2).sum(axes) for chunk in _chunks(train_x))
        std = np.sqrt(square / count)
        scale = 1 / np.where(std > 0, std, 1)  # a constant channel stays 0
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).reshape(shape))
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32).reshape(shape))
        self.mean: Tensor
        self.scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of any dtype, (N, channels, …), in float32."""
        return (x.float() - self.mean) * self.scale


class ZCA(nn.Module):
    """Whitening that stays close to the input: W (x − mean), W = U (Λ + ε)^(-1/2) Uᵀ.

    U and Λ are eigenvectors and eigenvalues of the covariance of all pixels; ε is a hundredth of
    the mean eigenvalue, so that pixels which never change are not blown up.
    """

    def __init__(self, train_x: NDArray[np.generic]) -> None:
        super().__init__()
        size = train_x[0].size
        mean = sum(chunk.reshape(-1, size).sum(0) for chunk in _chunks(train_x)) / len(train_x)
        covariance = np.zeros((size, size))
        for chunk in _chunks(train_x):
            centred = chunk.reshape(-1, size) - mean
            covariance += centred.T @ centred / len(train_x)
        values, vectors = np.linalg.eigh(covariance)
        floor = 0.01 * values.mean() or 1.0
        matrix = (vectors / np.sqrt(values.clip(0) + floor)) @ vectors.T
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("matrix", torch.tensor(matrix, dtype=torch.float32))
        self.mean: Tensor
        self.matrix: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of any dtype, (N, …), in float32 whatever autocast says."""
        with torch.autocast(x.device.type, enabled=False):
            return ((x.float().flatten(1) - self.mean) @ self.matrix).reshape(x.shape)


def fit_normalizer(kind: str, train_x: NDArray[np.generic]) -> nn.Module:
    """The module that turns raw inputs into the network's, fitted on the training set.

    Args:
        kind: "zscore" or "zca".
        train_x: the training set, (N, channels, …).
    """
    return {"zscore": ZScore, "zca": ZCA}[kind](train_x)


def _chunks(x: NDArray[np.generic]) -> Iterator[NDArray[np.float64]]:
    """``x`` in float64, a part at a time: the whole would take eight times its memory."""
    for start in range(0, len(x), _CHUNK):
        yield x[start : start + _CHUNK].astype(np.float64)
