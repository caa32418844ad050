"""What a person sees: a bar on a terminal, lines elsewhere, warnings always."""

import io
import itertools
import re

import pytest
from rich.console import Console

from cclp import progress
from cclp.progress import Bar, Lines, Quiet, Reporter, make_reporter


def play(report: Reporter) -> None:
    with report:
        report.begin("cclp on digits", 10, 20)
        for done in range(11, 16):
            report.step(done, {"cross_entropy": 0.5, "cclp": 3.25}, 0.5)
        report.error(15, 0.0123)
        report.step(16, {"cross_entropy": 0.25, "cclp": 3.0}, 0.5)
        report.warn("Beware [of] dogs.")


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=140)


def text(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


def test_lines() -> None:
    screen = console(terminal=False)
    play(Lines(screen))
    assert text(screen).splitlines() == [
        "cclp on digits: step 15/20  cross_entropy 0.500  cclp 3.250  error 1.23%  2.0 steps/s  "
        "2 s left",
        "Beware [of] dogs.",
    ]


def test_time_that_is_left_knows_that_later_steps_are_longer() -> None:
    screen = console(terminal=False)
    with Lines(screen) as report:
        report.begin("cclp on svhn", 0, 200, lambda steps: steps + 3 * max(0, steps - 100))
        for done in range(1, 151):
            report.step(done, {}, 1.2 if done <= 100 else 4.8)
            if done in (40, 101, 150):
                report.error(done, 0.5)
    ends = [line.split("50.00%  ")[1] for line in text(screen).splitlines()]
    assert ends == [
        "0.8 steps/s  9.2 min left",  # 60 of 1.2 s and 100 of 4.8 s
        "0.2 steps/s  7.9 min left",
        "0.2 steps/s  4.0 min left",
    ]


def test_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    screen = console(terminal=False)
    play(Lines(screen))
    assert len(text(screen).splitlines()) == 8


def test_bar() -> None:
    screen = console(terminal=True)
    play(Bar(screen))
    shown = text(screen)
    for part in (
        "cclp on digits",
        "16/20",
        "cclp 3.000",
        "error 1.23%",
        "2.0 steps/s",
        "[of] dogs",
    ):
        assert part in shown


def test_runs_one_after_the_other_leave_the_terminal_as_it_was() -> None:
    text = io.StringIO()
    with Bar(Console(file=text, force_terminal=True, width=100)) as report:
        for seed in range(3):
            report.begin(f"run {seed}", 0, 1)
            report.step(1, {}, 0.1)
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert text.getvalue().count(hide) == text.getvalue().count(show) == 3


def test_quiet_says_warnings_only() -> None:
    screen = console(terminal=True)
    play(Quiet(screen))
    assert text(screen).strip() == "Beware [of] dogs."


def test_the_step_is_whole_on_a_narrow_terminal() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    with Bar(screen) as bar:
        bar.begin("cclp on mnist", 8000, 9000)
        bar.error(8000, 0.0123)
        bar.step(8001, {"cross_entropy": 0.1234, "cclp": 12.3456}, 0.5)
    assert "8001/9000" in text(screen)
    assert "error 1.23%" in text(screen)


class Closed(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text: str, /) -> int:
        raise BrokenPipeError


def test_a_run_outlives_its_listener() -> None:
    report = Lines(progress._Console(file=Closed()))
    play(report)
    assert report.console.quiet


def test_the_right_one_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert type(make_reporter(quiet=True)) is Quiet
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert type(make_reporter(quiet=False)) is Bar
    monkeypatch.delenv("FORCE_COLOR")
    assert type(make_reporter(quiet=False)) is Lines


def work(report: Reporter) -> None:
    with report, report.work("decoding [some] images", 4) as advance:
        for _ in range(4):
            advance(1)


def test_work_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    lines, bar, quiet = console(terminal=False), console(terminal=True), console(terminal=True)
    work(Lines(lines))
    work(Bar(bar))
    work(Quiet(quiet))
    assert text(lines).splitlines() == [
        f"decoding [some] images: {share}%, 0 s left" for share in (25, 50, 75, 100)
    ]
    assert "decoding [some] images" in text(bar)
    assert "100%" in text(bar)
    assert text(quiet) == ""


def test_lines_say_how_much_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 29.0, 48.0, 3600.0, 7200.0])
    monkeypatch.setattr("cclp.progress.time.monotonic", lambda: next(seconds))
    screen = console(terminal=False)
    with Lines(screen) as report, report.work("neighbours", 100) as advance:
        for done in (10, 30, 2, 1):
            advance(done)
    assert text(screen).splitlines() == [
        "neighbours: 40%, 1.2 min left",
        "neighbours: 42%, 82.9 min left",
        "neighbours: 43%, 2.7 h left",
    ]


def test_work_of_unknown_size_is_a_sentence() -> None:
    lines, bar = console(terminal=False), console(terminal=True)
    for report in (Lines(lines), Bar(bar)):
        with report, report.work("Passing labels on", None) as advance:
            advance(1)
    assert text(lines) == "Passing labels on.\n"
    assert "Passing labels on" in text(bar)
    assert "%" not in text(bar)
    assert " left" not in text(bar)


def shown_lines(of: Console) -> list[str]:
    """What a terminal has shown at the bottom, one after the other, without colours."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text(of))
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()]


def test_a_bar_is_one_line_of_a_terminal_of_80_columns() -> None:
    """Of what does not fit, the rate goes first, then the terms, the last one first."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    terms = {"cross_entropy": 0.1234, "cclp": 12.3456, "graph_pseudo_label": 0.5, "vat": 1.0}
    shown = {}
    with Bar(screen) as bar:
        for count in range(5):
            bar.begin("run", 8000, 9000)
            bar.error(8000, 0.0123)
            bar.step(8001, dict(list(terms.items())[:count]), 0.5)
            bar.end()
            shown[count] = shown_lines(screen)[-1]
        with bar.work("from https://example.org/" + 100 * "long/", 10) as advance:
            advance(1)
    assert max(map(len, shown_lines(screen))) <= 80
    assert all(line.startswith("8001/9000 ") for line in shown.values())
    facts = [line.split("error 1.23%")[1].split("  ")[1:] for line in shown.values()]
    assert facts == [
        ["2.0 steps/s"],
        ["cross_entropy 0.123"],
        ["cross_entropy 0.123"],
        ["cross_entropy 0.123"],
        ["cross_entropy 0.123"],
    ]
    assert any(line.startswith("from https://example.org/long") for line in shown_lines(screen))


def test_the_bar_of_the_training_makes_room_for_other_work() -> None:
    """As when a resumed run needs its graph: there is one bar at a time, and the first returns."""
    screen = console(terminal=True)
    with Bar(screen) as bar:
        bar.begin("run", 0, 20)
        bar.step(5, {}, 0.5)
        with bar.work("outer", 2) as outer:
            outer(1)
            with bar.work("inner", 1) as inner:
                inner(1)
            outer(1)
        bar.step(6, {}, 0.5)
    last = [line.split(" ━")[0].strip() for line in shown_lines(screen)]
    order = [name for name, _ in itertools.groupby(last)]
    assert order == ["run", "0/20", "5/20", "outer", "inner", "outer", "5/20", "6/20"]


def test_the_last_error_is_on_the_bar_that_stays() -> None:
    screen = console(terminal=True)
    with Bar(screen) as bar:
        bar.begin("first", 0, 1)
        bar.step(1, {}, 0.5)
        bar.error(1, 0.25)
        bar.end()
        assert shown_lines(screen)[-1].endswith("error 25.00%  2.0 steps/s")
        bar.begin("second", 0, 1)
        bar.step(1, {}, 0.5)
    assert "error" not in shown_lines(screen)[-1]


def test_what_one_need_not_know_is_not_told_quietly() -> None:
    lines, bar, quiet = console(terminal=False), console(terminal=True), console(terminal=True)
    for report in (Lines(lines), Bar(bar), Quiet(quiet), Reporter()):
        report.info("Fetching.")
    assert (text(lines), text(bar), text(quiet)) == ("Fetching.\n", "Fetching.\n", "")
