"""Image files of any mode and size as arrays of one shape."""

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

DECODER_VERSION = 1  # increase it if decode returns other arrays: cached ones are then not used
Bytes = NDArray[np.uint8]
Shape = tuple[int, int, int]
MOST_PIXELS = 89_478_485  # from here on Pillow warns of a decompression bomb
# Not all that Pillow knows: EPS, for one, would start another program.
_FORMATS = ("AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TGA",
            "TIFF", "WEBP")  # fmt: skip
_GREY = ("1", "L", "LA", "F", "I", "I;16", "I;16B", "I;16L", "I;16N")
_CHUNK, _CHUNK_BYTES = 256, 2**25


class BadImage(NamedTuple):
    """An image file that cannot be read.

    Attributes:
        path: of the file.
        reason: why it cannot be read.
        lasting: whether it would fail again; a permission or the machine's memory may change.
    """

    path: Path
    reason: str
    lasting: bool

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


def find_images(folder: Path) -> list[Path]:
    """All files below a folder, sorted by name, without hidden ones.

    Links to folders are followed, each folder once.

    Raises:
        OSError: if a folder cannot be read.
    """
    found, seen = [], set()
    for place, folders, files in os.walk(folder, onerror=_raise, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders[:] = []
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place, name) for name in sorted(files) if not name.startswith(".")]
    return found


def _raise(error: OSError) -> None:
    raise error


def looks_like_image(path: Path) -> bool:
    """Whether a file has the suffix of an image format."""
    Image.init()
    return path.is_file() and Image.EXTENSION.get(path.suffix.lower()) in _FORMATS


def is_grey(path: Path) -> bool:
    """Whether an image has no colour, by its mode; true for a file that is no image."""
    try:
        with _no_bomb_warning(), _open(path) as image:
            return image.mode in _GREY
    except Exception:
        return True


def decode(path: Path, shape: Shape, white: int = 255) -> Bytes:
    """One image file as an array.

    The image is rotated as its EXIF orientation says, put on white where it is transparent,
    converted to grey or RGB, and resized to the shape.

    Args:
        path: the file.
        shape: (1 or 3, height, width).
        white: value of a white pixel.

    Raises:
        Exception: of many kinds, if the file cannot be read.
    """
    channels, height, width = shape
    with _open(path) as opened:
        if opened.width * opened.height > MOST_PIXELS:
            raise ValueError(f"{opened.width} x {opened.height} pixels are too many")
        opened.draft("RGB" if channels == 3 else "L", (2 * width, 2 * height))  # JPEG: faster
        image = _plain(ImageOps.exif_transpose(opened))
        image = image.convert("RGB" if channels == 3 else "L")
        image = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3)
        pixels = np.asarray(image).reshape(height, width, channels).transpose(2, 0, 1)
    scaled = pixels if white == 255 else np.rint(pixels * (white / 255))
    return np.ascontiguousarray(scaled, np.uint8)


def decode_all(
    paths: Sequence[Path], shape: Shape, white: int = 255
) -> Iterator[tuple[list[Path], Bytes, list[BadImage]]]:
    """Decode images in chunks, in order.

    Yields:
        The files of a chunk that can be read, one array of them, and the files that cannot.
    """

    def attempt(path: Path) -> Bytes | BadImage:
        try:
            return decode(path, shape, white)
        except Exception as error:  # decoders raise many kinds
            temporary = isinstance(error, MemoryError) or getattr(error, "errno", None) is not None
            return BadImage(path, f"{type(error).__name__}: {error}", lasting=not temporary)

    rows = max(1, min(_CHUNK, _CHUNK_BYTES // prod(shape)))
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), rows):
            chunk = paths[start : start + rows]
            with _no_bomb_warning():
                results = list(pool.map(attempt, chunk))
            good = [p for p, r in zip(chunk, results, strict=True) if not isinstance(r, BadImage)]
            arrays = [r for r in results if not isinstance(r, BadImage)]
            stacked = np.stack(arrays) if arrays else np.empty((0, *shape), np.uint8)
            yield good, stacked, [r for r in results if isinstance(r, BadImage)]


def refuse_bad(bad: Sequence[BadImage], total: int) -> None:
    """Refuse files that cannot be read.

    Raises:
        ValueError: naming them, if there are any.
    """
    if bad:
        raise ValueError(
            f"{len(bad)} of {total} images cannot be read: {list_bad(bad)}. Repair or remove "
            "them, or leave them out with --skip-bad"
        )


def list_bad(bad: Sequence[BadImage]) -> str:
    """The first twenty files with their reasons, in one line."""
    return "; ".join(map(str, bad[:20])) + (f"; and {len(bad) - 20} more" if len(bad) > 20 else "")


@contextmanager
def _no_bomb_warning() -> Iterator[None]:
    """Silence Pillow's warning about images that :func:`decode` refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def _open(path: Path) -> Image.Image:
    if not path.is_file():
        raise ValueError("is not a file")
    return Image.open(path, formats=_formats())


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _plain(image: Image.Image) -> Image.Image:
    """The image without transparency, in eight bits."""
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.int64)
        if wide.min(initial=0) < 0 or wide.max(initial=0) > 65535:
            raise ValueError(f"pixels from {wide.min()} to {wide.max()}, expected 0 … 65535")
        return Image.fromarray((wide >> 8).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("pixels are real numbers: the value of white is unknown")
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        ground = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(ground, image.convert("RGBA"))
    return image
