"""A user's own data: a folder of images, or a file of a format in ``READERS``.

Loading data for training finds their :class:`~cclp.data.dataset.InputSpec`. With the spec of a run,
other data are brought to it.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from cclp.checks import refuse_options
from cclp.data.dataset import Dataset, InputSpec, Kind
from cclp.data.npz import npy_shapes, npz_shapes, read_npy, read_npz
from cclp.data.user.archive import ARCHIVES, is_archive
from cclp.data.user.array_files import read_npy_files
from cclp.data.user.arrays import ArrayReader
from cclp.data.user.csv_file import read_csv
from cclp.data.user.features import Extractor, extractor_for
from cclp.data.user.folder import load_folder, read_images
from cclp.data.user.tables import TableReader
from cclp.data.user.typed_tables import read_parquet, read_xlsx
from cclp.progress import Reporter

IMAGE_SIZE = 32


class Reader(Protocol):
    """Reads files of one format. All methods raise ValueError, naming the file."""

    @property
    def takes_target(self) -> bool:
        """Whether the user names the column of classes."""

    def kind(self, path: Path) -> Kind:
        """What a file holds, without reading all of it."""

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
        """Samples and labels, in the spec of a run if one is given; features of them."""

    def load_unlabeled(
        self,
        path: Path,
        target: str | None,
        report: Reporter,
        drop: Collection[str] = (),
        keep: Collection[str] = (),
        extractor: Extractor | None = None,
    ) -> Dataset:
        """Samples alone, as the first data of a training; the target is left out."""

    def read_inputs(
        self, path: Path, spec: InputSpec, report: Reporter, extractor: Extractor | None = None
    ) -> NDArray[Any]:
        """Samples alone, in the spec of a run."""


ROWS = 2**14  # of a file whose classes are predicted together

# A new format is a function that reads a file as a Table or as named arrays, and a line here.
READERS: dict[str, Reader] = {
    ".csv": TableReader(read_csv),
    ".tsv": TableReader(read_csv),
    ".csv.gz": TableReader(read_csv),
    ".tsv.gz": TableReader(read_csv),
    ".parquet": TableReader(read_parquet),
    ".xlsx": TableReader(read_xlsx),
    ".npz": ArrayReader(read_npz, npz_shapes),
    ".npy": ArrayReader(read_npy_files, npy_shapes, read_npy),
}


class Samples(NamedTuple):
    """Some samples.

    Attributes:
        places: file of each sample, and its row if the file holds several.
        x: inputs, (N, …).
    """

    places: list[tuple[str, int | None]]
    x: NDArray[Any]


def find_user_kind(path: Path) -> Kind:
    """What a path holds, without reading all of it.

    Raises:
        ValueError: if it is neither a folder nor a file of a known format.
    """
    reader = _find_reader(path)
    if path.is_dir() or (is_archive(path) and path.is_file()):
        return "images"
    if reader is None or not path.is_file():
        raise ValueError(
            f"{path} must be a folder or archive ({', '.join(ARCHIVES)}) of images, or a file "
            f"ending in {', '.join(READERS)}, but is "
            f"{'another file' if path.exists() else 'not there'}"
        )
    return reader.kind(path)


def load_user_data(
    path: Path,
    *,
    image_size: int | None = None,
    target: str | None = None,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    skip_bad: bool = False,
    features: str | None = None,
    spec: InputSpec | None = None,
    report: Reporter | None = None,
    needs_labels: bool = True,
) -> Dataset:
    """Load a user's own data.

    Args:
        path: a folder or archive of images, see :mod:`cclp.data.user.layout`; an ``.npz`` with X, y
            (−1, NaN or "" = unlabeled) and perhaps X_test, y_test; an ``.npy`` with X, beside one
            with y; a table with a column of classes, empty where unlabeled.
        image_size: height and width that images of a folder are resized to.
        target: name of a table's column of classes, also of a table of labels beside images.
        drop: columns of a table to leave out.
        keep: columns of a table to use although they look like identifiers.
        skip_bad: whether to leave out images that cannot be read.
        features: by what images, arrays or columns of text become vectors, see
            :mod:`cclp.data.user.features`; of a run, its own features named again.
        spec: of a run, that the data are brought to; None: it is found from the data.
        report: shows the progress.
        needs_labels: whether data without labels of two classes are refused; else no sample of
            them is labeled.

    Raises:
        ValueError: for data that are not as they should be, and options that do not fit them.
    """
    find_user_kind(path)
    reader, report = _find_reader(path), report or Reporter()
    if reader is not None and (image_size is not None or skip_bad):
        raise ValueError(
            f"--image-size and --skip-bad are for folders of images, {path} is none: leave them out"
        )
    if not (reader and reader.takes_target):
        tables = ", ".join(suffix for suffix, known in READERS.items() if known.takes_target)
        refuse_options(
            {
                "target": target if reader is not None else None,  # folders may hold a table
                "drop": tuple(drop),
                "keep": tuple(keep),
            },
            f"is for {tables} files, {path} is none",
        )
    extractor = extractor_for(features, spec, image_size, report)

    def load(unlabeled: bool) -> Dataset:
        if reader is not None and unlabeled:
            return reader.load_unlabeled(path, target, report, drop, keep, extractor)
        if reader is not None:
            return reader.load(path, target, spec, report, drop, keep, extractor)
        return load_folder(
            path,
            image_size=IMAGE_SIZE if image_size is None else image_size,
            skip_bad=skip_bad,
            target=target,
            spec=spec,
            report=report,
            extractor=extractor,
            unlabeled=unlabeled,
        )

    try:
        return load(unlabeled=False)
    except ValueError as error:
        if needs_labels:
            raise
        found = load(unlabeled=True)  # if it is not about the labels, this will fail too
        report.info(f"No label is taken from {path}: {error}")
        return found


def read_samples(
    paths: Sequence[Path],
    spec: InputSpec,
    *,
    skip_bad: bool,
    report: Reporter,
    features: str | None = None,
) -> Iterator[Samples]:
    """Inputs in the spec of a run, a chunk at a time; labels are not read.

    Args:
        paths: files of a known format, images, and folders and archives, of which all images are
            taken.
        spec: of the run.
        skip_bad: whether to leave out images that cannot be read.
        report: shows the progress and what is left out.
        features: of the run, named again.

    Raises:
        ValueError: for files that cannot be read or are not in the spec.
    """
    extractor = extractor_for(features, spec, report=report)
    for are_images, group in groupby(paths, lambda path: _find_reader(path) is None):
        if are_images:
            for names, x in read_images(
                list(group), spec, skip_bad=skip_bad, report=report, extractor=extractor
            ):
                yield Samples([(name, None) for name in names], x)
            continue
        for path in group:
            reader = _find_reader(path)
            assert reader is not None
            if path.exists() and not path.is_file():  # a pipe would wait for ever
                raise ValueError(f"{path} must be a file, but is another thing")
            x = reader.read_inputs(path, spec, report, extractor)
            for start in range(0, len(x), ROWS):
                part = x[start : start + ROWS]
                yield Samples([(str(path), start + row) for row in range(len(part))], part)


def _find_reader(path: Path) -> Reader | None:
    """The reader of a file's suffix; None for folders, archives and images."""
    name = path.name.lower()
    known = [reader for suffix, reader in READERS.items() if name.endswith(suffix)]
    return known[0] if known and not path.is_dir() else None
