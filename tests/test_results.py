"""Figures in the README and in docs/ are those under results/."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cclp.experiments import overhead
from cclp.experiments.tables import TABLES
from cclp.experiments.toy import circles, moons
from cclp.experiments.toy.descents import LAYOUTS, by_case, descent
from cclp.report.experiment import EXPERIMENTS
from examples.digits import NAMES
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
    content = result("digits/digits.json")
    assert len(content["seeds"]) == 3
    assert np.mean(content["errors"]["cclp"]) <= 0.6 * np.mean(content["errors"]["supervised"])
    for name, errors in content["errors"].items():
        assert len(errors) == 3
        assert f"| {NAMES[name]} | {np.mean(errors):.1%} |" in PAGES


@pytest.mark.parametrize(
    ("run", "steps"), [("mnist-100-short-9000", 9000), ("mnist-100-short", 3000)]
)
def test_mnist(run: str, steps: int) -> None:
    content = result(f"{run}/result.json")
    assert content["data_verified"]
    assert content["labels"] == 100
    assert content["recipe"]["steps"] == steps
    assert f"**{100 * content['error']:.2f} %**" in PAGES
    assert f"--seed {content['seed']}" in PAGES


def test_fast() -> None:
    errors = [result(f"time-to-accuracy/test/fast-seed{s}.json")["error"] for s in range(5)]
    assert f"{100 * np.mean(errors):.2f} % mistakes, mean of five labeled sets" in PAGES
    assert f"{', '.join(f'{100 * e:.2f}' for e in errors)} % with labeled sets 0 to 4" in PAGES


def test_fast_on_svhn() -> None:
    content = result("time-to-accuracy/svhn/fast-seed0.json")
    alone = result("table1/runs/svhn-1000-supervised-seed0/result.json")
    assert not content["data_verified"]
    assert content["recipe"] == alone["recipe"]
    assert content["recipe"]["steps"] == 7000
    assert content["environment"]["machine"]["threads"] == 1
    error, minutes = f"{100 * content['error']:.2f} %", f"{content['seconds'] / 60:.0f} minutes"
    assert (
        f"It ends at **{error}** after {minutes}; labels alone with the same net and steps end at "
        f"{100 * alone['error']:.2f} %" in PAGES
    )
    assert f"labels it makes {error} in {minutes} on one core, one labeled set, **data" in PAGES
    assert (
        "(**reconstructed from 28 × 28 copies**, so with `--no-verify`) `fast` ended at "
        f"**{error}** after {minutes} on one core: one labeled set, 7,000 steps of a small" in PAGES
    )


def test_fast_on_cifar10() -> None:
    content = result("time-to-accuracy/cifar10/fast-seed0.json")
    alone = result("table1/runs/cifar10-4000-supervised-seed0/result.json")
    assert content["data_verified"]
    assert alone["data_verified"]
    assert content["recipe"] == alone["recipe"]
    assert content["recipe"]["steps"] == 4000
    assert content["environment"]["machine"]["threads"] == 1
    minutes = f"after {content['seconds'] / 60:.0f} minutes on one core"
    error, other = (f"{100 * run['error']:.2f} %" for run in (content, alone))
    assert f"It ends at **{error}** {minutes}; labels alone" in PAGES
    assert f"with the same net and steps end at {other} ([Table 1](results.md))" in PAGES
    assert f"ended at **{error}** {minutes}: one labeled set, 4,000 steps of a small" in PAGES
    assert f"labels alone end at {other}, the paper's" in PAGES


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
        said = " | ".join(
            f"{100 * cell['mean']:.1f} ± {100 * cell['standard_deviation']:.1f}" for cell in cells
        )
        assert f"| {method} | {said} | " in PAGES


def test_comparison_on_mnist() -> None:
    content = result("compare-mnist-100/results.json")
    assert len(content["methods"]) == 10
    for row in content["methods"]:
        assert list(row["errors"]) == ["0"]
        assert f"| {row['method']} | {100 * row['mean']:.2f} |" in PAGES
    about = result("compare-mnist-100/compare.json")["config"]
    assert f"{about['recipe']['steps']} steps, one labeled set" in PAGES


def test_estimator() -> None:
    """What the text beside the tables says of digits and of time."""
    errors = result("estimator/digits.json")["result"]
    ours = errors["CCLPClassifier"]
    ratios = [
        np.mean(ours[labels])
        / min(np.mean(row[labels]) for name, row in errors.items() if "LabelSpreading" in name)
        for labels in ours
    ]
    assert all(len(values) == 10 for values in ours.values())
    below = sum(ratio <= 1 for ratio in ratios)
    assert f"below LabelSpreading's best kernel in {below} of 4" in PAGES
    assert f"and at most {max(ratios):.2f} times it" in PAGES
    seconds = result("estimator/memory.json")["result"]["digits_fit_seconds"]
    assert f"A fit on digits takes {seconds:.0f} seconds" in PAGES


def test_loop() -> None:
    content = result("training-benchmark.json")
    assert f"{content['loop_over_bare']:.2f} times the bare" in PAGES
    assert f"It takes {content['mnist_step_over_peak']:.2f} times what its convolutions" in PAGES
    assert f"the CIFAR net's {content['cifar10_step_over_peak']:.2f} times (aimed" in PAGES


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


def test_records_are_what_the_code_makes() -> None:
    """The cheapest descent, again: layout, forces and measures are those of the record."""
    case = next(case for case in circles.CASES if case.name == "large-step")
    content = result("circles/results.json")["records"][f"{case.name}/0"]
    found = descent(case, LAYOUTS[case.layout](0, case.noise))
    assert found["accuracy"] == content["accuracy"]
    for name in ("loss", "largest_class_mass", "classifier_changes_force"):
        assert found[name] == pytest.approx(content[name], rel=1e-3)
    assert found["curve"]["loss"][:3] == pytest.approx(content["curve"]["loss"][:3], abs=2e-4)


def test_the_pages_show_the_experiments() -> None:
    for path, marks, text in results.sections():
        assert f"{marks[0]}\n{text}\n{marks[1]}" in path.read_text()


@pytest.mark.parametrize("name", results.SWEEPS)
def test_sweeps(name: str) -> None:
    """What is recorded of a sweep is what its runs say."""
    content, runs = result(f"{name}/results.json"), ROOT / "results" / name / "runs"
    records = content["records"]
    assert records.keys() == {path.parent.name for path in runs.glob("*/result.json")}
    for run, record in records.items():
        found = result(f"{name}/runs/{run}/result.json")
        assert record["error"] == found["error"]
        assert record["verified"] == found["data_verified"]
        assert found["measured_on"] == ("test set" if name == "table1" else "held-out training set")
    table = TABLES[name]
    rows = list(records.values())
    assert content["claims"] == [claim._asdict() for claim in table.claims(rows)]
    text = (ROOT / "results" / name / "table.md").read_text()
    assert text == "\n".join(grid.markdown() for grid in table.grids(rows))
    assert (ROOT / "results" / name / "figure.png").is_file()
