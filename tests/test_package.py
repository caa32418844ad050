"""What a newcomer meets first: a cheap import, names that exist, a demo that runs."""

import subprocess
import sys

import pytest

import cclp


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_is_lazy() -> None:
    assert "torch" not in modules_after("import cclp")
    loaded = modules_after("import cclp; cclp.CCLPLoss; cclp.graph_health")
    assert "torch" in loaded
    assert loaded.isdisjoint({"scipy", "sklearn", "matplotlib", "lightning_fabric"})


def test_a_page_loads_neither_torch_nor_fabric() -> None:
    loaded = modules_after("import cclp.cli, cclp.report.page, cclp.experiments.folder")
    assert loaded.isdisjoint({"torch", "lightning_fabric"})


def test_public_names() -> None:
    for name in cclp.__all__:
        assert getattr(cclp, name).__doc__
        assert name in dir(cclp)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = cclp.nonsense
