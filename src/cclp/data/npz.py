"""Arrays of ``.npz`` and ``.npy`` files, without the pickles that NumPy would load from them."""

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cclp.data.unpack import read_limited


def read_npz(path: Path, content: bytes | None = None) -> dict[str, NDArray[Any]]:
    """All arrays of an ``.npz`` file, by name.

    Args:
        path: of the file.
        content: of it, if it is read already.

    Raises:
        ValueError: if it is none, is damaged, unpacks to too much, or holds Python objects.
    """
    arrays = {}
    opened = path.open("rb") if content is None else io.BytesIO(content)
    with opened as file, _members(path, file) as members:
        packed, total = file.seek(0, io.SEEK_END), 0
        for name, member in members:
            shape, fortran, dtype = _header(member)
            values = read_limited(packed, member.read, before=total)
            size = prod(shape) * dtype.itemsize
            total += size
            if len(values) != size:
                raise ValueError(f"{name} of shape {shape} takes {size} bytes, not {len(values)}")
            arrays[name] = np.ndarray(shape, dtype, values, order="F" if fortran else "C")
    return arrays


def npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of an ``.npz`` file, from their headers alone.

    Raises:
        ValueError: if it is none.
    """
    with path.open("rb") as file, _members(path, file) as members:
        return {name: _header(member)[0] for name, member in members}


def read_npy(path: Path) -> dict[str, NDArray[Any]]:
    """The array of an ``.npy`` file, as X.

    Raises:
        ValueError: if it is none, is damaged, or holds Python objects.
    """
    try:
        with path.open("rb") as file:
            shape, fortran, dtype = _header(file)
            content = file.read()
        if len(content) != prod(shape) * dtype.itemsize:
            raise ValueError(f"an array of {dtype} and shape {shape} has not {len(content)} bytes")
        array = np.ndarray(shape, dtype, content, order="F" if fortran else "C")
    except Exception as error:  # numpy raises many kinds
        raise ValueError(f"{path} must be an .npy file of NumPy: {error or type(error)}") from None
    return {"X": array}


def npy_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shape of the array of an ``.npy`` file, as X, from its header alone.

    Raises:
        ValueError: if it is none.
    """
    try:
        with path.open("rb") as file:
            return {"X": _header(file)[0]}
    except Exception as error:  # numpy raises many kinds
        raise ValueError(f"{path} must be an .npy file of NumPy: {error or type(error)}") from None


@contextmanager
def _members(path: Path, file: IO[bytes]) -> Iterator[Iterator[tuple[str, IO[bytes]]]]:
    """Names and opened members; whatever goes wrong while they are read is a ValueError."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            yield ((name.removesuffix(".npy"), archive.open(name)) for name in names)
    except Exception as error:  # zipfile, zlib and numpy raise many kinds
        raise ValueError(f"{path} must be an .npz file of NumPy: {error or type(error)}") from None


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    version = npy.read_magic(member)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(member)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    return shape, fortran, dtype
