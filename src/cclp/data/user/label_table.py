"""A table beside images: a column of file names, a column of classes, perhaps one of parts."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from cclp.data.user.csv_file import read_csv
from cclp.data.user.labels import is_missing_label, text_name
from cclp.data.user.table import Rows, Table

Part = Literal["train", "val", "test"]
PARTS: dict[str, Part] = {
    "train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test",
}  # fmt: skip
TABLES = (".csv", ".tsv")
_STEM = "labels"
_CLASS_NAMES = (
    "label",
    "labels",
    "class",
    "classes",
    "target",
    "category",
    "class_name",
    "species",
)
_SPLIT = "split"


class Entry(NamedTuple):
    """An image of a data set.

    Attributes:
        file: of the image.
        part: that it belongs to; None: nothing is said about it.
        label: name of its class; None if it has none.
    """

    file: Path
    part: Part | None
    label: str | None


class Labels(NamedTuple):
    """What a table says about images.

    Attributes:
        table: the file.
        entries: images that it names, in the order of the rows.
        missing: rows that name files that are not there.
        columns: of file names and of classes.
        unlabeled: words in the column of classes that stand for no class, and how often.
    """

    table: Path
    entries: list[Entry]
    missing: int
    columns: tuple[str, str]
    unlabeled: Counter[str]


def label_tables(folder: Path) -> list[Path]:
    """Tables in a folder that may hold labels: labels.csv or labels.tsv, else all others."""
    tables = sorted(p for p in folder.iterdir() if p.suffix.lower() in TABLES and p.is_file())
    named = [p for p in tables if is_named_labels(p)]
    return named or [p for p in tables if not p.name.startswith(".")]


def is_named_labels(table: Path) -> bool:
    """Whether the name of a table says that it holds labels."""
    return table.stem.lower() == _STEM


def read_labels(
    path: Path, folder: Path, images: Sequence[Path], target: str | None
) -> Labels | None:
    """Read the labels of images.

    The column of files is the one that names most images: by their path from the folder or from a
    folder in it, with or without the suffix. The column of classes is ``target``; else the first
    that is called label, class, target or the like; else the only other one.

    Args:
        path: of the table.
        folder: that holds it.
        images: in the folder.
        target: name of the column of classes; None: it is found.

    Returns:
        None if no column names an image.

    Raises:
        ValueError: if the column of classes is not clear, most files are not there, or a row
            contradicts another.
    """
    index = _index(folder, images)
    table = _with_header(read_csv(path), index)
    named = {name: {index.get(_key(cell), ())[:1] for cell in table.column(name)} - {()}
             for name in table.header}  # fmt: skip
    files = max(table.header, key=lambda name: len(named[name]))
    if not named[files]:
        return None
    classes = _class_column(table, files, target)
    split = next((name for name in table.header if name.lower() == _SPLIT != classes.lower()), None)
    found: dict[Path, Entry] = {}
    missing, unlabeled = [], Counter[str]()
    for row, line in zip(table.rows, table.lines, strict=True):
        cells = dict(zip(table.header, row, strict=True))
        matches = index.get(_key(cells[files]), ())
        if not matches:
            missing.append(cells[files])
            continue
        if len(matches) > 1:
            raise ValueError(
                f"{path}, line {line}: {cells[files]!r} may be {matches[0]} or {matches[1]}: "
                "write its folder too"
            )
        label: str | None = text_name(cells[classes])
        if is_missing_label(cells[classes]):
            unlabeled[cells[classes]] += 1
            label = None
        entry = Entry(matches[0], _part(cells[split], path, line) if split else None, label)
        if found.setdefault(entry.file, entry) != entry:
            raise ValueError(f"{path}, line {line}: {cells[files]!r} has another row that differs")
    if len(missing) > len(table.rows) / 2:
        raise ValueError(
            f"{path}, column {files!r}: {len(missing)} of {len(table.rows)} rows name files that "
            f"are not there, such as {missing[0]!r}"
        )
    return Labels(path, list(found.values()), len(missing), (files, classes), unlabeled)


def _index(folder: Path, images: Sequence[Path]) -> dict[str, tuple[Path, ...]]:
    """Images by every name that a table may have for them; a whole path goes before others."""
    whole, shorter = {}, dict[str, tuple[Path, ...]]()
    for image in images:
        relative = unicodedata.normalize("NFC", str(image.relative_to(folder)))
        parts = Path(relative).parts
        whole["/".join(parts)] = whole[f"{folder.resolve().name}/{'/'.join(parts)}"] = (image,)
        for start in range(len(parts)):
            name = "/".join(parts[start:])
            for key in {name, name.removesuffix(image.suffix)}:
                shorter[key] = (*shorter.get(key, ())[:1], image)
    return shorter | whole


def _key(cell: str) -> str:
    """The name in a cell as the index has it: file systems may write é in two characters."""
    return unicodedata.normalize("NFC", cell.replace("\\", "/").removeprefix("./"))


def _with_header(table: Table, index: dict[str, tuple[Path, ...]]) -> Table:
    """The table; if its header names an image, it has none, and columns are called by number."""
    if not any("." in name and _key(name) in index for name in table.header):
        return table
    names = [f"column {number + 1}" for number in range(len(table.header))]
    rows = Rows([table.header, *table.rows], len(names))
    return replace(table, header=names, rows=rows, lines=[1, *table.lines])


def _class_column(table: Table, files: str, target: str | None) -> str:
    if target is not None:
        table.column(target)
        return target
    others = [name for name in table.header if name != files and name.lower() != _SPLIT]
    for known in _CLASS_NAMES:
        for name in others:
            if name.lower() == known:
                return name
    if len(others) != 1:
        raise ValueError(
            f"{table.path}: column {files!r} names the files; name the column of classes with "
            f"--target, one of {', '.join(others) or 'none'}"
        )
    return others[0]


def _part(cell: str, path: Path, line: int) -> Part:
    if not cell:
        return "train"
    if cell.lower() not in PARTS:
        raise ValueError(
            f"{path}, line {line}: column {_SPLIT!r} must be one of {', '.join(PARTS)}, "
            f"got {cell!r}"
        )
    return PARTS[cell.lower()]
