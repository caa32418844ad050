"""A user's tables: formats, what columns hold, targets."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cclp.data.columns import (
    BooleanColumn,
    ChoiceColumn,
    Column,
    DateColumn,
    NumberColumn,
    TextColumn,
)
from cclp.data.dataset import InputSpec
from cclp.data.load import find_kind, load
from cclp.data.user.cells import parse_dates, parse_numbers
from cclp.data.user.csv_file import read_csv
from cclp.data.user.encode import encode
from cclp.data.user.fit import fit_columns
from cclp.data.user.labels import is_missing_label
from cclp.data.user.load import READERS, load_user_data, read_samples
from cclp.data.user.table import Rows, Table
from cclp.data.user.tables import TableReader
from cclp.data.user.typed_tables import read_parquet
from cclp.progress import Reporter
from cclp.runs.data import load_data
from tests.command_line import call
from tests.runs import Messages, tiny_config

TABLE = """size,colour,kind,weight
1.5,red,a,10
,blue,b,20
2.5,,,nan
-1,red,b,30
"""


def test_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    data = load(str(tmp_path / "t.csv"), target="kind")
    assert find_kind(str(tmp_path / "t.csv")) == "vectors"
    assert data.spec.classes == ("a", "b")
    assert data.spec.columns == (
        NumberColumn("size", mean=1.0),
        ChoiceColumn("colour", categories=("", "blue", "red")),
        NumberColumn("weight", mean=20.0),
    )
    assert data.train_y.tolist() == [0, 1, -1, 1]
    assert data.train_x.dtype == np.float32
    assert data.train_x.tolist() == [
        [1.5, 0, 0, 1, 10],
        [1.0, 0, 1, 0, 20],
        [2.5, 1, 0, 0, 20],
        [-1.0, 0, 0, 1, 30],
    ]
    assert data.train_names == ["line 2", "line 3", "line 4", "line 5"]
    assert InputSpec.from_json(data.spec.to_json()) == data.spec


def test_runs_of_version_0_1_call_the_target_a_label(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    spec = load(str(tmp_path / "t.csv"), target="kind").spec
    recorded = spec.to_json()
    assert recorded["target"] == "kind"
    recorded["label"] = recorded.pop("target")
    assert InputSpec.from_json(recorded) == spec
    del recorded["label"]
    with pytest.raises(KeyError):
        InputSpec.from_json(recorded)


def test_rows_keep_every_cell() -> None:
    cells = [[f"{n}", "", f"a\0{n}\0", "é ☃ 𝒳 " * (n % 50)] for n in range(25_000)]
    rows = Rows(iter(cells), 4)
    assert len(rows) == 25_000
    assert list(map(list, rows)) == cells
    for place in (3, 0, 2, 2, 1):
        assert rows.column(place) == [row[place] for row in cells]
    assert rows.wrong == []
    cells[12_345].pop()
    cells[12_346] += ["x"]
    assert Rows(cells, 4).wrong == [(12_345, 3), (12_346, 5)]


def test_a_format_is_a_reader_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_words(path: Path) -> Table:
        header, *rows = [line.split() for line in path.read_text().splitlines()]
        return Table(path, header, Rows(rows, len(header)), list(range(2, len(rows) + 2)))

    path = tmp_path / "t.words"
    path.write_text("size kind\n1 a\n2 b\n")
    with pytest.raises(ValueError, match=r"ending in \.csv, .*\.npy, but is another file"):
        find_kind(str(path))
    monkeypatch.setitem(READERS, ".words", TableReader(read_words))
    assert find_kind(str(path)) == "vectors"
    data = load(str(path), target="kind")
    assert data.train_x.tolist() == [[1.0], [2.0]]
    assert data.spec.classes == ("a", "b")
    (samples,) = read_samples([path], data.spec, skip_bad=False, report=Reporter())
    assert samples.places == [(str(path), 0), (str(path), 1)]
    assert samples.x.tolist() == [[1.0], [2.0]]
    np.savez(tmp_path / "a.npz", X=np.zeros((2, 1)), y=[0, 1])
    with pytest.raises(ValueError, match=r"--target is for .*, \.words files, .*a\.npz is none"):
        load(str(tmp_path / "a.npz"), target="kind")


def test_a_table_in_the_spec_of_another(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    spec = load(str(tmp_path / "t.csv"), target="kind").spec
    new = tmp_path / "new.csv"
    new.write_text("\ufeffkind;weight;size;colour\n;;4;green\na;5;;blue\n", encoding="utf-8")
    assert encode(read_csv(new), spec.columns or ()).tolist() == [
        [4.0, 0, 0, 0, 20],  # green was never seen
        [1.0, 0, 1, 0, 5],
    ]
    data = load_user_data(new, spec=spec)
    assert data.train_y.tolist() == [-1, 0]
    new.write_text("kind,weight,size,colour\nz,1,2,red\n")
    with pytest.raises(ValueError, match=r"new\.csv, column 'kind': there is no class 'z'"):
        load_user_data(new, spec=spec)
    new.write_text("weight,size\n1,2\n")
    with pytest.raises(ValueError, match="has no column 'colour', only weight, size"):
        list(read_samples([new], spec, skip_bad=False, report=Reporter()))
    new.write_text("weight,size,colour,more\n1,large,red,x\n2,huge,,y\n3,4,red,z\nx,n/a,red,\n")
    said = Messages()
    (samples,) = read_samples([new], spec, skip_bad=False, report=said)
    assert samples.x[:, 0].tolist() == [1.0, 1.0, 4.0, 1.0]
    assert said.warnings == [
        "new.csv: cells that cannot be read are taken as missing: 2 in 'size', first 'large' in "
        "line 2; 1 in 'weight', first 'x' in line 5"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold a header and rows"),
        ("a,kind\n", "must hold a header and rows"),
        ("a,a,kind\n1,2,x\n", "must be all different, got more than one 'a'"),
        ("a,kind\n1,x\n1\n", "line 3: expected 2 cells as in the header, got 1"),
        ("a,kind\n1,x\n1\n2\n", "line 3: expected 2 cells .*, got 1; so in 2 lines"),
        ("a,b\n1,2\n", "has no column 'kind', only a, b"),
        ("5.1,setosa\n4.9,versicolor\n", "the first line must name the columns, got 5.1"),
        ("kind\nx\ny\n", "has no column to learn from beside the target 'kind'"),
        (
            "a,b,kind\n,1,x\n,1,y\n",
            "no column to learn from .*, but 'a': empty; 'b': constant, '1'",
        ),
        ("a,kind\n1,x\n2,x\n", "column 'kind' must name two or more classes, got x"),
        ("a,kind\n1,1\n2,-1\n", "two or more classes, got 1 \\(1 '-1' taken as unlabeled"),
        ("a,kind\n1,x\0\n2,y\n", "must be text, but has NUL characters"),
    ],
)
def test_tables_that_are_no_data(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"t\.csv.*{message}"):
        load(str(tmp_path / "t.csv"), target="kind")


def test_decimal_commas_where_commas_do_not_separate_cells(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("size;kind\n1,5;a\n-2,25;b\n")
    said = Messages()
    data = load(str(tmp_path / "t.csv"), target="kind", report=said)
    assert data.train_x.tolist() == [[1.5], [-2.25]]
    assert said.infos == [
        "t.csv: 2 rows, 1 features, cells between semicolons\n  numbers: size\n  2 labels in 'kind'"
    ]
    (tmp_path / "t.csv").write_text("size,hue,kind\n1,red,a\n2,blue,b\n")
    load(str(tmp_path / "t.csv"), target="kind", report=said)
    assert said.infos[1] == (
        "t.csv: 2 rows, 3 features, cells between commas\n"
        "  numbers: size\n"
        "  choices: hue (2)\n"
        "  2 labels in 'kind'"
    )


@pytest.mark.parametrize("seed", ["1", "3"])
def test_classes_have_one_order_whatever_the_hash_seed(tmp_path: Path, seed: str) -> None:
    (tmp_path / "t.csv").write_text("a,kind\n1,1\n2,01\n3,2\n")
    program = (
        "from cclp.data.load import load; import sys\n"
        "print(load(sys.argv[1], target='kind').spec.classes)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "t.csv")],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed == "('01', '1', '2')\n"


@pytest.mark.parametrize(
    ("encoding", "warned"),
    [
        ("utf-8", ""),
        ("utf-8-sig", ""),
        ("utf-16", ""),
        ("cp1252", "cp1252"),
        ("latin-1", "latin-1"),
    ],
)
def test_encodings(tmp_path: Path, encoding: str, warned: str) -> None:
    text = "größe,kind\n1,é\n2,b\n" + ("3,\x81\n" if encoding == "latin-1" else "")
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    said = Messages()
    data = load(str(tmp_path / "t.csv"), target="kind", report=said)
    assert data.spec.columns == (NumberColumn("größe", 1.5 if not text.endswith("\x81\n") else 2),)
    assert set(data.spec.classes) >= {"é", "b"}
    if warned:
        assert said.warnings[0].startswith("t.csv: it is not text in UTF-8 (")
        assert f"read as {warned}, check letters with accents" in said.warnings[0]
    else:
        assert said.warnings == []
    (tmp_path / "t.csv").write_bytes("a,b\n".encode("utf-16") + b"x")
    with pytest.raises(ValueError, match="must be text in UTF-8 or UTF-16"):
        read_csv(tmp_path / "t.csv")


def test_cells_with_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    content = io.StringIO(newline="")
    csv.writer(content).writerows([["a", "kind"], ['x, "y"\nz', "1"], ["b", "2"]])
    (tmp_path / "t.csv").write_bytes(content.getvalue().encode())
    table = read_csv(tmp_path / "t.csv")
    assert table.column("a") == ['x, "y"\nz', "b"]
    assert table.lines == [3, 4]
    assert fit_columns(table, "kind").columns == (ChoiceColumn("a", ("b", 'x, "y"\nz')),)


@pytest.mark.parametrize(
    ("text", "header", "first"),
    [
        ("a,b\n1,2\n", ["a", "b"], ["1", "2"]),
        ("a;b\n1,5;2,5\n", ["a", "b"], ["1,5", "2,5"]),
        ('"x, y, z";b\n1;2\n', ["x, y, z", "b"], ["1", "2"]),
        ('"x; y; z",b\n1,2\n', ["x; y; z", "b"], ["1", "2"]),
        ("a, c\tb\n1, 2\t3\n", ["a, c", "b"], ["1, 2", "3"]),
        ("a|b\n1,2|3;4;5\n", ["a", "b"], ["1,2", "3;4;5"]),
        ('a, "b"\n1, "2, 3"\n', ["a", "b"], ["1", "2, 3"]),
        ("sep=;\na;b,c\n1;2\n", ["a", "b,c"], ["1", "2"]),
        ("a,b,\n1,2,\n", ["a", "b"], ["1", "2"]),
        (",b\n1,2\n", ["column 1", "b"], ["1", "2"]),
        ("\na,b\n1,2\n", ["a", "b"], ["1", "2"]),
    ],
)
def test_delimiters(tmp_path: Path, text: str, header: list[str], first: list[str]) -> None:
    (tmp_path / "t.csv").write_text(text)
    table = read_csv(tmp_path / "t.csv")
    assert table.header == header
    assert list(table.rows) == [tuple(first)]
    assert table.lines == [3 if text.startswith(("sep", "\n")) else 2]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.CSV.gz", "t.tsv.gz", "t.parquet", "t.xlsx"])
def test_formats_hold_the_same_table(tmp_path: Path, name: str) -> None:
    import openpyxl
    import pyarrow
    from pyarrow import parquet

    header = ["amount", "paid", "when", "colour", "kind"]
    rows = [
        (1.5, True, np.datetime64("2024-01-30T06:00").item(), "red", "a"),
        (None, False, np.datetime64("2024-02-01T18:00").item(), None, "b"),
        (-2.0, True, None, "blue", None),
    ]
    path = tmp_path / name
    if name == "t.parquet":
        columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
        parquet.write_table(pyarrow.table(columns), path)
    elif name == "t.xlsx":
        book = openpyxl.Workbook()
        book.active.title = "Mine"
        for row in [header, *rows, (None,) * 7]:
            book.active.append(row)
        book.create_sheet("Other").append([1])
        book.save(path)
    else:
        mark = "\t" if "tsv" in name else ","
        lines = [mark.join("" if v is None else str(v) for v in row) for row in [header, *rows]]
        content = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    said = Messages()
    data = load(str(path), target="kind", report=said)
    assert data.name == "t"
    kinds = [column.kind for column in data.spec.columns or ()]
    assert kinds == ["number", "boolean", "date", "choice"]
    sine = [np.sin(2 * np.pi * t) for t in (0, 1 / 12, 1 / 7, 3 / 7, 0.25, 0.75)]
    cosine = [np.cos(2 * np.pi * t) for t in (0, 1 / 12, 1 / 7, 3 / 7, 0.25, 0.75)]
    first, second = (
        [part for place in places for part in (sine[place], cosine[place])]
        for places in ((0, 2, 4), (1, 3, 5))
    )
    np.testing.assert_allclose(
        data.train_x,
        [
            [1.5, 1, 0, *first, 0, 0, 1],
            [-0.25, 0, 2.5, *second, 1, 0, 0],
            [-2, 1, 1.25, *[0] * 6, 0, 1, 0],
        ],
        atol=1e-6,
    )
    assert data.train_y.tolist() == [0, 1, -1]
    assert ("sheet 'Mine', the first of 2" in said.infos[0]) == (name == "t.xlsx")
    assert said.warnings == []


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_any_kind_of_parquet(tmp_path: Path, compression: str, version: str) -> None:
    """Their headers are read before Arrow reads them."""
    import pyarrow
    from pyarrow import parquet

    count = 30_000
    columns = {
        "size": np.arange(count) / 7,
        "word": [f"w{n % 9}" for n in range(count)],
        "fixed": pyarrow.array([b"%05d" % (n % 99) for n in range(count)], pyarrow.binary(5)),
        "list": [[n % 3] * (n % 2) for n in range(count)],
        "struct": [{"a": n % 2, "b": {"c": "x"}} for n in range(count)],
        "kind": ["ab"[n % 2] for n in range(count)],
    }
    parquet.write_table(
        pyarrow.table(columns), tmp_path / "t.parquet", compression=compression,
        data_page_version=version, row_group_size=9_000, data_page_size=2_000,
    )  # fmt: skip
    if version == "2.0":  # texts that begin as the one before
        encodings = {"column_encoding": {"word": "DELTA_BYTE_ARRAY"}, "use_dictionary": ["kind"]}
        parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", **encodings)
    table = read_parquet(tmp_path / "t.parquet")
    assert table.header == list(columns)
    rows = list(table.rows)
    assert len(rows) == count
    assert list(rows[7]) == ["1.0", "w7", "00007", "[1]", "{'a': 1, 'b': {'c': 'x'}}", "b"]


@pytest.mark.parametrize("name", ["t.parquet", "t.xlsx", "t.csv.gz"])
def test_files_that_are_not_what_they_are_called(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8bnothing of the kind\0")
    with pytest.raises(ValueError, match=rf"{name}.* (cannot be read as|damaged gzip)"):
        load(str(tmp_path / name), target="kind")


def test_small_files_that_unpack_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openpyxl
    import pyarrow
    from pyarrow import parquet

    monkeypatch.setattr("cclp.data.budget.unpack_limit", lambda packed: 30_000)
    columns = {"a": pyarrow.array([0] * 5000), "kind": pyarrow.array(["x"] * 5000)}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    book = openpyxl.Workbook()
    for _ in range(5000):
        book.active.append([1, "x"])
    book.save(tmp_path / "t.xlsx")
    for name in ("t.parquet", "t.xlsx"):
        with pytest.raises(ValueError, match=f"{name} .* it unpacks to more than 30,000 bytes"):
            load(str(tmp_path / name), target="kind")


@pytest.mark.parametrize("name", ["pyarrow", "openpyxl"])
def test_packages_that_are_missing(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / ("t.parquet" if name == "pyarrow" else "t.xlsx")
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=rf"need {name}: pip install 'cclp\[tables\]'"):
        load(str(path), target="kind")


@pytest.mark.parametrize(
    ("cells", "comma", "expected"),
    [
        (["1", "-2.5", "1e3", ".5", "5."], False, [1, -2.5, 1000, 0.5, 5]),
        (["$1,234.50", "-$2", "$-3", "(4.00)", "($1,000)"], False, [1234.5, -2, -3, -4, -1000]),
        (["1.234,50 €", "€ 2", "3,5\xa0EUR", "USD 7"], False, [1234.5, 2, 3.5, 7]),
        (["12,5 %", "50%", "-1.5 %"], False, [0.125, 0.5, -0.015]),
        (["1,234", "2.5"], True, [1234, 2.5]),
        (["1,234", "2,5"], False, [1.234, 2.5]),
        (["1.234", "2,5"], False, [1234, 2.5]),
        (["1.234", "1,234,567"], True, [1.234, 1234567]),
        (["1,234", "0,5", "12"], False, [1.234, 0.5, 12]),
        (["1 234,5", "1'234", "1\u202f234\u202f567"], False, [1234.5, 1234, 1234567]),
        (["\u22125", "+3"], False, [-5, 3]),
        (["", "NA", "n/a", "NaN", "null", "None", "?", "-", "--"], False, [np.nan] * 9),
    ],
)
def test_numbers(cells: list[str], comma: bool, expected: list[float]) -> None:
    found = parse_numbers(cells, comma)
    np.testing.assert_allclose(found.values, expected, rtol=1e-12)
    assert found.bad.tolist() == []


def test_cells_that_are_no_numbers() -> None:
    cells = ["1_000", "1.2.3", "192.168.1.1", "1,23,4", "12:30", "--5", "(5", "5)", "$", "1e999",
             "inf", "-Infinity", "1e39", "9" * 400, "5 kg", "1.234.5", "e5", "."]  # fmt: skip
    found = parse_numbers(["1", *cells], decimal_comma=False)
    assert found.values[0] == 1
    assert found.bad.tolist() == list(range(1, len(cells) + 1))
    huge = parse_numbers(["1", "1e39", "inf", "-1e300"], decimal_comma=False)
    assert huge.bad.tolist() == [1, 2, 3]


def test_doubtful_commas_are_named() -> None:
    assert parse_numbers(["1,234", "12"], False)[2:] == (False, "1,234")
    assert parse_numbers(["1,234", "12"], True)[2:] == (True, "1,234")
    assert parse_numbers(["1,234", "12.5"], True)[2:] == (False, None)
    assert parse_numbers(["1.234", "12"], True)[2:] == (False, None)  # as programs write numbers
    assert parse_numbers(["1.234", "12"], True, plain=False).values.tolist() == [1234, 12]


@pytest.mark.parametrize(
    ("cell", "day_first", "iso"),
    [
        ("2024-02-29", False, "2024-02-29T00:00"),
        ("2024-02-29 06:30", False, "2024-02-29T06:30"),
        ("2024-02-29T06:30:15.5Z", False, "2024-02-29T06:30:15.500"),
        ("2024-02-29T01:00:00+02:00", False, "2024-02-28T23:00"),
        ("2024/2/9", True, "2024-02-09T00:00"),
        ("2024-2-9 7:05", True, "2024-02-09T07:05"),
        ("3.4.2024", True, "2024-04-03T00:00"),
        ("03.04.24 12:00", True, "2024-04-03T12:00"),
        ("3/4/2024", False, "2024-03-04T00:00"),
        ("3/4/1999 11:59 pm", False, "1999-03-04T23:59"),
        ("3/4/70 12:00 AM", False, "1970-03-04T00:00"),
        ("1969-12-31", False, "1969-12-31T00:00"),
        ("3 Mar 2024", False, "2024-03-03T00:00"),
        ("3. March 2024 14:30", False, "2024-03-03T14:30"),
        ("03-Mar-24", False, "2024-03-03T00:00"),
        ("03-MAR-99", False, "1999-03-03T00:00"),
        ("03mar2024", False, "2024-03-03T00:00"),
        ("1st Sept 2024", False, "2024-09-01T00:00"),
        ("March 3, 2024", True, "2024-03-03T00:00"),
        ("Dec. 24 1969, 6:05 pm", True, "1969-12-24T18:05"),
        ("May 2nd, 68", True, "2068-05-02T00:00"),
        ("Mar 2024", True, "2024-03-01T00:00"),
        ("2024-03", True, "2024-03-01T00:00"),
        ("2024/12", False, "2024-12-01T00:00"),
        ("03/2024", True, "2024-03-01T00:00"),
        ("3-1999", True, "1999-03-01T00:00"),
    ],
)
def test_dates(cell: str, day_first: bool, iso: str) -> None:
    found = parse_dates([cell], day_first)
    expected = (np.datetime64(iso, "ms") - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    np.testing.assert_allclose(found.values, [expected], atol=1e-9)


def test_cells_that_are_no_dates() -> None:
    cells = ["2024-02-30", "31.4.2024", "0001-01-01T00:00+14:00", "1.2", "1.2-2024", "12:30",
             "2024", "2024-13-01", "1.2.10", "1/2/2024 13:00 pm", "1/2/24 25:00", "31 Feb 2024",
             "3 Marc 2024", "Mar-24", "Mar 3", "May", "2024-13", "2024-3", "13/2024", "4711-03",
             "03/24", "1.2024", "Mar 0 2024", "a1 2024", "Model 2024"]  # fmt: skip
    assert parse_dates(cells, day_first=True).bad.tolist() == list(range(len(cells)))


def columns_of(
    tmp_path: Path, cells: list[str], name: str = "a", **options: Any
) -> tuple[dict[str, Column], dict[str, str], list[str]]:
    """What a column of these cells becomes, beside one of numbers."""
    rows = [[cell, str(n % 7), "xy"[n % 2]] for n, cell in enumerate(cells)]
    lines = list(range(2, len(rows) + 2))
    table = Table(tmp_path / "t.csv", [name, "b", "kind"], Rows(rows, 3), lines)
    fitted = fit_columns(table, "kind", **options)
    return {c.name: c for c in fitted.columns}, fitted.left_out, fitted.notes


def test_kinds_of_columns(tmp_path: Path) -> None:
    def fit(cells: list[str], name: str = "a") -> Column:
        return columns_of(tmp_path, cells, name)[0][name]

    assert fit(["1", "2", "", "3"] * 25) == NumberColumn("a", 2.0, indicator=True)
    assert fit(["1", "2"] * 50 + ["?"] * 4) == NumberColumn("a", 1.5)
    assert fit(["yes", "No", "NO", ""] * 10) == BooleanColumn("a", 1 / 3, indicator=True)
    assert fit(["x", "", "", ""] * 10) == ChoiceColumn("a", ("", "x"))
    assert fit(["5", "", "", ""] * 10) == ChoiceColumn("a", ("", "5"))
    assert fit(["red", "blue"] * 10) == ChoiceColumn("a", ("blue", "red"))
    assert fit(["Some college, no degree", "A bachelor of arts"] * 30).kind == "choice"
    many = [f"c{n:02}" for n in range(60)]
    assert fit(many * 5 + many[:30] * 5) == ChoiceColumn("a", tuple(many), other=False)
    rare = fit(many[:30] * 10 + [f"r{n}" for n in range(100)])
    assert rare == ChoiceColumn("a", tuple(many[:30]), other=True)
    assert fit(["17.3.2024", "1.4.2024"] * 10) == DateColumn(
        "a", 7.5, 19799.0, day_first=True, cycles=("month", "weekday")
    )
    months = DateColumn("a", 15.5, 19783.0, day_first=False, cycles=("month",))
    for cells in (["2024-03", "2024-04"], ["3/2024", "4/2024"], ["Mar 2024", "April 2024"]):
        assert fit(cells * 10) == months  # no weekday
    assert fit(["2023", "2024"] * 10) == NumberColumn("a", 2023.5)
    assert fit(["03.2023", "03.2024"] * 10).kind == "number"


@pytest.mark.parametrize(
    "cells",
    [
        ["3 Mar 2024", "17-Apr-24", "April 30, 2024"],
        ["2024-03-03", "4/17/2024", "30 Apr 2024"],
    ],
)
def test_a_file_with_names_of_months(tmp_path: Path, cells: list[str]) -> None:
    rows = "".join(f'"{cell}";{n % 2}\n' for n, cell in enumerate(cells * 10))
    (tmp_path / "t.csv").write_text(f"day;kind\n{rows}")
    data = load(str(tmp_path / "t.csv"), target="kind")
    (column,) = data.spec.columns or ()
    assert isinstance(column, DateColumn)
    assert column.cycles == ("month", "weekday")
    assert data.train_x[:3, 0].tolist() == [0, 45, 58]


def test_columns_that_are_left_out(tmp_path: Path) -> None:
    numbers = [str(7 * n % 101) for n in range(100)]
    for name, cells, why in (
        ("a", ["", "NA", "?"] * 10, "empty"),
        ("a", ["same"] * 30, "constant, 'same'"),
        ("a", [f"n{n}" for n in range(30)], "an identifier, all different: --keep"),
        ("a", [str(n) for n in range(30)], "an identifier, all different: --keep"),
        ("a", [str(n + 1) for n in range(30)], "an identifier, all different: --keep"),
        ("customer_id", numbers, "an identifier, all different: --keep"),
        ("customerID", numbers, "an identifier, all different: --keep"),
        ("column 1", numbers, "an identifier, all different: --keep 'column 1' uses it"),
        ("a", [f"n{n % 40}" for n in range(60)], "40 different values in 60 cells"),
        (
            "a",
            [str(n / 8) for n in range(80)] + ["refused"] * 20,
            "81 different values in 100 cells, most of them numbers, but not 'refused'",
        ),
        ("a", [f"n{n % 300}" for n in range(900)], "300 different values, most of them rare"),
        (
            "a",
            [f"un{n} deux{n} trois{n} quatre{n}" for n in range(30)],
            "text without words that several rows share",
        ),
    ):
        used, left_out, _ = columns_of(tmp_path, cells, name)
        assert list(used) == ["b"]
        assert left_out[name].startswith(why)
    for name, cells in (
        ("a", numbers),
        ("grid", numbers),
        ("a", [str(n + 1990) for n in range(30)]),
        ("id", ["1", "2", "1"] * 10),
    ):
        assert columns_of(tmp_path, cells, name)[0][name].kind == "number"


def test_drop_and_keep(tmp_path: Path) -> None:
    counter = [str(n) for n in range(30)]
    used, left_out, _ = columns_of(tmp_path, counter, drop=["b"], keep=["a"])
    assert used == {"a": NumberColumn("a", 14.5)}
    assert left_out == {"b": "--drop"}
    names = columns_of(tmp_path, [f"n{n}" for n in range(40)], keep=["a"])[0]["a"]
    assert isinstance(names, ChoiceColumn)
    assert (len(names.categories), names.other) == (30, True)
    for option in ("drop", "keep"):
        with pytest.raises(ValueError, match=f"--{option}: .*no column 'c', only a, b, kind"):
            columns_of(tmp_path, counter, "a", **{option: ["c"]})
    with pytest.raises(ValueError, match="--drop kind: it is the column of --target"):
        columns_of(tmp_path, counter, drop=["kind"])
    with pytest.raises(ValueError, match="--drop a: it is the column of --keep"):
        columns_of(tmp_path, counter, drop=["a"], keep=["a"])


def test_what_is_odd_is_said(tmp_path: Path) -> None:
    numbers = ["1", "2"] * 50
    numbers[3:5] = ["x", "1e99"]
    used, _, notes = columns_of(tmp_path, numbers)
    assert used["a"] == NumberColumn("a", float(np.mean([1, 2] * 48 + [1, 2])))
    assert notes == [
        "'a': 2 cells are no numbers that can be used, first 'x' in line 5: taken as missing"
    ]
    _, _, notes = columns_of(tmp_path, ["1/2/2024", "3/4/2024"] * 10)
    assert notes == ["'a': the month is taken to come first in dates such as 1/2/2024"]
    _, _, notes = columns_of(tmp_path, ["1/2/2024", "13/4/2024"] * 10)
    assert notes == []
    _, _, notes = columns_of(tmp_path, ["1,234", "5,678"] * 10)
    assert notes == ["'a': 1,234 is read as 1234"]


def test_text_becomes_tf_idf(tmp_path: Path) -> None:
    texts = ["The film was good, good fun", "the film was bad and dull", "", "the plot was good"]
    (tmp_path / "t.csv").write_text(
        "review,kind\n" + "".join(f'"{text} {n}a",{n % 2}\n' for n, text in enumerate(texts * 10))
    )
    data = load(str(tmp_path / "t.csv"), target="kind")
    (column,) = data.spec.columns or ()
    assert isinstance(column, TextColumn)
    assert column.words == ("and", "bad", "dull", "film", "fun", "good", "plot", "the", "was")
    idf = {word: np.log(41 / (1 + n)) + 1 for word, n in (("film", 20), ("fun", 10), ("good", 20))}
    idf["the"] = idf["was"] = np.log(41 / 31) + 1
    assert dict(zip(column.words, column.idf, strict=True))["fun"] == pytest.approx(idf["fun"])
    row = np.array([0, 0, 0, idf["film"], idf["fun"], 2 * idf["good"], 0, idf["the"], idf["was"]])
    np.testing.assert_allclose(data.train_x[0], row / np.linalg.norm(row), rtol=1e-6)
    assert data.train_x[2].tolist() == [0] * 9
    assert InputSpec.from_json(json.loads(json.dumps(data.spec.to_json()))) == data.spec


def test_columns_round_trip_and_older_ones_are_read() -> None:
    columns = (
        NumberColumn("n", 1.5, True, True),
        BooleanColumn("b", 0.5, True),
        DateColumn("d", 3.5, 19000.0, True, ("month", "hour"), True),
        ChoiceColumn("c", ("", "x"), True),
        TextColumn("t", ("good",), (1.25,)),
    )
    spec = InputSpec(("a", "b"), (sum(c.size for c in columns),), None, columns, "kind")
    assert spec.shape == (2 + 2 + 6 + 3 + 1,)
    recorded: dict[str, Any] = json.loads(json.dumps(spec.to_json()))
    assert InputSpec.from_json(recorded) == spec
    recorded["columns"] = [
        {"name": "n", "mean": 1.5, "categories": None},
        {"name": "c", "mean": None, "categories": ["", "NA"]},
    ]
    del recorded["means"]
    older = InputSpec.from_json(recorded).columns
    assert older == (NumberColumn("n", 1.5), ChoiceColumn("c", ("", "NA")))
    table = Table(Path("t.csv"), ["c", "n"], Rows([["NA", "1"], ["none", ""]], 2), [2, 3])
    assert encode(table, older).tolist() == [[1, 0, 1], [1.5, 1, 0]]
    for wrong in (
        {"name": "n", "kind": "other"},
        {"name": "n", "kind": "number", "mean": float("nan")},
        {"name": "t", "kind": "text", "words": ["a"], "idf": []},
        {"name": "d", "kind": "date", "mean": 0, "origin": 0, "day_first": 1, "cycles": ["year"]},
    ):
        recorded["columns"] = [wrong]
        with pytest.raises(ValueError, match=r"must be|has 1 words"):
            InputSpec.from_json(recorded)


def test_marks_of_missing_labels(tmp_path: Path) -> None:
    marks = [
        "",
        "NA",
        "n/a",
        "NaN",
        "null",
        "None",
        "unlabeled",
        "UNLABELLED",
        "Unknown",
        "?",
        "-1",
    ]
    assert all(map(is_missing_label, marks))
    assert not any(map(is_missing_label, ["0", "1", "no", "a", "-", "-2"]))
    (tmp_path / "t.csv").write_text(
        "a,kind\n" + "".join(f"{n},{mark}\n" for n, mark in enumerate([*marks, "x", "y", "NA"]))
    )
    said = Messages()
    data = load(str(tmp_path / "t.csv"), target="kind", report=said)
    assert data.train_y.tolist() == [-1] * 11 + [0, 1, -1]
    assert "  2 labels in 'kind': 1 '-1', 1 '?', 2 'NA', 1 'NaN'," in said.infos[0]
    assert said.infos[0].endswith("taken as unlabeled")


def test_runs_keep_the_columns_and_classes_that_they_began_with(tmp_path: Path) -> None:
    lines = [f"{n if n % 4 else ''},{('NA', 'x', '1.0')[n % 3]}" for n in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["a,kind", *lines]))
    recorded = {"name": "a", "mean": 30.0, "categories": None}  # no indicator: an older version's
    about = {"classes": ["1.0", "NA", "x"], "shape": [1], "white": None, "columns": [recorded]}
    spec = InputSpec.from_json({**about, "target": "kind"})
    config = replace(tiny_config(), data=str(tmp_path / "t.csv"), target="kind")
    begun = load_user_data(tmp_path / "t.csv", spec=spec)
    assert begun.train_y.tolist() == [1, 2, 0] * 20
    again = load_data(config, Reporter(), begun.fingerprint, spec=spec)
    assert again.train_x.shape == (60, 1)
    assert again.spec == spec
    with pytest.raises(ValueError, match="has changed since the run began"):
        load_data(config, Reporter(), begun.fingerprint)


def test_whole_numbers_as_labels(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,kind\n1,1.0\n2,0.0\n3,\n4,-1.0\n")
    data = load(str(path), target="kind")
    assert data.spec.classes == ("0", "1")
    assert data.train_y.tolist() == [1, 0, -1, -1]
    path.write_text("a,kind\n1,1.5\n2,1.0\n")
    assert load(str(path), target="kind").spec.classes == ("1.0", "1.5")


def test_targets_that_are_no_classes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for labels, message in (
        ([f"{n % 30}.5" for n in range(90)], "30 different values in 90 labels and looks like a q"),
        ([f"{n}.234 €" for n in range(1, 31)], "looks like a quantity, not like classes"),
        ([str(n) for n in range(30)], "looks like a quantity, not like classes: cclp class.*bin"),
        ([f"n{n}" for n in range(30)], "looks like names or text, not like classes: name another"),
    ):
        path.write_text("a,kind\n" + "".join(f"{n % 9},{y}\n" for n, y in enumerate(labels)))
        with pytest.raises(ValueError, match=message):
            load(str(path), target="kind")
    for labels in ([str(n % 30) for n in range(60)], [f"{n % 20}.5" for n in range(60)]):
        path.write_text("a,kind\n" + "".join(f"{n % 9},{y}\n" for n, y in enumerate(labels)))
        assert len(load(str(path), target="kind").spec.classes) == len(set(labels))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Label,b\n1,x\n2,x\n", "one of Label, b, perhaps --target Label$"),
        ("a,b\n" + "1,x\n2,y\n" * 5, "one of a, b, perhaps --target b$"),
        ("a,b\n" + "".join(f"1,{n}\n" for n in range(50)), "one of a, b$"),
    ],
)
def test_the_likely_target_is_named(tmp_path: Path, text: str, hint: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"name the column of classes with --target, {hint}"):
        load(str(tmp_path / "t.csv"))


def test_a_table_from_training_to_prediction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["id;price;signed;comment;paid;junk;kind"]
    for n in range(60):
        comment = ("the service was very slow", "the service was really quick")[n % 2]
        price = f"{1000 * (n % 2) + n},50 €".replace("10", "1.0", 1)
        kind = ("no", "yes")[n % 2] if n % 3 == 0 else "NA"
        paid = ("ja", "nein")[n % 2]
        lines.append(f"{n};{price};{n % 28 + 1}.{n % 12 + 1}.2023;{comment} {n}x;{paid};{n};{kind}")
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="cp1252")
    run, few = tmp_path / "run", ["--max-steps", "4", "--unlabeled-batch", "4", "--per-class", "2"]
    arguments = ["--target", "kind", "--drop", "junk", "--out", str(run), *few]
    assert call("train", str(tmp_path / "t.csv"), *arguments) == 0
    said = capsys.readouterr().err
    assert "read as cp1252" in said
    assert "numbers: price\n" in said
    assert "left out: id (an identifier" in said
    assert "junk (--drop)" in said
    config = json.loads((run / "config.json").read_text())
    assert (config["config"]["drop"], config["config"]["keep"]) == (["junk"], [])
    kinds = [column["kind"] for column in config["data"]["columns"]]
    assert kinds == ["number", "date", "text", "choice"]
    new = "comment\tpaid\tmore\tprice\tsigned\nservice slow\tja\t1\t$7\t2023-04-03\n"
    (tmp_path / "new.tsv").write_text(new)
    assert call("predict", str(run), str(tmp_path / "new.tsv")) == 0
    assert capsys.readouterr().out.splitlines()[1].split(",")[2] in ("no", "yes")
    assert call("evaluate", str(run), str(tmp_path / "t.csv")) == 0
    assert "on 20 samples" in capsys.readouterr().out
    (tmp_path / "new.tsv").write_text(new.replace("paid", "x"))
    assert call("predict", str(run), str(tmp_path / "new.tsv")) == 2
    assert "has no column 'paid', only comment, x, more" in capsys.readouterr().err


def test_columns_are_not_searched_for_one_by_one(tmp_path: Path) -> None:
    """Of 40,000 columns that took half a minute."""
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [Name(f"c{number}") for number in range(500)]
    rows = [[f"{row * column % 7}.5" for column in range(500)] for row in range(3)]
    table = Table(tmp_path / "wide.csv", list(names), Rows(rows, 500), [2, 3, 4])
    fitted = fit_columns(table, "c0")
    assert len(fitted.columns) + len(fitted.left_out) == 499
    assert encode(table, fitted.columns).shape[0] == 3
    assert compared < 10 * len(names)
    with pytest.raises(ValueError, match=r"no column 'x', only c0, .*, c19 and 480 more$"):
        table.column("x")
