"""Labels propagated after every answer are those propagated from scratch."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_digits, make_blobs

from cclp.labelling.atlas import Atlas
from cclp.labelling.beliefs import fit_sharpness, graph_beliefs, sharpened
from cclp.labelling.engine import Engine, Question
from cclp.labelling.labels import UNLABELED, Change
from cclp.labelling.live import LiveGraph
from cclp.labelling.queries import Influence
from cclp.labelling.refinement import Correction, corrected
from cclp.labelling.spectrum import leading_vectors
from cclp.pseudo_labels.components import join_components
from cclp.pseudo_labels.graph import NeighbourGraph
from cclp.pseudo_labels.propagation import Propagation
from cclp.pseudo_labels.solvers import equal_shares, largest_class, normalised

Graph = tuple[sparse.csr_matrix, NDArray[np.float32], NDArray[np.intp], NDArray[np.int64]]


@pytest.fixture(scope="module")
def digits() -> Graph:
    x, y = load_digits(return_X_y=True)
    x, y = np.concatenate([x[:600], x[:20]]), np.concatenate([y[:600], y[:20]])  # duplicates
    graph = NeighbourGraph(x)
    assert graph.W is not None
    W = join_components(graph.W, graph.points, np.array([0]))
    return W, graph.points, graph.place, y


def atlas_of(graph: Graph, dimensions: int = 48) -> Atlas:
    W, points, place, _ = graph
    values, vectors = leading_vectors(W, dimensions)
    typicality = np.full(len(points), 1.0)
    return Atlas(W, points, place, typicality, values, vectors, points[:, :2])


def change(values: NDArray[np.int16], samples: list[int], to: list[int]) -> Change:
    where, after = np.array(samples), np.array(to, np.int16)
    before = values[where].copy()
    values[where] = after
    return Change(where, before, after)


def from_scratch(graph: Graph, values: NDArray[np.int16], classes: int) -> NDArray[np.float64]:
    W, _, place, _ = graph
    y = np.where(values >= 0, values, -1).astype(np.int64)
    return np.asarray(Propagation(W, place, y, classes).spread[1].toarray())


def test_answers_one_by_one_are_as_all_at_once(digits: Graph) -> None:
    W, _, place, y = digits
    live, values = LiveGraph(W, place), np.full(len(y), UNLABELED, np.int16)
    for sample in range(0, 60, 3):
        live.update(change(values, [sample], [int(y[sample])]))
    live.update(change(values, list(range(600, 610)), y[600:610].tolist()))  # duplicates of others
    live.update(change(values, [3, 6], [9, UNLABELED]))  # another answer; one taken back
    expected = from_scratch(digits, values, 10)
    assert np.abs(live.F[:, :10] - expected).max() < 1e-4 * expected.max()
    far = expected > 1e-8 * expected.max()  # a value far from all labels is small, and decides
    np.testing.assert_allclose(live.F[:, :10][far], expected[far], rtol=1e-3)
    assert (live.F[:, :10].argmax(1) == expected.argmax(1)).mean() > 0.999
    assert live.counts[:10].tolist() == np.bincount(values[values >= 0], minlength=10).tolist()


def test_a_class_without_labels_is_gone(digits: Graph) -> None:
    W, _, place, y = digits
    live, values = LiveGraph(W, place), np.full(len(y), UNLABELED, np.int16)
    live.update(change(values, [0, 1], [0, 11]))
    live.update(change(values, [1], [UNLABELED]))
    assert not live.F[:, 11].any()
    assert live.F[:, 0].all()


def test_left_out_labels_are_as_if_they_had_never_been(digits: Graph) -> None:
    W, _, place, y = digits
    live, values = LiveGraph(W, place), np.full(len(y), UNLABELED, np.int16)
    samples = np.arange(0, 120, 4)
    live.update(change(values, samples.tolist(), y[samples].tolist()))
    classes, shares = list(range(10)), equal_shares(10)
    found = live.left_out(samples, values[samples], classes, shares)
    for number in (0, 7, 20):
        without = values.copy()
        without[samples[number]] = UNLABELED
        F = from_scratch(digits, without, 10)
        row = F[place[samples[number]]] / (np.bincount(place) @ F)
        np.testing.assert_allclose(found[number], row / row.sum(), atol=5e-3)


def test_beliefs_are_the_classes_of_label_spreading(digits: Graph) -> None:
    W, _, place, y = digits
    live, values = LiveGraph(W, place), np.full(len(y), UNLABELED, np.int16)
    samples = np.arange(0, 40)
    live.update(change(values, samples.tolist(), y[samples].tolist()))
    influence = Influence(*leading_vectors(W), np.bincount(place))
    beliefs = graph_beliefs(live, list(range(10)), values, influence)
    expected = largest_class(from_scratch(digits, values, 10), beliefs.shares).argmax(1)
    assert (beliefs.best == expected).mean() > 0.99
    np.testing.assert_allclose(beliefs.probabilities.sum(1), 1)


def test_leading_vectors_are_eigenvectors(digits: Graph) -> None:
    S = normalised(digits[0])
    values, vectors = leading_vectors(digits[0], 12)
    exact = np.linalg.eigvalsh(S.toarray())[::-1][:12]
    np.testing.assert_allclose(values[:8], exact[:8], atol=1e-3)
    np.testing.assert_allclose(S @ vectors[:, :6], vectors[:, :6] * values[:6], atol=2e-2)


def test_influence_is_the_same_one_by_one_and_at_once(digits: Graph) -> None:
    W, _, place, _ = digits
    one = Influence(*leading_vectors(W), np.bincount(place))
    all_ = one.copy()
    for node in (5, 90, 300):
        one.add(node)
    all_.restart(np.array([300, 5, 90]))
    np.testing.assert_allclose(one.covariance, all_.covariance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(one.gains(), all_.gains(), rtol=1e-6)
    without = one.openness_without(np.array([90]))
    other = Influence(*leading_vectors(W), np.bincount(place))
    other.restart(np.array([5, 300]))
    np.testing.assert_allclose(without, other.openness()[[90]], rtol=1e-6)


def test_questions_are_never_near_duplicates() -> None:
    x, y = make_blobs([200] * 6, 4, cluster_std=0.05, random_state=0)
    graph = NeighbourGraph(x)
    assert graph.W is not None
    W = join_components(graph.W, graph.points, np.array([0]))
    engine = Engine(atlas_of((W, graph.points, graph.place, y)), np.full(len(y), -1, np.int16))
    asked = [question.sample for question in engine.ask(6)]
    assert sorted(y[asked].tolist()) == [0, 1, 2, 3, 4, 5]
    assert engine.ask(1, exclude=asked[:3]) == [Question(asked[3])]
    assert 100 <= engine.followers(asked[0]) <= 199


def test_small_dense_groups_are_not_asked_about_first() -> None:
    sizes = [300, *[12] * 8]
    x, y = make_blobs(sizes, 8, cluster_std=[1.0, *[0.01] * 8], random_state=0)
    graph = NeighbourGraph(x)
    assert graph.W is not None
    W = join_components(graph.W, graph.points, np.array([0]))
    engine = Engine(atlas_of((W, graph.points, graph.place, y)), np.full(len(y), -1, np.int16))
    assert y[engine.ask(1)[0].sample] == 0


def test_a_question_counts_only_what_is_doubtful() -> None:
    x, y = make_blobs([200] * 4, 4, cluster_std=0.05, random_state=0)
    graph = NeighbourGraph(x)
    assert graph.W is not None
    W = join_components(graph.W, graph.points, np.array([0]))
    values = np.full(len(y), -1, np.int16)
    engine = Engine(atlas_of((W, graph.points, graph.place, y)), values)
    for number in range(4):
        ((sample, drawn),) = engine.ask(1)
        assert not drawn
        news = [True] * (number + 1)
        engine.update(change(values, [sample], [int(y[sample])]), values, news, values < -9)
    best, certainty = engine.by_sample()
    assert (best == y).all()
    assert engine.propagated() == {0: 199, 1: 199, 2: 199, 3: 199}
    assert engine.expected.error is not None
    assert certainty.min() > 0.5


def test_corrections_last_until_an_answer_changes_the_class(digits: Graph) -> None:
    W, _, place, y = digits
    live, values = LiveGraph(W, place), np.full(len(y), UNLABELED, np.int16)
    live.update(change(values, [0, 1, 2], [0, 1, 2]))
    influence = Influence(*leading_vectors(W), np.bincount(place))
    beliefs = graph_beliefs(live, [0, 1, 2], values, influence)
    before = beliefs.best.astype(np.int64)
    after = before.copy()
    after[7] = (before[7] + 1) % 3
    found = corrected(beliefs, Correction(before, after))
    assert found.best[7] == after[7]
    assert (found.best == before).sum() == len(before) - 1
    np.testing.assert_allclose(found.certainty, beliefs.certainty)
    stale = before.copy()
    stale[7] = (before[7] + 2) % 3
    assert corrected(beliefs, Correction(stale, after)).best[7] == before[7]


def test_sharpness_follows_the_labels() -> None:
    rows = np.tile([0.6, 0.4], (40, 1))
    always, half = np.zeros(40, np.int64), np.arange(40) % 2
    assert fit_sharpness(rows, always, np.ones(40)) == 8
    assert fit_sharpness(rows, half, np.ones(40)) == 2
    assert fit_sharpness(rows[:0], always[:0], np.ones(0)) == 3
    np.testing.assert_allclose(sharpened(np.array([[0.6, 0.4], [0.0, 0.0]]), 1.0)[1], 0.5)
