"""No test reaches for the network, for the user's cache, or for what the machine has installed.

No process that a test starts outlives it, or ignores Ctrl-C because the tests were started so.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cclp.data.published.fetch import Installed, Npm
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


@pytest.fixture(autouse=True)
def children_end_with_their_test() -> Iterator[None]:
    with children.ended():
        yield


@pytest.fixture(autouse=True)
def alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: Any) -> None:
        raise ConnectionError

    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("CCLP_DATA", raising=False)
    monkeypatch.setattr("cclp.data.published.fetch._download", nobody)
    for source in (Npm, Installed):
        monkeypatch.setattr(source, "get", nobody)
