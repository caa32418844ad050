"""The run directory as files: made whole, appended to, never overwritten."""

import json
import math
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cclp.files import parse_json, trouble_named, write_bytes, write_json

if TYPE_CHECKING:
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

LOCK = ".lock"
_PARTIAL = ".partial"


class Metrics:
    """``metrics.jsonl``: a line of JSON at a time, whole even if the process is killed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, line: dict[str, float]) -> None:
        """Append a line; what is not finite, which JSON cannot say, becomes null."""
        plain = {name: value if math.isfinite(value) else None for name, value in line.items()}
        with trouble_named(self.path), self.path.open("a") as file:
            file.write(json.dumps(plain) + "\n")

    def sync(self) -> None:
        """To the disk, so that a checkpoint never outlives the lines before it."""
        if self.path.exists():
            with self.path.open("a") as file:
                os.fsync(file.fileno())

    def forget_after(self, step: int) -> None:
        """Drop lines of steps that will be done again, and what a crash left half-written."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_bytes().splitlines(keepends=True):
            try:
                if parse_json(line)["step"] <= step and line.endswith(b"\n"):
                    kept.append(line)
            except (ValueError, KeyError, TypeError):
                continue
        write_bytes(self.path, b"".join(kept))


def create(out: Path, about: dict[str, Any]) -> None:
    """Make the run directory with its configuration; of two processes that try, one succeeds."""
    check_new(out)
    out.mkdir(parents=True, exist_ok=True)
    try:
        write_json(out / "config.json", about, new=True)
    except FileExistsError:
        raise _never_overwritten(out) from None


class InUse(ValueError):  # noqa: N818 - it says what is the matter
    """Another process is working in a directory."""


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold a directory for this process alone; the system releases the lock when the process ends.

    A file is locked, not the directory: NFS and Windows do not lock directories.

    Raises:
        InUse: if another process has it.
    """
    from filelock import FileLock, Timeout  # 50 ms, and reading a run does not need it

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
    for path in out.rglob(f".*{_PARTIAL}"):
        path.unlink()


def is_unused(out: Path) -> bool:
    """Whether a directory is not there yet, or empty but for what a crash has left in it."""
    return not out.exists() or (
        out.is_dir() and all(path.suffix == _PARTIAL or path.name == LOCK for path in out.iterdir())
    )


def _never_overwritten(out: Path) -> ValueError:
    return ValueError(
        f"{out} exists and is never overwritten: choose another --out, or resume it by "
        f"cclp train --resume {shlex.quote(str(out))}"
    )


def tensorboard(out: Path, done: int) -> "TensorBoardLogger":
    """Event files beside the other metrics; what was written after step ``done`` is forgotten."""
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

    try:
        return TensorBoardLogger(out, name="tensorboard", version="", purge_step=done + 1)
    except ModuleNotFoundError:
        raise ValueError(
            "tensorboard is not installed: pip install 'cclp[tensorboard]', or leave it out"
        ) from None
