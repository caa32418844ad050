"""Files that are whole or not there: written beside their place, then moved into it."""

import json
import os
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def write_bytes(path: Path, content: bytes, *, new: bool = False) -> None:
    """Write a file so that a crash at any moment leaves the old content or the new.

    Args:
        path: of the file.
        content: all of it.
        new: whether the file must not be there yet.

    Raises:
        FileExistsError: if it is, and must not be.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with trouble_named(path):
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if new:
                _link(partial, path)
            else:
                partial.replace(path)
    finally:
        with suppress(OSError):  # of a folder that cannot be written to at all
            partial.unlink()


def _link(partial: Path, path: Path) -> None:
    """Give a file its name; unlike a rename, never onto another's."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: take the name first, then replace it
        path.touch(exist_ok=False)
        partial.replace(path)


@contextmanager
def trouble_named(path: Path) -> Iterator[None]:
    """While a file is written: a full disk does not say by itself which one it was about."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_json(path: Path, content: Any, *, new: bool = False) -> None:
    """Write readable JSON; NaN and infinity, which JSON has not, are refused."""
    write_bytes(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode(), new=new)


def parse_json(content: bytes) -> Any:
    """A value in JSON, from anywhere.

    Raises:
        ValueError: and nothing else, for what is none.
    """
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


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
