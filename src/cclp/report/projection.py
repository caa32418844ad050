"""The picture of an embedding: one linear map to the plane, the same at every step."""

import numpy as np

from cclp.runs.arrays import Floats, Ints

RIDGE = 1e-2  # relative to the mean square of the class means


def project(z: Floats, predicted: Ints) -> tuple[Floats, str]:
    """Map embeddings to the plane so that the classes of the last step lie around a circle.

    Args:
        z: at T steps, (T, P, F).
        predicted: classes at the last step, (P,).

    Returns:
        Points, (T, P, 2), and a sentence on how they were made.
    """
    z = z - z.mean(1, keepdims=True)  # the whole cloud may drift: that is nothing to see
    last = z[-1]
    classes, inverse = np.unique(predicted, return_inverse=True)
    if z.shape[2] <= 2:
        plane = np.zeros((*z.shape[:2], 2))
        plane[..., : z.shape[2]] = z
        return plane, "The embedding has no more than two dimensions and is shown as it is."
    order = np.argsort(inverse, kind="stable")
    starts = np.searchsorted(inverse[order], np.arange(1, len(classes)))
    means = np.stack([last[members].mean(0) for members in np.split(order, starts)])
    if len(classes) == 1:
        return z @ principal(last, 2), (
            "These are the two principal components of the last step, where only one class is "
            "predicted, applied to every step."
        )
    if len(classes) == 2:
        axis = (means[1] - means[0]) / max(float(np.linalg.norm(means[1] - means[0])), 1e-30)
        rest = last - np.outer(last @ axis, axis)
        return z @ np.stack([axis, principal(rest, 1)[:, 0]], 1), (
            "Left to right: along the line through the means of the two predicted classes at the "
            "last step. Up and down: the direction of largest variance at a right angle to it."
        )
    return z @ circle_map(means - means.mean(0)), (
        "One linear map for every step: it places the means of the predicted classes of the last "
        "step around a circle, near ones beside each other. Distances between classes are "
        "therefore not to scale."
    )


def circle_map(means: Floats) -> Floats:
    """The ridge regression from centred class means, (C, F), to places on a circle, (F, 2)."""
    angle = np.empty(len(means))
    angle[tour(means)] = 2 * np.pi * np.arange(len(means)) / len(means)
    target = np.stack([np.sin(angle), -np.cos(angle)], 1)  # the first at the top, then clockwise
    gram = means @ means.T
    ridge = RIDGE * max(float(np.trace(gram)) / len(means), 1e-30)
    weights: Floats = np.linalg.solve(gram + ridge * np.eye(len(means)), target)
    return means.T @ weights


def tour(means: Floats) -> list[int]:
    """An order of the classes that goes from each to the nearest not visited."""
    order, left = [0], np.ones(len(means), bool)
    while len(order) < len(means):
        left[order[-1]] = False
        distance = np.linalg.norm(means - means[order[-1]], axis=1)
        order.append(int(np.where(left, distance, np.inf).argmin()))
    return order


def principal(z: Floats, count: int) -> Floats:
    """The ``count`` leading principal directions, (F, count), each with a fixed sign."""
    directions: Floats = np.linalg.svd(z - z.mean(0), full_matrices=False)[2][:count].T
    if directions.shape[1] < count:
        directions = np.pad(directions, ((0, 0), (0, count - directions.shape[1])))
    largest = np.abs(directions).argmax(0)
    signs = np.sign(directions[largest, np.arange(count)])
    return np.asarray(directions * np.where(signs == 0, 1, signs))


def fit_square(plane: Floats, size: int, margin: int) -> Ints:
    """Whole pixels, (T, P, 2), at one scale for all steps; what is far out is drawn nearer."""
    distance = np.abs(plane).max(2)
    last = float(np.quantile(distance[-1], 0.998))
    reach = min(max(float(np.quantile(distance, 0.98)), last), 1.5 * last) or 1.0
    part = np.abs(plane) / reach
    knee = 0.8  # up to here to scale, beyond it pressed together, so that nothing is cut off
    pressed = knee + (1 - knee) * np.tanh((part - knee) / (1 - knee))
    shown = np.sign(plane) * np.where(part > knee, pressed, part)
    return np.asarray((shown * (size / 2 - margin) + size / 2).round(), dtype=np.int64)
