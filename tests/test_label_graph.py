"""Label propagation over all samples: what it gets right, and inputs of every kind."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import make_blobs, make_moons

from cclp.data.load import load
from cclp.pseudo_labels import components, neighbours, solvers
from cclp.pseudo_labels import graph as module
from cclp.pseudo_labels.components import are_reached, join_components
from cclp.pseudo_labels.graph import LabelGraph, NeighbourGraph, distinct_rows
from cclp.pseudo_labels.leave_one_out import LeaveOneOut
from cclp.pseudo_labels.neighbours import Images, find_neighbours
from cclp.pseudo_labels.shares import distance
from cclp.pseudo_labels.solvers import affinity
from tests.pseudo_labels import (
    dense_affinity,
    dense_classes,
    dense_propagation,
    drawings,
    few_labels,
    one_hot,
    wine,
)


def propagate(X: NDArray[Any], y: NDArray[np.int64], num_classes: int) -> NDArray[np.float32]:
    return LabelGraph(X, y, num_classes).propagate()


def test_propagation_is_that_of_dense_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = wine()
    few = few_labels(y, 3)
    labels = one_hot(few, 3)
    F = dense_propagation(dense_affinity((X - X.mean(0)) / X.std(0)), labels)
    monkeypatch.setattr(solvers, "MAX_THRESHOLDS", 0)
    found = propagate(X, few, 3)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.eye(3)[dense_classes(F)])


def test_labels_follow_the_moons() -> None:
    X, y = make_moons(400, noise=0.05, random_state=0)
    found = propagate(X, few_labels(y, 1), 2)
    np.testing.assert_array_equal(found.sum(1), 1)
    assert (found.argmax(1) == y).mean() > 0.97


def test_far_from_any_label() -> None:
    X, y = make_moons(5000, noise=0.05, random_state=0)
    assert (propagate(X, few_labels(y, 1), 2).argmax(1) == y).mean() > 0.99


def test_threshold_dynamics_mend_most_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moons with noise in eight more dimensions, three labels each."""
    linear, cut = [], []
    for seed in range(3):
        X, y = make_moons(800, noise=0.1, random_state=seed)
        X = np.hstack([X, 0.3 * np.random.default_rng(seed).normal(size=(800, 8))])
        graph = LabelGraph(X, few_labels(y, 3), 2)
        cut.append((graph.propagate().argmax(1) != y).mean())
        with monkeypatch.context() as patch:
            patch.setattr(solvers, "MAX_THRESHOLDS", 0)
            linear.append((graph.propagate().argmax(1) != y).mean())
    assert np.mean(cut) < 0.7 * np.mean(linear)


def test_where_there_are_no_clusters_no_class_takes_all() -> None:
    X = np.random.default_rng(0).normal(size=(200, 20))
    few = np.full(200, -1)
    few[:4] = 0, 0, 1, 1
    assert propagate(X, few, 2).sum(0).min() > 20


def test_tables_of_many_units() -> None:
    """Alcohol in percent beside proline in hundreds: nothing but proline would count."""
    X, y = wine()
    assert (propagate(X, few_labels(y, 1), 3).argmax(1) == y).mean() > 0.85
    np.testing.assert_array_equal(propagate(X, y, 3).argmax(1), y)  # known labels stay


def test_scale_and_offset_do_not_matter() -> None:
    X, y = make_moons(200, noise=0.1, random_state=0)
    few = few_labels(y, 1)
    np.testing.assert_array_equal(propagate(X, few, 2), propagate(1000 * X + 50, few, 2))


def test_numbers_whose_squares_are_not_finite() -> None:
    X, y = wine()
    few = few_labels(y, 1)
    for unit in (1e19, 1e30):
        assert (propagate(unit * X, few, 3) == propagate(X, few, 3)).mean() > 0.99


def test_unequal_numbers_of_labels_say_little_about_the_sizes_of_classes() -> None:
    """Twelve labels of one class and one of each other."""
    X, y = wine()
    few = few_labels(y, 1)
    few[:12] = y[:12]
    right = (propagate(X, few, 3).argmax(1) == y).mean()
    shares = np.array([12, 1, 1]) / 14
    told = LabelGraph(X, few, 3, class_prior=shares).propagate()
    assert right > (told.argmax(1) == y).mean() + 0.1


def test_components_without_a_label_are_joined_to_their_nearest_neighbours() -> None:
    """The second by the first, the third by the fourth; both of those have labels."""
    X = np.concatenate([start + np.linspace(0, 1, 10) for start in (0, 50, 150, 160)])[:, None]
    y = np.full(40, -1)
    y[[0, 1, 9, 35]] = [0, 0, 1, 0]
    graph = LabelGraph(X, y, 2)
    W, known = graph.neighbours.W, np.flatnonzero(y >= 0)
    assert W is not None
    np.testing.assert_array_equal(are_reached(W, known), np.arange(40) // 10 % 3 == 0)
    joined = join_components(W, graph.neighbours.points, known)
    rows, columns = (joined - W).nonzero()
    assert {tuple(pair) for pair in zip(rows, columns, strict=True)} == {
        (10, 9), (9, 10), (29, 30), (30, 29)
    }  # fmt: skip
    found = graph.propagate().argmax(1)
    np.testing.assert_array_equal(found[10:20], 1)
    np.testing.assert_array_equal(found[20:], 0)


def test_labels_arrive_after_several_components() -> None:
    """Though an outlier has the weakest edges that there are."""
    rng = np.random.default_rng(0)
    clusters = [rng.normal(size=(40, 2)) * 0.3 + [x, 0] for x in (0, 1.5, 53, 103, 153, 203)]
    X = np.concatenate([*clusters, [[0, -60]]])
    y = np.full(len(X), -1)
    y[0], y[40] = 0, 1
    found = propagate(X, y, 2)[:-1].argmax(1).reshape(6, 40)
    np.testing.assert_array_equal(found[2:], 1)
    assert (found[0] == 0).mean() > 0.9


def test_near_points_far_from_the_others_are_told_apart() -> None:
    """An unlabeled pair, nearer to the second of two labeled ones by a little."""
    points = np.array([0, 0.001, 0.003, 0.004, 0.005, 0.006]).reshape(6, 1).repeat(2, 1) + 40
    cloud = np.random.default_rng(0).normal(size=(50, 2))
    W = sparse.block_diag([np.array([[0, 1.0], [1, 0]])] * 3 + [np.ones((50, 50))], format="csr")
    joined = join_components(
        W, np.concatenate([points, cloud]).astype(np.float32), np.array([0, 5, 6])
    )
    assert joined[3, 4] == 1
    assert joined[1, 2] == 0


def test_few_points_of_large_components_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is asked, all are reached in the end; chains of components too, huge values too."""
    monkeypatch.setattr(components, "_PAIRS", 240)
    monkeypatch.setattr(components, "_BLOCK_VALUES", 90)
    X = np.arange(20)[:, None] * 1e6 + np.arange(3)
    points = np.stack([X.ravel(), np.full(60, 1e30)], 1).astype(np.float32)
    blocks = [np.ones((3, 3)) - np.eye(3)] * 20
    W = join_components(sparse.block_diag(blocks, format="csr"), points, np.array([0]))
    assert are_reached(W, np.array([0])).all()
    np.testing.assert_array_equal((W != W.T).nnz, 0)


def test_new_samples_are_connected_as_the_first_ones_were() -> None:
    """Each to its copy, which is nearest, and to the copy's neighbours."""
    for x in (drawings(60), wine()[0]):
        graph = NeighbourGraph(x)
        assert graph.W is not None
        to_nodes = graph.connect(x[10:40])
        assert to_nodes.shape == (30, graph.W.shape[0])
        np.testing.assert_array_equal(to_nodes.toarray().argmax(1), graph.place[10:40])
        shared = (to_nodes > 0).multiply(graph.W[graph.place[10:40]] > 0).sum()
        assert shared > 0.7 * (to_nodes.nnz - 30)


def test_distinct_rows_are_in_their_order() -> None:
    points = np.array([[1, 2], [0.0, 1], [1, 2], [-0.0, 1], [2, 1]], np.float32)
    first, place = distinct_rows(points)
    assert first.tolist() == [0, 1, 4]
    assert place.tolist() == [0, 1, 0, 1, 2]
    many = np.random.default_rng(0).integers(0, 3, (5000, 6)).astype(np.float32)
    first, place = distinct_rows(many)
    assert len(first) == len(np.unique(many, axis=0))
    np.testing.assert_array_equal(many[first][place], many)


def test_labels_of_duplicates_may_disagree() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    few = np.full(60, -1)
    few[[0, 30, 1, 2]] = 0, 1, 0, 1  # 0 and 30 are the same
    found = propagate(np.concatenate([X, X]), few, 2)
    assert found[0].tolist() == [1, 0]
    assert found[30].tolist() == [0, 1]
    np.testing.assert_array_equal(found[3:30], found[33:])
    assert np.isfinite(found).all()


def test_duplicates_and_outliers() -> None:
    X, y = make_moons(1000, noise=0.05, random_state=0)
    X[-1] = 1e4
    for unit in (1, 1000):
        found = propagate(unit * X.round(1), few_labels(y, 1), 2)
        assert set(found.ravel()) == {0, 1}
        assert (found.argmax(1) == y).mean() > 0.7


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((2, 3)),
        np.zeros((9, 1)),
        np.ones((3, 2)) * 1e30,
        np.eye(4),
        np.full((5, 1, 20, 20), 3),
    ],
    ids=["two", "one feature", "huge", "four", "blank images"],
)
def test_degenerate_inputs_give_distributions(X: NDArray[Any]) -> None:
    y = np.full(len(X), -1)
    y[:2] = [0, 1]
    graph = LabelGraph(X, y, 3)
    np.testing.assert_allclose(graph.propagate().sum(1), 1, rtol=1e-6)
    np.testing.assert_array_equal(graph.propagate()[:2], np.eye(3)[:2])
    predictions = np.eye(3)[np.arange(len(X)) % 3]
    np.testing.assert_array_equal(graph.smooth(predictions).sum(1), 1)


class Read(np.ndarray[Any, Any]):
    """An array that remembers the most rows that were read at a time."""

    most = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        Read.most = max(Read.most, len(found))
        return found


@pytest.mark.parametrize("shape", [(1, 16, 16), (200,)])
def test_some_rows_are_a_graph_of_their_own(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "CANDIDATES", 8)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 560)
    stripes = 100 * (np.arange(shape[-1]) % 8 < 4)
    x = rng.integers(0, 40, (560, *shape)) + y.reshape(-1, *[1] * len(shape)) * stripes
    rows = np.sort(rng.permutation(560)[:540])
    few = np.where(np.arange(540) % 10, -1, y[rows])
    expected = propagate(x[rows], few, 2)
    assert (expected.argmax(1) == y[rows]).mean() > 0.95
    Read.most = 0
    np.testing.assert_array_equal(LabelGraph(x.view(Read), few, 2, rows=rows).propagate(), expected)
    if len(shape) == 3:  # images may be more than memory holds
        assert 0 < Read.most <= 500


def test_classifier_and_graph_mend_each_other() -> None:
    X, y = wine()
    rng = np.random.default_rng(0)
    few = few_labels(y, 3)
    guess = np.where(rng.random(len(y)) < 0.3, rng.integers(0, 3, len(y)), y)
    predictions = np.full((len(y), 3), 0.2) + 0.4 * np.eye(3)[guess]

    def graph_of(noise: float) -> LabelGraph:
        noisy = X / X.std(0) + noise * np.random.default_rng(1).normal(size=X.shape)
        return LabelGraph(noisy, few, 3)

    def right(classes: NDArray[Any]) -> float:
        return float((classes.argmax(1) == y).mean())

    alone, good, poor = right(predictions), graph_of(0.7), graph_of(2.0)
    assert right(good.smooth(predictions)) > max(alone, right(good.propagate())) + 0.03
    assert right(poor.propagate()) < 0.6  # it knows little, and does no harm
    assert right(poor.smooth(predictions)) > alone - 0.03


def test_smoothing_of_duplicates_and_of_samples_that_nothing_tells_apart() -> None:
    X, y = wine()
    few = np.concatenate([few_labels(y, 3), np.full(50, -1)])
    predictions = np.random.default_rng(0).dirichlet(np.ones(3), len(y))
    twice = LabelGraph(np.concatenate([X, X[-50:]]), few, 3)
    found = twice.smooth(np.concatenate([predictions, predictions[-50:]]))
    np.testing.assert_array_equal(found[-100:-50], found[-50:])
    same = LabelGraph(np.zeros((4, 2)), np.array([0, 1, -1, -1]), 2)
    given = np.array([[0.0, 1], [1, 0], [1, 0], [0, 1]])
    assert same.smooth(given).argmax(1).tolist() == [0, 1, 0, 1]


def test_the_graph_of_images_is_the_sum_of_three() -> None:
    x = drawings(40)
    graph = NeighbourGraph(x)
    three = find_neighbours(graph.points, Images(x, graph.first), 5)
    expected = sum(affinity(near, module.IMAGE_SHARPNESS) for near in three)
    assert graph.W is not None
    np.testing.assert_allclose(graph.W.toarray(), expected.toarray())


@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_few_images(count: int) -> None:
    x = drawings(count)
    x[-1] = 0
    graph = LabelGraph(x, np.array([0, 1] + [-1] * (count - 2)), 2)
    np.testing.assert_allclose(graph.propagate().sum(1), 1)
    predictions = np.full((count, 2), [0.0, 1.0])
    assert graph.smooth(predictions).argmax(1).tolist() == [0] + [1] * (count - 1)  # has a label
    assert graph.leave_one_out() == LeaveOneOut(0, 0)


def test_shifted_digits_find_each_other() -> None:
    """Each drawing shifted by up to three pixels: labels propagated by pixels get lost."""
    data, count = load("digits"), 300
    rng, x = np.random.default_rng(0), data.train_x.reshape(-1, 8, 8)[:count]
    shifted = np.zeros((count, 1, 24, 24))
    for image, room in zip(x, shifted, strict=True):
        top, left = rng.integers(0, 7, 2)
        room[0, top : top + 16, left : left + 16] = image.repeat(2, 0).repeat(2, 1)
    y = data.train_y[:count]
    few = np.where(np.arange(count) < 60, y, -1)

    def right(samples: NDArray[np.float64]) -> float:
        return float((propagate(samples, few, 10).argmax(1) == y).mean())

    assert right(shifted) > right(shifted.reshape(count, -1)) + 0.1


# --- shares of the classes ---


def clouds(sizes: tuple[int, ...], each: int) -> tuple[Any, Any, Any]:
    """Round clouds apart, their classes, and so many labels of each."""
    X, truth = make_blobs(sizes, n_features=4, cluster_std=1.5, random_state=2)
    y = np.full(len(truth), -1)
    for c in range(len(sizes)):
        y[np.flatnonzero(truth == c)[:each]] = c
    return X, truth, y


def test_shares_are_estimated_where_they_differ_from_equal_ones() -> None:
    X, truth, y = clouds((500, 100, 30), 10)
    graph = LabelGraph(X, y, 3)
    true, equal = np.bincount(truth) / len(truth), np.full(3, 1 / 3)
    assert distance(graph.shares, true) < 0.3 * distance(equal, true)
    told = LabelGraph(X, y, 3, class_prior=equal)
    wrong = [(g.propagate().argmax(1) != truth).mean() for g in (graph, told)]
    assert wrong[0] < 0.5 * wrong[1]


def test_equal_shares_stay_where_the_difference_may_be_mistakes() -> None:
    X, _, y = clouds((200, 210, 190), 10)
    np.testing.assert_array_equal(LabelGraph(X, y, 3).shares, np.full(3, 1 / 3))
    noise = np.random.default_rng(0).normal(size=(300, 4))
    labels = np.where(np.arange(300) < 30, np.arange(300) % 3, -1)
    np.testing.assert_array_equal(LabelGraph(noise, labels, 3).shares, np.full(3, 1 / 3))
    single = np.where(np.arange(600) % 200 == 0, np.arange(600) // 200, -1)
    np.testing.assert_array_equal(LabelGraph(X, single, 3).shares, np.full(3, 1 / 3))


def test_all_labels_of_a_class_together_are_one() -> None:
    """36 labels of one class and 4 of the other: the shares are those of the samples."""
    X, truth, y = clouds((200, 200), 36)
    y[np.flatnonzero(truth == 1)[4:]] = -1
    graph = LabelGraph(X, y, 2)
    assert abs(graph.shares[0] - 0.5) < 0.05
    assert (graph.propagate().argmax(1) == truth).mean() > 0.97
