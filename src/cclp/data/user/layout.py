"""Which image of a folder belongs to which class and part, by the folder's layout.

- A folder for each class, or such folders in ``train/``, ``val/`` and ``test/``.
- A table of labels beside images (:mod:`cclp.data.user.label_table`), which may lie in ``train/``,
  ``val/`` and ``test/``.

Images in a folder called ``unlabeled`` or the like, beside the folders of classes, or not in the
table are unlabeled.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cclp.data.dataset import InputSpec
from cclp.data.user.images import find_images, is_visible, looks_like_image
from cclp.data.user.label_table import (
    PARTS,
    Entry,
    Labels,
    Part,
    is_named_labels,
    label_tables,
    read_labels,
)
from cclp.data.user.labels import check_classes, encode_labels, text_name
from cclp.progress import Reporter

_DEEPEST = 8  # folders in folders that hold nothing else
_UNLABELED = ("unlabeled", "unlabelled", "unknown", "unsorted")


class Layout(NamedTuple):
    """Which image belongs to which class and part.

    Attributes:
        root: the folder of classes or parts.
        classes: names in order.
        train: class index of each training image, −1 if unlabeled; by class, unlabeled ones last.
        test: class index of each image of the test set, by class.
    """

    root: Path
    classes: tuple[str, ...]
    train: dict[Path, int]
    test: dict[Path, int]


class _Folder(NamedTuple):
    """Images of a folder: loose ones, and those below each sub-folder; and what are none."""

    loose: list[Path]
    below: dict[str, list[Path]]
    strays: list[Path]


def find_layout(
    folder: Path, path: Path, spec: InputSpec | None, target: str | None, report: Reporter
) -> Layout:
    """Find which image of a folder belongs to which class and part, and say by which rule.

    Args:
        folder: to look at; if it holds nothing but one folder of folders, that one is.
        path: what the user calls it: the folder, or the archive it was unpacked from.
        spec: of a run, whose classes are taken; None: the classes are those found.
        target: name of the column of classes, if labels are in a table.
        report: says what was found.

    Raises:
        ValueError: if there are fewer than two classes, or it is not clear what is what.
    """
    root = _enter(folder, spec)
    labels = _find_table(root, spec, target)
    if labels is None:
        if target is not None:
            raise ValueError(f"--target is for tables, {path} has no table of labels: leave it out")
        entries, classes, rule = _by_folder(root, spec, report)
        classes = spec.classes if spec else classes
        if len(classes) < 2:
            raise ValueError(
                f"{path} must hold a sub-folder of images for each of two or more classes, or a "
                f"table of labels, got {', '.join(classes) or 'none'}"
            )
    else:
        entries, rule = _by_table(root, labels, report)
    train, test = _divide(entries, report)
    if labels is not None:
        where = f"{labels.table}, column {labels.columns[1]!r}"
        classes, _ = encode_labels([entry.label or "" for entry in train], spec, where)
    index = {name: number for number, name in enumerate(classes)}
    for place, found in ((path, train), (path / "test", test)):
        check_classes(sorted({e.label for e in found if e.label}), classes, str(place))
    layout = Layout(root, classes, _ordered(train, index), _ordered(test, index))
    unlabeled = sum(number < 0 for number in layout.train.values())
    report.info(
        f"{path.resolve().name}: {rule}; {len(classes)} classes, {len(layout.train) - unlabeled} "
        f"labeled, {unlabeled} unlabeled and {len(layout.test)} test images"
    )
    return layout


def without_labels(folder: Path, path: Path, report: Reporter) -> Layout:
    """All images of a folder, none of them labeled.

    Args:
        folder: to look at.
        path: what the user calls it.
        report: is told of files that are left out.

    Raises:
        ValueError: if it holds no image.
    """
    images, strays = without_strays(find_images(folder))
    if not images:
        raise ValueError(f"{path} must hold images, but holds none")
    say_strays(strays, report)
    return Layout(folder, (), dict.fromkeys(images, -1), {})


def without_strays(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Files that look like images, and the others."""
    images = [file for file in files if looks_like_image(file)]
    kept = set(images)
    return images, [file for file in files if file not in kept]


def say_strays(strays: Sequence[Path], report: Reporter) -> None:
    """Say how many files of which kind are left out, in one sentence, if there are any."""
    if strays:
        kinds = Counter(file.suffix.lower() or "without suffix" for file in strays)
        some = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(5))
        more = ", …" if len(kinds) > 5 else ""
        report.info(f"Left out {len(strays)} files that are no images: {some}{more}")


def _is_unlabeled(name: str, spec: InputSpec | None) -> bool:
    known = spec.classes if spec else ()
    return name.lower().removeprefix("_") in _UNLABELED and name not in known


def _enter(path: Path, spec: InputSpec | None) -> Path:
    """The folder itself; if it holds nothing but one folder that holds others, that one."""
    for _ in range(_DEEPEST):
        inside = [entry for entry in path.iterdir() if is_visible(entry.name)]
        if len(inside) != 1 or not inside[0].is_dir():
            return path
        (only,) = inside
        named = _is_unlabeled(only.name, spec) or only.name.lower() in PARTS
        if named or (spec and only.name in spec.classes):
            return path
        deeper = any(entry.is_dir() and is_visible(entry.name) for entry in only.iterdir())
        if not (deeper or label_tables(only)):
            return path
        path = only
    return path


def _list(folder: Path) -> _Folder:
    """The images of a folder, sorted by name."""
    inside = sorted(entry for entry in folder.iterdir() if is_visible(entry.name))
    loose, strays = without_strays([entry for entry in inside if not entry.is_dir()])
    below = {}
    for entry in inside:
        if entry.is_dir():
            found = find_images(entry)
            images, others = without_strays(found)
            strays += others
            if images or not found:  # an empty folder may be a class whose images are missing
                below[entry.name] = images
    return _Folder(loose, below, strays)


def _find_table(root: Path, spec: InputSpec | None, target: str | None) -> Labels | None:
    """The labels of a folder's table; None if it has none, or folders of classes without one that
    is called labels.
    """
    tables = label_tables(root)
    if not tables:
        return None
    if target is None and not is_named_labels(tables[0]) and _has_classes(root, spec):
        return None
    if len(tables) > 1:
        raise ValueError(
            f"{root} holds several tables, {', '.join(p.name for p in tables[:5])}: call the one "
            "with labels labels.csv"
        )
    images, _ = without_strays(find_images(root))
    labels = read_labels(tables[0], root, images, target)
    if labels is None:
        raise ValueError(
            f"{tables[0]} must have a column of file names, but none of its columns names an "
            f"image in {root}: rename it if it holds no labels"
        )
    return labels


def _has_classes(root: Path, spec: InputSpec | None) -> bool:
    """Whether there are folders of two or more classes, perhaps in ``train/``."""
    folders = [p for p in root.iterdir() if p.is_dir() and is_visible(p.name)]
    if spec and any(p.name in spec.classes for p in folders):
        return True
    classes = [
        p for p in folders if p.name.lower() not in PARTS and not _is_unlabeled(p.name, spec)
    ]
    train = [p for p in folders if PARTS.get(p.name.lower()) == "train"]
    return (not spec and len(classes) > 1) or any(q.is_dir() for p in train for q in p.iterdir())


def _by_table(root: Path, labels: Labels, report: Reporter) -> tuple[list[Entry], str]:
    """Images by a table; its column of parts goes before the folders ``train/``, ``val/``."""
    images, strays = without_strays(find_images(root))
    say_strays([file for file in strays if file != labels.table], report)
    said = {entry.file: entry for entry in labels.entries}
    entries = []
    for image in images:
        entry = said.get(image, Entry(image, None, None))
        top, *inner = image.relative_to(root).parts
        part: Part = PARTS.get(top.lower(), "train") if inner else "train"
        entries.append(entry if entry.part else entry._replace(part=part))
    if labels.missing:
        report.warn(f"{labels.missing} rows of {labels.table.name} name files that are not there")
    words = [f"{count} {word!r}" for word, count in labels.unlabeled.items() if word]
    if words:
        report.info(f"Taken as unlabeled in {labels.table.name}: {', '.join(words)}")
    files, classes = labels.columns
    return entries, f"labels by {labels.table.name} (files in {files!r}, classes in {classes!r})"


def _of_two_classes(link: Path, one: str | None, other: str | None) -> ValueError:
    return ValueError(
        f"{link} is a link: the same images would be of class {one!r} and of class {other!r}"
    )


def _by_folder(
    root: Path, spec: InputSpec | None, report: Reporter
) -> tuple[list[Entry], tuple[str, ...], str]:
    """Images by the names of their folders, and the classes of the training set."""
    top = _list(root)
    parts = _part_folders(root, top, spec)
    beside = {name: files for name, files in top.below.items() if name not in parts}
    split = "train" in parts.values()
    classes = [name for name in beside if not _is_unlabeled(name, spec)]
    if split and classes:
        raise ValueError(
            f"{root} holds folders of classes in train/, and {classes[0]}/ beside it: move it into "
            "train/, or rename train/ if it is a class"
        )
    found: list[tuple[Part, Path, _Folder]] = [("train", root, _Folder(top.loose, beside, []))]
    found += [(part, root / name, _list(root / name)) for name, part in parts.items()]
    entries, names, loose = [], set[str](), 0
    class_of: dict[tuple[Part, str], str | None] = {}
    linked: list[tuple[Part, Path, str | None]] = []
    for part, place, folder in found:
        entries += [Entry(file, part, None) for file in folder.loose]
        loose += len(folder.loose) if part == "train" else 0
        for name, files in folder.below.items():
            label = None if _is_unlabeled(name, spec) else text_name(name, spec)
            links = [file for file in files if file.is_symlink()] if label else []
            linked += [(part, file, label) for file in links]
            for inside in {file.parent for file in files}.union(links) if label else ():
                known = class_of.setdefault((part, os.path.realpath(inside)), label)
                if known != label:
                    raise _of_two_classes(inside, known, label)
            if label and part == "train":
                names.add(label)
                if not files:
                    raise ValueError(
                        f"{place / name} must hold images of its class, but holds none"
                    )
            entries += [Entry(file, part, label) for file in files]
    for part, file, label in linked:
        known = class_of.get((part, os.path.dirname(os.path.realpath(file))), label)
        if known != label:
            raise _of_two_classes(file, known, label)
    if loose and names:
        report.info(f"{loose} images beside the folders of classes are unlabeled")
    say_strays(top.strays, report)
    rule = "a sub-folder for each class"
    if split:
        rule += f" in {', '.join(f'{name}/' for name in parts)}"
    return entries, tuple(sorted(names)), rule


def _part_folders(root: Path, top: _Folder, spec: InputSpec | None) -> dict[str, Part]:
    """Sub-folders that are parts of the data and not classes.

    ``test`` always is one. ``train`` is one if it holds folders, and ``val`` if ``train`` is one,
    or if its folders are called as the classes beside it.
    """
    below = {
        name: {p.name for p in (root / name).iterdir() if p.is_dir() and is_visible(p.name)}
        for name in top.below
        if name.lower() in PARTS and not (spec and name in spec.classes)
    }
    parts: dict[str, Part] = {n: "train" for n in below if n.lower() == "train" and below[n]}
    split = bool(parts)
    for name, folders in below.items():
        part = PARTS[name.lower()]
        same = bool(folders) and folders <= top.below.keys()
        if part == "test" or (part == "val" and (split or same)):
            parts[name] = part
    return parts


def _divide(entries: list[Entry], report: Reporter) -> tuple[list[Entry], list[Entry]]:
    """The training and the test set.

    Labeled images of ``val`` are the test set if there is no other, else they join the training
    set: choices are made by cross-validation over all labels.
    """
    train = [entry for entry in entries if entry.part == "train"]
    held = {
        part: [entry for entry in entries if entry.part == part and entry.label]
        for part in ("val", "test")
    }
    unused = len(entries) - len(train) - len(held["val"]) - len(held["test"])
    if unused:
        report.info(
            f"{unused} images of val/ or test/ have no class: they are neither trained on nor "
            "measured"
        )
    if held["val"] and held["test"]:
        report.info(
            f"{len(held['val'])} labeled images of val/ join the training set: choices are made by "
            "cross-validation over all labels"
        )
        return train + held["val"], held["test"]
    if held["val"]:
        report.info("The test set is val/, as there is no other with classes")
    return train, held["test"] or held["val"]


def _ordered(entries: list[Entry], index: dict[str, int]) -> dict[Path, int]:
    """Class indices by file; by class, unlabeled ones last."""
    found = {entry.file: index[entry.label] if entry.label else -1 for entry in entries}
    return dict(sorted(found.items(), key=lambda item: item[1] % (len(index) + 1)))
