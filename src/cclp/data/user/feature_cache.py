"""Features in the user's cache: made once, in blocks, so that work that was stopped continues."""

import hashlib
import io
import os
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cclp.data.dataset import FeatureSpec
from cclp.data.npz import read_npz
from cclp.data.user.deep import Bytes, Range
from cclp.data.user.features import Extractor, Features, short_name
from cclp.data.user.image_cache import digest_of_files, remove_older
from cclp.data.user.images import BadImage, Shape, decode_all
from cclp.files import cache_root, write_bytes
from cclp.progress import Reporter

BLOCK = 1024
PICTURE = 32  # side of what is kept of an image to look at

Arrays = dict[str, NDArray[Any]]
Advance = Callable[[int], None]


def features_of(
    extractor: Extractor,
    spec: FeatureSpec,
    samples: NDArray[Any] | list[str],
    source: str,
    report: Reporter,
) -> Features:
    """Features of arrays or texts.

    Args:
        extractor: that makes them.
        spec: of them.
        samples: (N, …), or texts.
        source: what the samples are, for the cache: older features of it are removed.
        report: shows the progress.
    """
    if not len(samples):
        return np.empty((0, spec.width), np.float32)
    starts = range(0, len(samples), BLOCK)
    blocks = [samples[start : start + BLOCK] for start in starts]
    contents = [
        np.ascontiguousarray(b).data if isinstance(b, np.ndarray) else "\0".join(b).encode()
        for b in blocks
    ]
    keys = [extractor.key(spec, bytes(content)) for content in contents]

    def make(place: int, advance: Advance) -> tuple[Arrays, bool]:
        return {"features": extractor(blocks[place], advance)}, True

    done = _cached(source, keys, [len(b) for b in blocks], make, _title(extractor, samples), report)
    return np.concatenate([arrays["features"] for arrays in done])


def features_of_images(
    extractor: Extractor,
    spec: FeatureSpec,
    folder: Path,
    paths: Sequence[Path],
    pixel_range: Range | None,
    report: Reporter,
) -> tuple[list[Path], Features, Bytes, list[BadImage], str]:
    """Features of image files; they are read in the size that the extractor takes.

    Args:
        extractor, spec, report: as above.
        folder: that holds the images.
        paths: the files, in the order of the rows.
        pixel_range: as in :func:`cclp.data.user.images.decode`.

    Returns:
        The files that can be read, their features, small pictures of them, the other files, and
        SHA-256 of all pixels.
    """
    assert spec.shape is not None
    assert spec.white is not None
    shape: Shape = (spec.shape[0], spec.shape[1], spec.shape[2])
    white = spec.white
    blocks = [paths[start : start + BLOCK] for start in range(0, len(paths), BLOCK)]
    keys = [extractor.key(spec, f"{pixel_range}{digest_of_files(b)}".encode()) for b in blocks]

    def make(place: int, advance: Advance) -> tuple[Arrays, bool]:
        digest, lasting = hashlib.sha256(), True
        features, pictures = [], []
        unread: dict[int, str] = {}
        at = {path: number for number, path in enumerate(blocks[place])}
        for good, x, bad in decode_all(blocks[place], shape, white, pixel_range):
            digest.update(x.data)
            lasting = lasting and all(item.lasting for item in bad)
            unread |= {at[item.path]: item.reason for item in bad}
            advance(len(bad))
            if good:
                features.append(extractor(x, advance))
                pictures.append(_small(x))
        arrays = {
            "features": np.concatenate(features) if features else np.empty((0, spec.width)),
            "pictures": np.concatenate(pictures) if pictures else np.empty((0, *_of(shape))),
            "unread": np.array(list(unread), np.int64),
            "reasons": np.array(list(unread.values()), np.str_),
            "digest": np.frombuffer(digest.digest(), np.uint8),
        }
        return arrays, lasting

    title = _title(extractor, paths)
    done = _cached(
        os.fspath(folder.absolute()), keys, [len(b) for b in blocks], make, title, report
    )
    bad = [
        BadImage(block[int(number)], str(reason), lasting=True)
        for block, arrays in zip(blocks, done, strict=True)
        for number, reason in zip(arrays["unread"], arrays["reasons"], strict=True)
    ]
    unread = {item.path for item in bad}
    total = hashlib.sha256(b"".join(arrays["digest"].tobytes() for arrays in done))
    x, pictures = (np.concatenate([a[name] for a in done]) for name in ("features", "pictures"))
    good = [path for path in paths if path not in unread]
    return good, x.astype(np.float32), pictures.astype(np.uint8), bad, total.hexdigest()


def _title(extractor: Extractor, samples: Sequence[Any] | NDArray[Any]) -> str:
    return f"features of {len(samples)} samples by {short_name(extractor.name)}"


def _of(shape: Shape) -> Shape:
    """Shape of a small picture."""
    return shape[0], min(PICTURE, shape[1]), min(PICTURE, shape[2])


def _small(x: Bytes) -> Bytes:
    """Images in the size of pictures."""
    channels, height, width = _of((x.shape[1], x.shape[2], x.shape[3]))
    last = x.transpose(0, 2, 3, 1)
    small = [
        np.asarray(
            Image.fromarray(np.ascontiguousarray(image[..., 0] if channels == 1 else image)).resize(
                (width, height), Image.Resampling.BILINEAR
            )
        )
        for image in last
    ]
    return np.stack(small).reshape(-1, height, width, channels).transpose(0, 3, 1, 2).copy()


def _cached(
    source: str,
    keys: Sequence[str],
    sizes: Sequence[int],
    make: Callable[[int, Advance], tuple[Arrays, bool]],
    title: str,
    report: Reporter,
) -> list[Arrays]:
    """The arrays of all blocks; ``make`` says whether they may be kept."""
    place = cache_root() / "features"
    place.mkdir(parents=True, exist_ok=True)
    kind = hashlib.sha256(os.fsencode(source)).hexdigest()[:16]
    files = [place / f"{kind}-{key}.npz" for key in keys]
    done: list[Arrays] = []
    with report.work(title, sum(sizes)) as advance:
        for number, file in enumerate(files):
            found = _read(file, sizes[number])
            if found is not None:
                done.append(found)
                advance(sizes[number])
                continue
            arrays, keep = make(number, advance)
            done.append(arrays)
            if keep:
                content = io.BytesIO()
                np.savez(content, **arrays)  # type: ignore[arg-type]
                write_bytes(file, content.getvalue())
    remove_older(place, kind, {file.stem for file in files})
    return done


def _read(file: Path, size: int) -> Arrays | None:
    """A block of so many samples; None if it is not there, or damaged."""
    try:
        arrays = read_npz(file)
    except (OSError, ValueError):
        return None
    whole = "features" in arrays and len(arrays["features"]) + len(arrays.get("unread", ())) == size
    return arrays if whole else None


def digest_of_texts(columns: Sequence[Sequence[str]]) -> str:
    """SHA-256 of cells."""
    return hashlib.sha256("\0".join(chain.from_iterable(columns)).encode()).hexdigest()
