"""Ctrl-C and SIGTERM: as a question that is asked after each step, or as an interrupt."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

SAME_COMMAND = "what was saved is kept: the same command resumes"


@contextmanager
def interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """Within, these signals raise KeyboardInterrupt, even in a process that was to ignore them.

    A shell script that starts a command in the background makes it ignore Ctrl-C; without this, the
    command would also ignore a SIGINT that is meant for it.
    """
    if threading.current_thread() is not threading.main_thread():  # it cannot set handlers
        yield
        return
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupted(Exception):  # noqa: N818 - not an error
    """Ctrl-C has ended a command at once; ``str()`` says what the user can do."""


class StopOnSignal:
    """Answers whether Ctrl-C or SIGTERM has come; a second one ends the process at once.

    So does the first one as long as nobody has asked: before the first step there is nothing to
    finish, and a process that waits for others would never ask.

    Args:
        warn: called with a sentence when the first one has come.
        advice: what the user can do after an end at once; looked up then.

    Raises:
        Interrupted: on leaving it by Ctrl-C.
    """

    def __init__(self, warn: Callable[[str], None], advice: Callable[[], str]) -> None:
        self.warn, self.advice = warn, advice
        self.number = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._restore()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            raise Interrupted(self.advice()) from None

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        if not self.before:
            self.before = {n: signal.signal(n, self._ask) for n in (signal.SIGINT, signal.SIGTERM)}
        return self.number != 0

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self._restore()
        self.warn("Stopping after this step; once more to stop at once.")
