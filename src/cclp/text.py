"""Names from anywhere as text and nothing else: on a terminal, in a spreadsheet."""

import math
import re
from collections.abc import Iterable
from contextlib import suppress

# C0 and C1 but for tab and newline; marks that turn the direction of writing; lone surrogates.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Where a formula may begin: with the cell, or behind what some spreadsheets divide cells at, also
# behind quotes, which are theirs then.
_FORMULA = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[\s\"]*[=+\-@＝＋－＠])|^(?=[\t\r\n])")
_TO_QUOTE = re.compile(r"[\",;\t\r\n]|^\s|\s$")


def for_terminal(text: str) -> str:
    r"""Text with control characters as escapes: it cannot move the cursor, or hide or change text.

    >>> for_terminal("\x1b[2Jcat")
    '\\x1b[2Jcat'
    """
    return _CONTROLS.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def csv_line(cells: Iterable[object]) -> str:
    r"""A line of a table, in which no spreadsheet finds a formula; a number stays one.

    An apostrophe stands before whatever begins a formula.

    >>> csv_line(["a.png", "=1+1", "b;@c", -2])
    'a.png,\'=1+1,"b;\'@c",-2\n'
    """
    return ",".join(_cell(str(cell)) for cell in cells) + "\n"


def _cell(cell: str) -> str:
    with suppress(ValueError):
        if math.isfinite(float(cell)) and cell == cell.strip():
            return cell
    cell = _FORMULA.sub("'", cell)
    return '"' + cell.replace('"', '""') + '"' if _TO_QUOTE.search(cell) else cell
