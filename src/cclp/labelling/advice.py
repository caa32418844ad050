"""What to do next, in a sentence."""

from collections.abc import Sequence
from typing import Any

from cclp.labelling.beliefs import Beliefs
from cclp.labelling.contradictions import find_contradictions
from cclp.labelling.expected import Expected
from cclp.pseudo_labels.leave_one_out import LeaveOneOut

FEWEST = 2  # labels of each class, before an end is in sight
STILL = 0.1  # of the expected error: less gained than this, over half as many labels again
GOOD = 0.02


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

    if beliefs is None or expected.error is None or expected.high is None:
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
    before = [line for line in history if line[1] is not None and line[0] <= labeled / 1.5]  # type: ignore[operator]
    fallen = None
    if before:
        last = before[-1][1]
        fallen = 1 - expected.error / last if last else 0.0
    if fallen is not None and fallen < STILL and labeled >= 3 * classes:
        return said(
            "enough",
            f"More labels will hardly help: the expected error is {expected.error:.1%}, and was "
            f"{before[-1][1]:.1%} with {before[-1][0]:.0f} labels. Look at some pages of Confirm "
            "before you rely on it: where classes overlap, the graph can be sure and wrong.",
        )
    return said("go_on", "Go on: each answer still changes what is believed of many samples.")
