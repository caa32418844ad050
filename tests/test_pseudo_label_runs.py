"""Runs with pseudo-labels: what a run uses, records and resumes."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file
from sklearn.datasets import make_blobs
from torch import Tensor

from cclp.data.splits import make_split
from cclp.methods.base import Step
from cclp.methods.cclp import CCLP
from cclp.methods.graph_pseudo_label import GraphPseudoLabel
from cclp.nets import mlp
from cclp.progress import Cost, Reporter
from cclp.pseudo_labels.graph import LabelGraph
from cclp.pseudo_labels.labeler import Labeler
from cclp.pseudo_labels.leave_one_out import LeaveOneOut
from cclp.pseudo_labels.schedule import Decision, Outcome, PseudoLabelSchedule
from cclp.runs.start import Stopped, resume, train
from cclp.training import trainer
from cclp.training.config import Config
from cclp.training.evaluation import Outputs
from cclp.training.recipe import RECIPES, Settings, make_recipe
from tests.command_line import call
from tests.runs import Messages, assert_same_run, last_weights, metrics, stop_after

BOTH = "cclp+graph_pseudo_label"
GOOD, FAIR, POOR = LeaveOneOut(90, 90), LeaveOneOut(20, 30), LeaveOneOut(3, 30)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes that overlap a little, 18 of 90 samples labeled."""
    X, y = make_blobs(120, n_features=4, centers=3, cluster_std=2.5, random_state=0)
    known = np.where(np.arange(90) < 18, y[:90], -1)
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    np.savez(path, X=X[:90], y=known, X_test=X[90:], y_test=y[90:])
    return path


def make_config(data: Path, max_steps: int = 12, **changes: Any) -> Config:
    """A few steps on little data, with the settings of the pseudo-labels among the changes."""
    names = ("weight", "decay", "refreshes", "supervised_warmup")
    settings = {name: changes.pop(name) for name in names if name in changes}
    recipe = replace(
        make_recipe("short", str(data), kind="vectors"),
        max_steps=max_steps,
        per_class=2,
        unlabeled_batch=30,
        recalibrate_batchnorm=True,
    )
    plain: dict[str, Any] = {
        "method": BOTH,
        "class_prior": "equal",  # then the graph is not joined by a committee
        "num_labels": None,
        "settings": {"graph_pseudo_label": settings} if settings else {},
        "accelerator": "cpu",
        "precision": "32",
        "evaluate_every": 6,
        "checkpoint_every": 4,
    }
    return Config(data=str(data), recipe=recipe, **{**plain, **changes})


def with_accuracy(patch: pytest.MonkeyPatch, accuracy: LeaveOneOut) -> None:
    patch.setattr(LabelGraph, "leave_one_out", lambda graph: accuracy)


def result_of(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "result.json").read_text())
    return content


def checkpoint_info(run: Path) -> dict[str, Any]:
    info: dict[str, Any] = json.loads(max((run / "checkpoint").glob("*.json")).read_text())["info"]
    return info


def saved_labels(run: Path) -> Any:
    """Pseudo-labels in the newest checkpoint, or None."""
    return load_file(max((run / "checkpoint").glob("*.safetensors"))).get("pseudo_labels")


# --- the terms of a step ---


def a_step(pseudo_labels: Tensor | None, weight: float) -> Step:
    torch.manual_seed(0)
    net = mlp(3, 2).eval()
    x = torch.randn(10, 3)
    z, labels = net.features(x).detach(), torch.tensor([0, 1, 0, 1])
    return Step(net, x[:4], labels, x[4:], z[:4], z[4:], net(x[:4]), 0.1, 10, pseudo_labels, weight)


def test_pseudo_labels_are_the_prior_of_cclp() -> None:
    pseudo_labels, method = torch.eye(2).repeat(3, 1), CCLP(2)
    without = method(a_step(None, 0.0))["cclp"]
    for weight in (1.0, 0.4, 0.0):
        step = a_step(pseudo_labels, weight)
        expected = method.loss(step.z_labeled, step.labels, step.z_unlabeled, pseudo_labels, weight)
        found = method(step)["cclp"]
        torch.testing.assert_close(found, expected)
        assert (found == without) == (weight == 0)


def test_the_classifier_learns_them_as_long_as_there_are_any() -> None:
    pseudo_labels = torch.eye(2).repeat(3, 1)
    step = a_step(pseudo_labels, 0.1)
    assert step.z_unlabeled is not None
    logits = step.net.classifier(step.z_unlabeled)
    expected = 2 * F.cross_entropy(logits, pseudo_labels.argmax(1))
    found = GraphPseudoLabel(2, weight=2.0)(step)
    torch.testing.assert_close(found, {"graph_pseudo_label": expected})
    assert GraphPseudoLabel(2)(a_step(None, 0.0)) == {}
    assert GraphPseudoLabel(2, weight=0.0)(step) == {}
    assert GraphPseudoLabel(2)(step._replace(z_unlabeled=None)) == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight": -1}, "weight must be at least 0"),
        ({"decay": 0}, "decay must be .*above 0"),
        ({"decay": 2}, "decay must be at most 1, got 2"),
        ({"refreshes": -1}, "refreshes must be at least 0, got -1"),
        ({"supervised_warmup": 1.5}, "supervised_warmup must be at most 1, got 1.5"),
        (
            {"supervised_warmup": 0.6, "decay": 0.5},
            "supervised_warmup must be below decay, 0.5, got 0.6",
        ),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphPseudoLabel(2, **settings)


# --- what a run uses ---


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("method", ["cclp", "lba"])
def test_only_graph_pseudo_label_makes_them_whatever_the_recipe(
    recipe: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("cclp.pseudo_labels.labeler.LabelGraph")
    rng, y = np.random.default_rng(0), np.arange(24) % 2
    images = rng.integers(0, 90, (24, 1, 16, 16), np.uint8)
    images[y == 1] += 100
    known = np.where(np.arange(24) < 8, y, -1)
    np.savez(tmp_path / "data.npz", X=images, y=known, X_test=images[:4], y_test=y[:4])
    made = make_recipe(recipe, "mnist" if recipe == "paper" else str(tmp_path / "data.npz"))
    made = replace(
        made,
        max_steps=2,
        per_class=2,
        unlabeled_batch=4,
        settings={**made.settings, "graph_pseudo_label": {"supervised_warmup": 0.5}},
    )
    messages, out = Messages(), tmp_path / "run"
    config = make_config(tmp_path / "data.npz", method=method, evaluate_every=1)
    result = train(replace(config, recipe=made), out, messages)
    assert result["method"] == method
    assert result["decisions"]["pseudo_labels"] is None
    assert "decisions" not in checkpoint_info(out)
    assert saved_labels(out) is None
    term = {"cclp": "cclp", "lba": "walker"}[method]
    assert all(term in line and "graph_pseudo_label" not in line for line in metrics(out))
    assert messages.infos == []


@pytest.fixture(scope="module")
def plain(blobs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "plain"
    train(make_config(blobs, evaluate_every=1), out)
    return out


def test_settings_of_a_run_count(blobs: Path, plain: Path, tmp_path: Path) -> None:
    """And before them those of the recipe."""
    config = make_config(blobs, evaluate_every=1)
    shorter = replace(config, settings={"graph_pseudo_label": {"decay": 0.5}})
    assert train(shorter, tmp_path / "run")["settings"]["graph_pseudo_label"] == {"decay": 0.5}
    for out, used in ((plain, 12), (tmp_path / "run", 6)):
        steps = [line["step"] for line in metrics(out) if "graph_pseudo_label" in line]
        assert steps == list(range(1, used + 1))
    assert metrics(plain)[1]["cclp"] != metrics(tmp_path / "run")[1]["cclp"]
    by_recipe: Settings = {"graph_pseudo_label": {"decay": 0.5, "weight": 3.0}}
    recipe = replace(config.recipe, settings={**config.recipe.settings, **by_recipe})
    train(replace(config, recipe=recipe), tmp_path / "recipe")
    first = metrics(tmp_path / "recipe")[0]["graph_pseudo_label"]
    assert first == pytest.approx(3 * metrics(plain)[0]["graph_pseudo_label"])
    merged = replace(config, recipe=recipe, settings={"graph_pseudo_label": {"decay": 0.75}})
    assert merged.method_settings["graph_pseudo_label"] == {"decay": 0.75, "weight": 3.0}


def test_the_decision_is_in_the_result_and_the_checkpoint(
    blobs: Path, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = result_of(plain)["decisions"]
    assert decisions["pseudo_labels"] == "used"
    assert decisions["tested"] == 18
    assert 12 < decisions["correct"] <= 18
    assert checkpoint_info(plain)["decisions"] == decisions
    outcomes: tuple[tuple[float, Outcome], ...] = ((0.0, "refused"), (0.5, "after_warmup"))
    for warmup, outcome in outcomes:
        with_accuracy(monkeypatch, POOR)
        out, messages = tmp_path / outcome, Messages()
        config = make_config(blobs, 4, supervised_warmup=warmup, evaluate_every=1)
        result = train(config, out, messages)
        expected = Decision(outcome, warmup, correct=3, tested=30)
        assert result["decisions"] == expected.to_json()
        assert checkpoint_info(out)["decisions"] == result["decisions"]
        told = [text for text in messages.warnings if "3 of 30 labels" in text]
        assert len(told) == (outcome == "refused")


def test_refused_pseudo_labels_change_nothing(
    blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_accuracy(monkeypatch, POOR)
    for method in (BOTH, "cclp"):
        train(make_config(blobs, 4, method=method), tmp_path / method)
    assert last_weights(tmp_path / BOTH) == last_weights(tmp_path / "cclp")
    assert saved_labels(tmp_path / BOTH) is None


def test_warm_up_steps_see_labeled_samples_only(
    blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the graph's own pseudo-labels are good enough, there is no warm-up."""
    for accuracy, warmup_steps in ((POOR, 3), (GOOD, 0)):
        with_accuracy(monkeypatch, accuracy)
        out = tmp_path / str(warmup_steps)
        train(make_config(blobs, 6, supervised_warmup=0.5, evaluate_every=1), out)
        with_unlabeled = ["graph_pseudo_label" in line for line in metrics(out)]
        assert with_unlabeled == [step >= warmup_steps for step in range(6)]


def test_where_all_is_labeled_classes_are_used(
    blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("cclp.pseudo_labels.labeler.LabelGraph")
    with np.load(blobs) as arrays:
        X, y = arrays["X"][:18], arrays["y"][:18]
    np.savez(tmp_path / "all.npz", X=X, y=y, X_test=X, y_test=y)
    messages = Messages()
    config = make_config(
        tmp_path / "all.npz", 6, supervised_warmup=0.5, refreshes=3, evaluate_every=1
    )
    result = train(config, tmp_path / "run", messages)
    assert result["decisions"]["pseudo_labels"] == "known"
    assert messages.infos == []
    assert all("graph_pseudo_label" in line for line in metrics(tmp_path / "run"))


def test_held_out_samples_are_never_looked_at(blobs: Path, tmp_path: Path) -> None:
    """Two sets that differ in the held-out samples only train the same weights."""
    with np.load(blobs) as arrays:
        content = dict(arrays)
    config = make_config(blobs, 4, held_out=6, refreshes=1)
    held_out = make_split(content["y"], None, 6, config.seed).held_out
    train(config, tmp_path / "plain")
    content["X"][held_out] = 1e6
    np.savez(tmp_path / "other.npz", **content)
    train(replace(config, data=str(tmp_path / "other.npz")), tmp_path / "other")
    assert last_weights(tmp_path / "other") == last_weights(tmp_path / "plain")
    with pytest.raises(Stopped):
        train(config, tmp_path / "stopped", should_stop=stop_after(1))
    labels = saved_labels(tmp_path / "stopped")
    assert not labels[held_out].any()
    np.testing.assert_allclose(np.delete(labels, held_out, 0).sum(1), 1, rtol=1e-6)


# --- stopped, killed and resumed ---


def dies_after(steps: int) -> Callable[[], bool]:
    """Ends the training as a kill would, without a checkpoint."""
    asked: Iterator[int] = iter(range(1, 10**6))

    def ask() -> bool:
        if next(asked) >= steps:
            raise InterruptedError
        return False

    return ask


@pytest.mark.parametrize(
    ("accuracy", "settings", "refreshes", "stops"),
    [
        # a warm-up of three steps; refreshes after 3, 6 and 9
        (POOR, {"supervised_warmup": 0.25, "refreshes": 2}, 3, (2, 3, 5, 9)),
        # refreshes after 4 and 8
        (GOOD, {"supervised_warmup": 0.25, "refreshes": 2}, 2, (3, 4, 9)),
        # a refresh after 3; no pseudo-labels from 6 on
        (FAIR, {"decay": 0.5, "refreshes": 1}, 1, (3, 6, 8)),
    ],
    ids=["warm-up", "used", "decayed"],
)
def test_stopped_or_killed_and_resumed_equals_undisturbed(
    blobs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    accuracy: LeaveOneOut,
    settings: dict[str, Any],
    refreshes: int,
    stops: tuple[int, ...],
) -> None:
    config = make_config(blobs, **settings)
    messages, whole, out, killed = Messages(), *(tmp_path / name for name in "abc")
    with monkeypatch.context() as patch:  # a resumed run has the decision of its checkpoint
        with_accuracy(patch, accuracy)
        train(config, whole, messages)
        assert sum("refreshed" in text for text in messages.infos) == refreshes
        with pytest.raises(Stopped):
            train(config, out, should_stop=stop_after(stops[0]))
        with pytest.raises(InterruptedError):
            train(config, killed, should_stop=dies_after(7))  # the last checkpoint is of step 4
    for done, stop in pairwise(stops):
        used = saved_labels(out) is not None
        assert used == (done < 12 * settings.get("decay", 1.0))
        with pytest.raises(Stopped):
            resume(out, should_stop=stop_after(stop - done))
    for run in (out, killed):
        resume(run)
        assert_same_run(run, whole)


def test_labels_are_drawn_in_the_shares_that_the_graph_shows(tmp_path: Path) -> None:
    """As many labels of both classes, but nine in ten samples are of the first."""
    X, y = make_blobs([180, 20], n_features=4, cluster_std=0.5, random_state=0)
    known = np.full(200, -1)
    for c in (0, 1):
        known[np.flatnonzero(y == c)[:6]] = c
    data, whole, out = tmp_path / "data.npz", tmp_path / "a", tmp_path / "b"
    np.savez(data, X=X, y=known)
    config = make_config(data, class_prior=None, held_out=0)
    config = replace(config, recipe=replace(config.recipe, per_class=5))
    train(config, whole)
    shares = result_of(whole)["decisions"]["shares"]
    assert shares[0] == pytest.approx(0.9, abs=0.05)
    counts: list[int] = []
    noting = _noting(counts, trainer.Trainer.draw_classes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.Trainer, "draw_classes", noting)
        with pytest.raises(Stopped):
            train(config, out, should_stop=stop_after(5))
    assert counts == [9, 1]
    resume(out)
    assert_same_run(out, whole)


def _noting(counts: list[int], draw: Callable[..., None]) -> Callable[..., None]:
    def noted(made: trainer.Trainer, shares: list[float]) -> None:
        draw(made, shares)
        counts.extend(made.batches.counts.tolist())

    return noted


def test_refreshes_change_the_training(blobs: Path, plain: Path, tmp_path: Path) -> None:
    train(make_config(blobs, refreshes=2, evaluate_every=1), tmp_path / "run")
    before, after = metrics(plain), metrics(tmp_path / "run")
    assert [line["loss"] for line in before[:4]] == [line["loss"] for line in after[:4]]
    assert before[-1]["loss"] != after[-1]["loss"]


def test_logits_that_are_not_finite_stop_the_run(
    blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Outputs:
        return Outputs(torch.zeros(90, 2), torch.full((90, 3), torch.nan))

    monkeypatch.setattr(trainer, "run_net", broken)
    config = make_config(blobs, 5, evaluate_every=5, refreshes=1)
    with pytest.raises(FloatingPointError, match="not finite after step 2; last good checkpoint"):
        train(config, tmp_path / "run")


# --- features of the user's own ---


def test_features_instead_of_the_inputs(blobs: Path, tmp_path: Path) -> None:
    with np.load(blobs) as arrays:
        y = arrays["y"]
    noise = np.random.default_rng(0).normal(size=(90, 3))
    known = noise + 100 * np.eye(3)[y] * (y >= 0)[:, None]
    file = tmp_path / "features.npy"
    np.save(file, np.asfortranarray(known))
    config = make_config(blobs, 8, decay=0.75, pseudo_label_features=str(file))
    messages, whole, out = Messages(), tmp_path / "whole", tmp_path / "stopped"
    result = train(config, whole, messages)
    assert result["decisions"]["correct"] == result["decisions"]["tested"] == 18
    assert any("features" in text for text in messages.infos)
    with pytest.raises(Stopped):
        train(config, out, should_stop=stop_after(3))
    np.save(file, noise)
    with pytest.raises(ValueError, match=r"features.npy has changed since the run began"):
        resume(out)
    np.save(file, known)
    with pytest.raises(Stopped):
        resume(out, should_stop=stop_after(3))  # at step 6 no pseudo-labels are left
    file.unlink()
    resume(out)
    assert_same_run(out, whole)


def test_features_of_another_shape_are_refused_before_a_run_begins(
    blobs: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "f.npy", np.zeros((3, 2)))
    config = make_config(blobs, pseudo_label_features=str(tmp_path / "f.npy"))
    with pytest.raises(ValueError, match=r"each of the 90 training samples, got shape \(3, 2\)"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- the command line ---


def test_from_the_command_line(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["train", str(blobs), "--max-steps", "2", "--precision", "32", "--quiet"]
    decay = ["--setting", "graph_pseudo_label.decay=0.5"]
    out = tmp_path / "run"
    assert call(*short, "--method", BOTH, *decay, "--out", str(out)) == 0
    about = json.loads((out / "config.json").read_text())
    assert about["config"]["settings"] == {"graph_pseudo_label": {"decay": 0.5}}
    assert result_of(out)["decisions"]["pseudo_labels"] == "used"
    features = ["--pseudo-label-features", str(tmp_path / "f.npy")]
    for wrong, message in (
        (["--method", BOTH, "--setting", "graph_pseudo_label.decay=2"], "decay must be at most 1"),
        (["--method", BOTH, "--setting", "graph_pseudo_label.prior=1"], "prior"),
        (["--method", "cclp", *decay], "settings has 'graph_pseudo_label'"),
        (["--method", "vat", *features], "--pseudo-label-features has no effect with"),
        (["--method", BOTH, *features], "f.npy cannot be read as .npy"),
    ):
        assert call(*short, *wrong, "--out", str(tmp_path / "wrong")) == 2
        assert message in capsys.readouterr().err


class Phases(Reporter):
    """Notes what the user sees progress of, and whether each piece of work was seen to its end."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, title: str, done: int, steps: int, cost: Cost = int) -> None:
        self.seen.append("training")

    @contextmanager
    def work(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        pieces: list[int] = []
        yield pieces.append
        assert total is None or sum(pieces) == total
        self.seen.append(what)

    def end(self) -> None:
        self.seen.append("end")


def test_every_phase_shows_its_progress_before_the_training_does(
    blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    phases = Phases()
    train(make_config(blobs, 4), tmp_path / "run", phases)
    assert phases.seen == [
        "Measuring how values vary",
        "Describing samples",
        "Searching for similar samples",
        "Passing labels on to similar samples",
        "Testing on labels that are held back",
        "training",
        "end",
    ]


def test_every_phase_of_images_and_of_a_committee_shows_its_progress() -> None:
    rng, split = np.random.default_rng(0), make_split(np.arange(60) % 3, 30, 0, seed=0)
    images, table = rng.normal(size=(60, 1, 16, 16)), rng.normal(size=(60, 4))
    phases = Phases()
    for x, committee in ((images, False), (table, True)):
        Labeler(
            x,
            np.arange(60) % 3,
            split,
            3,
            PseudoLabelSchedule(100),
            committee=committee,
            report=phases,
        ).start()
    both = ["Testing on labels that are held back", "Passing labels on to similar samples"]
    assert phases.seen == [
        "Describing some samples",
        "Finding what tells samples apart",
        "Describing samples",
        "Searching for similar samples",
        "Finding edges in images",
        "Comparing similar images",
        *both,
        "Measuring how values vary",
        "Describing samples",
        "Searching for similar samples",
        *both,
        "Training simple classifiers",
        "Asking simple classifiers",
    ]
