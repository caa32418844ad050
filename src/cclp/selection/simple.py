"""Simple models that everybody would try first, on labels alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TREES = 200
LEAST = 1e-4  # probability of a class in a model that calls it impossible

TITLES = {
    "logistic_regression": "logistic regression",
    "random_forest": "random forest",
    "graph": "label propagation",
    "majority": "always the most frequent class",
}


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
