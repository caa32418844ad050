"""Parquet files and Excel sheets as tables; their values become cells, as a text file has them."""

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

from cclp.data.budget import Budget
from cclp.data.user.parquet_pages import Needs, declared
from cclp.data.user.table import BYTES_PER_CELL, BYTES_PER_ROW, Rows, Table
from cclp.data.user.xlsx_parts import take_parts

_TEXTS = ("string", "large_string", "binary", "large_binary")  # types of Arrow
_BYTES_OF_GAP = 8  # of an empty cell
_BYTES_OF_CHARACTER = 2  # on the average, at most


def read_parquet(path: Path) -> Table:
    """Read a Parquet file.

    Raises:
        ValueError: if it is none, unpacks to too much, or pyarrow is missing.
    """
    with _named(path, "Parquet"):
        from pyarrow import parquet

        budget = Budget(path.stat().st_size)
        needs = declared(path)
        budget.take(needs.memory)
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            header = [str(name) for name in schema.names]
            budget.take(needs.rows * (BYTES_PER_ROW + BYTES_PER_CELL * len(header)))
            texts = [field.name for field in schema if str(field.type) in _TEXTS]
            texts = texts if needs.dictionaries else []
        # A text that is in many rows is stored once: so it stays while a batch is read.
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            rows = Rows(_parquet_rows(file, needs, budget), len(header))
    return _table(path, header, rows, first=1, facts="")


def _parquet_rows(file: Any, needs: Needs, budget: Budget) -> Iterator[tuple[str, ...]]:
    left = needs.rows
    for batch in file.iter_batches(needs.batch, use_threads=False):
        left -= len(batch)
        if left < 0:
            raise ValueError("it holds more rows than it declares")
        columns = [_cells(column) for column in batch]
        budget.take(_BYTES_OF_CHARACTER * sum(len(cell) for column in columns for cell in column))
        yield from zip(*columns, strict=True)


def read_xlsx(path: Path) -> Table:
    """Read the first sheet of an Excel file.

    Raises:
        ValueError: if it is none, unpacks to too much, or openpyxl is missing.
    """
    with _named(path, "Excel (.xlsx)"):
        import openpyxl

        budget = Budget(path.stat().st_size)
        with zipfile.ZipFile(path) as archive:
            take_parts(archive, budget)
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        try:
            if not book.worksheets:
                raise ValueError("it has no sheet")
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # a file may claim a million rows of nothing
            rows = []
            for row in sheet.iter_rows(values_only=True):
                cells = [_cell(value) for value in row]
                budget.take(BYTES_PER_ROW + BYTES_PER_CELL * len(cells))
                budget.take(_BYTES_OF_CHARACTER * sum(map(len, cells)))
                rows.append(cells)
            facts = f", sheet {sheet.title!r}"
            if len(book.worksheets) > 1:
                facts += f", the first of {len(book.worksheets)}"
        finally:
            book.close()
    while rows and not any(rows[-1]):
        rows.pop()
    width = max((len(_without_gaps(row)) for row in rows), default=0)
    with _named(path, "Excel (.xlsx)"):
        budget.take(_BYTES_OF_GAP * width * len(rows))
    rows = [row[:width] + [""] * (width - len(row)) for row in rows]
    return _table(path, rows[0] if rows else [], Rows(rows[1:], width), first=2, facts=facts)


@contextmanager
def _named(path: Path, what: str) -> Iterator[None]:
    """Whatever goes wrong is a ValueError that names the file."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of parts of the file that are not read
            yield
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{path}: {what} files need {error.name}: pip install 'cclp[tables]'"
        ) from None
    except Exception as error:  # the libraries raise many kinds
        lines = str(error).splitlines() or [type(error).__name__]
        raise ValueError(f"{path} cannot be read as a file of {what}: {lines[0][:200]}") from None


def _cells(column: Any) -> list[str]:
    """The cells of a column of Parquet."""
    if not hasattr(column, "dictionary"):
        return [_cell(value) for value in column.to_pylist()]
    words = [_cell(value) for value in column.dictionary.to_pylist()]
    return ["" if code is None else words[code] for code in column.indices.to_pylist()]


def _cell(value: Any) -> str:
    """A value as a text file has it."""
    if value is None:
        return ""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    return str(value).strip()


def _without_gaps(row: list[str]) -> list[str]:
    """The row up to its last cell that holds something."""
    end = len(row)
    while end and not row[end - 1]:
        end -= 1
    return row[:end]


def _table(path: Path, header: list[str], rows: Rows, first: int, facts: str) -> Table:
    if not header or not len(rows):
        raise ValueError(f"{path} must hold a header and rows, but holds {len(rows)} rows")
    return Table(path, header, rows, list(range(first, first + len(rows))), facts=facts)
