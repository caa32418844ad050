"""What is released works without the repository."""

import hashlib
import json
import os
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import cclp
from tests import children

ROOT = Path(__file__).parent.parent
COMMANDS = """
import contextlib, cclp
from cclp.cli import main
print(cclp.__file__, flush=True)
for line in (
    "--version",
    "train digits --max-steps 10 --num-labels 20 --per-class 2 --unlabeled-batch 20 --out run",
    "report run",
):
    with contextlib.suppress(SystemExit):
        main(line.split())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    children.run(build, cwd=ROOT, check=True)
    return out


def test_the_wheel_trains_without_the_repository(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"cclp-{cclp.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
        names = archive.namelist()
    assert all(name.startswith(("cclp/", "cclp-")) for name in names)

    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-c", COMMANDS]
    done = children.run(command, cwd=tmp_path, env=environment, check=True)
    where, version, error, page = done.stdout.splitlines()
    assert where.startswith(str(tmp_path / "installed"))
    assert version.split()[-1] == cclp.__version__
    assert error.startswith("error ")
    assert "run/report.html" in page


def test_the_source_archive_holds_what_the_tests_need(built: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    for needed in (
        "LICENSE",
        "README.md",
        "Makefile",
        "constraints.txt",
        "hashes.txt",
        "mkdocs.yml",
    ):
        assert needed in names
    assert any(name.startswith("results/") for name in names)
    assert {str(p.relative_to(ROOT)) for p in (ROOT / "tests").glob("*.py")} <= names


def test_the_bill_of_materials_names_what_the_wheel_needs(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    children.run([sys.executable, "-m", "tools.sbom", str(wheel)], cwd=ROOT, check=True)
    bill = json.loads((built / f"cclp-{cclp.__version__}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")

    package = bill["metadata"]["component"]
    assert (package["name"], package["version"]) == ("cclp", cclp.__version__)
    assert package["licenses"] == [{"expression": "MIT"}]
    assert package["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()

    parts = {part["name"]: part for part in bill["components"]}
    scopes = {name: part["scope"] for name, part in parts.items()}
    assert {"torch", "numpy", "safetensors", "sympy"} <= {
        n for n, s in scopes.items() if s == "required"
    }
    assert {"starlette", "faiss-cpu", "pyarrow", "timm"} <= {
        n for n, s in scopes.items() if s == "optional"
    }
    assert scopes.keys().isdisjoint({"cclp", "pytest", "ruff", "mypy"})
    assert parts["pillow"]["version"] == version("pillow")
    assert parts["pillow"]["purl"] == f"pkg:pypi/pillow@{version('pillow')}"
    assert parts["pillow"]["licenses"]

    references = [package["bom-ref"], *(part["bom-ref"] for part in parts.values())]
    needs = {row["ref"]: set(row["dependsOn"]) for row in bill["dependencies"]}
    assert list(needs) == references
    assert len(needs) == len(references)
    assert set().union(*needs.values()) == set(references[1:])
    assert parts["mpmath"]["bom-ref"] in needs[parts["sympy"]["bom-ref"]]
