"""A committee of teachers: label propagation and three simple classifiers.

Where classes are clusters the graph is best, and with very few labels nearly always. Where they are
not, a linear model, a linear discriminant or a forest may be. Which it is, labels that were left
out tell: pseudo-labels are the vote of all, with weights by how well each predicts them.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

FEW_LABELS = 7.0  # of each class: with so many the graph is trusted as the classifiers together
EVIDENCE = 0.5  # power of the likelihood: all teachers are tested on the same few labels
FOLDS = 10
MOST_VALUES = 20_000  # labels times classes that the classifiers learn from
MOST_SAMPLES = 10_000  # that the discriminant sees
TREES = 100

Classes = NDArray[np.int64]
Floats = NDArray[np.float64]


class Opinion(NamedTuple):
    """Of a classifier: classes of all samples, and of each label by a model that has not seen it,
    −1 elsewhere; each (N,).
    """

    classes: Classes
    left_out: Classes


class SelfTrainedLDA:
    """Linear discriminant analysis of what an SVC says about all samples, labeled or not.

    One round of self-training. The SVC knows a few labels; the discriminant also sees how the
    samples of each class scatter.
    """

    def __init__(self, samples: NDArray[np.float32]) -> None:
        order = np.random.default_rng(0).permutation(len(samples))
        self.samples = samples[np.sort(order[:MOST_SAMPLES])]

    def fit(self, x: NDArray[Any], y: Classes) -> "SelfTrainedLDA":
        first = SVC(class_weight="balanced").fit(x, y)
        said = first.predict(self.samples)
        if len(np.unique(said)) == len(first.classes_):
            prior = np.full(len(first.classes_), 1 / len(first.classes_))
            self.model = LinearDiscriminantAnalysis("lsqr", shrinkage="auto", priors=prior)
            self.model.fit(self.samples, said)
        else:  # it leaves a class out
            self.model = first
        return self

    def predict(self, x: NDArray[Any]) -> Classes:
        return np.asarray(self.model.predict(x))


def classifiers(points: NDArray[np.float32]) -> dict[str, Callable[[], Any]]:
    """Those that learn from labels; every class counts the same in them."""
    return {
        "logistic_regression": lambda: LogisticRegression(max_iter=200, class_weight="balanced"),
        "self_trained_lda": lambda: SelfTrainedLDA(points),
        "random_forest": lambda: RandomForestClassifier(
            TREES, class_weight="balanced", oob_score=True, random_state=0
        ),
    }


def teach(
    x: NDArray[Any], points: NDArray[np.float32], y: Classes, num_classes: int
) -> dict[str, Opinion]:
    """What every classifier says about all samples, and about each label without having seen it.

    Args:
        x: samples, (N, F): forests do not ask for units.
        points: features whose distances mean something, (N, D).
        y: classes, (N,), −1 where there is no label.
        num_classes: C.

    Returns:
        By name; labels are predicted out of fold, by a forest out of bag. Empty if there are too
        many classes.
    """
    known = _some_of_each_class(y, MOST_VALUES // num_classes)
    if len(known) < 2 * num_classes and len(known) < (y >= 0).sum():
        return {}
    scale = np.sqrt(points.var(0).mean())
    points = points / (scale if scale > 0 else 1)  # then the usual regularisation is a usual one
    found = {}
    for name, make in classifiers(points).items():
        inputs = x if name == "random_forest" else points
        left_out = np.full(len(y), -1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no out-of-bag vote for a few, no convergence
            model = make().fit(inputs[known], y[known])
            if name == "random_forest":
                votes = np.nan_to_num(model.oob_decision_function_)
                left_out[known] = np.where(votes.any(1), model.classes_[votes.argmax(1)], -1)
            else:
                left_out[known] = out_of_fold(make, inputs[known], y[known])
        found[name] = Opinion(model.predict(inputs), left_out)
    return found


def _some_of_each_class(y: Classes, most: int) -> NDArray[np.intp]:
    """Labeled samples: the first of every class, the second of every class, and so on."""
    rng, rank = np.random.default_rng(0), np.full(len(y), len(y))
    for c in np.unique(y[y >= 0]):
        members = rng.permutation(np.flatnonzero(y == c))
        rank[members] = np.arange(len(members))
    order = np.argsort(rank, kind="stable")[: min(most, (y >= 0).sum())]
    return np.sort(order)


def out_of_fold(make: Callable[[], Any], x: NDArray[Any], y: Classes) -> Classes:
    """Every label predicted by a model of the other folds; −1 if they hold a single class.

    Folds are stratified; a class of up to ten labels has one in each at most.
    """
    fold, rng = np.empty(len(y), np.int64), np.random.default_rng(0)
    for c in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == c))
        fold[members] = np.arange(len(members)) % FOLDS
    found = np.full(len(y), -1)
    for k in np.unique(fold):
        rest = fold != k
        if len(np.unique(y[rest])) > 1:
            found[~rest] = make().fit(x[rest], y[rest]).predict(x[~rest])
    return found


def log_evidence(correct: NDArray[np.bool_], y: Classes, num_classes: int) -> float:
    """Log-likelihood of left-out labels under a teacher that is right as often as it was.

    Classes count the same: with few labels of one class, the whole counts as few (as many as would
    give the balanced accuracy the same variance).

    Args:
        correct: whether each tested label was predicted right, (T,).
        y: their classes, (T,).
        num_classes: C.
    """
    classes, counts = np.unique(y, return_counts=True)
    if not len(classes):
        return 0.0
    tested = len(classes) ** 2 / (1 / counts).sum()
    wrong = tested * (1 - np.mean([correct[y == c].mean() for c in classes]))
    # Laplace's estimate; who is worse than chance is not believed to know what is false
    rate = min((wrong + 1) / (tested + 2), 1 - 1 / num_classes)
    right = (tested - wrong) * np.log(1 - rate)
    return float(right + wrong * np.log(rate / (num_classes - 1)))


def committee_weights(
    correct: dict[str, NDArray[np.bool_]], y: Classes, counts: Floats
) -> dict[str, float]:
    """Posterior probabilities of the teachers, the first of which is the graph.

    The prior odds of the graph against all classifiers together are (7 / labels of a class)²: with
    few labels a test says little, and the graph, which has seen all samples, is nearly always best.
    The evidence of left-out labels is added.

    Args:
        correct: by teacher: whether each tested label was predicted right, (T,).
        y: classes of the tested labels, (T,).
        counts: of labels by class, (C,).
    """
    names = list(correct)
    per_class = len(counts) / (1 / np.maximum(counts, 1)).sum()  # harmonic: the rare ones decide
    others = len(names) - 1
    prior = np.array([(FEW_LABELS / per_class) ** 2, *[1 / max(1, others)] * others])
    evidence = np.array([log_evidence(correct[name], y, len(counts)) for name in names])
    weights = prior * np.exp(EVIDENCE * (evidence - evidence.max()))
    return dict(zip(names, (weights / weights.sum()).tolist(), strict=True))
