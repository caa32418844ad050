"""Labeled samples that the other labels contradict: mistakes, or the hardest samples."""

import numpy as np

from cclp.labelling.beliefs import Tested

LEAST, SURE = 0.5, 0.8  # probability of another class
TOLD = 0.6  # openness: where the others tell less, a contradiction means little


def find_contradictions(tested: Tested, *, sure: bool = False) -> list[int]:
    """Samples whose left-out label is predicted to be another, surest first.

    Samples are asked about because the labels so far tell little of them: of those, many are
    contradicted and few are mistakes. They come last.

    Args:
        tested: labels that were left out.
        sure: whether only contradictions count about which there is little doubt.
    """
    if not len(tested.samples):
        return []
    best = tested.probabilities.max(1)
    found = ~tested.correct & (best >= LEAST)
    if sure:
        found &= (best >= SURE) & (tested.openness <= TOLD)
    places = np.flatnonzero(found)
    order = np.argsort(-(best * (1 - tested.openness))[places], kind="stable")
    return [int(sample) for sample in tested.samples[places[order]]]
