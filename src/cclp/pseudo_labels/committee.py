"""A committee of teachers: label propagation and four simple classifiers.

Where classes are clusters the graph is best, and with very few labels nearly always. Where they are
not, a linear model, a discriminant, an SVC or trees may be. Which it is, labels that were left
out tell: pseudo-labels are the vote of all, with weights by how well each predicts them. Samples
about which they disagree are decided by what they agree about.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from cclp.progress import Reporter
from cclp.pseudo_labels.evidence import log_evidence, some_of_each_class
from cclp.pseudo_labels.leave_one_out import LeaveOneOut, LeftOut

FEW_LABELS = 7.0  # of each class: with so many the graph is trusted as the classifiers together
LEAST_WEIGHT = 0.01
AGREED = 0.9  # share of the votes that settles the class of a sample
FOLDS, FEW_FOLDS = 10, 3
MOST_VALUES = 20_000  # labels times classes that all classifiers learn from
MANY_CLASSES, MOST_VALUES_OF_MANY = 20, 1_000_000  # the discriminant learns from more
MOST_SAMPLES = 10_000  # that the discriminant sees
MOST_SVC_SAMPLES = 1_000  # and as many labels, that an SVC sees: its time grows with the square
LDA_ROUNDS = 3
SVC_ROUNDS = 5
TREES = 100

Classes = NDArray[np.int64]
Floats = NDArray[np.float64]
Points = NDArray[np.float32]


class Opinion(NamedTuple):
    """Of a classifier.

    Attributes:
        classes: a function that predicts those of all samples, (N,): of many it takes a while.
        left_out: the class of each label by a model that has not seen it, −1 elsewhere, (N,).
    """

    classes: Callable[[], Classes]
    left_out: Classes


class Vote(NamedTuple):
    """Of a committee.

    Attributes:
        labels: shares of the classes, (N, C).
        accuracy: of the teacher with the largest weight, on left-out labels.
        weights: of the teachers, by name; the graph is the first.
    """

    labels: NDArray[np.float32]
    accuracy: LeaveOneOut
    weights: dict[str, float]


def balanced_svc(x: NDArray[Any], y: Classes) -> SVC:
    """An SVC of at most 1,000 samples in which every class counts the same."""
    some = some_of_each_class(y, MOST_SVC_SAMPLES)
    return SVC(class_weight="balanced").fit(x[some], y[some])


def predict_with_margin(model: SVC, x: NDArray[Any]) -> tuple[Classes, Floats]:
    """Classes, and how far the score of each is above that of the next, (N,)."""
    scores = model.decision_function(x)
    if scores.ndim == 1:
        scores = np.stack([-scores, scores], 1)
    second, first = np.sort(scores, 1)[:, -2:].T
    return model.classes_[scores.argmax(1)], first - second


def most_certain(margin: Floats, share: float) -> NDArray[np.intp]:
    """This share of the samples, those with the largest margins."""
    return (-margin).argsort(kind="stable")[: int(np.ceil(share * len(margin)))]


class SelfTrainedLDA:
    """Linear discriminant analysis that learns from its own predictions for all samples.

    The first ones are those of an SVC. It knows a few labels; the discriminant also sees how the
    samples of each class scatter.
    """

    def __init__(self, samples: Points, shares: Floats | None = None) -> None:
        self.samples, self.shares = _some(samples, MOST_SAMPLES), shares

    def fit(self, x: NDArray[Any], y: Classes) -> "SelfTrainedLDA":
        self.model = balanced_svc(x, y)
        classes = self.model.classes_
        prior = np.full(len(classes), 1.0) if self.shares is None else self.shares[classes]
        prior = prior / prior.sum()
        for _ in range(LDA_ROUNDS):
            said = self.model.predict(self.samples)
            if len(np.unique(said)) < len(classes):  # it leaves a class out
                break
            self.model = LinearDiscriminantAnalysis("lsqr", shrinkage="auto", priors=prior)
            self.model.fit(self.samples, said)
        return self

    def predict(self, x: NDArray[Any]) -> Classes:
        return np.asarray(self.model.predict(x))


class SelfTrainedSVC:
    """An SVC that learns from its own most certain predictions, a fifth more in each of 5 rounds.

    The same share of each class is taken: none grows at the expense of another.
    """

    def __init__(self, samples: Points) -> None:
        self.samples = _some(samples, MOST_SVC_SAMPLES)

    def fit(self, x: NDArray[Any], y: Classes) -> "SelfTrainedSVC":
        some = some_of_each_class(y, MOST_SVC_SAMPLES)
        x, y, self.model = x[some], y[some], balanced_svc(x, y)
        classes = self.model.classes_
        for taken in np.arange(1, SVC_ROUNDS + 1) / SVC_ROUNDS:
            said, margin = predict_with_margin(self.model, self.samples)
            certain = []
            for c in classes:
                members = np.flatnonzero(said == c)
                certain.append(members[most_certain(margin[members], taken)])
            rows = np.concatenate(certain)
            self.model = SVC(class_weight="balanced").fit(
                np.concatenate([x, self.samples[rows]]), np.concatenate([y, said[rows]])
            )
        return self

    def predict(self, x: NDArray[Any]) -> Classes:
        return np.asarray(self.model.predict(x))


class Shifted:
    """A classifier to which all classes were the same, for classes of other shares.

    Its probabilities are multiplied by the shares, as Bayes' rule has it under label shift.
    """

    def __init__(self, model: Any, shares: Floats) -> None:
        self.model, self.shares = model, shares

    def fit(self, x: NDArray[Any], y: Classes) -> "Shifted":
        self.model.fit(x, y)
        return self

    @property
    def oob_decision_function_(self) -> Floats:
        return np.asarray(self.model.oob_decision_function_) * self.shares[self.classes_]

    @property
    def classes_(self) -> Classes:
        return np.asarray(self.model.classes_)

    def predict(self, x: NDArray[Any]) -> Classes:
        probabilities = self.model.predict_proba(x) * self.shares[self.classes_]
        return np.asarray(self.classes_[probabilities.argmax(1)])


def _some(samples: Points, most: int) -> Points:
    order = np.random.default_rng(0).permutation(len(samples))
    return samples[np.sort(order[:most])]


def classifiers(points: Points, shares: Floats, many: bool) -> dict[str, Callable[[], Any]]:
    """Those that learn from labels; in training, every class counts the same.

    Args:
        points: features of all samples.
        shares: of the classes among all samples, (C,).
        many: whether there are so many classes that the discriminant alone is quick enough.
    """
    found: dict[str, Callable[[], Any]] = {
        "self_trained_lda": lambda: SelfTrainedLDA(points, shares)
    }
    if many:
        return found
    linear = partial(LogisticRegression, max_iter=200, class_weight="balanced")
    trees = partial(
        ExtraTreesClassifier,
        TREES,
        class_weight="balanced",
        bootstrap=True,
        oob_score=True,
        random_state=0,
    )
    return {
        "logistic_regression": lambda: Shifted(linear(), shares),
        **found,
        "self_trained_svc": lambda: SelfTrainedSVC(points),
        "extra_trees": lambda: Shifted(trees(), shares),
    }


def vote(
    graph: NDArray[np.float32],
    left_out: LeftOut,
    x: NDArray[Any],
    points: Points,
    y: Classes,
    shares: Floats,
    report: Reporter | None = None,
) -> Vote:
    """Classes of all samples by a vote of the graph and the classifiers.

    Args:
        graph: classes of the samples by label propagation, (N, C).
        left_out: labels that it was tested on.
        x: samples, (N, F): trees do not ask for units.
        points: features whose distances mean something, (N, D).
        y: classes, (N,), −1 where there is no label.
        shares: of the classes, (C,).
        report: shows progress.
    """
    num_classes, report = graph.shape[1], report or Reporter()
    points = unit_variance(points)
    opinions = teach(x, points, y, shares, report)
    asked = np.ones(len(left_out.samples), bool)  # labels that all of them were tested on
    for opinion in opinions.values():
        asked &= opinion.left_out[left_out.samples] >= 0
    rows = left_out.samples[asked]
    correct = {"graph": left_out.correct[asked]}
    correct |= {name: opinion.left_out[rows] == y[rows] for name, opinion in opinions.items()}
    learned = y[taught_labels(y, num_classes)] if opinions else y[y >= 0]
    counts = np.bincount(learned, minlength=num_classes).astype(np.float64)
    weights = committee_weights(correct, y[rows], counts, shares)
    votes, known = weights["graph"] * graph, np.flatnonzero(y >= 0)
    with report.work("Asking simple classifiers", len(opinions) + 1) as done:
        for name, opinion in opinions.items():
            if weights[name]:
                votes[np.arange(len(y)), opinion.classes()] += weights[name]
            done(1)
        votes[known] = graph[known]
        if opinions and np.ptp(shares) < 1e-9:  # an SVC would make a rare class too large
            votes = settle(votes, points)
        done(1)
    best = correct[max(weights, key=lambda name: weights[name])]
    return Vote(votes, LeaveOneOut.of(best, y[rows]), weights)


def unit_variance(points: Points) -> Points:
    """All features by one factor: then the usual regularisation is a usual one."""
    scale = np.sqrt(points.var(0).mean())
    return points / (scale if scale > 0 else 1)


def settle(votes: NDArray[np.float32], points: Points) -> NDArray[np.float32]:
    """Samples without nine tenths of the votes for a class get that of an SVC of the others.

    First the half that it is most certain about, then, by an SVC of these too, the rest.
    """
    settled, classes = votes.max(1) >= AGREED, votes.argmax(1)
    if len(np.unique(classes[settled])) < 2:
        return votes
    for share in (0.5, 1):
        rows = np.flatnonzero(~settled)
        if not len(rows):
            break
        said, margin = predict_with_margin(
            balanced_svc(points[settled], classes[settled]), points[rows]
        )
        chosen = most_certain(margin, share)
        classes[rows[chosen]], settled[rows[chosen]] = said[chosen], True
        votes[rows[chosen]] = np.eye(votes.shape[1], dtype=votes.dtype)[said[chosen]]
    return votes


def teach(
    x: NDArray[Any], points: Points, y: Classes, shares: Floats, report: Reporter | None = None
) -> dict[str, Opinion]:
    """What every classifier says about all samples, and about each label without having seen it.

    Args:
        x: samples, (N, F): trees do not ask for units.
        points: features whose distances mean something, of about unit variance, (N, D).
        y: classes, (N,), −1 where there is no label.
        shares: of the classes, (C,).
        report: shows progress.

    Returns:
        By name; labels are predicted out of fold, by trees out of bag. Empty if there are too
        many classes.
    """
    num_classes = len(shares)
    known = taught_labels(y, num_classes)
    if len(known) < 2 * num_classes and len(known) < (y >= 0).sum():
        return {}
    many = len(known) * num_classes > MOST_VALUES
    folds = FEW_FOLDS if many else FOLDS
    found, makers = {}, classifiers(points, shares, many)
    fits = (folds + 1) * len(makers) - folds * ("extra_trees" in makers)  # trees have no folds
    with (
        (report or Reporter()).work("Training simple classifiers", fits) as done,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # no out-of-bag vote for a few, no convergence
        for name, make in makers.items():
            inputs = x if name == "extra_trees" else points
            left_out = np.full(len(y), -1)
            model = make().fit(inputs[known], y[known])
            done(1)
            if name == "extra_trees":
                votes = np.nan_to_num(model.oob_decision_function_)
                left_out[known] = np.where(votes.any(1), model.classes_[votes.argmax(1)], -1)
            else:
                left_out[known] = out_of_fold(make, inputs[known], y[known], folds, done)
            found[name] = Opinion(partial(model.predict, inputs), left_out)
    return found


def taught_labels(y: Classes, num_classes: int) -> NDArray[np.intp]:
    """Labeled samples that the classifiers learn from: of many classes the discriminant alone."""
    most = MOST_VALUES_OF_MANY if num_classes > MANY_CLASSES else MOST_VALUES
    return some_of_each_class(y, most // num_classes)


def out_of_fold(
    make: Callable[[], Any],
    x: NDArray[Any],
    y: Classes,
    folds: int = FOLDS,
    done: Callable[[int], None] = lambda folds: None,
) -> Classes:
    """Every label predicted by a model of the other folds; −1 if they hold a single class.

    Folds are stratified; a class of no more labels than folds has one in each at most. ``done`` is
    called after each of them.
    """
    fold, rng = np.empty(len(y), np.int64), np.random.default_rng(0)
    for c in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == c))
        fold[members] = np.arange(len(members)) % folds
    found = np.full(len(y), -1)
    for k in range(folds):
        rest = fold != k
        if not rest.all() and len(np.unique(y[rest])) > 1:
            found[~rest] = make().fit(x[rest], y[rest]).predict(x[~rest])
        done(1)
    return found


def committee_weights(
    correct: dict[str, NDArray[np.bool_]], y: Classes, counts: Floats, shares: Floats
) -> dict[str, float]:
    """Posterior probabilities of the teachers, the first of which is the graph.

    The prior odds of the graph against all classifiers together are (7 / labels of a class)⁴: with
    few labels a test says little, and the graph, which has seen all samples, is nearly always best.
    They are multiplied by the likelihoods of left-out labels. What is below 1 % then is zero.

    Args:
        correct: by teacher: whether each tested label was predicted right, (T,).
        y: classes of the tested labels, (T,).
        counts: of labels that the classifiers have learned from, by class, (C,).
        shares: of the classes, (C,).
    """
    names = list(correct)
    per_class = len(counts) / (1 / np.maximum(counts, 1)).sum()  # harmonic: the rare ones decide
    others = len(names) - 1
    prior = np.array([(FEW_LABELS / per_class) ** 4, *[1 / max(1, others)] * others])
    evidence = np.array([log_evidence(correct[name], y, shares) for name in names])
    weights = prior * np.exp(evidence - evidence.max())
    weights[weights < LEAST_WEIGHT * weights.sum()] = 0
    return dict(zip(names, (weights / weights.sum()).tolist(), strict=True))
