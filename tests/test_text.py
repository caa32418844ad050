"""Names from anywhere are text and nothing else, on a terminal, in spreadsheets, on pages."""

import base64
import csv
import hashlib
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from cclp.lab.export import make_page
from cclp.progress import Bar, Lines, Quiet
from cclp.report.page import make_report
from cclp.text import csv_line, for_terminal
from tests.command_line import call
from tests.records import write_predictions, write_run, write_verdict

ROOT = Path(__file__).parents[1]
ESCAPES = "\x1b[2J\x1b]0;title\x07\r\b\x9b1m\u202etac\u2066"


def raw(text: str) -> bool:
    """Whether something in it acts on a terminal."""
    return bool(re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text))


def test_escapes_are_shown_and_not_done() -> None:
    assert raw(ESCAPES)
    assert for_terminal(ESCAPES) == ("\\x1b[2J\\x1b]0;title\\x07\\r\\x08\\x9b1m\\u202etac\\u2066")
    plain = "Größe\t90 %\n猫 👩‍🔬"
    assert for_terminal(plain) == plain


@pytest.mark.parametrize("kind", [Quiet, Lines, Bar])
def test_reports_show_escapes(kind: type[Quiet]) -> None:
    screen = io.StringIO()
    report = kind(Console(file=screen, force_terminal=False, width=120))
    with report, report.work(f"reading {ESCAPES}", None):
        report.warn(f"There is no class {ESCAPES}.")
        report.info(ESCAPES)
    assert "\\x1b[2J" in screen.getvalue()
    assert not raw(screen.getvalue())


def test_commands_show_escapes_in_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    rows = "".join(f'{n / 2},"{("cat", ESCAPES)[n % 2]}"\n' for n in range(24))
    table.write_bytes(f"size,kind\n{rows}".encode())
    few = ["--per-class", "2", "--unlabeled-batch", "4", "--max-steps", "2", "--method", "cclp"]
    run = str(tmp_path / "run")
    assert call("train", str(table), "--target", "kind", "--out", run, *few) == 0
    assert call("evaluate", run) == 0
    assert call("evaluate", run, f"no{ESCAPES}where") == 2
    said = capsys.readouterr()
    assert "\\x1b[2J" in said.out
    assert "\\x1b[2J" in said.err
    assert not raw(said.out)
    assert not raw(said.err)


def test_all_printing_is_in_one_place() -> None:
    files = (ROOT / "src").rglob("*.py")
    assert [path.name for path in files if "click.echo" in path.read_text()] == ["output.py"]


@pytest.mark.parametrize(
    "name",
    [
        "=1+1", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "＝1", "a;=1",
        "a\r=1", "a\n=1", "a\t=1", "a; =1", " =1", 'a";=1', "a\r\n-cmd", ";+1", "a\u2028;@x",
    ],
)  # fmt: skip
def test_no_spreadsheet_finds_a_formula(name: str) -> None:
    line = csv_line(["file", name, 0.5])
    (row,) = csv.reader(io.StringIO(line, newline=""))
    assert row[::2] == ["file", "0.5"]
    assert row[1].replace("'", "") == name.replace("'", "")
    for divided in re.split(r"[;,\t\r\n]", line.replace('"', "")):  # as other programs would
        assert not re.match(r"\s*[=+\-@＝＋－＠]", divided)


@pytest.mark.parametrize("before", ["", "a", ";", "a;", '";', "\t", "a\r", "\n"])
@pytest.mark.parametrize("quotes", ['"', '""', ' "', '" '])
@pytest.mark.parametrize("after", ["", ";b", '"', "\tb"])
def test_quotes_hide_no_formula(before: str, quotes: str, after: str) -> None:
    """Where cells are divided at semicolons, quotes of the line are quotes of their cells."""
    line = csv_line(["file", f"{before}{quotes}=1{after}", 0.5])
    for delimiter in ",;\t":
        for row in csv.reader(io.StringIO(line, newline=""), delimiter=delimiter):
            assert not any(cell.lstrip().startswith("=") for cell in row), line


@pytest.mark.parametrize("name", ["a", "-2", "+1e3", "3.5", "a-b", "x = 1", "it's", "a,b", 'a"b'])
def test_what_begins_no_formula_stays_as_it_is(name: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_line([name, "x"]), newline=""))
    assert row == [name, "x"]


def policy_and_scripts(page: str) -> tuple[str, list[str]]:
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    return policy, re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", page, re.DOTALL)


@pytest.mark.parametrize("kind", ["report", "lab"])
def test_pages_allow_their_own_script_only(tmp_path: Path, kind: str) -> None:
    if kind == "report":
        run = write_run(tmp_path / "run", classes=["a", "b", "c"])
        write_predictions(run, [0, 1, 2], [0, 1, 1])
        write_verdict(run)
        page = make_report([run])
    else:
        page = make_page()
    policy, (script,) = policy_and_scripts(page)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert not re.search(r"<[^>]*\son\w+=", page.replace(script, ""))  # they would be blocked
