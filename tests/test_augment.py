"""Augmentation keeps the class, is as strong as it says, and is fixed by the seed."""

import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cclp.data.augment import (
    color_jitter,
    horizontal_flip,
    make_augmentation,
    random_affine,
    strong,
    weak,
)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def offsets(x: Tensor, dims: tuple[int, int]) -> Tensor:
    """How far the centre of mass of each image lies from the centre, in pixels."""
    place = torch.arange(x.shape[2], dtype=x.dtype)
    place -= place.mean()
    return (x.sum(dims) * place).sum(1) / x.sum((1, 2, 3))


def test_random_affine_moves_rotates_and_scales() -> None:
    x = torch.zeros(200, 1, 28, 28)
    x[:, :, 10:18, 13:15] = 1  # a bar
    changed = random_affine(x)
    mass = changed.sum((1, 2, 3))
    assert (mass / 16 - 1).abs().max() < 0.2
    for moved in (offsets(changed, (1, 3)), offsets(changed, (1, 2))):
        assert 0.4 < moved.std() < 0.8  # uniform up to a pixel: 0.58
        assert moved.abs().max() < 1.3
    place = torch.arange(28.0) - 13.5
    sheared = torch.einsum("nchw,h,w->n", changed, place, place) / mass
    assert 0.3 < sheared.std() < 1.5
    assert 0.9 < offsets(random_affine(x, 2.0), (1, 3)).std() < 1.5


def test_color_jitter_keeps_the_edges() -> None:
    x = torch.randn(400, 3, 8, 8)
    changed = color_jitter(x)
    ratio = (changed - changed.mean((2, 3), keepdim=True)) / (x - x.mean((2, 3), keepdim=True))
    contrast = ratio.flatten(1).median(1).values[:, None, None, None]
    torch.testing.assert_close(ratio, contrast.expand_as(ratio), rtol=0.01, atol=0.01)
    assert 0.4 < (contrast < 0).float().mean() < 0.6  # inverted
    assert 0.6 < contrast.abs().min() < 0.63
    assert 1.6 < contrast.abs().max() < 1.65
    brightness = (changed * contrast.sign() - x).mean((2, 3))
    assert 0.55 < brightness.abs().max() < 0.7  # 0.5 for the image and 0.2 for the channel


def test_half_of_the_images_are_flipped() -> None:
    x = torch.rand(400, 1, 3, 4)
    changed = horizontal_flip(x)
    same, flipped = ((changed == other).flatten(1).all(1) for other in (x, x.flip(3)))
    assert (same | flipped).all()
    assert 160 < flipped.sum() < 240


def test_weak_translates_by_up_to_an_eighth() -> None:
    x = torch.zeros(200, 1, 16, 16)
    x[:, :, 7:9, 7:9] = 1
    moved = offsets(weak(x), (1, 3))
    assert -2.1 < moved.min() < -1
    assert 1 < moved.max() < 2.1


def test_strong_cuts_out_a_square() -> None:
    x = torch.full((100, 1, 16, 16), 5.0)
    cut = (strong(x) < 2.5).flatten(1).float().mean(1)  # noise of 0.3 around 5 and around 0
    assert 0.05 < cut.min() < cut.max() < 0.33  # at most 9 x 9 of 16 x 16, less at the border


@pytest.mark.parametrize("augment", [weak, strong])
@pytest.mark.parametrize("shape", [(50, 1, 28, 28), (50, 3, 16, 20), (50, 30)])
def test_samples_are_augmented_independently(
    augment: Callable[[Tensor], Tensor], shape: tuple[int, ...]
) -> None:
    x = torch.randn(1, *shape[1:]).expand(shape).contiguous()
    if x.ndim == 4:
        x = torch.nn.functional.avg_pool2d(x, 9, 1, 4) * 6  # smooth, as images are
    changed = augment(x)
    assert changed.shape == x.shape
    assert changed.isfinite().all()
    assert torch.pdist(changed.flatten(1)).min() > 0
    correlation = torch.corrcoef(torch.stack([x.flatten(), changed.flatten()]))[0, 1]
    assert (0.3 if augment is strong else 0.5) < correlation < 0.999


def test_vectors() -> None:
    x = torch.full((1000, 4), 5.0)
    for unchanged in (random_affine, color_jitter, horizontal_flip):
        assert unchanged(x) is x
    noise = weak(x) - x
    assert 0.09 < noise.std() < 0.11
    assert 0.2 < (strong(x) < 2.5).float().mean() < 0.3


@pytest.mark.parametrize("affine", [0.0, 1.5])
@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("flip", [False, True])
def test_composed_in_one_order(affine: float, color: bool, flip: bool) -> None:
    augment = make_augmentation(random_affine=affine, color_jitter=color, horizontal_flip=flip)
    assert (augment is None) == (not (affine or color or flip))
    if augment is None:
        return
    x = torch.rand(6, 3, 8, 8)
    torch.manual_seed(1)
    changed = pickle.loads(pickle.dumps(augment))(x)
    torch.manual_seed(1)
    expected = random_affine(x, affine) if affine else x
    expected = horizontal_flip(expected) if flip else expected
    expected = color_jitter(expected) if color else expected
    assert changed.equal(expected)
    assert not changed.equal(x)
