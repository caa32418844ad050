"""No test reaches for the network, for the user's cache, or for what the machine has installed.

No process that a test starts outlives it, or ignores Ctrl-C because the tests were started so.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cclp.training.amx import avoid_broken_amx
from tests import children

avoid_broken_amx()  # before any test has oneDNN read its limits
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:  # children would ignore it too
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def offline_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an npm that finds no network."""
    folder = tmp_path_factory.mktemp("offline")
    (folder / "npm").write_text("#!/bin/sh\necho 'npm error network is unreachable' >&2\nexit 1\n")
    (folder / "npm").chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def children_end_with_their_test() -> Iterator[None]:
    with children.ended():
        yield


@pytest.fixture(autouse=True)
def alone(cache: Path, offline_programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("CCLP_DATA", raising=False)
    monkeypatch.setenv("PATH", str(offline_programs), prepend=os.pathsep)
    for name in ("http_proxy", "https_proxy"):  # a port where nobody listens
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")
