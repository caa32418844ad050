"""Sweeps of runs: Table 1 and the ablation over S."""

import csv
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from cclp.experiments.sweep import Cell, Ended, estimate, go, steps_done, unfinished

from cclp.cli import main
from cclp.experiments import ablation, table1
from cclp.experiments.folder import read_results
from cclp.experiments.table1 import COLUMNS, PAPER, Column, Value
from cclp.experiments.tables import refresh
from cclp.experiments.tables import reproduce as make_table
from cclp.progress import Reporter
from cclp.runs.directory import Metrics
from cclp.runs.start import Stopped
from cclp.training.recipe import make_recipe
from tests.runs import last_weights, tiny_config, write_mnist


def record(error: float | None, method: str = "cclp", **changes: Any) -> dict[str, Any]:
    """What a table knows of a run with the paper's settings, or others of the recipe."""
    recipe = json.loads(json.dumps(asdict(make_recipe("paper", "mnist"))))
    made = {
        "error": error, "data": "mnist", "labels": 100, "method": method, "seed": 0,
        "precision": "32", "environment": {"machine": {"processor": "Abacus"}}, "verified": True,
    }  # fmt: skip
    for name, value in changes.items():
        (recipe if name in recipe else made)[name] = value
    return {**made, "recipe": recipe}


@pytest.fixture
def little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a little MNIST, of which 20 labels are few."""
    write_mnist(tmp_path / "data")
    for module in (table1, ablation):
        monkeypatch.setattr(module, "FEW", table1.FEW | {"mnist": 20})
    monkeypatch.setattr(ablation, "HELD_OUT", 20)
    monkeypatch.setattr(ablation, "CHAINS", (0, 1, 3))
    short = replace(make_recipe("short", "mnist"), per_class=1, unlabeled_batch=10)
    monkeypatch.setattr(table1, "make_recipe", lambda *_, **__: short)
    return tmp_path


def call(little: Path, *arguments: str, own_steps: bool = False) -> int:
    """``cclp reproduce`` on the little MNIST, two steps unless said; returns the exit code."""
    given = ["--data-dir", str(little / "data"), "--no-verify"]
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *arguments, *given, *([] if own_steps else ["--max-steps", "2"])])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_quoted_values_are_the_papers() -> None:
    ours = PAPER["CCLP"]
    assert [str(ours[column]) for column in COLUMNS] == [
        "0.75 ± 0.14", "0.32 ± 0.03", "0.46 ± 0.03", "5.69 ± 0.28", "3.04 ± 0.05", "4.26 ± 0.10",
        "18.57 ± 0.41", "8.04 ± 0.18", "9.33 ± 0.14",
    ]  # fmt: skip
    assert len(PAPER) == 17
    assert sum(map(len, PAPER.values())) == 66
    assert PAPER["VAT"][Column("svhn", "few")] == Value(6.83)


def test_runs_become_rows_beside_the_papers() -> None:
    records = [
        record(0.01, seed=0),
        record(0.02, seed=1),
        record(0.03, "supervised"),
        record(0.005, labels=60_000),
        record(0.004, "supervised", labels=60_000),
    ]
    by_name = {row.model: row for row in table1.rows(records) if row.measured}
    few, everything, alone = COLUMNS[:3]
    assert by_name["cclp"].values == {
        few: Value(1.5, 0.5**0.5, 2),
        everything: Value(0.5, None, 1),
        alone: Value(0.4, None, 1),
    }
    assert by_name["supervised"].values[few] == Value(3.0, None, 1)
    grid, beside = table1.grids(records)
    assert grid.rows[0][:4] == ("cclp, measured", "1.50 ± 0.71", "0.50", "0.40")
    assert len(grid.rows) == 2 + len(PAPER)
    assert [row[:4] for row in beside.rows] == [
        ("cclp, MNIST, 100 labels", "1.50 ± 0.71", "0.75 ± 0.14", "+0.75"),
        ("cclp, MNIST, all", "0.50", "0.32 ± 0.03", "+0.18"),
        ("supervised, MNIST, all, no SSL", "0.40", "0.46 ± 0.03", "-0.06"),
    ]
    assert [(claim.measured, claim.holds) for claim in table1.claims(records)] == [
        ("1.50 ± 0.71 against 3.00 %", True),
        ("0.50 against 0.40 %", False),
    ]
    lines = list(csv.DictReader(table1.comma_separated(records).splitlines()))
    assert lines[0] == {
        "model": "cclp", "measured": "True", "data": "mnist", "labels": "100", "ssl": "True",
        "error_percent": "1.50", "deviation": "0.707", "seeds": "2", "diverged": "0",
    }  # fmt: skip


def test_what_differs_is_said() -> None:
    fast = json.loads(json.dumps(asdict(make_recipe("fast", "mnist"))))
    different = record(0.01, verified=False) | {"recipe": fast}
    assert table1.beside([different])[0].differs == (
        "4,000 steps instead of 45,000, net mnist_small, 50 + 250 images a step instead of "
        "100 + 100, another course of the learning rate, a prior, batch norm settled, "
        "images jittered, not the published files, 1 of 10 seeds, float32 on Abacus"
    )
    assert "a prior" not in table1.beside([different | {"method": "lba"}])[0].differs
    svhn = json.loads(json.dumps(asdict(make_recipe("fast", "svhn"))))
    other = table1.beside([different | {"data": "svhn", "labels": 1000, "recipe": svhn}])[0].differs
    assert (
        "a prior, labels alone at first, batch norm settled, images jittered, recoloured" in other
    )
    same = [record(0.01, seed=seed, precision="bf16") for seed in range(10)]
    assert table1.beside(same)[0].differs == "bfloat16 on Abacus"
    everything = record(0.01, labels=60_000, steps=100)
    assert (
        "instead of 45,000 (not published for all labels)" in table1.beside([everything])[0].differs
    )


def test_diverged_runs_are_counted() -> None:
    records = [record(0.01), record(None, seed=1), record(None, "lba")]
    found = table1.values(records)
    few = COLUMNS[0]
    assert str(found["cclp", few]) == "1.00, 1 diverged"
    assert str(found["lba", few]) == "–, 1 diverged"
    assert table1.claims(records) == []
    assert "1 runs have diverged" in ablation.grids([record(0.01), record(None, seed=1)])[0].title


def test_claims_of_the_ablation() -> None:
    errors = {0: 0.09, 1: 0.02, 2: 0.019, 3: 0.018, 4: 0.017, 6: 0.0194, 10: 0.018, 20: 0.03}
    records = [
        record(error, "cclp" if s else "supervised", chain_steps=max(s, 1))
        for s, error in errors.items()
    ]
    found = ablation.claims(records)
    assert [(claim.measured, claim.holds) for claim in found] == [
        ("2.00 % with S = 1, 9.00 % without SSL", True),
        ("S = 3: -10%, S = 4: -15%, S = 6: -3%", True),
        ("3.00 % with S = 20, 1.70 % with the best of 3 to 6", True),
    ]
    flat = [record(0.02, chain_steps=s) for s in (1, 3, 4, 6, 20)]
    assert not any(claim.holds for claim in ablation.claims(flat))
    assert ablation.claims(records[:1]) == []
    (grid,) = ablation.grids(records[:2])
    assert grid.rows == [("MNIST, 100 labels", "9.00", "2.00", *["–"] * 6)]


def test_a_sweep_from_the_command_line(little: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = little / "ablation"
    assert call(little, "ablation", "--labels", "few", "--out", str(out)) == 0
    printed, told = capsys.readouterr()
    assert "page: " in printed
    assert "Run 1 of 3: mnist-20-S0-seed0 (0% of all steps done)" in told
    assert re.search(r"Run 3 of 3: mnist-20-S3-seed0 \(67% of .* done, about \d+ min left\)", told)
    records = read_results(out)["records"]
    assert list(records) == [f"mnist-20-S{s}-seed0" for s in (0, 1, 3)]
    assert (
        json.loads((out / "runs/mnist-20-S1-seed0/config.json").read_text())["config"]["held_out"]
        == 20
    )
    names = {path.name for path in out.iterdir()}
    assert names >= {"figure.png", "figure.svg", "report.html", "results.json", "table.csv"}
    assert "no SSL" in (out / "table.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")}
    assert call(little, "ablation", "--out", str(out)) == 0  # the rest: all labels
    assert all(path.stat().st_mtime_ns == then for path, then in before.items() if path.is_file())
    assert len(read_results(out)["records"]) == 6
    assert "MNIST, all labels" in (out / "report.html").read_text()


def test_other_settings_are_refused(little: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(little / "a"), "--labels", "few"]
    assert call(little, "ablation", *out) == 0
    assert call(little, "ablation", "--recipe", "paper", *out) == 2
    assert "with other settings" in capsys.readouterr().err
    assert call(little, "table1", "--data", "mnist", *out) == 2
    for wrong in (["--seeds", "0"], ["--jobs", "0"], ["--budget", "0"]):
        assert call(little, "ablation", *out, *wrong) == 2


def test_folders_of_two_machines_become_one(little: Path) -> None:
    for name, methods in (("one", "supervised"), ("two", "cclp")):
        arguments = ["--data", "mnist", "--labels", "few", "--seeds", "1", "--methods", methods]
        assert call(little, "table1", *arguments, "--out", str(little / name)) == 0
    shutil.copytree(little / "two/runs", little / "one/runs", dirs_exist_ok=True)
    with pytest.raises(SystemExit) as ended:
        main(["report", str(little / "one")])
    assert ended.value.code == 0
    content = read_results(little / "one")
    assert len(content["records"]) == 2
    assert len(content["claims"]) == 1


def test_runs_that_do_not_belong_are_refused(little: Path) -> None:
    arguments = ["--data", "mnist", "--labels", "few", "--seeds", "1", "--methods", "cclp"]
    out = little / "table"
    assert call(little, "table1", *arguments, "--out", str(out)) == 0
    run = out / "runs/mnist-20-cclp-seed0"
    run.rename(out / "runs/old")
    with pytest.raises(ValueError, match=r"old is no run of this table \(its name would be"):
        refresh(out)
    (out / "runs/old").rename(run)
    content = json.loads((run / "config.json").read_text())
    for part, value, message in (
        ({"labels": 30}, 30, "labels 30 instead of 20"),
        ({"held_out": 10}, 10, "held_out 10 instead of 0"),
        ({"data": "digits"}, "digits", "is no run of this table"),
    ):
        other = content | {"config": content["config"] | part}
        (run / "config.json").write_text(json.dumps(other))
        with pytest.raises(ValueError, match=message):
            refresh(out)
        assert value in part.values()
    (run / "config.json").write_text(json.dumps(content))
    refresh(out)
    with pytest.raises(ValueError, match="has other settings: steps 2 instead of 3"):
        list(go(table1.cells("short", 3, ["mnist"], ["few"], ["cclp"], 1), out / "runs",
                Reporter(), lambda: False))  # fmt: skip


def test_one_row_is_of_one_length(little: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["table1", "--data", "mnist", "--methods", "cclp", "--out", str(little / "t")]
    assert call(little, *arguments, "--labels", "few", "--seeds", "1") == 0
    longer = ["--max-steps", "3", "--seeds", "1", "--labels", "all"]
    assert call(little, *arguments, *longer, own_steps=True) == 0  # another column
    (little / "t/runs/mnist-all-cclp-seed0").rename(little / "gone")
    assert (
        call(little, *arguments, *longer[:2], "--labels", "few", "--seeds", "2", own_steps=True)
        == 2
    )
    assert "has other settings: steps 2 instead of 3" in capsys.readouterr().err
    data = str(little / "data")
    second = table1.cells("fast", 3, ["mnist"], ["few"], ["cclp"], 2, data, verify=False)[1:]
    list(go(second, little / "t/runs", Reporter(), lambda: False))
    with pytest.raises(ValueError, match="runs of 2 and of 3 steps for cclp, MNIST, 20 labels"):
        refresh(little / "t")


def test_a_budget_stops_it_and_the_same_command_goes_on(
    little: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["ablation", "--labels", "few", "--out", str(little / "a")]
    assert call(little, *arguments, "--budget", "1e-9") == 0
    told = capsys.readouterr().err
    assert "3 of 3 runs are left: mnist-20-S0-seed0, mnist-20-S1-seed0, " in told
    assert steps_done(little / "a/runs", Cell("mnist-20-S0-seed0", tiny_config())) < 2
    assert call(little, *arguments) == 0
    assert len(read_results(little / "a")["records"]) == 3


def test_a_dry_run_lists_and_leaves_nothing(
    little: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = little / "a"
    arguments = ["ablation", "--labels", "few", "--dry-run", "--out", str(out)]
    assert call(little, *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:2]] == [
        ["mnist-20-S0-seed0", "2", "steps"],
        ["mnist-20-S1-seed0", "2", "steps"],
    ]
    assert lines[3].startswith("3 runs, about 0.0 hours")
    assert not out.exists()


def after(steps: int) -> Callable[[], bool]:
    """Asked so many times, says stop."""
    asked = iter(range(steps))
    return lambda: next(asked, None) is None


def digits_cells(*seeds: int, steps: int = 12) -> list[Cell]:
    """Small runs."""
    return [Cell(f"seed{seed}", tiny_config(seed=seed, max_steps=steps)) for seed in seeds]


def test_estimates_know_what_is_done(tmp_path: Path) -> None:
    cells = digits_cells(0, 1, 2)
    list(go(cells[:1], tmp_path, Reporter(), lambda: False))
    (tmp_path / "seed1").mkdir()
    Metrics(tmp_path / "seed1/metrics.jsonl").add({"step": 5})
    states = [(line.state, line.minutes) for line in estimate(cells, tmp_path, Reporter())]
    assert [state for state, _ in states] == ["finished", "step 5 of 12", "12 steps"]
    assert states[0][1] == 0 < states[1][1] < states[2][1]


def test_several_at_a_time_are_the_same_runs(tmp_path: Path) -> None:
    cells = digits_cells(0, 1, 2)
    told: list[int] = []

    class Watching(Reporter):
        def work(self, what: str, total: int) -> Any:
            from contextlib import nullcontext

            assert (what, total) == ("3 runs, 2 at a time", 36)
            return nullcontext(told.append)

    ended = list(go(cells, tmp_path / "two", Watching(), lambda: False, jobs=2))
    assert sorted(e.cell.name for e in ended) == ["seed0", "seed1", "seed2"]
    assert unfinished(tmp_path / "two", cells) == []
    assert sum(told) == 36
    list(go(cells[:1], tmp_path / "one", Reporter(), lambda: False))
    results = [json.loads((tmp_path / n / "seed0/result.json").read_text()) for n in ("one", "two")]
    assert results[0]["error"] == results[1]["error"]


def test_several_at_a_time_stop_together_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cclp.experiments.sweep.POLL_SECONDS", 0.05)
    cells = digits_cells(0, 1, 2, steps=100_000)

    def some() -> bool:
        return any(steps_done(tmp_path, cell) for cell in cells)

    with pytest.raises(Stopped):
        list(go(cells, tmp_path, Reporter(), some, jobs=2))
    assert unfinished(tmp_path, cells) == cells
    assert list(tmp_path.glob("*/checkpoint/*.safetensors"))
    begun = next(cell for cell in cells if steps_done(tmp_path, cell))
    done = steps_done(tmp_path, begun)
    with pytest.raises(Stopped):
        list(go([begun], tmp_path, Reporter(), lambda: steps_done(tmp_path, begun) > done + 10))
    assert done < steps_done(tmp_path, begun) < done + 200


def test_a_run_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    wild, tame = digits_cells(0, 1)
    recipe = replace(wild.config.recipe, learning_rate=1e30)
    wild = Cell("wild", replace(wild.config, recipe=recipe))
    first, second = go([wild, tame], tmp_path, Reporter(), lambda: False)
    assert first.problem is not None
    assert "not finite" in first.problem
    assert second == Ended(tame)
    (again,) = go([wild, tame], tmp_path, Reporter(), lambda: False)  # not tried again
    assert again == first


def test_a_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    (cell,) = digits_cells(0)
    with pytest.raises(Stopped):
        list(go([cell], tmp_path / "a", Reporter(), after(8)))
    assert steps_done(tmp_path / "a", cell) == 6  # as far as it was logged
    for folder in ("a", "b"):
        list(go([cell], tmp_path / folder, Reporter(), lambda: False))
    assert last_weights(tmp_path / "a/seed0") == last_weights(tmp_path / "b/seed0")


def test_a_process_that_is_killed_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cclp.experiments.sweep._job", _die)
    with pytest.raises(ValueError, match="the process of a run was killed"):
        list(go(digits_cells(0, 1), tmp_path, Reporter(), lambda: False, jobs=2))


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_table_in_a_strange_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("thesis")
    with pytest.raises(ValueError, match="exists and is no experiment"):
        make_table("table1", [], {"recipe": "fast"}, tmp_path)
