"""Compressed content, read up to a limit: a small file can be made to fill the memory."""

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO

from cclp.data.budget import Budget, check_room

_CHUNK = 2**20
_LONGEST_NAME = 2**16  # bytes, with all that a tar file says of a member
_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
          tarfile.SOLARIS_XHDTYPE)  # fmt: skip


def read_limited(budget: Budget, read: Callable[[int], bytes], name: str = "it") -> bytes:
    """All that a decompressor gives.

    Args:
        budget: of the file.
        read: returns at most so many decompressed bytes, none at the end.
        name: for the message.

    Raises:
        ValueError: if it is more than the budget.
    """
    content = io.BytesIO()  # gives its bytes away without a copy
    while part := read(_CHUNK):
        budget.take(len(part), name)
        content.write(part)
    return content.getvalue()


def read_content(path: Path) -> bytes:
    """All of a file, unpacked if it begins as gzipped files do.

    Raises:
        ValueError: if it is damaged, naming the file.
    """
    with path.open("rb") as file:
        packed = path.stat().st_size
        if file.read(2) != b"\x1f\x8b":
            check_room(packed, str(path))
            file.seek(0)
            return file.read()
        file.seek(0)
        try:
            with gzip.GzipFile(fileobj=file) as unpacked:
                return read_limited(Budget(packed), unpacked.read)
        except (EOFError, OSError, ValueError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error})") from None


def inflate(packed: memoryview, budget: Budget) -> bytes:
    """What zlib has compressed.

    Raises:
        ValueError: if it ends early, or is more than the budget.
        zlib.error: if it is damaged.
    """
    stream, content = zlib.decompressobj(), io.BytesIO()
    for start in range(0, len(packed), _CHUNK // 16):
        left = bytes(packed[start : start + _CHUNK // 16])
        while left and not stream.eof:
            part = stream.decompress(left, _CHUNK)
            budget.take(len(part))
            content.write(part)
            left = stream.unconsumed_tail
    content.write(stream.flush())
    if not stream.eof:
        raise ValueError("a compressed element ends early")
    return content.getvalue()


def open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    """A member of a zip file, for reading by parts.

    Raises:
        ValueError: if it is compressed by bzip2 or LZMA: zipfile unpacks all of a part that it has
            read, however much that is.
    """
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        kind = zipfile.compressor_names.get(member.compress_type, member.compress_type)  # type: ignore[attr-defined]
        raise ValueError(
            f"{member.filename!r:.80} in it is compressed by {kind}: expected deflate, which zip "
            "programs use by default"
        )
    return archive.open(member)


class TarMember(tarfile.TarInfo):
    """A member of a tar file, whose names are of bounded length, and which has no list of gaps:
    tarfile reads both at once.
    """

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Is made to be overridden, as tarfile says."""
        if self.type in _NAMES and self.size > _LONGEST_NAME:
            raise tarfile.ReadError(f"a name in it has {self.size:,} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse()
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member

    def _proc_gnusparse_10(self, *_: object) -> None:
        """Would read the places of all gaps: a gigabyte of zeros is a list of 20."""
        raise _sparse()


def _sparse() -> tarfile.ReadError:
    return tarfile.ReadError("a file in it is stored with gaps: pack it without --sparse")


def unpack_tar(path: Path, members: Collection[str], to: Path) -> None:
    """Unpack the files of these names, from any folder of the archive, into one folder.

    Folders and links of the archive are not made.

    Raises:
        ValueError: if they unpack to too much.
    """
    budget = Budget(path.stat().st_size)
    with tarfile.open(path, tarinfo=TarMember) as archive:
        for member in archive:
            name = Path(member.name).name
            content = archive.extractfile(member) if name in members and member.isfile() else None
            if content is not None:
                (to / name).write_bytes(read_limited(budget, content.read, name))
