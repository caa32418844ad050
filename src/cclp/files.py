"""Files that are whole or not there: written beside their place, then moved into it.

Folders may come from strangers: :class:`Directory` follows nothing in them.
"""

import errno
import json
import os
import re
import secrets
import stat
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LARGEST = 2**30  # bytes of a file that is read at once
PARTIAL = r"\.[\w.-]+\.([0-9a-f]{16}|\d{1,10})\.partial"  # digits: by version 0.1
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has none of these
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # for the other end of a pipe
_BINARY = getattr(os, "O_BINARY", 0)
HAS_HANDLES = {os.open, os.stat, os.unlink, os.link, os.rename} <= os.supports_dir_fd
_KINDS = {
    stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # may be half of a character
# What is raised for a value of JSON that is not as it should be.
DAMAGE = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError)


class Directory:
    """A folder whose content may be a stranger's: no link in it is followed, and only plain files
    are read or written, never pipes or devices.

    The folder itself may be reached through links: the user has named it. One inside it may not.

    Args:
        path: of the folder.
        inside: the name of a folder in it, if that one is meant.
    """

    def __init__(self, path: Path, inside: str | None = None) -> None:
        self.path = path if inside is None else path / inside
        self._is_inside = inside is not None

    def make(self) -> None:
        """Make the folder, if it is not there.

        Raises:
            ValueError: if something else is, or a link to a folder inside another.
        """
        if not self.path.exists():
            self.path.mkdir(parents=not self._is_inside, exist_ok=True)
            with suppress(PermissionError), Directory(self.path.parent)._opened() as parent:
                _sync(parent)
        with self._opened():
            pass

    def names(self, pattern: str = ".*") -> list[str]:
        """Sorted names in it that match a pattern as a whole; none if the folder is not there."""
        try:
            with self._opened() as handle:
                found = os.listdir(self.path if handle is None else handle)
        except FileNotFoundError:
            return []
        return sorted(name for name in found if re.fullmatch(pattern, name))

    def has(self, name: str) -> bool:
        """Whether there is a file of this name.

        Raises:
            ValueError: if it is no plain file.
        """
        try:
            with self._opened() as handle:
                _check_kind(self.path / name, self._stat(handle, name), stat.S_IFREG)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def read_bytes(self, name: str, most: int = LARGEST) -> bytes:
        """All of a file.

        Raises:
            ValueError: if it is no plain file, or larger than ``most`` bytes.
            FileNotFoundError: if it is not there.
        """
        path = self.path / name
        with (
            trouble_named(path),
            self._opened() as handle,
            open(self._open(handle, name, os.O_RDONLY), "rb") as file,
        ):
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise ValueError(f"{path} has {size:,} bytes: at most {most:,} are read")
            return file.read(size)

    def write_bytes(
        self,
        name: str,
        content: bytes,
        *,
        new: bool = False,
        mode: int = 0o666,
        more_to_come: bool = False,
    ) -> None:
        """Write a file so that a crash at any moment leaves the old content or the new.

        Args:
            name: of the file.
            content: all of it.
            new: whether the file must not be there yet.
            mode: its permissions, less the umask.
            more_to_come: whether its name may get to the disk with that of the next file.

        Raises:
            FileExistsError: if it is, and must not be.
        """
        partial = f".{name}.{secrets.token_hex(8)}.partial"
        with trouble_named(self.path / name), self._opened() as handle:
            try:
                made = self._open(handle, partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
                with open(made, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                (self._link if new else self._replace)(handle, partial, name)
                if not more_to_come:
                    _sync(handle)
            finally:
                with suppress(OSError):  # of a folder that cannot be written to at all
                    os.unlink(self._at(handle, partial), dir_fd=handle)

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file, which is made if it is not there.

        Raises:
            ValueError: if it is no plain file.
        """
        with trouble_named(self.path / name), self._opened() as handle:
            made, flags = not self.has(name), os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with open(self._open(handle, name, flags), "ab") as file:
                file.write(content)
            if made:
                _sync(handle)

    def sync(self, name: str) -> None:
        """What was appended to a file goes to the disk."""
        with trouble_named(self.path / name), self._opened() as handle:
            file = self._open(handle, name, os.O_WRONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def remove(self, name: str) -> None:
        """Remove a file; of a link, the link."""
        with trouble_named(self.path / name), self._opened() as handle:
            os.unlink(self._at(handle, name), dir_fd=handle)

    def clear_partial(self) -> None:
        """Remove what crashes have left half-written."""
        for name in self.names(PARTIAL):
            self.remove(name)

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        """A handle of the folder; None where the system has no functions that take one."""
        follow = 0
        if self._is_inside:
            _check_kind(self.path, os.lstat(self.path), stat.S_IFDIR)
            follow = NO_FOLLOW
        if not HAS_HANDLES:
            yield None
            return
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | follow)
        try:
            yield handle
        finally:
            os.close(handle)

    def _at(self, handle: int | None, name: str) -> str:
        return name if handle is not None else str(self.path / name)

    def _stat(self, handle: int | None, name: str) -> os.stat_result:
        return os.stat(self._at(handle, name), dir_fd=handle, follow_symlinks=False)

    def _open(self, handle: int | None, name: str, flags: int, mode: int = 0o666) -> int:
        with suppress(FileNotFoundError):
            _check_kind(self.path / name, self._stat(handle, name), stat.S_IFREG)
        flags |= NO_FOLLOW | _NO_WAIT | _BINARY
        file = os.open(self._at(handle, name), flags, mode, dir_fd=handle)
        try:  # it may have been replaced in between
            _check_kind(self.path / name, os.fstat(file), stat.S_IFREG)
        except ValueError:
            os.close(file)
            raise
        return file

    def _replace(self, handle: int | None, partial: str, name: str) -> None:
        source, place = self._at(handle, partial), self._at(handle, name)
        os.replace(source, place, src_dir_fd=handle, dst_dir_fd=handle)

    def _link(self, handle: int | None, partial: str, name: str) -> None:
        """Give a file its name; unlike a rename, never onto another's."""
        source, place = self._at(handle, partial), self._at(handle, name)
        try:
            os.link(source, place, src_dir_fd=handle, dst_dir_fd=handle)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: take the name first, then replace it
            os.close(self._open(handle, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            self._replace(handle, partial, name)


def _check_kind(path: Path, found: os.stat_result, expected: int) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != expected:
        what = _KINDS.get(kind, "a special file")
        raise ValueError(f"{path} is {what}: expected {_KINDS[expected]}")


def _sync(handle: int | None) -> None:
    """The names in a folder go to the disk, where the system can do that."""
    try:
        if handle is not None:
            os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """All of a plain file, see :meth:`Directory.read_bytes`."""
    return Directory(path.parent).read_bytes(path.name, most)


def write_bytes(path: Path, content: bytes, *, new: bool = False) -> None:
    """Write a file, whole or not at all: see :meth:`Directory.write_bytes`."""
    Directory(path.parent).write_bytes(path.name, content, new=new)


@contextmanager
def trouble_named(path: Path) -> Iterator[None]:
    """While a file is written: a full disk does not say by itself which one it was about."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_json(path: Path, content: Any, *, new: bool = False) -> None:
    """Write readable JSON; NaN and infinity, which JSON has not, are refused."""
    write_bytes(path, json_bytes(content), new=new)


def json_bytes(content: Any) -> bytes:
    """Readable JSON."""
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def parse_json(content: bytes) -> Any:
    """A value in JSON, from anywhere: text in UTF-8, whole numbers of at most 64 bits.

    Raises:
        ValueError: and nothing else, for what is none.
    """
    try:
        value = json.loads(content.decode("utf-8-sig"), parse_int=_parse_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not text in UTF-8, at byte {error.start}") from None
    if _SURROGATE.search(content):
        _check_text(value)
    return value


def _parse_integer(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= (number := int(digits)) < 2**63:
        raise ValueError(f"it holds a number of {len(digits)} digits, {digits[:8]}…")
    return number


def _check_text(value: Any) -> None:
    """Refuse halves of a character, but for those that stand for bytes in names of files."""
    try:
        json.dumps(value, ensure_ascii=False).encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("it holds an invalid code point") from None


def check_marks(path: Path, marks: tuple[str, str]) -> None:
    """Make sure that :func:`write_between` will find its place: before minutes of work for it.

    Raises:
        ValueError: if the file does not hold both marks, in this order.
    """
    text = path.read_text("utf-8") if path.is_file() else ""
    if not 0 <= text.find(marks[0]) < text.find(marks[1]):
        raise ValueError(f"{path} must hold {marks[0]!r}, then {marks[1]!r}")


def marked_page(marks: tuple[str, str]) -> Callable[[str], Path]:
    """The type of a command's argument: a page that holds these marks."""

    def read(name: str) -> Path:
        try:
            check_marks(Path(name), marks)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None
        return Path(name)

    return read


def write_between(path: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what stands between two marks of a file."""
    before, _, rest = path.read_text("utf-8").partition(marks[0])
    _, _, after = rest.partition(marks[1])
    write_bytes(path, f"{before}{marks[0]}\n{text}\n{marks[1]}{after}".encode())


def cache_root() -> Path:
    """The user's cache folder for this program; nothing in it is lost if it is removed."""
    import pooch

    return Path(pooch.os_cache("cclp"))
