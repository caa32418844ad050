"""``GraphLabelPropagation``: scikit-learn's checks, each method against its definition, and users'
inputs.
"""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import make_blobs, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import kneighbors_graph
from sklearn.semi_supervised import LabelSpreading
from sklearn.utils.estimator_checks import parametrize_with_checks

from cclp.data.load import load
from cclp.pseudo_labels import neighbours
from cclp.pseudo_labels.propagation import PropagationMethod
from cclp.sklearn import GraphLabelPropagation
from tests.pseudo_labels import dense_affinity, dense_propagation, drawings, few_labels, one_hot

METHODS: tuple[PropagationMethod, ...] = ("mbo", "spreading", "harmonic", "poisson")
MINUS_ONE = {"check_classifiers_classes": "uses -1 as a class, which marks unlabeled samples here"}


@pytest.mark.filterwarnings("ignore:(the graph is poor|features have very different units)")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [GraphLabelPropagation(), GraphLabelPropagation(method="poisson")],
    expected_failed_checks=lambda estimator: MINUS_ONE,
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def moons(count: int = 400) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Samples, three labels a class, the truth."""
    X, truth = make_moons(count, noise=0.05, random_state=0)
    return X, few_labels(truth, 3), truth


def knn(X: NDArray[Any]) -> sparse.csr_matrix:
    """A symmetric graph as a user of scikit-learn has it."""
    W = kneighbors_graph(X, 6)
    return W.maximum(W.T).tocsr()


@pytest.mark.parametrize("method", METHODS)
def test_labels_follow_the_moons(method: PropagationMethod) -> None:
    X, y, truth = moons()
    model = GraphLabelPropagation(method=method).fit(X, y)
    assert (model.transduction_ == truth).mean() > 0.98
    np.testing.assert_array_equal(model.transduction_[y >= 0], y[y >= 0])
    np.testing.assert_allclose(model.label_distributions_.sum(1), 1)
    np.testing.assert_array_equal(model.label_distributions_.argmax(1), model.transduction_)
    assert model.leave_one_out_score_ == 1
    new, expected = make_moons(300, noise=0.05, random_state=1)
    assert (model.predict(new) == expected).mean() > 0.97
    assert model.score(new, expected) == (model.predict(new) == expected).mean()
    np.testing.assert_allclose(model.predict_proba(new).sum(1), 1)


def test_spreading_is_zhous() -> None:
    X, y, _ = moons(150)
    model = GraphLabelPropagation(method="spreading").fit(X, y)
    F = dense_propagation(dense_affinity(X), one_hot(y, 2))
    expected = F / F.sum(1, keepdims=True)
    np.testing.assert_allclose(model.label_distributions_[y < 0], expected[y < 0], rtol=1e-4)


def test_spreading_on_a_precomputed_graph_is_scikit_learns() -> None:
    X, y, _ = moons(200)
    W = knn(X)
    mine = GraphLabelPropagation(method="spreading", alpha=0.9, affinity="precomputed").fit(W, y)
    other = LabelSpreading(kernel=lambda a, b: W.toarray(), alpha=0.9, max_iter=2000, tol=1e-12)
    other.fit(X, y)
    unlabeled = y < 0
    np.testing.assert_allclose(
        mine.label_distributions_[unlabeled], other.label_distributions_[unlabeled], atol=1e-9
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_precomputed_graph_is_the_graph(method: PropagationMethod) -> None:
    X, y, _ = moons(200)
    plain = GraphLabelPropagation(method=method).fit(X, y)
    same = GraphLabelPropagation(method=method, affinity="precomputed")
    same.fit(plain.affinity_matrix_, y)
    np.testing.assert_allclose(same.label_distributions_, plain.label_distributions_, atol=1e-8)
    predicted = same.predict(knn(X)[:50])
    assert (predicted == same.transduction_[:50]).mean() > 0.95
    assert plain.affinity_matrix_ is not None
    one_way = sparse.csr_matrix(np.triu(plain.affinity_matrix_.toarray()))
    again = GraphLabelPropagation(method=method, affinity="precomputed").fit(one_way, y)
    np.testing.assert_array_equal(again.transduction_, same.transduction_)


@pytest.mark.filterwarnings("ignore:the graph is poor")
def test_images_by_their_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph of images, which is better than that of their pixels as numbers."""
    monkeypatch.setattr(neighbours, "CANDIDATES", 12)
    truth, rng = load("digits").train_y[:240], np.random.default_rng(0)
    X = np.stack(
        [np.pad(image[0], 3)[a : a + 20, b : b + 20].ravel() for image, a, b in zip(
            drawings(240), *rng.integers(0, 3, (2, 240)), strict=True)]
    )  # fmt: skip
    y = np.where(np.arange(240) < 40, truth, -1)
    right = {}
    kinds: dict[str, dict[str, Any]] = {
        "vectors": {},
        "hog": {"image_shape": (20, 20), "image_distance": "hog"},
        "idm": {"image_shape": (1, 20, 20)},
    }
    for name, settings in kinds.items():
        model = GraphLabelPropagation(**settings).fit(X[:200], y[:200])
        right[name] = (model.transduction_ == truth[:200]).mean()
        right[f"{name}, new"] = (model.predict(X[200:]) == truth[200:]).mean()
    assert right["idm"] > right["vectors"] + 0.05
    assert right["hog"] > right["vectors"] + 0.05
    assert right["idm, new"] > right["vectors, new"]


def test_class_sizes_that_are_known() -> None:
    """Two groups that overlap, of very different size; as many labels of each."""
    X, truth = make_blobs([360, 40], centers=np.array([[0, 0], [2.4, 0]]), random_state=0)
    y = few_labels(truth, 4)
    for method in METHODS:
        plain = GraphLabelPropagation(method=method, class_prior="equal").fit(X, y).transduction_
        prior = {0: 0.9, 1: 0.1}
        told = GraphLabelPropagation(method=method, class_prior=prior).fit(X, y).transduction_
        assert (told == truth).mean() >= (plain == truth).mean()
        assert abs((told == 1).mean() - 0.1) < abs((plain == 1).mean() - 0.1) + 0.01


def test_the_score_says_how_far_the_graph_can_be_trusted() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 10)), np.full(300, -1)
    y[:60] = rng.integers(0, 3, 60)
    with pytest.warns(UserWarning, match=r"graph is poor: leave-one-out accuracy \d+/60, .* 33%"):
        model = GraphLabelPropagation().fit(X, y)
    assert 0.15 < model.leave_one_out_score_ < 0.55
    X, y, truth = moons()
    assert np.isnan(GraphLabelPropagation().fit(X, few_labels(truth, 1)).leave_one_out_score_)


def test_units_are_warned_of() -> None:
    X, y, truth = moons()
    rng = np.random.default_rng(0)
    wide = np.column_stack([X, rng.normal(size=400), 1e4 * X[:, 0]])
    with pytest.warns(UserWarning, match="very different units .* standardised"):
        model = GraphLabelPropagation().fit(wide, y)
    assert (model.transduction_ == truth).mean() > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GraphLabelPropagation().fit(X, y)


def test_labels_of_any_kind_and_frames() -> None:
    X, y, truth = moons()
    names = np.array(["a", "b"], dtype=object)[truth]
    labels = names.copy()
    labels[y < 0] = None
    frame = pd.DataFrame(X, columns=["east", "north"])
    model = GraphLabelPropagation().fit(frame, labels)
    assert model.classes_.tolist() == ["a", "b"]
    assert (model.transduction_ == names).mean() > 0.98
    assert model.feature_names_in_.tolist() == ["east", "north"]
    assert model.score(frame, labels) == 1


def test_samples_far_from_every_label_get_the_nearest_class_and_little_certainty() -> None:
    X = np.concatenate([np.linspace(0, 1, 10), 100 + np.linspace(0, 1, 10)])[:, None]
    y = np.full(20, -1)
    y[[0, 9]] = [0, 1]
    for method in METHODS:
        with pytest.warns(UserWarning, match="10 of 20 samples are in connected components"):
            model = GraphLabelPropagation(method=method).fit(X, y)
        np.testing.assert_array_equal(model.transduction_[10:], 1)
        assert (model.label_distributions_[10:, 1] <= 0.75).all()
        assert model.predict_proba([[100.5]])[0, 1] < 0.7501
        with pytest.warns(UserWarning, match="hold no label: their classes are guesses"):
            model = GraphLabelPropagation(method=method, affinity="precomputed").fit(
                kneighbors_graph(X, 2), y
            )
        np.testing.assert_allclose(model.label_distributions_[10:], [[1 / 2, 1 / 2]] * 10)


def test_small_moons_are_whole() -> None:
    """With five neighbours each they fall into parts, some of them without a label."""
    for seed in range(5):
        X, truth = make_moons(300, noise=0.05, random_state=seed)
        y = few_labels(truth, 1)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*connected components")
            model = GraphLabelPropagation().fit(X, y)
        np.testing.assert_array_equal(model.transduction_, truth)


def test_nothing_tells_samples_apart() -> None:
    blank = GraphLabelPropagation().fit(np.zeros((4, 2)), [0, 0, 1, -1])
    np.testing.assert_allclose(blank.predict_proba([[1, 1]]), [[2 / 3, 1 / 3]])


def test_neighbours_are_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, truth = moons()
    first = GraphLabelPropagation(memory=tmp_path).fit(X, y)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(neighbours, "nearest", None)
    second = GraphLabelPropagation(memory=str(tmp_path)).fit(X, few_labels(truth, 2))
    np.testing.assert_array_equal(second.transduction_, first.transduction_)


def test_a_fitted_model_does_not_look_at_samples_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "CANDIDATES", 8)
    X = drawings(60).reshape(60, 256).astype(float)
    y = np.where(np.arange(60) < 30, load("digits").train_y[:60], -1)
    given, new = X[:50].copy(), X[50:]
    model = GraphLabelPropagation(image_shape=(16, 16)).fit(given, y[:50])
    given[:] = 0
    other = GraphLabelPropagation(image_shape=(16, 16)).fit(X[:50], y[:50])
    np.testing.assert_array_equal(model.predict_proba(new), other.predict_proba(new))


def test_a_fit_that_fails_leaves_the_last_one() -> None:
    X, y, _ = moons()
    model = GraphLabelPropagation().fit(X, y)
    with pytest.raises(ValueError, match="has no label"):
        model.fit(X[:, :1], np.full(400, -1))
    assert model.n_features_in_ == 2
    assert len(model.predict(X)) == 400


def test_it_pickles() -> None:
    X, y, _ = moons()
    model = GraphLabelPropagation().fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X[:20]), model.predict_proba(X[:20]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "zhu"}, "method must be one of 'mbo', .* got 'zhu'"),
        ({"n_neighbors": 0}, "n_neighbors must be .* got 0"),
        ({"alpha": 1.0}, "alpha must be below 1"),
        ({"alpha": 0}, "alpha must be finite and above 0"),
        ({"affinity": "rbf"}, "affinity must be one of 'knn', 'precomputed'"),
        ({"image_distance": "l2"}, "image_distance must be one of 'idm', 'hog'"),
        ({"image_shape": (2, 3)}, r"of the 2 features, got \(2, 3\)"),
        ({"image_shape": (1, 2), "affinity": "precomputed"}, "image_shape has no effect"),
        ({"affinity": "precomputed"}, r"X must be square .* got \(400, 2\)"),
        ({"class_prior": {0: 0.5, 7: 0.5}}, "class_prior"),
    ],
)
def test_parameters_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    X, y, _ = moons()
    with pytest.raises(ValueError, match=message):
        GraphLabelPropagation(**settings).fit(X, y)


def test_affinities_that_cannot_be() -> None:
    X, y, _ = moons()
    with pytest.raises(ValueError, match="Negative values"):
        GraphLabelPropagation(affinity="precomputed").fit(-knn(X), y)
    with pytest.raises(NotFittedError):
        GraphLabelPropagation().predict(X)
