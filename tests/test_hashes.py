"""What `make` installs: one list of versions, all of their files by hash, nothing missing."""

import re
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.hashes import CONSTRAINTS, HASHES, UNHASHED, hashes_in, pinned, requirements

PINNED = pinned(CONSTRAINTS.read_text())
SYSTEMS = {"linux": ("Linux", "posix"), "darwin": ("Darwin", "posix"), "win32": ("Windows", "nt")}
MACHINES = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("win32", "AMD64")]


def test_hashes_are_of_the_versions_in_the_constraints() -> None:
    entries = HASHES.read_text().replace("\\\n", " ").splitlines()[1:]
    found = {}
    for entry in entries:
        name, *hashes = entry.split()
        assert hashes, entry
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text) for text in hashes)
        package, version = name.split("==")
        found[package] = version
    assert found == PINNED


def test_files_are_found_in_what_pip_logs() -> None:
    one, two, three = (digit * 64 for digit in "123")
    log = f"""
  Skipping link: none of the wheel's tags (cp39): https://a.b/c/My_Lib-1.0-py3-none-any.whl#sha256={one} (from x)
  Found link https://a.b/c/my_lib-1.0.tar.gz#sha256={two} (from x), version: 1.0
  Found link https://a.b/c/my_lib-2.0.tar.gz#sha256={three} (from x), version: 2.0
  Found link https://a.b/c/my_lib-1.0.exe#sha256={three} (from x)
"""  # noqa: E501 - as pip writes
    versions = pinned("# comment\nmy-lib==1.0\ntorch==9\n")
    found = hashes_in(log, versions)
    assert found == {"my-lib": {"My_Lib-1.0-py3-none-any.whl": one, "my_lib-1.0.tar.gz": two}}
    expected = f"my-lib==1.0 \\\n    --hash=sha256:{one} \\\n    --hash=sha256:{two}\n"
    assert requirements(versions, found).endswith("\n" + expected)
    with pytest.raises(ValueError, match=r"my_lib-1.0.tar.gz is there with the hashes 222.*333"):
        hashes_in(log + f"x /my_lib-1.0.tar.gz#sha256={three}", versions)
    with pytest.raises(ValueError, match="no files of other"):
        hashes_in(log, {**versions, "other": "1"})


@pytest.mark.parametrize(("system", "machine"), MACHINES)
def test_nothing_is_missing_on_other_systems(system: str, machine: str) -> None:
    """pip is told not to look for what the packages need."""
    for python in ("3.11", "3.12", "3.13"):
        name, kind = SYSTEMS[system]
        environment = {
            "python_version": python, "python_full_version": f"{python}.1",
            "sys_platform": system, "platform_system": name, "os_name": kind,
            "platform_machine": machine,
        }  # fmt: skip
        needed = _closure({("cclp", "dev")}, environment) - {"cclp", *UNHASHED}
        assert needed <= PINNED.keys(), python


def _closure(todo: set[tuple[str, str]], environment: dict[str, str]) -> set[str]:
    """Packages that these, with their extras, need."""
    done: set[tuple[str, str]] = set()
    while todo:
        package, extra = todo.pop()
        done.add((package, extra))
        try:
            lines = distribution(package).requires or []
        except PackageNotFoundError:  # of another system: what it needs is not known here
            continue
        for requirement in map(Requirement, lines):
            marker = requirement.marker
            if marker is None or marker.evaluate({**environment, "extra": extra}):
                wanted = product([canonicalize_name(requirement.name)], ["", *requirement.extras])
                todo |= set(wanted) - done
    return {package for package, _ in done}
