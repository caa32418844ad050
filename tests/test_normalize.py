"""Inputs as the network sees them."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cclp.data.normalize import fit_normalizer, saved_normalizer


def _images(channels: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(0)
    scale = np.array([40, 90, 200])[:channels, None, None]
    x: NDArray[np.uint8] = (rng.random((5000, channels, 4, 4)) * scale).astype(np.uint8)
    return x


def test_zscore_per_channel() -> None:
    x = _images(3)
    prepared = fit_normalizer("zscore", x)(torch.tensor(x))
    assert prepared.dtype == torch.float32
    expected = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(prepared.numpy(), expected, atol=1e-5)


def test_zscore_of_vectors_and_constants() -> None:
    x = np.array([[1.0, 7.0], [3.0, 7.0]], np.float32)
    prepared = fit_normalizer("zscore", x)(torch.tensor(x))
    torch.testing.assert_close(prepared, torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))


def test_zca_whitens_and_stays_close_to_the_input() -> None:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(20000, 16)) @ rng.normal(size=(16, 16)) + 5
    x = mixed.reshape(-1, 1, 4, 4).astype(np.float32)
    normalizer = fit_normalizer("zca", x)
    prepared = normalizer(torch.tensor(x)).flatten(1).double().numpy()
    covariance = np.cov(prepared.T)
    values = np.linalg.eigvalsh(np.cov(mixed.T))
    expected = values / (values + 0.01 * values.mean())  # what the floor leaves of 1
    np.testing.assert_allclose(
        np.sort(np.linalg.eigvalsh(covariance)), np.sort(expected), atol=0.01
    )
    np.testing.assert_allclose(prepared.mean(0), 0, atol=1e-3)
    matrix = normalizer.matrix
    assert isinstance(matrix, torch.Tensor)
    torch.testing.assert_close(matrix, matrix.T)


def test_zca_of_pixels_that_never_change() -> None:
    x = _images(1)
    x[:, :, 0] = 0
    prepared = fit_normalizer("zca", x)(torch.tensor(x))
    assert prepared.isfinite().all()
    assert prepared.abs().max() < 10
    constant = fit_normalizer("zca", np.full((10, 1, 2, 2), 3, np.uint8))
    assert (constant(torch.full((2, 1, 2, 2), 3)) == 0).all()


@pytest.mark.parametrize("kind", ["zscore", "zca"])
def test_a_normalizer_comes_back_from_its_buffers(kind: str) -> None:
    x = _images(3)
    fitted = fit_normalizer(kind, x, np.arange(0, 5000, 2))
    saved = saved_normalizer(kind, dict(fitted.named_buffers()))
    torch.testing.assert_close(saved(torch.tensor(x)), fitted(torch.tensor(x)), rtol=0, atol=0)
    half = fit_normalizer(kind, x[::2])
    torch.testing.assert_close(half(torch.tensor(x)), fitted(torch.tensor(x)), rtol=0, atol=0)


def test_zca_of_large_images_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 4096 values a sample, got 12288: use 'zscore'"):
        fit_normalizer("zca", np.zeros((2, 3, 64, 64), np.uint8))
