"""What is written in the cells of a column: numbers, truth values, dates, or nothing."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_NOTHING = ("", "na", "n/a", "nan", "null", "none", "?", "-", "--", "#n/a", "<na>", "nat")
# All spellings in a set: a look-up takes half the time of lower().
MISSING = frozenset(
    {spelling for word in _NOTHING for spelling in (word, word.upper(), word.capitalize())}
    | {"NaN", "NaT"}
)
TRUTH = {
    "true": 1.0, "yes": 1.0, "y": 1.0, "t": 1.0, "on": 1.0,
    "false": 0.0, "no": 0.0, "n": 0.0, "f": 0.0, "off": 0.0,
}  # fmt: skip
LARGEST = float(np.finfo(np.float32).max)
_MONEY = r"(?:[$€£¥₹]|USD|EUR|GBP|CHF)?"
_BLANK = r"[\s\xa0\u202f]*"
_NUMBER = re.compile(
    rf"(?P<open>\()?(?P<sign>[-+\u2212])?{_BLANK}{_MONEY}{_BLANK}(?P<inner>[-+\u2212])?"
    r"(?:(?P<grouped>[1-9]\d{0,2}(?P<mark>[.,'’ \xa0\u202f])\d{3}(?:(?P=mark)\d{3})*)"
    r"|(?P<whole>\d*))"
    r"(?:(?P<point>[.,])(?P<fraction>\d*))?(?P<exponent>e[-+]?\d{1,4})?"
    rf"{_BLANK}(?:(?P<percent>%)|{_MONEY}){_BLANK}(?P<close>\))?",
    re.ASCII | re.IGNORECASE,
)
_MINUS = ("-", "\u2212")
_MARKS = {",": ".", ".": ","}  # of thousands, and of decimals then
_TIME = (
    r"(?:,?[ T]+(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,]\d+)?)?"
    r"\s*(?P<half>[ap]m)?)?"
)
_YEAR, _LONG_YEAR = r"(?P<year>\d{4}|\d\d)", r"(?P<year>(?:19|20)\d\d)"
_DAY_OF_MONTH, _NAME = r"(?P<day>\d\d?)(?:st|nd|rd|th)?", r"(?P<name>[a-z]{3,9})\.?"
_YEAR_LAST, *_OTHER_DATES = (
    re.compile(pattern + _TIME, re.ASCII | re.IGNORECASE)
    for pattern in (
        rf"(?P<one>\d\d?)(?P<mark>[-/.])(?P<two>\d\d?)(?P=mark){_YEAR}",
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d\d?)(?P=mark)(?P<day>\d\d?)",
        rf"{_DAY_OF_MONTH}\.?[-/ ]?{_NAME},?[-/ ]?{_YEAR}",  # 3 Mar 2024, 03-Mar-24
        rf"{_NAME}[-/ ]?{_DAY_OF_MONTH}(?:, ?|[-/ ]){_YEAR}",  # March 3, 2024
        rf"{_NAME},?[-/ ]?{_LONG_YEAR}",  # Mar 2024
        rf"{_LONG_YEAR}[-/](?P<month>\d\d)",  # 2024-03; 2024-3 may be a quarter
        rf"(?P<month>\d\d?)[-/]{_LONG_YEAR}",  # 03/2024
    )
)
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_BY_NAME = {"sept": 9} | {
    spelling: n for n, name in enumerate(_MONTHS, 1) for spelling in (name, name[:3])
}
_EPOCH, _DAY = datetime(1970, 1, 1), timedelta(days=1)


class Parsed(NamedTuple):
    """The values of a column.

    Attributes:
        values: NaN where there is none.
        bad: places of cells that are neither missing nor a value.
    """

    values: NDArray[np.float64]
    bad: NDArray[np.intp]


class Numbers(NamedTuple):
    """The numbers of a column.

    Attributes:
        values, bad: as in :class:`Parsed`.
        decimal_comma: whether 1,234 was taken for a little more than one.
        doubtful: such a cell, if no other one of the column decides it.
    """

    values: NDArray[np.float64]
    bad: NDArray[np.intp]
    decimal_comma: bool = False
    doubtful: str | None = None


def parse_numbers(cells: Sequence[str], decimal_comma: bool, plain: bool = True) -> Numbers:
    """Numbers, also with currency, per cent, thousands separators, parentheses for negative ones.

    Args:
        cells: without surrounding blanks.
        decimal_comma: whether 1,234 is a little more than one, if the cells leave it open: those
            such as 1,5 or 1.234,50 decide it.
        plain: whether a column of nothing but numbers such as 1.234 has decimal points.
    """
    values = _plain_numbers(cells) if plain else None
    if values is not None:
        return Numbers(*_parsed(cells, _limited(values)))
    found = {cell: _number(cell) for cell in set(cells)}
    doubtful = {cell: other for cell, (_, other, _) in found.items() if other is not None}
    votes = Counter(mark for _, _, mark in found.values() if mark)
    if votes:
        decimal_comma = votes[","] > votes["."]
    for cell in doubtful:
        if ("," in cell) == decimal_comma:
            found[cell] = doubtful[cell], None, ""
    values = _limited(np.array([found[cell][0] for cell in cells], np.float64))
    example = min(doubtful) if doubtful and not votes else None
    return Numbers(*_parsed(cells, values), decimal_comma, example)


def parse_truth(cells: Sequence[str]) -> Parsed:
    """1 for words such as yes, 0 for words such as no."""
    values = np.array([TRUTH.get(cell.lower(), np.nan) for cell in cells], np.float64)
    return _parsed(cells, values)


def parse_dates(cells: Sequence[str], day_first: bool) -> Parsed:
    """Dates in days after 1970, in UTC where they name a time zone.

    Args:
        cells: without surrounding blanks.
        day_first: whether 1/2/2024 is in February.

    Months may have English names, and years two digits. 2024-03, 03/2024 and Mar 2024 are the first
    of the month.
    """
    found = {cell: _days(cell, day_first) for cell in set(cells)}
    return _parsed(cells, np.array([found[cell] for cell in cells], np.float64))


def find_day_first(cells: Sequence[str]) -> tuple[bool, str | None]:
    """Whether 1/2/2024 is in February, by the dates that leave no doubt; and one if all do.

    With doubt, months come first between slashes, and days between points and hyphens.
    """
    first, second, doubtful = 0, 0, None
    for cell in sorted(set(cells)):
        match = _YEAR_LAST.fullmatch(cell)
        if match:
            first += int(match["one"]) > 12
            second += int(match["two"]) > 12
            doubtful = doubtful or cell
    if first or second or doubtful is None:
        return first > second, None
    return "/" not in doubtful, None if "." in doubtful else doubtful


def _parsed(cells: Sequence[str], values: NDArray[np.float64]) -> Parsed:
    bad = [
        place for place in np.flatnonzero(np.isnan(values)).tolist() if cells[place] not in MISSING
    ]
    return Parsed(values, np.array(bad, np.intp))


def _plain_numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Numbers as Python writes them; None if one is not."""
    try:
        values = [np.nan if cell in MISSING else float(cell) for cell in cells]
    except ValueError:
        return None
    if any("_" in cell for cell in set(cells)):  # 1_000 is Python's, not a table's
        return None
    return np.array(values, np.float64)


def _limited(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Without numbers too large for the features."""
    with np.errstate(invalid="ignore"):
        values[np.abs(values) > LARGEST] = np.nan
    return values


def _number(cell: str) -> tuple[float, float | None, str]:
    """The number in a cell, NaN if there is none; what else it may be; its decimal mark if sure."""
    match = _NUMBER.fullmatch(cell)
    if match is None:
        return np.nan, None, ""
    opened, sign, inner, grouped, mark, whole, point, fraction, exponent, percent, closed = (
        match.groups()
    )
    negative = (sign in _MINUS) + (inner in _MINUS) + (opened is not None)
    digits = grouped.replace(mark, "") if grouped else whole
    if (opened is None) != (closed is None) or negative > 1 or (point and point == mark):
        return np.nan, None, ""
    if not (digits or fraction):
        return np.nan, None, ""
    unit = (-1 if negative else 1) / (100 if percent else 1)
    value = unit * float(f"{digits or 0}.{fraction or 0}{exponent or ''}")
    if grouped is None or point or mark not in _MARKS:
        return value, None, point or ""
    if grouped.count(mark) > 1:
        return value, None, _MARKS[mark]
    return value, unit * float(f"{grouped.replace(mark, '.')}{exponent or ''}"), ""


def _days(cell: str, day_first: bool) -> float:
    """Days from 1970 to the date in a cell; NaN if there is none."""
    try:
        if cell[4:5] == "-" and len(cell) >= 10:
            try:
                moment = datetime.fromisoformat(cell)
            except ValueError:
                moment = _moment(cell, day_first)
        else:
            moment = _moment(cell, day_first)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return np.nan
    return (moment - _EPOCH) / _DAY


def _moment(cell: str, day_first: bool) -> datetime:
    """The date of numbers and perhaps the name of a month; ValueError if there is none.

    Without a day it is the first of the month.
    """
    forms = (form.fullmatch(cell) for form in (_YEAR_LAST, *_OTHER_DATES))
    match = next(filter(None, forms), None)
    if match is None:
        raise ValueError
    found = match.groupdict()
    if "one" in found:
        order = ("day", "month") if day_first else ("month", "day")
        found |= zip(order, (found["one"], found["two"]), strict=True)
    year, day = int(found["year"]), int(found.get("day", 1))
    month = _BY_NAME.get(found["name"].lower(), 0) if "name" in found else int(found["month"])
    if len(found["year"]) == 2:
        if found.get("mark", "/") != "/" and len(found["one"]) + len(found["two"]) < 4:
            raise ValueError  # 1.2.10 is rather a version
        year += 1900 if year >= 69 else 2000  # as POSIX has it
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    if found["half"]:
        if not 1 <= hour <= 12:
            raise ValueError
        hour = hour % 12 + 12 * (found["half"].lower() == "pm")
    return datetime(year, month, day, hour, minute, second)
