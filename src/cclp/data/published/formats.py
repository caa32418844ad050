"""Parsers of official file formats: bytes in, arrays out. Nothing here can execute what it reads.

Each raises ValueError, and nothing else, for content that is not in its format.
"""

import zlib
from collections.abc import Iterator
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cclp.data.budget import Budget
from cclp.data.unpack import inflate

Bytes = NDArray[np.uint8]
_CIFAR_RECORD = 1 + 3 * 32 * 32


class Labeled(NamedTuple):
    """Images, (N, channels, height, width), and their classes, (N,)."""

    x: Bytes
    y: NDArray[np.int64]


def parse_idx(content: bytes, path: Path, ndim: int) -> Bytes:
    """An IDX file of unsigned bytes, the format of MNIST.

    Args:
        content: of the file, unpacked.
        path: for messages.
        ndim: how many dimensions it must have.
    """
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
            f"{len(content)}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def parse_cifar(content: bytes, path: Path) -> Labeled:
    """A batch of CIFAR-10's binary version: one byte for the class, 3 x 32 x 32 for the pixels."""
    if not content or len(content) % _CIFAR_RECORD:
        raise ValueError(
            f"{path} must hold records of {_CIFAR_RECORD} bytes, but holds {len(content)} bytes"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _CIFAR_RECORD)
    if records[:, 0].max() > 9:
        raise ValueError(f"{path} must hold classes 0 … 9, but holds {records[:, 0].max()}")
    return Labeled(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64))


def parse_svhn(content: bytes, path: Path) -> Labeled:
    """A MATLAB file of SVHN's cropped digits: X (32, 32, 3, N) and y (N, 1) in 1 … 10, 10 for 0."""
    arrays = parse_mat(content, path)
    if not {"X", "y"} <= set(arrays):
        raise ValueError(f"{path} must hold X and y, but holds {', '.join(arrays) or 'nothing'}")
    x, y = arrays["X"], arrays["y"]
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.size == 0:
        raise ValueError(
            f"{path}: X must be bytes of shape (32, 32, 3, N), got {x.dtype} {x.shape}"
        )
    count = x.shape[3]
    if y.shape != (count, 1) or not np.isin(y, range(1, 11)).all():
        raise ValueError(
            f"{path}: y must be numbers 1 … 10 of shape ({count}, 1), got {y.dtype} {y.shape}"
        )
    images = np.ascontiguousarray(x.transpose(3, 2, 0, 1))
    return Labeled(images, y[:, 0].astype(np.int64) % 10)


def parse_mat(content: bytes, path: Path) -> dict[str, NDArray[Any]]:
    """Real numeric arrays of a MATLAB 5 file, by name; everything else in it is ignored.

    scipy.io.loadmat reads more, but on damaged bytes it crashes the process.
    """
    if len(content) < 128 or content[124:128] != b"\x00\x01IM":
        raise ValueError(f"{path} must be a MATLAB 5 file, little-endian")
    arrays = {}
    budget = Budget(len(content))
    try:
        for kind, data in _mat_elements(memoryview(content)[128:]):
            if kind == _COMPRESSED:
                ((kind, data),) = _mat_elements(memoryview(inflate(data, budget)))
            parts = list(islice(_mat_elements(data), 5)) if kind == _MATRIX else []
            if len(parts) != 4:  # flags, dimensions, name, numbers
                continue
            (_, flags), (_, dimensions), (_, name), (stored, numbers) = parts
            array_class, more = flags[0], flags[1]
            if len(dimensions) > 4 * _MOST_DIMENSIONS:
                raise ValueError(f"an array of {len(dimensions) // 4:,} dimensions")
            if array_class in _MAT_CLASSES and not more & _COMPLEX:
                shape = [int(size) for size in np.frombuffer(dimensions, "<i4")]
                array = np.frombuffer(numbers, _MAT_TYPES[stored]).reshape(shape, order="F")
                wanted = np.dtype(_MAT_CLASSES[array_class])
                if array.dtype != wanted:  # MATLAB stores small whole numbers in fewer bytes
                    budget.take(array.size * wanted.itemsize)
                arrays[bytes(name).decode("ascii")] = array.astype(wanted, copy=False)
    except (ValueError, KeyError, IndexError, zlib.error) as error:
        raise ValueError(f"{path} is a damaged MATLAB 5 file: {error}") from None
    return arrays


_MATRIX, _COMPRESSED, _COMPLEX = 14, 15, 0x08
_MOST_DIMENSIONS = 32
_MAT_TYPES = {
    1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8",
    13: "<u8",
}  # fmt: skip
_MAT_CLASSES = {
    6: "<f8", 7: "<f4", 8: "<i1", 9: "<u1", 10: "<i2", 11: "<u2", 12: "<i4", 13: "<u4", 14: "<i8",
    15: "<u8",
}  # fmt: skip


def _mat_elements(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Types and contents of the elements of a file, in order."""
    place = 0
    while place < len(content):
        kind, size = np.frombuffer(content[place : place + 8], "<u4", 2).tolist()
        begin = place + 8
        if kind >> 16:  # a small element, stored in its own tag
            kind, size, begin = kind & 0xFFFF, kind >> 16, place + 4
        if size > len(content) - begin:
            raise ValueError(f"an element of {size} bytes where {len(content) - begin} are left")
        yield kind, content[begin : begin + size]
        place = begin + size
        if kind != _COMPRESSED:
            place += -place % 8
