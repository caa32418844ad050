"""Published data on this machine: found, fetched if missing, verified, loaded.

Files are looked for, and put when they are fetched, in ``--data-dir``, else in the folder that the
environment variable ``CCLP_DATA`` names, else in the user's cache.
"""

import os
from pathlib import Path
from typing import NamedTuple

from cclp.data.dataset import Dataset, InputSpec
from cclp.data.published.catalog import CATALOG, Entry, get_entry
from cclp.data.published.fetch import content_hash, fetch
from cclp.data.unpack import read_content
from cclp.files import cache_root
from cclp.progress import Reporter


class FileState(NamedTuple):
    """A file of a data set on this machine.

    Attributes:
        name: under which it is published.
        path: where it is.
        expected: hash of the published content.
        found: hash of this content, or the reason why it has none.
    """

    name: str
    path: Path
    expected: str
    found: str


def data_root(data_dir: Path | None) -> Path:
    """The folder that published files are in, or are fetched to."""
    if data_dir is None and os.environ.get("CCLP_DATA"):
        data_dir = Path(os.environ["CCLP_DATA"])
    return data_dir if data_dir is not None else cache_root()


def load_published(
    name: str,
    data_dir: Path | None = None,
    *,
    verify: bool = True,
    fetch: bool = True,
    report: Reporter | None = None,
) -> Dataset:
    """Load a data set of the catalog, and fetch the files that are missing.

    Args:
        name: of the data set.
        data_dir: folder of the files; None: see :func:`data_root`.
        verify: whether every file must be the published one, bit for bit. If not, the data set
            records whether they are.
        fetch: whether to fetch what is missing; or to refuse.
        report: shows what is fetched.

    Raises:
        ValueError: for an unknown name, files that cannot be fetched, and files that are not the
            published ones or cannot be parsed.
    """
    entry = get_entry(name)
    if fetch:
        fetch_published(name, data_dir, report)
    contents, verified = {}, True
    for file, expected in entry.files.items():
        path = _find_here(entry, name, file, data_dir)
        state, content = _inspect(path, file, expected)
        if state.found != expected:
            verified = False
            if verify or not content:
                raise ValueError(_not_published(state, name))
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
    """Fetch the missing files of a data set; returns the names of the sources that had them.

    A file that is there is never replaced, right or wrong.

    Raises:
        ValueError: if a file cannot be fetched, with the reason of each source.
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
    """Compare the files of a data set on this machine with the published hashes.

    Raises:
        ValueError: if one is missing or is not the published one.
    """
    entry, found = get_entry(name), []
    for file, expected in entry.files.items():
        path = _find_here(entry, name, file, data_dir)
        state = _inspect(path, file, expected)[0]
        if state.found != expected:
            raise ValueError(_not_published(state, name))
        found.append(state)
    return found


def location(name: str, data_dir: Path | None = None) -> Path | None:
    """The folder of a data set's files if all are there; they are not verified."""
    entry, root = get_entry(name), data_root(data_dir)
    paths = [_find(entry, name, file, root) for file in entry.files]
    return paths[0].parent if paths and paths[0] is not None and None not in paths else None


def _not_published(state: FileState, name: str) -> str:
    """The message for a file that is not the published one."""
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


def _find_here(entry: Entry, name: str, file: str, data_dir: Path | None) -> Path:
    path = _find(entry, name, file, data_root(data_dir))
    if path is None:
        raise ValueError(
            f"{name}: no {file} in {data_root(data_dir)}: run 'cclp data fetch {name}', or name "
            "another folder with --data-dir"
        )
    return path


def _find(entry: Entry, name: str, file: str, root: Path) -> Path | None:
    """The file, raw or gzipped, where this or another tool puts it, or in the root itself."""
    for folder in (root / name, *(root / folder for folder in entry.folders), root):
        for path in (folder / file, folder / f"{file}.gz"):
            if path.is_file() and not (folder == root and _belongs_to_another(path, name, file)):
                return path
    return None


def _belongs_to_another(path: Path, name: str, file: str) -> bool:
    """Whether a file belongs to another data set: MNIST and Fashion-MNIST use the same names."""
    others = {e.files[file] for other, e in CATALOG.items() if other != name and file in e.files}
    return any(_inspect(path, file, expected)[0].found == expected for expected in others)
