"""Labels as scikit-learn's users have them: any type, and several marks for "unlabeled"."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

# What NumPy and pandas make of a missing label among strings, and the word itself. Files have more
# such words, because what they hold is said; here a class "unknown" or "NA" must stay one.
_UNLABELED = frozenset(("", "-1", "-1.0", "nan", "NaN", "None", "<NA>", "unlabeled", "unlabelled"))


def read_labels(y: Any) -> NDArray[Any]:
    """One label for each sample, as they came: lists and series are not made into one type."""
    if hasattr(y, "to_list"):  # series of pandas and polars
        y = y.to_list()
    if isinstance(y, list | tuple):
        y = np.array(y, dtype=object)
    return np.asarray(column_or_1d(y, warn=True))


def is_unlabeled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Where there is no label: -1, NaN, None or pandas.NA; as strings too, and ""."""
    if y.dtype.kind == "b":
        return np.zeros(len(y), bool)
    if y.dtype.kind == "S":
        return np.isin(y, [word.encode() for word in _UNLABELED])
    if y.dtype.kind == "U":
        return np.isin(y, list(_UNLABELED))
    if y.dtype.kind != "O":
        return np.asarray((y == -1) | (y != y))

    def missing(value: Any) -> bool:
        if isinstance(value, str):
            return value in _UNLABELED
        return (
            value is None
            or type(value).__name__ in ("NAType", "NaTType")
            or (isinstance(value, int | float | np.number) and bool(value == -1 or value != value))
        )

    return np.array([missing(value) for value in y], bool)


def encode_labels(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Classes, and a class index for each sample, -1 where there is no label."""
    known = ~is_unlabeled(y)
    labels = y[known]
    if labels.dtype.kind == "O":
        strings = {isinstance(label, str) for label in labels}
        if len(strings) == 2:
            raise ValueError("y must have labels of one kind, got strings and others")
        if strings == {False}:
            labels = np.array(labels.tolist())  # numbers among None are numbers
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError(f"Input y contains infinity or a value too large for {labels.dtype!r}.")
    if len(labels) == 0:
        raise ValueError(
            "y has no label: all samples are marked as unlabeled (-1, NaN, None or '')"
        )
    check_classification_targets(np.repeat(labels, 3))  # or a label a class looks like regression
    classes, index = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y must have labels of at least 2 classes, got 1 class: {classes.tolist()[0]!r} "
            "(-1 marks unlabeled samples)"
        )
    codes = np.full(len(y), -1)
    codes[known] = index
    return classes, codes
