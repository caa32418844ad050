"""Image files of any mode and size, brought to one form, a few at a time."""

import hashlib
import os
import tempfile
import time
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

from cclp.data.published.catalog import cache_root
from cclp.files import parse_json, trouble_named, write_json
from cclp.progress import Reporter

Bytes = NDArray[np.uint8]
Shape = tuple[int, int, int]
MOST_PIXELS = 89_478_485  # from here on Pillow warns of a decompression bomb
# Not all that Pillow knows: EPS, for one, would start another program.
_FORMATS = ("AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TGA",
            "TIFF", "WEBP")  # fmt: skip
_GREY = ("1", "L", "LA", "F", "I", "I;16", "I;16B", "I;16L", "I;16N")
_CHUNK, _CHUNK_BYTES = 256, 2**25
_VERSION = 1  # of what decoding does: another number, and cached images are decoded again
_SECONDS_UNTIL_STALE = 24 * 3600


class Bad(NamedTuple):
    """A file that could not be read, and why.

    Attributes:
        lasting: whether it would be so again; a permission or the machine's memory may change.
    """

    path: Path
    reason: str
    lasting: bool

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


def find_images(folder: Path) -> list[Path]:
    """All files below a folder in order of their names, but for hidden ones.

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
    """By its name alone."""
    Image.init()
    return path.is_file() and Image.EXTENSION.get(path.suffix.lower()) in _FORMATS


def is_grey(path: Path) -> bool:
    """Whether an image has no colour, by its mode; a file that is no image has none."""
    try:
        with _no_bomb_warning(), _open(path) as image:
            return image.mode in _GREY
    except Exception:
        return True


def decode(path: Path, shape: Shape, white: int = 255) -> Bytes:
    """One image file as an array.

    It is turned as its camera says, laid on white where it is transparent, made grey or RGB, and
    stretched to the size.

    Args:
        path: the file.
        shape: (1 or 3, height, width).
        white: value of a white pixel.

    Raises:
        Exception: of many kinds, if it cannot be read.
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
) -> Iterator[tuple[list[Path], Bytes, list[Bad]]]:
    """Images in chunks, in order: those that could be read, as one array, and those that not."""

    def attempt(path: Path) -> Bytes | Bad:
        try:
            return decode(path, shape, white)
        except Exception as error:  # decoders fail in many ways
            passing = isinstance(error, MemoryError) or getattr(error, "errno", None) is not None
            return Bad(path, f"{type(error).__name__}: {error}", lasting=not passing)

    rows = max(1, min(_CHUNK, _CHUNK_BYTES // prod(shape)))
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), rows):
            chunk = paths[start : start + rows]
            with _no_bomb_warning():
                results = list(pool.map(attempt, chunk))
            good = [p for p, r in zip(chunk, results, strict=True) if not isinstance(r, Bad)]
            arrays = [r for r in results if not isinstance(r, Bad)]
            stacked = np.stack(arrays) if arrays else np.empty((0, *shape), np.uint8)
            yield good, stacked, [r for r in results if isinstance(r, Bad)]


def refuse_bad(bad: Sequence[Bad], total: int) -> None:
    """Say which files could not be read."""
    if bad:
        raise ValueError(
            f"{len(bad)} of {total} images cannot be read: {list_bad(bad)}. Mend or remove them, "
            "or leave them out with --skip-bad"
        )


def list_bad(bad: Sequence[Bad]) -> str:
    """Files and reasons, in a line that one can still read."""
    return "; ".join(map(str, bad[:20])) + (f"; and {len(bad) - 20} more" if len(bad) > 20 else "")


def decoded_map(
    folder: Path, paths: Sequence[Path], shape: Shape, white: int, report: Reporter
) -> tuple[list[Path], Bytes, list[Bad]]:
    """All images as one memory map in the user's cache, decoded the first time only.

    Args:
        folder: that they are of; an older map of it is removed.
        paths: the files, in the order of the rows.
        shape, white: of each, as in :func:`decode`.
        report: told of the progress.

    Returns:
        The files that could be read, a read-only array with a row for each, and the other files.
    """
    place = cache_root() / "decoded"
    place.mkdir(parents=True, exist_ok=True)
    kind = hashlib.sha256(os.fsencode(folder.absolute()) + f"\0{shape} {white}".encode())
    name = f"{kind.hexdigest()[:16]}-{_digest(paths)[:16]}"
    pixels, index = place / f"{name}.bytes", place / f"{name}.json"
    bad = _read_index(pixels, index, paths, shape)
    if bad is None:
        bad = _decode_to(pixels, paths, shape, white, report)
        if all(item.lasting for item in bad):
            at = {path: position for position, path in enumerate(paths)}
            write_json(index, [[at[item.path], item.reason] for item in bad])
        _clear(place, kind.hexdigest()[:16], keep=name)
    unread = {item.path for item in bad}
    good = [path for path in paths if path not in unread]
    if not good:
        return [], np.empty((0, *shape), np.uint8), bad
    mapped = np.memmap(pixels, np.uint8, "r", shape=(len(good), *shape))
    return good, np.asarray(mapped), bad


def _digest(paths: Sequence[Path]) -> str:
    """Of what tells these files from others, or from themselves after a change."""
    digest = hashlib.sha256(f"{_VERSION}".encode())
    for path in paths:
        try:
            about = path.stat()
        except OSError:  # a link to nothing
            about = path.lstat()
        digest.update(os.fsencode(path.absolute()))
        # The time of change, unlike that of modification, is not set by who copies a file.
        digest.update(f"\0{about.st_size}\0{about.st_mtime_ns}\0{about.st_ctime_ns}\n".encode())
    return digest.hexdigest()


def _read_index(pixels: Path, index: Path, paths: Sequence[Path], shape: Shape) -> list[Bad] | None:
    """What could not be read when the map was made; None if there is no such map."""
    try:
        bad = [
            Bad(paths[int(position)], str(reason), lasting=True)
            for position, reason in parse_json(index.read_bytes())
        ]
        whole = pixels.stat().st_size == (len(paths) - len(bad)) * prod(shape)
    except (OSError, ValueError, TypeError, IndexError):
        return None
    return bad if whole else None


def _decode_to(
    pixels: Path, paths: Sequence[Path], shape: Shape, white: int, report: Reporter
) -> list[Bad]:
    """Write the map, whole or not at all; returns what could not be read."""
    unread: list[Bad] = []
    handle, name = tempfile.mkstemp(dir=pixels.parent, prefix=".partial-")
    try:
        with (
            trouble_named(pixels),
            os.fdopen(handle, "wb") as file,
            report.work(f"decoding {len(paths)} images", len(paths)) as advance,
        ):
            for good, arrays, bad in decode_all(paths, shape, white):
                file.write(arrays.data)
                unread += bad
                advance(len(good) + len(bad))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(pixels)
    finally:
        Path(name).unlink(missing_ok=True)
    return unread


def _clear(place: Path, kind: str, keep: str) -> None:
    """Remove older maps of the same folder, and what processes that were killed left behind."""
    for file in place.iterdir():
        older = file.name.startswith(f"{kind}-") and file.stem != keep
        stale = file.name.startswith(".partial-") and (
            file.stat().st_mtime < time.time() - _SECONDS_UNTIL_STALE
        )
        if older or stale:
            file.unlink(missing_ok=True)


@contextmanager
def _no_bomb_warning() -> Iterator[None]:
    """Pillow warns of images that :func:`decode` refuses in words."""
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
    """Without transparency, and in eight bits."""
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.int64)
        if wide.min(initial=0) < 0 or wide.max(initial=0) > 65535:
            raise ValueError(f"pixels from {wide.min()} to {wide.max()}, expected 0 … 65535")
        return Image.fromarray((wide >> 8).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("pixels are real numbers: there is no telling what is white")
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        ground = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(ground, image.convert("RGBA"))
    return image
