"""Text files as tables: cells between commas, semicolons, tabs or bars."""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from cclp.data.budget import Budget, check_room
from cclp.data.unpack import read_content
from cclp.data.user.table import BYTES_PER_CELL, BYTES_PER_ROW, Rows, Table

# Those that are rarer in text come first: they win where two do as well.
DELIMITERS = {"\t": "tabs", "|": "bars", ";": "semicolons", ",": "commas"}
_SAMPLE_ROWS = 200
_BYTES_SPLIT = 24  # of a cell in a row that is split, stripped and looked at
_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+")
_EXCEL_SAYS = re.compile(r"sep=([,;\t|])\r?\n")


def read_csv(path: Path) -> Table:
    """Read a table in UTF-8, UTF-16 or, if need be, Windows-1252; it may be gzipped.

    Raises:
        ValueError: if it is none, naming the line.
    """
    text, warning = _decode(read_content(path), path)
    budget = Budget(path.stat().st_size)
    budget.take(2 * len(text), str(path))
    said = _EXCEL_SAYS.match(text)
    text = text[said.end() :] if said else text
    delimiter = said[1] if said else _find_delimiter(text, budget, path)
    reader = _Reader(text, delimiter, budget, path)
    rows_left, lines = iter(reader), list[int]()

    def cells() -> Iterator[list[str]]:
        for row in rows_left:
            if row:
                budget.take(BYTES_PER_ROW + BYTES_PER_CELL * len(row), str(path))
                lines.append(reader.line_num + (said is not None))
                yield list(map(str.strip, row))

    try:
        header = next(filter(None, rows_left), [])
        budget.take(4 * BYTES_PER_CELL * len(header), str(path))  # each becomes a column
        header = [name.strip() for name in header]
        rows = Rows(cells(), len(header))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
    if not len(rows):
        raise ValueError(f"{path} must hold a header and rows, but holds {len(text)} characters")
    if header[-1] == "" and not rows.wrong and not any(rows.column(len(header) - 1)):
        header.pop()  # every line ends in a delimiter
        rows.drop_last_column()
    facts = f", cells between {DELIMITERS[delimiter]}"
    return Table(path, header, rows, lines, delimiter != ",", facts, warning)


def _decode(content: bytes, path: Path) -> tuple[str, str]:
    """The text, and a warning if its encoding is a guess."""
    warning = ""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encodings = ["utf-16"]
    else:
        encodings = ["utf-8-sig", "cp1252", "latin-1"]
    for encoding in encodings:
        try:
            text = content.decode(encoding)
            break
        except UnicodeDecodeError as error:
            warning = f"it is not text in UTF-8 ({error.reason} at byte {error.start})"
    else:
        raise ValueError(f"{path} must be text in UTF-8 or UTF-16: {warning}")
    if "\0" in text:
        raise ValueError(f"{path} must be text, but has NUL characters")
    return text, f"{warning}: read as {encoding}, check letters with accents" if warning else ""


def _find_delimiter(text: str, budget: Budget, path: Path) -> str:
    """The delimiter with which most of the first rows have as many cells as the header."""

    def score(delimiter: str) -> tuple[float, int]:
        try:
            rows = islice(_Reader(text, delimiter, budget, path), _SAMPLE_ROWS)
            widths = [len(row) for row in rows if row]
        except csv.Error:
            return 0.0, 0
        if not widths or widths[0] < 2:
            return 0.0, 0
        return Counter(widths)[widths[0]] / len(widths), widths[0]

    return max(DELIMITERS, key=score)


class _Reader:
    """Rows of a text; memory for one of many cells is asked for before it is taken."""

    def __init__(self, text: str, delimiter: str, budget: Budget, path: Path) -> None:
        self._path, self._text, self._delimiter = path, text, delimiter
        self._limit = budget.limit
        self._cells = 0  # of the row that is being read, at most
        self._rows = csv.reader(self._lines(), delimiter=delimiter, skipinitialspace=True)

    @property
    def line_num(self) -> int:
        return self._rows.line_num

    def __iter__(self) -> Iterator[list[str]]:
        for row in self._rows:
            self._cells = 0
            yield row

    def _lines(self) -> Iterator[str]:
        for match in _LINE.finditer(self._text):  # io.StringIO takes 4 bytes for each character
            line = match[0]
            self._cells += 1 + line.count(self._delimiter)
            size = _BYTES_SPLIT * self._cells
            if size > self._limit:
                raise ValueError(f"{self._path}: a row unpacks to more than {self._limit:,} bytes")
            check_room(size, f"{self._path}: a row")
            yield line
