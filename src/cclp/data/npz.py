"""Arrays of ``.npz`` and ``.npy`` files, without the pickles that NumPy would load from them."""

import io
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cclp.data.budget import Budget
from cclp.data.unpack import open_member

_LONGEST_HEADER = 10_000  # bytes, as in NumPy
_CHUNK = 2**20
MAPPED = 2**26  # bytes of an .npy file: smaller ones are read


def read_npz(
    path: Path, content: bytes | None = None, budget: Budget | None = None
) -> dict[str, NDArray[Any]]:
    """All arrays of an ``.npz`` file, by name.

    Args:
        path: of the file.
        content: of it, if it is read already.
        budget: of several files together; None: of this one.

    Raises:
        ValueError: if it is none, is damaged, unpacks to too much, or holds Python objects.
    """
    arrays = {}
    opened = path.open("rb") if content is None else io.BytesIO(content)
    with opened as file:
        budget = budget or Budget(file.seek(0, io.SEEK_END))
        with _members(path, file) as members:
            for name, member in members:
                arrays[name] = _read_array(name, member, budget)
    return arrays


def npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of an ``.npz`` file, from their headers alone.

    Raises:
        ValueError: if it is none.
    """
    with path.open("rb") as file, _members(path, file) as members:
        return {name: _header(member)[0] for name, member in members}


def read_npy(path: Path) -> dict[str, NDArray[Any]]:
    """The array of an ``.npy`` file, as X; numbers of many megabytes are mapped, not read.

    Raises:
        ValueError: if it is none, is damaged, or holds Python objects.
    """
    try:
        with path.open("rb") as file:
            packed = path.stat().st_size
            if packed >= MAPPED and _header(file)[2].kind in "biuf":
                array = _map_array("its array", file, packed)
            else:
                file.seek(0)
                array = _read_array("its array", file, Budget(packed))
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
            infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            yield ((i.filename.removesuffix(".npy"), open_member(archive, i)) for i in infos)
    except Exception as error:  # zipfile, zlib and numpy raise many kinds
        raise ValueError(f"{path} must be an .npz file of NumPy: {error or type(error)}") from None


def _read_array(name: str, file: IO[bytes], budget: Budget) -> NDArray[Any]:
    """An array whose size is known before its content is read."""
    shape, fortran, dtype = _header(file)
    size = prod(shape) * dtype.itemsize
    budget.take(size)
    content, found = bytearray(size), 0
    while count := file.readinto(memoryview(content)[found : found + _CHUNK]):  # type: ignore[attr-defined]
        found += count
    _check_size(name, shape, size, found + len(file.read(1)))
    array: NDArray[Any] = np.ndarray(shape, dtype, content, order="F" if fortran else "C")
    if dtype.kind == "U":
        _check_text(name, content, dtype)
    array.flags.writeable = False
    return array


def _map_array(name: str, file: IO[bytes], packed: int) -> NDArray[Any]:
    """The same, as a memory map: it takes no memory that the system cannot have back."""
    file.seek(0)
    shape, fortran, dtype = _header(file)
    start = file.tell()
    _check_size(name, shape, prod(shape) * dtype.itemsize, packed - start)
    order: Literal["F", "C"] = "F" if fortran else "C"
    return np.memmap(file, dtype, "r", start, shape, order).view(np.ndarray)


def _check_size(name: str, shape: tuple[int, ...], size: int, found: int) -> None:
    if found != size:
        more = "more" if found > size else str(found)
        raise ValueError(f"{name} of shape {shape} takes {size} bytes, not {more}")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    version = npy.read_magic(file)
    first = version == (1, 0)
    length = file.read(2 if first else 4)
    if (size := int.from_bytes(length, "little")) > _LONGEST_HEADER:
        raise ValueError(f"it has a header of {size} bytes")
    read = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
    shape, fortran, dtype = read(io.BytesIO(length + file.read(size)))
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    if dtype.itemsize == 0 and 0 not in shape:
        raise ValueError(f"it holds {dtype} of no size")
    return shape, fortran, dtype


def _check_text(name: str, content: bytearray, dtype: "np.dtype[Any]") -> None:
    """Refuse code points that are no characters, but for those that stand for bytes in file names.

    Python cannot hold or cannot write them.
    """
    for start in range(0, len(content), _CHUNK):
        part = memoryview(content)[start : start + _CHUNK]
        points = np.frombuffer(part, np.dtype("u4").newbyteorder(dtype.byteorder))
        half = (points >= 0xD800) & (points < 0xE000) & ((points < 0xDC80) | (points > 0xDCFF))
        if half.any() or (points > sys.maxunicode).any():
            raise ValueError(f"{name} must be text, but holds an invalid code point")
