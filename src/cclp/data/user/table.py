"""A table, cell by cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


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
    rows: list[list[str]]
    lines: list[int]
    decimal_comma: bool = False
    facts: str = ""
    warning: str = ""

    def __post_init__(self) -> None:
        header = [name or f"column {place + 1}" for place, name in enumerate(self.header)]
        if len(set(header)) != len(header):
            twice = sorted({name for name in header if header.count(name) > 1})
            raise ValueError(
                f"{self.path}: names of columns must be all different, got more than one "
                f"{', '.join(map(repr, twice[:5]))}"
            )
        object.__setattr__(self, "header", header)
        if any(_is_fraction(name) for name in header):
            raise ValueError(
                f"{self.path}: the first line must name the columns, got {', '.join(header[:5])}"
            )
        width = len(header)
        wrong = [place for place, row in enumerate(self.rows) if len(row) != width]
        if wrong:
            raise ValueError(
                f"{self.path}, line {self.lines[wrong[0]]}: expected {width} cells as in the "
                f"header, got {len(self.rows[wrong[0]])}"
                + (f"; so in {len(wrong)} lines" if len(wrong) > 1 else "")
            )

    @cached_property
    def _columns(self) -> dict[str, Sequence[str]]:
        return dict(zip(self.header, zip(*self.rows, strict=True), strict=True))

    def column(self, name: str) -> Sequence[str]:
        """All cells of a column.

        Raises:
            ValueError: if there is no such column.
        """
        if name not in self.header:
            raise ValueError(f"{self.path} has no column {name!r}, only {', '.join(self.header)}")
        return self._columns[name]

    def cell(self, name: str, row: int) -> str:
        """What a cell holds and where it is, for messages."""
        return f"{self.column(name)[row][:40]!r} in line {self.lines[row]}"


def _is_fraction(name: str) -> bool:
    """Whether it is a number as data have it: pandas names columns 0, 1, 2, … if nobody does."""
    try:
        return "." in name and float(name) is not None
    except ValueError:
        return False
