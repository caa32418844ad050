"""The hashes of what `make` installs: ``python -m tools.hashes`` writes hashes.txt.

For every version in constraints.txt the package indexes that pip is configured for are asked for
all of its files: wheels of every system and source archives. torch is left out. Its archive and
what it depends on differ between builds (CPU, CUDA) and indexes.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion

ROOT = Path(__file__).parent.parent
CONSTRAINTS, HASHES = ROOT / "constraints.txt", ROOT / "hashes.txt"
UNHASHED = ("torch",)
_HEAD = (
    "# All files of the versions in constraints.txt. `python -m tools.hashes` writes this file.\n"
)
_LINK = re.compile(r"/([^/\s#]+)#sha256=([0-9a-f]{64})\b")


def pinned(constraints: str) -> dict[str, str]:
    """Versions by name, of packages that have hashes."""
    lines = (line for line in constraints.splitlines() if line and not line.startswith("#"))
    found = {canonicalize_name(r.name): str(r.specifier) for r in map(Requirement, lines)}
    return {n: v.removeprefix("==") for n, v in found.items() if n not in UNHASHED}


def hashes_in(log: str, versions: dict[str, str]) -> dict[str, dict[str, str]]:
    """SHA-256 by package and file, as pip has logged the links of the indexes.

    Raises:
        ValueError: if a package has no file, or one file has several hashes.
    """
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, digest in _LINK.findall(log):
        file = unquote(name)
        package, version = _parse(file)
        if versions.get(package) != version:
            continue
        if found[package].setdefault(file, digest) != digest:
            raise ValueError(f"{file} is there with the hashes {found[package][file]} and {digest}")
    if missing := sorted(versions.keys() - found.keys()):
        raise ValueError(f"no files of {', '.join(missing)}")
    return found


def _parse(file: str) -> tuple[str, str]:
    """Package and version of a distribution file; empty if it is none."""
    try:
        parsed = parse_wheel_filename(file) if file.endswith(".whl") else parse_sdist_filename(file)
    except (InvalidSdistFilename, InvalidVersion, InvalidWheelFilename):
        return "", ""
    return parsed[0], str(parsed[1])


def requirements(versions: dict[str, str], hashes: dict[str, dict[str, str]]) -> str:
    """The file for ``pip install --require-hashes -r``."""
    lines = []
    for name, version in sorted(versions.items()):
        digests = (f"--hash=sha256:{digest}" for digest in sorted(set(hashes[name].values())))
        lines.append(" \\\n    ".join([f"{name}=={version}", *digests]))
    return _HEAD + "\n".join(lines) + "\n"


def ask_pip(versions: dict[str, str]) -> str:
    """The log of pip when it looks for these versions; nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
        command = [sys.executable, "-m", "pip", "install", "-vv", "--dry-run", "--no-deps"]
        command += ["--ignore-installed", "--disable-pip-version-check", "-r", str(wanted)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Write the file."""
    versions = pinned(CONSTRAINTS.read_text())
    found = hashes_in(ask_pip(versions), versions)
    HASHES.write_text(requirements(versions, found))
    print(f"{HASHES.name}: {sum(map(len, found.values())):,} files of {len(found)} packages")


if __name__ == "__main__":
    main()
