"""The policy of pseudo-labels: whether and when they are used, and how they are refreshed."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cclp.checks import check_choice, check_number
from cclp.data.splits import Split

if TYPE_CHECKING:
    from cclp.pseudo_labels.graph import LabelGraph

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
        correct, tested: leave-one-out accuracy of the labels, if it was looked at.
    """

    pseudo_labels: Outcome | None = None
    supervised_warmup: float = 0.0
    correct: int | None = None
    tested: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Decision":
        found = cls(**content)
        if found.pseudo_labels is not None:
            check_choice("pseudo_labels", found.pseudo_labels, get_args(Outcome))
        check_number("supervised_warmup", found.supervised_warmup, least=0, most=1)
        return found


class Start(NamedTuple):
    """What a training begins with.

    Attributes:
        labels: pseudo-labels of the training set, (N, C); None if they are refused.
        decision: about them.
    """

    labels: Labels | None
    decision: Decision


class Labeler:
    """Makes the pseudo-labels of a training set, and decides about their use.

    It never changes an array that it has given away. Rows of held-out samples are zero, and those
    samples are not looked at.

    Args:
        x: samples of the training set, or features of them.
        y: their classes.
        split: which are labeled and which are seen unlabeled.
        num_classes: C.
        schedule: of pseudo-labels, as the recipe has it.
        cache: folder that keeps neighbours for the next time.
        what: the samples are, for messages: "inputs" or "features".
        warn, info: are called with a sentence for the user.
    """

    def __init__(
        self,
        x: NDArray[Any],
        y: NDArray[np.int64],
        split: Split,
        num_classes: int,
        schedule: PseudoLabelSchedule,
        *,
        cache: Path | None = None,
        what: str = "inputs",
        warn: Callable[[str], None] = lambda text: None,
        info: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.x, self.y, self.split, self.num_classes = x, y, split, num_classes
        self.schedule, self.cache = schedule, cache
        self.what, self.warn, self.info = what, warn, info

    def start(self) -> Start:
        """Pseudo-labels before the first step, and the decision about them.

        If all samples are labeled, their classes. Otherwise labels are propagated and tested by
        leave-one-out. Good ones are used from the first step. If the recipe has a supervised
        warm-up, the others wait for it; without one, poor ones are refused.
        """
        if self.split.all_labeled:
            known = self._whole(np.eye(self.num_classes, dtype=np.float32)[self.y[self._seen]])
            return Start(known, Decision("known"))
        self.info(f"Propagating labels over the nearest-neighbour graph of the {self.what}.")
        labels = self._whole(self.graph.propagate())
        accuracy = self.graph.leave_one_out()
        per_class = len(self.split.labeled) / self.num_classes
        test = {"correct": accuracy.correct, "tested": accuracy.tested}
        if self.schedule.warmup_steps and not accuracy.is_good(per_class, self.num_classes):
            self.info(f"Supervised warm-up before pseudo-labels are used: {accuracy} on the graph.")
            warmup = self.schedule.supervised_warmup
            return Start(labels, Decision("after_warmup", warmup, **test))
        if accuracy.is_poor(self.num_classes):
            self.warn(f"Pseudo-labels of the {self.what} are not used: {accuracy}.")
            return Start(None, Decision("refused", **test))
        self.info(f"Pseudo-labels of the {self.what} are used: {accuracy}.")
        return Start(labels, Decision("used", **test))

    def refresh(self, predictions: NDArray[np.floating]) -> Labels:
        """New pseudo-labels: the classifier's predictions, smoothed over the graph.

        Args:
            predictions: class probabilities of ``split.unlabeled``, in its order.
        """
        return self._whole(self.graph.smooth(predictions))

    @cached_property
    def graph(self) -> "LabelGraph":
        """Over which labels are propagated."""
        from cclp.pseudo_labels.graph import LabelGraph  # scipy and scikit-learn take a while

        known = np.where(np.isin(self._seen, self.split.labeled), self.y[self._seen], -1)
        return LabelGraph(self.x, known, self.num_classes, self.cache, self._seen)

    @property
    def _seen(self) -> NDArray[np.int64]:
        return self.split.unlabeled  # the labeled ones among them

    def _whole(self, seen: Labels) -> Labels:
        labels = np.zeros((len(self.y), self.num_classes), np.float32)
        labels[self._seen] = seen
        return labels
