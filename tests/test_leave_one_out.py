"""Leave-one-out accuracy of propagated labels, and what it is enough for."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cclp.pseudo_labels import leave_one_out as module
from cclp.pseudo_labels import solvers
from cclp.pseudo_labels.graph import LabelGraph
from cclp.pseudo_labels.leave_one_out import LeaveOneOut
from tests.pseudo_labels import (
    dense_affinity,
    dense_classes,
    dense_propagation,
    few_labels,
    one_hot,
    wine,
)


def accuracy(X: NDArray[np.float64], y: NDArray[np.int64], num_classes: int) -> LeaveOneOut:
    return LabelGraph(X, y, num_classes).leave_one_out()


@pytest.mark.parametrize("copies", [1, 2])
def test_it_is_propagation_of_the_other_labels(
    copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick way, by what a label adds to its own point, against propagation once for each."""
    X, y = wine()
    count = len(y)
    place = np.tile(np.arange(count), copies)
    few = np.full(copies * count, -1)
    some = np.random.default_rng(1).permutation(copies * count)[:30]
    few[some] = y[place[some]]
    W = dense_affinity((X - X.mean(0)) / X.std(0))
    right, cut = [], []
    for i in some:
        others = few.copy()
        others[i] = -1
        Y = np.zeros((count, 3))
        np.add.at(Y, place, one_hot(others, 3))
        predicted = dense_classes(dense_propagation(W, Y))
        right.append(predicted[place[i]] == few[i])
        whole = LabelGraph(np.tile(X, (copies, 1)), others, 3).propagate()
        cut.append(whole[i].argmax() == few[i])
    found = accuracy(np.tile(X, (copies, 1)), few, 3)
    assert found[:2] == (sum(cut), 30)
    monkeypatch.setattr(module, "_DYNAMIC_VALUES", 0)  # as on large graphs
    found = accuracy(np.tile(X, (copies, 1)), few, 3)
    each = [np.mean(np.array(right)[few[some] == c]) for c in range(3)]
    assert found[:2] == (sum(right), 30)
    assert found.worst == pytest.approx(min(each))
    assert 20 < found.correct < 30


def test_around_the_labels_it_is_propagation_of_the_other_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many classes, each propagated over a part of the graph."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 20)
    X = 2 * rng.normal(size=(30, 8))[y] + rng.normal(size=(600, 8))
    few = np.where(np.arange(600) % 20 < 3, y, -1)
    exact = accuracy(X, few, 30)
    monkeypatch.setattr(solvers, "MOST_VALUES", 0)
    monkeypatch.setattr(solvers, "LOCAL_VALUES", 6000)
    local = accuracy(X, few, 30)
    assert local.tested == exact.tested == 90
    assert 45 < exact.correct < 90
    assert abs(local.correct - exact.correct) <= 5


def test_only_classes_with_another_label_are_tested() -> None:
    X, y = wine()
    assert accuracy(X, few_labels(y, 1), 3) == LeaveOneOut(0, 0)
    few = few_labels(y, 1)
    few[:4] = y[:4]
    assert accuracy(X, few, 3).tested == 4


@pytest.mark.parametrize("size", [30, 100])
def test_labels_that_no_other_reaches_are_wrong(size: int) -> None:
    """Twelve islands with a label each; every class has two more labels elsewhere."""
    island = np.arange(12 * size) // size
    X = np.random.default_rng(0).normal(size=(len(island), 2)) + 1e4 * island[:, None]
    y = np.full(len(X), -1)
    y[::size] = np.arange(12) % 4
    assert accuracy(X, y, 4) == LeaveOneOut(0, 12, 0.0)


def test_poor_graphs() -> None:
    X, y = wine()
    noise = np.random.default_rng(0).normal(size=X.shape)
    assert accuracy(noise, y, 3).is_poor(3)
    good = accuracy(X, y, 3)
    assert not good.is_poor(3)
    assert good.tested == 100
    same = accuracy(np.zeros((20, 1)), np.arange(20) % 2, 2)  # nothing tells them apart
    assert same == LeaveOneOut(0, 20, 0.0)
    assert same.is_poor(2)


@pytest.mark.parametrize(
    ("correct", "tested", "num_classes", "poor"),
    [(0, 0, 2, False), (1, 4, 2, False), (30, 100, 10, True), (60, 100, 10, False)],
)
def test_poor_is_nearly_certain(correct: int, tested: int, num_classes: int, poor: bool) -> None:
    assert LeaveOneOut(correct, tested).is_poor(num_classes) == poor


@pytest.mark.parametrize(
    ("found", "per_class", "good"),
    [
        (LeaveOneOut(90, 100), 100, True),
        (LeaveOneOut(89, 100), 100, False),
        (LeaveOneOut(95, 100, 0.0), 100, False),
        (LeaveOneOut(60, 100, 0.0), 20, True),  # few labels: not poor is good enough
        (LeaveOneOut(60, 100), 21, False),
        (LeaveOneOut(30, 100), 20, False),
        (LeaveOneOut(0, 0), 1, True),
    ],
)
def test_a_good_graph_knows_as_much_as_a_net_would(
    found: LeaveOneOut, per_class: float, good: bool
) -> None:
    assert found.is_good(per_class, num_classes=10) == good


def test_the_worst_class_is_that_of_the_data() -> None:
    y = np.repeat([0, 1, 2], [40, 5, 5])
    rng = np.random.default_rng(0)
    together, apart = (rng.normal(place, 1)[:, None] for place in (10 * np.minimum(y, 1), 10 * y))
    found = accuracy(together, y, 3)  # two of the classes are in one place
    assert found.correct >= 40
    assert found.worst < 0.5
    assert accuracy(apart, y, 3) == LeaveOneOut(50, 50)
