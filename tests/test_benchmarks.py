"""The benchmarks measure what they claim to measure; test_results.py compares the pages."""

import argparse
import json
import sys
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks import (
    added,
    committee,
    estimator,
    graph,
    image_size,
    imbalance,
    lab,
    large,
    many_classes,
    methods,
    preparation,
    pseudo_labels,
    scaling,
    soak,
    sparse,
    startup,
    threads,
    time_to_accuracy,
    training,
)
from benchmarks import loss as benchmark
from benchmarks.rows import Rows
from cclp.experiments.overhead import CLASSES, embeddings
from cclp.progress import Reporter
from cclp.sklearn import CCLPClassifier
from cclp.threads import SPINS, WAITING
from tests import children
from tests.runs import tiny_config

ROOT = Path(__file__).parent.parent


def test_transcription_is_the_same_loss() -> None:
    z_labeled, labels, z_unlabeled = embeddings(60)
    torch.testing.assert_close(
        benchmark.ours(z_labeled, labels, z_unlabeled),
        benchmark.transcription(z_labeled, labels, z_unlabeled),
        rtol=1e-5,
        atol=0,
    )


def test_peak_counts_what_is_held_at_once() -> None:
    def call() -> None:
        a = torch.empty(250_000)
        b = torch.empty(250_000)
        del a, b
        torch.empty(250_000)

    assert benchmark.peak_bytes(call) == pytest.approx(2e6, rel=0.01)


def test_measures_every_figure() -> None:
    result = benchmark.measure((40, 200), seconds=0)
    assert [row["n"] for row in result["loss"]] == [40, 200]
    row = result["loss"][1]
    times = row["milliseconds"]
    assert row["over_floor"] == pytest.approx(times["ours"] / times["floor"])
    assert len(benchmark.markdown(result).splitlines()) == 4


def test_pseudo_labels_are_counted(tmp_path: Path) -> None:
    pixels, hog, idm = pseudo_labels.measure("digits", 50, 1, None, tmp_path)
    for other in (hog, idm):  # of tiny images pixels are compared in any case
        assert other["accuracy"] == pytest.approx(pixels["accuracy"], abs=2e-3)
    assert 0.7 < pixels["accuracy"][0] < 1
    assert pixels["leave_one_out"][0][1] == 50


def test_many_classes_are_measured_on_test_samples() -> None:
    X, y, X_test, truth = many_classes.gaussians(6, 5, 0)
    assert [len(part) for part in (X, y, X_test, truth)] == [30, 30, 60, 60]
    assert np.bincount(y[y >= 0]).tolist() == [2] * 6
    row = many_classes.measure(6, "supervised", 0, 5)
    assert 0 <= row["error"] < 0.5
    rows = [{**row, "classes": 100, "error": 0.1 * k} for k in (1, 2)]
    assert many_classes.table(rows).splitlines()[2].startswith("| 100 | `supervised` | 15.0 ± ")


def test_a_soak_samples_the_process() -> None:
    samples = soak.soak(10)
    assert [sample.step for sample in samples] == list(range(1, 11))
    first = samples[0]
    grown = first._replace(step=2, resident=2 * first.resident, files=first.files + 1)
    assert soak.problems([first, first]) == []
    assert len(soak.problems([first, grown])) == 2


def test_a_method_costs_a_step_of_its_own_and_the_networks_it_has() -> None:
    plain, gan = (methods.cost(name, 1) for name in ("entropy", "improved_gan"))
    assert (plain["net"], plain["own_parameters"]) == ("mnist", 0)
    # two hidden layers of 500 with batch norm, from 100 numbers to 784 pixels
    own = 100 * 500 + 500 * 500 + 2 * 2 * 500 + 500 * 784 + 784
    assert (gan["net"], gan["own_parameters"]) == ("discriminator_mlp", own)
    assert gan["over_labels_only"] > 0
    run = {
        "data": "mnist", "num_labels": 100, "method": "improved_gan", "settings": {}, "error": 0.02,
        "recipe": {"net": "discriminator_mlp", "max_steps": 1200}, "seconds": 300.0,
    }  # fmt: skip
    costs = {"improved_gan": {**gan, "over_labels_only": 2.0}}
    long = run | {"error": 0.01, "recipe": {"net": "discriminator_mlp", "max_steps": 9000}}
    lines = methods.table(costs, [run], [long]).splitlines()
    assert "MNIST, 100 labels, 1,200 steps, error, %" in lines[0]
    assert (
        "| `improved_gan` | discriminator_mlp (1.5 M) | 0.69 M | 2.0 | 2.00 | 5 | "
        "1.00 (9,000 steps) | 0.93 ± 0.07 |"
    ) in lines
    other = {**long, "method": "entropy"}
    with pytest.raises(ValueError, match=r"the same number of steps, got \[1200, 9000\]"):
        methods.table(costs, [run, other], [])
    assert "| `vat` | – | – | – | – | – | – | 1.36 |" in lines


def test_gathering_is_measured_with_real_processes() -> None:
    result = scaling.measure(processes=(2,), samples=(20, 40), alone=(20, 40, 80), turns=1)
    few, more = result["rows"]
    # embeddings, labels as one-hot of half of them, and counts of three parts from one other
    assert few["bytes"] == 20 * scaling.FEATURES * 4 + 10 * CLASSES * 4 + 3 * 8
    assert more["bytes"] - few["bytes"] == few["bytes"] - 3 * 8
    assert all(row["global"] > 0 < row["local"] for row in result["rows"])
    assert all(row["sparse"] > 0 for row in result["rows"])
    assert [n for n, _ in result["alone"]] == [n for n, _ in result["sparse_alone"]] == [20, 40, 80]
    # index, sums of rows, total; derivatives in embeddings twice, c, sums, walks and posteriors
    k = scaling.NEIGHBOURS
    sums = 40 * (k + 1) + 1 + 40 * (scaling.FEATURES + 1 + 1 + k + 1 + CLASSES)
    sums += 40 * (scaling.FEATURES + 1)
    assert few["sparse_bytes"] == few["bytes"] + 8 * sums


def test_the_model_of_gathering_finds_what_made_it() -> None:
    made = {"cube": 2e-10, "square": 3e-8, "fixed": 1e-3, "byte": 1e-8, "start": 2e-3}
    made |= {"sparse_square": 1e-7, "sparse_each": 1e-5}
    graph = [[n, 2e-10 * n**3 + 3e-8 * n**2 + 1e-3] for n in scaling.ALONE]
    rows = [
        {
            "processes": 2,
            "samples": n,
            "bytes": scaling.predict(made, 2, n)["bytes"],
            "global": scaling.predict(made, 2, n)["global"],
        }
        for n in scaling.SAMPLES
    ]
    sparse_graph = [[n, 1e-7 * n**2 + 1e-5 * n] for n in scaling.ALONE]
    found = scaling.fit({"rows": rows, "alone": graph, "sparse_alone": sparse_graph})
    assert found == pytest.approx(made, rel=1e-6)
    many = scaling.predict(made, 64, 200)
    assert many["local"] == scaling.predict(made, 1, 200)["local"]
    assert many["sparse"] < many["global"] / 10


def test_error_against_minutes(tmp_path: Path) -> None:
    config = tiny_config(max_steps=6, evaluate_every=3)
    folder, work = tmp_path / "results", tmp_path / "runs"
    folder.mkdir()
    for _ in range(2):  # the second time nothing is trained
        time_to_accuracy.train_missing([("a variant, 30 %", config)], folder, work, Reporter())
    (path,) = folder.iterdir()
    assert path.name == "a-variant-30-seed0.json"
    assert [run.name for run in work.iterdir()] == [path.stem]
    (first,) = time_to_accuracy.read_results(folder)
    assert [step for step, _, _ in first["course"]] == [3, 6]
    assert first["course"][-1][2] == first["error"]
    others = [
        {"variant": "b", "seed": seed, "error": error, "seconds": 60}
        for seed, error in ((1, 0.05), (0, 0.01))
    ]
    lines = time_to_accuracy.table([first, *others]).splitlines()
    assert lines[-1] == "| b | 3.00 ± 2.83 | 1.00, 5.00 | 1 of 2 | 1.0 |"
    assert len(lines) == 4
    first["course"] = [[3, 60, 0.5], [6, 150, 0.123]]
    assert time_to_accuracy.curve(first).splitlines() == [
        "| minutes | 1 | 2 |",
        "| --- | --- | --- |",
        "| error, % | 50.0 | 12.3 |",
    ]
    assert time_to_accuracy.figure({**first, "data": "svhn"}).startswith(b"\x89PNG")


def test_results_of_another_recipe_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = ROOT / "results" / "time-to-accuracy" / "test" / "fast-seed0.json"
    outcome = json.loads(recorded.read_text())
    path = tmp_path / "test" / recorded.name
    path.parent.mkdir()
    command = ["time_to_accuracy.py", "test", "--seeds", "1", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    path.write_text(json.dumps(outcome))
    time_to_accuracy.main()
    assert "| fast | 0." in capsys.readouterr().out
    outcome["recipe"]["steps"] += 1
    path.write_text(json.dumps(outcome))
    with pytest.raises(SystemExit):
        time_to_accuracy.main()
    assert f"{path} was made with another recipe" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["choice", "share", "test", "failures", "fashion_mnist"])
def test_recorded_variants_are_those_of_the_code(part: str) -> None:
    """But for half the paper's channels, a net that is gone."""
    about = time_to_accuracy.PARTS[part]
    found = time_to_accuracy.read_results(ROOT / "results" / "time-to-accuracy" / part)
    names = {result["variant"] for result in found} - {
        "half the paper's channels, 60 % of the steps"
    }
    assert names == set(about.only or time_to_accuracy.variants(about.data))
    assert {result["seed"] for result in found} == set(about.seeds)


def test_operations_of_a_step_are_counted() -> None:
    result = training.efficiency("mnist", turns=1, size=256)
    pixels = [28**2, 28**2, 14**2, 14**2, 7**2, 7**2]
    sizes = [1, 32, 32, 64, 64, 128, 128]
    forward = sum(2 * 9 * p * a * b for p, a, b in zip(pixels, sizes, sizes[1:], strict=False))
    first = 2 * 9 * 28**2 * 32  # has no gradient of its input
    assert result["mnist_step_gflop"] == pytest.approx(200 * (3 * forward - first) / 1e9, rel=0.03)
    ideal = 1000 * result["mnist_step_gflop"] / result["mnist_peak_gflops"]
    assert result["mnist_step_over_peak"] == pytest.approx(
        result["mnist_step_milliseconds"] / ideal
    )


def test_the_bare_step_is_the_same_step() -> None:
    result = training.measure(turns=1)
    times = result["best_milliseconds"]
    assert result["loop_over_bare"] == times["loop"] / times["bare"] > 0
    assert result["checkpoint_milliseconds"] > 0


@pytest.mark.filterwarnings("ignore")  # of scikit-learn's
def test_every_model_is_measured_on_the_same_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator, "CCLPClassifier", partial(CCLPClassifier, max_iter=2))
    found: dict[str, Any] = {}
    saved: list[int] = []
    arguments = (estimator.blobs, (1, 3), 2, True)
    estimator.measure(found, lambda: saved.append(1), *arguments)
    assert len(saved) == 2 * 2 * len(estimator.models(0))
    for by_labels in found.values():
        assert list(by_labels) == ["1", "3"]
        assert all(len(values) == 2 and 0 <= min(values) for values in by_labels.values())
    estimator.measure(found, lambda: saved.clear(), *arguments)  # nothing is left to do
    assert saved
    text = estimator.markdown({"others": {"blobs": found}})
    assert "| blobs, error in % | 1 a class | 3 a class |" in text
    assert len(text.splitlines()) == 2 + len(estimator.ROWS)


def test_memory_is_what_a_fit_takes() -> None:
    with get_context("spawn").Pool(1) as pool:
        found = pool.apply(estimator.footprint, ("spreading", 1500))
    matrix = 1500**2 * 8 / 1e6
    assert 0.9 * matrix < found["megabytes"] < 12 * matrix
    assert found["seconds"] > 0


def test_the_graph_is_measured_draw_by_draw(tmp_path: Path) -> None:
    """Over digits, at the rates for which there are enough images; and it is resumed."""
    options = argparse.Namespace(data_dir=None, cache=None, draws=1)
    found: dict[str, Any] = {"accuracy": {"1": [0.5]}}
    saved: list[int] = []
    graph.accuracy("digits", options, found, lambda: saved.append(1))
    assert found["samples"] == 1797
    assert list(found["accuracy"]) == ["1", "2", "3", "4", "5", "10", "40"]
    assert found["accuracy"]["1"] == [0.5]
    assert len(saved) == 6
    assert found["accuracy"]["10"][0] > 0.93
    rows = [
        {"samples": n, "seconds": n / 1e3, "megabytes": n**2 / 1e6, "accuracy": 1.0}
        for n in (1000, 2000, 4000)
    ]
    text = graph.markdown({"digits": found, "scale": {"LabelSpreading, RBF": rows}})
    assert "| digits, mean of 1 draws | 50.0 |" in text
    assert "| LabelSpreading, RBF, fitted exponent | | 1.00 | 2.00 | |" in text


@pytest.mark.filterwarnings(
    "ignore:The `probability` parameter", "ignore:.*(converge|invalid value)"
)
def test_teachers_are_compared_with_the_best_baseline() -> None:
    X, y = committee.tables()["iris"](0)
    errors = committee.measure(X, y, 10, 0)
    assert errors["vote"] < 0.1
    assert sum(name.startswith("baseline: LabelSpreading") for name in errors) == 8
    rows = [
        {
            "data": data,
            "labels": 3,
            "errors": {"vote": vote, "baseline: a": 0.2, "baseline: b": 0.4},
        }
        for data, vote in (("one", 0.1), ("one", 0.1), ("two", 0.8))
    ]
    np.testing.assert_allclose(committee.ratios(rows)["vote"], [0.5, 4])
    assert "| 3 | vote | 1.41 | 1 of 2 | 1 | 4.00 |" in committee.markdown(rows)


def test_the_mixture_is_measured_in_a_process_of_its_own() -> None:
    with get_context("spawn").Pool(1) as pool:
        found = pool.apply(graph.fit_mixture, ("GraphLabelPropagation", 1200))
    assert found["samples"] == 1200
    assert found["accuracy"] > 0.95
    assert found["seconds"] > 0


def test_frames_are_measured_in_the_browser() -> None:
    (row,) = lab.measure((20,), count=12)
    assert row["points"] == 20
    assert row["frames"] == 7  # the first five warm up
    assert 0 < row["median"] <= row["of_20_the_longest"]
    assert row["apart"] > 0


def test_a_rare_class_is_measured_with_and_without_the_option() -> None:
    X, y, X_test, truth = imbalance.split("breast cancer", (10, 10), seed=0)
    assert np.bincount(y + 1).tolist() == [220, 10, 10]
    assert len(X_test) == 569 - len(X)
    rows = imbalance.measure(1, ("supervised",), max_iter=2)
    assert len(rows) == 2 * len(imbalance.DATA) * len(imbalance.LABELS) * 2
    assert [row["option"] for row in rows[:2]] == [{}, {"class_weight": "balanced"}]
    assert len(imbalance.table(rows).splitlines()) == 2 + len(rows) // 2

    class Never:
        def predict(self, X: Any) -> Any:
            return np.zeros(len(X), int)

    assert imbalance.score(Never(), X_test, truth) == pytest.approx((0.5, 0.05))


def test_all_ways_to_wait_are_measured_in_turns() -> None:
    found = threads.measure(steps=2, turns=1, busy=1, limit=120)
    seconds = {name: times[0] for name, times in found["seconds"].items()}
    assert set(seconds) == set(threads.POLICIES)
    assert found["over_cclp"] == {name: s / seconds["cclp"] for name, s in seconds.items()}


def test_only_one_way_to_wait_is_set_by_cclp() -> None:
    code = "import os; from cclp.threads import prepare_threads; prepare_threads(); "
    code += "print(os.environ.get('GOMP_SPINCOUNT'))"
    said = []
    for settings in threads.POLICIES.values():
        env = {name: v for name, v in children.environment().items() if name not in WAITING}
        said.append(children.run([sys.executable, "-c", code], env=env | settings).stdout)
    assert said == ["None\n", "None\n", f"{SPINS}\n"]


def test_starting_is_timed_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "LINES", {"`import torch`": ["-c", "0"], "run": ["-c", "0"]})
    seconds = startup.measure(turns=3)
    assert set(seconds) == {"`import torch`", "run"}
    assert min(seconds.values()) > 0
    assert startup.markdown({"`import torch`": 0.5, "run": 1.25}).splitlines()[2:] == [
        "| `import torch` | 0.50 | 1.00 |",
        "| run | 1.25 | 2.50 |",
    ]


def test_every_line_that_is_timed_does_what_it_says(tmp_path: Path) -> None:
    said = {
        name: children.run([sys.executable, *startup.words(line, tmp_path / "run")])
        for name, line in startup.LINES.items()
    }
    refused = said.pop("`cclp train nonsense`, refused")
    assert refused.returncode == 2
    assert [done.returncode for done in said.values()] == [0] * len(said)
    assert (tmp_path / "run" / "result.json").is_file()


def test_pictures_of_every_subject_are_read_in_a_size(tmp_path: Path) -> None:
    colours = np.random.default_rng(0).integers(256, size=(8, 4), dtype=np.uint8)
    for place, colour in zip(image_size.SUBJECTS.values(), colours, strict=True):
        folder = tmp_path / image_size.PLACE / place
        folder.mkdir(parents=True)
        for number in range(48):
            Image.fromarray(np.full((20, 30, 4), colour)).save(folder / f"{number}.png")
    image_size.pictures(tmp_path, tmp_path / "photos", seed=0)
    for subject in image_size.SUBJECTS:
        known = {p.name for p in (tmp_path / "photos" / subject).iterdir()}
        tested = {p.name for p in (tmp_path / "photos/test" / subject).iterdir()}
        assert (len(known), len(tested), known & tested) == (image_size.LABELS, 12, set())
    assert len(list((tmp_path / "photos/unlabeled/animals").parent.rglob("*.png"))) == 8 * 16
    row = image_size.measure(tmp_path, 8, "supervised", steps=2, seed=0)
    assert row["tested"] == 8 * 12
    rows = [{"size": 8, "method": "supervised", "steps": 2, "seed": 0, **row}]
    assert image_size.markdown(rows).splitlines()[2].startswith("| 8 × 8 | `supervised` | 2 | ")


def test_a_sparse_graph_is_measured_beside_the_whole_one() -> None:
    few, whole = (sparse.in_a_process(300, k) for k in (20, None))
    assert few["loss"] == pytest.approx(sparse.call(300, 20)["loss"])
    assert min(few["seconds"], whole["seconds"]) > 0
    assert min(few["megabytes"], whole["megabytes"]) > 0
    z_labeled, _, z_unlabeled = sparse.clusters(60)
    z = torch.cat([z_labeled, z_unlabeled]).detach()
    classes = torch.arange(60) % 10
    rows: list[dict[str, Any]] = [
        {"step": step, "k": k, **sparse.compare(z, classes, torch.arange(60) < 20, k)}
        for step in sparse.STEPS
        for k in (*sparse.NEIGHBOURS[:2], 59)
    ]
    assert all(row["degrees"] > 0.01 for row in rows if row["k"] < 59)
    assert rows[2]["loss"] == pytest.approx(rows[2]["of_whole"], rel=1e-5)
    assert rows[2]["degrees"] < 0.1
    costs: list[dict[str, Any]]
    costs = [{"n": 300, "k": 20, **few}, {"n": 300, "k": None, **whole}, {"n": 900, "k": 20, **few}]
    filled = [{**rows[0], "step": step, "k": k} for step in sparse.STEPS for k in sparse.NEIGHBOURS]
    table = sparse.markdown([*costs, *filled]).splitlines()
    assert table[2].startswith("| 300 | ")
    assert "| – |" in table[3]


def test_preparation_is_divided_and_comes_out_the_same() -> None:
    rows = [preparation.measure("vectors", 600, world) for world in preparation.PROCESSES]
    assert rows[1]["sum"] == pytest.approx(rows[0]["sum"], rel=1e-6)
    assert min(row["neighbours"] + row["propagation"] for row in rows) >= 0
    assert preparation.table(rows).splitlines()[3].startswith("| 600 vectors | 2 | ")


def test_commands_are_measured_as_data_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    for name, value in children.environment().items():
        monkeypatch.setenv(name, value)
    row = large.measure("vectors", 1_200, tmp_path / "vectors", steps=4)
    assert row["same"]
    assert all(row[name]["megabytes"] > 50 for name in large.COMMANDS)
    assert all(row[name]["seconds"] > 0 for name in large.COMMANDS)
    assert len((tmp_path / "vectors/predictions.csv").read_text().splitlines()) == 1_201
    photos = large.make_images(tmp_path, 1_010)
    assert len(list((photos / "unlabeled").iterdir())) == 10
    assert len(list(photos.rglob("*.png"))) == 1_010
    assert "| yes |" in large.table([row])
    with pytest.raises(RuntimeError, match="has ended with 2"):
        large.cclp("train", tmp_path / "nothing")


def test_what_the_loss_adds_is_a_paired_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = added.CASES["breast cancer"]
    short = case._replace(recipe=replace(case.recipe, max_steps=2))
    monkeypatch.setitem(added.CASES, "breast cancer", short)
    for method, weight in (("supervised", None), (added.BOTH, 0.3)):
        made = added.config("breast cancer", method, weight, 100, tmp_path)
        assert made.method_settings.get("cclp", {}).get("weight") == weight
        error = added.measure("breast cancer", method, weight, 100, tmp_path)
        assert error == added.measure("breast cancer", method, weight, 100, tmp_path)  # kept
        assert error is not None
        assert round(error * case.held_out) == pytest.approx(error * case.held_out)
    rows = [
        {"data": "digits", "method": m, "weight": w, "seed": seed, "error": error / 100}
        for m, w, errors in (("supervised", None, (9, 7, 8)), ("cclp", 0.1, (6, 5, 7)))
        for seed, error in enumerate(errors)
    ]
    assert added.added(rows, "digits", "cclp", 0.1, "supervised") == "-2.00 ± 0.58"
    assert added.added(rows, "digits", "cclp", 0.3, "supervised") == "–"
    assert added.markdown(rows).splitlines()[2:4] == [
        "| digits, 50 labels | labels only | 8.00 ± 1.00 | – | – | 6.00 ± 1.00 | – | – |",
        "| | *difference* | | – | – | -2.00 ± 0.58 | – | – |",
    ]


def test_rows_are_kept_and_not_measured_again(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    found = Rows(out, "measure")
    assert {"data": "a"} not in found
    found.add({"data": "a", "seed": 1, "error": 0.5})
    again = Rows(out, "other")
    assert {"data": "a", "seed": 1} in again
    assert {"data": "a", "seed": 2} not in again
    again.add({"data": "a", "seed": 2, "error": 0.25})
    content = json.loads(out.read_text())
    assert content["command"] == "measure"
    assert [row["error"] for row in content["rows"]] == [0.5, 0.25]
    assert "versions" in content["environment"]
