"""What is asked of the machine."""

import os
import platform
import sys
from pathlib import Path

import pytest

from cclp.files import cache_root
from cclp.training.amx import LIMITS, WITHOUT_AMX, limit_broken_amx, try_product
from tests import children

KEPT = """
import os
import numpy as np
from cclp.training.memory import keep_memory

def given_back():
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    x = np.ones(16_000_000, np.float32)
    before = resident()
    del x
    return before - resident()

print(given_back())
keep_memory()
given_back()
print(given_back())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_memory_of_large_arrays_is_kept() -> None:
    done = children.run([sys.executable, "-c", KEPT], check=True)
    without, kept = map(int, done.stdout.split())
    assert without > 60e6
    assert kept < 1e6


class Trial:
    """Answers instead of a process, and counts how often it is asked."""

    def __init__(self, answer: bool) -> None:
        self.answer, self.asked = answer, 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.answer


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no limit of oneDNN."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in LIMITS:
        monkeypatch.setenv(name, "")  # so that it is restored, whoever changes it
        monkeypatch.delenv(name)
    return cache_root()


@pytest.mark.parametrize("runs", [True, False])
def test_amx_is_limited_where_it_crashes(own_cache: Path, runs: bool) -> None:
    trial = Trial(runs)
    limit_broken_amx(trial)
    expected = None if runs else WITHOUT_AMX
    assert os.environ.get(LIMITS[0]) == expected
    os.environ.pop(LIMITS[0], None)
    limit_broken_amx(trial)  # as the next process does
    assert os.environ.get(LIMITS[0]) == expected
    assert trial.asked == 1
    (record,) = own_cache.glob("amx-*.json")
    for damage in (b"", b"{", b"7"):
        record.write_bytes(damage)
        os.environ.pop(LIMITS[0], None)
        limit_broken_amx(trial)
        assert os.environ.get(LIMITS[0]) == expected
    assert trial.asked == 4


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_of_the_users_own_is_kept(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "AVX2")
    trial = Trial(False)
    limit_broken_amx(trial)
    assert {n: os.environ.get(n) for n in LIMITS} == {
        n: "AVX2" if n == name else None for n in LIMITS
    }
    assert trial.asked == 0


def test_a_cache_that_cannot_be_written_costs_a_trial_only(own_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    trial = Trial(False)
    for asked in (1, 2):
        os.environ.pop(LIMITS[0], None)
        limit_broken_amx(trial)
        assert (os.environ[LIMITS[0]], trial.asked) == (WITHOUT_AMX, asked)


def test_a_trial_survives_a_crash() -> None:
    assert try_product("")
    assert not try_product("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
