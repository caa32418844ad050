"""Progress of what happens in the background, for a page that asks now and then."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cclp.progress import Reporter


class Watched(Reporter):
    """Keeps what is done now, and hands it on to another reporter.

    Attributes:
        what: is done; "" if nothing is.
        done: the share of it, or None if nobody knows.
    """

    def __init__(self, report: Reporter | None = None) -> None:
        self.report = report or Reporter()
        self.what = ""
        self.done: float | None = None

    def warn(self, text: str) -> None:
        self.report.warn(text)

    def info(self, text: str) -> None:
        self.report.info(text)

    @contextmanager
    def work(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        count = 0

        def advance(number: int) -> None:
            nonlocal count
            count += number
            if total:
                self.done = min(1.0, count / total)
            inner(number)

        self.what, self.done = what, 0.0 if total else None
        with self.report.work(what, total) as inner:
            yield advance
        self.what, self.done = "", None
