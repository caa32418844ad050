"""The estimator: scikit-learn's own checks, and what they do not ask."""

import pickle
import random
import warnings
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from cclp.sklearn import CCLPClassifier
from cclp.sklearn.parameters import make_split

EXPECTED_FAILURES = {
    "check_classifiers_classes": "uses -1 as a class, which marks unlabeled samples here",
    "check_sample_weight_equivalence_on_dense_data": "mini-batches are drawn at random, and "
    "a sample of weight 2 is not drawn as two samples are",
}
SMALL: dict[str, Any] = {"max_iter": 20, "hidden_sizes": (64,), "embedding_size": 32}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [CCLPClassifier(**SMALL)], expected_failed_checks=lambda estimator: EXPECTED_FAILURES
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def some(labels: int = 4) -> tuple[NDArray[Any], ...]:
    """Three well separated groups: X, y with few labels, the truth."""
    X, truth = make_blobs(90, n_features=5, centers=3, random_state=0)
    y = np.full(90, -1)
    for c in range(3):
        y[np.flatnonzero(truth == c)[:labels]] = c
    return X, y, truth


def model(**settings: Any) -> CCLPClassifier:
    plain = {"max_iter": 40, "hidden_sizes": (32,), "embedding_size": 16, "random_state": 0}
    return CCLPClassifier(**{**plain, **settings})


def decision(model: CCLPClassifier) -> dict[str, Any]:
    """About its pseudo-labels."""
    assert model.pseudo_label_decision_ is not None
    return model.pseudo_label_decision_


@pytest.fixture(scope="module")
def fitted() -> CCLPClassifier:
    """A model of some(); not to be changed."""
    X, y, _ = some()
    return model().fit(X, y)


@pytest.fixture(scope="module")
def expected(fitted: CCLPClassifier) -> NDArray[np.float32]:
    """Its probabilities."""
    return fitted.predict_proba(some()[0])


def test_few_labels_go_far() -> None:
    """With the estimator's own settings."""
    X, truth = make_moons(300, noise=0.08, random_state=1)
    y = np.full(300, -1)
    for c in (0, 1):
        y[np.flatnonzero(truth == c)[:3]] = c
    whole = CCLPClassifier(random_state=0).fit(X[:200], y[:200])
    assert whole.score(X[200:], truth[200:]) > 0.95
    alone = CCLPClassifier(method="supervised", random_state=0).fit(X[:200], y[:200])
    assert alone.score(X[200:], truth[200:]) < 0.92


def test_attributes(fitted: CCLPClassifier) -> None:
    X, _, truth = some()
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.n_iter_ == 40
    assert fitted.n_features_in_ == 5
    assert set(fitted.history_) == {"cross_entropy", "cclp", "graph_pseudo_label"}
    assert len(fitted.history_["cclp"]) == 40
    assert isinstance(fitted.module_, nn.Module)
    assert fitted.transform(X).shape == (90, 16)
    assert list(fitted.get_feature_names_out()) == [f"cclpclassifier{k}" for k in range(16)]
    for values in (fitted.predict_proba(X), fitted.decision_function(X), fitted.transform(X)):
        assert values.dtype == np.float32
    assert fitted.score(X, truth) > 0.9


@pytest.mark.parametrize(
    "marked",
    [
        lambda y: np.where(y < 0, np.nan, y),
        lambda y: np.array([None if c < 0 else c for c in y], dtype=object),
        lambda y: [None if c < 0 else float(c) for c in y],
        lambda y: np.array([np.nan if c < 0 else c for c in y], dtype=object),
        lambda y: y.astype(float),
    ],
)
def test_marks_of_unlabeled_samples_mean_the_same(
    marked: Any, expected: NDArray[np.float32]
) -> None:
    X, y, _ = some()
    found = model().fit(X, marked(y))
    assert found.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(found.predict_proba(X), expected)


def test_string_labels() -> None:
    X, y, truth = some()
    names = np.array(["pear", "fig", "plum"])
    mixed = np.array([None if c < 0 else names[c] for c in y], dtype=object)
    fitted = model().fit(X, mixed)
    assert fitted.classes_.tolist() == ["fig", "pear", "plum"]
    assert (fitted.predict(X) == names[truth]).mean() > 0.9
    assert fitted.score(X, mixed) > 0.9
    whole = model(max_iter=3).fit(X, names[truth])
    assert whole.classes_.dtype.kind == "U"


def test_frames_of_pandas_and_polars(expected: NDArray[np.float32]) -> None:
    X, y, _ = some()
    columns = [f"c{k}" for k in range(5)]
    frame = pandas.DataFrame(X, columns=columns)
    nullable = pandas.Series(y, dtype="Int64").replace(-1, pandas.NA)
    fitted = model().fit(frame, nullable)
    assert fitted.feature_names_in_.tolist() == columns
    np.testing.assert_array_equal(fitted.predict_proba(frame), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(frame[columns[::-1]])
    named = fitted.set_output(transform="pandas").transform(frame)
    assert list(named.columns) == [f"cclpclassifier{k}" for k in range(16)]
    other = polars.DataFrame(dict(zip(columns, X.T, strict=True)))
    nulls = polars.Series([None if c < 0 else int(c) for c in y])
    np.testing.assert_array_equal(model().fit(other, nulls).predict_proba(other), expected)


def test_score_leaves_unlabeled_samples_out(fitted: CCLPClassifier) -> None:
    X, y, truth = some()
    known = y >= 0
    assert fitted.score(X, y) == (fitted.predict(X)[known] == truth[known]).mean()
    weight = np.where(known & (truth == 0), 1.0, 0.0)
    assert fitted.score(X, y, weight) == (fitted.predict(X)[weight > 0] == 0).mean()


def test_random_state(expected: NDArray[np.float32]) -> None:
    X, y, _ = some()
    again, other = (model(random_state=seed).fit(X, y).predict_proba(X) for seed in (0, 1))
    np.testing.assert_array_equal(again, expected)
    assert not np.array_equal(other, expected)


def test_the_callers_generators_are_left_alone() -> None:
    X, y, _ = some()
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    expected = torch.rand(1).item(), np.random.rand(), random.random()
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    model(max_iter=2).fit(X, y)
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == expected


def test_clone_pickle_pipeline_and_searches(
    fitted: CCLPClassifier, expected: NDArray[np.float32]
) -> None:
    X, y, truth = some()
    assert clone(fitted).get_params() == fitted.get_params()
    loaded = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    assert make_pipeline(StandardScaler(), model(**SMALL)).fit(X, y).score(X, truth) > 0.9
    search = GridSearchCV(model(**SMALL), {"weight": [0.1, 1.0]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.7
    assert cross_val_score(model(**SMALL), X, truth, cv=2).mean() > 0.9
    strings = np.array([None if c < 0 else f"c{c}" for c in y], dtype=object)
    folds = KFold(2, shuffle=True, random_state=0)
    assert cross_val_score(model(**SMALL), X, strings, cv=folds).mean() > 0.7


def test_methods_and_weights() -> None:
    X, y, _ = some()
    found = model(method="entropy+vat", weight={"entropy": 0.0}, max_iter=2).fit(X, y)
    assert set(found.history_) == {"cross_entropy", "entropy", "vat"}
    assert found.history_["entropy"] == [0, 0]
    assert any(found.history_["vat"])
    with pytest.raises(ValueError, match="weight must be by method"):
        model(method="entropy+vat", weight=0.0).fit(X, y)


def test_predictions_are_the_teachers() -> None:
    """Terms of weight 0 change nothing, but a mean teacher is an average of the trained network."""
    X, y, _ = some()
    entropy, pseudo_label, teacher = (
        list(model(method=name, weight=0.0, max_iter=5).fit(X, y).module_.parameters())
        for name in ("entropy", "pseudo_label", "mean_teacher")
    )
    assert all(map(torch.allclose, entropy, pseudo_label))
    assert not any(map(torch.allclose, entropy, teacher))


def test_pseudo_labels_by_method(fitted: CCLPClassifier) -> None:
    """The default has them; "cclp" is the paper's method alone."""
    X, y, truth = some()
    assert fitted.get_params()["method"] == "cclp+graph_pseudo_label"
    expected = {"supervised_warmup": 0.0, "correct": 12, "tested": 12, "shares": None}
    teachers = decision(fitted)["teachers"]
    assert decision(fitted) == {"pseudo_labels": "used", "teachers": teachers, **expected}
    assert teachers["graph"] > 0.5
    assert sum(teachers.values()) == pytest.approx(1)
    told = model(class_prior={0: 0.3, 1: 0.3, 2: 0.4}, max_iter=2).fit(X, y)
    assert decision(told)["teachers"] is None
    assert set(told.history_) == {"cross_entropy", "cclp"}
    zero = model(weight=0.0, max_iter=2).fit(X, y)  # of what is there besides them
    assert zero.history_["cclp"] == [0, 0]
    paper = model(method="cclp").fit(X, y)
    assert paper.pseudo_label_decision_ is None
    assert paper.history_["cclp"][0] != fitted.history_["cclp"][0]
    known = model(max_iter=2).fit(X, truth)
    assert decision(known)["pseudo_labels"] == "known"
    alone = model(method="graph_pseudo_label", max_iter=10).fit(X, y)
    assert [len(terms) for terms in alone.history_.values()] == [10, 10]
    weighted = model(method="graph_pseudo_label", max_iter=2, weight=3.0).fit(X, y)
    ratio = weighted.history_["graph_pseudo_label"][0] / alone.history_["graph_pseudo_label"][0]
    assert ratio == pytest.approx(3)


def test_poor_pseudo_labels_are_refused() -> None:
    X, _, truth = some()
    noise = np.random.default_rng(0).normal(size=X.shape)
    y = np.where(np.arange(90) < 60, truth, -1)
    found, paper = (model(max_iter=3, method=name) for name in (model().method, "cclp"))
    assert decision(found.fit(noise, y))["pseudo_labels"] == "refused"
    assert found.history_ == paper.fit(noise, y).history_


def test_networks() -> None:
    X, truth = load_digits(return_X_y=True)
    X, truth = X[:200], truth[:200]
    fitted = model(net="cnn", image_shape=(8, 8), max_iter=3).fit(X, truth)
    assert fitted.transform(X[:3]).shape == (3, 128)

    def own(shape: tuple[int, ...], classes: int) -> nn.Module:
        layers = {"features": nn.Linear(shape[0], 7), "classifier": nn.Linear(7, classes)}
        return nn.Sequential(OrderedDict(layers))

    fitted = model(net=own, max_iter=3).fit(X, truth)
    assert fitted.transform(X[:3]).shape == (3, 7)


def test_early_stopping_keeps_the_best() -> None:
    X, y, truth = some(labels=20)
    X = X + np.random.default_rng(0).normal(scale=4, size=X.shape)
    found = model(early_stopping=True, validation_fraction=0.5, max_iter=200).fit(X, y)
    scores, steps = (found.history_[f"validation_{what}"] for what in ("score", "step"))
    assert found.n_iter_ == steps[-1] < 200
    assert steps[-1] - steps[int(np.argmax(scores))] == 40  # a fifth more was waited for
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    held_out = make_split(y, 0.5, seed).held_out
    assert len(held_out) == 30
    assert found.score(X[held_out], truth[held_out]) == pytest.approx(max(scores))
    assert decision(found)["tested"] == 30  # held-out labels are not looked at


def test_warm_start_continues() -> None:
    X, y, _ = some()
    once = model(warm_start=True).fit(X, y)
    before = once.history_["cross_entropy"]
    again = once.fit(X, y).history_["cross_entropy"]
    assert np.mean(again[:5]) < np.mean(before[:5]) / 2
    with pytest.raises(ValueError, match="warm_start needs the classes of the last fit"):
        once.fit(X, np.where(y == 2, -1, y))
    with pytest.raises(ValueError, match="warm_start needs the features, network and method"):
        once.fit(X[:, :3], y)
    once.set_params(hidden_sizes=(8,))
    with pytest.raises(ValueError, match="warm_start needs the features, network and method"):
        once.fit(X, y)


def test_a_failed_fit_leaves_the_last_one(
    fitted: CCLPClassifier, expected: NDArray[np.float32]
) -> None:
    X, y, _ = some()
    fitted = deepcopy(fitted)
    with pytest.raises(ValueError, match="needs image_shape"):
        fitted.set_params(net="cnn").fit(X, y)
    fitted.set_params(net="mlp")
    with pytest.raises(ValueError, match="no label"):
        fitted.fit(X[:, :2], np.full(90, -1))
    with pytest.raises(FloatingPointError):
        fitted.set_params(learning_rate=1e30).fit(X, y)
    np.testing.assert_array_equal(fitted.predict_proba(X), expected)
    fresh = model()
    with pytest.raises(ValueError, match="no label"):
        fresh.fit(X, np.full(90, -1))
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_lists_of_strings_keep_their_marks() -> None:
    X, y, truth = some()
    names = ["pear", "fig", "plum"]
    for mark in (-1, float("nan"), None):
        listed = [mark if c < 0 else names[c] for c in y]
        fitted = model(max_iter=3).fit(X, listed)
        assert fitted.classes_.tolist() == ["fig", "pear", "plum"]
        assert 0 <= fitted.score(X, listed) <= 1
    for word in ("", "-1", "nan", "None", "unlabeled"):
        strings = np.array([word if c < 0 else names[c] for c in y])
        for same in (strings, strings.astype(object), strings.tolist()):
            again = model(max_iter=3).fit(X, same)
            np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
            assert again.classes_.tolist() == ["fig", "pear", "plum"]
    kept = np.array(["unknown" if c < 0 else names[c] for c in y])
    assert model(max_iter=3).fit(X, kept).classes_.tolist() == ["fig", "pear", "plum", "unknown"]
    with pytest.raises(ValueError, match="labels of one kind"):
        model().fit(X, [names[0] if c < 0 else c for c in y])
    wrong = np.array([f"{names[c]} " for c in truth])
    assert fitted.score(X, wrong) == 0


def test_large_offsets_keep_small_differences() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 2
    X = (1.7e9 + 60 * truth + rng.normal(size=60))[:, None]
    assert model().fit(X, truth).score(X, truth) == 1


def test_arrays_of_any_layout() -> None:
    X, y, _ = some()
    X = X.astype(np.float32)
    expected = model(max_iter=3).fit(X, y).predict_proba(X)
    for same in (X[::-1][::-1], np.asfortranarray(X), X.astype(">f4")):
        found = model(max_iter=3).fit(same, y).predict_proba(same)
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_threads_do_not_disturb_each_other(expected: NDArray[np.float32]) -> None:
    X, y, _ = some()
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(lambda _: model().fit(X, y), range(3)):
            np.testing.assert_array_equal(found.predict_proba(X), expected)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([-1] * 90, "y has no label"),
        ([None] * 90, "y has no label"),
        ([0] + [-1] * 89, "at least 2 classes, got 1 class: 0"),
        ([1] * 45 + [-1] * 45, "-1 marks unlabeled samples"),
        (np.linspace(0, 1, 90), "Unknown label type"),
        ([0, 1], "inconsistent numbers of samples"),
        (None, "requires y to be passed"),
    ],
)
def test_bad_labels(y: Any, message: str) -> None:
    X, _, _ = some()
    with pytest.raises(ValueError, match=message):
        model().fit(X, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"net": "resnet"}, "net must be one of 'mlp', 'cnn', 'linear', got 'resnet'"),
        ({"net": lambda shape, classes: 3}, "must take .shape, num_classes. and give"),
        ({"net": "cnn"}, "net='cnn' needs image_shape"),
        ({"image_shape": (2, 2)}, r"image_shape must be .* of the 5 features, got \(2, 2\)"),
        ({"method": "vta"}, "method must be one of"),
        ({"weight": -1}, "weight must be at least 0"),
        ({"weight": {"vat": 1}}, "weight has 'vat', but the method is 'cclp.graph_pseudo_label'"),
        ({"method": "supervised", "weight": 1}, "weight has no effect with method='supervised'"),
        ({"similarity": "cubic"}, "similarity must be one of"),
        ({"class_weight": "even"}, "class_weight must be 'balanced' or weights by class"),
        ({"class_weight": {3: 2.0}}, "class_weight has 3, but the classes are 0, 1, 2"),
        ({"class_prior": {0: 0.5, 1: 0.5}}, "class_prior must have a share of every class"),
        ({"device": "tpu"}, "device must be one of"),
        ({"precision": 16}, "precision must be one of"),
        ({"batch_size": 32}, "batch_size must be"),
        ({"batch_size": (0, 9)}, r"batch_size\[0\] must be at least 1"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"chain_steps": 0}, "chain_steps must be at least 1, got 0"),
        ({"learning_rate": 0}, "learning_rate must be finite and above 0"),
        ({"hidden_sizes": (0,)}, "hidden_sizes must be at least 1"),
        ({"hidden_sizes": 16}, "hidden_sizes must be a tuple, got 16"),
        ({"image_shape": 5}, "image_shape must be a tuple, got 5"),
        ({"method": None}, "method must be a string, got None"),
        ({"early_stopping": True, "validation_fraction": 6}, "validation_fraction must be below 1"),
    ],
)
def test_bad_parameters(settings: dict[str, Any], message: str) -> None:
    X, y, _ = some()
    with pytest.raises(ValueError, match=message):
        model(**settings).fit(X, y)


def test_bad_samples(fitted: CCLPClassifier) -> None:
    X, y, _ = some()
    for bad in (np.nan, np.inf):
        broken = X.copy()
        broken[3, 2] = bad
        with pytest.raises(ValueError, match="Input X contains"):
            model().fit(broken, y)
    with pytest.raises(NotFittedError):
        model().predict(X)
    with pytest.raises(ValueError, match="X has 3 features, but CCLPClassifier is expecting 5"):
        fitted.predict(X[:, :3])


def test_all_labeled_works() -> None:
    X, _, truth = some()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model().fit(X, truth).score(X, truth) > 0.9


def test_progress_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    X, y, _ = some()
    model(max_iter=2).fit(X, y)
    assert capsys.readouterr() == ("", "")
    model(early_stopping=True, validation_fraction=0.5, verbose=True, max_iter=2).fit(X, y)
    assert "cclp+graph_pseudo_label, 90 samples, 6 labels: step 1/2" in capsys.readouterr().err
