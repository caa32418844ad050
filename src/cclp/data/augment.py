"""Augmentation: random changes of an input that keep its class.

Methods and recipes that need it ask for it; the paper's do not. A function changes a whole batch of
normalised inputs, each sample by random numbers of its own. Vectors come back unchanged, except
from ``weak`` and ``strong``.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from cclp.draws import rand, rand_like, randint, randn_like


def make_augmentation(
    random_affine: float, color_jitter: bool, horizontal_flip: bool
) -> Callable[[Tensor], Tensor] | None:
    """Compose the augmentations that a recipe asks for, in a function that can be pickled.

    Args:
        random_affine: strength of the affine transformation; 0: none.
        color_jitter: whether colours are jittered.
        horizontal_flip: whether half of the images are flipped.

    Returns:
        A function of a batch of normalised inputs; None if nothing is asked for.
    """
    if not (random_affine or color_jitter or horizontal_flip):
        return None
    return partial(_augment, affine=random_affine, color=color_jitter, flip=horizontal_flip)


def _augment(x: Tensor, affine: float, color: bool, flip: bool) -> Tensor:
    """In this order: another one would use other random numbers for the same seed."""
    if affine:
        x = random_affine(x, affine)
    if flip:
        x = horizontal_flip(x)
    return color_jitter(x) if color else x


def weak(x: Tensor) -> Tensor:
    """Weak augmentation of FixMatch.

    Images are translated by up to an eighth of their size; vectors get Gaussian noise of standard
    deviation 0.1.
    """
    if x.ndim != 4:
        return x + 0.1 * randn_like(x)
    return _affine(x, translation=0.125, rotation=0.0)


def random_affine(x: Tensor, strength: float = 1.0) -> Tensor:
    """Translate images by up to 1/28 of their size, rotate them by up to 6 degrees, scale and shear
    them by up to 6 %, or ``strength`` times that.
    """
    if x.ndim != 4:
        return x
    rotation = math.radians(6 * strength)
    return _affine(x, translation=strength / 28, rotation=rotation, scale=0.06 * strength)


def color_jitter(x: Tensor) -> Tensor:
    """Change contrast and brightness of images and of each channel, and invert half of them."""
    if x.ndim != 4:
        return x
    n = len(x)
    sign = torch.where(rand(n, device=x.device) < 0.5, -1.0, 1.0)
    contrast = (0.5 * _uniform(n, x.device)).exp()
    brightness = 0.5 * _uniform(n, x.device)
    channel = 0.2 * _uniform(n * x.shape[1], x.device).view(n, -1, 1, 1)
    mean = x.mean((2, 3), keepdim=True)
    changed = (x - mean) * _per_image(contrast) + mean + _per_image(brightness) + channel
    return _per_image(sign) * changed


def horizontal_flip(x: Tensor) -> Tensor:
    """Flip half of the images left to right: not for digits or letters."""
    if x.ndim != 4:
        return x
    return torch.where(_per_image(rand(len(x), device=x.device) < 0.5), x.flip(3), x)


def strong(x: Tensor) -> Tensor:
    """Strong augmentation of FixMatch.

    Images are translated, rotated by up to 20 degrees, get Cutout (a square of half their size) and
    Gaussian noise. Vectors get dropout of a quarter of their features, and Gaussian noise.
    """
    if x.ndim != 4:
        kept = rand_like(x) >= 0.25
        return torch.where(kept, x, 0) + 0.3 * randn_like(x)
    x = _cutout(_affine(x, translation=0.125, rotation=math.radians(20)))
    return x + 0.3 * randn_like(x)


def _affine(x: Tensor, translation: float, rotation: float, scale: float = 0.0) -> Tensor:
    """Translate, rotate about the centre, scale and shear; the border is repeated outside."""
    n = len(x)
    angle = rotation * _uniform(n, x.device)
    cos, sin = angle.cos(), angle.sin()
    offset = 2 * translation * torch.stack([_uniform(n, x.device), _uniform(n, x.device)], 1)
    matrix = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
    if scale:
        width, height, shear = (scale * _uniform(n, x.device) for _ in range(3))
        rows = [torch.stack([1 + width, shear], 1), torch.stack([0 * shear, 1 + height], 1)]
        matrix = matrix @ torch.stack(rows, 1)
    theta = torch.cat([matrix, offset[:, :, None]], 2)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x.float(), grid, padding_mode="border", align_corners=False)


def _cutout(x: Tensor) -> Tensor:
    """Set a square of half the size, around a random pixel, to the mean."""
    height, width = x.shape[2:]
    row = randint(height, (len(x), 1, 1, 1), x.device)
    column = randint(width, (len(x), 1, 1, 1), x.device)
    rows = torch.arange(height, device=x.device)[None, None, :, None]
    columns = torch.arange(width, device=x.device)[None, None, None, :]
    inside = ((rows - row).abs() <= height // 4) & ((columns - column).abs() <= width // 4)
    return torch.where(inside, 0.0, x)


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def _uniform(count: int, device: torch.device) -> Tensor:
    """In [−1, 1]."""
    return 2 * rand(count, device=device) - 1
