"""Compressed content, read up to a limit: a small file can be made to fill the memory."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path


def unpack_limit(packed: int) -> int:
    """To how many bytes so many compressed ones may unpack: a gigabyte, or a hundred times as many.

    What compresses better is no data.
    """
    return max(2**30, 100 * packed)


def read_limited(
    packed: int, read: Callable[[int], bytes], *, before: int = 0, name: str = "it"
) -> bytes:
    """All that a decompressor gives.

    Args:
        packed: size of the compressed file in bytes.
        read: returns at most so many decompressed bytes.
        before: bytes that were read from the same file already.
        name: for the message.

    Raises:
        ValueError: if it is more than :func:`unpack_limit`.
    """
    limit = unpack_limit(packed)
    content = read(limit - before + 1)
    if before + len(content) > limit:
        raise ValueError(f"{name} unpacks to more than {limit:,} bytes")
    return content


def read_content(path: Path) -> bytes:
    """All of a file, unpacked if it begins as gzipped files do.

    Raises:
        ValueError: if it is damaged, naming the file.
    """
    content = path.read_bytes()
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return read_limited(len(content), file.read)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} is a damaged gzip file ({error})") from None


def unpack_tar(path: Path, members: Collection[str], to: Path) -> None:
    """Unpack the files of these names, from any folder of the archive, into one folder.

    Folders and links of the archive are not made.

    Raises:
        ValueError: if one unpacks to too much.
    """
    packed = path.stat().st_size
    with tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name).name
            content = archive.extractfile(member) if name in members and member.isfile() else None
            if content is not None:
                (to / name).write_bytes(read_limited(packed, content.read, name=name))
