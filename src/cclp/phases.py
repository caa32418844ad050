"""Which part of a program the time goes to. Nothing is measured unless somebody asks."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any


class Phases:
    """Seconds of each phase without those of phases within it, and how often it was entered.

    Attributes:
        seconds, times: by the name of the phase, in the order of their ends.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.times: dict[str, int] = {}
        self.begun, self.ended = time.perf_counter(), math.nan
        self._within = [0.0]  # seconds in inner phases, for each that is open

    def add(self, name: str, seconds: float) -> None:
        """So many seconds more of a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.times[name] = self.times.get(name, 0) + 1

    @contextmanager
    def enter(self, name: str) -> Iterator[None]:
        """For a while."""
        self._within.append(0.0)
        begun = time.perf_counter()
        try:
            yield
        finally:
            passed = time.perf_counter() - begun
            self.add(name, passed - self._within.pop())
            self._within[-1] += passed

    @property
    def rest(self) -> float:
        """Seconds from beginning to end that belong to no phase."""
        return self.ended - self.begun - self._within[0]


_measured: ContextVar[Phases | None] = ContextVar("phases", default=None)


@contextmanager
def measure_phases(asked: bool = True) -> Iterator[Phases | None]:
    """Measure the phases of what is done within, if that is asked for.

    What the process has done before is its first phase.
    """
    if not asked:
        yield None
        return
    found = Phases()
    found.add("starting", time.process_time())
    token = _measured.set(found)
    try:
        yield found
    finally:
        _measured.reset(token)
        found.ended = time.perf_counter()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """What is done within is a phase of that name; a decorator too.

    A profiler of torch sees it under the same name.
    """
    found = _measured.get()
    if found is None:
        yield
        return
    torch: Any = sys.modules.get("torch")
    seen = nullcontext() if torch is None else torch.profiler.record_function(name)
    with found.enter(name), seen:
        yield


@contextmanager
def whole(name: str) -> Iterator[None]:
    """The same, and phases within it are not told apart."""
    with phase(name):
        token = _measured.set(None)
        try:
            yield
        finally:
            _measured.reset(token)
