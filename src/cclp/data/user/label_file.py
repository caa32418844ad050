"""``labels.csv`` of ``cclp label``: classes of samples, and who decided about each.

Columns ``sample``, ``class``, ``who`` and ``probability``. A sample is called by its file's path
from the data folder, or by its row, counted from 0. ``who`` is "person" (one by one), "page" (many
at once), "data" (the label came with the data) or "propagated" (nobody: the graph or a network,
with its probability). A row of a person without a class is a sample that was skipped.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cclp.data.dataset import Dataset
from cclp.data.user.csv_file import read_csv
from cclp.data.user.labels import is_missing_label, text_name
from cclp.data.user.table import Table

COLUMNS = ("sample", "class", "who", "probability")
DECIDED = ("person", "page", "data")
PROPAGATED = "propagated"


class Decided(NamedTuple):
    """A row of the file.

    Attributes:
        sample: as :func:`sample_keys` calls it.
        name: of its class; "" if there is none.
        who: decided.
        probability: of the class, if nobody decided.
    """

    sample: str
    name: str
    who: str
    probability: float | None = None


def sample_keys(data: Dataset) -> list[str]:
    """What the training samples are called: the path of a file, or the row, counted from 0."""
    if data.folder is None or data.train_names is None:
        return [str(row) for row in range(len(data.train_y))]
    return [name.replace("\\", "/") for name in data.train_names]


def write_rows(rows: Iterable[Decided]) -> bytes:
    """The content of a file with these rows."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        probability = "" if row.probability is None else f"{row.probability:.4f}"
        writer.writerow((row.sample, row.name, row.who, probability))
    return file.getvalue().encode(errors="surrogateescape")


def read_label_file(path: Path, *, propagated: bool = False) -> list[Decided]:
    """Labels of a file; without the column ``who``, all are taken as decided by a person.

    Args:
        path: of the file.
        propagated: whether labels that nobody decided are read too.

    Raises:
        ValueError: if it has not the columns, or two rows contradict each other.
    """
    table = read_csv(path)
    if not {"sample", "class"} <= set(table.header):
        raise ValueError(
            f"{path} must have columns 'sample' and 'class', as labels.csv of cclp label, got "
            f"{table.names}"
        )
    found: dict[str, Decided] = {}
    columns = zip(
        table.column("sample"), table.column("class"), _who(table, path), table.lines, strict=True
    )
    for sample, cell, who, line in columns:
        if who == PROPAGATED and not propagated:
            continue
        name = "" if is_missing_label(cell) else text_name(cell)
        row = Decided(sample.replace("\\", "/"), name, who)
        if found.setdefault(row.sample, row).name != name:
            raise ValueError(f"{path}, line {line}: {sample!r} has another row that differs")
    return list(found.values())


def _who(table: Table, path: Path) -> Sequence[str]:
    if "who" not in table.header:
        return ["person"] * len(table.rows)
    who = table.column("who")
    known = (*DECIDED, PROPAGATED)
    for cell, line in zip(who, table.lines, strict=True):
        if cell not in known:
            raise ValueError(
                f"{path}, line {line}: column 'who' must be one of {', '.join(known)}, got {cell!r}"
            )
    return who


def with_label_file(data: Dataset, path: Path, *, propagated: bool = False) -> Dataset:
    """Data with the labels of a file, and no others, for their training samples.

    Args:
        data: whose test set keeps its labels, if its classes are among those of the file.
        path: of the file.
        propagated: whether labels that nobody decided count too.

    Raises:
        ValueError: if the file names other samples than the data have, or fewer than two classes.
    """
    rows = [row for row in read_label_file(path, propagated=propagated) if row.name]
    place = {key: number for number, key in enumerate(sample_keys(data))}
    missing = [row.sample for row in rows if row.sample not in place]
    if missing:
        raise ValueError(
            f"{path}: {len(missing)} of {len(rows)} labels are of samples that {data.name} has "
            f"not, such as {missing[0]!r}"
        )
    counts = Counter(row.name for row in rows)
    if len(counts) < 2:
        raise ValueError(
            f"{path} must hold labels of two or more classes, got {', '.join(counts) or 'none'}"
        )
    tested = {data.spec.classes[c] for c in np.unique(data.test_y)}
    unknown = sorted(tested - counts.keys())
    if unknown:
        raise ValueError(
            f"{path} has no label of {unknown[0]!r}, which the test set of {data.name} has"
        )
    known = [name for name in data.spec.classes if name in counts]
    numbers = all(name.isdecimal() for name in counts)
    new = sorted(counts.keys() - set(known), key=lambda name: (int(name) if numbers else 0, name))
    classes = tuple(known + new)
    code = {name: number for number, name in enumerate(classes)}
    train_y = np.full(len(data.train_y), -1)
    for row in rows:
        train_y[place[row.sample]] = code[row.name]
    test_y = np.array([code[data.spec.classes[c]] for c in data.test_y], np.int64)
    spec = replace(data.spec, classes=classes)
    return replace(data, spec=spec, train_y=train_y, test_y=test_y)
