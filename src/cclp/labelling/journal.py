"""An append-only file of JSON lines: each is on the disk before anybody hears of it."""

import errno
import json
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from cclp.files import DAMAGE, Directory, parse_json, trouble_named
from cclp.runs.directory import InUse, locked

NAME = "decisions.jsonl"
FORMAT = 1
_LARGEST = 2**32  # bytes


class Journal:
    """Decisions on the disk, in the order in which they were taken.

    One process at a time may open it. A line that a crash has torn is dropped when the file is
    opened again: nobody was told that it was there.

    Args:
        folder: that holds the file; it is made if it is not there.

    Raises:
        ValueError: if another process has it, or a line that is not the last is damaged.

    Attributes:
        entries: that were there.
    """

    def __init__(self, folder: Path) -> None:
        place = Directory(folder)
        place.make()
        self.path = folder / NAME
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(folder))
            except InUse:
                raise InUse(
                    f"{folder} is in use: another cclp label is open on it. Close that one, or "
                    "use its page"
                ) from None
            if not place.has(NAME):
                place.write_bytes(NAME, b"")
            content = place.read_bytes(NAME, _LARGEST)
            self.entries, self._size = _read(content, self.path)
            self._file = os.open(self.path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
            stack.callback(os.close, self._file)
            self._torn = len(content) > self._size
            self._closing = stack.pop_all()

    def append(self, entry: dict[str, Any]) -> None:
        """Add a line, and return when it is on the disk.

        Raises:
            OSError: if it cannot be written, as on a full disk. Then it is as if nobody had tried.
        """
        line = (json.dumps(entry, allow_nan=False, separators=(",", ":")) + "\n").encode()
        with trouble_named(self.path):
            if self._torn:
                os.ftruncate(self._file, self._size)
                self._torn = False
            try:
                self._write(line)
                os.fsync(self._file)
            except BaseException:
                self._torn = True  # and cut off before the next line at the latest
                with suppress(OSError):
                    os.ftruncate(self._file, self._size)
                    os.fsync(self._file)
                    self._torn = False
                raise
        self._size += len(line)

    def close(self) -> None:
        """Let another process open it."""
        self._closing.close()

    def _write(self, line: bytes) -> None:
        os.lseek(self._file, self._size, os.SEEK_SET)
        left = memoryview(line)
        while left:
            written = os.write(self._file, left)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left = left[written:]


def _read(content: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """Whole lines, and how many bytes they are."""
    entries, size = [], 0
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("it does not end")
            entry = parse_json(line)
            if not isinstance(entry, dict):
                raise TypeError("it is no object")
        except DAMAGE as error:
            if number == len(lines) - 1:
                break
            raise ValueError(f"{path}, line {number + 1} is damaged: {error}") from None
        entries.append(entry)
        size += len(line)
    return entries, size
