"""Checkpoints: weights and optimizer in safetensors, the rest and a hash in JSON beside it.

The JSON file is written last: a checkpoint without one was never finished and is passed over.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cclp.data.budget import check_room
from cclp.files import DAMAGE, Directory, json_bytes, parse_json
from cclp.runs.directory import MANIFEST

KEPT = 2
_COPIES = 3  # of the tensors: in a row, as bytes each, as one file; there safetensors would abort
LARGEST = 2**34  # bytes of the tensors
_OWN = r"\d{8,}\.(json|safetensors)"


class Checkpoint(NamedTuple):
    """The state after ``step`` steps.

    Attributes:
        step: how many are done.
        tensors: weights, buffers and the optimizer's state, by name.
        info: plain values.
    """

    step: int
    tensors: dict[str, Tensor]
    info: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, then remove all but it and the one before.

    Raises:
        FloatingPointError: if a tensor holds a number that is not finite. Nothing is written.
        NoRoom, MemoryError: if there is no memory for it. What is there stays.
    """
    what = f"the checkpoint of step {checkpoint.step}"
    check_room(_COPIES * sum(tensor.nbytes for tensor in checkpoint.tensors.values()), what)
    try:
        _save(folder, checkpoint)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "allocate" in str(error):  # torch's is the latter
            raise MemoryError(f"there is no memory for {what}") from None
        raise


def _save(folder: Path, checkpoint: Checkpoint) -> None:
    for name, tensor in checkpoint.tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise FloatingPointError(f"{name} is not finite after step {checkpoint.step}")
    content = save({name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()})
    files, stem = _open(folder), f"{checkpoint.step:08d}"
    files.make()
    files.write_bytes(f"{stem}.safetensors", content, more_to_come=True)
    about = {
        "step": checkpoint.step,
        "sha256": _digest(checkpoint.step, checkpoint.info, content),
        "info": checkpoint.info,
    }
    files.write_bytes(f"{stem}.json", json_bytes(about))
    # A later one is damaged, or this one would not be written again; the rest crashes left behind.
    finished = [name for name in files.names(MANIFEST) if Path(name).stem <= stem]
    kept = {Path(name).stem for name in finished[-KEPT:]}
    for name in files.names(_OWN):
        if Path(name).stem not in kept:
            files.remove(name)


def load_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None if there never was one.

    Args:
        folder: of the checkpoints.
        warn: called with a sentence for each damaged one.

    Raises:
        ValueError: if there are checkpoints and all are damaged.
        PermissionError: if the newest may not be read.
    """
    files = _open(folder)
    found = [Path(name).stem for name in files.names(MANIFEST)][::-1]
    for stem in found:
        try:
            return _read(files, stem)
        except PermissionError:  # not damaged: nobody should remove it
            raise
        except (OSError, *DAMAGE, SafetensorError) as error:
            warn(f"Checkpoint {stem} is damaged ({error}); falling back to the one before.")
    if found:
        raise ValueError(
            f"no checkpoint in {folder} can be read; remove that folder to begin again at step 0"
        )
    return None


def does_not_fit(out: Path, checkpoint: Checkpoint, error: Exception) -> ValueError:
    """What to say if a run's checkpoint cannot be put into its network; torch says it in pages."""
    reason = " ".join(str(error).split())[:200]
    return ValueError(f"{out}: checkpoint {checkpoint.step} does not fit this network: {reason}")


def _open(folder: Path) -> Directory:
    return Directory(folder.parent, folder.name)


def _read(files: Directory, stem: str) -> Checkpoint:
    about = parse_json(files.read_bytes(f"{stem}.json"))
    step, info = about["step"], about["info"]
    content = files.read_bytes(f"{stem}.safetensors", LARGEST)
    found, expected = _digest(step, info, content), str(about["sha256"])
    if found != expected:
        raise ValueError(f"SHA-256 is {found[:12]}…, expected {expected[:12]}…")
    return Checkpoint(int(step), load(content), dict(info))


def _digest(step: int, info: dict[str, Any], content: bytes) -> str:
    """SHA-256 of all that is in a checkpoint."""
    digest = hashlib.sha256(content)
    digest.update(json.dumps([step, info], sort_keys=True).encode())
    return digest.hexdigest()
