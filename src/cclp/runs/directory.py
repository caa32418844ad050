"""The run directory as files: made whole, appended to, never overwritten.

All access to its files is by :class:`cclp.files.Directory`: it may come from a stranger.
"""

import hashlib
import json
import math
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cclp.data.budget import check_room
from cclp.files import DAMAGE, PARTIAL, Directory, json_bytes, parse_json

if TYPE_CHECKING:
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

LOCK = ".lock"
LARGEST_JSON = 2**26  # bytes
JSON_ROOM = 40  # bytes in memory for each byte: empty lists and objects take most
MANIFEST = r"\d{8,}\.json"  # of a checkpoint
FOLDERS = ("checkpoint", "embedding")  # inside a run directory, besides that of TensorBoard


def read_json_file(folder: Directory, name: str) -> Any:
    """What a file of JSON holds.

    Raises:
        ValueError: if it is no plain file, too large for the memory that is free, or no JSON.
        FileNotFoundError: if it is not there.
    """
    content = folder.read_bytes(name, LARGEST_JSON)
    check_room(JSON_ROOM * len(content), str(folder.path / name))
    try:
        return parse_json(content)
    except ValueError as error:
        raise ValueError(f"{folder.path / name} is damaged: {error}") from None


class Metrics:
    """``metrics.jsonl``: a line of JSON at a time, whole even if the process is killed."""

    def __init__(self, path: Path) -> None:
        self.folder, self.name = Directory(path.parent), path.name
        self._count([])

    def add(self, line: dict[str, float]) -> None:
        """Append a line; what is not finite, which JSON cannot say, becomes null."""
        plain = {name: value if math.isfinite(value) else None for name, value in line.items()}
        content = (json.dumps(plain) + "\n").encode()
        self.folder.append(self.name, content)
        self._lines += 1
        self._sha256.update(content)

    @property
    def digest(self) -> dict[str, Any]:
        """Number and SHA-256 of the lines, for a checkpoint."""
        return {"lines": self._lines, "sha256": self._sha256.hexdigest()}

    def check(self, step: int, expected: dict[str, Any]) -> None:
        """Make sure that the lines up to a checkpoint's step are those it was written after.

        Raises:
            ValueError: if one was changed or is missing.
        """
        self._count(self._lines_until(step))
        if self.digest != expected:
            raise ValueError(
                f"{self.folder.path / self.name} has changed since checkpoint {step} was written "
                f"({self._lines} lines until then, expected {expected.get('lines')}): restore it, "
                f"or remove {self.folder.path / 'checkpoint'} to begin again at step 0"
            )

    def sync(self) -> None:
        """To the disk, so that a checkpoint never outlives the lines before it."""
        if self.folder.has(self.name):
            self.folder.sync(self.name)

    def forget_after(self, step: int) -> None:
        """Drop lines of steps that will be done again, and what a crash left half-written."""
        kept = self._lines_until(step)
        if self.folder.has(self.name):
            self.folder.write_bytes(self.name, b"".join(kept))
        self._count(kept)

    def _count(self, lines: list[bytes]) -> None:
        self._lines, self._sha256 = len(lines), hashlib.sha256(b"".join(lines))

    def _lines_until(self, step: int) -> list[bytes]:
        found = []
        with suppress(FileNotFoundError):
            for line in self.folder.read_bytes(self.name).splitlines(keepends=True):
                with suppress(*DAMAGE):
                    if parse_json(line)["step"] <= step and line.endswith(b"\n"):
                        found.append(line)
        return found


def create(out: Path, about: dict[str, Any]) -> None:
    """Make the run directory with its configuration; of two processes that try, one succeeds."""
    check_new(out)
    folder = Directory(out)
    folder.make()
    try:
        folder.write_bytes("config.json", json_bytes(about), new=True)
    except FileExistsError:
        raise _never_overwritten(out) from None


def digest_of_config(out: Path) -> str:
    """SHA-256 of ``config.json``: of what a run was asked to do."""
    return hashlib.sha256(Directory(out).read_bytes("config.json")).hexdigest()


class InUse(ValueError):  # noqa: N818 - it says what is the matter
    """Another process is working in a directory."""


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold a directory for this process alone; the system releases the lock when the process ends.

    A file is locked, not the directory: NFS and Windows do not lock directories.

    Raises:
        InUse: if another process has it.
        ValueError: if its lock is no plain file.
    """
    from filelock import FileLock, Timeout  # 50 ms, and reading a run does not need it

    Directory(out).has(LOCK)  # refuses a link
    path = out / LOCK
    lock = FileLock(path, timeout=0.1, fallback_to_soft=False)  # a soft lock outlives its owner
    try:
        lock.acquire()
    except Timeout:
        raise InUse(f"{out} is in use: another process is working in it") from None
    try:
        yield
    finally:
        with suppress(OSError):  # on Windows filelock removes it, after the release
            path.unlink()
        lock.release()


def check_new(out: Path) -> None:
    """A run directory may be empty or not there yet.

    Raises:
        ValueError: if it is anything else.
    """
    if not is_unused(out):
        raise _never_overwritten(out)


def clear_partial(out: Path) -> None:
    """Remove what crashes have left half-written in a directory that this process holds."""
    Directory(out).clear_partial()
    for name in FOLDERS:
        Directory(out, name).clear_partial()


def is_unused(out: Path) -> bool:
    """Whether a directory is not there yet, or empty but for what a crash has left in it."""
    return not out.exists() or (
        out.is_dir()
        and all(name == LOCK or re.fullmatch(PARTIAL, name) for name in Directory(out).names())
    )


def _never_overwritten(out: Path) -> ValueError:
    return ValueError(
        f"{out} exists and is never overwritten: choose another --out, or resume it by "
        f"cclp train --resume {shlex.quote(str(out))}"
    )


def tensorboard(out: Path, done: int) -> "TensorBoardLogger":
    """Event files beside the other metrics; what was written after step ``done`` is forgotten."""
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

    Directory(out, "tensorboard").names()  # refuses a link
    try:
        return TensorBoardLogger(out, name="tensorboard", version="", purge_step=done + 1)
    except ModuleNotFoundError:
        raise ValueError(
            "tensorboard is not installed: pip install 'cclp[tensorboard]', or leave it out"
        ) from None
