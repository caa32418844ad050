"""Studies: many runs, resumed, several at a time, estimated; and errors over seeds."""

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from cclp.experiments.aggregate import Summary, paired_differences, percent, summarize
from cclp.experiments.estimate import estimate
from cclp.experiments.outcomes import read_outcome, read_outcomes
from cclp.experiments.settings import differences
from cclp.experiments.study import (
    Cell,
    Ended,
    run_study,
    steps_done,
    train_cells,
    unfinished,
)
from cclp.progress import Reporter
from cclp.runs.directory import Metrics
from cclp.runs.start import Stopped
from cclp.training.config import Config
from tests.runs import Messages, last_weights, stop_after, tiny_config


def digits_cells(*seeds: int, max_steps: int = 6, **changes: Any) -> list[Cell]:
    """Small runs."""
    return [
        Cell(f"seed{seed}", tiny_config(seed=seed, max_steps=max_steps, **changes))
        for seed in seeds
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the finished run of seed 0."""
    folder = tmp_path_factory.mktemp("trained")
    (cell,) = digits_cells(0)
    assert list(train_cells([cell], folder, Reporter())) == [Ended(cell)]
    return folder


def test_errors_over_seeds() -> None:
    found = percent([0.01, None, 0.04])
    assert found == Summary(2.5, stdev([1, 4]), 2, 1)
    assert str(found) == "2.50 ± 2.12, 1 diverged"
    assert found.text(digits=1, sign="+") == "+2.5 ± 2.1"
    assert str(summarize([0.5])) == "0.50"
    nothing = summarize([None, None])
    assert math.isnan(nothing.mean)
    assert (nothing.seeds, nothing.diverged, str(nothing)) == (0, 2, "–, 2 diverged")


def test_differences_are_paired_by_seed() -> None:
    ours = {0: 0.5, 1: 0.25, 2: None, 3: 0.125}
    assert paired_differences(ours, {0: 0.25, 1: 0.5, 2: 0.5, 3: None}) == [0.25, -0.25]
    assert paired_differences(ours, {}) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ({}, {"cclp": {"weight": 1.0, "chain_steps": 3}}, ""),  # the defaults
        ({"cclp": {"weight": 0.5}}, {}, "cclp.weight 0.5 instead of 1.0"),
    ],
)
def test_settings_are_compared_with_their_defaults(ours: Any, theirs: Any, found: str) -> None:
    recipe = replace(tiny_config().recipe, settings={})
    configs = [Config("digits", recipe, settings=settings) for settings in (ours, theirs)]
    assert differences(*configs) == found
    in_recipe = Config("digits", replace(recipe, settings=ours))
    assert differences(in_recipe, configs[0]) == ""


def test_another_method_is_another_run() -> None:
    found = differences(tiny_config(method="lba"), tiny_config(seed=3))
    assert found == "method lba instead of cclp, seed 0 instead of 3"


def test_records_hold_what_a_table_needs(trained: Path) -> None:
    (record,) = read_outcomes(trained).values()
    result = json.loads((trained / "seed0/result.json").read_text())
    config = tiny_config()
    for name in ("error", "seconds", "environment", "decisions", "precision"):
        assert record[name] == result[name]
    assert (record["method"], record["seed"], record["num_labels"]) == ("cclp", 0, 30)
    assert record["settings"] == config.method_settings
    assert record["recipe"]["max_steps"] == 6
    assert record["problem"] is None


def test_estimates_know_what_is_done(trained: Path) -> None:
    cells = digits_cells(0, 1, 2)
    folder = trained / "seed1"
    folder.mkdir()
    Metrics(folder / "metrics.jsonl").add({"step": 5})
    states = [(line.state, line.minutes) for line in estimate(cells, trained, Reporter())]
    assert [state for state, _ in states] == ["finished", "step 5 of 6", "6 steps"]
    assert states[0][1] == 0 < states[1][1] < states[2][1]


def test_finished_runs_with_other_settings_are_refused(trained: Path) -> None:
    with pytest.raises(ValueError, match="has other settings: max_steps 6 instead of 7"):
        list(train_cells(digits_cells(0, max_steps=7), trained, Reporter()))


def test_results_are_written_first_and_after_each_run(trained: Path) -> None:
    calls = iter(range(10))
    report = Messages()
    found = run_study(digits_cells(0), trained, report, lambda: False, lambda: next(calls))
    assert found == 0  # nothing was left to train
    with pytest.raises(Stopped):
        run_study(digits_cells(0, 7), trained, report, lambda: True, lambda: next(calls))
    assert report.warnings == ["1 of 2 runs are left: seed7."]


def test_several_at_a_time_are_the_same_runs(trained: Path, tmp_path: Path) -> None:
    cells = digits_cells(0, 1, 2)
    shown: list[int] = []

    class Watching(Reporter):
        def work(self, what: str, total: int | None) -> Any:
            assert (what, total) == ("3 runs, 2 at a time", 18)
            return nullcontext(shown.append)

    ended = list(train_cells(cells, tmp_path, Watching(), jobs=2))
    assert sorted(e.cell.name for e in ended) == ["seed0", "seed1", "seed2"]
    assert unfinished(tmp_path, cells) == []
    assert sum(shown) == 18
    results = [json.loads((path / "seed0/result.json").read_text()) for path in (trained, tmp_path)]
    assert results[0]["error"] == results[1]["error"]


def test_several_at_a_time_stop_together_and_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cclp.experiments.jobs.POLL_SECONDS", 0.05)
    cells = digits_cells(0, 1, 2, max_steps=100_000)

    def some() -> bool:
        return any(steps_done(tmp_path, cell) for cell in cells)

    with pytest.raises(Stopped):
        list(train_cells(cells, tmp_path, Reporter(), some, jobs=2))
    assert unfinished(tmp_path, cells) == cells
    assert list(tmp_path.glob("*/checkpoint/*.safetensors"))
    begun = next(cell for cell in cells if steps_done(tmp_path, cell))
    done = steps_done(tmp_path, begun)
    with pytest.raises(Stopped):
        list(train_cells([begun], tmp_path, Reporter(), stop_after(10)))
    assert done < steps_done(tmp_path, begun) <= done + 30


def test_a_run_that_diverges_does_not_stop_the_others(trained: Path) -> None:
    (tame,) = digits_cells(0)
    recipe = replace(tame.config.recipe, learning_rate=1e30)
    wild = Cell("wild", replace(tame.config, recipe=recipe))
    (first,) = train_cells([wild, tame], trained, Reporter())
    assert first.problem is not None
    assert "not finite" in first.problem
    (again,) = train_cells([wild, tame], trained, Reporter())  # not tried again
    assert again == first
    record = read_outcome(trained / "wild")
    assert record is not None
    assert (record["error"], record["seconds"], record["problem"]) == (None, None, first.problem)
    assert record["recipe"]["learning_rate"] == 1e30


def test_a_stopped_run_is_resumed(trained: Path, tmp_path: Path) -> None:
    (cell,) = digits_cells(0)
    with pytest.raises(Stopped):
        list(train_cells([cell], tmp_path, Reporter(), stop_after(5)))
    assert read_outcome(tmp_path / "seed0") is None
    list(train_cells([cell], tmp_path, Reporter()))
    assert last_weights(tmp_path / "seed0") == last_weights(trained / "seed0")


def test_a_process_that_is_killed_is_named(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import os, signal\n"
        "from cclp.methods.base import Method\n"
        "class Killed(Method):\n"
        "    def __init__(self, num_classes): super().__init__()\n"
        "    def forward(self, step): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    cells = digits_cells(0, 1, method=f"{own}:Killed")
    with pytest.raises(ValueError, match="the process of a run was killed"):
        list(train_cells(cells, tmp_path, Reporter(), jobs=2))
