"""A software bill of materials beside a wheel, as CycloneDX 1.6: what it needs, and so on.

Versions and licenses are those of this environment, which the tests run in, on this system. What
only extras need has the scope "optional"; it has no version if it is not installed here.

    python -m tools.sbom dist/cclp-0.2-py3-none-any.whl
"""

import hashlib
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cclp.files import write_json

DEVELOPMENT = "dev"  # the extra that users do not need
LONGEST = 100  # characters of a license's name; some have the whole text there


def bill_of_materials(wheel: Path) -> dict[str, Any]:
    """The content of the file."""
    (package,) = distributions(path=[str(wheel)])
    extras = set(package.metadata.get_all("Provides-Extra") or []) - {DEVELOPMENT}
    required, everything = _closure(package, set()), _closure(package, extras)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    main = _component(package.name, package) | {"hashes": [{"alg": "SHA-256", "content": sha256}]}
    others = {name: _component(name, _installed(name)) for name in sorted(everything)}
    del others[package.name]
    for name, part in others.items():
        part["scope"] = "required" if name in required else "optional"
    refs = {package.name: main["bom-ref"], **{n: part["bom-ref"] for n, part in others.items()}}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": main},
        "components": list(others.values()),
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(refs[needed] for needed in everything[name])}
            for name, ref in refs.items()
        ],
    }


def _closure(package: Distribution, extras: set[str]) -> dict[str, set[str]]:
    """Names of all that a package needs, directly or not, each with what it needs itself."""
    found: dict[str, set[str]] = {}
    seen: dict[str, set[str]] = {}
    to_do: list[tuple[str, Distribution | None, set[str]]] = [(package.name, package, extras)]
    while to_do:
        name, dist, extras = to_do.pop()
        if name in found and extras <= seen[name]:
            continue
        seen[name] = seen.get(name, set()) | extras
        needed = found.setdefault(name, set())
        for line in (dist.requires if dist else None) or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": e}) for e in {"", *seen[name]}):
                continue
            other = canonicalize_name(requirement.name)
            if other != name:  # an extra that is made of others
                needed.add(other)
                to_do.append((other, _installed(other), requirement.extras))
    return found


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _component(name: str, dist: Distribution | None) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}" + (f"@{quote(dist.version, safe='')}" if dist else "")
    known = {"version": dist.version, "licenses": _licenses(dist)} if dist else {}
    return {"type": "library", "bom-ref": purl, "name": name, **known, "purl": purl}


def _licenses(dist: Distribution) -> list[dict[str, Any]]:
    if expression := dist.metadata["License-Expression"]:
        return [{"expression": expression}]
    classifiers = dist.metadata.get_all("Classifier") or []
    names = [c.split(" :: ")[-1] for c in classifiers if c.startswith("License :: ")]
    text = (dist.metadata["License"] or "").strip()
    if not names and 0 < len(text) <= LONGEST and "\n" not in text:
        names = [text]
    return [{"license": {"name": name}} for name in names]


if __name__ == "__main__":
    for wheel in map(Path, sys.argv[1:]):
        write_json(
            wheel.with_name(f"{wheel.name.split('-py3')[0]}.cdx.json"), bill_of_materials(wheel)
        )
