"""Class names of a user's labels."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from cclp.data.dataset import InputSpec
from cclp.data.user.cells import parse_numbers

_UNLABELED = {
    "", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "unlabeled", "unlabelled", "unknown",
    "?", "-1", "-1.0",
}  # fmt: skip
_WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)
MANY_CLASSES = 20


def is_missing_label(text: str) -> bool:
    """Whether a label says that there is none: empty, NA, nan, null, none, unlabeled, ?, -1, …"""
    return text.strip().lower() in _UNLABELED


def text_name(name: str, spec: InputSpec | None = None) -> str:
    """The name of a class as text: of two ways to write é, in one or two characters (NFC, NFD), the
    shorter; bytes of a folder's name that are not UTF-8 as \\xe9.

    Args:
        name: as it is written.
        spec: of a run, which may have it another way.
    """
    if name.isascii() or (spec and name in spec.classes):
        return name
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    composed = unicodedata.normalize("NFC", text)
    classes = spec.classes if spec else ()
    return next((c for c in classes if unicodedata.normalize("NFC", c) == composed), composed)


def clean_labels(labels: Sequence[str], spec: InputSpec | None = None) -> tuple[list[str], str]:
    """Labels with "" for those that say that there is none, and a sentence about the latter.

    Whole numbers lose their ".0": programs that mark missing numbers by NaN write them so.

    Args:
        labels: as they are written.
        spec: of a run; names of its classes stay.
    """
    if not all(map(str.isascii, labels)):
        found = {label: text_name(label, spec) for label in set(labels)}
        labels = [found[label] for label in labels]
    counts = Counter(labels)
    classes = set(spec.classes) if spec else set()
    missing = {label: n for label, n in counts.items() if is_missing_label(label)}
    missing = {label: n for label, n in missing.items() if label not in classes}
    known = counts.keys() - missing.keys()
    whole = {label: match[1] for label in known if (match := _WHOLE.fullmatch(label))}
    if classes & whole.keys() or len(whole) < sum(not label.isdecimal() for label in known):
        whole = {}
    names = {label: whole.get(label, label) for label in known} | dict.fromkeys(missing, "")
    words = [f"{n} {label!r}" for label, n in sorted(missing.items()) if label]
    said = f"{', '.join(words)} taken as unlabeled" if words else ""
    return [names[label] for label in labels], said


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


def refuse_quantity(labels: Sequence[str], where: str) -> None:
    """Refuse a column that has too many different values for classes.

    Raises:
        ValueError: if they are many fractions, or more than half as many as the labels.
    """
    counts = Counter(labels)
    del counts[""]
    values, bad, *_ = parse_numbers(list(counts), decimal_comma=False)
    numbers = not len(bad)
    fractions = numbers and bool((values != np.floor(values)).any())
    if len(counts) > MANY_CLASSES and (fractions or len(counts) > counts.total() / 2):
        what = "a quantity" if numbers else "names or text"
        remedy = "cclp classifies: bin it" if numbers else "name another column"
        raise ValueError(
            f"{where} has {len(counts)} different values in {counts.total()} labels and looks like "
            f"{what}, not like classes: {remedy}"
        )


def check_classes(found: Iterable[str], classes: tuple[str, ...], where: str) -> None:
    """Refuse names that are not among the classes.

    Raises:
        ValueError: for the first of them.
    """
    for name in found:
        if name not in classes:
            some = ", ".join(classes[:20]) + (", …" if len(classes) > 20 else "")
            raise ValueError(f"{where}: there is no class {name!r}, only {some}")
