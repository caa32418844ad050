"""A user's folder of images: a sub-folder for each class, perhaps ``unlabeled/`` and ``test/``."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cclp.checks import check_integer
from cclp.data.dataset import Dataset, InputSpec
from cclp.data.user.image_cache import decoded_map
from cclp.data.user.images import (
    Bytes,
    Shape,
    decode_all,
    find_images,
    is_grey,
    list_bad,
    looks_like_image,
    refuse_bad,
)
from cclp.data.user.labels import check_classes
from cclp.progress import Reporter

UNLABELED, TEST = "unlabeled", "test"


def load_folder(
    path: Path, *, image_size: int, skip_bad: bool, spec: InputSpec | None, report: Reporter
) -> Dataset:
    """Load a folder of images.

    Args:
        path: the folder.
        image_size: height and width that images are resized to, unless ``spec`` is given.
        skip_bad: whether to leave out images that cannot be read.
        spec: of a run, that the images are brought to; None: it is found from the images.
        report: shows the progress.

    Raises:
        ValueError: for folders and images that are not as they should be, naming them.
    """
    train, test = _class_folders(path), _class_folders(path / TEST)
    for folder in (path, path / TEST):
        _refuse_loose_images(folder)
    classes = spec.classes if spec else tuple(train)
    if len(classes) < 2:
        raise ValueError(
            f"{path} must hold a sub-folder of images for each of two or more classes, got "
            f"{', '.join(classes) or 'none'}"
        )
    check_classes(train, classes, str(path))
    check_classes(test, classes, str(path / TEST))
    train_class = _class_of_file(train, classes)
    if (path / UNLABELED).is_dir():
        train_class |= dict.fromkeys(find_images(path / UNLABELED), -1)
    class_of = train_class | _class_of_file(test, classes)
    files = list(class_of)
    if spec is None:
        channels = 1 if all(map(is_grey, files)) else 3
        size = check_integer("image_size", image_size, least=1)
        spec = InputSpec(classes, (channels, size, size))
    shape, white = _pixels(spec, path)
    good, x, bad = decoded_map(path, files, shape, white, report)
    if not skip_bad:
        refuse_bad(bad, len(files))
    elif bad:
        report.warn(f"Left out {len(bad)} of {len(files)} images: {list_bad(bad)}")
    y = np.array([class_of[file] for file in good], np.int64)
    split = sum(file in train_class for file in good)
    for c, name in enumerate(classes):
        if name in train and not (y[:split] == c).any():
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


def read_images(
    paths: Sequence[Path], spec: InputSpec, *, skip_bad: bool, report: Reporter
) -> Iterator[tuple[list[Path], Bytes]]:
    """Images as a run takes them, a chunk at a time, with their files.

    Args:
        paths: image files, and folders, of which all images are taken.
        spec: of the run.
        skip_bad: whether to leave out images that cannot be read.
        report: shows the progress and what is left out.

    Raises:
        ValueError: if the run was not trained on images, or one cannot be read.
    """
    files = [file for path in paths for file in _images_at(path)]
    shape, white = _pixels(spec, files[0])
    with report.work(f"{len(files)} images", len(files)) as advance:
        for good, x, bad in decode_all(files, shape, white):
            if not skip_bad:
                refuse_bad(bad, len(files))
            elif bad:
                report.warn(f"Left out {list_bad(bad)}")
            yield good, x
            advance(len(good) + len(bad))


def _class_folders(path: Path) -> dict[str, list[Path]]:
    """The files of each class, by its name."""
    if not path.is_dir():
        return {}
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    for folder in folders:
        name = folder.name.lower()
        if name in (UNLABELED, TEST) and folder.name != name:
            raise ValueError(f"{folder}: rename it to {name}, or give the class another name")
    return {p.name: find_images(p) for p in folders if p.name not in (UNLABELED, TEST)}


def _class_of_file(files: dict[str, list[Path]], classes: tuple[str, ...]) -> dict[Path, int]:
    return {file: c for c, name in enumerate(classes) for file in files.get(name, [])}


def _refuse_loose_images(path: Path) -> None:
    """Refuse images outside the sub-folders, rather than leave them out in silence."""
    loose = sorted(p for p in path.iterdir() if looks_like_image(p)) if path.is_dir() else []
    if loose:
        raise ValueError(
            f"{path} holds {len(loose)} images beside its sub-folders, such as {loose[0].name}: "
            f"move them into the folder of their class, or into {UNLABELED}/"
        )


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


def _pixels(spec: InputSpec, path: Path) -> tuple[Shape, int]:
    """Shape and value of white of the images that a run was trained on."""
    if len(spec.shape) != 3 or spec.shape[0] not in (1, 3) or spec.white is None:
        raise ValueError(
            f"{path}: this run was not trained on grey or RGB pixels, but on inputs of shape "
            f"{spec.shape}"
        )
    channels, height, width = spec.shape
    return (channels, height, width), spec.white
