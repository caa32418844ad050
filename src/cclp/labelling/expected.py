"""The error that is to be expected, with an interval.

Samples are asked about because they are doubtful and because the labels so far tell little about
them. So the share of left-out labels that are predicted wrong is not that of all samples: with our
own questions it is several times as high. There are two kinds of evidence.

The graph's own: among samples of the same certainty, about which the labels tell equally much, the
order of the questions matters little. So errors are counted there, and weighted by how many
unlabeled samples are like that (post-stratification). Where no label tells, the estimate is what
the methods say themselves: half is the propagated probability that a sample is of another class,
half is how often two methods differ (of two that do, one at least is wrong). Classes that nobody
has met yet are errors too: their share is how much is not known of the samples, times how often the
last answers were of a new class. Where classes overlap on the graph, all of this is wrong together.

Samples that were drawn at random: left out, they are predicted wrong as often as all others. They
are few. So the two are combined by Bayes' rule: the log odds of the error are normally distributed
around those of the graph's own estimate, with a deviation of ``DOUBT``, and each sample that was
drawn is an observation of the error.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from cclp.labelling.beliefs import OPEN, Beliefs

LEVEL = 0.9  # of the interval
DOUBT = 1.5  # in the graph's own estimate: a deviation of log odds
_CERTAIN = (0.5, 0.8, 0.95, 0.99)
_WEIGHT = 4.0  # of what the methods say themselves, in labels
_LAST = 5  # answers, of which new classes are counted
# What is open need not be of a new class even if all answers so far were: by digits and MNIST.
_UNKNOWN = 0.6

Floats = NDArray[np.float64]


class Expected(NamedTuple):
    """The expected error of the propagated labels of all unlabeled samples.

    Attributes:
        error: None if there is nothing to tell it from.
        low, high: of the interval.
        own: what the graph says of itself, without the samples that were drawn at random.
    """

    error: float | None = None
    low: float | None = None
    high: float | None = None
    own: float | None = None


class Drawn(NamedTuple):
    """How many of the samples that were drawn at random are predicted wrong, and right."""

    wrong: int
    right: int


def expect_error(
    beliefs: Beliefs,
    members: NDArray[np.int64],
    differs: NDArray[np.bool_],
    openness: Floats,
    news: Sequence[bool],
    drawn: Drawn,
) -> Expected:
    """The expected error.

    Args:
        beliefs: about all nodes.
        members: unlabeled samples of each node, (n,).
        differs: whether another method gives the node another class, (n,).
        openness: share of a node's prior variance that the labels leave, (n,).
        news: whether each answer, in their order, was of a class that was new then.
        drawn: samples that were drawn at random, left out.
    """
    total = members.sum()
    if len(beliefs.classes) < 2 or not total:
        return Expected()
    certainty, tested = beliefs.certainty, beliefs.tested
    doubt = (1 - certainty + differs / 2) / 2
    stratum = _strata(certainty, openness)
    tested_in = _strata(tested.probabilities.max(1, initial=0), tested.openness)
    rate = 0.0
    for number in np.unique(stratum):
        inside = stratum == number
        count = members[inside].sum()
        if not count:
            continue
        claimed = float((doubt * members)[inside].sum() / count)
        labels = tested_in == number
        wrong = int((~tested.correct[labels]).sum())
        rate += count / total * (wrong + _WEIGHT * claimed) / (int(labels.sum()) + _WEIGHT)
    unknown = _of_new_classes(float(openness @ members) / total, news)
    own = min(max(unknown + (1 - unknown) * rate, 1e-6), 1 - 1e-6)
    return _combined(own, drawn)


def _combined(own: float, drawn: Drawn) -> Expected:
    """The median of the error's distribution, and its quantiles."""
    deviation = np.linspace(-12, 12, 2401)
    rate = expit(logit(own) + DOUBT * deviation)
    log = drawn.wrong * np.log(rate) + drawn.right * np.log1p(-rate) - np.square(deviation) / 2
    below = np.cumsum(np.exp(log - log.max()))
    low, middle, high = np.interp([(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2], below / below[-1], rate)
    # As long as none was wrong, nothing says that there are errors at all.
    return Expected(float(middle), float(low) if drawn.wrong else 0.0, float(high), own)


def _strata(certainty: Floats, openness: Floats) -> NDArray[np.intp]:
    return np.digitize(certainty, _CERTAIN) * (len(OPEN) + 1) + np.digitize(openness, OPEN)


def _of_new_classes(openness: float, news: Sequence[bool]) -> float:
    """Expected share of samples of classes without a label."""
    quiet = next((k for k, new in enumerate(reversed(news)) if new), len(news))
    a = sum(news[-_LAST:]) + 0.5
    b = max(min(_LAST, len(news)), quiet) - a + 1.0
    return openness * _UNKNOWN * a / (a + b)
