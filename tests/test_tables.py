"""Table 1 and the ablation over S: what is read from runs, and the commands."""

import csv
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cclp.experiments import ablation, table1
from cclp.experiments.aggregate import Summary
from cclp.experiments.folder import read_results
from cclp.experiments.paper import COLUMNS, FEW, MODELS, PAPER, Column
from cclp.experiments.study import Cell, steps_done, train_cells
from cclp.experiments.tables import refresh
from cclp.experiments.tables import reproduce as make_table
from cclp.progress import Reporter
from cclp.training.config import Config
from cclp.training.recipe import make_recipe
from tests.command_line import call
from tests.runs import tiny_config, write_mnist

FEW_COLUMN = COLUMNS[0]
WITH_PSEUDO_LABELS = "cclp+graph_pseudo_label"


def record(
    error: float | None,
    method: str = "cclp",
    *,
    recipe: str = "paper",
    data: str = "mnist",
    all_labels: bool = False,
    max_steps: int | None = None,
    chain_steps: int | None = None,
    net: str | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """What a table knows of a run."""
    made = make_recipe(recipe, data, all_labels=all_labels)
    made = replace(made, max_steps=max_steps or made.max_steps, net=net or made.net)
    settings: Any = {} if chain_steps is None else {"cclp": {"chain_steps": chain_steps}}
    config = Config(data, made, method, settings=settings)
    return {
        "error": error, "data": data, "num_labels": None if all_labels else FEW[data],
        "method": method, "settings": config.method_settings, "seed": 0, "precision": "32",
        "recipe": made.to_json(), "decisions": {}, "verified": True,
        "seconds": None if error is None else 90.0,
        "environment": {"machine": {"processor": "Abacus"}}, **changes,
    }  # fmt: skip


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a little MNIST, of which 20 labels are few."""
    folder = tmp_path_factory.mktemp("little")
    write_mnist(folder / "data")
    short = replace(make_recipe("short", "mnist"), net="mlp", per_class=1, unlabeled_batch=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FEW, "mnist", 20)
        patch.setattr(ablation, "HELD_OUT", 20)
        patch.setattr(ablation, "CHAINS", (0, 1, 3))
        patch.setattr(table1, "make_recipe", lambda *_, **__: short)
        yield folder


def reproduce(little: Path, *arguments: str, max_steps: int = 2) -> int:
    """``cclp reproduce`` on the little MNIST; returns the exit code."""
    given = ["--data-dir", str(little / "data"), "--no-verify", "--max-steps", str(max_steps)]
    return call("reproduce", *arguments, *given)


@pytest.fixture(scope="module")
def finished_ablation(little: Path) -> Path:
    """With few labels, one seed."""
    assert reproduce(little, "ablation", "--labels", "few", "--out", str(little / "done")) == 0
    return little / "done"


@pytest.fixture(scope="module")
def finished_table(little: Path) -> Path:
    """CCLP with few labels, one seed."""
    arguments = ["--data", "mnist", "--labels", "few", "--seeds", "1", "--methods", "cclp"]
    assert reproduce(little, "table1", *arguments, "--out", str(little / "table")) == 0
    return little / "table"


def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def test_quoted_values_are_the_papers() -> None:
    ours = PAPER["CCLP"]
    assert [str(ours[column]) for column in COLUMNS] == [
        "0.75 ± 0.14", "0.32 ± 0.03", "0.46 ± 0.03", "5.69 ± 0.28", "3.04 ± 0.05", "4.26 ± 0.10",
        "18.57 ± 0.41", "8.04 ± 0.18", "9.33 ± 0.14",
    ]  # fmt: skip
    assert len(PAPER) == 17
    assert sum(map(len, PAPER.values())) == 66
    assert PAPER["VAT"][Column("svhn", "few")] == Summary(6.83)


def test_runs_become_rows_beside_the_papers() -> None:
    records = [
        record(0.01, seed=0),
        record(0.02, seed=1),
        record(0.03, "supervised"),
        record(0.005, all_labels=True),
        record(0.004, "supervised", all_labels=True),
    ]
    by_name = {row.model: row for row in table1.rows(records) if row.measured}
    few, everything, supervised = COLUMNS[:3]
    assert by_name["cclp"].values == {
        few: Summary(1.5, 0.5**0.5, 2),
        everything: Summary(0.5, None, 1),
    }
    assert by_name["supervised"].values[few] == Summary(3.0, None, 1)
    assert by_name["supervised"].values[supervised] == Summary(0.4, None, 1)
    grid, beside = table1.grids(records)
    assert grid.rows[0][:4] == (
        "cclp, measured", "1.50 ± 0.71 (45,000 steps)", "0.50 (45,000 steps)", "–",
    )  # fmt: skip
    assert len(grid.rows) == 2 + len(PAPER)
    assert [row[:4] for row in beside.rows] == [
        ("cclp, MNIST, 100 labels", "1.50 ± 0.71", "0.75 ± 0.14", "+0.75"),
        ("cclp, MNIST, all", "0.50", "0.32 ± 0.03", "+0.18"),
        ("supervised, MNIST, all, no SSL", "0.40", "0.46 ± 0.03", "-0.06"),
    ]
    assert {row[4:6] for row in beside.rows} == {("45,000", "1.5")}
    assert [(claim.measured, claim.holds) for claim in table1.claims(records)] == [
        ("1.50 ± 0.71 against 3.00 %", True),
        ("0.50 against 0.40 %", False),
    ]
    lines = list(csv.DictReader(table1.comma_separated(records).splitlines()))
    assert lines[0] == {
        "model": "cclp", "measured": "True", "data": "mnist", "num_labels": "100", "ssl": "True",
        "error_percent": "1.50", "standard_deviation": "0.707", "seeds": "2", "diverged": "0",
    }  # fmt: skip


def test_a_row_is_the_method_as_it_was_run() -> None:
    records = [record(0.02), record(0.01, WITH_PSEUDO_LABELS, recipe="fast")]
    models = [row.model for row in table1.rows(records) if row.measured]
    assert models == ["cclp", WITH_PSEUDO_LABELS]
    assert [line.row for line in table1.beside(records)] == models  # both beside CCLP's
    assert table1.beside([record(0.01, "cclp+vat")]) == []


def test_every_measured_row_of_the_paper_can_be_run() -> None:
    """All systems of Table 1, with the networks of their own papers but for our own recipe."""
    rows = [row for row in MODELS if row != "supervised"]
    assert {MODELS[row] for row in rows} == set(PAPER) - {"LBA"}  # which was run by its authors
    for data, row, net in (
        ("mnist", "improved_gan", "discriminator_mlp"), ("mnist", "bad_gan", "discriminator_mlp"),
        ("mnist", "ladder_gamma", "ladder_gamma"), ("mnist", "vat", "mnist"),
        ("svhn", "mean_teacher", "large"), ("cifar10", "pi_model", "large"),
        ("svhn", "vat_large_ent", "large"), ("svhn", "improved_gan", "svhn"),
    ):  # fmt: skip
        made = table1.cell("paper", None, data, "few", row, 0)
        assert made.config.recipe.net == net
        assert made == table1.cell_like("paper", made.config)
        assert table1.cell("fast", None, "mnist", "few", "bad_gan", 0).config.recipe.net != net
    assert table1.cell("paper", None, "svhn", "few", "vat_large_ent", 0).config.method_settings[
        "vat"
    ] == {"entropy": 1.0}


def test_vat_with_a_larger_network_is_another_row() -> None:
    with_entropy: Any = {"vat": {"entropy": 1.0}}
    records = [
        record(0.05, "vat", data="svhn"),
        record(0.04, "vat", data="svhn", net="large"),
        record(0.03, "vat", data="svhn", net="large", settings=with_entropy),
    ]
    assert [(line.row, line.paper.mean) for line in table1.beside(records)] == [
        ("vat", 6.83), ("vat_large", 5.77), ("vat_large_ent", 4.28),
    ]  # fmt: skip
    assert table1.claims(records) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "claimed"),
    [
        ({"method": "cclp"}, {"method": "lba"}, 1),
        ({"method": "cclp"}, {"method": "supervised"}, 1),
        ({"method": WITH_PSEUDO_LABELS}, {"method": "lba"}, 0),
        ({"method": WITH_PSEUDO_LABELS}, {"method": "supervised"}, 0),
        ({"method": WITH_PSEUDO_LABELS}, {"method": "graph_pseudo_label"}, 1),
        ({"method": WITH_PSEUDO_LABELS}, {"method": "graph_pseudo_label+lba"}, 1),
        ({"method": "cclp", "recipe": "short"}, {"method": "lba"}, 0),
        ({"method": "cclp", "max_steps": 9}, {"method": "lba"}, 0),
        ({"method": "cclp"}, {"method": "lba", "error": None}, 0),
    ],
)
def test_claims_need_the_same_help_on_both_sides(ours: Any, theirs: Any, claimed: int) -> None:
    records = [record(**{"error": 0.01, **ours}), record(**{"error": 0.02, **theirs})]
    assert len(table1.claims(records)) == claimed


def differs(*records: dict[str, Any]) -> str:
    (line,) = table1.beside(list(records))
    return line.differs


def test_everything_that_differs_from_the_paper_is_listed() -> None:
    assert differs(record(0.01, WITH_PSEUDO_LABELS, recipe="fast", verified=False)).split(", ") == [
        "4,000 steps instead of 45,000",
        "net mnist_small instead of mnist",
        "50 + 250 images a step instead of 100 + 100",
        "learning rate 0.004 instead of 0.001",
        "another schedule of the learning rate",
        "batch norm recalibrated",
        "pseudo-labels from a nearest-neighbour graph "
        "(weight 1; no refreshes; supervised warm-up: none)",
        "random affine augmentation (strength 1)",
        "not the published files",
        "1 of 10 seeds",
        "float32 on Abacus",
    ]
    assert "pseudo-labels" not in differs(record(0.01, "lba", recipe="fast"))
    svhn = differs(record(0.01, WITH_PSEUDO_LABELS, recipe="fast", data="svhn")).split(", ")
    for part in (
        "weight decay 0.0001 instead of 1e-06",
        "pseudo-labels from a nearest-neighbour graph "
        "(weight 1; 9 refreshes; supervised warm-up: over 20% of the steps)",
        "random affine augmentation (strength 2)",
        "color jitter and inversion",
        "cclp.weight 0.1 instead of 1",
    ):
        assert part in svhn
    skipped: Any = {"decisions": {"supervised_warmup": 0.0}}
    assert "supervised warm-up: none" in differs(
        record(0.01, WITH_PSEUDO_LABELS, recipe="fast", data="svhn", **skipped)
    )
    cifar = differs(record(0.01, WITH_PSEUDO_LABELS, recipe="fast", data="cifar10"))
    assert "horizontal flip" in cifar
    assert "cclp.weight" not in cifar  # the paper's too
    assert "cclp.chain_steps 1 instead of 3" in differs(record(0.01, chain_steps=1))


def test_of_other_papers_methods_the_protocol_is_said() -> None:
    said = differs(record(0.01, "improved_gan", recipe="short"))
    assert said.startswith("net mnist, 3,000 steps of 100 + 100 images, recipe short; ")
    assert "published by the method's authors" in said
    assert "instead of 45,000" not in said


def test_only_machine_and_precision_differ_with_the_papers_settings() -> None:
    same = [record(0.01, seed=seed, precision="bf16") for seed in range(10)]
    assert differs(*same) == "bfloat16 on Abacus"
    steps = differs(record(0.01, all_labels=True, max_steps=100))
    assert "instead of 45,000 (not published for all labels)" in steps


def test_diverged_runs_are_counted() -> None:
    records = [record(0.01), record(None, seed=1), record(None, "lba")]
    found = {row.model: row.values for row in table1.rows(records) if row.measured}
    assert str(found["cclp"][FEW_COLUMN]) == "1.00, 1 diverged"
    assert str(found["lba"][FEW_COLUMN]) == "–, 1 diverged"
    assert table1.claims(records) == []
    (row,) = ablation.grids([record(0.01), record(None, seed=1)])[0].rows
    assert row[4] == "1.00, 1 diverged"


def test_claims_of_the_ablation() -> None:
    errors = {0: 0.09, 1: 0.02, 2: 0.019, 3: 0.018, 4: 0.017, 6: 0.0194, 10: 0.018, 20: 0.03}
    records = [
        record(error, "cclp" if s else "supervised", chain_steps=s or None)
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


def test_cells_of_the_ablation() -> None:
    cells = ablation.cells("short", 7, ["mnist"], ["few"], seeds=1)
    settings = [cell.config.method_settings for cell in cells]
    assert settings[0] == {}
    assert [values["cclp"]["chain_steps"] for values in settings[1:]] == [1, 2, 3, 4, 6, 10, 20]
    assert [ablation.cell_like("short", cell.config) for cell in cells] == cells
    with pytest.raises(ValueError, match="chain_steps must be one of"):
        ablation.cell("short", None, "mnist", "few", 5, seed=0)


def test_a_study_from_the_command_line(
    little: Path, finished_ablation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = copy(finished_ablation, tmp_path)
    records = read_results(out)["records"]
    assert list(records) == [f"mnist-20-S{s}-seed0" for s in (0, 1, 3)]
    config = json.loads((out / "runs/mnist-20-S1-seed0/config.json").read_text())["config"]
    assert config["held_out"] == 20
    names = {path.name for path in out.iterdir()}
    assert names >= {"figure.png", "figure.svg", "report.html", "results.json", "table.csv"}
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")}
    assert reproduce(little, "ablation", "--out", str(out)) == 0  # the rest: all labels
    printed, messages = capsys.readouterr()
    assert "page: " in printed
    assert "Run 1 of 3: mnist-all-S0-seed0 (50% of all steps done)" in messages
    assert re.search(
        r"Run 3 of 3: mnist-all-S3-seed0 \(83% .* done, about \d+ min left\)", messages
    )
    assert all(path.stat().st_mtime_ns == then for path, then in before.items() if path.is_file())
    assert len(read_results(out)["records"]) == 6
    assert "MNIST, all labels" in (out / "report.html").read_text()


def test_other_settings_are_refused(
    little: Path, finished_ablation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(finished_ablation), "--labels", "few"]
    assert reproduce(little, "ablation", "--recipe", "paper", *out) == 2
    assert "with other settings" in capsys.readouterr().err
    assert reproduce(little, "table1", "--data", "mnist", *out) == 2
    for wrong in (["--seeds", "0"], ["--jobs", "0"], ["--budget", "0"]):
        assert reproduce(little, "ablation", *out, *wrong) == 2


def test_folders_of_two_machines_become_one(
    little: Path, finished_table: Path, tmp_path: Path
) -> None:
    one, two = copy(finished_table, tmp_path), tmp_path / "two"
    arguments = ["--data", "mnist", "--labels", "few", "--seeds", "1", "--methods", "supervised"]
    assert reproduce(little, "table1", *arguments, "--out", str(two)) == 0
    shutil.copytree(two / "runs", one / "runs", dirs_exist_ok=True)
    assert call("report", str(one)) == 0
    content = read_results(one)
    assert len(content["records"]) == 2
    assert len(content["claims"]) == 1


def test_runs_that_do_not_belong_are_refused(
    little: Path, finished_table: Path, tmp_path: Path
) -> None:
    out = copy(finished_table, tmp_path)
    run = out / "runs/mnist-20-cclp-seed0"
    run.rename(out / "runs/old")
    with pytest.raises(ValueError, match=r"old is no run of this table \(its name would be"):
        refresh(out)
    (out / "runs/old").rename(run)
    content = json.loads((run / "config.json").read_text())
    for part, message in (
        ({"num_labels": 30}, "num_labels 30 instead of 20"),
        ({"held_out": 10}, "held_out 10 instead of 0"),
        ({"settings": {"cclp": {"weight": 2.0}}}, "cclp.weight 2.0 instead of 1.0"),
        ({"data": "digits"}, "is no run of this table"),
    ):
        other = content | {"config": content["config"] | part}
        (run / "config.json").write_text(json.dumps(other))
        with pytest.raises(ValueError, match=message):
            refresh(out)
    (run / "config.json").write_text(json.dumps(content))
    refresh(out)


def test_all_runs_of_a_row_have_the_same_steps(
    little: Path, finished_table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = copy(finished_table, tmp_path)
    arguments = ["table1", "--data", "mnist", "--methods", "cclp", "--out", str(out)]
    longer = [*arguments, "--seeds", "1", "--labels", "all"]
    assert reproduce(little, *longer, max_steps=3) == 0  # another column
    assert reproduce(little, *arguments, "--labels", "few", "--seeds", "2", max_steps=3) == 2
    assert "has other settings: max_steps 2 instead of 3" in capsys.readouterr().err
    data = str(little / "data")
    second = table1.cells("paper", 3, ["mnist"], ["few"], ["cclp"], 2, data, verify=False)[1:]
    list(train_cells(second, out / "runs", Reporter()))
    with pytest.raises(ValueError, match="runs of 2 and of 3 steps for cclp, MNIST, 20 labels"):
        refresh(out)


def test_a_budget_stops_it_and_the_same_command_resumes(
    little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["ablation", "--labels", "few", "--out", str(tmp_path / "a")]
    assert reproduce(little, *arguments, "--budget", "1e-9") == 0
    messages = capsys.readouterr().err
    assert "3 of 3 runs are left: mnist-20-S0-seed0, mnist-20-S1-seed0, " in messages
    assert steps_done(tmp_path / "a/runs", Cell("mnist-20-S0-seed0", tiny_config())) < 2
    assert reproduce(little, *arguments) == 0
    assert len(read_results(tmp_path / "a")["records"]) == 3


def test_a_dry_run_lists_and_leaves_nothing(
    little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a"
    assert reproduce(little, "ablation", "--labels", "few", "--dry-run", "--out", str(out)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:2]] == [
        ["mnist-20-S0-seed0", "2", "steps"],
        ["mnist-20-S1-seed0", "2", "steps"],
    ]
    assert lines[3].startswith("3 runs, about 0.0 hours")
    assert not out.exists()


def test_a_table_in_a_strange_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("thesis")
    with pytest.raises(ValueError, match="exists and is no experiment"):
        make_table("table1", [], {"recipe": "fast"}, tmp_path)
