"""Small changes that keep the class: for methods and recipes that ask for them, never the paper's.

They act on a batch of normalised inputs at once, each sample changed in its own way. Vectors are
left as they are, but for the methods' own ``weak`` and ``strong``.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor


def weak(x: Tensor) -> Tensor:
    """Images are moved by up to an eighth of their size; vectors get a little noise."""
    if x.ndim != 4:
        return x + 0.1 * torch.randn_like(x)
    return _affine(x, shift=0.125, turn=0.0)


def random_affine(x: Tensor, amount: float = 1.0) -> Tensor:
    """Images are moved by up to a pixel in 28, turned by up to 6 degrees, stretched and slanted by
    up to 6 %, or ``amount`` times that.
    """
    if x.ndim != 4:
        return x
    turn = math.radians(6 * amount)
    return _affine(x, shift=amount / 28, turn=turn, stretch=0.06 * amount)


def color_jitter(x: Tensor) -> Tensor:
    """Images get 0.6 to 1.6 times the contrast, another brightness and a tint; half of them become
    negatives.
    """
    if x.ndim != 4:
        return x
    n = len(x)
    sign = torch.where(torch.rand(n, device=x.device) < 0.5, -1.0, 1.0)
    contrast = (0.5 * _uniform(n, x.device)).exp()
    light = 0.5 * _uniform(n, x.device)
    tint = 0.2 * _uniform(n * x.shape[1], x.device).view(n, -1, 1, 1)
    mean = x.mean((2, 3), keepdim=True)
    changed = (x - mean) * _per_image(contrast) + mean + _per_image(light) + tint
    return _per_image(sign) * changed


def horizontal_flip(x: Tensor) -> Tensor:
    """Half of the images are flipped, left to right: not for digits or letters."""
    if x.ndim != 4:
        return x
    return torch.where(_per_image(torch.rand(len(x), device=x.device) < 0.5), x.flip(3), x)


def strong(x: Tensor) -> Tensor:
    """Images are moved, turned by up to 20 degrees, cut out in one square of half their size and
    get noise; of vectors a quarter of the features is set to the mean, and noise is added.
    """
    if x.ndim != 4:
        kept = torch.rand_like(x) >= 0.25
        return torch.where(kept, x, 0) + 0.3 * torch.randn_like(x)
    x = _cut_out(_affine(x, shift=0.125, turn=math.radians(20)))
    return x + 0.3 * torch.randn_like(x)


def _affine(x: Tensor, shift: float, turn: float, stretch: float = 0.0) -> Tensor:
    """Moved, turned about the centre, stretched and slanted; outside, the border is repeated."""
    n = len(x)
    angle = turn * _uniform(n, x.device)
    cos, sin = angle.cos(), angle.sin()
    move = 2 * shift * torch.stack([_uniform(n, x.device), _uniform(n, x.device)], 1)
    matrix = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
    if stretch:
        wide, high, slant = (stretch * _uniform(n, x.device) for _ in range(3))
        rows = [torch.stack([1 + wide, slant], 1), torch.stack([0 * slant, 1 + high], 1)]
        matrix = matrix @ torch.stack(rows, 1)
    theta = torch.cat([matrix, move[:, :, None]], 2)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x.float(), grid, padding_mode="border", align_corners=False)


def _cut_out(x: Tensor) -> Tensor:
    """A square of half the size, about a random pixel, set to the mean."""
    height, width = x.shape[2:]
    row = torch.randint(height, (len(x), 1, 1, 1), device=x.device)
    column = torch.randint(width, (len(x), 1, 1, 1), device=x.device)
    rows = torch.arange(height, device=x.device)[None, None, :, None]
    columns = torch.arange(width, device=x.device)[None, None, None, :]
    inside = ((rows - row).abs() <= height // 4) & ((columns - column).abs() <= width // 4)
    return torch.where(inside, 0.0, x)


def _per_image(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def _uniform(count: int, device: torch.device) -> Tensor:
    """In [−1, 1]."""
    return 2 * torch.rand(count, device=device) - 1


def make_augmentation(affine: float, color: bool, flip: bool) -> Callable[[Tensor], Tensor] | None:
    """The augmentation of a recipe; None if there is none."""
    if not (affine or color or flip):
        return None
    return partial(_augment, affine=affine, color=color, flip=flip)


def _augment(x: Tensor, affine: float, color: bool, flip: bool) -> Tensor:
    if affine:
        x = random_affine(x, affine)
    if flip:
        x = horizontal_flip(x)
    return color_jitter(x) if color else x
