"""Tables of a user: a header, rows, a column of classes; numbers as they are, choices one-hot."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cclp.data.dataset import Column, Dataset, InputSpec, Kind
from cclp.data.user.labels import encode_labels
from cclp.progress import Reporter

MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Table:
    """A table, cell by cell.

    Attributes:
        path: of the file.
        header: names of the columns.
        rows: cells without surrounding blanks.
        lines: number of each row's line in the file.
        decimal_comma: whether 1,5 is one and a half.

    Raises:
        ValueError: if columns have no names or the same, or a row is longer or shorter.
    """

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    decimal_comma: bool = False

    def __post_init__(self) -> None:
        if "" in self.header or len(set(self.header)) != len(self.header):
            raise ValueError(
                f"{self.path}: columns must have names, all different, got {self.header}"
            )
        for row, line in zip(self.rows, self.lines, strict=True):
            if len(row) != len(self.header):
                raise ValueError(
                    f"{self.path}, line {line}: expected {len(self.header)} cells as in the "
                    f"header, got {len(row)}"
                )

    def column(self, name: str) -> list[str]:
        """All cells of a column.

        Raises:
            ValueError: if there is no such column.
        """
        if name not in self.header:
            raise ValueError(f"{self.path} has no column {name!r}, only {', '.join(self.header)}")
        place = self.header.index(name)
        return [row[place] for row in self.rows]


@dataclass(frozen=True)
class TableReader:
    """Reads a file that holds a table.

    Attributes:
        read: the table of a file.
    """

    read: Callable[[Path], Table]
    takes_target = True

    def kind(self, path: Path) -> Kind:
        return "vectors"

    def load(
        self, path: Path, target: str | None, spec: InputSpec | None, report: Reporter
    ) -> Dataset:
        table = self.read(path)
        target = target or (spec.target if spec else None)
        if target is None:
            raise ValueError(
                f"{path}: name the column of classes with --target, one of "
                f"{', '.join(table.header)}"
            )
        if spec is None:
            columns = fit_columns(table, target)
            report.info(_summary(table, columns))
        else:
            columns = _columns(spec, path)
        classes, y = encode_labels(table.column(target), spec, f"{path}, column {target!r}")
        x = encode(table, columns)
        spec = spec or InputSpec(classes, x.shape[1:], None, columns, target)
        names = [f"line {line}" for line in table.lines]
        return Dataset(path.stem, spec, x, y, x[:0], y[:0], train_names=names)

    def read_inputs(self, path: Path, spec: InputSpec) -> NDArray[np.float32]:
        return encode(self.read(path), _columns(spec, path))


def _summary(table: Table, columns: tuple[Column, ...]) -> str:
    choices = [f"{c.name} ({len(c.categories)})" for c in columns if c.categories]
    return (
        f"{table.path.name}: {len(table.rows)} rows, {len(columns) - len(choices)} columns of "
        f"numbers, {len(choices)} of choices{': ' if choices else ''}{', '.join(choices)}"
    )


def _columns(spec: InputSpec, path: Path) -> tuple[Column, ...]:
    """Columns of the table that a run was trained on."""
    if spec.columns is None:
        raise ValueError(f"{path}: this run was not trained on a table")
    return spec.columns


def fit_columns(table: Table, target: str) -> tuple[Column, ...]:
    """What each column except the target holds: numbers, or choices.

    Raises:
        ValueError: if there is no target column or no other, if a column has too many choices, if
            its cells are all empty, or if most but not all are numbers.
    """
    table.column(target)
    columns = tuple(_fit_column(table, name) for name in table.header if name != target)
    if not columns:
        raise ValueError(f"{table.path} has no column beside the target {target!r}")
    return columns


def _fit_column(table: Table, name: str) -> Column:
    cells = table.column(name)
    numbers = [_number(cell, table) for cell in cells if cell]
    finite = [number for number in numbers if number is not None and math.isfinite(number)]
    if not numbers:
        raise ValueError(f"{table.path}: column {name!r} is empty: remove it")
    if None not in numbers:
        return Column(name, mean=float(np.mean(finite)) if finite else 0.0)
    if len(finite) > len(numbers) / 2:
        line, cell = next(
            (line, cell)
            for line, cell in zip(table.lines, cells, strict=True)
            if cell and _number(cell, table) is None
        )
        raise ValueError(
            f"{table.path}, line {line}: {cell!r} is not a number, as most of column {name!r} "
            "are: correct it, or leave it empty"
        )
    choices = tuple(sorted(set(cells)))
    if len(choices) > MOST_CATEGORIES:
        raise ValueError(
            f"{table.path}: column {name!r} has {len(choices)} different values that are not "
            f"numbers, more than {MOST_CATEGORIES}: remove it, or group them"
        )
    return Column(name, categories=choices)


def encode(table: Table, columns: tuple[Column, ...]) -> NDArray[np.float32]:
    """Rows as vectors: numbers, with the column's mean where a cell is empty; choices one-hot.

    A choice that training did not see is all zeros.

    Raises:
        ValueError: if a column is missing, or a cell that must be a number is none.
    """
    parts = []
    for column in columns:
        cells = table.column(column.name)
        if column.categories is None:
            parts.append(_numbers(table, column, cells))
        else:
            parts.append(np.array(cells, object)[:, None] == np.array(column.categories, object))
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
