"""The error that is to be expected, with an interval, from labels that were not drawn by chance.

Samples are asked about because they are doubtful, or because many follow them: the share of wrong
predictions among them is not that of all. Among samples of the same certainty it nearly is. So the
error is counted by certainty: how often a left-out label of this certainty was predicted wrong,
beside what the certainty itself says, weighted by how many unlabeled samples have it
(post-stratification).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from cclp.labelling.beliefs import Beliefs

LEVEL = 0.9  # of the interval
_EDGES = (0.5, 0.8, 0.95, 0.99)  # of certainty
_WEIGHT = 4.0  # of what the certainty itself says, in labels

Floats = NDArray[np.float64]


class Expected(NamedTuple):
    """The expected error of the propagated labels of all unlabeled samples.

    Attributes:
        error: None if there is nothing to tell it from.
        low, high: of the interval.
    """

    error: float | None = None
    low: float | None = None
    high: float | None = None


def expect_error(beliefs: Beliefs, members: NDArray[np.int64]) -> Expected:
    """The expected error.

    Args:
        beliefs: about all nodes.
        members: unlabeled samples of each node, (n,).
    """
    total = members.sum()
    if len(beliefs.classes) < 2 or not total:
        return Expected()
    certainty = beliefs.certainty
    stratum = np.digitize(certainty, _EDGES)
    tested = beliefs.tested
    tested_in = np.digitize(tested.probabilities.max(1, initial=0), _EDGES)
    mean, variance = 0.0, 0.0
    for number in range(len(_EDGES) + 1):
        inside = stratum == number
        weight = members[inside].sum() / total
        if not weight:
            continue
        claimed = float(((1 - certainty) * members)[inside].sum() / members[inside].sum())
        labels = tested_in == number
        wrong = int((~tested.correct[labels]).sum())
        a = wrong + _WEIGHT * claimed
        b = int(labels.sum()) - wrong + _WEIGHT * (1 - claimed)
        rate = a / (a + b)
        mean += weight * rate
        variance += weight**2 * rate * (1 - rate) / (a + b + 1)
    spread = max(mean * (1 - mean) / max(variance, 1e-12) - 1, 1.0)
    low, high = beta.interval(LEVEL, mean * spread, (1 - mean) * spread)
    return Expected(float(mean), float(low), float(high))
