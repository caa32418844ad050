"""CSV files as tables."""

import csv
import io
from pathlib import Path

from cclp.data.user.tables import Table


def read_csv(path: Path) -> Table:
    """Read a table in UTF-8 whose cells are separated by commas, semicolons or tabs.

    Raises:
        ValueError: if it is none, naming the line.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8: {error}") from None
    delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows, lines = [], []
    try:
        header = [name.strip() for name in next(reader, [])]
        for row in reader:
            if row:
                rows.append([cell.strip() for cell in row])
                lines.append(reader.line_num)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
    if not rows:
        raise ValueError(f"{path} must hold a header and rows, but holds {len(text)} characters")
    return Table(path, header, rows, lines, decimal_comma=delimiter != ",")
