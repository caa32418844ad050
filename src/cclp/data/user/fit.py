"""What the columns of a table hold: all are judged in one pass, and none is refused.

A column that carries nothing, or nothing that other rows share, is left out, with the reason.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from shlex import quote
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cclp.data.columns import (
    CYCLES,
    BooleanColumn,
    ChoiceColumn,
    Column,
    Cycle,
    DateColumn,
    EmbeddingColumn,
    NumberColumn,
    TextColumn,
)
from cclp.data.user.cells import (
    MISSING,
    TRUTH,
    Parsed,
    find_day_first,
    parse_dates,
    parse_numbers,
    parse_truth,
)
from cclp.data.user.encode import first_of_month, phase, words_of
from cclp.data.user.table import Table, some_names

MOSTLY = 0.95  # of the cells must be numbers, or dates
FEW_MISSING = 5  # cells, or 1 %: so many are marked by a feature
FEW_ROWS = 20  # in which all cells of a column may be different by chance
FREQUENT = 30  # categories that are kept, and rarer ones that have 1 % of the cells
MOST_WORDS, IN_MOST_ROWS, TEXTS_FITTED = 300, 0.9, 20_000
_IDENTIFIER = re.compile(r"(.*[^a-z])?(id|ids|idx|index|uuid|guid|key|nr|no|row)", re.IGNORECASE)
_CAMEL_CASE_ID = re.compile(r".*[a-z](Id|ID)")


class FittedColumns(NamedTuple):
    """Columns, and what people should know about them.

    Attributes:
        columns: that are used.
        left_out: why the others are not, by name.
        notes: on cells that were taken as missing, and on what was ambiguous.
        values: of columns of numbers and dates, by name; to parse them again would take long.
    """

    columns: tuple[Column, ...]
    left_out: dict[str, str]
    notes: list[str]
    values: dict[str, Parsed]


class LeftOut(Exception):  # noqa: N818 - no error: it says why
    """Why a column is not used."""


def fit_columns(
    table: Table,
    target: str | None,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    embedding: int | None = None,
) -> FittedColumns:
    """What each column except the target holds.

    Args:
        table: of the training rows.
        target: the column of classes; None: there is none.
        drop: columns to leave out.
        keep: columns to use although they look like identifiers.
        embedding: features that a model makes of a text; None: texts become TF-IDF.

    Raises:
        ValueError: for names that are not of columns, and if no column is left.
    """
    _check_names(table, target, drop, keep)
    columns: list[Column] = []
    left_out: dict[str, str] = {}
    said = FittedColumns((), left_out, [], {})
    for name in table.header:
        if name == target:
            continue
        try:
            if name in drop:
                raise LeftOut("--drop")
            columns.append(_fit_column(table, name, name in keep, said, embedding))
        except LeftOut as why:
            left_out[name] = str(why)
    if not columns:
        beside = "" if target is None else f" beside the target {target!r}"
        reasons = some_names([f"{name!r}: {why}" for name, why in left_out.items()], "; ")
        raise ValueError(
            f"{table.path} has no column to learn from{beside}{', but ' if reasons else ''}"
            f"{reasons}"
        )
    return said._replace(columns=tuple(columns))


def _check_names(
    table: Table, target: str | None, drop: Collection[str], keep: Collection[str]
) -> None:
    targets = [] if target is None else [target]
    for option, names in (("--target", targets), ("--drop", drop), ("--keep", keep)):
        for name in names:
            if name not in table.header:
                raise ValueError(
                    f"{option}: {table.path} has no column {name!r}, only {table.names}"
                )
    for name in drop:
        if name == target or name in keep:
            raise ValueError(
                f"--drop {name}: it is the column of --{'target' if name == target else 'keep'}"
            )


def _fit_column(
    table: Table, name: str, keep: bool, said: FittedColumns, embedding: int | None
) -> Column:
    """The column; what is ambiguous in it is added to the notes, and its values to the values.

    Raises:
        LeftOut: if it is not used.
    """
    cells = table.column(name)
    distinct = set(cells)
    kinds, gaps = distinct - MISSING, sum(cells.count(mark) for mark in distinct & MISSING)
    if not kinds:
        raise LeftOut("empty")
    if len(kinds) == 1 and not gaps:
        raise LeftOut(f"constant, {next(iter(kinds))[:40]!r}")
    if len(kinds) == 1:  # there or not is all that it says
        return ChoiceColumn(name, tuple(sorted({"", *kinds})))
    indicator = gaps >= max(FEW_MISSING, len(cells) / 100)
    if all(cell.lower() in TRUTH for cell in kinds):
        mean = float(np.nanmean(parse_truth(cells).values))
        return BooleanColumn(name, mean, indicator)
    return (
        _fit_numbers(table, name, keep, indicator, said)
        or _fit_dates(table, name, indicator, said)
        or _fit_strings(name, cells, keep, embedding)
    )


def _fit_numbers(
    table: Table, name: str, keep: bool, indicator: bool, said: FittedColumns
) -> NumberColumn | None:
    """A column of numbers; None if too few of its cells are."""
    cells = table.column(name)
    few = parse_numbers(_some(cells), table.decimal_comma)
    if len(few.bad) > len(few.values) / 2:
        return None
    whole_column = len(few.values) == len(cells)
    parsed = few if whole_column else parse_numbers(cells, table.decimal_comma)
    known = parsed.values[~np.isnan(parsed.values)]
    if len(known) < max(1, MOSTLY * (len(known) + len(parsed.bad))):
        return None
    whole = not len(parsed.bad) and bool((known == np.floor(known)).all())
    if whole and not keep and _counts_rows(name, known, table.lines):
        raise LeftOut(f"an identifier, all different: --keep {quote(name)} uses it")
    if parsed.doubtful is not None:
        value = parse_numbers([parsed.doubtful], parsed.decimal_comma, plain=False).values[0]
        said.notes.append(f"{name!r}: {parsed.doubtful} is read as {value:g}")
    _note(table, name, "numbers", Parsed(parsed.values, parsed.bad), said)
    return NumberColumn(name, float(known.mean()), indicator, parsed.decimal_comma)


def _counts_rows(name: str, values: NDArray[np.float64], lines: Sequence[int]) -> bool:
    """Whether whole numbers are an identifier: they count the rows, or their name says so."""
    if len(values) < 2 or len(np.unique(values)) < len(values):
        return False
    counter = len(values) >= FEW_ROWS and values[0] in (0, 1) and bool((np.diff(values) == 1).all())
    return counter or looks_like_identifier(name)


def looks_like_identifier(name: str) -> bool:
    """Whether a column is named as identifiers are, such as id, customer_id, rowIndex."""
    unnamed = name.lower().startswith(("unnamed: ", "column "))
    return bool(unnamed or _IDENTIFIER.fullmatch(name) or _CAMEL_CASE_ID.fullmatch(name))


def _fit_dates(table: Table, name: str, indicator: bool, said: FittedColumns) -> DateColumn | None:
    """A column of dates; None if too few of its cells are."""
    cells = table.column(name)
    few = parse_dates(_some(cells), day_first=False)
    if len(few.bad) > len(few.values) / 2:
        few = parse_dates(_some(cells), day_first=True)
    if len(few.bad) > len(few.values) / 2:
        return None
    day_first, doubtful = find_day_first(cells)
    parsed = parse_dates(cells, day_first)
    known = parsed.values[~np.isnan(parsed.values)]
    if len(known) < max(1, MOSTLY * (len(known) + len(parsed.bad))):
        return None
    if doubtful is not None:
        order = "day" if day_first else "month"
        said.notes.append(
            f"{name!r}: the {order} is taken to come first in dates such as {doubtful}"
        )
    _note(table, name, "dates", parsed, said)
    cycles: tuple[Cycle, ...] = tuple(c for c in CYCLES if len(np.unique(phase(c, known))) > 1)
    if (known == first_of_month(known)).all():  # they are months: of these no weekday is meant
        cycles = tuple(c for c in cycles if c != "weekday")
    origin = float(known.min())
    return DateColumn(name, float(known.mean()) - origin, origin, day_first, cycles, indicator)


def _some(cells: Sequence[str], most: int = 1000) -> Sequence[str]:
    """Cells from all over a column, to see what it is about."""
    return cells[:: -(-len(cells) // most)]


def _note(table: Table, name: str, what: str, parsed: Parsed, said: FittedColumns) -> None:
    said.values[name] = parsed
    if len(parsed.bad):
        said.notes.append(
            f"{name!r}: {len(parsed.bad)} cells are no {what} that can be used, first "
            f"{table.cell(name, parsed.bad[0])}: taken as missing"
        )


def _fit_strings(name: str, cells: Sequence[str], keep: bool, embedding: int | None) -> Column:
    """Choices or free text.

    Raises:
        LeftOut: if the column is neither.
    """
    kinds = Counter(cells)
    for mark in kinds.keys() & MISSING:
        del kinds[mark]
    known = kinds.total()
    some = [cell for cell in _some(cells) if cell not in MISSING] or list(kinds)
    length = sum(len(words_of(cell)) for cell in some) / len(some)
    if length >= 3 and len(kinds) > known / 2 and (known >= FEW_ROWS or length >= 5):
        if embedding is not None:
            return EmbeddingColumn(name, embedding)
        return _fit_text(name, cells)
    different = len(kinds) == known
    if different and not keep and (known >= FEW_ROWS or looks_like_identifier(name)):
        raise LeftOut(f"an identifier, all different: --keep {quote(name)} uses it")
    if known >= FEW_ROWS and len(kinds) > known / 2 and not keep:
        raise LeftOut(f"{len(kinds)} different values in {known} cells{_numbers_among(kinds)}")
    order = sorted(kinds, key=lambda cell: (-kinds[cell], cell))
    kept = [c for n, c in enumerate(order) if n < FREQUENT or kinds[c] >= max(2, known / 100)]
    rare = known - sum(kinds[cell] for cell in kept)
    if rare > known / 2 and not keep:
        raise LeftOut(f"{len(kinds)} different values, most of them rare{_numbers_among(kinds)}")
    gap = {""} if known < len(cells) else set()
    return ChoiceColumn(name, tuple(sorted({*kept, *gap})), rare > 0)


def _numbers_among(kinds: Collection[str]) -> str:
    """A hint for columns that are numbers but for some words."""
    values = parse_numbers(list(kinds), decimal_comma=False, plain=False)
    if not 0 < len(values.bad) < len(kinds) / 2:
        return ""
    return f", most of them numbers, but not {list(kinds)[values.bad[0]][:40]!r}"


def _fit_text(name: str, cells: Sequence[str]) -> TextColumn:
    """Words that are in several rows but not in nearly all, the most frequent ones.

    Raises:
        LeftOut: if there is none.
    """
    cells = _some(cells, TEXTS_FITTED)
    rows = Counter(word for cell in cells if cell not in MISSING for word in set(words_of(cell)))
    least = max(2, len(cells) / 200)
    kept = [w for w, count in rows.items() if least <= count <= IN_MOST_ROWS * len(cells)]
    kept = sorted(kept, key=lambda word: (-rows[word], word))[:MOST_WORDS]
    if not kept:
        raise LeftOut("text without words that several rows share")
    words = tuple(sorted(kept))
    counts = np.array([rows[word] for word in words])
    idf = np.log((1 + len(cells)) / (1 + counts)) + 1
    return TextColumn(name, words, tuple(idf.tolist()))
