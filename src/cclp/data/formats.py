"""Parsers of official file formats. Nothing here can execute what it reads."""

import gzip
import hashlib
import zlib
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Parsed(NamedTuple):
    """An array, and the SHA-256 of the uncompressed file it came from."""

    array: NDArray[np.uint8]
    sha256: str


def read_idx(path: Path, ndim: int) -> Parsed:
    """Read an IDX file of unsigned bytes, the format of MNIST, gzipped or raw.

    Args:
        path: the file; whether it is gzipped is seen from its first bytes.
        ndim: how many dimensions it must have.

    Raises:
        ValueError: naming the file, what was expected and what it holds.
    """
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}): get it again") from None
    header = 4 + 4 * ndim
    expected = bytes([0, 0, 8, ndim])
    if len(content) < header or content[:4] != expected:
        raise ValueError(
            f"{path} must be an IDX file of bytes with {ndim} dimensions, beginning with "
            f"{expected.hex()}, but begins with {content[:4].hex() or 'nothing'}"
        )
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", ndim, offset=4))
    if len(content) != header + prod(shape):
        raise ValueError(
            f"{path} must hold {header + prod(shape)} bytes for its shape {shape}, but holds "
            f"{len(content)}: get it again"
        )
    array = np.frombuffer(content, np.uint8, offset=header).reshape(shape)
    return Parsed(array, hashlib.sha256(content).hexdigest())
