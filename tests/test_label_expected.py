"""The expected error: what the graph says of itself, and samples that are drawn at random."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_blobs

from cclp.labelling import beliefs as module
from cclp.labelling.advice import advise
from cclp.labelling.atlas import Atlas, rank_density
from cclp.labelling.engine import Engine
from cclp.labelling.expected import DOUBT, Drawn, Expected, expect_error
from cclp.labelling.labels import UNLABELED, Change
from cclp.labelling.spectrum import leading_vectors
from cclp.pseudo_labels.components import join_components
from cclp.pseudo_labels.graph import NeighbourGraph


def atlas_of(x: NDArray[Any]) -> Atlas:
    graph = NeighbourGraph(x)
    assert graph.W is not None
    W = join_components(graph.W, graph.points, np.array([0]))
    values, vectors = leading_vectors(W)
    density = rank_density(graph.scales)
    return Atlas(W, graph.points, graph.place, density, values, vectors, graph.points[:, :2])


class Session:
    """Somebody answers what is asked with the truth."""

    def __init__(self, atlas: Atlas, y: NDArray[Any], seed: int = 0) -> None:
        self.y, self.values = y, np.full(len(y), UNLABELED, np.int16)
        self.drawn = np.zeros(len(y), bool)
        self.order = np.random.default_rng(seed).permutation(len(y))
        self.engine = Engine(atlas, self.values, order=self.order)
        self.news: list[bool] = []

    def answer(self) -> tuple[int, bool]:
        """The sample that was asked about, and whether it was drawn."""
        ((sample, drawn),) = self.engine.ask(1)
        self.news.append(not (self.values == self.y[sample]).any())
        self.drawn[sample] = drawn
        before = self.values[[sample]]
        self.values[sample] = self.y[sample]
        change = Change(np.array([sample]), before, self.values[[sample]])
        self.engine.update(change, self.values, self.news, self.drawn)
        return sample, drawn

    @property
    def error(self) -> float:
        best, _ = self.engine.by_sample()
        return float((best != self.y)[self.values == UNLABELED].mean())

    def holds(self) -> bool:
        """Whether the true error is in the interval."""
        _, low, high, _ = self.engine.expected
        assert low is not None
        assert high is not None
        return low <= self.error <= high


def test_every_fourth_sample_is_drawn_once_the_groups_are_known() -> None:
    x, y = make_blobs([60] * 4, 4, random_state=0)
    session = Session(atlas_of(x), y)
    drawn = []
    for number in range(21):
        left = [sample for sample in session.order if session.values[sample] == UNLABELED]
        sample, by_chance = session.answer()
        if by_chance:
            assert sample == left[0]
            drawn.append(number)
    assert drawn == [12, 16, 20]
    engine, left = session.engine, [s for s in session.order if session.values[s] == UNLABELED]
    several = engine.ask(5)
    assert [question.drawn for question in several] == [False, False, False, True, False]
    assert len({question.sample for question in several}) == 5
    asked = [question.sample for question in several[:3]]
    assert engine.ask(1, exclude=asked) == [several[3]]
    skipped = several[3].sample  # it counts as a question
    assert not engine.ask(1, exclude=[*asked, skipped])[0].drawn
    assert len(engine.ask(1000)) == 240 - 21


def test_typical_samples_have_near_neighbours() -> None:
    x = np.concatenate([np.linspace(0, 1, 30), [3.0, 7.0]])[:, None]
    graph = NeighbourGraph(x)
    density = rank_density(graph.scales)
    assert set(density.argsort()[:2].tolist()) == {30, 31}
    assert sorted(density.tolist()) == [(k + 1) / 32 for k in range(32)]
    both = rank_density([*graph.scales, 100 * graph.scales[0]])  # the unit does not matter
    np.testing.assert_array_equal(both, density)


def said(drawn: Drawn, correct: list[bool], sure: float = 0.9, open_: float = 0.1) -> Expected:
    """Of 100 nodes that are as certain and as open."""
    probabilities = np.tile([sure, 1 - sure], (100, 1))
    columns = np.where(correct, 0, 1)
    samples = np.arange(len(correct))
    openness = np.full(100, open_)
    tested = module.Tested(
        tuple(range(probabilities.shape[1])),
        samples,
        columns,
        probabilities[samples],
        openness[samples],
    )
    beliefs = module.Beliefs((0, 1), probabilities, tested, np.array([0.5, 0.5]))
    members, differs = np.ones(100, np.int64), np.zeros(100, bool)
    return expect_error(beliefs, members, differs, openness, [False] * 40, drawn)


def test_samples_that_were_drawn_are_added_to_what_the_graph_says() -> None:
    alone = said(Drawn(0, 0), [True] * 20)
    own, error, high = alone.own, alone.error, alone.high
    assert own is not None
    assert error is not None
    assert high is not None
    assert own < 0.02
    assert error == pytest.approx(own, rel=0.02)
    assert alone.low == 0
    odds = high / (1 - high) / (own / (1 - own))
    assert np.log(odds) == pytest.approx(1.645 * DOUBT, rel=0.02)
    doubtful = said(Drawn(0, 0), [True] * 14 + [False] * 6)
    assert doubtful.own is not None
    assert 0.2 < doubtful.own < 0.32


def test_a_graph_that_is_sure_and_wrong_is_overruled() -> None:
    found = said(Drawn(10, 10), [True] * 100, sure=0.9999, open_=0.0)
    assert found.own is not None
    assert found.low is not None
    assert found.error is not None
    assert found.own < 1e-4
    assert found.low > 0.08
    assert found.error > 0.2


def test_random_samples_decide_in_the_end() -> None:
    own = said(Drawn(0, 0), [True] * 20).own
    assert own is not None
    for wrong, right in ((3, 5), (30, 70), (300, 700)):
        found = said(Drawn(wrong, right), [True] * 20)
        assert found.own == own
        assert found.error is not None
        assert found.low is not None
        assert found.high is not None
        assert own < found.low < found.error < found.high
        assert found.error < 0.31
        if wrong == 300:
            assert found.error > 0.29
            assert found.high - found.low < 0.06


def test_random_samples_that_are_right_do_not_make_the_error_vanish() -> None:
    """Twenty of twenty say little of an error of one percent."""
    before, after = said(Drawn(0, 0), [True] * 20), said(Drawn(0, 20), [True] * 20)
    assert before.error is not None
    assert before.high is not None
    assert after.error is not None
    assert after.high is not None
    assert 0.5 * before.error < after.error < before.error
    assert 2 * before.error < after.high < before.high
    assert after.low == 0


def test_a_class_of_one_label_counts_as_wrong() -> None:
    """Nothing tells of it without that label."""
    x, y = make_blobs([60, 60], 4, random_state=0)
    y[70] = 2
    session = Session(atlas_of(x), y)
    for _ in range(13):
        session.answer()
    assert session.engine.expected.low == 0
    session.values[70], session.drawn[70] = 2, True
    change = Change(np.array([70]), np.array([UNLABELED], np.int16), np.array([2], np.int16))
    session.engine.update(change, session.values, [*session.news, True], session.drawn)
    after = session.engine.expected
    assert after.low is not None
    assert after.error is not None
    assert after.own is not None
    assert after.low > 0
    assert after.error > 1.2 * after.own


def test_the_expected_error_holds_the_true_one() -> None:
    x, y = load_digits(return_X_y=True)
    session = Session(atlas_of(x), y)
    inside = []
    for _ in range(40):
        session.answer()
        if session.engine.expected.low is not None:
            inside.append(session.holds())
    assert session.error < 0.03
    assert sum(inside[9:]) >= 0.9 * len(inside[9:])
    assert session.engine.expected.error is not None
    assert 0.0005 < session.engine.expected.error < 0.06


def test_where_the_graph_is_sure_and_wrong_chance_tells() -> None:
    """Each cloud holds a second class, spread evenly: its typical samples are of the first."""
    rng = np.random.default_rng(0)
    x, cloud = make_blobs([150] * 3, 4, cluster_std=1.0, random_state=0)
    middle = np.stack([x[cloud == c].mean(0) for c in range(3)])[cloud]
    far = np.linalg.norm(x - middle, axis=1)
    outside = far > np.quantile(far, 0.4)
    y = np.where(outside & (rng.random(len(x)) < 0.6), 3 + cloud, cloud)
    atlas = atlas_of(x)
    held, ratio, own = [], [], []
    for seed in range(5):
        session = Session(atlas, y, seed)
        for number in range(40):
            session.answer()
            if number >= 20:
                held.append(session.holds())
                expected = session.engine.expected
                assert expected.error is not None
                assert expected.own is not None
                ratio.append(expected.error / session.error)
                own.append(expected.own / session.error)
    assert session.error > 0.2
    assert np.mean(held) > 0.6
    assert np.mean(own) + 0.1 < np.mean(ratio) < 1.1


def test_enough_is_said_once_the_graph_expects_no_less() -> None:
    x, y = make_blobs([60, 60], 4, random_state=0)
    session = Session(atlas_of(x), y)
    for _ in range(30):
        session.answer()
    engine = session.engine
    own = engine.expected.own
    assert own is not None

    def kind(*history: list[float | None]) -> str:
        found = advise(engine.expected, history, engine.beliefs, labeled=30, classes=2)
        return str(found["kind"])

    assert kind([20, 0.9, 0.8, 1.0, own]) == "enough"  # whatever the random samples said
    assert kind([20, own, own, own, 2 * own]) == "go_on"
    assert kind([21, own, own, own, own]) == "go_on"  # it is too early to tell
    assert kind([20, own, own, own]) == "go_on"  # a journal of an earlier version
