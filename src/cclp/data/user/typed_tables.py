"""Parquet files and Excel sheets as tables; their values become cells, as a text file has them."""

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

from cclp.data.unpack import unpack_limit
from cclp.data.user.table import Rows, Table

_BYTES_PER_CELL = 8  # at least, of a table in memory


def read_parquet(path: Path) -> Table:
    """Read a Parquet file.

    Raises:
        ValueError: if it is none, unpacks to too much, or pyarrow is missing.
    """
    with _named(path, "Parquet"):
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            header = [str(name) for name in file.schema_arrow.names]
            _check_size(path, file.metadata.num_rows * len(header))
            rows = Rows(_parquet_rows(path, file), len(header))
    return _table(path, header, rows, first=1, facts="")


def _parquet_rows(path: Path, file: Any) -> Iterator[tuple[str, ...]]:
    cells = 0
    for batch in file.iter_batches(10_000, use_threads=False):
        cells += batch.num_rows * batch.num_columns
        _check_size(path, cells)
        columns = [[_cell(value) for value in column.to_pylist()] for column in batch]
        yield from zip(*columns, strict=True)


def read_xlsx(path: Path) -> Table:
    """Read the first sheet of an Excel file.

    Raises:
        ValueError: if it is none, unpacks to too much, or openpyxl is missing.
    """
    with _named(path, "Excel (.xlsx)"):
        import openpyxl

        with zipfile.ZipFile(path) as archive:
            _check_size(path, sum(item.file_size for item in archive.infolist()), each=1)
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        try:
            if not book.worksheets:
                raise ValueError("it has no sheet")
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # a file may claim a million rows of nothing
            rows, cells = [], 0
            for row in sheet.iter_rows(values_only=True):
                rows.append([_cell(value) for value in row])
                cells += len(row) + 1
                _check_size(path, cells)
            facts = f", sheet {sheet.title!r}"
            if len(book.worksheets) > 1:
                facts += f", the first of {len(book.worksheets)}"
        finally:
            book.close()
    while rows and not any(rows[-1]):
        rows.pop()
    width = max((len(_without_gaps(row)) for row in rows), default=0)
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


def _check_size(path: Path, count: int, each: int = _BYTES_PER_CELL) -> None:
    limit = unpack_limit(path.stat().st_size)
    if count * each > limit:
        raise ValueError(f"it unpacks to more than {limit:,} bytes")


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
