"""Decoded images of a folder in one memory map, so that a folder may be larger than memory."""

import hashlib
import os
import tempfile
import time
from collections.abc import Collection, Sequence
from math import prod
from pathlib import Path

import numpy as np

from cclp.data.user.deep import Bytes, Range
from cclp.data.user.images import DECODER_VERSION, BadImage, Shape, decode_all
from cclp.data.user.survey import Survey, survey_images
from cclp.files import DAMAGE, cache_root, parse_json, trouble_named, write_json
from cclp.progress import Reporter

_SECONDS_UNTIL_STALE = 24 * 3600


def decoded_map(
    folder: Path,
    paths: Sequence[Path],
    shape: Shape,
    white: int,
    pixel_range: Range | None,
    report: Reporter,
) -> tuple[list[Path], Bytes, list[BadImage]]:
    """All images as one memory map in the user's cache, decoded the first time only.

    Args:
        folder: that holds the images; an older map of it is removed.
        paths: the files, in the order of the rows.
        shape, white, pixel_range: of each image, as in :func:`cclp.data.user.images.decode`.
        report: shows the progress.

    Returns:
        The files that can be read, a read-only array with a row for each, and the other files.
    """
    place = _place()
    kind = _kind(folder, f"{shape} {white} {pixel_range}")
    name = f"{kind}-{digest_of_files(paths)[:16]}"
    pixels, index = place / f"{name}.bytes", place / f"{name}.json"
    bad = _read_index(pixels, index, paths, shape)
    if bad is None:
        bad = _decode_to(pixels, paths, shape, white, pixel_range, report)
        if all(item.lasting for item in bad):
            at = {path: position for position, path in enumerate(paths)}
            write_json(index, [[at[item.path], item.reason] for item in bad])
        remove_older(place, kind, keep={name})
    unread = {item.path for item in bad}
    good = [path for path in paths if path not in unread]
    if not good:
        return [], np.empty((0, *shape), np.uint8), bad
    mapped = np.memmap(pixels, np.uint8, "r", shape=(len(good), *shape))
    return good, np.asarray(mapped), bad


def cached_survey(folder: Path, paths: Sequence[Path], report: Reporter) -> Survey:
    """What images have in common, found the first time only.

    Args:
        folder: that holds the images; an older survey of it is removed.
        paths: the files.
        report: shows the progress.
    """
    place, kind = _place(), _kind(folder, "survey")
    index = place / f"{kind}-{digest_of_files(paths)[:16]}.json"
    try:
        return Survey.from_json(parse_json(index.read_bytes()))
    except (OSError, *DAMAGE):
        found = survey_images(paths, report)
    if not found.unread:  # what cannot be read now may be readable later
        write_json(index, found._asdict())
        remove_older(place, kind, keep={index.stem})
    return found


def _place() -> Path:
    place = cache_root() / "decoded"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _kind(folder: Path, what: str) -> str:
    return hashlib.sha256(os.fsencode(folder.absolute()) + f"\0{what}".encode()).hexdigest()[:16]


def digest_of_files(paths: Sequence[Path]) -> str:
    """Hash of what changes if a file is replaced, changed, added or removed."""
    digest = hashlib.sha256(f"{DECODER_VERSION}".encode())
    for path in paths:
        try:
            about = path.stat()
        except OSError:  # a link to nothing
            about = path.lstat()
        digest.update(os.fsencode(path.absolute()))
        # Tools that copy a file may keep its time of modification, but not that of change.
        digest.update(f"\0{about.st_size}\0{about.st_mtime_ns}\0{about.st_ctime_ns}\n".encode())
    return digest.hexdigest()


def _read_index(
    pixels: Path, index: Path, paths: Sequence[Path], shape: Shape
) -> list[BadImage] | None:
    """The files that could not be read when the map was made; None if there is no such map."""
    try:
        bad = [
            BadImage(paths[int(position)], str(reason), lasting=True)
            for position, reason in parse_json(index.read_bytes())
        ]
        whole = pixels.stat().st_size == (len(paths) - len(bad)) * prod(shape)
    except (OSError, *DAMAGE):
        return None
    return bad if whole else None


def _decode_to(
    pixels: Path,
    paths: Sequence[Path],
    shape: Shape,
    white: int,
    pixel_range: Range | None,
    report: Reporter,
) -> list[BadImage]:
    """Write the map, whole or not at all; returns the files that cannot be read."""
    unread: list[BadImage] = []
    handle, name = tempfile.mkstemp(dir=pixels.parent, prefix=".partial-")
    try:
        with (
            trouble_named(pixels),
            os.fdopen(handle, "wb") as file,
            report.work(f"decoding {len(paths)} images", len(paths)) as advance,
        ):
            for good, arrays, bad in decode_all(paths, shape, white, pixel_range):
                file.write(arrays.data)
                unread += bad
                advance(len(good) + len(bad))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(pixels)
    finally:
        Path(name).unlink(missing_ok=True)
    return unread


def remove_older(place: Path, kind: str, keep: Collection[str]) -> None:
    """Remove older files of the same kind, and partial files of killed processes."""
    for file in place.iterdir():
        older = file.name.startswith(f"{kind}-") and file.stem not in keep
        stale = file.name.startswith(".partial-") and (
            file.stat().st_mtime < time.time() - _SECONDS_UNTIL_STALE
        )
        if older or stale:
            file.unlink(missing_ok=True)
