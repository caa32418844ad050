"""The committee of teachers: what its classifiers say, and how much each counts."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from cclp.data.splits import make_split
from cclp.pseudo_labels import committee
from cclp.pseudo_labels.committee import (
    SelfTrainedLDA,
    SelfTrainedSVC,
    committee_weights,
    out_of_fold,
    settle,
    teach,
    vote,
)
from cclp.pseudo_labels.evidence import log_evidence
from cclp.pseudo_labels.labeler import Labeler
from cclp.pseudo_labels.leave_one_out import LeftOut
from cclp.pseudo_labels.schedule import PseudoLabelSchedule
from cclp.pseudo_labels.solvers import equal_shares

YES, NO = np.ones(20, bool), np.zeros(20, bool)
Y = np.arange(20) % 2
HALF = equal_shares(2)


def blobs() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    X, y = make_blobs(200, centers=3, n_features=4, random_state=0)
    return X.astype(np.float32), y


def test_every_label_is_predicted_by_models_that_have_not_seen_it() -> None:
    """A label that is wrong is contradicted by all of them."""
    X, truth = blobs()
    y = np.where(np.arange(200) < 60, truth, -1)
    y[0] = (truth[0] + 1) % 3
    found = teach(X, X, y, equal_shares(3))
    assert set(found) == {
        "logistic_regression", "self_trained_lda", "self_trained_svc", "extra_trees"
    }  # fmt: skip
    for opinion in found.values():
        assert (opinion.classes() == truth).mean() > 0.95
        assert opinion.left_out[0] == truth[0]
        np.testing.assert_array_equal(opinion.left_out[60:], -1)


def test_a_class_of_one_label_is_never_predicted_for_itself() -> None:
    X, y = np.arange(5.0)[:, None], np.array([0, 0, 0, 1, 1])
    found = out_of_fold(lambda: LogisticRegression(), X, y)
    assert set(found) <= {-1, 0, 1}
    alone = out_of_fold(lambda: LogisticRegression(), X[2:4], y[2:4])
    np.testing.assert_array_equal(alone, [-1, -1])


def test_the_discriminant_sees_how_classes_scatter() -> None:
    """Three labels of each long cloud: too few to know which way it is long."""
    rng = np.random.default_rng(0)
    truth, wrong = np.arange(600) % 2, []
    long = rng.normal(size=(600, 4)) * [1, 1, 1, 3]
    X = (long + 3 * truth[:, None] * np.array([1, 1, 0, 0])).astype(np.float32)
    for draw in range(10):
        known = np.random.default_rng(draw).permutation(600)[:6]
        if len(np.unique(truth[known])) == 2:
            wrong.append(
                [
                    (model.fit(X[known], truth[known]).predict(X) != truth).mean()
                    for model in (SelfTrainedLDA(X), SVC(class_weight="balanced"))
                ]
            )
    discriminant, svc = np.mean(wrong, 0)
    assert discriminant < 0.8 * svc
    one_sided = SelfTrainedLDA(np.zeros((5, 4), np.float32)).fit(X[:6], truth[:6])
    assert isinstance(one_sided.model, SVC)


def test_an_svc_learns_from_what_it_is_sure_of() -> None:
    """Three labels of each round cloud among many: its border follows the gap between them."""
    X, truth = make_blobs(600, centers=3, n_features=8, cluster_std=3.0, random_state=3)
    X = ((X - X.mean(0)) / X.std()).astype(np.float32)
    wrong = []
    for draw in range(10):
        known = [np.flatnonzero(truth == c)[3 * draw : 3 * draw + 3] for c in range(3)]
        rows = np.concatenate(known)
        wrong.append(
            [
                (model.fit(X[rows], truth[rows]).predict(X) != truth).mean()
                for model in (SelfTrainedSVC(X), SVC(class_weight="balanced"))
            ]
        )
    trained, plain = np.mean(wrong, 0)
    assert 0.01 < plain
    assert trained < 0.5 * plain


def test_what_teachers_agree_about_settles_the_rest() -> None:
    points = np.array([0, 0.1, 0.2, 0.3, 5, 5.1, 5.2, 5.3], np.float32)[:, None]
    votes = np.array([[1, 0]] * 3 + [[0.4, 0.6]] + [[0, 1]] * 3 + [[0.6, 0.4]], np.float32)
    votes[1] = 0.91, 0.09
    found = settle(votes.copy(), points)
    np.testing.assert_array_equal(found[[3, 7]], [[1, 0], [0, 1]])
    rest = [0, 1, 2, 4, 5, 6]
    np.testing.assert_array_equal(found[rest], votes[rest])
    one = settle(votes[:7].copy(), points[:7])
    np.testing.assert_array_equal(one.argmax(1), [0, 0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(settle(found.copy(), points), found)
    undecided = np.full((8, 2), 0.5, np.float32)
    np.testing.assert_array_equal(settle(undecided.copy(), points), undecided)


def test_of_many_classes_the_discriminant_teaches_of_very_many_none() -> None:
    X = np.random.default_rng(0).normal(size=(1800, 2)).astype(np.float32)
    many, very_many = np.arange(600) % 100, np.arange(1800) % 900
    assert set(teach(X[:600], X[:600], many, equal_shares(100))) == {"self_trained_lda"}
    assert teach(X, X, very_many, equal_shares(900)) == {}


def test_a_rare_class_is_never_lost() -> None:
    """Of more labels than the classifiers learn from, some of every class are taken."""
    X = np.random.default_rng(0).normal(size=(12_000, 2)).astype(np.float32)
    y = np.zeros(12_000, int)
    y[0], y[1:3] = -1, 1
    X[1:3] += 20
    X[0] += 20
    assert teach(X, X, y, HALF)["logistic_regression"].classes()[0] == 1


def test_classifiers_of_few_labels_do_not_outvote_a_graph_of_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 50 labels a class they learn from two: what they say counts as that of two."""
    monkeypatch.setattr(committee, "MOST_VALUES", 18)
    X, truth = blobs()
    y = np.where(np.arange(200) < 150, truth, -1)
    left_out = LeftOut(np.arange(150), np.ones(150, bool))
    weights = vote(np.eye(3, dtype=np.float32)[truth], left_out, X, X, y, equal_shares(3)).weights
    assert weights["graph"] > 0.8  # prior odds (7 / 2)⁴


def test_evidence_counts_classes_the_same() -> None:
    assert log_evidence(YES, Y, HALF) > log_evidence(NO, Y, HALF)
    assert log_evidence(np.array([], bool), np.array([], int), HALF) == 0
    rare = np.array([0] * 18 + [1] * 2)
    always_common = rare == 0  # nine of ten right, and useless
    useful = np.arange(20) % 5 > 0
    assert log_evidence(useful, rare, HALF) > log_evidence(always_common, rare, HALF)
    expected = 20 * np.log(21 / 22)
    assert log_evidence(YES, Y, HALF) == pytest.approx(expected)


def test_weights_follow_evidence_and_the_number_of_labels() -> None:
    equal = {"graph": YES, "svc": YES}
    few, many = (committee_weights(equal, Y, np.full(2, n), HALF) for n in (1.0, 70.0))
    assert few["graph"] == pytest.approx(1)  # prior odds (7 / 1)⁴: below 1 % is nothing
    assert many == {"graph": 0.0, "svc": 1.0}  # (7 / 70)⁴ is below 1 %
    some = committee_weights(equal, Y, np.full(2, 10.0), HALF)
    assert some["graph"] == pytest.approx(0.7**4 / (1 + 0.7**4))
    better = committee_weights({"graph": NO, "svc": YES}, Y, np.full(2, 10.0), HALF)
    assert better == {"graph": 0.0, "svc": 1.0}  # below 1 % is nothing
    assert sum(better.values()) == pytest.approx(1)
    assert committee_weights({"graph": YES}, Y, np.full(2, 10.0), HALF) == {"graph": 1.0}


def test_where_classes_are_no_clusters_the_classifiers_teach() -> None:
    """A plane through an even cloud: no neighbour knows of it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 12)).astype(np.float32)
    y = (X @ rng.normal(size=12) > 0).astype(int)
    split = make_split(y, 60, 0, seed=0)
    plain, voted = (
        Labeler(X, y, split, 2, PseudoLabelSchedule(10), committee=voting).start()
        for voting in (False, True)
    )
    assert plain.labels is not None
    assert voted.labels is not None
    teachers = voted.decision.teachers
    assert teachers is not None
    assert teachers["graph"] < 0.1
    np.testing.assert_allclose(voted.labels.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(voted.labels[split.labeled], np.eye(2)[y[split.labeled]])
    wrong = [(labels.argmax(1) != y).mean() for labels in (voted.labels, plain.labels)]
    assert wrong[0] < 0.7 * wrong[1]
