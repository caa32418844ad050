"""Rows of a table as vectors, by columns that training fitted."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from cclp.data.budget import check_room
from cclp.data.columns import (
    BooleanColumn,
    ChoiceColumn,
    Column,
    Cycle,
    DateColumn,
    EmbeddingColumn,
    NumberColumn,
    TextColumn,
)
from cclp.data.dataset import FeatureSpec
from cclp.data.user.cells import (
    MISSING,
    Parsed,
    parse_dates,
    parse_numbers,
    parse_truth,
)
from cclp.data.user.feature_cache import features_of
from cclp.data.user.features import Extractor
from cclp.data.user.table import Table, some_names
from cclp.progress import Reporter

_WORD = re.compile(r"\w\w+")


def encode(
    table: Table,
    columns: tuple[Column, ...],
    report: Reporter | None = None,
    values: Mapping[str, Parsed] | None = None,
    embedding: tuple[Extractor, FeatureSpec] | None = None,
) -> NDArray[np.float32]:
    """Rows as vectors.

    Args:
        table: its columns may be in any order, and more than those.
        columns: of the run.
        report: is warned of cells that cannot be read and are taken as missing.
        values: of columns of numbers and dates that are parsed already; their cells that cannot be
            read are said.
        embedding: what makes features of texts, and its record, if there are such columns.

    Raises:
        ValueError: if a column is missing.
    """
    known = set(table.header)
    absent = [column.name for column in columns if column.name not in known]
    if absent:
        missing = some_names([repr(name) for name in absent])
        raise ValueError(f"{table.path} has no column {missing}, only {table.names}")
    size = 4 * len(table.rows) * sum(column.size for column in columns)
    check_room(size, f"{table.path} in numbers")
    x = np.zeros((len(table.rows), sum(column.size for column in columns)), np.float32)
    start, unread = 0, []
    for column in columns:
        cells = table.column(column.name)
        features = x[:, start : start + column.size]
        start += column.size
        if isinstance(column, EmbeddingColumn):
            assert embedding is not None
            _embed(table, column, features, *embedding, report or Reporter())
            continue
        bad = _encode_column(column, cells, features, (values or {}).get(column.name))
        if len(bad):
            unread.append(f"{len(bad)} in {column.name!r}, first {table.cell(column.name, bad[0])}")
    if unread and report is not None and values is None:
        report.warn(
            f"{table.path.name}: cells that cannot be read are taken as missing: "
            f"{'; '.join(unread)}"
        )
    return x


def words_of(cell: str) -> list[str]:
    """The words of a text, in lower case."""
    return _WORD.findall(cell.lower())


def phase(cycle: Cycle, days: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where dates are within a year, a week or a day, from 0 to 1; whole months and weekdays."""
    if cycle == "hour":
        return days % 1
    whole = np.floor(days)
    if cycle == "weekday":
        return (whole + 3) % 7 / 7  # 1970 began on a Thursday
    return np.where(np.isnan(whole), np.nan, _months(whole).astype(np.int64) % 12 / 12)


def first_of_month(days: NDArray[np.float64]) -> NDArray[np.float64]:
    """The day on which the month of each date began."""
    return _months(days).astype("datetime64[D]").astype(np.float64)


def _months(days: NDArray[np.float64]) -> NDArray[np.datetime64]:
    whole = np.nan_to_num(np.floor(days))
    return whole.astype("datetime64[D]").astype("datetime64[M]")


def _encode_column(
    column: Column, cells: Sequence[str], features: NDArray[np.float32], parsed: Parsed | None
) -> NDArray[np.intp]:
    """Fill the features, which are zeros; places of the cells that cannot be read."""
    match column:
        case NumberColumn():
            comma = column.decimal_comma
            values, bad = parsed or parse_numbers(cells, comma, plain=not comma)[:2]
            _fill(values, column, features)
            return bad
        case BooleanColumn():
            values, bad = parse_truth(cells)
            _fill(values, column, features)
            return bad
        case DateColumn():
            values, bad = parsed or parse_dates(cells, column.day_first)
            _fill(values - column.origin, column, features)
            for place, cycle in enumerate(column.cycles):
                angle = 2 * np.pi * phase(cycle, values)
                pair = np.stack([np.sin(angle), np.cos(angle)], axis=1)
                at = 1 + column.indicator + 2 * place
                features[:, at : at + 2] = np.nan_to_num(pair)
            return bad
        case ChoiceColumn():
            _encode_choices(column, cells, features)
        case TextColumn():
            _encode_texts(column, cells, features)
    return np.empty(0, np.intp)  # every cell is a choice or a text


def _embed(
    table: Table,
    column: EmbeddingColumn,
    features: NDArray[np.float32],
    extractor: Extractor,
    spec: FeatureSpec,
    report: Reporter,
) -> None:
    cells = table.column(column.name)
    rows = [row for row, cell in enumerate(cells) if cell not in MISSING]
    source = f"{table.path.absolute()}\0{column.name}"
    features[rows] = features_of(extractor, spec, [cells[row] for row in rows], source, report)


def _fill(
    values: NDArray[np.float64],
    column: NumberColumn | BooleanColumn | DateColumn,
    features: NDArray[np.float32],
) -> None:
    gaps = np.isnan(values)
    features[:, 0] = np.where(gaps, column.mean, values)
    if column.indicator:
        features[:, 1] = gaps


def _encode_choices(
    column: ChoiceColumn, cells: Sequence[str], features: NDArray[np.float32]
) -> None:
    index = {name: place for place, name in enumerate(column.categories)}
    other = len(index) if column.other else -1
    gap = index.get("", -1)
    codes = np.array([index.get(c, gap if c in MISSING else other) for c in cells], np.intp)
    known = np.flatnonzero(codes >= 0)
    features[known, codes[known]] = 1


def _encode_texts(column: TextColumn, cells: Sequence[str], features: NDArray[np.float32]) -> None:
    index = {word: place for place, word in enumerate(column.words)}
    places = [[index[word] for word in words_of(cell) if word in index] for cell in cells]
    rows = np.repeat(np.arange(len(cells)), [len(found) for found in places])
    np.add.at(features, (rows, np.fromiter(chain.from_iterable(places), np.intp, len(rows))), 1)
    features *= np.array(column.idf, np.float32)
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    features /= np.where(norms > 0, norms, 1)
