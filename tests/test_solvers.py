"""Label propagation and graph cuts against dense matrices."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from cclp.pseudo_labels import solvers
from cclp.pseudo_labels.graph import LabelGraph
from cclp.pseudo_labels.neighbours import Neighbours, find_neighbours
from cclp.pseudo_labels.solvers import (
    affinity,
    class_scale,
    class_shares,
    largest_class,
    largest_of_many,
    propagate,
    random_walk,
    smooth_predictions,
    solve,
    spreading_system,
    threshold_dynamics,
)
from tests.pseudo_labels import (
    Floats,
    dense_affinity,
    dense_classes,
    dense_propagation,
    few_labels,
    one_hot,
    wine,
)


@pytest.fixture(scope="module")
def points() -> NDArray[np.float32]:
    X, _ = wine()
    return np.asarray((X - X.mean(0)) / X.std(0), np.float32)


@pytest.fixture(scope="module")
def labels() -> Floats:
    """Three of each class."""
    return one_hot(few_labels(wine()[1], 3), 3)


@pytest.fixture(scope="module")
def W(points: NDArray[np.float32]) -> sparse.csr_matrix:
    (near,) = find_neighbours(points, None, None)
    return affinity(near, 1.0)


def test_affinity_is_symmetric_and_scaled_locally(
    W: sparse.csr_matrix, points: NDArray[np.float32]
) -> None:
    np.testing.assert_allclose(W.toarray(), dense_affinity(points), rtol=1e-4)
    np.testing.assert_array_equal(W.toarray(), W.T.toarray())


def test_affinity_where_a_neighbourhood_has_no_size() -> None:
    """Three points in one place and one elsewhere."""
    distance = np.array([[0.0, 0], [0, 0], [0, 0], [5, 5]])
    index = np.array([[1, 2], [0, 2], [0, 1], [0, 1]])
    W = affinity(Neighbours(distance, index), 1.0).toarray()
    assert W[0, 1] > 100 * W[0, 3] > 0


def test_label_spreading(W: sparse.csr_matrix, labels: Floats) -> None:
    system = spreading_system(W)
    F = np.stack([solve(system, column) for column in labels.T], 1)
    expected = dense_propagation(W.toarray(), labels)
    np.testing.assert_allclose(F, expected, rtol=1e-6, atol=1e-9)
    counts = labels.sum(0)
    found = largest_class(F, class_shares(counts))
    np.testing.assert_array_equal(found.argmax(1), dense_classes(expected, counts))
    np.testing.assert_array_equal(found.sum(1), 1)


def test_many_classes_are_propagated_around_their_labels(
    W: sparse.csr_matrix, labels: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, Y = spreading_system(W), sparse.csc_matrix(labels)
    exact = propagate(system, Y)
    np.testing.assert_array_equal(exact.toarray()[:, 0], solve(system, labels[:, 0]))
    assert exact.nnz == labels.size
    monkeypatch.setattr(solvers, "MOST_VALUES", 0)
    monkeypatch.setattr(solvers, "LOCAL_VALUES", labels.size // 2)
    local = propagate(system, Y)
    assert local.nnz <= labels.size // 2
    counts = labels.sum(0)
    for c in range(3):
        part = local.indices[local.indptr[c] : local.indptr[c + 1]]
        assert set(np.flatnonzero(labels[:, c])) < set(part)
        expected = np.linalg.solve(system.toarray()[np.ix_(part, part)], labels[part, c])
        np.testing.assert_allclose(local.data[local.indptr[c] : local.indptr[c + 1]], expected)
    found = largest_of_many(local, counts)
    np.testing.assert_array_equal(found, largest_class(local.toarray(), counts).astype(np.float32))
    agree = found.argmax(1) == largest_class(exact.toarray(), counts).argmax(1)
    assert agree[local.getnnz(1) > 0].mean() > 0.8


def test_class_mass_normalisation() -> None:
    counts, mass = np.array([1.0, 4, 0]), np.array([2.0, 10, 0])
    np.testing.assert_allclose(class_shares(counts), np.array([6, 9, 5]) / 20)
    shares = class_shares(counts)
    np.testing.assert_allclose(class_scale(shares, mass)[:2] * mass[:2], [6 / 20, 9 / 20])
    assert np.isfinite(class_scale(shares, mass)).all()
    reached = largest_class(np.array([[1.0, 2, 0], [1, 8, 0], [0, 0, 0]]), shares)
    expected = np.array([[1, 0, 0], [0, 1, 0], [6 / 20, 9 / 20, 5 / 20]])
    np.testing.assert_allclose(reached, expected)


def dense_dynamics(classes: Floats, P: Floats, labels: Floats) -> Floats:
    """Threshold dynamics without their limits, where all points are reached."""
    known, given = labels.any(1), labels[labels.any(1)]
    while True:
        diffused = classes
        for _ in range(5):
            diffused = P @ diffused
            diffused[known] = given
        before, classes = classes, np.eye(3)[dense_classes(diffused, labels.sum(0))]
        if (classes == before).all():
            return classes


def test_threshold_dynamics(
    W: sparse.csr_matrix, labels: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solvers, "MOST_CHANGED", 1.0)
    P, y = random_walk(W), wine()[1]
    np.testing.assert_allclose(P.sum(1), 1)
    rng = np.random.default_rng(0)
    noisy = np.where((rng.random(len(y)) < 0.1) & ~labels.any(1), rng.integers(0, 3, len(y)), y)
    first = np.eye(3)[noisy]
    found = threshold_dynamics(first, P, labels, class_shares(labels.sum(0)))
    np.testing.assert_array_equal(found, dense_dynamics(first, P.toarray(), labels))
    assert (found.argmax(1) != y).sum() < 0.7 * (noisy != y).sum()


def test_threshold_dynamics_stop_before_a_tenth_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stripes in an even square are no clusters: borders would move until they are short."""
    X = np.random.default_rng(0).uniform(size=(3000, 2))
    X = X[np.lexsort(X.T[::-1])]  # the graph's own order
    stripes = (X[:, 0] // 0.065).astype(int) % 2
    few = few_labels(stripes, 2)
    graph = LabelGraph(X, few, 2)
    assert graph.W is not None
    P, labels = random_walk(graph.W), one_hot(few, 2)

    def changed() -> float:
        found = threshold_dynamics(np.eye(2)[stripes], P, labels, class_shares(labels.sum(0)))
        return float((found.argmax(1) != stripes).mean())

    assert 0 < changed() <= solvers.MOST_CHANGED
    monkeypatch.setattr(solvers, "MOST_CHANGED", 1.0)
    assert changed() > 0.12


def test_threshold_dynamics_let_no_class_lose_half_of_its_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a graph without clusters, here a complete one, one class would take all."""
    monkeypatch.setattr(solvers, "MOST_CHANGED", 1.0)
    P = sparse.csr_matrix(np.full((40, 40), 1 / 40))
    first = np.eye(2)[(np.arange(40) < 4).astype(int)]
    labels = np.zeros((40, 2))
    labels[[0, 39]] = [[0, 1], [1, 0]]
    found = threshold_dynamics(first, P, labels, class_shares(labels.sum(0)))
    np.testing.assert_array_equal(found, first)


def test_smoothing_is_a_random_walk_with_restart(W: sparse.csr_matrix, labels: Floats) -> None:
    predictions = np.random.default_rng(0).dirichlet(np.ones(3), W.shape[0])
    dense = W.toarray() / W.toarray().sum(1, keepdims=True)
    known = np.asarray(labels.any(1))
    start = np.where(known[:, None], labels, predictions)
    expected = start
    for _ in range(10):
        expected = 0.4 * start + 0.6 * dense @ expected
        expected[known] = start[known]
    before = predictions.copy()
    np.testing.assert_allclose(
        smooth_predictions(random_walk(W), predictions, labels), expected, rtol=1e-9
    )
    np.testing.assert_array_equal(predictions, before)
