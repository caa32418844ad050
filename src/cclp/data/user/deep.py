"""Pixels of more than eight bits: 16-bit and 32-bit integers, real numbers, channels of TIFF files.

Pillow reads grey ones. Other TIFF files (2, 4 or more channels, 16-bit colour, 64-bit numbers) are
read by the package tifffile: the first three channels, or the first alone if there are fewer.
"""

import logging
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cclp.data.dataset import check_finite_range

Bytes = NDArray[np.uint8]
Pixels = NDArray[Any]  # (height, width) or (height, width, 3), of any kind of number
Range = tuple[float, float]
Depth = Literal["8-bit", "16-bit", "32-bit", "real"]
FULL_RANGE = (0.0, 65535.0)  # of 16-bit images, where it is not found from the data
_BITS_PER_SAMPLE, _SAMPLES, _SAMPLE_FORMAT = 258, 277, 339  # tags of TIFF
_MOST_CHANNELS = 64
_BYTES_SCALED = 18  # of a value that becomes eight bits
_NONE, _LZW, _PACKBITS, _DEFLATE = 1, 5, 32773, (8, 32946, 50013)  # compressions of TIFF
_BYTES_OF_RUNS = 9  # of a byte that tifffile unpacks from runs (PackBits), in a list
_COPIES = 3  # of a part of a page: unpacked, with all its pixels, in the place of its own
_SLACK = 2**16  # bytes at the end of a part that are too many, and harmless
_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def is_tiff(path: Path) -> bool:
    """Whether a file begins as TIFF files do."""
    with path.open("rb") as file:
        return file.read(4) in _SIGNATURES


def depth_of(image: Image.Image) -> Depth:
    """Of an opened image, without reading its pixels."""
    if image.mode == "F":
        return "real"
    tags = getattr(image, "tag_v2", {})
    bits = max(tags.get(_BITS_PER_SAMPLE, (8,)))
    if image.mode.startswith("I"):
        return "16-bit" if image.mode.startswith("I;16") or bits == 16 else "32-bit"
    return "16-bit" if bits > 8 else "8-bit"


def needs_tifffile(image: Image.Image) -> bool:
    """Whether an opened image has several channels of more than eight bits, in a TIFF file.

    Pillow drops the lower bits.
    """
    return depth_of(image) != "8-bit" and getattr(image, "tag_v2", {}).get(_SAMPLES, 1) > 1


def is_unsigned(image: Image.Image) -> bool:
    """Whether pixels of an opened image are unsigned 32-bit numbers, which Pillow takes as signed.

    They are the default of TIFF files.
    """
    tags = getattr(image, "tag_v2", {})
    return tags.get(_BITS_PER_SAMPLE) == (32,) and tags.get(_SAMPLE_FORMAT, (1,)) == (1,)


def tiff_header(path: Path) -> tuple[tuple[int, int], int, Depth, int]:
    """Width and height, channels, depth and pages of a TIFF file, by tifffile.

    Raises:
        Exception: of many kinds, if it is damaged or of an unknown kind.
    """
    with _tifffile().TiffFile(path) as file:
        page = file.pages.first
        height, width, channels = _sizes(page)
        return (width, height), channels, _depth(page.dtype), len(file.pages)


class TiffPage(NamedTuple):
    """The first page of a TIFF file that tifffile has opened.

    Attributes:
        size: bytes of memory that reading it takes, and :func:`to_bytes` after that.
        read: returns its pixels: (height, width), or three channels.
    """

    size: int
    read: Callable[[], Pixels]


@contextmanager
def tiff_page(path: Path, most: int) -> Iterator[TiffPage]:
    """Open the first page of a TIFF file by tifffile.

    Args:
        path: the file.
        most: pixels that may be read.

    Raises:
        Exception: of many kinds, if it is damaged or of an unknown kind.
    """
    with _tifffile().TiffFile(path) as file:
        page = file.pages.first
        height, width, channels = _sizes(page)
        if height * width > most:
            raise ValueError(f"{width} x {height} pixels are too many")
        used = 3 if channels >= 3 else 1
        if (part := prod(page.chunks)) > most * channels:
            raise ValueError(f"parts of {part:,} numbers are too large")
        each = 2 * channels * page.dtype.itemsize + _BYTES_SCALED * used
        copies = _BYTES_OF_RUNS if page.compression == _PACKBITS else _COPIES
        size = height * width * each + copies * part * page.dtype.itemsize
        yield TiffPage(size, lambda: _tiff_pixels(file, page))


def _tiff_pixels(file: Any, page: Any) -> Pixels:
    height, width, channels = _sizes(page)
    _check_segments(file, page)
    pixels: Pixels = page.asarray(maxworkers=1)
    if channels > 1 and page.axes == "SYX":
        pixels = np.moveaxis(pixels, 0, -1)
    pixels = pixels.reshape(height, width, channels)
    return pixels[:, :, :3] if channels >= 3 else pixels[:, :, 0]


def _check_segments(file: Any, page: Any) -> None:
    """Refuse parts that unpack to more than they should: tifffile unpacks them whole.

    LZW is unpacked by the package imagecodecs, to as much as it is told to. Other compressions have
    sizes of their own in them (JPEG), or no bound.
    """
    if page.compression not in (_NONE, _LZW, _PACKBITS, *_DEFLATE):
        raise ValueError(f"a TIFF page compressed by {page.compression.name} is not supported")
    if page.compression in (_NONE, _LZW):
        return
    unpacked = _unpacked_runs if page.compression == _PACKBITS else _unpacked_deflate
    expected = prod(page.chunks) * page.dtype.itemsize + _SLACK
    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
        file.filehandle.seek(offset)
        size = 0
        for more in unpacked(file.filehandle.read(count)):
            size += more
            if size > expected:
                raise ValueError(f"a part of a TIFF page unpacks to more than {expected:,} bytes")


def _unpacked_deflate(packed: bytes) -> Iterator[int]:
    """Sizes of what is unpacked, step by step."""
    stream = zlib.decompressobj()
    while packed and not stream.eof:
        yield len(stream.decompress(packed, 2**20))
        packed = stream.unconsumed_tail


def _unpacked_runs(packed: bytes) -> Iterator[int]:
    """Sizes of the runs, and of what is between them."""
    place = 0
    while place < len(packed):
        code = packed[place]
        yield 0 if code == 128 else code + 1 if code < 128 else 257 - code
        place += 1 if code == 128 else code + 2 if code < 128 else 2


def to_bytes(pixels: Pixels, pixel_range: Range | None) -> Bytes:
    """Pixels from 0 to 255.

    Args:
        pixels: of more than eight bits.
        pixel_range: what becomes 0 and 255, and what is beyond is clipped; None: 0 and 65535, and
            pixels beyond are refused, as are real numbers.

    Raises:
        ValueError: for pixels that are not finite, or not of the scale.
    """
    if pixel_range is None:
        if pixels.dtype.kind == "f":
            raise ValueError("pixels are real numbers: the value of white is unknown")
        least, largest = pixels.min(initial=0), pixels.max(initial=0)
        if least < 0 or largest > FULL_RANGE[1]:
            raise ValueError(f"pixels from {least} to {largest}, expected 0 … 65535")
    _check_finite(pixels)
    low, high = pixel_range or FULL_RANGE
    scaled = np.subtract(pixels, low, dtype=np.float64)
    scaled *= 255 / (high - low)
    np.clip(scaled, 0, 255, out=scaled)
    return np.rint(scaled, out=scaled).astype(np.uint8)


def find_range(images: Iterable[Pixels]) -> Range | None:
    """The one range of values that all images of a data set are scaled by.

    It is the 0.1 and 99.9 percentiles over all pixels, every image with the same weight: some dead
    or hot pixels do not squeeze the rest. If the least (largest) value lies beyond its percentile
    by less than a tenth of the distance of the two, it is taken instead, and nothing is clipped.

    Args:
        images: of more than eight bits; those with pixels that are not finite are left out.

    Returns:
        Two numbers in order; None if no image is left.
    """
    rng, parts = np.random.default_rng(0), []
    least, largest = np.inf, -np.inf
    for pixels in images:
        flat = pixels.reshape(-1)
        if not flat.size or not np.isfinite(flat).all():
            continue
        least, largest = min(least, float(flat.min())), max(largest, float(flat.max()))
        parts.append(flat[rng.integers(0, flat.size, 2**16)].astype(np.float64))
    if not parts:
        return None
    low, high = map(float, np.percentile(np.concatenate(parts), (0.1, 99.9)))
    margin = (high - low) / 10
    if margin == 0 or least > low - margin:
        low = least
    if margin == 0 or largest < high + margin:
        high = largest
    return check_finite_range((low, high if high > low else low + max(1.0, abs(low))))


def _check_finite(pixels: Pixels) -> None:
    if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
        raise ValueError("pixels are not finite")


def _tifffile() -> ModuleType:
    try:
        import tifffile
    except ImportError:
        raise ValueError(
            "of TIFF files, grey ones of up to 32 bits and 8-bit colour are supported; "
            "pip install 'cclp[tiff]' reads more kinds"
        ) from None
    logging.getLogger("tifffile").addHandler(logging.NullHandler())  # it is raised, too
    return tifffile


def _sizes(page: Any) -> tuple[int, int, int]:
    """Height, width and channels of a page."""
    sizes = dict(zip(page.axes, page.shape, strict=True))
    if page.axes not in ("YX", "YXS", "SYX") or not 0 < sizes.get("S", 1) <= _MOST_CHANNELS:
        raise ValueError(
            f"a TIFF page of axes {page.axes} and shape {page.shape}: expected height and width, "
            "and channels"
        )
    if page.dtype is None or page.dtype.kind not in "uif":
        raise ValueError(f"TIFF pixels of type {page.dtype}, expected numbers")
    return sizes["Y"], sizes["X"], sizes.get("S", 1)


def _depth(dtype: np.dtype[Any]) -> Depth:
    if dtype.kind == "f":
        return "real"
    return "8-bit" if dtype == np.uint8 else "16-bit" if dtype.itemsize <= 2 else "32-bit"
