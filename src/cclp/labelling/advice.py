"""What to do next, in a sentence."""

from collections.abc import Sequence
from typing import Any

from cclp.labelling.beliefs import Beliefs
from cclp.labelling.contradictions import find_contradictions
from cclp.labelling.expected import Expected
from cclp.pseudo_labels.leave_one_out import LeaveOneOut

FEWEST = 2  # labels of each class, before an end is in sight
STILL = 0.1  # of the graph's own estimate: less gained than this, over half as many labels again


def advise(
    expected: Expected,
    history: Sequence[Sequence[float | None]],
    beliefs: Beliefs | None,
    *,
    labeled: int,
    classes: int,
) -> dict[str, Any]:
    """The advice as the page shows it: a kind and a sentence."""

    def said(kind: str, text: str) -> dict[str, Any]:
        return {"kind": kind, "text": text}

    if beliefs is None or expected.error is None or expected.own is None:
        return said(
            "begin", "Name the classes as you meet them: each question is about a new kind."
        )
    tested = beliefs.left_out
    wrong = find_contradictions(tested, sure=True)
    found = LeaveOneOut.of(tested.correct, tested.columns)
    if labeled < FEWEST * classes:
        return said("go_on", "Go on: some classes have one label only.")
    if found.is_poor(classes):
        return said(
            "poor_graph",
            f"The graph is poor here: {found}. Neighbours seldom share a class: train a network, "
            "or name features that fit these data.",
        )
    if len(wrong) >= 3 and len(wrong) > 0.05 * labeled:
        return said(
            "disagreements",
            f"{len(wrong)} labels are contradicted by their neighbours: look at them, some may be "
            "mistakes.",
        )
    if labeled >= 3 * classes and _is_still(expected, history, labeled):
        return said(
            "enough",
            f"More labels will hardly help: what the graph expects of itself has stayed the same. "
            f"{expected.error:.1%} of the other samples may be wrong, between {expected.low:.1%} "
            f"and {expected.high:.1%}: questions that are drawn at random will tell it better.",
        )
    return said("go_on", "Go on: each answer still changes what is believed of many samples.")


def _is_still(expected: Expected, history: Sequence[Sequence[float | None]], labeled: int) -> bool:
    """Whether the graph's own estimate has hardly fallen over half as many labels again."""
    before = [line[4] for line in history if len(line) > 4 and line[0] <= labeled / 1.5]  # type: ignore[operator]
    if expected.own is None or not before or not before[-1]:
        return False
    return 1 - expected.own / before[-1] < STILL
