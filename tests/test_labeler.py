"""The policy of pseudo-labels: when they are made, used, refreshed and refused."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from cclp.data.splits import Split, make_split
from cclp.pseudo_labels.graph import LabelGraph
from cclp.pseudo_labels.labeler import Labeler
from cclp.pseudo_labels.leave_one_out import LeaveOneOut
from cclp.pseudo_labels.schedule import Decision, PseudoLabelSchedule
from tests.runs import Messages

PLAIN = PseudoLabelSchedule(100)
WARMED = PseudoLabelSchedule(100, supervised_warmup=0.3, refreshes=2)


X, Y = make_blobs(120, n_features=4, centers=3, random_state=0)


def make(split: Split, **settings: Any) -> tuple[Labeler, Messages]:
    """A labeler of the blobs, and what the user hears of it."""
    messages = Messages()
    schedule = settings.pop("schedule", PLAIN)
    return Labeler(X, Y, split, 3, schedule, report=messages, **settings), messages


def with_accuracy(patch: pytest.MonkeyPatch, accuracy: LeaveOneOut) -> None:
    patch.setattr(LabelGraph, "leave_one_out", lambda graph: accuracy)


def test_pseudo_labels_are_those_of_the_graph() -> None:
    split = make_split(Y, 12, 30, seed=0)
    labeler, messages = make(split)
    labels, decision = labeler.start()
    assert labels is not None
    seen = split.unlabeled
    few = np.where(np.isin(seen, split.labeled), Y[seen], -1)
    np.testing.assert_array_equal(labels[seen], LabelGraph(X[seen], few, 3).propagate())
    assert not labels[split.held_out].any()
    assert decision == Decision("used", 0.0, correct=12, tested=12)
    assert messages.warnings == []
    assert "12 of 12 labels" in messages.infos[-1]


def test_held_out_samples_are_never_looked_at() -> None:
    """Neither they nor their classes."""
    split = make_split(Y, 12, 30, seed=0)
    blind_X, blind_Y = X.copy(), Y.copy()
    blind_X[split.held_out], blind_Y[split.held_out] = np.nan, 99
    predictions = np.random.default_rng(0).dirichlet(np.ones(3), 90)
    found, expected = (Labeler(*given, split, 3, PLAIN) for given in ((blind_X, blind_Y), (X, Y)))
    np.testing.assert_array_equal(found.start().labels, expected.start().labels)
    np.testing.assert_array_equal(found.refresh(predictions), expected.refresh(predictions))


def test_where_all_is_labeled_classes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("cclp.pseudo_labels.labeler.LabelGraph")  # there is nothing to search for
    split = make_split(Y, None, 30, seed=0)
    labeler, messages = make(split, schedule=WARMED)
    labels, decision = labeler.start()
    assert labels is not None
    np.testing.assert_array_equal(labels[split.unlabeled], np.eye(3)[Y[split.unlabeled]])
    assert not labels[split.held_out].any()
    assert decision == Decision("known")
    assert messages.infos == messages.warnings == []
    assert WARMED.decided(decision).refresh_steps == frozenset()
    assert WARMED.decided(decision).warmup_steps == 0


@pytest.mark.parametrize(
    ("accuracy", "num_labels", "schedule", "outcome"),
    [
        (LeaveOneOut(30, 30), 30, PLAIN, "used"),
        (LeaveOneOut(20, 30), 30, PLAIN, "used"),
        (LeaveOneOut(3, 30), 30, PLAIN, "refused"),
        (LeaveOneOut(0, 0), 3, PLAIN, "used"),  # nothing is known against them
        (LeaveOneOut(30, 30), 30, WARMED, "used"),  # as good as a net would be
        (LeaveOneOut(20, 30), 30, WARMED, "used"),  # of few labels a net learns less
        (LeaveOneOut(20, 30), 90, WARMED, "after_warmup"),
        (LeaveOneOut(3, 30), 30, WARMED, "after_warmup"),  # good enough to smooth over
        (LeaveOneOut(20, 30), 90, PLAIN, "used"),
    ],
)
def test_decisions(
    accuracy: LeaveOneOut,
    num_labels: int,
    schedule: PseudoLabelSchedule,
    outcome: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_accuracy(monkeypatch, accuracy)
    labeler, messages = make(make_split(Y, num_labels, 0, seed=0), schedule=schedule)
    labels, decision = labeler.start()
    assert decision.pseudo_labels == outcome
    assert (decision.correct, decision.tested) == accuracy[:2]
    assert decision.supervised_warmup == (0.3 if outcome == "after_warmup" else 0)
    assert (labels is None) == (outcome == "refused")
    assert len(messages.warnings) == (outcome == "refused")
    followed = schedule.decided(decision)
    assert followed.warmup_steps == (30 if outcome == "after_warmup" else 0)
    assert followed.refreshes == schedule.refreshes


def test_messages_name_what_the_graph_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with_accuracy(monkeypatch, LeaveOneOut(3, 30))
    labeler, messages = make(make_split(Y, 30, 0, seed=0), what="features")
    labeler.start()
    (warning,) = messages.warnings
    assert "features" in warning
    assert "3 of 30 labels" in warning


def test_a_refresh_is_a_new_array() -> None:
    """The predictions, smoothed over the graph; labels stay. A resumed run has no start."""
    split = make_split(Y, 12, 30, seed=0)
    labeler = Labeler(X, Y, split, 3, PLAIN)
    first = labeler.start().labels
    assert first is not None
    kept = first.copy()
    rng, seen = np.random.default_rng(0), split.unlabeled
    guess = np.where(rng.random(90) < 0.3, rng.integers(0, 3, 90), Y[seen])
    predictions = 0.1 + 0.7 * np.eye(3, dtype=np.float32)[guess]
    given = predictions.copy()
    second = labeler.refresh(predictions)
    np.testing.assert_array_equal(second[seen], labeler.graph.smooth(given))
    np.testing.assert_array_equal(second[split.labeled], np.eye(3)[Y[split.labeled]])
    assert not second[split.held_out].any()
    assert (second[seen].argmax(1) != Y[seen]).sum() < (guess != Y[seen]).sum()
    third = labeler.refresh(np.roll(predictions, 1, 1))
    assert not np.array_equal(third, second)
    for mine, other in ((first, second), (second, third), (first, third)):
        assert not np.shares_memory(mine, other)
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(predictions, given)
    np.testing.assert_array_equal(Labeler(X, Y, split, 3, PLAIN).refresh(given), second)


def schedule(decay: float, refreshes: int, warmup: float, steps: int = 100) -> PseudoLabelSchedule:
    return PseudoLabelSchedule(steps, decay, refreshes, warmup)


@pytest.mark.parametrize(
    ("made", "warmup_steps", "refresh_steps"),
    [
        (schedule(0.6, 2, 0), 0, {20, 40}),
        (schedule(0.6, 2, 0.3), 30, {30, 40, 50}),
        (schedule(0.6, 0, 0.3), 30, {30}),
        (schedule(1.0, 0, 0), 0, set()),
        (schedule(0.6, 5, 0, steps=2), 0, {1}),
    ],
)
def test_refreshes_are_at_equal_distances(
    made: PseudoLabelSchedule, warmup_steps: int, refresh_steps: set[int]
) -> None:
    assert made.warmup_steps == warmup_steps
    assert made.refresh_steps == refresh_steps


def test_the_weight_decays_linearly() -> None:
    made = schedule(0.5, 0, 0)
    assert [made.weight(step) for step in (0, 10, 25, 50, 90)] == pytest.approx([1, 0.8, 0.5, 0, 0])
    assert [made.are_used_after(step) for step in (0, 49, 50, 100)] == [True, True, False, False]
    assert schedule(1.0, 0, 0).weight(99) == pytest.approx(0.01)


def test_decisions_are_plain_values() -> None:
    shares = [0.9, 0.1]
    for decision in (Decision(), Decision("after_warmup", 0.2, 30, 100, shares=shares)):
        assert Decision.from_json(decision.to_json()) == decision
    for wrong in ({"pseudo_labels": "perhaps"}, {"supervised_warmup": 2}, {"shares": [0.0]}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Decision.from_json({**Decision().to_json(), **wrong})


def test_shares_that_are_far_from_the_samples_are_warned_of() -> None:
    x, y = make_blobs([400, 40], n_features=4, random_state=0)
    few = [*np.flatnonzero(y == 0)[:12], *np.flatnonzero(y == 1)[:12]]
    split = Split(np.sort(few), np.arange(440), np.empty(0, np.int64))
    said = {}
    for prior in ((0.91, 0.09), (0.3, 0.7), None):
        messages = Messages()
        given = None if prior is None else np.array(prior)
        Labeler(x, y, split, 2, PLAIN, class_prior=given, report=messages).start()
        said[prior] = [text for text in messages.warnings if "class shares" in text]
    assert said[0.91, 0.09] == said[None] == []
    assert len(said[0.3, 0.7]) == 1
    assert "has 30% as given and about 9" in said[0.3, 0.7][0]
