"""Inputs as the network sees them."""

import numpy as np
import torch

from cclp.data.normalize import ZScore, are_of_one_unit

IMAGES = (
    np.random.default_rng(0).random((500, 3, 4, 4)) * np.array([40, 90, 200])[:, None, None]
).astype(np.uint8)


def test_images_per_channel() -> None:
    prepared = ZScore.fit(IMAGES)(torch.tensor(IMAGES))
    assert prepared.dtype == torch.float32
    mean, std = IMAGES.mean((0, 2, 3), keepdims=True), IMAGES.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(prepared.numpy(), (IMAGES - mean) / std, atol=1e-5)


def test_vectors_and_constants() -> None:
    x = np.array([[1.0, 7.0], [3.0, 7.0]], np.float32)
    prepared = ZScore.fit(x)(torch.tensor(x))
    torch.testing.assert_close(prepared, torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))


def test_samples_larger_than_a_chunk() -> None:
    x = np.random.default_rng(0).random((4097, 2)).astype(np.float32)
    fitted = ZScore.fit(x)
    np.testing.assert_allclose(fitted.mean.numpy()[0], x.mean(0, np.float64), rtol=1e-6)
    one = np.sqrt((x.std(0, np.float64) ** 2).mean())
    np.testing.assert_allclose(1 / fitted.scale.numpy()[0], [one, one], rtol=1e-6)


def test_features_of_one_unit_keep_their_proportions_and_others_do_not() -> None:
    """What varies little beside the others may be nothing but noise."""
    x = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    near, apart = (ZScore.fit(x * np.array(units, np.float32)) for units in ((1, 2, 4), (1, 2, 40)))
    assert len(set(near.scale.numpy()[0])) == 1
    np.testing.assert_allclose(
        1 / apart.scale.numpy()[0], (x * [1, 2, 40]).std(0, dtype=np.float64), rtol=1e-5
    )
    assert are_of_one_unit(np.array([1.0, 2, 4, 0]))
    assert not are_of_one_unit(np.array([1.0, 2, 40]))
    assert not are_of_one_unit(np.zeros(3))


def test_only_the_samples_named_are_fitted_on() -> None:
    fitted = ZScore.fit(IMAGES, np.arange(0, 500, 2))
    half = ZScore.fit(IMAGES[::2])
    torch.testing.assert_close(half.state_dict(), fitted.state_dict(), rtol=0, atol=0)
    assert not half.mean.equal(ZScore.fit(IMAGES).mean)


def test_a_normalizer_comes_back_from_its_buffers() -> None:
    fitted = ZScore.fit(IMAGES)
    saved = ZScore(**dict(fitted.named_buffers()))
    assert saved(torch.tensor(IMAGES)).equal(fitted(torch.tensor(IMAGES)))
