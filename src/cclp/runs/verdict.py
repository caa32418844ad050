"""The content of ``verdict.json``, checked before it is shown."""

from typing import Any

from cclp.checks import check_integer, check_number
from cclp.selection.verdict import ClassRow, Row, Verdict


def checked_verdict(content: dict[str, Any]) -> Verdict:
    """The inverse of :meth:`Verdict.to_json`, for a file that may be damaged.

    Raises:
        KeyError, TypeError, ValueError: for anything else.
    """
    found = Verdict.from_json(content)
    for row in found.rows:
        _check_row(row)
    for one in found.classes:
        _check_class(one)
    check_number("steps", found.steps, least=0)
    return found


def _check_row(row: Row) -> None:
    for name in ("error", "low", "high", "balanced_error", "f1"):
        check_number(name, getattr(row, name), least=0, most=1)
    check_number("seconds", row.seconds, least=0)
    check_integer("tested", row.tested, least=0)
    if not (isinstance(row.name, str) and isinstance(row.title, str)):
        raise TypeError(f"name and title must be strings, got {row.name!r:.40}, {row.title!r:.40}")


def _check_class(row: ClassRow) -> None:
    if not isinstance(row.name, str):
        raise TypeError(f"name of a class must be a string, got {row.name!r:.40}")
    most = 1e12
    for name in ("labels", "tested", "wrong"):  # each at most the one before
        most = check_number(name, check_integer(name, getattr(row, name), least=0), most=most)
    if row.f1 is not None:
        check_number("f1", row.f1, least=0, most=1)
