"""Tables (CSV): a header, rows, a column of labels; numbers as they are, choices one-hot."""

import csv
import io
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cclp.data.dataset import Column

MOST_CATEGORIES = 100


class Table(NamedTuple):
    """A CSV file, cell by cell.

    Attributes:
        path: of the file.
        header: names of the columns.
        rows: cells without surrounding blanks.
        lines: number of each row's line in the file.
        decimal_comma: whether 1,5 is one and a half: not if commas part the cells.
    """

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    decimal_comma: bool

    def column(self, name: str) -> list[str]:
        """All cells of a column."""
        place = self.header.index(name)
        return [row[place] for row in self.rows]


def read_csv(path: Path) -> Table:
    """Read a table in UTF-8 whose cells are parted by commas, semicolons or tabs.

    Raises:
        ValueError: if it is none, naming the line.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8: {error}") from None
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        header = [name.strip() for name in next(reader, [])]
        rows, lines = [], []
        for row in reader:
            if row:
                rows.append([cell.strip() for cell in row])
                lines.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
    if not rows:
        raise ValueError(f"{path} must hold a header and rows, but holds {len(text)} characters")
    if "" in header or len(set(header)) != len(header):
        raise ValueError(f"{path}: columns must have names, all different, got {header}")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {line}: expected {len(header)} cells as in the header, got "
                f"{len(row)}"
            )
    return Table(path, header, rows, lines, delimiter != ",")


def fit_columns(table: Table, label: str) -> tuple[Column, ...]:
    """What each column but the label's holds: numbers, or choices.

    Raises:
        ValueError: if the label column is not there or nothing is beside it, if a column has too
            many choices, if its cells are all empty, or if most but not all are numbers.
    """
    if label not in table.header:
        raise ValueError(
            f"{table.path} has no column {label!r} for --label, only {', '.join(table.header)}"
        )
    columns = []
    for name in table.header:
        if name == label:
            continue
        cells = table.column(name)
        numbers = [_number(cell, table) for cell in cells if cell]
        finite = [number for number in numbers if number is not None and math.isfinite(number)]
        if not numbers:
            raise ValueError(f"{table.path}: column {name!r} is empty: remove it")
        if None not in numbers:
            columns.append(Column(name, mean=float(np.mean(finite)) if finite else 0.0))
        elif len(finite) > len(numbers) / 2:
            line, cell = next(
                (line, cell)
                for line, cell in zip(table.lines, cells, strict=True)
                if cell and _number(cell, table) is None
            )
            raise ValueError(
                f"{table.path}, line {line}: {cell!r} is not a number, as most of column {name!r} "
                "are: correct it, or leave it empty"
            )
        else:
            choices = tuple(sorted(set(cells)))
            if len(choices) > MOST_CATEGORIES:
                raise ValueError(
                    f"{table.path}: column {name!r} has {len(choices)} different values that are "
                    f"not numbers, more than {MOST_CATEGORIES}: remove it, or group them"
                )
            columns.append(Column(name, categories=choices))
    if not columns:
        raise ValueError(f"{table.path} has nothing beside its label column {label!r}")
    return tuple(columns)


def encode(table: Table, columns: tuple[Column, ...]) -> NDArray[np.float32]:
    """Rows as vectors: numbers, empty cells as the column's mean; choices one-hot.

    A choice that training did not know is all zeros.

    Raises:
        ValueError: if a column is missing, or a cell that must be a number is none.
    """
    from sklearn.preprocessing import OneHotEncoder

    parts = []
    for column in columns:
        if column.name not in table.header:
            raise ValueError(
                f"{table.path} has no column {column.name!r}, only {', '.join(table.header)}"
            )
        cells = table.column(column.name)
        if column.categories is None:
            parts.append(_numbers(table, column, cells))
        else:
            known = [list(column.categories)]
            encoder = OneHotEncoder(
                categories=known, handle_unknown="ignore", sparse_output=False, dtype=np.float32
            ).fit(np.array(known, object).T)
            parts.append(encoder.transform(np.array(cells, object)[:, None]))
    return np.concatenate(parts, axis=1, dtype=np.float32)


def _numbers(table: Table, column: Column, cells: list[str]) -> NDArray[np.float64]:
    values = []
    for cell, line in zip(cells, table.lines, strict=True):
        value = _number(cell, table) if cell else math.nan
        if value is None or abs(value) > np.finfo(np.float32).max:
            raise ValueError(
                f"{table.path}, line {line}, column {column.name!r}: expected a finite number, "
                f"got {cell!r}"
            )
        values.append(column.mean if math.isnan(value) else value)
    return np.array(values, np.float64)[:, None]


def _number(cell: str, table: Table) -> float | None:
    """The number in a cell; None if there is none."""
    if table.decimal_comma:
        cell = cell.replace(",", ".")
    try:
        return None if "_" in cell else float(cell)  # 1_000 is Python's, not a table's
    except ValueError:
        return None
