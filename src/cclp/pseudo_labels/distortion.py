"""The image distortion model (IDM, Keysers et al. 2007): distances that forgive small distortions.

Two handwritten sevens differ everywhere, though every stroke of one has its counterpart in the
other, a pixel or two away. The model matches every pixel on its own.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cclp.pseudo_labels.features import batches, shrink, steepest_gradients

REACH = 2  # pixels, in both directions
_EDGE = REACH + 1  # and the surroundings of a counterpart
_PAIRS = 512  # at a time


def distortion_distances(
    images: NDArray[Any], chosen: NDArray[np.int64], index: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Distances from every chosen image to some of the others, and from those to it.

    A pixel is compared by the directions of the gradients in the 3 × 3 pixels around it, with all
    pixels of the other image up to two away, and the best counts. Not symmetric: every pixel of the
    first image finds a counterpart, pixels of the other may be left over. Like HOG, it does not see
    contrast, brightness and sign.

    Args:
        images: (N, channels, height, width).
        chosen: n of them.
        index: others for each, as places among the chosen, (n, K).

    Returns:
        Distances to the others, and back from them, each (n, K).

    Examples:
        >>> bar = np.zeros((3, 1, 16, 16))
        >>> bar[0, :, :, 4:6] = bar[1, :, :, 5:7] = bar[2, :, 4:6] = 1
        >>> others = np.array([[1, 2], [0, 2], [0, 1]])
        >>> to, back = distortion_distances(bar, np.arange(3), others)
        >>> moved, turned = to[0]
        >>> bool(moved < 0.1 * turned)
        True
        >>> bool(back[0, 1] == to[2, 0])
        True
    """
    fields = torch.cat([_fields(x) for x in batches(images, chosen)])
    others = index.ravel().astype(np.int64)
    themselves = np.arange(len(index)).repeat(index.shape[1])
    to = _distances(fields, themselves, others)
    # many pairs occur in both rows: the distance back of one is the distance to of the other
    pairs, wanted = themselves * len(index) + others, others * len(index) + themselves
    order = pairs.argsort()
    place = order[np.searchsorted(pairs, wanted, sorter=order).clip(max=len(pairs) - 1)]
    back, missing = to[place], pairs[place] != wanted
    back[missing] = _distances(fields, others[missing], themselves[missing])
    return to.reshape(index.shape), back.reshape(index.shape)


def _distances(fields: Tensor, of: NDArray[np.int64], to: NDArray[np.int64]) -> NDArray[np.float32]:
    """Of pairs of fields, (P,)."""
    distances = np.empty(len(of), np.float32)
    for start in range(0, len(of), _PAIRS):
        part = slice(start, start + _PAIRS)
        pair = (fields[torch.from_numpy(ends[part])] for ends in (of, to))
        distances[part] = _squares(*pair).sqrt()
    return distances


def _fields(x: Tensor) -> Tensor:
    """Directions of the gradients, (n, 2, height, width) in half precision, of length one in all.

    Twice the angle, so that opposite gradients are the same; the root of their size.
    """
    smooth = F.avg_pool2d(shrink(x), 3, 1, padding=1, count_include_pad=False)
    size, angle = steepest_gradients(smooth)
    field = size.sqrt() * torch.cat([torch.cos(2 * angle), torch.sin(2 * angle)], 1)
    return F.normalize(field.flatten(1)).view(field.shape).half()


def _squares(of: Tensor, to: Tensor) -> Tensor:
    """Squared distances of pairs, (P,)."""
    # pairs last: then every operation below runs along memory
    height, width = of.shape[2:]
    q = F.pad(of.permute(1, 2, 3, 0).float(), (0, 0, 1, 1, 1, 1))
    t = F.pad(to.permute(1, 2, 3, 0).float(), (0, 0, _EDGE, _EDGE, _EDGE, _EDGE))
    pixels, other = torch.empty_like(q)
    rows, around = torch.empty_like(q[0, 2:]), torch.empty_like(q[0, 2:, 2:])
    best = torch.full_like(around, torch.inf)
    for down in range(2 * REACH + 1):
        for right in range(2 * REACH + 1):
            there = t[:, down : down + height + 2, right : right + width + 2]
            torch.sub(there[0], q[0], out=pixels).square_()
            torch.sub(there[1], q[1], out=other)
            pixels.addcmul_(other, other)
            torch.add(pixels[:-2], pixels[1:-1], out=rows).add_(pixels[2:])
            torch.add(rows[:, :-2], rows[:, 1:-1], out=around).add_(rows[:, 2:])
            torch.minimum(best, around, out=best)
    return best.sum((0, 1))
