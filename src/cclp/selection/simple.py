"""Simple models that everybody would try first, on labels alone."""

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cclp.data.splits import Indices
from cclp.pseudo_labels.evidence import some_of_each_class
from cclp.selection.problem import Floats, Problem

TREES = 200
MOST_VALUES = 100_000  # labels times classes that they learn from: trees keep them all
LEAST = 1e-4  # probability of a class in a model that calls it impossible

TITLES = {
    "logistic_regression": "logistic regression",
    "random_forest": "random forest",
    "graph": "label propagation",
    "majority": "always the most frequent class",
}


class Predicted(NamedTuple):
    """What a model says of the hidden labels of a fold.

    Attributes:
        log_probabilities: or logits, (T, C).
        seconds: that it took.
    """

    log_probabilities: Floats
    seconds: float


def simple_models() -> dict[str, Callable[[], Any]]:
    """Functions that make models of scikit-learn, by name."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    return {
        "logistic_regression": lambda: LogisticRegression(max_iter=500, class_weight="balanced"),
        "random_forest": lambda: RandomForestClassifier(TREES, random_state=0),
    }


def log_probabilities(model: Any, x: NDArray[Any], num_classes: int) -> Floats:
    """Of all classes, also of those that the model does not know, (N, C)."""
    found = np.full((len(x), num_classes), LEAST)
    found[:, model.classes_] = np.maximum(model.predict_proba(x), LEAST)
    return np.asarray(np.log(found / found.sum(1, keepdims=True)))


def fit_simple_models(problem: Problem, hidden: Indices) -> dict[str, Predicted]:
    """Hidden labels, predicted by simple models of the other labels alone, by model."""
    x, rows = problem.simple_inputs
    place = {int(row): k for k, row in enumerate(rows)}
    known = np.setdiff1d(problem.split.labeled, hidden)
    known = known[some_of_each_class(problem.y[known], MOST_VALUES // problem.num_classes)]
    seen, asked = ([place[int(i)] for i in index] for index in (known, hidden))
    found = {}
    for name, make in simple_models().items():
        begun = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence
            model = make().fit(x[seen], problem.y[known])
        values = log_probabilities(model, x[asked], problem.num_classes)
        found[name] = Predicted(values, time.monotonic() - begun)
    return found
