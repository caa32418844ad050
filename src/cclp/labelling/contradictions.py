"""Labeled samples that the other labels contradict: mistakes, or the hardest samples."""

import numpy as np

from cclp.labelling.beliefs import Tested

LEAST = 0.5  # probability of another class


def find_contradictions(tested: Tested) -> list[int]:
    """Samples whose left-out label is predicted to be another, surest first."""
    if not len(tested.samples):
        return []
    best = tested.probabilities.max(1)
    found = np.flatnonzero(~tested.correct & (best >= LEAST))
    return [int(tested.samples[place]) for place in found[np.argsort(-best[found], kind="stable")]]
