"""What is known of samples and classes, in plain values for the page."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cclp.labelling.contradictions import find_contradictions
from cclp.labelling.decisions import Decisions
from cclp.labelling.engine import Engine
from cclp.labelling.keys import keys_of
from cclp.labelling.labels import NONE, NOT_SURE, UNLABELED
from cclp.labelling.source import Source

Json = dict[str, Any]
Why = Literal["typical", "influential", "drawn", "disagreement", "chosen"]

_NEAREST, _CANDIDATES = 3, 4
_BYTES = {UNLABELED: 255, NOT_SURE: 254, NONE: 253}
_WORDS: dict[int, str | None] = {UNLABELED: None, NOT_SURE: "not_sure", NONE: "none"}


def class_rows(decisions: Decisions, engine: Engine | None) -> list[Json]:
    """The classes in their order."""
    values = decisions.values
    room = max(decisions.names, default=0) + 1
    counts = np.bincount(values[values >= 0], minlength=room)
    believed = {} if engine is None else engine.propagated()
    keys = keys_of(decisions.names)
    return [
        {
            "id": number,
            "name": name,
            "key": keys[number],
            "count": int(counts[number]),
            "propagated": int(believed.get(number, 0)),
        }
        for number, name in decisions.names.items()
    ]


def probabilities_of(
    decisions: Decisions,
    engine: Engine | None,
    sample: int,
    classes: Sequence[int] = (),
    said: NDArray[np.float64] | None = None,
) -> list[float]:
    """By class id; of a class that is not there any more, and of one without labels, 0.

    Args:
        decisions: that were taken.
        engine: that believes something, if there is one.
        sample: about which.
        classes: ids of what is said.
        said: of the sample; None: what is believed of it.
    """
    found = [0.0] * (max(decisions.names, default=-1) + 1)
    if said is None and engine is not None:
        beliefs = engine.beliefs  # another thread may put others there
        classes, said = beliefs.classes, beliefs.probabilities[engine.atlas.place[sample]]
    if said is not None:
        for number, probability in zip(classes, said.tolist(), strict=True):
            if number < len(found):  # a class may be gone that beliefs still know
                found[number] = round(probability, 5)
    return found


def question_row(
    decisions: Decisions,
    engine: Engine | None,
    sample: int,
    why: Why,
    classes: Sequence[int] = (),
    said: NDArray[np.float64] | None = None,
) -> Json:
    """A sample with what helps to answer: its likeliest classes and their nearest samples.

    Args:
        decisions, engine, sample, classes, said: as for :func:`probabilities_of`.
        why: it is asked about.
    """
    probabilities = probabilities_of(decisions, engine, sample, classes, said)
    found: Json = {"sample": sample, "why": why, "probabilities": probabilities}
    nearest, followers = [], 0
    if engine is not None:
        order = [c for c in np.argsort(probabilities)[::-1].tolist() if probabilities[c] > 0]
        for number in order[:_CANDIDATES]:
            others = np.flatnonzero(decisions.values == number)
            near = engine.atlas.nearest(sample, others, _NEAREST)
            if near:
                nearest.append({"class": number, "samples": near})
        followers = engine.followers(sample)
    return {**found, "nearest": nearest, "followers": followers}


def believed_rows(
    decisions: Decisions, engine: Engine, number: int, skip: int, most: int
) -> list[Json]:
    """Unlabeled samples that are held for a class, surest first."""
    best, certainty = engine.by_sample()
    found = np.flatnonzero((best == number) & (decisions.values == UNLABELED))
    order = found[np.argsort(-certainty[found], kind="stable")]
    some = order[skip : skip + most]
    return [{"sample": int(i), "probability": float(certainty[i])} for i in some]


def contradicted_rows(decisions: Decisions, engine: Engine, most: int) -> list[Json]:
    """Labeled samples that their neighbours contradict, the surest contradiction first."""
    tested = engine.beliefs.left_out
    rows = dict(zip(tested.samples.tolist(), tested.probabilities, strict=True))
    return [
        {
            **question_row(decisions, engine, sample, "disagreement", tested.classes, rows[sample]),
            "given": given_value(decisions, sample),
        }
        for sample in [i for i in find_contradictions(tested) if decisions.values[i] >= 0][:most]
    ]


def belief_bytes(engine: Engine | None, count: int) -> bytes:
    """Two bytes of each sample: class id (255: none yet), certainty from 0 to 255."""
    pairs = np.full((count, 2), (255, 0), np.uint8)
    if engine is not None and engine.beliefs.classes:
        best, certainty = engine.by_sample()
        pairs[:, 0] = best
        pairs[:, 1] = (255 * certainty).round()
    return pairs.tobytes()


def find_words(
    source: Source, values: NDArray[np.int16], names: Mapping[int, str], words: str, most: int
) -> list[int]:
    """Samples whose file name, cells, text or class hold all words.

    Args:
        source: the samples.
        values: class of each, by id.
        names: of the classes, by id.
        words: to find.
        most: samples.
    """
    if not isinstance(words, str):
        raise TypeError(f"words must be a string, got {type(words).__name__}")
    wanted = words.lower().split()
    lower = {number: name.lower() for number, name in names.items()}
    found: list[int] = []
    for sample in range(len(source)):
        if not wanted or len(found) >= most:
            break
        label = lower.get(int(values[sample]), "")
        text = f"{source.words(sample)}\n{label}"
        if all(word in text for word in wanted):
            found.append(sample)
    return found


def given_value(decisions: Decisions, sample: int) -> int | str | None:
    """The id of a sample's class, "not_sure", "none", or None."""
    value = int(decisions.values[sample])
    return value if value >= 0 else _WORDS[value]


def given_bytes(values: NDArray[np.int16]) -> bytes:
    """A byte of each sample: class id, 255 unlabeled, 254 not sure, 253 none of these."""
    codes = values.astype(np.uint8)
    for value, byte in _BYTES.items():
        codes[values == value] = byte
    return codes.tobytes()
