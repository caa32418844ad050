"""Image files of any mode and size, brought to one form, a few at a time."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from cclp.data.catalog import cache_root
from cclp.files import write_json
from cclp.progress import Reporter

Bytes = NDArray[np.uint8]
Shape = tuple[int, int, int]
MOST_PIXELS = 89_478_485  # from here on Pillow warns of a decompression bomb
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "I;16N")
_CHUNK = 256
_VERSION = 1  # of what decoding does: another number, and cached images are decoded again


class Bad(NamedTuple):
    """A file that could not be read, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


def find_images(folder: Path) -> list[Path]:
    """All files below a folder in order of their names, but for hidden ones."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place, name) for name in sorted(files) if not name.startswith(".")]
    return found


def is_grey(path: Path) -> bool:
    """Whether an image has no colour, by its mode; a file that is no image has none."""
    try:
        with Image.open(path) as image:
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
        ValueError: if it cannot be read.
    """
    channels, height, width = shape
    try:
        with Image.open(path) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                raise ValueError(f"{opened.width} x {opened.height} pixels are too many")
            opened.draft("RGB" if channels == 3 else "L", (2 * width, 2 * height))  # JPEG: faster
            image = _plain(ImageOps.exif_transpose(opened))
            image = image.convert("RGB" if channels == 3 else "L")
            image = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=3)
            pixels = np.asarray(image).reshape(height, width, channels).transpose(2, 0, 1)
    except Exception as error:  # decoders fail in many ways
        raise ValueError(f"{type(error).__name__}: {error}") from None
    return pixels if white == 255 else np.rint(pixels * (white / 255)).astype(np.uint8)


def decode_all(
    paths: Sequence[Path], shape: Shape, white: int = 255
) -> Iterator[tuple[list[Path], Bytes, list[Bad]]]:
    """Images in chunks, in order: those that could be read, as one array, and those that not."""

    def attempt(path: Path) -> Bytes | Bad:
        try:
            return decode(path, shape, white)
        except ValueError as error:
            return Bad(path, str(error))

    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), _CHUNK):
            chunk = paths[start : start + _CHUNK]
            results = list(pool.map(attempt, chunk))
            good = [p for p, r in zip(chunk, results, strict=True) if not isinstance(r, Bad)]
            arrays = [r for r in results if not isinstance(r, Bad)]
            stacked = np.stack(arrays) if arrays else np.empty((0, *shape), np.uint8)
            yield good, stacked, [r for r in results if isinstance(r, Bad)]


def refuse_bad(bad: Sequence[Bad], total: int) -> None:
    """Say which files could not be read."""
    if bad:
        some = "; ".join(map(str, bad[:5])) + ("; …" if len(bad) > 5 else "")
        raise ValueError(
            f"{len(bad)} of {total} images cannot be read: {some}. Mend or remove them, or leave "
            "them out with --skip-bad"
        )


def decoded_map(
    paths: Sequence[Path], shape: Shape, white: int, *, skip_bad: bool, report: Reporter
) -> tuple[list[Path], Bytes]:
    """All images as one memory map in the user's cache, decoded the first time only.

    Args:
        paths: the files, in the order of the rows.
        shape, white: of each, as in :func:`decode`.
        skip_bad: whether to leave out files that cannot be read, instead of refusing them all.
        report: told of the progress.

    Returns:
        The files that could be read, and a read-only array with a row for each.
    """
    digest = hashlib.sha256(f"{_VERSION} {shape} {white}".encode())
    for path in paths:
        about = path.stat()
        digest.update(f"{path.absolute()}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    folder = cache_root() / "decoded"
    folder.mkdir(parents=True, exist_ok=True)
    pixels, index = (folder / f"{digest.hexdigest()[:32]}{end}" for end in (".bytes", ".json"))
    bad = _cached_bad(pixels, index, len(paths), shape)
    if bad is None:
        bad = _decode_to(pixels, paths, shape, white, report)
        write_json(index, [[position, reason] for position, reason in bad.items()])
    refuse = [Bad(paths[position], reason) for position, reason in bad.items()]
    if not skip_bad:
        refuse_bad(refuse, len(paths))
    elif refuse:
        some = "; ".join(map(str, refuse[:5])) + ("; …" if len(refuse) > 5 else "")
        report.say(f"Left out {len(refuse)} of {len(paths)} images: {some}")
    good = [path for position, path in enumerate(paths) if position not in bad]
    if not good:
        return [], np.empty((0, *shape), np.uint8)
    return good, np.asarray(np.memmap(pixels, np.uint8, "r", shape=(len(good), *shape)))


def _cached_bad(pixels: Path, index: Path, count: int, shape: Shape) -> dict[int, str] | None:
    """What could not be read when the map was made; None if there is no such map."""
    try:
        bad = {int(position): str(reason) for position, reason in json.loads(index.read_bytes())}
        whole = pixels.stat().st_size == (count - len(bad)) * int(np.prod(shape))
    except (OSError, ValueError, TypeError):
        return None
    return bad if whole else None


def _decode_to(
    pixels: Path, paths: Sequence[Path], shape: Shape, white: int, report: Reporter
) -> dict[int, str]:
    """Write the map, whole or not at all; returns what could not be read."""
    place = {path: position for position, path in enumerate(paths)}
    unread: dict[int, str] = {}
    handle, name = tempfile.mkstemp(dir=pixels.parent, prefix=".partial-")
    try:
        with (
            os.fdopen(handle, "wb") as file,
            report.work(f"decoding {len(paths)} images", len(paths)) as advance,
        ):
            for good, arrays, bad in decode_all(paths, shape, white):
                file.write(arrays.tobytes())
                unread |= {place[path]: reason for path, reason in bad}
                advance(len(good) + len(bad))
        Path(name).replace(pixels)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(pixels)) from None
    finally:
        Path(name).unlink(missing_ok=True)
    return unread


def _plain(image: Image.Image) -> Image.Image:
    """Without transparency, and in eight bits."""
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.int64)
        if wide.min(initial=0) < 0 or wide.max(initial=0) > 65535:
            raise ValueError(f"pixels from {wide.min()} to {wide.max()}, expected 0 … 65535")
        bits = 0 if image.mode == "I" and wide.max(initial=0) < 256 else 8
        return Image.fromarray((wide >> bits).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("pixels are real numbers: there is no telling what is white")
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        ground = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(ground, image.convert("RGBA"))
    return image
