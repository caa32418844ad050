"""Numbers in the README and in docs/ are those under results/."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import time_to_accuracy
from cclp.experiments import overhead
from cclp.experiments.aggregate import percent
from cclp.experiments.compare import Row, markdown
from cclp.experiments.outcomes import read_outcomes
from cclp.experiments.tables import TABLES
from cclp.experiments.toy import circles, moons
from cclp.experiments.toy.descents import by_case
from cclp.report.experiment import EXPERIMENTS
from cclp.runs.record import read_config
from cclp.runs.upgrade import upgrade_result
from examples import digits
from tools import results

ROOT = Path(__file__).parent.parent
PAGES = " ".join(
    text
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for text in path.read_text().split()
)


def result(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "results" / name).read_text())
    return content


def test_digits() -> None:
    """The README shows what the demo has recorded, and the figure was made with it."""
    errors = result("digits/digits.json")["errors"]
    for found in errors.values():
        assert found.keys() == digits.WAYS.keys()
        assert {len(each) for each in found.values()} == {5}
    for row in digits.rows(errors):
        assert f"| {' | '.join(row)} |" in PAGES
    assert (ROOT / "results" / "digits" / "digits.png").is_file()


@pytest.mark.parametrize(
    ("run", "max_steps"),
    [
        ("table1-paper/runs/mnist-100-cclp-seed0", 45_000),
        ("mnist-100-short-9000", 9000),
        ("mnist-100-short", 3000),
    ],
)
def test_mnist(run: str, max_steps: int) -> None:
    content = upgrade_result(result(f"{run}/result.json"))
    assert content["data_verified"]
    assert content["num_labels"] == 100
    assert content["method"] == "cclp"
    assert content["recipe"]["max_steps"] == max_steps
    assert f"{100 * content['error']:.2f} %" in PAGES


@pytest.mark.parametrize(
    ("data", "num_labels", "max_steps"), [("svhn", 1000, 7000), ("cifar10", 4000, 4000)]
)
def test_fast(data: str, num_labels: int, max_steps: int) -> None:
    """With and without unlabeled samples the recipe is the same, and the pages show both errors."""
    ours = upgrade_result(result(f"time-to-accuracy/{data}/fast-seed0.json"))
    name = f"{data}-{num_labels}-supervised-seed0"
    supervised = upgrade_result(result(f"table1-fast/runs/{name}/result.json"))
    assert ours["data_verified"] == (data == "cifar10")
    assert ours["method"] == "cclp+graph_pseudo_label"
    assert ours["recipe"] == supervised["recipe"]
    assert ours["recipe"]["max_steps"] == max_steps
    for run in (ours, supervised):
        assert run["environment"]["machine"]["threads"] == 1
        assert f"{100 * run['error']:.2f} %" in PAGES


def test_runs_of_the_table_are_those_of_time_to_accuracy() -> None:
    for part, seeds in (("test", range(5)), ("svhn", range(1)), ("cifar10", range(1))):
        for seed in seeds:
            content = result(f"time-to-accuracy/{part}/fast-seed{seed}.json")
            data, labels = content["data"], content["labels"]
            name = f"{data}-{labels}-cclp+graph_pseudo_label-seed{seed}"
            assert result(f"table1-fast/runs/{name}/result.json")["error"] == content["error"]


def test_comparison() -> None:
    tables = {
        labels: {
            row["method"]: row for row in result(f"compare-digits-{labels}/results.json")["methods"]
        }
        for labels in (10, 50, 100)
    }
    for method in tables[50]:
        cells = [tables[labels][method] for labels in (10, 50, 100)]
        assert all(len(cell["errors"]) == 5 for cell in cells)
        shown = " | ".join(percent(cell["errors"].values()).text(digits=1) for cell in cells)
        assert f"| {method} | {shown} | " in PAGES


def test_comparison_on_mnist() -> None:
    content = result("compare-mnist-100/results.json")
    assert len(content["methods"]) == 10
    for row in content["methods"]:
        assert list(row["errors"]) == ["0"]
        assert f"| {row['method']} | {100 * row['mean']:.2f} |" in PAGES


@pytest.mark.parametrize("name", ["digits-10", "digits-50", "digits-100", "mnist-100"])
def test_tables_of_comparisons_are_made_from_their_results(name: str) -> None:
    rows = [Row.from_json(row) for row in result(f"compare-{name}/results.json")["methods"]]
    assert markdown(rows) == (ROOT / "results" / f"compare-{name}" / "results.md").read_text()


@pytest.mark.parametrize("module", [circles, moons, overhead])
def test_experiments(module: Any) -> None:
    """What is recorded of the claims follows from the records, and the figures are there."""
    name = module.__name__.split(".")[-1]
    content = result(f"{name}/results.json")
    records = content["records"]
    found = module.claims(list(records.values()) if module is overhead else by_case(records))
    assert content["claims"] == [claim._asdict() for claim in found]
    assert content["command"] == f"cclp reproduce {name} --out results/{name}"
    if module is not overhead:
        cases = {case.name: case.to_json() for case in module.CASES}
        assert content["settings"]["cases"] == cases
        assert records.keys() == {f"{case}/{seed}" for case in cases for seed in range(10)}
    for picture in EXPERIMENTS[name].captions:
        for ending in ("gif",) if picture == "animation" else ("png", "svg"):
            assert (ROOT / "results" / name / f"{picture}.{ending}").is_file()


def test_generated_blocks_of_the_pages() -> None:
    for path, marks, text in results.blocks():
        assert f"{marks[0]}\n{text}\n{marks[1]}" in path.read_text(), marks[0]


@pytest.mark.parametrize("name", results.STUDIES)
def test_studies(name: str) -> None:
    """The recorded study and its tables are made from its runs."""
    content, out = result(f"{name}/results.json"), ROOT / "results" / name
    outcomes = read_outcomes(out / "runs")
    assert content["records"] == json.loads(json.dumps(outcomes))
    for run in outcomes:
        found = upgrade_result(result(f"{name}/runs/{run}/result.json"))
        assert found["evaluated_on"] == ("held_out" if name == "ablation" else "test")
        assert found["method"] == outcomes[run]["method"]
        cell = TABLES[results.STUDIES[name]].cell_like(
            content["settings"]["recipe"], read_config(out / "runs" / run)[1]
        )
        assert cell.name == run
    table, rows = TABLES[results.STUDIES[name]], list(content["records"].values())
    assert content["claims"] == [claim._asdict() for claim in table.claims(rows)]
    text = (out / "table.md").read_text()
    assert text == "\n".join(grid.markdown() for grid in table.grids(rows))
    assert (out / "table.csv").read_text() == table.comma_separated(rows)
    assert (out / "figure.png").is_file()


def test_curves_of_time_to_accuracy_are_made_from_their_results() -> None:
    for part in time_to_accuracy.PARTS:
        folder = ROOT / "results" / "time-to-accuracy" / part
        text = time_to_accuracy.text(part, time_to_accuracy.read_results(folder))
        assert (folder / "results.md").read_text() == f"{text}\n"
