"""Comparisons: fair, resumable, and their figures are those of the runs."""

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from cclp.experiments.compare import Row, compare, markdown
from cclp.runs.start import Stopped
from cclp.training.config import Config
from tests.command_line import call
from tests.runs import Messages, stop_after, tiny_config

METHODS = ["supervised", "cclp", "entropy"]
COMMAND = ["compare", "digits", "--num-labels", "20", "--max-steps", "6", "--quiet"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compare") / "out"
    compare(tiny_config(max_steps=6), METHODS, [3, 4], out)
    return out


def result(run: Path) -> dict[str, float]:
    content: dict[str, float] = json.loads((run / "result.json").read_text())
    return content


def test_figures_are_those_of_the_runs(done: Path) -> None:
    content = json.loads((done / "results.json").read_text())
    assert content["environment"]["machine"]["cores"] > 0
    table = content["methods"]
    assert [row["method"] for row in table] == METHODS
    errors = {
        method: [result(done / "runs" / f"{method}-seed{seed}")["error"] for seed in (3, 4)]
        for method in METHODS
    }
    for row in table:
        mine = errors[row["method"]]
        assert list(row["errors"]) == ["3", "4"]
        assert row["mean"] == pytest.approx(statistics.fmean(mine))
        assert row["standard_deviation"] == pytest.approx(statistics.stdev(mine))
        if row["method"] == "cclp":
            assert row["to_cclp"] is None
        else:
            paired = [a - b for a, b in zip(mine, errors["cclp"], strict=True)]
            assert row["to_cclp"] == pytest.approx(statistics.fmean(paired))
            assert row["to_cclp_standard_deviation"] == pytest.approx(statistics.stdev(paired))
    assert table[0]["steps_relative_to_supervised"] == 1
    assert (done / "figure.png").read_bytes().startswith(b"\x89PNG")
    lines = (done / "results.md").read_text().splitlines()
    best = min(table, key=lambda row: row["mean"])
    assert lines[2].startswith(f"| {best['method']} | {100 * best['mean']:.2f} ± ")


def test_runs_differ_in_method_and_seed_only(done: Path) -> None:
    abouts = {
        path.name: json.loads((path / "config.json").read_text())
        for path in (done / "runs").iterdir()
    }
    assert len(abouts) == 6
    assert abouts["cclp-seed3"]["labeled"] == abouts["entropy-seed3"]["labeled"]
    assert abouts["cclp-seed3"]["labeled"] != abouts["cclp-seed4"]["labeled"]
    kept = [{**about["config"], "method": 0, "seed": 0} for about in abouts.values()]
    assert all(config == kept[0] for config in kept)


def test_a_stopped_comparison_ends_as_an_undisturbed_one(done: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = tiny_config(max_steps=6)
    for steps in (3, 8):
        with pytest.raises(Stopped):
            compare(config, METHODS, [3, 4], out, should_stop=stop_after(steps))
    compare(config, METHODS, [3, 4], out)
    stopped, whole = (
        json.loads((path / "results.json").read_text())["methods"] for path in (out, done)
    )
    assert [row["errors"] for row in stopped] == [row["errors"] for row in whole]
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}
    compare(config, METHODS, [3, 4], out)  # nothing is left to do
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}


def test_other_settings_need_another_directory(done: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds a comparison with other settings"):
        compare(tiny_config(max_steps=7), METHODS, [3], done)
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(ValueError, match="exists and is no comparison"):
        compare(tiny_config(max_steps=6), METHODS, [3], tmp_path)
    with pytest.raises(ValueError, match="methods must be different"):
        compare(tiny_config(max_steps=6), ["cclp", "cclp"], [3], tmp_path / "new")


def as_version_0_1(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration under the names that version 0.1 recorded."""
    recipe = dict(config["recipe"])
    of_cclp = {"weight": 1.0, "chain_steps": 3, **recipe.pop("settings")["cclp"]}
    del recipe["method"]
    renamed = {
        "steps": recipe.pop("max_steps"),
        "settle": recipe.pop("recalibrate_batchnorm"),
        "jitter": recipe.pop("random_affine"),
        "recolour": recipe.pop("color_jitter"),
        "mirror": recipe.pop("horizontal_flip"),
    }
    old = {**config, "recipe": {**recipe, **renamed, **of_cclp, "prior": 0.0}, "weights": {}}
    old["labels"], old["label"] = old.pop("num_labels"), old.pop("target")
    del old["settings"], old["pseudo_label_features"]
    return old


def test_a_comparison_of_version_0_1_is_resumed(done: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(done, out)
    for path in (out / "compare.json", out / "runs" / "cclp-seed3" / "config.json"):
        about = json.loads(path.read_text())
        path.write_text(json.dumps({**about, "config": as_version_0_1(about["config"])}))
    shutil.rmtree(out / "runs" / "cclp-seed4")
    rows = compare(tiny_config(max_steps=6), METHODS, [3, 4], out)
    recorded = json.loads((done / "results.json").read_text())["methods"]
    assert [row.errors for row in rows] == [Row.from_json(row).errors for row in recorded]


def test_a_method_that_diverges_is_a_result(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from cclp.methods.base import Method\n"
        "class Bang(Method):\n"
        "    def __init__(self, num_classes): super().__init__()\n"
        "    def forward(self, step): return {'bang': step.logits.sum() * float('nan')}\n"
    )
    bang = f"{own}:Bang"
    for _ in range(2):  # resuming it does not end there either
        report = Messages()
        rows = compare(tiny_config(max_steps=2), [bang, "cclp"], [3], tmp_path / "out", report)
        assert rows[0].errors == {3: None}
        assert isinstance(rows[1].errors[3], float)
        assert "bang = nan" in " ".join(report.warnings)
        assert (
            f"| {bang} | – | 0, 1 diverged | – | – |"
            in (tmp_path / "out" / "results.md").read_text()
        )


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    methods = ["--methods", "supervised,cclp+entropy", "--weight", "entropy=0.2"]
    assert call(*COMMAND, *methods, "--seeds", "1", "--out", str(out)) == 0
    printed = capsys.readouterr().out
    assert "| cclp+entropy | " in printed
    assert printed.endswith(f"comparison: {out}\n")
    config = json.loads((out / "runs" / "cclp+entropy-seed0" / "config.json").read_text())["config"]
    assert config["recipe"]["settings"]["entropy"] == {"weight": 0.2}
    assert config["evaluate_every"] == 6
    plain = json.loads((out / "runs" / "supervised-seed0" / "config.json").read_text())["config"]
    assert plain["settings"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--methods cclp,vta", "method must be one of"),
        ("--methods cclp --weight vat=1", "must name a method of cclp, got vat"),
        ("--methods cclp --weight 1", "must name a method of cclp, got none"),
        ("--methods cclp --setting vat.xi=1", "must name a method of cclp, got vat"),
        ("--methods cclp --weight cclp=much", "must be a number or METHOD=number"),
        ("--seeds 0", "seeds must be at least 1, got 0"),
        ("--jobs 0", "jobs must be at least 1, got 0"),
    ],
)
def test_mistakes(
    arguments: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("compare", "digits", *arguments.split()) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("given", "recipe"), [("", "short"), ("--recipe fast", "fast")])
def test_methods_are_those_named_and_not_the_recipes(
    given: str, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def record(config: Config, methods: list[str], _: Any, out: Path, *rest: Any) -> None:
        asked.extend([config.recipe.name, methods, rest[-1]])
        out.mkdir()
        (out / "results.md").touch()

    monkeypatch.setattr("cclp.experiments.compare.compare", record)
    out = ["--jobs", "3", "--out", str(tmp_path / "out")]
    assert call("compare", "mnist", "--methods", "supervised,cclp", *given.split(), *out) == 0
    assert asked == [recipe, ["supervised", "cclp"], 3]


def test_what_is_not_known_is_a_dash() -> None:
    assert markdown([Row("vat", {})]).splitlines()[2] == "| vat | – | 0 | – | – |"
