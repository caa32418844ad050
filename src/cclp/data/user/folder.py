"""A user's own files as a data set: a folder of images, an ``.npz``, a ``.csv``.

The first time the spec is found out; afterwards, with the spec of a run, other files are brought
into it.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cclp.data.dataset import Column, Dataset, InputSpec
from cclp.data.published.formats import npz_shapes, read_npz
from cclp.data.user.images import (
    Shape,
    decode_all,
    decoded_map,
    find_images,
    is_grey,
    list_bad,
    looks_like_image,
    refuse_bad,
)
from cclp.data.user.tables import encode, fit_columns, read_csv
from cclp.progress import Reporter

UNLABELED, TEST = "unlabeled", "test"
MOST_CHANNELS = 4
WHITE_AT_LEAST = 128  # whole numbers that stay below are no pixels of 0 … 255
Indices = NDArray[np.int64]


class Samples(NamedTuple):
    """Some samples: the file of each, with its row if it is one of several, and their inputs."""

    places: list[tuple[str, int | None]]
    x: NDArray[Any]


def kind_of(path: Path) -> Literal["images", "vectors"]:
    """What a path holds, without reading all of it.

    Raises:
        ValueError: if it is nothing that can be read.
    """
    if path.is_dir():
        return "images"
    if _suffix(path) == ".csv" and path.is_file():
        return "vectors"
    if _suffix(path) == ".npz" and path.is_file():
        return "vectors" if len(npz_shapes(path).get("X", ())) == 2 else "images"
    raise ValueError(
        f"{path} must be a folder of images, an .npz or a .csv file, but is "
        f"{'another file' if path.exists() else 'not there'}"
    )


def _suffix(path: Path) -> str:
    return "" if path.is_dir() else path.suffix.lower()


def load_own(
    path: Path,
    *,
    image_size: int | None = None,
    target: str | None = None,
    skip_bad: bool = False,
    spec: InputSpec | None = None,
    report: Reporter | None = None,
) -> Dataset:
    """Load a user's own data.

    Args:
        path: a folder with a sub-folder of images for each class, and perhaps ``unlabeled/`` and
            ``test/``; an ``.npz`` with X, y (−1 or "" = unlabeled) and perhaps X_test, y_test; a
            ``.csv`` with a column of labels, empty where unlabeled.
        image_size: side that images of a folder are brought to.
        target: the ``.csv`` file's column of classes.
        skip_bad: whether to leave out images that cannot be read.
        spec: to bring the data into; found out from the data if None.
        report: told of the progress.

    Raises:
        ValueError: for anything that is not so.
    """
    kind_of(path)
    if not path.is_dir() and (image_size is not None or skip_bad):
        raise ValueError(
            f"--image-size and --skip-bad are for folders of images, {path} is none: leave them out"
        )
    if _suffix(path) != ".csv" and target is not None:
        raise ValueError(f"--target is for .csv files, {path} is none: leave it out")
    report = report or Reporter()
    if path.is_dir():
        return _load_folder(path, image_size or 32, skip_bad, spec, report)
    if _suffix(path) == ".csv":
        return _load_csv(path, target, spec, report)
    return _load_npz(path, spec)


def read_samples(
    paths: Sequence[Path], spec: InputSpec, *, skip_bad: bool, report: Reporter
) -> Iterator[Samples]:
    """Inputs in the spec of a run, a chunk at a time; labels are not looked at.

    Args:
        paths: ``.csv`` and ``.npz`` files, images, and folders, of which all images are taken.
        spec: of the run.
        skip_bad: whether to leave out images that cannot be read.
        report: told which.
    """
    for is_array, group in groupby(paths, lambda path: _suffix(path) in (".csv", ".npz")):
        if is_array:
            for path in group:
                x = _read_vectors(path, spec)
                yield Samples([(str(path), row) for row in range(len(x))], x)
            continue
        files = [file for path in group for file in _images_at(path)]
        pixels = _pixels(spec, files[0])
        with report.work(f"{len(files)} images", len(files)) as advance:
            for good, x, bad in decode_all(files, *pixels):
                if not skip_bad:
                    refuse_bad(bad, len(files))
                elif bad:
                    report.warn(f"Left out {list_bad(bad)}")
                yield Samples([(str(file), None) for file in good], x)
                advance(len(good) + len(bad))


def _read_vectors(path: Path, spec: InputSpec) -> NDArray[Any]:
    """All samples of a table or of an ``.npz`` file."""
    if _suffix(path) == ".csv":
        return encode(read_csv(path), _columns(spec, path))
    arrays = read_npz(path)
    if "X" not in arrays:
        raise ValueError(f"{path} must hold X, but holds {', '.join(arrays) or 'nothing'}")
    return _inputs(arrays["X"], "X", path, spec)


def _images_at(path: Path) -> list[Path]:
    """The file itself, or all images of a folder."""
    if path.is_dir():
        found = find_images(path)
        if not found:
            raise ValueError(f"{path} must hold images, but is empty")
        return found
    if not path.is_file():
        raise ValueError(f"{path} must be a file or a folder of images, but is not there")
    return [path]


def _load_folder(
    path: Path, size: int, skip_bad: bool, spec: InputSpec | None, report: Reporter
) -> Dataset:
    groups, tests = _class_folders(path), _class_folders(path / TEST)
    for place in (path, path / TEST):
        _refuse_loose_images(place)
    classes = spec.classes if spec else tuple(groups)
    if len(classes) < 2:
        raise ValueError(
            f"{path} must hold a sub-folder of images for each of two or more classes, got "
            f"{', '.join(classes) or 'none'}"
        )
    for place, present in ((path, groups), (path / TEST, tests)):
        for name in present:
            if name not in classes:
                raise ValueError(f"{place / name}: {_no_such_class(name, classes)}")
    class_of = {file: c for c, name in enumerate(classes) for file in groups.get(name, [])}
    if (path / UNLABELED).is_dir():
        class_of |= dict.fromkeys(find_images(path / UNLABELED), -1)
    class_of_test = {file: c for c, name in enumerate(classes) for file in tests.get(name, [])}
    either = class_of | class_of_test
    files = list(either)
    if spec is None:
        spec = InputSpec(classes, (1 if all(map(is_grey, files)) else 3, size, size))
    shape, white = _pixels(spec, path)
    good, x, bad = decoded_map(path, files, shape, white, report)
    if not skip_bad:
        refuse_bad(bad, len(files))
    elif bad:
        report.warn(f"Left out {len(bad)} of {len(files)} images: {list_bad(bad)}")
    y = np.array([either[file] for file in good], np.int64)
    split = sum(file in class_of for file in good)
    for c, name in enumerate(classes):
        if name in groups and not (y[:split] == c).any():
            raise ValueError(f"{path / name} must hold images of its class, but holds none")
    names = [str(file.relative_to(path)) for file in good]
    return Dataset(
        path.resolve().name,
        spec,
        x[:split],
        y[:split],
        x[split:],
        y[split:],
        train_names=names[:split],
        test_names=names[split:],
        left_out=[str(item) for item in bad],
    )


def _class_folders(path: Path) -> dict[str, list[Path]]:
    """The files of each class, by its name."""
    if not path.is_dir():
        return {}
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    for folder in folders:
        meant = folder.name.lower()
        if meant in (UNLABELED, TEST) and folder.name != meant:
            raise ValueError(f"{folder}: rename it to {meant}, or give the class another name")
    return {p.name: find_images(p) for p in folders if p.name not in (UNLABELED, TEST)}


def _refuse_loose_images(path: Path) -> None:
    """Rather than leave them out in silence."""
    loose = sorted(p for p in path.iterdir() if looks_like_image(p)) if path.is_dir() else []
    if loose:
        raise ValueError(
            f"{path} holds {len(loose)} images beside its sub-folders, such as {loose[0].name}: "
            f"move them into the folder of their class, or into {UNLABELED}/"
        )


def _load_csv(path: Path, target: str | None, spec: InputSpec | None, report: Reporter) -> Dataset:
    table = read_csv(path)
    target = target or (spec.label if spec else None)
    if target is None:
        raise ValueError(
            f"{path}: name the column of classes with --target, one of {', '.join(table.header)}"
        )
    if spec is None:
        columns = fit_columns(table, target)
        choices = [f"{c.name} ({len(c.categories)})" for c in columns if c.categories]
        report.info(
            f"{path.name}: {len(table.rows)} rows, {len(columns) - len(choices)} columns of "
            f"numbers, {len(choices)} of choices{': ' if choices else ''}{', '.join(choices)}"
        )
    else:
        columns = _columns(spec, path)
        if target not in table.header:
            raise ValueError(f"{path} has no column {target!r}, only {', '.join(table.header)}")
    classes, y = _classes(table.column(target), spec, f"{path}, column {target!r}")
    x = encode(table, columns)
    return Dataset(
        path.stem,
        spec or InputSpec(classes, x.shape[1:], None, columns, target),
        x,
        y,
        x[:0],
        y[:0],
        train_names=[f"line {line}" for line in table.lines],
    )


def _load_npz(path: Path, spec: InputSpec | None) -> Dataset:
    arrays = read_npz(path)
    for name, needed in (("X", "y"), ("y", "X"), ("X_test", "y_test"), ("y_test", "X_test")):
        if name in arrays and needed not in arrays:
            raise ValueError(f"{path} holds {name} but no {needed}")
    if "X" not in arrays:
        raise ValueError(f"{path} must hold X and y, but holds {', '.join(arrays) or 'nothing'}")
    x = _inputs(arrays["X"], "X", path, spec)
    classes, y = _classes(_label_names(arrays["y"], "y", len(x), path), spec, f"{path}: y")
    spec = spec or InputSpec(classes, x.shape[1:], 255 if x.dtype == np.uint8 else None)
    x_test, y_test = x[:0], y[:0]
    if "X_test" in arrays:
        x_test = _inputs(arrays["X_test"], "X_test", path, spec)
        values = _label_names(arrays["y_test"], "y_test", len(x_test), path)
        y_test = _classes(values, spec, f"{path}: y_test")[1]
        if (y_test < 0).any():
            raise ValueError(f"{path}: y_test must name a class for every sample")
    return Dataset(path.stem, spec, x, y, x_test, y_test)


def _inputs(x: NDArray[Any], name: str, path: Path, spec: InputSpec | None) -> NDArray[Any]:
    """Vectors or images, channels first, in float32; pixels in whole numbers as bytes."""
    if x.ndim not in (2, 3, 4) or x.dtype.kind not in "biuf" or 0 in x.shape:
        raise ValueError(
            f"{path}: {name} must hold numbers of shape (samples, features) or (samples, height, "
            f"width), with or without channels, got {x.dtype} of shape {x.shape}"
        )
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4:
        first, last = x.shape[1] <= MOST_CHANNELS, x.shape[3] <= MOST_CHANNELS
        if first == last:
            raise ValueError(
                f"{path}: {name} must have at most {MOST_CHANNELS} channels, first or last, and "
                f"more pixels than that on each side, got shape {x.shape}"
            )
        x = x.transpose(0, 3, 1, 2) if last else x
    if spec is not None and x.shape[1:] != spec.shape:
        raise ValueError(f"{path}: {name} must be of shape {spec.shape}, got {x.shape[1:]}")
    low, high = x.min(), x.max()
    whole = x.ndim == 4 and x.dtype.kind in "biu" and low >= 0
    if spec is not None and spec.white is not None and not (whole and high <= spec.white):
        raise ValueError(
            f"{path}: {name} must hold whole numbers from 0 to {spec.white}, as those trained on, "
            f"got {x.dtype} from {low:g} to {high:g}"
        )
    bright = whole and WHITE_AT_LEAST <= high <= 255
    if spec.white is not None if spec else bright:
        return np.ascontiguousarray(x, np.uint8)
    with np.errstate(over="ignore"):
        real = np.ascontiguousarray(x, np.float32)
    finite = np.isfinite(real).reshape(len(real), -1).all(1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise ValueError(f"{path}: {name} must be finite in float32, but row {row} is not")
    return real


def _columns(spec: InputSpec, path: Path) -> tuple[Column, ...]:
    """Columns of the table a run was trained on."""
    if spec.columns is None:
        raise ValueError(f"{path}: this run was not trained on a table")
    return spec.columns


def _pixels(spec: InputSpec, path: Path) -> tuple[Shape, int]:
    """Shape and white of images in a form, if it is one of images that a file could hold."""
    if len(spec.shape) != 3 or spec.shape[0] not in (1, 3) or spec.white is None:
        raise ValueError(
            f"{path}: this run was not trained on grey or RGB pixels, but on inputs of shape "
            f"{spec.shape}"
        )
    channels, height, width = spec.shape
    return (channels, height, width), spec.white


def _label_names(y: NDArray[Any], name: str, count: int, path: Path) -> list[str]:
    """Labels as words, empty where there is none."""
    real = y.dtype.kind == "f" and bool(np.isfinite(y).all() and (y == np.floor(y)).all())
    whole = y.dtype.kind in "iu" or real
    if y.shape != (count,) or not (whole or y.dtype.kind == "U"):
        raise ValueError(
            f"{path}: {name} must hold {count} whole numbers or strings, got {y.dtype} of shape "
            f"{y.shape}"
        )
    if not whole:
        return [str(value) for value in y]
    if (y < -1).any():
        raise ValueError(f"{path}: {name} must be at least 0, or -1 for unlabeled, got {y.min()}")
    return ["" if value == -1 else str(int(value)) for value in y]


def _classes(
    values: list[str], spec: InputSpec | None, where: str
) -> tuple[tuple[str, ...], Indices]:
    """Names of the classes in order, and the index of each value; −1 for an empty one."""
    found = set(values) - {""}
    if spec is None:
        numbers = all(value.isdecimal() for value in found)
        classes = tuple(sorted(found, key=lambda name: (int(name) if numbers else 0, name)))
        if len(classes) < 2:
            raise ValueError(
                f"{where} must name two or more classes, got {', '.join(classes) or 'none'}"
            )
    else:
        classes = spec.classes
        for value in sorted(found - set(classes)):
            raise ValueError(f"{where}: {_no_such_class(value, classes)}")
    place = {name: index for index, name in enumerate(classes)} | {"": -1}
    return classes, np.array([place[value] for value in values], np.int64)


def _no_such_class(name: str, classes: tuple[str, ...]) -> str:
    some = ", ".join(classes[:20]) + (", …" if len(classes) > 20 else "")
    return f"there is no class {name!r}, only {some}"
