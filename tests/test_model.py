"""``cclp.fit``: from files to a model in one line of Python."""

import json
from pathlib import Path
from typing import Any

import pytest

import cclp
from tests.runs import own_folder, own_table


def test_fit_predict_report_save_and_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own_table(tmp_path / "t.csv")
    model = cclp.fit(tmp_path / "t.csv", target="kind", max_steps=40, verbose=False)
    assert capsys.readouterr().err == ""
    assert model.classes == ("no", "yes")
    assert model.verdict is not None
    assert f"2 classes, error {model.verdict.row(model.verdict.chosen).error:.1%}" in repr(model)
    (tmp_path / "new.csv").write_text("colour,amount\nred,0\nblue,6\n")
    found = model.predict(tmp_path / "new.csv")
    assert [p.label for p in found] == ["no", "yes"]
    assert [p.row for p in model.predict([str(tmp_path / "new.csv")])] == [0, 1]
    assert all(abs(sum(p.probabilities) - 1) < 1e-5 for p in found)
    page = model.report(tmp_path / "page.html")
    assert model.verdict.sentences[1][:20] in page.read_text()
    saved = model.save(tmp_path / "saved")
    exported = model.export(tmp_path / "hub")
    assert {p.name for p in exported.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    where = model.run
    del model  # and with it the temporary run
    assert not where.exists()
    again = cclp.Model(saved)
    assert again.predict(tmp_path / "new.csv") == [
        p._replace(probabilities=p.probabilities) for p in found
    ]
    with pytest.raises(ValueError, match="saved"):
        again.save(saved)


def test_fit_keeps_a_run_where_it_is_told(tmp_path: Path) -> None:
    photos = own_folder(tmp_path / "photos")
    options: dict[str, Any] = {"image_size": 8, "per_class": 2, "unlabeled_batch": 4}
    model = cclp.fit(
        photos, method="cclp", max_steps=2, out=tmp_path / "run", verbose=False, **options
    )
    assert model.verdict is None
    assert model.run == tmp_path / "run"
    assert json.loads((model.run / "config.json").read_text())["config"]["method"] == "cclp"
    with pytest.raises(ValueError, match="run"):
        cclp.fit(photos, out=tmp_path / "run", verbose=False)
    with pytest.raises(ValueError, match=r"no such option of cclp train.*image_sise"):
        cclp.fit(photos, image_sise=8, verbose=False)
    own_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="name the column of classes"):
        cclp.fit(tmp_path / "t.csv", verbose=False)
