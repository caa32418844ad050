"""When pseudo-labels are used and refreshed, and what a run has decided about them."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cclp.checks import check_choice, check_number

Outcome = Literal["known", "used", "after_warmup", "refused"]
Labels = NDArray[np.float32]


@dataclass(frozen=True)
class PseudoLabelSchedule:
    """When pseudo-labels are used and refreshed: pure functions of the step.

    Attributes:
        max_steps: of the training.
        decay, refreshes, supervised_warmup: as in
            :class:`cclp.methods.graph_pseudo_label.GraphPseudoLabel`.
    """

    max_steps: int
    decay: float = 1.0
    refreshes: int = 0
    supervised_warmup: float = 0.0

    @property
    def warmup_steps(self) -> int:
        """Steps with labeled samples only."""
        return round(self.supervised_warmup * self.max_steps)

    @property
    def refresh_steps(self) -> frozenset[int]:
        """After which steps pseudo-labels are refreshed: at equal distances while they count.

        After a supervised warm-up, also at its end.
        """
        begin, end = self.warmup_steps, self.decay * self.max_steps
        count = self.refreshes + 1
        steps = (begin + round((end - begin) * k / count) for k in range(count))
        return frozenset(step for step in steps if 0 < step < end)

    def decided(self, decision: "Decision") -> "PseudoLabelSchedule":
        """The schedule that a run follows after its decision."""
        known = decision.pseudo_labels == "known"
        return replace(
            self,
            supervised_warmup=decision.supervised_warmup,
            refreshes=0 if known else self.refreshes,
        )

    def are_used_after(self, step: int) -> bool:
        """Whether there are steps left in which pseudo-labels count."""
        return step < self.decay * self.max_steps

    def weight(self, step: int) -> float:
        """Of pseudo-labels in label propagation: decays linearly from 1 to 0."""
        return max(0.0, 1 - step / self.max_steps / self.decay)


@dataclass(frozen=True)
class Decision:
    """What a run has decided about its pseudo-labels; recorded with its checkpoints and result.

    Attributes:
        pseudo_labels: "known" if all samples are labeled, "used" from the first step,
            "after_warmup" or "refused"; None if the method has none.
        supervised_warmup: share of the training with labeled samples only.
        correct, tested: leave-one-out accuracy of the labels, if it was looked at; of a
            committee, that of the teacher with the largest weight.
        teachers: weights of a committee's teachers, by name; None without a committee.
        shares: of the classes, if they are estimated and not all the same.
    """

    pseudo_labels: Outcome | None = None
    supervised_warmup: float = 0.0
    correct: int | None = None
    tested: int | None = None
    teachers: dict[str, float] | None = None
    shares: list[float] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Decision":
        found = cls(**content)
        if found.pseudo_labels is not None:
            check_choice("pseudo_labels", found.pseudo_labels, get_args(Outcome))
        check_number("supervised_warmup", found.supervised_warmup, least=0, most=1)
        for share in found.shares or ():
            check_number("shares", share, above=0, most=1)
        return found


class Start(NamedTuple):
    """What a training begins with.

    Attributes:
        labels: pseudo-labels of the training set, (N, C); None if they are refused.
        decision: about them.
    """

    labels: Labels | None
    decision: Decision
