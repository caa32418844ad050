"""A run directory is read whole, under today's names, or refused with the name of a file."""

import io
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cclp.data.splits import make_split
from cclp.runs.arrays import FRAMES, UNLABELED
from cclp.runs.outputs import unlabeled_file, unlabeled_points
from cclp.runs.record import Result, read_config, read_metrics, read_record, read_result
from cclp.runs.upgrade import upgrade_config, upgrade_warning
from cclp.training.config import Config
from cclp.training.recipe import make_recipe
from tests.records import (
    make_verdict,
    metrics_line,
    write_embedding,
    write_predictions,
    write_run,
    write_unlabeled,
    write_verdict,
)
from tests.runs import npz

RESULTS = Path(__file__).parents[1] / "results"
RECORDED = sorted(  # by version 0.1
    path.parent
    for path in RESULTS.glob("**/config.json")
    if "steps" in json.loads(path.read_text())["config"]["recipe"]
)


def test_a_finished_run(tmp_path: Path) -> None:
    record = read_record(write_run(tmp_path / "run", classes=["a", "b"]))
    assert record.result == read_result(record.path)
    assert (record.step, record.error, record.evaluated_on) == (20, 0.0911, "test")
    assert (record.data, record.verified, record.fingerprint) == ("digits", True, "f00")
    assert record.config.num_labels == 50
    assert record.metrics == read_metrics(record.path)
    assert (record.embedding, record.predictions) == (None, None)
    assert (record.unlabeled, record.verdict) == (None, None)
    assert record.result is not None
    assert Result.from_json(json.loads(json.dumps(record.result.to_json()))) == record.result


def test_an_unfinished_run(tmp_path: Path) -> None:
    lines = [metrics_line(5, error=0.5), metrics_line(10, error=0.25), metrics_line(15)]
    run = write_run(tmp_path / "run", finished=False, metrics=lines, config={"held_out": 100})
    record = read_record(run)
    assert read_result(run) is None
    assert (record.step, record.error, record.evaluated_on) == (15, 0.25, "held_out")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 16, "cross_ent')  # being written
    assert read_record(run) == record
    begun = read_record(write_run(tmp_path / "begun", finished=False, metrics=[]))
    assert (begun.step, begun.error, begun.evaluated_on) == (0, None, "test")


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recorded_results_are_read_under_todays_names(path: Path) -> None:
    """Those of version 0.1 are in this repository, and their values stay what they were."""
    old = json.loads((path / "config.json").read_text())["config"]
    recipe, result = old["recipe"], json.loads((path / "result.json").read_text())
    record = read_record(path)
    found = record.result
    assert found is not None
    held_out = result["measured_on"].startswith("held-out")
    assert (found.error, found.evaluated_on) == (result["error"], ("test", "held_out")[held_out])
    assert found.num_samples == result.get("samples", result.get("images"))
    assert (found.num_labels, found.seed) == (result["labels"], result["seed"])
    config = record.config
    assert (config.num_labels, config.seed) == (old["labels"], old["seed"])
    assert (found.method, found.recipe) == (config.method, config.recipe)
    assert (config.recipe.max_steps, config.recipe.net) == (recipe["steps"], recipe["net"])
    assert config.recipe.random_affine == recipe.get("jitter", 0)
    assert config.recipe.horizontal_flip == recipe.get("mirror", False)
    parts = config.method.split("+")
    uses_graph = old["method"] == "cclp" and recipe.get("prior", 0) > 0
    assert ("graph_pseudo_label" in parts) == uses_graph
    if "cclp" in parts:
        used = {"weight": 1.0, "chain_steps": 3, **config.method_settings["cclp"]}
        assert (used["weight"], used["chain_steps"]) == (recipe["weight"], recipe["chain_steps"])
    if uses_graph:
        defaults = {"weight": 1.0, "decay": 1.0, "refreshes": 0, "supervised_warmup": 0.0}
        assert {**defaults, **config.method_settings["graph_pseudo_label"]} == {
            "weight": recipe["teach"],
            "decay": recipe["prior"],
            "refreshes": recipe["renew"],
            "supervised_warmup": recipe.get("alone", 0.0),
        }


def old_config(**changes: Any) -> dict[str, Any]:
    """Of version 0.1."""
    recipe = {
        "name": "fast", "net": "mnist", "steps": 20, "learning_rate": 0.002, "schedule": {},
        "weight": 0.5, "chain_steps": 3, "similarity": "dot", "prior": 0.6, "teach": 1.0,
        "jitter": True,
    }  # fmt: skip
    recipe |= changes.pop("recipe", {})
    return {"data": "mnist", "labels": 100, "method": "cclp", "recipe": recipe, **changes}


def test_names_and_settings_of_version_0_1() -> None:
    config = Config.from_json(upgrade_config(old_config(weights={"cclp": 0.3}, label=None)))
    assert config.method == "cclp+graph_pseudo_label"
    assert config.recipe.random_affine == 1
    assert config.method_settings == {
        "cclp": {"weight": 0.3},
        "graph_pseudo_label": {"decay": 0.6},
    }
    own = {"cclp": {"steps": 5, "prior": 0.4}}
    config = Config.from_json(upgrade_config(old_config(settings=own)))
    assert config.settings == {"cclp": {"chain_steps": 5}, "graph_pseudo_label": {"decay": 0.4}}
    ignored = upgrade_config(old_config(settings=own, recipe={"prior": 0.0}))
    assert Config.from_json(ignored).settings == {"cclp": {"chain_steps": 5}}
    assert upgrade_config(old_config(method=None))["method"] is None  # of a comparison
    now = Config("mnist", make_recipe("fast", "mnist")).to_json()
    assert upgrade_config(now) == now


WARMED_UP = {"supervised_warmup": 0.2, "pseudo_labels": "after_warmup"}


def test_the_decisions_of_version_0_1(tmp_path: Path) -> None:
    old = {
        "error": None, "measured_on": "nothing", "samples": 0, "labels": 100, "data": "mnist",
        "data_verified": True, "method": "cclp", "seed": 0, "recipe": old_config()["recipe"],
        "precision": "32", "seconds": 1.0, "restarts": 0, "environment": {},
    }  # fmt: skip
    for added, decided in ({}, {}), ({"alone": 0.2}, WARMED_UP):
        (tmp_path / "result.json").write_text(json.dumps({**old, **added}))
        result = read_result(tmp_path)
        assert result is not None
        assert (result.decisions, result.evaluated_on) == (decided, None)


def test_features_of_version_0_1_keep_their_digest(tmp_path: Path) -> None:
    about = {"config": old_config(prior_features="f.npy"), "prior_features": "0f"}
    (tmp_path / "config.json").write_text(json.dumps(about))
    content, config = read_config(tmp_path)
    assert (content["pseudo_label_features"], config.pseudo_label_features) == ("0f", "f.npy")


def test_warnings_of_version_0_1_have_codes() -> None:
    records = json.loads((RESULTS / "circles" / "results.json").read_text())["records"]
    told = {warning for record in records.values() for warning in record["warnings"]}
    assert {upgrade_warning(warning) for warning in told} == {"collapsed"}
    assert upgrade_warning("uncertain") == "uncertain"


def npy_file() -> bytes:
    content = io.BytesIO()
    np.save(content, np.arange(3))
    return content.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b'{"config": {"recipe": {}}, "data": {}}'),
        ("config.json", b'{"config": {}, "data": 3}'),
        ("config.json", b'{"config": {"recipe": {"steps": "20"}}, "data": {}}'),
        ("metrics.jsonl", b'{"step": 1}\n{"ste\n{"step": 3}\n'),
        ("metrics.jsonl", b'{"error": 1}\n'),
        ("metrics.jsonl", b'{"step": 1, "error": "low"}\n'),
        ("result.json", b'{"error": "low", "seconds": 1}'),
        ("result.json", b'{"error": 0.5, "seconds": 1, "recipe": {"steps": 1}}'),
        ("result.json", b"\xff"),
        ("predictions.npz", b"PK nonsense"),
        ("predictions.npz", b""),
        ("predictions.npz", npy_file()),
        ("embedding/00000020.npz", b"nonsense"),
        ("unlabeled.npz", b"PK nonsense"),
        ("generated.npz", b"PK nonsense"),
        ("verdict.json", b"{}"),
        ("verdict.json", b"[1]"),
        ("verdict.json", b'{"rows": [{"name": "a"}]}'),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    run = write_run(tmp_path / "run")
    write_embedding(run, 2)
    (run / name).write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"{re.escape(str(run / name))} (is damaged|must be)"
    ) as caught:
        read_record(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("result.json", {"error": 1.5}),
        ("result.json", {"error": float("nan")}),
        ("result.json", {"evaluated_on": "the moon"}),
        ("result.json", {"evaluated_on": "labeled"}),
        ("result.json", {"num_samples": "many"}),
        ("result.json", {"restarts": -1}),
        ("result.json", {"environment": {"versions": 3}}),
        ("result.json", {"decisions": []}),
        ("result.json", {"decisions": {"supervised_warmup": "long"}}),
        ("result.json", {"decisions": {"correct": 1, "tested": "all"}}),
        ("result.json", {"settings": {"cclp": 1}}),
        ("result.json", {"recipe": {}}),
        ("config.json", {"data": {"white": 0.0, "verified": "yes"}}),
        ("config.json", {"data": {"white": -1}}),
        ("config.json", {"data": {"classes": ["a", 3]}}),
        ("config.json", {"command": 5}),
        ("config.json", {"environment": []}),
        ("config.json", {"config": {**old_config(), "recipe": {"steps": 1, "prior": "all"}}}),
        ("config.json", {"config": {**old_config(), "weights": 3}}),
    ],
)
def test_values_that_cannot_be_are_named(tmp_path: Path, name: str, change: dict[str, Any]) -> None:
    run = write_run(tmp_path / "run")
    content = json.loads((run / name).read_text())
    (run / name).write_text(json.dumps({**content, **change}))
    with pytest.raises(ValueError, match=rf"{re.escape(str(run / name))} is damaged: ") as caught:
        read_record(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predicted": np.array([0])}, "expected 'predicted' of shape"),
        ({"y": np.array([0.5, 1.0])}, "expected 'y'"),
        ({"probability": np.array(["a", "b"])}, "expected 'probability'"),
        ({"mistakes": np.array([2])}, "indices below 2"),
        ({"y": np.array([0, 9])}, "holds class 9, but config.json names 2 classes"),
        (
            {"mistake_inputs": np.zeros((5, 1, 2, 2), np.uint8)},
            "expected 'mistake_inputs' of 1 samples",
        ),
        ({"mistake_names": np.array([{}], dtype=object)}, "Python objects, which are never loaded"),
        ({"mistakes": None}, "expected an array 'mistakes'"),
    ],
)
def test_predictions_that_do_not_fit(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    run = write_run(tmp_path / "run", classes=["a", "b"])
    write_predictions(run, [0, 1], [0, 0])
    with np.load(run / "predictions.npz") as arrays:
        content = {**arrays, **change}
    np.savez(run / "predictions.npz", **{k: v for k, v in content.items() if v is not None})
    with pytest.raises(ValueError, match=message) as caught:
        read_record(run)
    assert str(run / "predictions.npz") in str(caught.value)


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "result.json",
        "predictions.npz",
        "embedding/00000020.npz",
        "unlabeled.npz",
        "generated.npz",
        "verdict.json",
    ],
)
def test_pickles_are_never_loaded(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path / "run")
    write_embedding(run, 2)
    trap = Trap(tmp_path / "sprung")
    archive = npz(**{key: np.array([trap], object) for key in "zy"})
    for content in (pickle.dumps(trap), archive):
        (run / name).write_bytes(content)
        with pytest.raises(ValueError, match=name):
            read_record(run)
    assert not (tmp_path / "sprung").exists()


def test_a_truncated_embedding_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_embedding(run, 2)
    file = run / "embedding" / "00000020.npz"
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"00000020\.npz must be an \.npz file"):
        read_record(run)


def test_embedding_is_thinned_and_bare_of_what_is_not_finite(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_embedding(run, 3, steps=tuple(range(1, 101)))
    file = run / "embedding" / "00000001.npz"
    with np.load(file) as arrays:
        content = dict(arrays)
    content["z"][0, 0] = np.nan
    np.savez(file, **content)
    embedding = read_record(run).embedding
    assert embedding is not None
    assert (len(embedding.steps), embedding.recorded) == (FRAMES - 1, 100)
    assert embedding.steps[-1] == 100


def test_the_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", classes=["a", "b", "c"])
    write_verdict(run)
    assert read_record(run).verdict == make_verdict()
    assert read_record(run).evaluated_on == "test"  # by result.json
    (run / "result.json").unlink()
    assert read_record(run).evaluated_on == "test"  # the metrics hold its errors
    (run / "metrics.jsonl").unlink()
    assert read_record(run).evaluated_on == "cross_validated"


def test_a_cross_validated_result(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", result={"evaluated_on": "cross_validated"})
    assert read_record(run).evaluated_on == "cross_validated"


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("rows", {"low": "low"}, "low must be a number"),
        ("rows", {"high": 1.5}, "high must be at most 1"),
        ("rows", {"f1": None}, "f1 must be a number"),
        ("rows", {"seconds": -1}, "seconds must be at least 0"),
        ("rows", {"title": 3}, "name and title must be strings"),
        ("rows", {"tested": "all"}, "tested must be an integer"),
        ("rows", {"more": 3}, "unexpected keyword"),
        ("classes", {"name": None}, "name of a class must be a string"),
        ("classes", {"labels": 10**400}, "a number of 401 digits"),
        ("classes", {"labels": 2.5}, "labels must be an integer"),
        ("classes", {"wrong": 21}, "wrong must be at most 20"),
        ("classes", {"f1": "high"}, "f1 must be a number"),
        (None, {"temperature": 0}, "temperature"),
        (None, {"steps": float("nan")}, "steps must be finite"),
        (None, {"chosen": "another"}, "there is no row 'another'"),
        (None, {"tested": "many"}, "invalid literal"),
    ],
)
def test_a_verdict_that_cannot_be(
    tmp_path: Path, part: str | None, change: dict[str, Any], message: str
) -> None:
    run = write_run(tmp_path / "run")
    content = make_verdict().to_json()
    place = content if part is None else content[part][0]
    place.update(change)
    (run / "verdict.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as caught:
        read_record(run)
    assert str(caught.value).startswith(f"{run / 'verdict.json'} is damaged: ")
    assert "\n" not in str(caught.value)


def test_predictions_of_unlabeled_samples(tmp_path: Path) -> None:
    """60 of one class, the later the surer, and one of another; 48 are shown for their doubt."""
    run = write_run(tmp_path / "run", classes=["a", "b", "c"])
    share = np.linspace(0.4, 0.9, 60)
    likely = [[p, 0.95 - p, 0.05] for p in share.tolist()] + [[0.01, 0.0, 0.99]]
    images = np.arange(61, dtype=np.uint8).reshape(61, 1, 1, 1).repeat(4, 2)
    write_unlabeled(run, likely, images)
    found = read_record(run).unlabeled
    assert found is not None
    np.testing.assert_array_equal(found.index, np.arange(61))
    np.testing.assert_array_equal(found.predicted, [int(p < 0.475) for p in share] + [2])
    np.testing.assert_array_equal(found.second, [int(p > 0.475) for p in share] + [0])
    np.testing.assert_allclose(found.probability, [*np.maximum(share, 0.95 - share), 0.99], 1e-5)
    margin = np.abs(2 * share - 0.95)
    np.testing.assert_array_equal(found.shown[:48], np.argsort(margin)[:48])
    np.testing.assert_array_equal(found.shown[48:], [59, 58, 57, 56, 60])  # no b is left
    assert found.names == [f"training {n}" for n in found.shown]
    assert found.images is not None
    np.testing.assert_array_equal(found.images[:, 0, 0, 0], found.shown)


def test_a_temperature_changes_how_sure_predictions_are(tmp_path: Path) -> None:
    logits, index = torch.tensor([[4.0, 0.0], [0.0, 2.0]]), np.array([7, 3])
    x, names = np.zeros((9, 2), np.float32), [f"row {n}" for n in range(9)]
    content = unlabeled_file(logits, index, x, names, temperature=2.0)
    with np.load(io.BytesIO(content)) as arrays:
        np.testing.assert_allclose(arrays["probability"], 1 / (1 + np.exp([-2.0, -1.0])), 1e-6)
        assert arrays["predicted"].tolist() == [0, 1]
        assert arrays["index"].tolist() == [7, 3]
        assert arrays["shown_names"].tolist() == ["row 3", "row 7"]  # the more doubtful one first
        assert "shown_inputs" not in arrays


def test_few_are_shown_of_many_classes() -> None:
    logits = torch.eye(300).repeat(2, 1) * torch.arange(1, 601)[:, None]
    for classes, shown in ((300, 48), (40, 48 + 80)):
        part = logits[:, :classes][logits[:, :classes].any(1)].repeat(4, 1)
        index = np.arange(len(part))
        content = unlabeled_file(part, index, np.zeros((len(part), 2)), None)
        with np.load(io.BytesIO(content)) as arrays:
            assert len(arrays["shown"]) == len(set(arrays["shown"].tolist())) == shown


def test_what_is_labeled_is_not_among_the_unlabeled() -> None:
    y = np.where(np.arange(100) < 40, np.arange(100) % 4, -1)
    split = make_split(y, 8, 4, seed=0)
    points = unlabeled_points(split, seed=0)
    assert len(points) == 100 - 8 - 4
    assert not set(points.tolist()) & {*split.labeled.tolist(), *split.held_out.tolist()}
    large = make_split(np.arange(30_000) % 4, 8, 0, seed=0)
    first, again, other = (unlabeled_points(large, seed=seed) for seed in (0, 0, 1))
    assert len(first) == len(set(first.tolist())) == UNLABELED
    assert first.tolist() == again.tolist() == sorted(first.tolist()) != other.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predicted": np.array([0])}, "expected 'predicted' of shape"),
        ({"second": np.array([0.5, 1.0])}, "expected 'second'"),
        ({"probability": np.array([1, 1])}, "expected 'probability'"),
        ({"shown": np.array([2, 0])}, "'shown' must be indices below 2"),
        ({"shown": np.array([-1, 0])}, "'shown' must be indices below 2"),
        ({"second": np.array([0, 9])}, "holds class 9, but config.json names 2 classes"),
        ({"predicted": np.array([0, -1])}, "holds a class below 0"),
        ({"shown_inputs": np.zeros((5, 1, 2, 2), np.uint8)}, "expected 'shown_inputs' of 2 samp"),
        ({"shown_inputs": np.uint8(1)}, "expected 'shown_inputs' of 2 samp"),
        ({"shown_names": None}, "expected an array 'shown_names'"),
    ],
)
def test_unlabeled_predictions_that_do_not_fit(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    run = write_run(tmp_path / "run", classes=["a", "b"])
    write_unlabeled(run, [[0.6, 0.4], [0.2, 0.8]])
    with np.load(run / "unlabeled.npz") as arrays:
        content = {**arrays, **change}
    np.savez(run / "unlabeled.npz", **{k: v for k, v in content.items() if v is not None})
    with pytest.raises(ValueError, match=message) as caught:
        read_record(run)
    assert str(run / "unlabeled.npz") in str(caught.value)
