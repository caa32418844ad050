"""Image files of any mode, depth and size as arrays of one shape."""

import os
import struct
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from cclp.data.budget import NoRoom, SharedBudget
from cclp.data.user.deep import (
    Bytes,
    Depth,
    Pixels,
    Range,
    depth_of,
    is_tiff,
    is_unsigned,
    needs_tifffile,
    tiff_header,
    tiff_page,
    to_bytes,
)

DECODER_VERSION = 2  # increase it if decode returns other arrays: cached ones are then not used
Shape = tuple[int, int, int]
MOST_PIXELS = 89_478_485  # from here on Pillow warns of a decompression bomb
_MOST_PIXELS_OF_ICONS = 2**24
_BYTES_PER_PIXEL = 24  # in memory: the image, turned, on white, converted
_DECODING = SharedBudget(3 * 2**30)  # one image of so many pixels, or several smaller ones
# Not all that Pillow knows: EPS, for one, would start another program.
_FORMATS = ("AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TGA",
            "TIFF", "WEBP")  # fmt: skip
# Images that people have and this program cannot read: better refused than taken for notes.
_OTHER_SUFFIXES = frozenset(
    (".arw", ".cr2", ".cr3", ".dcm", ".dng", ".eps", ".heic", ".heif", ".jxl", ".nef", ".orf",
     ".psd", ".raf", ".svg")
)  # fmt: skip
_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*",
               b"\0\0\0\x0cjP  ")  # fmt: skip
_NOT_WALKED = "__MACOSX"  # in archives made on a Mac: data about the files, under the same names
_GREY = ("1", "L", "LA", "F", "I", "I;16", "I;16B", "I;16L", "I;16N")
_TILE_WIDTH, _TILE_HEIGHT = 322, 323  # tags of TIFF
_CHUNK, _CHUNK_BYTES = 256, 2**25


class Header(NamedTuple):
    """What an image file says of itself before its pixels.

    Attributes:
        width, height: in pixels.
        grey: whether it has no colour.
        depth: of the pixels.
        pages: of a TIFF file; the first is used.
    """

    width: int
    height: int
    grey: bool
    depth: Depth
    pages: int


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

    Links to folders are followed, each folder once, but not to one that holds this one.

    Raises:
        OSError: if a folder cannot be read.
    """
    found, seen = [], set(map(str, Path(os.path.realpath(folder)).parents))
    for place, folders, files in os.walk(folder, onerror=_raise, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders[:] = []
            continue
        seen.add(real)
        folders[:] = sorted(filter(is_visible, folders))
        found += [Path(place, name) for name in sorted(filter(is_visible, files))]
    return found


def _raise(error: OSError) -> None:
    raise error


def is_visible(name: str) -> bool:
    """Whether a file or folder of this name is looked at."""
    return not name.startswith(".") and name != _NOT_WALKED


def looks_like_image(path: Path) -> bool:
    """Whether a file has the suffix of an image format, or begins as an image does.

    A file that has the suffix need not be readable.
    """
    suffix = path.suffix.lower()
    if suffix in _OTHER_SUFFIXES or _suffixes().get(suffix) in _FORMATS:
        return True
    if not path.is_file():  # a pipe would wait for ever
        return False
    try:
        with path.open("rb") as file:
            head = file.read(12)
    except OSError:
        return False
    webp = head[:4] == b"RIFF" and head[8:] == b"WEBP"
    return webp or head[4:] == b"ftypavif" or head.startswith(_SIGNATURES)


def read_header(path: Path) -> Header | None:
    """What an image file says of itself; None if it is no image that can be read."""
    try:
        with no_pillow_warnings():
            try:
                with _open(path) as image:
                    pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
                    grey = image.mode in _GREY
                    return Header(image.width, image.height, grey, depth_of(image), pages)
            except UnidentifiedImageError:
                if not is_tiff(path):
                    raise
                (width, height), channels, depth, pages = tiff_header(path)
                return Header(width, height, channels < 3, depth, pages)
    except Exception:  # decoders raise many kinds
        return None


def read_deep(path: Path) -> Pixels | None:
    """Pixels of an image file of more than eight bits; None for other files."""
    try:
        with _pixels(path, (3, 1, 1)) as found:
            return None if isinstance(found, Image.Image) else found
    except Exception:
        return None


def decode(path: Path, shape: Shape, white: int = 255, pixel_range: Range | None = None) -> Bytes:
    """One image file as an array.

    The image is rotated as its EXIF orientation says, scaled to eight bits if it has more, put on
    white where it is transparent, converted to grey or RGB, and resized to the shape. Of a TIFF
    file with several pages, the first is taken.

    Args:
        path: the file.
        shape: (1 or 3, height, width).
        white: value of a white pixel.
        pixel_range: of images of more than eight bits, as in
            :func:`cclp.data.user.deep.to_bytes`; images of eight bits are then refused.

    Raises:
        Exception: of many kinds, if the file cannot be read.
    """
    channels, height, width = shape
    with _pixels(path, shape) as found:
        if not isinstance(found, Image.Image):
            found = Image.fromarray(to_bytes(found, pixel_range))
        elif pixel_range is not None:
            low, high = pixel_range
            raise ValueError(
                f"8-bit pixels, expected a scale from {low:g} to {high:g} as in training"
            )
        image = found.convert("RGB" if channels == 3 else "L")
        image = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3)
    pixels = np.asarray(image).reshape(height, width, channels).transpose(2, 0, 1)
    scaled = pixels if white == 255 else np.rint(pixels * (white / 255))
    return np.ascontiguousarray(scaled, np.uint8)


def thumbnail(path: Path, size: int, pixel_range: Range | None = None) -> Image.Image:
    """An image file as people see it, upright, of at most so many pixels a side.

    Args:
        path: the file.
        size: of its longer side; smaller ones stay as they are.
        pixel_range: of images of more than eight bits, as in :func:`decode`.

    Raises:
        Exception: of many kinds, if the file cannot be read.
    """
    with _pixels(path, (3, size, size)) as found:
        if not isinstance(found, Image.Image):
            found = Image.fromarray(to_bytes(found, pixel_range))
        image = found.convert("L" if found.mode in _GREY else "RGB")
        image.thumbnail((size, size))
        return image


@contextmanager
def _pixels(path: Path, shape: Shape) -> Iterator[Image.Image | Pixels]:
    """An upright image of eight bits without transparency; pixels if they have more bits.

    Its memory is taken from what all threads share, as long as the context lasts.
    """
    channels, height, width = shape
    try:
        with _open(path) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                raise ValueError(f"{opened.width} x {opened.height} pixels are too many")
            if not needs_tifffile(opened):
                opened.draft("RGB" if channels == 3 else "L", (2 * width, 2 * height))  # faster
                size = opened.width * opened.height + _pixels_of_tile(opened)
                with _DECODING.taken(_BYTES_PER_PIXEL * size):
                    yield _upright(opened)
                return
    except UnidentifiedImageError:
        if not is_tiff(path):
            raise
    with tiff_page(path, MOST_PIXELS) as page, _DECODING.taken(page.size):
        pixels = page.read()
        eight_bits = pixels.dtype == np.uint8
        yield Image.fromarray(np.ascontiguousarray(pixels)) if eight_bits else pixels


def _pixels_of_tile(opened: Image.Image) -> int:
    """Of a TIFF file in tiles: one is unpacked whole, however small the image is."""
    tags = getattr(opened, "tag_v2", {})
    return int(tags.get(_TILE_WIDTH, 0)) * int(tags.get(_TILE_HEIGHT, 0))


def _check_icon(path: Path) -> None:
    """Refuse an icon with too many pixels, whatever its header says: Pillow decodes it to open it.

    Raises:
        ValueError: if it has.
    """
    with path.open("rb") as file:
        head = file.read(6)
        if head[:4] != b"\0\0\1\0":
            return
        entries = file.read(16 * int.from_bytes(head[4:], "little"))
        for place in range(12, len(entries), 16):
            file.seek(int.from_bytes(entries[place : place + 4], "little"))
            begin = file.read(24)
            is_png = begin.startswith(_SIGNATURES[0])
            if is_png and begin[12:16] != b"IHDR":
                raise ValueError("an icon whose picture does not begin with its size")
            width, height = struct.unpack(*((">16xII", begin) if is_png else ("<4xii12x", begin)))
            if abs(width * height) > _MOST_PIXELS_OF_ICONS:
                raise ValueError(f"an icon of {abs(width)} x {abs(height)} pixels is too large")


def _upright(opened: Image.Image) -> Image.Image | Pixels:
    image = ImageOps.exif_transpose(opened)
    if depth_of(opened) == "8-bit":
        return _opaque(image)
    pixels: Pixels = np.asarray(image)
    return pixels.view(np.uint32) if is_unsigned(opened) else pixels


def decode_all(
    paths: Sequence[Path], shape: Shape, white: int = 255, pixel_range: Range | None = None
) -> Iterator[tuple[list[Path], Bytes, list[BadImage]]]:
    """Decode images in chunks, in order.

    Yields:
        The files of a chunk that can be read, one array of them, and the files that cannot.
    """

    def attempt(path: Path) -> Bytes | BadImage:
        try:
            return decode(path, shape, white, pixel_range)
        except Exception as error:  # decoders raise many kinds
            no_room = isinstance(error, MemoryError | NoRoom)
            temporary = no_room or getattr(error, "errno", None) is not None
            return BadImage(path, f"{type(error).__name__}: {error}", lasting=not temporary)

    rows = max(1, min(_CHUNK, _CHUNK_BYTES // prod(shape)))
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), rows):
            chunk = paths[start : start + rows]
            with no_pillow_warnings():
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
def no_pillow_warnings() -> Iterator[None]:
    """Silence warnings about images that :func:`decode` refuses, and about damaged EXIF data.

    Not within threads: filters of warnings are the process's.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="PIL")
        yield


def _open(path: Path) -> Image.Image:
    if not path.is_file():
        raise ValueError("is not a file")
    _check_icon(path)
    return Image.open(path, formats=_formats())


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@cache
def _suffixes() -> dict[str, str]:
    Image.init()
    return Image.EXTENSION


def _opaque(image: Image.Image) -> Image.Image:
    """The image without transparency."""
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        ground = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(ground, image.convert("RGBA"))
    return image
