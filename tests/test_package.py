"""What a newcomer meets first: a cheap import, names that exist, a demo that runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cclp
from examples import moons


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_is_lazy() -> None:
    assert "torch" not in modules_after("import cclp")
    loaded = modules_after("import cclp; cclp.CCLPLoss; cclp.graph_health")
    assert "torch" in loaded
    assert loaded.isdisjoint({"scipy", "sklearn", "matplotlib", "lightning_fabric"})


def test_public_names() -> None:
    for name in cclp.__all__:
        assert getattr(cclp, name).__doc__
        assert name in dir(cclp)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = cclp.nonsense


def test_two_moons_become_two_compact_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["moons.py", "--out", str(tmp_path)])
    monkeypatch.setattr(moons, "ITERATIONS", 150)
    moons.main()
    frames = json.loads((tmp_path / "moons.json").read_text())["frames"]
    assert frames[0]["nearest_accuracy"] < 0.5
    assert frames[-1]["nearest_accuracy"] == 1.0
    assert frames[-1]["loss"] < 5.2  # the ideal is 4.61, the start 24.7
    assert (tmp_path / "moons.png").read_bytes().startswith(b"\x89PNG")
    assert "ln(N/C) = 4.605" in capsys.readouterr().out
