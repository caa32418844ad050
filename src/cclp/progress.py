"""Progress for people: a bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

_SECONDS_BETWEEN_LINES = 30.0

Cost = Callable[[int], int]  # of so many steps from the first on, in any unit


class _Console(Console):
    """Falls silent when its pipe is closed (``cclp train … | head``): the run continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class Reporter:
    """Shows nothing: for programs that train quietly."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, title: str, done: int, steps: int, cost: Cost = int) -> None:
        """Training starts after ``done`` of ``steps``; ``cost`` says which of them are long."""

    def step(self, done: int, terms: Mapping[str, float], seconds: float) -> None:
        """A step is done, and took so long."""

    def error(self, done: int, error: float) -> None:
        """The net was evaluated."""

    def warn(self, text: str) -> None:
        """A sentence that the user must not miss."""

    def info(self, text: str) -> None:
        """A sentence about what happens now."""

    @contextmanager
    def work(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Something that takes a while; call what it gives with every piece of ``total`` done."""
        yield lambda done: None


class Quiet(Reporter):
    """Shows warnings only."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.title = ""
        self.done = self.steps = 0
        self.terms = ""
        self.latest_error = ""
        self.cost: Cost = int
        self.pace = 0.0  # seconds for each unit of cost

    def begin(self, title: str, done: int, steps: int, cost: Cost = int) -> None:
        self.title, self.done, self.steps, self.cost = title, done, steps, cost

    def step(self, done: int, terms: Mapping[str, float], seconds: float) -> None:
        self.done = done
        pace = seconds / self._last_cost
        self.pace = 0.9 * self.pace + 0.1 * pace if self.pace else pace
        self.terms = "  ".join(f"{name} {value:.3f}" for name, value in terms.items())

    def error(self, done: int, error: float) -> None:
        self.latest_error = f"error {error:.2%}"

    def warn(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    @property
    def _last_cost(self) -> int:
        return self.cost(self.done) - self.cost(self.done - 1)

    @property
    def rate(self) -> str:
        return f"{1 / (self.pace * self._last_cost):.1f} steps/s" if self.pace else ""


class Bar(Quiet):
    """A progress bar that stays at the bottom of the terminal."""

    progress: Progress | None = None

    def info(self, text: str) -> None:
        self.warn(text)

    @contextmanager
    def work(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
        )
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(escape(what), total=total)
            yield lambda done: progress.update(task, advance=done)

    def begin(self, title: str, done: int, steps: int, cost: Cost = int) -> None:
        super().begin(title, done, steps, cost)
        if self.progress is not None:  # of the run before
            self.progress.stop()
        whole = Column(no_wrap=True, min_width=2 * len(str(steps)) + 1)
        self.progress = Progress(
            TextColumn("{task.fields[place]}", table_column=whole),
            BarColumn(bar_width=12),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True)),
            console=self.console,
        )
        self.warn(title)
        self.task = self.progress.add_task(
            "", total=cost(steps), completed=cost(done), place=self._place, facts=""
        )
        self.progress.start()

    def step(self, done: int, terms: Mapping[str, float], seconds: float) -> None:
        super().step(done, terms, seconds)
        assert self.progress is not None
        facts = "  ".join(filter(None, [self.latest_error, self.terms, self.rate]))
        self.progress.update(
            self.task,
            total=self.cost(self.steps),  # a run may have found out since it began
            completed=self.cost(done),
            place=self._place,
            facts=escape(facts),
        )

    @property
    def _place(self) -> str:
        return f"{self.done:>{len(str(self.steps))}}/{self.steps}"

    def __exit__(self, *_: object) -> None:
        if self.progress is not None:
            self.progress.stop()


class Lines(Quiet):
    """A plain line at evaluations and every half minute, for logs and pipes."""

    def info(self, text: str) -> None:
        self.warn(text)

    @contextmanager
    def work(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        so_far, last = 0, time.monotonic()

        def advance(done: int) -> None:
            nonlocal so_far, last
            so_far += done
            if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
                self.warn(f"{what}: {so_far / max(total, 1):.0%}")
                last = time.monotonic()

        yield advance

    def begin(self, title: str, done: int, steps: int, cost: Cost = int) -> None:
        super().begin(title, done, steps, cost)
        self.last_line = time.monotonic()

    def step(self, done: int, terms: Mapping[str, float], seconds: float) -> None:
        super().step(done, terms, seconds)
        if time.monotonic() - self.last_line >= _SECONDS_BETWEEN_LINES:
            self._line()

    def error(self, done: int, error: float) -> None:
        super().error(done, error)
        self._line()

    def _line(self) -> None:
        minutes = (self.cost(self.steps) - self.cost(self.done)) * self.pace / 60
        left = f"{minutes:.1f} min left" if minutes else ""
        facts = [f"step {self.done}/{self.steps}", self.terms, self.latest_error, self.rate, left]
        self.warn(f"{self.title}: " + "  ".join(filter(None, facts)))
        self.last_line = time.monotonic()


def make_reporter(quiet: bool) -> Reporter:
    """A bar on a terminal, lines elsewhere, warnings alone if quiet; on standard error."""
    console = _Console(stderr=True)
    if quiet:
        return Quiet(console)
    return Bar(console) if console.is_terminal else Lines(console)
