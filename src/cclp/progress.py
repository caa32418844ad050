"""Progress for people: a bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from cclp.text import for_terminal

_SECONDS_BETWEEN_LINES = 30.0
_BAR = 12  # columns
_TIME = len("10:00:00 left")

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

    def end(self) -> None:
        """The training has ended."""

    def warn(self, text: str) -> None:
        """A sentence that the user must not miss."""

    def info(self, text: str) -> None:
        """A sentence about what happens now."""

    @contextmanager
    def work(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Something that takes a while; call what it gives with every piece of ``total`` done.

        ``total`` is None if nobody knows how much there is to do.
        """
        yield lambda done: None


class Quiet(Reporter):
    """Shows warnings only."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.title = ""
        self.done = self.steps = 0
        self.terms: list[str] = []
        self.latest_error = ""
        self.cost: Cost = int
        self.pace = 0.0  # seconds for each unit of cost

    def begin(self, title: str, done: int, steps: int, cost: Cost = int) -> None:
        self.title, self.done, self.steps, self.cost = title, done, steps, cost
        self.terms, self.latest_error, self.pace = [], "", 0.0  # of the run before

    def step(self, done: int, terms: Mapping[str, float], seconds: float) -> None:
        self.done = done
        pace = seconds / self._last_cost
        self.pace = 0.9 * self.pace + 0.1 * pace if self.pace else pace
        self.terms = [f"{name} {value:.3f}" for name, value in terms.items()]

    def error(self, done: int, error: float) -> None:
        self.latest_error = f"error {error:.2%}"

    def warn(self, text: str) -> None:
        self.console.print(for_terminal(text), soft_wrap=True, markup=False, highlight=False)

    @property
    def _last_cost(self) -> int:
        return self.cost(self.done) - self.cost(self.done - 1)

    @property
    def rate(self) -> str:
        return f"{1 / (self.pace * self._last_cost):.1f} steps/s" if self.pace else ""


class _Time(ProgressColumn):
    """How long it still takes, once that is known; how long it has taken, if it never is."""

    max_refresh = 0.5

    def __init__(self) -> None:
        super().__init__(_whole())

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text(_clock(task.elapsed or 0))
        if task.finished or task.time_remaining is None:
            return Text()
        return Text(f"{_clock(task.time_remaining)} left")


def _whole() -> Column:
    """Of a table: never wrapped."""
    return Column(no_wrap=True)


def _erase(progress: Progress | None) -> None:
    """Stop it and leave nothing of it; it can be started again."""
    if progress is not None:
        progress.live.transient = True
        progress.stop()
        progress.live.transient = False


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Bar(Quiet):
    """A progress bar that stays at the bottom of the terminal, on one line of it."""

    training: Progress | None = None
    shown: Progress | None = None  # of the training, or of some work: one at a time

    def info(self, text: str) -> None:
        self.warn(text)

    @contextmanager
    def work(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        room = self.console.width - _BAR - len("100%") - _TIME - 3
        name = Text(for_terminal(what))
        name.truncate(room, overflow="ellipsis")
        share = TextColumn("{task.fields[share]}", table_column=_whole())
        progress = self._progress(share, _Time())
        task, so_far = progress.add_task(escape(name.plain), total=total, share=""), 0

        def advance(done: int) -> None:
            nonlocal so_far
            so_far += done
            known = "" if total is None else f"{so_far / max(total, 1):.0%}"
            progress.update(task, advance=done, share=known)

        outer = self.shown
        _erase(outer)
        self.shown = progress
        progress.start()
        try:
            yield advance
        finally:
            _erase(progress)
            self.shown = outer
            if outer is not None:
                outer.start()

    def begin(self, title: str, done: int, steps: int, cost: Cost = int) -> None:
        self.end()
        super().begin(title, done, steps, cost)
        self.warn(title)
        facts = TextColumn("{task.fields[facts]}", table_column=_whole())
        self.training = self.shown = self._progress(_Time(), facts)
        self.task = self.training.add_task(
            self._place, total=cost(steps), completed=cost(done), facts=""
        )
        self.training.start()

    def step(self, done: int, terms: Mapping[str, float], seconds: float) -> None:
        super().step(done, terms, seconds)
        self._update()

    def end(self) -> None:
        if self.training is not None:
            self._update()
            self.training.stop()
            self.training = self.shown = None

    def _update(self) -> None:
        assert self.training is not None
        self.training.update(
            self.task,
            description=self._place,
            total=self.cost(self.steps),  # a run may have found out since it began
            completed=self.cost(self.done),
            facts=escape(self._facts()),
        )

    def _facts(self) -> str:
        """As many as there is room for: the rate is left out first, then terms, then the error."""
        room = self.console.width - len(self._place) - _BAR - _TIME - 3
        facts = [fact for fact in (self.latest_error, *self.terms, self.rate) if fact]
        while cell_len("  ".join(facts)) > room and facts:
            facts.pop()
        return "  ".join(facts)

    def _progress(self, *facts: ProgressColumn) -> Progress:
        return Progress(
            TextColumn("{task.description}", table_column=_whole()),
            BarColumn(bar_width=_BAR, table_column=_whole()),
            *facts,
            console=self.console,
        )

    @property
    def _place(self) -> str:
        return f"{self.done:>{len(str(self.steps))}}/{self.steps}"

    def __exit__(self, *_: object) -> None:
        self.end()


class Lines(Quiet):
    """A plain line at evaluations and every half minute, for logs and pipes."""

    def info(self, text: str) -> None:
        self.warn(text)

    @contextmanager
    def work(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        so_far, begun = 0, time.monotonic()
        last = begun
        if total is None:
            self.warn(f"{what}.")

        def advance(done: int) -> None:
            nonlocal so_far, last
            so_far += done
            now = time.monotonic()
            if total is not None and so_far and now - last >= _SECONDS_BETWEEN_LINES:
                left = _time_left((now - begun) * (total - so_far) / so_far)
                self.warn(f"{what}: {so_far / max(total, 1):.0%}, {left}")
                last = now

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
        seconds = (self.cost(self.steps) - self.cost(self.done)) * self.pace
        left = _time_left(seconds) if seconds else ""
        facts = [f"step {self.done}/{self.steps}", *self.terms, self.latest_error, self.rate, left]
        self.warn(f"{self.title}: " + "  ".join(filter(None, facts)))
        self.last_line = time.monotonic()


def _time_left(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.1f} min left" if seconds < 7200 else f"{seconds / 3600:.1f} h left"


def make_reporter(quiet: bool) -> Reporter:
    """A bar on a terminal, lines elsewhere, warnings alone if quiet; on standard error."""
    console = _Console(stderr=True)
    if quiet:
        return Quiet(console)
    return Bar(console) if console.is_terminal else Lines(console)
