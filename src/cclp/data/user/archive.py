"""Archives of images: unpacked once, into the user's cache, and never outside of it."""

import errno
import gzip
import hashlib
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, NamedTuple

from cclp.data.budget import Budget
from cclp.data.unpack import TarMember, open_member
from cclp.data.user.images import is_visible
from cclp.files import cache_root, trouble_named
from cclp.progress import Reporter

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_DAMAGED = (
    EOFError, IndexError, KeyError, NotImplementedError, OverflowError, RuntimeError, ValueError,
    lzma.LZMAError, struct.error, tarfile.TarError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_ODD_NAME = (errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOTDIR)
_BLOCK = 4096  # what a file takes on a disk, at least
_CHUNK = 2**20
_SECONDS_UNTIL_STALE = 24 * 3600


class Member(NamedTuple):
    """A file of an archive.

    Attributes:
        name: with its folders.
        content: opened for reading.
        read_to: how far the archive has been read by its end, in bytes.
    """

    name: str
    content: IO[bytes]
    read_to: int


def is_archive(path: Path) -> bool:
    """Whether a file has the suffix of an archive."""
    return path.name.lower().endswith(ARCHIVES) and not path.is_dir()


def archive_stem(path: Path) -> str:
    """The name of an archive without its suffix."""
    suffix = next(suffix for suffix in ARCHIVES if path.name.lower().endswith(suffix))
    return path.name[: -len(suffix)]


def unpacked(path: Path, report: Reporter) -> Path:
    """The folder in the user's cache with the files of an archive, unpacked the first time only.

    Hidden files are left out.

    Args:
        path: of the archive.
        report: shows the progress.

    Raises:
        ValueError: if it is damaged or encrypted, if it holds links, devices or names outside of
            its folder, or if it would unpack to too much.
    """
    if not path.is_file():
        raise ValueError(f"{path} must be an archive of images, but is not there")
    place = cache_root() / "unpacked"
    place.mkdir(parents=True, exist_ok=True)
    about = path.stat()
    kind = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
    version = f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}"
    folder = place / f"{kind}-{hashlib.sha256(version.encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        _unpack_to(folder, path, report)
        _clear(place, kind, keep=folder.name)
    return folder


def _unpack_to(folder: Path, path: Path, report: Reporter) -> None:
    """Make a folder with all files of an archive, or none."""
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
    packed = path.stat().st_size
    try:
        with (
            _damage_named(path),
            report.work(f"unpacking {path.name}", packed) as advance,
        ):
            room = _Room(packed, partial)
            done = 0
            for member in _members(path, room):
                _write(partial, member, room)
                advance(member.read_to - done)
                done = member.read_to
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class _Room:
    """How many bytes an archive may still unpack to."""

    def __init__(self, packed: int, place: Path) -> None:
        free = shutil.disk_usage(place).free
        self.limit = Budget(packed).limit
        self.left = min(self.limit, free)
        self.reason = f"more than {self.limit:,} bytes"
        if free < self.limit:
            self.reason = f"more than the {free:,} bytes that are free in {place.parent}"

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ValueError(f"it unpacks to {self.reason}")


class _Limited:
    """A stream that is read up to a limit: skipping what is compressed costs time, too."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self.stream, self.left, self.limit = stream, limit, limit

    def read(self, size: int) -> bytes:
        content = self.stream.read(size)
        self.left -= len(content)
        if self.left < 0:
            raise ValueError(f"it unpacks to more than {self.limit:,} bytes")
        return content


def _members(path: Path, room: _Room) -> Iterator[Member]:
    """The files of an archive, in its order."""
    if path.name.lower().endswith(".zip"):
        yield from _members_of_zip(path)
    else:
        yield from _members_of_tar(path, room)


def _members_of_zip(path: Path) -> Iterator[Member]:
    done = 0
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            done += info.compress_size
            name = info.filename.replace("\\", "/")
            mode = stat.S_IFMT(info.external_attr >> 16)
            if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refuse_special(name)
            if name.endswith("/") or not _is_wanted(name):
                continue
            with open_member(archive, info) as content:
                yield Member(name, content, done)


def _members_of_tar(path: Path, room: _Room) -> Iterator[Member]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"  # programs that fetch a .tar.gz may unpack it
        file.seek(0)
        stream: IO[bytes] = gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[assignment]
        limited = _Limited(stream, room.limit)
        # As a stream: from front to back, each byte once.
        with tarfile.open(fileobj=limited, mode="r|", bufsize=_CHUNK, tarinfo=TarMember) as archive:  # type: ignore[call-overload]
            for info in archive:
                name = info.name
                if info.isdir() or not _is_wanted(name):
                    continue
                if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise _refuse_special(name)
                content = archive.extractfile(info)
                assert content is not None
                yield Member(name, content, file.tell())


def _is_wanted(name: str) -> bool:
    """Whether a file is unpacked.

    Raises:
        ValueError: if it would lie outside of the folder.
    """
    parts = PurePosixPath(name).parts
    if ".." in parts or name.startswith("/") or PureWindowsPath(name).drive or "\0" in name:
        raise ValueError(f"it holds {name!r}, which would lie outside of its folder")
    return bool(parts) and all(map(is_visible, parts))


def _refuse_special(name: str) -> ValueError:
    return ValueError(f"it holds {name!r}, a link or device: pack the files themselves")


def _write(folder: Path, member: Member, room: _Room) -> None:
    target = folder.joinpath(*PurePosixPath(member.name).parts)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file = target.open("wb")
    except OSError as error:
        if error.errno in _ODD_NAME:
            raise ValueError(f"it holds {member.name[:200]!r}, which cannot be a file") from None
        raise
    size = 0
    with file:
        while content := member.content.read(_CHUNK):
            room.take(len(content))
            size += len(content)
            with trouble_named(target):
                file.write(content)
    room.take(max(0, _BLOCK - size))  # many empty files fill a disk, too


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Give all kinds of damage one form; trouble with the disk stays what it is."""
    try:
        yield
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # EINVAL: a place before the beginning
        raise ValueError(
            f"{path} cannot be unpacked: {str(error) or type(error).__name__}"
        ) from None


def _clear(place: Path, kind: str, keep: str) -> None:
    """Remove what older versions of the archive held, and leftovers of killed processes."""
    for folder in place.iterdir():
        older = folder.name.startswith(f"{kind}-") and folder.name != keep
        stale = False
        if folder.name.startswith(".partial-"):
            with suppress(FileNotFoundError):  # another process has finished
                stale = folder.stat().st_mtime < time.time() - _SECONDS_UNTIL_STALE
        if older or stale:
            shutil.rmtree(folder, ignore_errors=True)
