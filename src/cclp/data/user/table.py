"""A table, cell by cell."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

BYTES_PER_ROW, BYTES_PER_CELL = 128, 64  # while they are read, at least
_BLOCK = 10**6  # cells
_MOST_NAMES = 20


class Rows:
    """Rows of cells, in a third of the memory of Python's strings.

    Args:
        rows: that may still be read while they are taken.
        width: cells of a row.

    Attributes:
        wrong: place and width of the rows that have another width.
    """

    def __init__(self, rows: Iterable[Sequence[str]], width: int) -> None:
        self.wrong: list[tuple[int, int]] = []
        self._blocks = []
        self._size, self._latest = 0, (-1, list[str]())
        left = iter(rows)
        while block := list(islice(left, max(1, _BLOCK // max(1, width)))):
            for place, row in enumerate(block):
                if len(row) != width:
                    self.wrong.append((self._size + place, len(row)))
                    block[place] = [*row, *[""] * width][:width]
            columns = list(zip(*block, strict=True))
            self._blocks.append(np.array(columns, np.dtypes.StringDType()))
            self._size += len(block)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        for block in self._blocks:
            yield from zip(*block.tolist(), strict=True)

    def column(self, place: int) -> list[str]:
        """All cells of a column; the latest is kept, as it is often asked for again."""
        if self._latest[0] != place:
            cells = [cell for block in self._blocks for cell in block[place].tolist()]
            self._latest = place, cells
        return self._latest[1]

    def drop_last_column(self) -> None:
        """Forget the last column."""
        self._blocks = [block[:-1] for block in self._blocks]


@dataclass(frozen=True)
class Table:
    """A table, cell by cell.

    Attributes:
        path: of the file.
        header: names of the columns; one without a name is called "column 3".
        rows: cells without surrounding blanks.
        lines: number of each row's line in the file.
        decimal_comma: whether 1,234 is a little more than one, where a column leaves it open.
        facts: about how the file was read, for people.
        warning: that the reader has for people; may be empty.

    Raises:
        ValueError: if columns have the same name or none of them a name, or a row is longer or
            shorter.
    """

    path: Path
    header: list[str]
    rows: Rows
    lines: list[int]
    decimal_comma: bool = False
    facts: str = ""
    warning: str = ""

    def __post_init__(self) -> None:
        header = [name or f"column {place + 1}" for place, name in enumerate(self.header)]
        if len(set(header)) != len(header):
            twice = sorted(name for name, count in Counter(header).items() if count > 1)
            raise ValueError(
                f"{self.path}: names of columns must be all different, got more than one "
                f"{', '.join(map(repr, twice[:5]))}"
            )
        object.__setattr__(self, "header", header)
        if any(_is_fraction(name) for name in header):
            raise ValueError(
                f"{self.path}: the first line must name the columns, got {', '.join(header[:5])}"
            )
        wrong = self.rows.wrong
        if wrong:
            place, width = wrong[0]
            raise ValueError(
                f"{self.path}, line {self.lines[place]}: expected {len(header)} cells as in the "
                f"header, got {width}" + (f"; so in {len(wrong)} lines" if len(wrong) > 1 else "")
            )

    def column(self, name: str) -> Sequence[str]:
        """All cells of a column.

        Raises:
            ValueError: if there is no such column.
        """
        if name not in self._places:
            raise ValueError(f"{self.path} has no column {name!r}, only {self.names}")
        return self.rows.column(self._places[name])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.header)}

    @property
    def names(self) -> str:
        """The columns, for messages."""
        return some_names(self.header)

    def cell(self, name: str, row: int) -> str:
        """What a cell holds and where it is, for messages."""
        return f"{self.column(name)[row][:40]!r} in line {self.lines[row]}"


def some_names(names: Sequence[str], between: str = ", ") -> str:
    """The first twenty, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return between.join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _is_fraction(name: str) -> bool:
    """Whether it is a number as data have it: pandas names columns 0, 1, 2, … if nobody does."""
    try:
        return "." in name and float(name) is not None
    except ValueError:
        return False
