"""What reading a Parquet file takes, by what its footer and the headers of its pages declare.

Arrow allocates what the header of a page says and unpacks no more than that. The footer repeats the
sizes, but nothing makes both agree. So all of them are read here before Arrow is let at the file.
They are structs in the compact protocol of Thrift. (Arrow's own access to damaged metadata ends the
process.)
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cclp.data.budget import Budget

_MAGIC = b"PAR1"
_TAIL = 8  # bytes at the end: the size of the footer, and the magic
_BYTES_OF_STRUCT = 2000  # of the footer, in memory: a column takes 1,500 in Arrow
_COPIES = 3  # of a page: as it is in the file, unpacked, decoded
_BYTES_OF_VALUE = 128  # of any other in a list, at most, also as an object of Python
_BATCH = 10_000  # rows
_BYTES_OF_BATCH = 2**24
_DEEPEST = 16
_IN_COLUMNS = 4  # lists at such a depth hold small structs
# Types of Thrift.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _STRUCT = *range(1, 10), 12
_BITS = {_I16: 16, _I32: 32, _I64: 64}
# Fields: of the footer, an element of the schema, a group of rows, a column, a page.
_SCHEMA, _NUM_ROWS, _GROUPS = 2, 3, 4
_TYPE, _LENGTH, _REPETITION, _CHILDREN = 1, 2, 3, 5
_TEXT, _FIXED, _REPEATED = 6, 7, 2  # types, and a repetition
_COLUMNS = 1
_METADATA, _NUM_VALUES, _PAGES, _DICTIONARY = 3, 5, 9, 11
_UNPACKED, _PACKED, _DICTIONARY_PAGE, _COUNT = 2, 3, 7, 1
_DATA_PAGES = {5: 2, 8: 4}  # of both versions, and where each has its encoding
_SHARED_BEGINNINGS = 7  # an encoding of texts (DELTA_BYTE_ARRAY)

Fields = dict[int, tuple[int, Any]]  # type and value by number


class Needs(NamedTuple):
    """Of a file.

    Attributes:
        rows: how many it declares.
        batch: how many of them to read at a time.
        dictionaries: whether texts can be read as dictionaries, so that one in many rows is in the
            memory once. Arrow cannot do that if some begin as the one before.
        memory: bytes that Arrow takes for its pages and a batch of rows, at most.
    """

    rows: int
    batch: int
    dictionaries: bool
    memory: int


class _Column(NamedTuple):
    """Of a group of rows: its largest page and dictionary, in bytes, and how many values it has.

    ``shared`` is the largest page of texts that begin as the one before: each may be as long as it.
    """

    page: int
    dictionary: int
    shared: int
    values: int


class _Leaf(NamedTuple):
    """A column of the schema; values of a nested one are not counted by rows."""

    nested: bool
    text: bool
    width: int


def declared(path: Path) -> Needs:
    """What a file declares.

    Raises:
        ValueError: if footer or pages are damaged, or the footer takes too much memory.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        size = len(content)
        if size < 2 * _TAIL or content[-4:] != _MAGIC:
            raise ValueError("its end is missing")
        start = size - _TAIL - int.from_bytes(content[-8:-4], "little")
        try:
            footer, _ = _struct(content, max(0, start), Budget(size))
            leaves = list(_leaves([_fields(e) for e in _get(footer, _SCHEMA, _LIST)]))
            groups = _get(footer, _GROUPS, _LIST)
            found = [_columns(content, _fields(group), len(leaves)) for group in groups]
            rows = _get(footer, _NUM_ROWS, _I64)
        except (KeyError, IndexError, TypeError):
            raise ValueError("its metadata are damaged") from None
    if rows < 0:
        raise ValueError(f"it has {rows} rows")
    columns = [column for group in found for column in group]
    dictionaries = not any(column.shared for column in columns)
    longest = 0 if dictionaries else max(max(c.shared, c.dictionary) for c in columns)
    batch = max(1, min(_BATCH, _BYTES_OF_BATCH // max(1, longest)))
    memory = (
        sum(_memory(leaf, c, batch, longest) for leaf, c in zip(leaves, group, strict=True))
        for group in found
    )
    return Needs(rows, batch, dictionaries, max(memory, default=0))


def _leaves(schema: list[Fields]) -> Iterator[_Leaf]:
    """Columns in the order of the schema, which is a tree whose root comes first."""
    left = [_get(schema[0], _CHILDREN, _I32, 0)]
    for element in schema[1:]:
        while not left[-1]:
            left.pop()
        left[-1] -= 1
        if children := _get(element, _CHILDREN, _I32, 0):
            left.append(children)
            continue
        kind = _get(element, _TYPE, _I32)
        nested = len(left) > 1 or _get(element, _REPETITION, _I32, 0) == _REPEATED
        width = max(0, _get(element, _LENGTH, _I32, 0)) if kind == _FIXED else 0
        yield _Leaf(nested, kind == _TEXT, width)


def _memory(leaf: _Leaf, column: _Column, batch: int, longest: int) -> int:
    """Bytes that Arrow takes for a column while a batch of rows is read.

    ``longest`` is the size of a text that Arrow may repeat.
    """
    pages = _COPIES * (column.page + column.dictionary)
    if leaf.nested:  # a batch may hold all of them, in full
        each = max(column.dictionary, column.shared) if leaf.text else leaf.width
        return pages + column.values * (_BYTES_OF_VALUE + each)
    each = longest if leaf.text else leaf.width
    return pages + _COPIES * min(batch, column.values) * each


def _columns(content: mmap.mmap, group: Fields, expected: int) -> list[_Column]:
    chunks = _get(group, _COLUMNS, _LIST)
    if len(chunks) != expected:
        raise ValueError(f"it has {expected} columns, and {len(chunks)} in a group of rows")
    return [_column(content, _get(_fields(chunk), _METADATA, _STRUCT)) for chunk in chunks]


def _column(content: mmap.mmap, column: Fields) -> _Column:
    place = _get(column, _PAGES, _I64)
    if 0 < (first := _get(column, _DICTIONARY, _I64, 0)) < place:
        place = first
    page = dictionary = shared = values = 0
    while values < _get(column, _NUM_VALUES, _I64):
        if place < 0:
            raise ValueError("a page lies before the file")
        header, place = _struct(content, place)
        unpacked, packed = _get(header, _UNPACKED, _I32), _get(header, _PACKED, _I32)
        more = 0
        for number, encoding in _DATA_PAGES.items():
            if (part := _get(header, number, _STRUCT, None)) is not None:
                more += _get(part, _COUNT, _I32)
                if _get(part, encoding, _I32) == _SHARED_BEGINNINGS:
                    shared = max(shared, unpacked)
        if min(unpacked, packed, more) < 0:
            raise ValueError("a page of less than nothing")
        place += packed
        values += more
        if _DICTIONARY_PAGE in header:
            dictionary = max(dictionary, unpacked)
        page = max(page, unpacked)
    return _Column(page, dictionary, shared, values)


def _get(fields: Fields, number: int, kind: int, *default: Any) -> Any:
    """A field, which is not there for Arrow if its type is another."""
    found, value = fields.get(number, (None, None))
    if found == kind:
        return value
    if default:
        return default[0]
    raise KeyError(number)


def _fields(value: Any) -> Fields:
    """An element of a list, which must be a struct."""
    if not isinstance(value, dict):
        raise TypeError("a struct is expected")
    return value


def _struct(
    content: mmap.mmap, place: int, budget: Budget | None = None, depth: int = 0
) -> tuple[Fields, int]:
    """A struct of Thrift, and where it ends."""
    if depth > _DEEPEST:
        raise ValueError("its metadata are too deep")
    fields: Fields = {}
    number = 0
    while head := content[place]:
        place += 1
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, place = _integer(content, place, 16)
        if number in fields:
            raise ValueError("its metadata say something twice")
        value: Any = kind == _TRUE
        if kind not in (_TRUE, _FALSE):
            value, place = _value(content, place, kind, budget, depth)
        fields[number] = kind, value
    return fields, place + 1


def _value(
    content: mmap.mmap, place: int, kind: int, budget: Budget | None, depth: int
) -> tuple[Any, int]:
    if kind in _BITS:
        return _integer(content, place, _BITS[kind])
    if kind in (_TRUE, _FALSE, _BYTE):
        return None, place + 1
    if kind == _DOUBLE:
        return None, place + 8
    if kind == _BINARY:
        length, place = _unsigned(content, place)
        return None, place + length
    if kind == _STRUCT:
        return _struct(content, place, budget, depth + 1)
    if kind == _LIST:
        return _list(content, place, budget, depth)
    raise ValueError(f"its metadata have a field of type {kind}")


def _list(
    content: mmap.mmap, place: int, budget: Budget | None, depth: int
) -> tuple[list[Any], int]:
    count, kind = content[place] >> 4, content[place] & 15
    place += 1
    if count == 15:
        count, place = _unsigned(content, place)
    if count > len(content) - place:
        raise ValueError("its metadata declare more than there is")
    if budget is not None:
        large = kind == _STRUCT and depth < _IN_COLUMNS
        budget.take(count * (_BYTES_OF_STRUCT if large else _BYTES_OF_VALUE))
    found = []
    for _ in range(count):
        value, place = _value(content, place, kind, budget, depth + 1)
        found.append(value)
    return found, place


def _integer(content: mmap.mmap, place: int, bits: int) -> tuple[int, int]:
    value, place = _unsigned(content, place)
    if value >> bits:
        raise ValueError("a number in its metadata is too large")
    return (value >> 1) ^ -(value & 1), place


def _unsigned(content: mmap.mmap, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise ValueError("a number in its metadata is too long")
