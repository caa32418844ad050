"""The image distortion model (IDM, Keysers et al. 2007): distances that forgive small distortions.

Two handwritten sevens differ everywhere, though every stroke of one has its counterpart in the
other, a pixel or two away. The model matches every pixel on its own.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cclp.progress import Reporter
from cclp.pseudo_labels.features import batches, shrink, steepest_gradients
from cclp.pseudo_labels.share import ALONE, Share

REACH = 2  # pixels, in both directions
_EDGE = REACH + 1  # and the surroundings of a counterpart
_PAIRS = 256  # at a time
_THREADS = Lock()  # their number is a setting of the process

Distances = tuple[NDArray[np.float32], NDArray[np.float32]]


def gradient_fields(
    images: NDArray[Any], chosen: NDArray[np.int64], report: Reporter | None = None
) -> Tensor:
    """What the model compares of some images, (n, 2, height, width) in half precision.

    The directions of the gradients, as twice the angle, so that opposite ones are the same; their
    length is the root of the gradient's. The field of an image has length one. Like HOG, it does
    not see contrast, brightness and sign.
    """
    found = []
    with (report or Reporter()).work("Finding edges in images", len(chosen)) as done:
        for x in batches(images, chosen):
            found.append(_fields(x))
            done(len(x))
    return torch.cat(found)


def distortion_distances(
    fields: Tensor,
    index: NDArray[np.int64],
    report: Reporter | None = None,
    share: Share = ALONE,
) -> Distances:
    """Distances from every image to some of the others, and from those to it.

    A pixel is compared by the gradients in the 3 × 3 pixels around it, with all pixels of the other
    image up to two away, and the best counts. Not symmetric: every pixel of the first image finds a
    counterpart, pixels of the other may be left over.

    Args:
        fields: of all images, (n, 2, height, width).
        index: others for each, (n, K).
        report: shows progress.
        share: of the comparisons, which this process makes.

    Returns:
        Distances to the others, and back from them, each (n, K).

    Examples:
        >>> bar = np.zeros((3, 1, 16, 16))
        >>> bar[0, :, :, 4:6] = bar[1, :, :, 5:7] = bar[2, :, 4:6] = 1
        >>> others = np.array([[1, 2], [0, 2], [0, 1]])
        >>> to, back = distortion_distances(gradient_fields(bar, np.arange(3)), others)
        >>> moved, turned = to[0]
        >>> bool(moved < 0.1 * turned)
        True
        >>> bool(back[0, 1] == to[2, 0])
        True
    """
    count = len(index)
    others = index.ravel().astype(np.int64)
    themselves = np.arange(count).repeat(index.shape[1])
    # Most pairs are in the rows of both, and one comparison gives both directions.
    first, second = np.minimum(themselves, others), np.maximum(themselves, others)
    pairs, place = np.unique(first * count + second, return_inverse=True)
    mine = pairs[share.rows(len(pairs))]
    found = compare(fields, mine // count, fields, mine % count, report)
    forth, back = (share.whole(distances, len(pairs)) for distances in found)
    turned = (themselves > others).reshape(index.shape)
    forth, back = forth[place].reshape(index.shape), back[place].reshape(index.shape)
    return np.where(turned, back, forth), np.where(turned, forth, back)


def compare(
    a: Tensor,
    of: NDArray[np.int64],
    b: Tensor,
    to: NDArray[np.int64],
    report: Reporter | None = None,
) -> Distances:
    """Distances of the pairs (a[of], b[to]), and back, each (P,)."""
    forth, back = np.empty(len(of), np.float32), np.empty(len(of), np.float32)

    def fill(start: int) -> int:
        part = slice(start, start + _PAIRS)
        squares = _squares(a[torch.from_numpy(of[part])], b[torch.from_numpy(to[part])])
        forth[part], back[part] = (square.sqrt().numpy() for square in squares)
        return len(of[part])

    # A thread of its own for each part: threads within an operation would wait for each other.
    with _THREADS:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with (
                (report or Reporter()).work("Comparing similar images", len(of)) as done,
                ThreadPoolExecutor(threads) as pool,
            ):
                for count in pool.map(fill, range(0, len(of), _PAIRS)):
                    done(count)
        finally:
            torch.set_num_threads(threads)
    return forth, back


def _fields(x: Tensor) -> Tensor:
    smooth = F.avg_pool2d(shrink(x), 3, 1, padding=1, count_include_pad=False)
    size, angle = steepest_gradients(smooth)
    field = size.sqrt() * torch.cat([torch.cos(2 * angle), torch.sin(2 * angle)], 1)
    return F.normalize(field.flatten(1)).view(field.shape).half()


def _squares(of: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances of pairs in both directions, each (P,).

    Both take their smallest from the same costs: a pixel p of the first against p + d of the other.
    """
    height, width = of.shape[2:]
    # pairs last: then every operation below runs along memory
    q, t = (F.pad(z.permute(1, 2, 3, 0).float(), (0, 0, *4 * [_EDGE])) for z in (of, to))
    forth, back = (torch.full((height, width, len(of)), torch.inf) for _ in range(2))
    one, two = (q.new_empty(q[0].numel()) for _ in range(2))
    for down in range(-REACH, REACH + 1):
        for right in range(-REACH, REACH + 1):
            # p such that p or p + d is in its image, and its surroundings
            top, left = min(0, -down), min(0, -right)
            tall, wide = height + abs(down), width + abs(right)
            p = q[:, _EDGE + top - 1 :, _EDGE + left - 1 :][:, : tall + 2, : wide + 2]
            there = t[:, _EDGE + top + down - 1 :, _EDGE + left + right - 1 :]
            there = there[:, : tall + 2, : wide + 2]
            pixels, other = (_view(room, p[0].shape) for room in (one, two))
            torch.sub(there[0], p[0], out=pixels).square_()
            torch.sub(there[1], p[1], out=other)
            pixels.addcmul_(other, other)
            rows = _view(two, (tall, wide + 2, len(of)))
            torch.add(pixels[:-2], pixels[1:-1], out=rows).add_(pixels[2:])
            costs = _view(one, (tall, wide, len(of)))
            torch.add(rows[:, :-2], rows[:, 1:-1], out=costs).add_(rows[:, 2:])
            here = costs[-top:, -left:][:height, :width]
            torch.minimum(forth, here, out=forth)
            here = costs[-top - down :, -left - right :][:height, :width]
            torch.minimum(back, here, out=back)
    return forth.sum((0, 1)), back.sum((0, 1))


def _view(room: Tensor, shape: tuple[int, ...]) -> Tensor:
    return room[: int(np.prod(shape))].view(shape)
