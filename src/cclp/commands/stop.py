"""Ctrl-C and SIGTERM as a question that is asked after each step."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class StopOnSignal:
    """Answers whether Ctrl-C or SIGTERM has come; a second one ends the process at once.

    So does the first one as long as nobody has asked: before there is a step to finish, a process
    may be waiting for others, and would never see to it.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.number = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        if not self.before:
            self.before = {n: signal.signal(n, self._ask) for n in (signal.SIGINT, signal.SIGTERM)}
        return self.number != 0

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self.__exit__()
        self.say("Stopping after this step; once more to stop at once.")
