"""Weights of classes and samples, from the numbers to the command line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

from cclp.data.batches import Batches
from cclp.data.splits import Split
from cclp.data.weights import LabelWeights, label_weights
from cclp.methods import make_methods
from cclp.methods.base import Step
from cclp.methods.supervised import Supervised
from cclp.nets import mlp
from cclp.pseudo_labels.graph import LabelGraph
from cclp.runs.start import Stopped, resume, train
from cclp.sklearn import CCLPClassifier
from cclp.training.recipe import make_recipe
from cclp.training.trainer import Trainer
from tests.command_line import call
from tests.runs import assert_same_run, last_weights, stop_after, tiny_config

LABELS = np.array([0] * 30 + [1] * 6 + [2] * 4)
ROWS = 100 + 2 * np.arange(len(LABELS))  # of the training set


def made(**given: Any) -> LabelWeights:
    found = label_weights(LABELS, ["a", "b", "c"], **given)
    assert found is not None
    return found


def make_batches(weights: LabelWeights, **changes: Any) -> Batches:
    settings: dict[str, Any] = {"per_class": 5, "unlabeled_batch": 0, "seed": 1, **changes}
    return Batches(ROWS, LABELS, np.empty(0, np.int64), shares=weights.shares, **settings)


def rare(seed: int, labels: tuple[int, int], common: int = 570) -> tuple[NDArray[Any], ...]:
    """Two Gaussians of which one is 5 %: X, y, X_test, truth of the test (half and half)."""
    rng = np.random.default_rng(seed)
    sizes = common, common // 19

    def draw(*counts: int) -> tuple[NDArray[Any], NDArray[Any]]:
        truth = np.repeat([0, 1], counts)
        X = rng.normal(size=(len(truth), 6))
        X[:, :2] += 2.6 * truth[:, None]
        return X, truth

    X, truth = draw(*sizes)
    y = np.full(len(truth), -1)
    for c, count in enumerate(labels):
        y[np.flatnonzero(truth == c)[:count]] = c
    return X, y, *draw(500, 500)


def test_weights_are_those_of_scikit_learn() -> None:
    classes = np.arange(3)
    for weight in ("balanced", {0: 1, 1: 5, 2: 0.5}, {1: 4}):
        found = label_weights(LABELS, [0, 1, 2], weight)
        assert found is not None
        of_class = compute_class_weight(weight, classes=classes, y=LABELS)
        np.testing.assert_allclose(found.samples, of_class[LABELS])
        np.testing.assert_allclose(found.samples, compute_sample_weight(weight, LABELS))
        assert found.shares is not None
        np.testing.assert_allclose(found.shares, [0.75, 0.15, 0.1])
    own = np.random.default_rng(0).uniform(size=40)
    both = made(class_weight={"b": 3.0}, sample_weight=own)
    np.testing.assert_allclose(both.samples, own * np.where(LABELS == 1, 3, 1))
    mass = np.bincount(LABELS, made(class_weight="balanced", sample_weight=own).samples)
    np.testing.assert_allclose(mass, mass[0])
    assert label_weights(LABELS, ["a", "b", "c"]) is None


def test_without_class_weight_every_class_counts_the_same() -> None:
    prior = {"a": 0.9, "b": 0.06, "c": 0.04}
    known = made(class_prior=prior)
    np.testing.assert_allclose(np.bincount(LABELS, known.samples), 1)
    np.testing.assert_allclose(known.shares, list(prior.values()))  # type: ignore[arg-type]
    ones = made(sample_weight=np.ones(40))
    assert ones.shares is None
    np.testing.assert_allclose(make_batches(ones).importance(ones.samples, 200)[ROWS], 1)


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({"class_weight": "balanced"}, [11, 2, 2]),
        ({"class_prior": {"a": 0.02, "b": 0.02, "c": 0.96}}, [1, 1, 13]),
        ({"sample_weight": np.ones(40)}, [5, 5, 5]),
    ],
)
def test_batches_hold_the_classes_in_their_shares(given: Any, counts: list[int]) -> None:
    batches = make_batches(made(**given))
    for step in range(5):
        found = LABELS[(batches(step).labeled - 100) // 2]
        assert np.bincount(found).tolist() == counts


@pytest.mark.parametrize(("labeled_batch", "tolerance"), [(None, 1e-3), (2, 0.1)])
@pytest.mark.parametrize(
    "given",
    [
        {"class_weight": "balanced"},
        {"class_weight": {"a": 2, "c": 7}},
        {"class_prior": {"a": 0.1, "b": 0.8, "c": 0.1}},
    ],
)
def test_batches_average_to_the_weighted_mean(
    given: Any, labeled_batch: int | None, tolerance: float
) -> None:
    """Over whole epochs of all classes; where classes take turns, in expectation."""
    weights = made(**given, sample_weight=np.random.default_rng(0).uniform(size=40))
    batches = make_batches(weights, labeled_batch=labeled_batch)
    factor = batches.importance(weights.samples, 200)
    values = np.random.default_rng(1).normal(size=200)
    values[ROWS] += 5 * LABELS
    steps = 30 * 6 * 4 * 3
    drawn = np.concatenate([batches(step).labeled for step in range(steps)])
    expected = np.average(values[ROWS], weights=weights.samples)
    assert (factor * values)[drawn].mean() == pytest.approx(expected, abs=tolerance)
    if labeled_batch is None:
        assert abs(values[drawn].mean() - expected) > 0.2


def gradient(weights: torch.Tensor | None) -> torch.Tensor:
    net = mlp(4, 3, hidden_sizes=[4])
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(8) % 3
    x = torch.zeros(8, 4)
    step = Step(net, x, labels, None, x, None, logits, 0.0, weights=weights)
    Supervised(3)(step)["cross_entropy"].backward()
    assert logits.grad is not None
    return logits.grad


def test_the_gradient_is_that_of_the_weighted_cross_entropy() -> None:
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels, of_class = torch.arange(8) % 3, torch.tensor([0.5, 2.0, 3.0])
    torch.autograd.backward(F.cross_entropy(logits, labels, of_class, reduction="sum") / 8)
    assert logits.grad is not None
    torch.testing.assert_close(gradient(of_class[labels]), logits.grad)
    p = logits.detach().softmax(1) - F.one_hot(labels, 3)
    torch.testing.assert_close(gradient(None), p / 8)
    assert not torch.allclose(gradient(of_class[labels]), gradient(None))


def test_a_step_of_the_trainer_has_the_weights_of_its_samples() -> None:
    weights = made(class_weight={"c": 5.0})
    rng = np.random.default_rng(0)
    everyone = np.arange(200)
    y = np.zeros(200, np.int64)
    y[ROWS] = LABELS
    trainer = Trainer(
        Fabric(accelerator="cpu", devices=1),
        replace(make_recipe("short", "digits"), max_steps=2, learning_rate=1e-9),
        rng.normal(size=(200, 4)).astype(np.float32),
        y,
        Split(ROWS, everyone, everyone[:0]),
        make_net=lambda: mlp(4, 3, hidden_sizes=[4], noise=0, dropout=0),
        make_methods=lambda: make_methods("supervised", 3, {}),
        labeled_batch=None,
        seed=0,
        label_weights=weights,
    )
    labeled = trainer.batches(0).labeled
    factors = trainer.batches.importance(weights.samples, 200)[labeled]
    with torch.no_grad():
        z = trainer.objective.net.features(
            trainer.objective.inputs(torch.tensor(trainer.x[labeled]))
        )
        logits = trainer.objective.net.classifier(z)
    each = F.cross_entropy(logits, torch.tensor(y[labeled]), reduction="none").numpy()
    found = trainer.step(0).terms["cross_entropy"]
    assert found == pytest.approx((factors * each).mean(), rel=1e-5)
    assert found != pytest.approx(each.mean(), rel=1e-2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"class_weight": "even"}, "class_weight must be 'balanced' or weights by class, got 'ev"),
        ({"class_weight": [1, 2, 3]}, "class_weight must be 'balanced' or weights by class"),
        ({"class_weight": {}}, "class_weight must be 'balanced' or weights by class"),
        ({"class_weight": {"d": 1}}, "class_weight has 'd', but the classes are 'a', 'b', 'c'"),
        ({"class_weight": {"a": -1}}, "class_weight of 'a' must be at least 0, got -1"),
        ({"class_weight": {"a": 0, "b": 0, "c": 0}}, "must not be 0 for all labeled samples"),
        ({"sample_weight": np.zeros(40)}, "must not be 0 for all labeled samples"),
        ({"class_prior": [0.9, 0.1]}, "class_prior must be shares by class, or one of"),
        ({"class_prior": {"a": 0.9, "b": 0.1}}, "class_prior must have a share of .*none of 'c'"),
        ({"class_prior": {"a": 0.5, "b": 0.1, "c": 0.1}}, "class_prior must sum to 1, got 0.7"),
        ({"class_prior": {"a": 1.0, "b": 0, "c": 0}}, "class_prior of 'b' must be .*above 0"),
    ],
)  # fmt: skip
def test_bad_weights(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**given)


def test_pseudo_labels_have_the_shares_that_are_known() -> None:
    """Ten labels of each class say half and half; in truth one class is 5 %."""
    X, y, _, _ = rare(0, (10, 10))
    few, known = (
        LabelGraph(X, y, 2, class_prior=prior).propagate().argmax(1).mean()
        for prior in (np.array([0.5, 0.5]), np.array([0.95, 0.05]))
    )
    assert abs(known - 0.05) < 0.03 < 0.1 < few


@pytest.mark.parametrize(
    ("labels", "given"),
    [((38, 2), {"class_weight": "balanced"}), ((10, 10), {"class_prior": {0: 0.95, 1: 0.05}})],
)
def test_the_estimator_finds_a_rare_class(labels: tuple[int, int], given: Any) -> None:
    X, y, X_test, truth = rare(0, labels)
    nothing: dict[str, Any] = {}
    plain: dict[str, Any] = {
        "method": "cclp",
        "random_state": 0,
        "batch_size": (5, 100),
        "max_iter": 150,
    }
    without, found = (
        balanced_accuracy_score(truth, CCLPClassifier(**plain, **more).fit(X, y).predict(X_test))
        for more in (nothing, given)
    )
    assert found > without + 0.05


def test_sample_weights_of_the_estimator() -> None:
    X, y, _, _ = rare(0, (30, 6), common=190)
    plain: dict[str, Any] = {"method": "supervised", "random_state": 0, "max_iter": 30}

    def fitted(weight: Any, **more: Any) -> NDArray[np.float32]:
        return CCLPClassifier(**plain, **more).fit(X, y, weight).predict_proba(X)

    ones = np.ones(len(X))
    np.testing.assert_allclose(fitted(ones), fitted(None), rtol=1e-4, atol=1e-5)
    ignored = np.where(y < 0, 100.0, 1.0)  # of unlabeled samples
    np.testing.assert_array_equal(fitted(ignored), fitted(ones))
    np.testing.assert_allclose(fitted(7 * ones), fitted(ones), rtol=1e-4, atol=1e-5)
    for heavy in (0, 1):
        towards = fitted(np.where(y == heavy, 100.0, 1.0))[:, heavy].mean()
        assert towards > fitted(ones)[:, heavy].mean() + 0.02
        towards = fitted(None, class_weight={heavy: 100.0})[:, heavy].mean()
        assert towards > fitted(None, class_weight={1 - heavy: 100.0})[:, heavy].mean() + 0.02
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        fitted(-ones)
    with pytest.raises(ValueError, match=r"sample_weight\.shape"):
        fitted(ones[:5])


def test_a_run_resumes_with_its_weights(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "class_weight": {"3": 4.0},
        "class_prior": {str(c): 0.55 if c == 3 else 0.05 for c in range(10)},
        "method": "cclp+graph_pseudo_label",
    }
    config = tiny_config(**given)
    whole, out = tmp_path / "whole", tmp_path / "run"
    train(config, whole)
    with pytest.raises(Stopped):
        train(config, out, should_stop=stop_after(5))
    resume(out)
    assert_same_run(out, whole)
    train(tiny_config(method=given["method"]), tmp_path / "plain")
    assert last_weights(tmp_path / "plain") != last_weights(whole)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y, X_test, truth = rare(0, (38, 2))
    data = tmp_path / "rare.npz"
    np.savez(data, X=X, y=y, X_test=X_test, y_test=truth)
    few = ["--max-steps", "6", "--unlabeled-batch", "40"]
    line = ["train", str(data), "--method", "cclp", *few, "--quiet", "--out"]
    assert call(*line, str(tmp_path / "a"), "--class-weight", "balanced") == 0
    assert call(*line, str(tmp_path / "b"), "--class-weight", "0=1,1=19") == 0
    assert call(*line, str(tmp_path / "c"), "--class-prior", "0=0.95,1=0.05") == 0
    assert call(*line, str(tmp_path / "d")) == 0
    a, b, c, d = (json.loads((tmp_path / run / "config.json").read_text()) for run in "abcd")
    assert (a["config"]["class_weight"], a["config"]["class_prior"]) == ("balanced", None)
    assert b["config"]["class_weight"] == {"0": 1.0, "1": 19.0}
    assert c["config"]["class_prior"] == {"0": 0.95, "1": 0.05}
    assert d["config"]["class_weight"] is d["config"]["class_prior"] is None
    weights = [last_weights(tmp_path / run) for run in "abcd"]
    assert weights[3] not in weights[:3]
    assert call("evaluate", str(tmp_path / "a")) == 0
    assert call("train", "--resume", str(tmp_path / "a"), "--class-weight", "balanced") == 2
    capsys.readouterr()
    for option, value, message in (
        ("--class-weight", "even", "must be balanced|CLASS=W"),
        ("--class-weight", "0=1,0=2", "every class once, got '0=2'"),
        ("--class-weight", "0=x", "got '0=x'"),
        ("--class-weight", "2=1", "class_weight has '2', but the classes are '0', '1'"),
        ("--class-weight", "0=-1", "class_weight of '0' must be at least 0"),
        ("--class-prior", "balanced", "must be estimate|labels|equal|CLASS=SHARE"),
        ("--class-prior", "0=0.5,1=0.6", "class_prior must sum to 1, got 1.1"),
        ("--class-prior", "0=1", "class_prior must have a share of every class, got none of '1'"),
    ):
        assert call(*line, str(tmp_path / "bad"), option, value) == 2
        said = capsys.readouterr().err
        assert message in said
        assert "Traceback" not in said
    assert not (tmp_path / "bad").exists()
