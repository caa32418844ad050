"""Label propagation and graph cuts against dense matrices."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from cclp.pseudo_labels import solvers
from cclp.pseudo_labels.graph import LabelGraph
from cclp.pseudo_labels.neighbours import find_neighbours
from cclp.pseudo_labels.search import Neighbours
from cclp.pseudo_labels.solvers import (
    affinity,
    class_scale,
    conjugate_gradients,
    equal_shares,
    harmonic,
    largest_class,
    largest_of_many,
    poisson,
    random_walk,
    smooth_predictions,
    spread,
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
    (near,) = find_neighbours(points, None, 5)
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
    F = conjugate_gradients(system, labels)
    expected = dense_propagation(W.toarray(), labels)
    np.testing.assert_allclose(F, expected, rtol=1e-6, atol=1e-9)
    found = largest_class(F, equal_shares(3))
    np.testing.assert_array_equal(found.argmax(1), dense_classes(expected))
    np.testing.assert_array_equal(found.sum(1), 1)


def test_many_classes_are_propagated_around_their_labels(
    W: sparse.csr_matrix, labels: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, Y = spreading_system(W), sparse.csc_matrix(labels)
    exact = spread(system, Y)
    np.testing.assert_allclose(exact.toarray(), np.linalg.solve(system.toarray(), labels))
    assert exact.nnz == labels.size
    for name, value in (("FEW_CLASSES", 0), ("MOST_VALUES", 0), ("LOCAL_NODES", 0)):
        monkeypatch.setattr(solvers, name, value)
    monkeypatch.setattr(solvers, "LOCAL_VALUES", labels.size // 2)
    local = spread(system, Y)
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
    shares, mass = np.array([6, 9, 5]) / 20, np.array([2.0, 10, 0])
    np.testing.assert_allclose(class_scale(shares, mass)[:2] * mass[:2], [6 / 20, 9 / 20])
    assert np.isfinite(class_scale(shares, mass)).all()
    reached = largest_class(np.array([[1.0, 2, 0], [1, 8, 0], [0, 0, 0]]), shares)
    expected = np.array([[1, 0, 0], [0, 1, 0], [6 / 20, 9 / 20, 5 / 20]])
    np.testing.assert_allclose(reached, expected)
    np.testing.assert_allclose(equal_shares(4), 0.25)


def dense_dynamics(classes: Floats, P: Floats, labels: Floats, schedule: tuple[int, ...]) -> Floats:
    """Threshold dynamics without their limits, where all points are reached."""
    known, given = labels.any(1), labels[labels.any(1)]
    for steps in schedule:
        before = None
        while before is None or (classes != before).any():
            diffused = classes
            for _ in range(steps):
                diffused = P @ diffused
                diffused[known] = given
            before, classes = classes, np.eye(3)[dense_classes(diffused)]
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
    found = threshold_dynamics(first, P, labels, equal_shares(labels.shape[1]))
    np.testing.assert_array_equal(found, dense_dynamics(first, P.toarray(), labels, (5,)))
    monkeypatch.setattr(solvers, "NODES_PER_STEP", 5)
    longer = threshold_dynamics(first, P, labels, equal_shares(labels.shape[1]))
    np.testing.assert_array_equal(longer, dense_dynamics(first, P.toarray(), labels, (10, 5)))
    assert (found.argmax(1) != y).sum() < 0.7 * (noisy != y).sum()


def test_threshold_dynamics_stop_before_a_tenth_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stripes in an even square are no clusters: borders would move until they are short."""
    X = np.random.default_rng(0).uniform(size=(3000, 2))
    stripes = (X[:, 0] // 0.065).astype(int) % 2
    few = few_labels(stripes, 2)
    W = LabelGraph(X, few, 2).neighbours.W
    assert W is not None
    P, labels = random_walk(W), one_hot(few, 2)

    def changed() -> float:
        found = threshold_dynamics(np.eye(2)[stripes], P, labels, equal_shares(labels.shape[1]))
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
    found = threshold_dynamics(first, P, labels, equal_shares(labels.shape[1]))
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


def test_long_diffusions_see_past_small_obstacles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two discs and a bridge, the border inside one of them: short diffusions leave it there."""
    rng = np.random.default_rng(0)
    disc = rng.uniform(-1, 1, (9000, 2))
    disc = disc[(disc**2).sum(1) < 1]
    aside = np.array([1.15, 0.0])
    X = np.concatenate([disc - aside, disc + aside, rng.uniform(-0.2, 0.2, (150, 2))])
    y = (X[:, 0] > 0).astype(int)
    few = few_labels(y, 1)
    W = LabelGraph(X, few, 2).neighbours.W
    assert W is not None
    wrong = np.eye(2)[(X[:, 0] > -0.45).astype(int)]
    given = random_walk(W), one_hot(few, 2), equal_shares(2)
    errors = []
    for schedule in (solvers.DIFFUSION_STEPS, (5,)):
        monkeypatch.setattr(solvers, "DIFFUSION_STEPS", schedule)
        errors.append((threshold_dynamics(wrong, *given).argmax(1) != y).mean())
    assert errors[0] < 0.9 * errors[1]


def test_conjugate_gradients_to_the_last_digits(W: sparse.csr_matrix) -> None:
    """Refined in float64, for right sides of any size, and none of them zero by the others."""
    system = spreading_system(W, 0.999)
    right = np.random.default_rng(0).normal(size=(W.shape[0], 4)) * [1, 1e-30, 1e30, 0]
    expected = np.linalg.solve(system.toarray(), right)
    found = conjugate_gradients(system, right)
    size = np.abs(expected).max(0) + (right == 0).all(0)
    np.testing.assert_allclose(found / size, expected / size, atol=1e-10)


def test_harmonic_functions(W: sparse.csr_matrix, labels: Floats) -> None:
    """Zhu et al. 2003: every unlabeled value is the mean of its neighbours'."""
    F = harmonic(W, 2 * labels)
    known, dense = labels.any(1), W.toarray()
    np.testing.assert_array_equal(F[known], labels[known])
    L = np.diag(dense.sum(1)) - dense
    expected = np.linalg.solve(L[~known][:, ~known], dense[~known][:, known] @ labels[known])
    np.testing.assert_allclose(F[~known], expected, rtol=1e-7)


def test_poisson_learning(W: sparse.csr_matrix, labels: Floats) -> None:
    """Calder et al. 2020: L F = Y − Ȳ, by the pseudoinverse."""
    F = poisson(W, labels)
    degree = W.toarray().sum(1)
    L = np.diag(degree) - W.toarray()
    source = labels - labels.sum(1, keepdims=True) * labels.sum(0) / labels.sum()
    expected = np.linalg.pinv(L) @ source
    expected -= degree @ expected / degree.sum()
    np.testing.assert_allclose(F, expected, atol=1e-8 * np.abs(expected).max())


def test_islands_without_labels_are_zero(W: sparse.csr_matrix, labels: Floats) -> None:
    """Beside the graph, the same graph without labels, and a point without neighbours."""
    count = W.shape[0]
    beside = sparse.block_diag([W, W, sparse.csr_matrix((1, 1))]).tocsr()
    given = np.vstack([labels, 0 * labels, labels[:1] * 0])
    for method in (harmonic, poisson):
        F = method(beside, given)
        np.testing.assert_allclose(F[:count], method(W, labels), rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(F[count:], 0)


def test_long_chains_and_weak_bridges() -> None:
    """In float32 these systems are singular, or others."""
    n = 6000
    chain = sparse.diags([np.ones(n - 1)] * 2, [-1, 1]).tocsr()
    labels = np.zeros((n, 2))
    labels[0, 0] = labels[-1, 1] = 1
    share = 1 - np.arange(n) / (n - 1)
    np.testing.assert_allclose(harmonic(chain, labels)[:, 0], share, atol=1e-6)
    F = poisson(chain, labels)
    np.testing.assert_array_equal(F.argmax(1), (share < 0.5).astype(int))
    rng = np.random.default_rng(0)
    blob = sparse.random(300, 300, 0.05, random_state=rng)
    W = sparse.block_diag([blob + blob.T, blob + blob.T]).tolil()
    W[0, 300] = W[300, 0] = 1e-6
    W, labels = W.tocsr(), np.zeros((600, 2))
    W.setdiag(0)
    labels[3, 0] = labels[7, 1] = 1
    dense = W.toarray()
    L, known = np.diag(dense.sum(1)) - dense, labels.any(1)
    expected = np.linalg.solve(L[~known][:, ~known], dense[~known][:, known] @ labels[known])
    np.testing.assert_allclose(harmonic(W, labels)[~known], expected, atol=1e-4)
