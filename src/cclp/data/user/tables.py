"""Tables of a user as data: rows of features, and a column of classes."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from cclp.data.columns import ChoiceColumn, Column, EmbeddingColumn, TextColumn
from cclp.data.dataset import Dataset, FeatureSpec, InputSpec, Kind
from cclp.data.user.encode import encode
from cclp.data.user.feature_cache import digest_of_texts
from cclp.data.user.features import Extractor
from cclp.data.user.fit import FittedColumns, fit_columns
from cclp.data.user.labels import (
    MANY_CLASSES,
    clean_labels,
    encode_labels,
    is_missing_label,
    refuse_quantity,
)
from cclp.data.user.table import Table, some_names
from cclp.progress import Reporter

_TARGETS = ("target", "label", "labels", "class", "y", "outcome")
_PLURALS = {
    "number": "numbers", "boolean": "yes or no", "date": "dates", "choice": "choices",
    "embedding": "text",
}  # fmt: skip


@dataclass(frozen=True)
class TableReader:
    """Reads a file that holds a table.

    Attributes:
        read: the table of a file.
    """

    read: Callable[[Path], Table]
    takes_target = True

    def kind(self, path: Path) -> Kind:
        return "vectors"

    def load(
        self,
        path: Path,
        target: str | None,
        spec: InputSpec | None,
        report: Reporter,
        drop: Collection[str] = (),
        keep: Collection[str] = (),
        extractor: Extractor | None = None,
    ) -> Dataset:
        table = self._read(path, report)
        target = target or (spec.target if spec else None)
        if target is None:
            raise ValueError(_ask_for_target(table))
        where = f"{path}, column {target!r}"
        labels, said = clean_labels(table.column(target), spec)
        try:
            if spec is None:
                refuse_quantity(labels, where)
            classes, y = encode_labels(labels, spec, where)
        except ValueError as error:
            raise ValueError(f"{error}{f' ({said}: rename a class)' if said else ''}") from None
        if spec is None:
            known = f"{np.count_nonzero(y >= 0)} labels in {target!r}{': ' if said else ''}{said}"
            x, spec = _fit(table, target, classes, drop, keep, extractor, report, known)
        else:
            columns, embedding = _columns(spec, path), _embedding(extractor, spec.features)
            x = encode(table, columns, report, embedding=embedding)
        return _dataset(path, table, spec, x, y, extractor)

    def load_unlabeled(
        self,
        path: Path,
        target: str | None,
        report: Reporter,
        drop: Collection[str] = (),
        keep: Collection[str] = (),
        extractor: Extractor | None = None,
    ) -> Dataset:
        table = self._read(path, report)
        x, spec = _fit(table, target, (), drop, keep, extractor, report)
        y = np.full(len(x), -1)
        return _dataset(path, table, spec, x, y, extractor)

    def read_inputs(
        self, path: Path, spec: InputSpec, report: Reporter, extractor: Extractor | None = None
    ) -> NDArray[np.float32]:
        columns, embedding = _columns(spec, path), _embedding(extractor, spec.features)
        return encode(self._read(path, report), columns, report, embedding=embedding)

    def _read(self, path: Path, report: Reporter) -> Table:
        table = self.read(path)
        if table.warning:
            report.warn(f"{path.name}: {table.warning}")
        return table


def _fit(
    table: Table,
    target: str | None,
    classes: tuple[str, ...],
    drop: Collection[str],
    keep: Collection[str],
    extractor: Extractor | None,
    report: Reporter,
    *lines: str,
) -> tuple[NDArray[np.float32], InputSpec]:
    """Rows as vectors by columns that are found now; a summary, and these lines, are reported."""
    made = None if extractor is None else extractor.fit(None, None)
    fitted = fit_columns(table, target, drop, keep, made.width if made else None)
    columns = fitted.columns
    if made is not None and not any(isinstance(c, EmbeddingColumn) for c in columns):
        raise ValueError(f"features {made.name!r}: {table.path} has no column of free text")
    x = encode(table, columns, report, fitted.values, _embedding(extractor, made))
    report.info("\n  ".join([*_summary(table, fitted, x.shape[1]), *lines]))
    return x, InputSpec(classes, x.shape[1:], None, columns, target, features=made)


def _dataset(
    path: Path,
    table: Table,
    spec: InputSpec,
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    extractor: Extractor | None,
) -> Dataset:
    texts = [table.column(column.name) for column in spec.columns or ()]
    names = [f"line {line}" for line in table.lines]
    name = Path(path.name.removesuffix(".gz")).stem
    source = None if extractor is None else digest_of_texts(texts)
    return Dataset(name, spec, x, y, x[:0], y[:0], train_names=names, source=source)


def _ask_for_target(table: Table) -> str:
    """A message that names the columns, and the likely one."""
    likely = [name for name in table.header if name.lower() in _TARGETS]
    if not likely:
        last = {cell for cell in table.column(table.header[-1]) if not is_missing_label(cell)}
        few = 2 <= len(last) <= min(MANY_CLASSES, len(table.rows) / 2)
        likely = table.header[-1:] if few else []
    hint = f", perhaps --target {quote(likely[0])}" if likely else ""
    return f"{table.path}: name the column of classes with --target, one of {table.names}{hint}"


def _summary(table: Table, fitted: FittedColumns, features: int) -> list[str]:
    """What was read, a line for each kind of column."""
    lines = [f"{table.path.name}: {len(table.rows)} rows, {features} features{table.facts}"]
    for kind in ("number", "boolean", "date", "choice", "text", "embedding"):
        names = [_describe(column) for column in fitted.columns if column.kind == kind]
        if names:
            lines.append(f"{_PLURALS.get(kind, kind)}: {some_names(names)}")
    if fitted.left_out:
        reasons = [f"{name} ({why})" for name, why in fitted.left_out.items()]
        lines.append(f"left out: {some_names(reasons)}")
    return lines + fitted.notes


def _describe(column: Column) -> str:
    match column:
        case ChoiceColumn():
            return f"{column.name} ({len(column.categories)}{' and others' * column.other})"
        case TextColumn():
            return f"{column.name} ({len(column.words)} words)"
        case EmbeddingColumn():
            return f"{column.name} ({column.width} features)"
    return column.name


def _embedding(
    extractor: Extractor | None, made: FeatureSpec | None
) -> tuple[Extractor, FeatureSpec] | None:
    return None if extractor is None or made is None else (extractor, made)


def _columns(spec: InputSpec, path: Path) -> tuple[Column, ...]:
    """Columns of the table that a run was trained on."""
    if spec.columns is None:
        raise ValueError(f"{path}: this run was not trained on a table")
    return spec.columns
