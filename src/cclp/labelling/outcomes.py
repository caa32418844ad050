"""What a session of labelling leaves behind: labels.csv, images by class, arrays."""

import errno
import io
import os
import shutil
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cclp.checks import check_choice
from cclp.data.user.label_file import DECIDED, PROPAGATED, Decided, write_rows
from cclp.files import write_bytes
from cclp.labelling.labels import UNLABELED
from cclp.labelling.source import Source

ExportKind = Literal["csv", "folder", "npz"]
_ENDINGS = {"csv": "labels.csv", "folder": "by-class", "npz": "labeled.npz"}
_TABLE = "labels.csv"  # in a folder by class
_NOT_IN_NAMES = '/\\:*?"<>|\0'

Names = dict[int, str]


def label_rows(
    source: Source,
    values: NDArray[np.int16],
    who: NDArray[np.uint8],
    names: Names,
    likely: NDArray[np.int64],
    certainty: NDArray[np.float64],
) -> list[Decided]:
    """A row for each sample that has a class or was skipped, in their order.

    Args:
        source: the samples.
        values, who: of each, see :class:`cclp.labelling.decisions.Decisions`.
        names: of the classes, by id.
        likely: the class that each is believed to be of, or ``UNLABELED``.
        certainty: of that.
    """
    rows = []
    for key, value, by, class_, sure in zip(
        source.keys, values.tolist(), who.tolist(), likely.tolist(), certainty.tolist(), strict=True
    ):
        if value >= 0:
            rows.append(Decided(key, names[value], DECIDED[by]))
        elif value != UNLABELED:
            rows.append(Decided(key, "", DECIDED[by]))
        elif class_ in names:
            rows.append(Decided(key, names[class_], PROPAGATED, sure))
    return rows


def export_labels(
    source: Source,
    folder: Path,
    kind: ExportKind,
    place: str | None,
    values: NDArray[np.int16],
    who: NDArray[np.uint8],
    names: Names,
    likely: NDArray[np.int64],
    certainty: NDArray[np.float64],
) -> Path:
    """Write the labels in one of the forms.

    Args:
        source: the samples.
        folder: of the decisions.
        kind: "csv": labels.csv; "folder": the image files by class, hard links where the disk has
            them, else copies; "npz": X, y and names, for ``cclp train``.
        place: to write to; None: a new name in ``folder``.
        values, who, names, likely, certainty: as in :func:`label_rows`.

    Raises:
        ValueError: if something is there already, or the place is inside the data.
    """
    check_choice("kind", kind, get_args(ExportKind))
    path = _unused(folder / _ENDINGS[kind]) if place is None else Path(place).absolute()
    root = source.data.folder
    if root is not None and path.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{path} is inside the data, which are never changed: name another place")
    if path.exists() or path.is_symlink():
        raise ValueError(f"{path} exists and is never overwritten: name another place")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is not a folder: make it first, or name another place")
    rows = label_rows(source, values, who, names, likely, certainty)
    if kind == "csv":
        write_bytes(path, write_rows(rows), new=True)
    elif kind == "npz":
        write_bytes(path, _arrays(source, rows), new=True)
    else:
        _by_class(source, path, rows)
    return path


def _arrays(source: Source, rows: list[Decided]) -> bytes:
    """X, y (the decided classes, "" elsewhere), who, and the propagated classes, as an .npz."""
    place = {key: number for number, key in enumerate(source.keys)}
    y, propagated, who = [""] * len(source), [""] * len(source), [""] * len(source)
    probability = np.full(len(source), np.nan, np.float32)
    for row in rows:
        number = place[row.sample]
        who[number] = row.who
        if row.who == PROPAGATED:
            propagated[number], probability[number] = row.name, row.probability or 0.0
        else:
            y[number] = row.name
    file = io.BytesIO()
    np.savez_compressed(
        file,
        X=source.x,
        y=np.array(y, np.str_),
        who=np.array(who, np.str_),
        propagated=np.array(propagated, np.str_),
        probability=probability,
    )
    return file.getvalue()


def _by_class(source: Source, path: Path, rows: list[Decided]) -> None:
    """A folder for each class, ``unlabeled`` for the others, and labels.csv beside them."""
    root = source.data.folder
    if root is None:
        raise ValueError(f"{source.name} holds no files to put into folders: export csv or npz")
    folders = _folder_names({row.name for row in rows if row.name})
    label = {row.sample: row.name for row in rows if row.who != PROPAGATED and row.name}
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        for key in source.keys:
            target = partial / folders.get(label.get(key, ""), "unlabeled") / key
            target.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(root / key, target)
        table = [row for row in rows if row.name]
        write_bytes(partial / _TABLE, write_rows(table), new=True)
        (partial / _TABLE).rename(partial / ".labels.csv")  # beside folders it would be read
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise
        shutil.copyfile(source, target)


def _folder_names(names: set[str]) -> dict[str, str]:
    """A folder for each class; a name that no system takes is changed, and none is used twice."""
    found: dict[str, str] = {}
    used = {"unlabeled"}
    for name in sorted(names):
        plain = "".join("_" if c in _NOT_IN_NAMES else c for c in name).strip(". ") or "_"
        other, number = plain, 2
        while other.lower() in used:
            other, number = f"{plain}-{number}", number + 1
        used.add(other.lower())
        found[name] = other
    return found


def _unused(path: Path) -> Path:
    """The path, or one with a number that is not there yet."""
    found, number = path, 2
    while found.exists() or found.is_symlink():
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return found
