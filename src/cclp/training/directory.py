"""The run directory as files: made whole, appended to, never overwritten."""

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from lightning_fabric.loggers.tensorboard import TensorBoardLogger

from cclp.files import write_bytes, write_json


class Metrics:
    """``metrics.jsonl``: a line of JSON at a time, whole even if the process is killed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, line: dict[str, float]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

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
        for line in self.path.read_text().splitlines(keepends=True):
            try:
                if json.loads(line)["step"] > step or not line.endswith("\n"):
                    break
            except (ValueError, KeyError, TypeError):
                break
            kept.append(line)
        write_bytes(self.path, "".join(kept).encode())


def create(out: Path, about: dict[str, Any]) -> None:
    """Make the run directory with its configuration in it, or nothing at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    partial.mkdir()
    try:
        write_json(partial / "config.json", about)
        partial.rename(out)  # onto an empty directory or none
    except OSError:
        shutil.rmtree(partial)
        if out.exists():  # somebody else was faster
            raise _never_overwritten(out) from None
        raise


def check_new(out: Path) -> None:
    """A run directory may be empty or not there yet.

    Raises:
        ValueError: if it is anything else.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise _never_overwritten(out)


def _never_overwritten(out: Path) -> ValueError:
    return ValueError(
        f"{out} exists and is never overwritten: choose another --out, or go on with it by "
        f"cclp train --resume {shlex.quote(str(out))}"
    )


def tensorboard(out: Path, done: int) -> TensorBoardLogger:
    """Event files beside the other metrics; what was written after step ``done`` is forgotten."""
    try:
        return TensorBoardLogger(out, name="tensorboard", version="", purge_step=done + 1)
    except ModuleNotFoundError:
        raise ValueError(
            "tensorboard is not installed: pip install 'cclp[tensorboard]', or leave it out"
        ) from None
