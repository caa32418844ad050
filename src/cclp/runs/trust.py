"""Whose a run is, and whether its parts belong together: a run directory may come from anyone.

A run names data outside its directory and a number of processes. A run of the user's own may: its
``config.json`` is signed (HMAC) with a key that only this user can read. Of any other run they are
used only if the user names them again.
"""

import hmac
import json
import secrets
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from cclp.data.dataset import InputSpec
from cclp.data.published.catalog import CATALOG
from cclp.data.user.features import short_name
from cclp.files import DAMAGE, Directory, cache_root
from cclp.runs.directory import MANIFEST, digest_of_config, read_json_file
from cclp.runs.upgrade import is_old
from cclp.training.config import Config
from cclp.training.processes import launched_world_size, rank

KEY = "key"  # in the user's cache
SIGNATURE = "signature"


def signed(about: dict[str, Any]) -> dict[str, Any]:
    """The content of ``config.json`` with the user's signature; without, if there can be no key."""
    try:
        return {**about, SIGNATURE: _signature(about, _make_key())}
    except OSError:
        return about


def is_own(out: Path) -> bool:
    """Whether this user has made a run, and nobody has changed its ``config.json`` since."""
    about = read_json_file(Directory(out), "config.json")
    with suppress(OSError, ValueError):
        key = Directory(cache_root()).read_bytes(KEY, 1000)
        return hmac.compare_digest(str(about.get(SIGNATURE)), _signature(about, key))
    return False


def _make_key() -> bytes:
    folder = Directory(cache_root())
    if not folder.has(KEY):
        folder.make()
        with suppress(FileExistsError):  # another process was faster
            folder.write_bytes(KEY, secrets.token_bytes(32), new=True, mode=0o600)
    return folder.read_bytes(KEY, 1000)


def _signature(about: dict[str, Any], key: bytes) -> str:
    content = json.loads(json.dumps({n: v for n, v in about.items() if n != SIGNATURE}))
    return hmac.digest(key, json.dumps(content, sort_keys=True).encode(), "sha256").hex()


def confirm_data(out: Path, config: Config, data_dir: Path | None) -> None:
    """Make sure that the place of a run's data is the user's choice.

    Args:
        out: the run directory.
        config: of the run.
        data_dir: the place that the user has named now, if any.

    Raises:
        ValueError: if the run is not the user's own, and no place is named.
    """
    _confirm(out, {"--data-dir": (_data_place(config), data_dir)})
    _confirm_labels(out, config)


def confirm_features(out: Path, spec: InputSpec, given: str | None) -> None:
    """The same for files of a pretrained model that makes a run's features.

    Args:
        out: the run directory.
        spec: of the run's samples.
        given: features that the user has named now, if any.

    Raises:
        ValueError: as :func:`confirm_data`.
    """
    name = None if spec.features is None else spec.features.name
    has_files = name is not None and short_name(name) != name
    _confirm(out, {"--features": (name if has_files else None, given)})


def confirm_training(
    out: Path,
    config: Config,
    data_dir: Path | None,
    devices: int | None,
    pseudo_label_features: Path | None,
) -> None:
    """The same for all that resuming a run uses outside it.

    Raises:
        ValueError: as :func:`confirm_data`; also if ``devices`` are not those of the run.
    """
    if devices is not None and devices != config.devices:
        raise ValueError(f"--devices {devices} is not possible: this run has {config.devices}")
    if rank() > 0:  # process 0 decides
        return
    _confirm_labels(out, config)
    several = config.devices > 1 and launched_world_size() is None
    _confirm(
        out,
        {
            "--data-dir": (_data_place(config), data_dir),
            "--devices": (str(config.devices) if several else None, devices),
            "--pseudo-label-features": (config.pseudo_label_features, pseudo_label_features),
        },
    )


def _confirm_labels(out: Path, config: Config) -> None:
    if config.labels_from is not None and not is_own(out):
        raise ValueError(
            f"{out} was not made by you here, or was changed: its labels are in "
            f"{config.labels_from}, outside its directory, which is not read"
        )


def _data_place(config: Config) -> str | None:
    return config.data_dir if config.data in CATALOG else config.data


def _confirm(out: Path, options: dict[str, tuple[str | None, object]]) -> None:
    missing = [
        part
        for flag, (recorded, given) in options.items()
        if recorded is not None and given is None
        for part in (flag, recorded)
    ]
    if missing and not is_own(out):
        raise ValueError(
            f"{out} was not made by you here, or was changed: what it names outside its directory "
            f"is used only if you name it again: add {shlex.join(missing)}"
        )


def check_config(out: Path, step: object, info: dict[str, Any]) -> None:
    """Make sure that ``config.json`` is the one that a checkpoint was made with.

    Args:
        out: the run directory.
        step: of the checkpoint.
        info: that it holds. Version 0.1 recorded no digest.

    Raises:
        ValueError: if it was changed, or if the checkpoint is another run's.
    """
    if info.get("config") == digest_of_config(out):
        return
    about = read_json_file(Directory(out), "config.json")
    if "config" not in info and is_old(about["config"]["recipe"]):
        return
    raise ValueError(
        f"{out / 'config.json'} has changed since checkpoint {step} was written, or that is of "
        "another run: restore it"
    )


def check_newest_config(out: Path) -> None:
    """The same by the newest checkpoint, if there is one, whose tensors are not read.

    Raises:
        ValueError: as :func:`check_config`.
    """
    folder = Directory(out, "checkpoint")
    for name in folder.names(MANIFEST)[::-1]:
        try:
            about = read_json_file(folder, name)
            step, info = about["step"], dict(about["info"])
        except (FileNotFoundError, *DAMAGE):
            continue  # damaged, or removed meanwhile
        check_config(out, step, info)
        return
