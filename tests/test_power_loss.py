"""The power fails: what was not synced may be lost, in any combination.

Calls of the system that save checkpoints are recorded. Of every beginning of that record all disks
are made that a loss of power could leave.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from cclp.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

Names = dict[str, int | None]  # file of each name in the folder; None: the name is removed


class Event(NamedTuple):
    """What a call did: names changed, a file's data or a folder synced, or all is saved."""

    names: Names | None = None
    data: tuple[int, bytes] | None = None
    synced: str | None = None
    saved: int | None = None


def save(folder: Path, count: int) -> list[Event]:
    """Save checkpoints; returns what the calls of the system have done."""
    events: list[Event] = []
    numbers: dict[int, int] = {}
    paths: dict[int, Path] = {}  # of open files
    real = {name: getattr(os, name) for name in ("open", "fsync", "replace", "unlink")}

    def opened(path: Any, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        file: int = real["open"](path, flags, *mode, dir_fd=dir_fd)
        paths[file] = Path(path) if dir_fd is None else paths[dir_fd] / path
        if flags & os.O_CREAT:
            number = numbers[os.fstat(file).st_ino] = len(events)
            events.append(Event(names={path: number}))
        return file

    def synced(file: int) -> None:
        real["fsync"](file)
        if paths[file].is_dir():
            events.append(Event(synced=paths[file].name))
        else:
            number = numbers[os.fstat(file).st_ino]
            events.append(Event(data=(number, paths[file].read_bytes())))

    def replaced(old: str, name: str, **handles: int) -> None:
        number = numbers[os.stat(old, dir_fd=handles["src_dir_fd"]).st_ino]
        real["replace"](old, name, **handles)
        events.append(Event(names={name: number, old: None}))

    def unlinked(name: str, *, dir_fd: int) -> None:
        real["unlink"](name, dir_fd=dir_fd)
        events.append(Event(names={name: None}))

    folder.parent.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, call in zip(real, (opened, synced, replaced, unlinked), strict=True):
            patch.setattr(os, name, call)
        for step in range(1, count + 1):
            save_checkpoint(folder, Checkpoint(step, {"w": torch.full((3,), step)}, {}))
            events.append(Event(saved=step))
    return events


def disks(events: list[Event]) -> Iterator[dict[str, bytes]]:
    """All that the folder may hold if the power fails after these events."""
    safe: Names = {}
    pending: list[Names] = []
    for event in events:
        if event.names is not None:
            pending.append(event.names)
        if event.synced == "checkpoint":
            safe = {name: file for change in (safe, *pending) for name, file in change.items()}
            pending = []
    data = dict(event.data for event in events if event.data is not None)
    if not any(event.synced == "run" for event in events):
        safe, pending = {}, []  # not even the folder is there
    for kept in itertools.product((False, True), repeat=len(pending)):
        names = {**safe}
        for change in itertools.compress(pending, kept):
            names |= change
        yield {name: data.get(file, b"") for name, file in names.items() if file is not None}


def lost(events: list[Event], place: Path) -> set[int]:
    """Saved steps that a loss of power takes back."""
    found = set()
    for length in range(len(events) + 1):
        saved = max((event.saved or 0 for event in events[:length]), default=0)
        for number, disk in enumerate(disks(events[:length]) if saved else ()):
            folder = place / f"{length}-{number}" / "checkpoint"
            folder.mkdir(parents=True)
            for name, content in disk.items():
                (folder / name).write_bytes(content)
            with suppress(ValueError):  # there are some, and none is whole
                checkpoint = load_checkpoint(folder, lambda text: None)
                if checkpoint is not None and checkpoint.step >= saved:
                    continue
            found.add(saved)
    return found


def test_a_saved_checkpoint_survives_a_loss_of_power(tmp_path: Path) -> None:
    events = save(tmp_path / "run" / "checkpoint", 4)
    assert Event(names={"00000001.json": None}) in events  # the oldest was removed
    assert lost(events, tmp_path / "disks") == set()


@pytest.mark.parametrize("what", ["data", "checkpoint", "run"])
def test_without_one_of_the_syncs_it_would_not(tmp_path: Path, what: str) -> None:
    events = save(tmp_path / "run" / "checkpoint", 2)
    fewer = [e for e in events if e.synced != what and (what != "data" or e.data is None)]
    assert 1 in lost(fewer, tmp_path / "disks")
