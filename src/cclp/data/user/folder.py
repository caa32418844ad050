"""A user's folder or archive of images, as a data set or as samples to predict."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cclp.checks import check_integer
from cclp.data.dataset import Dataset, InputSpec
from cclp.data.user.archive import archive_stem, is_archive, unpacked
from cclp.data.user.deep import Bytes
from cclp.data.user.feature_cache import features_of_images
from cclp.data.user.features import Extractor, Features
from cclp.data.user.image_cache import cached_survey, decoded_map
from cclp.data.user.images import Shape, decode_all, find_images, list_bad, refuse_bad
from cclp.data.user.layout import (
    Layout,
    find_layout,
    say_strays,
    without_labels,
    without_strays,
)
from cclp.progress import Reporter


def load_folder(
    path: Path,
    *,
    image_size: int,
    skip_bad: bool,
    target: str | None,
    spec: InputSpec | None,
    report: Reporter,
    extractor: Extractor | None = None,
    unlabeled: bool = False,
) -> Dataset:
    """Load a folder or an archive of images.

    Args:
        path: of the folder or archive.
        image_size: height and width that images are resized to, unless ``spec`` is given.
        skip_bad: whether to leave out images that cannot be read.
        target: name of the column of classes, if labels are in a table.
        spec: of a run, that the images are brought to; None: it is found from the images.
        report: shows the progress, and says what was found by which rule.
        extractor: makes features of the images; it says in which size they are read.
        unlabeled: whether all images are taken without looking for labels.

    Raises:
        ValueError: for folders and images that are not as they should be, naming them.
    """
    packed = is_archive(path)
    folder = unpacked(path, report) if packed else path
    if unlabeled:
        layout = without_labels(folder, path, report)
    else:
        layout = find_layout(folder, path, spec, target, report)
    spec = spec or _find_spec(path, layout, image_size, report, extractor)
    shape, white = _pixels(spec.before_features, path)
    files = [*layout.train, *layout.test]
    x: Bytes | Features
    pictures, source = None, None
    if extractor is None:
        good, x, bad = decoded_map(path, files, shape, white, spec.pixel_range, report)
    else:
        assert spec.features is not None
        good, x, pictures, bad, source = features_of_images(
            extractor, spec.features, path, files, spec.pixel_range, report
        )
    if not skip_bad:
        refuse_bad(bad, len(files))
    elif bad:
        report.warn(f"Left out {len(bad)} of {len(files)} images: {list_bad(bad)}")
    class_of = layout.train | layout.test
    y = np.array([class_of[file] for file in good], np.int64)
    split = sum(file in layout.train for file in good)
    for c in sorted(set(layout.train.values()) - {-1}):
        if not (y[:split] == c).any():
            raise ValueError(
                f"{path} must hold images of class {layout.classes[c]!r} that can be read, but "
                "holds none"
            )
    names = [str(file.relative_to(layout.root)) for file in good]
    return Dataset(
        archive_stem(path) if packed else path.resolve().name,
        spec,
        x[:split],
        y[:split],
        x[split:],
        y[split:],
        train_names=names[:split],
        test_names=names[split:],
        left_out=[str(item) for item in bad],
        train_pictures=None if pictures is None else pictures[:split],
        test_pictures=None if pictures is None else pictures[split:],
        source=source,
        folder=layout.root,
    )


def _find_spec(
    path: Path,
    layout: Layout,
    image_size: int,
    report: Reporter,
    extractor: Extractor | None,
) -> InputSpec:
    """What the training images of a folder are brought to."""
    survey = cached_survey(path, list(layout.train), report)
    size = check_integer("image_size", extractor.image_size if extractor else image_size, least=1)
    for sentence in survey.sentences((size, size)):
        report.info(sentence)
    channels = (extractor.channels if extractor else None) or (1 if survey.grey else 3)
    spec = InputSpec(layout.classes, (channels, size, size), pixel_range=survey.pixel_range)
    return spec if extractor is None else spec.with_features(extractor.fit(spec.shape, spec.white))


def read_images(
    paths: Sequence[Path],
    spec: InputSpec,
    *,
    skip_bad: bool,
    report: Reporter,
    extractor: Extractor | None = None,
) -> Iterator[tuple[list[str], Bytes | Features]]:
    """Images as a run takes them, a chunk at a time, with their names.

    Args:
        paths: image files, and folders and archives, of which all images are taken.
        spec: of the run.
        skip_bad: whether to leave out images that cannot be read.
        report: shows the progress and what is left out.
        extractor: makes features of the images.

    Raises:
        ValueError: if the run was not trained on images, or one cannot be read.
    """
    shape, white = _pixels(spec.before_features, paths[0])
    names: dict[Path, str] = {}
    files: list[Path] = []
    for path in paths:
        found = _images_at(path, report)
        names |= found
        files += found
    with report.work(f"{len(files)} images", len(files)) as advance:
        for good, x, bad in decode_all(files, shape, white, spec.pixel_range):
            if not skip_bad:
                refuse_bad(bad, len(files))
            elif bad:
                report.warn(f"Left out {list_bad(bad)}")
            yield [names[file] for file in good], extractor(x) if extractor and good else x
            advance(len(good) + len(bad))


def _images_at(path: Path, report: Reporter) -> dict[Path, str]:
    """The file itself, or all images of a folder or archive, with the names they go by."""
    if is_archive(path):
        folder = unpacked(path, report)
    elif path.is_dir():
        folder = path
    elif path.is_file():
        return {path: str(path)}
    else:
        raise ValueError(f"{path} must be a file or a folder of images, but is not there")
    found, strays = without_strays(find_images(folder))
    if not found:
        raise ValueError(f"{path} must hold images, but holds none")
    say_strays(strays, report)
    return {file: str(path / file.relative_to(folder)) for file in found}


def _pixels(spec: InputSpec, path: Path) -> tuple[Shape, int]:
    """Shape and value of white of the images that a run was trained on."""
    if len(spec.shape) != 3 or spec.shape[0] not in (1, 3) or spec.white is None:
        raise ValueError(
            f"{path}: this run was not trained on grey or RGB pixels, but on inputs of shape "
            f"{spec.shape}"
        )
    channels, height, width = spec.shape
    return (channels, height, width), spec.white
