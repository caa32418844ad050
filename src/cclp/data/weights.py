"""How much each labeled sample counts in the supervised term, and what batches are made of."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cclp.checks import check_number
from cclp.data.splits import Indices

Floats = NDArray[np.float64]
BALANCED = "balanced"
ESTIMATE, LABELS, EQUAL = PRIORS = ("estimate", "labels", "equal")
EXTRA_LABELS = 5  # of each class: a few labels say little about how large the classes are
_SUM_TOLERANCE = 1e-6


class LabelWeights(NamedTuple):
    """Of labeled samples.

    Attributes:
        samples: the supervised term is the mean with these weights, (N_L,); at least one is above
            zero.
        shares: of the classes in the labeled part of a batch, (C,); None: all the same.
    """

    samples: Floats
    shares: Floats | None


def label_weights(
    labels: Indices,
    classes: Sequence[Hashable],
    class_weight: str | Mapping[Any, float] | None = None,
    class_prior: str | Mapping[Any, float] | None = None,
    sample_weight: Floats | None = None,
) -> LabelWeights | None:
    """Weights as scikit-learn means them: ``class_weight[y] * sample_weight`` for each sample.

    With ``class_weight``, batches hold the classes in the proportions of the labels, or of
    ``class_prior`` if given. Without it, every class has the same weight, whatever the number of
    its labels.

    Args:
        labels: class indices of the labeled samples, (N_L,).
        classes: by what the user calls them.
        class_weight: by class, 1 where a class is left out; or "balanced": in inverse proportion
            to the number of labels.
        class_prior: shares of the classes among all samples, by class; a word is of no effect here.
        sample_weight: of the labeled samples, (N_L,).

    Returns:
        None if none of the three is given.

    Raises:
        TypeError, ValueError: for a class that there is not, or a weight or share that cannot be.

    Examples:
        >>> label_weights(np.array([0, 0, 0, 1]), ["a", "b"], class_weight="balanced")
        LabelWeights(samples=array([0.66666667, 0.66666667, 0.66666667, 2.        ]), \
shares=array([0.75, 0.25]))
    """
    check_class_prior(class_prior)
    known = class_prior if isinstance(class_prior, Mapping) else None
    if class_weight is None and known is None and sample_weight is None:
        return None
    own = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    counts = np.bincount(labels, minlength=len(classes))
    shares = class_shares(known, classes, counts)
    if class_weight is None:
        of_class = 1 / np.maximum(counts, 1)
    else:
        shares = counts / len(labels) if shares is None else shares
        check_class_weight(class_weight)
        if isinstance(class_weight, str):
            mass = np.bincount(labels, own, minlength=len(classes))
            of_class = mass.sum() / (len(classes) * np.where(mass > 0, mass, 1))
        else:
            of_class = _by_class("class_weight", class_weight, classes, missing=1.0)
    samples = of_class[labels] * own
    if not samples.any():
        raise ValueError("class_weight and sample_weight must not be 0 for all labeled samples")
    return LabelWeights(samples, shares)


def class_shares(
    class_prior: str | Mapping[Any, float] | None, classes: Sequence[Hashable], counts: Indices
) -> Floats | None:
    """Shares of the classes in their order, (C,); None: they are to be estimated.

    Args:
        class_prior: shares by class; "labels": as frequent as their labels, and 5 more of each;
            "equal"; "estimate" or None.
        classes: by what the user calls them.
        counts: of the labels of each class, (C,).

    Raises:
        TypeError, ValueError: for shares that cannot be.
    """
    check_class_prior(class_prior)
    if class_prior is None or class_prior == ESTIMATE:
        return None
    if isinstance(class_prior, str):
        given = counts + EXTRA_LABELS if class_prior == LABELS else np.ones(len(classes))
        return np.asarray(given / given.sum(), np.float64)
    return _by_class("class_prior", class_prior, classes, missing=None)


def check_class_weight(weight: Any) -> None:
    """Must be "balanced", or numbers by class, none below 0, or None.

    Raises:
        TypeError, ValueError: if not.
    """
    if isinstance(weight, Mapping) and weight:
        for name, value in weight.items():
            check_number(f"class_weight of {name!r}", value, least=0)
    elif weight is not None and not (isinstance(weight, str) and weight == BALANCED):
        raise ValueError(f"class_weight must be 'balanced' or weights by class, got {weight!r}")


def check_class_prior(prior: Any) -> None:
    """Must be shares by class, above 0, that sum to one, a word for how to find them, or None.

    Raises:
        TypeError, ValueError: if not.
    """
    if prior is None or (isinstance(prior, str) and prior in PRIORS):
        return
    if not isinstance(prior, Mapping) or not prior:
        raise ValueError(
            f"class_prior must be shares by class, or one of {', '.join(PRIORS)}, got {prior!r}"
        )
    for name, value in prior.items():
        check_number(f"class_prior of {name!r}", value, above=0)
    total = float(sum(prior.values()))
    if abs(total - 1) > _SUM_TOLERANCE:
        raise ValueError(f"class_prior must sum to 1, got {total:g}")


def _by_class(
    argument: str,
    given: Mapping[Any, float],
    classes: Sequence[Hashable],
    missing: float | None,
) -> Floats:
    """Values in the order of the classes; ``missing`` for those left out, None: there are none."""
    named = ", ".join(map(repr, classes[:10])) + (", …" if len(classes) > 10 else "")
    for name in given:
        if name not in classes:
            raise ValueError(f"{argument} has {name!r}, but the classes are {named}")
    if missing is None and len(given) < len(classes):
        left_out = next(name for name in classes if name not in given)
        raise ValueError(f"{argument} must have a share of every class, got none of {left_out!r}")
    return np.array([given.get(name, missing) for name in classes], np.float64)
