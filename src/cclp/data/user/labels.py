"""Class names of a user's labels."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cclp.data.dataset import InputSpec

_MISSING = frozenset(
    ("", "na", "n/a", "nan", "null", "none", "unlabeled", "unlabelled", "unknown", "?", "-1")
)


def is_missing_label(text: str) -> bool:
    """Whether a cell of labels stands for "no label": empty, NA, unlabeled, ?, −1 and the like."""
    return text.strip().lower() in _MISSING


def encode_labels(
    labels: list[str], spec: InputSpec | None, where: str
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names of the classes in order, and the class index of each label; −1 for an empty one.

    Args:
        labels: names of classes, empty where unlabeled.
        spec: of a run, whose classes are taken; None: the classes are those found, sorted.
        where: the labels come from, for messages.

    Raises:
        ValueError: if there are fewer than two classes, or one that the run does not have.
    """
    found = set(labels) - {""}
    if spec is None:
        numbers = all(name.isdecimal() for name in found)
        classes = tuple(sorted(found, key=lambda name: (int(name) if numbers else 0, name)))
        if len(classes) < 2:
            raise ValueError(
                f"{where} must name two or more classes, got {', '.join(classes) or 'none'}"
            )
    else:
        classes = spec.classes
        check_classes(sorted(found), classes, where)
    index = {name: number for number, name in enumerate(classes)} | {"": -1}
    return classes, np.array([index[name] for name in labels], np.int64)


def check_classes(found: Iterable[str], classes: tuple[str, ...], where: str) -> None:
    """Refuse names that are not among the classes.

    Raises:
        ValueError: for the first of them.
    """
    for name in found:
        if name not in classes:
            some = ", ".join(classes[:20]) + (", …" if len(classes) > 20 else "")
            raise ValueError(f"{where}: there is no class {name!r}, only {some}")
