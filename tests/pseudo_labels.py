"""Inputs for tests of pseudo-labels, and label propagation in dense matrices to compare with."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.datasets import load_wine

from cclp.data.load import load

Floats = NDArray[np.float64]


@cache
def wine() -> tuple[Floats, NDArray[np.int64]]:
    """A table with columns of very different units, and three classes."""
    X, y = load_wine(return_X_y=True)
    return X, y


def few_labels(y: NDArray[np.int64], per_class: int) -> NDArray[np.int64]:
    """The first labels of each class, and −1 elsewhere."""
    few = np.full(len(y), -1)
    for c in np.unique(y):
        few[np.flatnonzero(y == c)[:per_class]] = c
    return few


def drawings(count: int) -> NDArray[Any]:
    """Digits at twice their size, (count, 1, 16, 16)."""
    return load("digits").train_x.reshape(-1, 1, 8, 8)[:count].repeat(2, 2).repeat(2, 3)


def one_hot(y: NDArray[np.int64], num_classes: int) -> Floats:
    """Rows of zeros where there is no label."""
    return np.eye(num_classes)[y] * (y >= 0)[:, None]


def dense_affinity(points: NDArray[Any], neighbours: int = 5) -> Floats:
    """W of a k-nearest-neighbour graph with local scaling."""
    distance = cdist(points, points)
    np.fill_diagonal(distance, np.inf)
    nearest = distance.argsort(1)[:, :neighbours]
    scale = distance[np.arange(len(points)), nearest[:, -1]]
    W = np.zeros_like(distance)
    for i, others in enumerate(nearest):
        ratio = distance[i, others] ** 2 / (scale[i] * scale[others])
        W[i, others] = np.maximum(np.exp(-ratio), 1e-6)
    return np.asarray(W + W.T)


def dense_propagation(W: Floats, Y: Floats) -> Floats:
    """F of label spreading, (I − 0.99 S) F = Y."""
    root = np.sqrt(W.sum(1))
    system = np.eye(len(W)) - 0.99 * W / np.outer(root, root)
    return np.asarray(np.linalg.solve(system, Y), np.float64)


def dense_classes(F: Floats) -> NDArray[np.int64]:
    """The largest class after class mass normalisation to equal shares."""
    return np.asarray((F / F.sum(0)).argmax(1))
