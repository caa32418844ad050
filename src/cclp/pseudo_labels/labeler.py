"""The policy of pseudo-labels: whether and when they are used, and how they are refreshed."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.data.splits import Split
from cclp.progress import Reporter
from cclp.pseudo_labels.committee import committee_weights, teach
from cclp.pseudo_labels.graph import LabelGraph
from cclp.pseudo_labels.leave_one_out import LeaveOneOut
from cclp.pseudo_labels.schedule import Decision, Labels, PseudoLabelSchedule, Start


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
        class_prior: shares of the classes, (C,), if they are known.
        cache: folder that keeps neighbours for the next time.
        committee: whether classifiers that learn from the labels alone vote beside the graph: see
            :mod:`.committee`.
        what: the samples are, for messages: "inputs" or "features".
        report: what the user sees.
    """

    def __init__(
        self,
        x: NDArray[Any],
        y: NDArray[np.int64],
        split: Split,
        num_classes: int,
        schedule: PseudoLabelSchedule,
        *,
        class_prior: NDArray[np.float64] | None = None,
        cache: Path | None = None,
        committee: bool = False,
        what: str = "inputs",
        report: Reporter | None = None,
    ) -> None:
        self.x, self.y, self.split, self.num_classes = x, y, split, num_classes
        self.schedule, self.cache, self.class_prior = schedule, cache, class_prior
        self.committee = committee
        self.what, self.report = what, report or Reporter()

    def start(self) -> Start:
        """Pseudo-labels before the first step, and the decision about them.

        If all samples are labeled, their classes. Otherwise labels are propagated and tested by
        leave-one-out. Good ones are used from the first step. If the recipe has a supervised
        warm-up, the others wait for it; without one, poor ones are refused.
        """
        if self.split.all_labeled:
            known = self._whole(np.eye(self.num_classes, dtype=np.float32)[self.y[self._seen]])
            return Start(known, Decision("known"))
        self.report.info(f"Propagating labels over the nearest-neighbour graph of the {self.what}.")
        labels = self._whole(self.graph.propagate())
        accuracy = self.graph.leave_one_out()
        per_class = len(self.split.labeled) / self.num_classes
        test: dict[str, Any] = {}
        if self.committee:
            labels, accuracy, test["teachers"] = self._vote(labels)
        test |= {"correct": accuracy.correct, "tested": accuracy.tested}
        if self.schedule.warmup_steps and not accuracy.is_good(per_class, self.num_classes):
            self.report.info(
                f"Supervised warm-up before pseudo-labels are used: {accuracy} on the graph."
            )
            warmup = self.schedule.supervised_warmup
            return Start(labels, Decision("after_warmup", warmup, **test))
        if accuracy.is_poor(self.num_classes):
            self.report.warn(f"Pseudo-labels of the {self.what} are not used: {accuracy}.")
            return Start(None, Decision("refused", **test))
        self.report.info(f"Pseudo-labels of the {self.what} are used: {accuracy}.")
        return Start(labels, Decision("used", **test))

    def _vote(self, labels: Labels) -> tuple[Labels, LeaveOneOut, dict[str, float]]:
        """Pseudo-labels of the committee, accuracy of its best teacher, and weights."""
        y, seen, left_out = self.graph.y, self._seen, self.graph.left_out
        x = self.x[seen].reshape(len(seen), -1)
        neighbours = self.graph.neighbours
        points = neighbours.points[neighbours.place]
        classifiers = teach(x, points, y, self.num_classes)
        asked = np.ones(len(left_out.samples), bool)  # labels that all of them were tested on
        for opinion in classifiers.values():
            asked &= opinion.left_out[left_out.samples] >= 0
        rows = left_out.samples[asked]
        correct = {"graph": left_out.correct[asked]}
        correct |= {name: said.left_out[rows] == y[rows] for name, said in classifiers.items()}
        known = np.flatnonzero(y >= 0)
        counts = np.bincount(y[known], minlength=self.num_classes).astype(np.float64)
        weights = committee_weights(correct, y[rows], counts)
        votes = weights["graph"] * labels[seen]
        for name, opinion in classifiers.items():
            votes[np.arange(len(seen)), opinion.classes] += weights[name]
        votes[known] = labels[seen[known]]
        best = correct[max(weights, key=lambda name: weights[name])]
        return self._whole(votes), LeaveOneOut.of(best, y[rows]), weights

    def refresh(self, predictions: NDArray[np.floating]) -> Labels:
        """New pseudo-labels: the classifier's predictions, smoothed over the graph.

        Args:
            predictions: class probabilities of ``split.unlabeled``, in its order.
        """
        return self._whole(self.graph.smooth(predictions))

    @cached_property
    def graph(self) -> LabelGraph:
        """Over which labels are propagated."""
        known = np.where(np.isin(self._seen, self.split.labeled), self.y[self._seen], -1)
        return LabelGraph(
            self.x,
            known,
            self.num_classes,
            self.cache,
            self._seen,
            self.class_prior,
            self.report,
        )

    @property
    def _seen(self) -> NDArray[np.int64]:
        return self.split.unlabeled  # the labeled ones among them

    def _whole(self, seen: Labels) -> Labels:
        labels = np.zeros((len(self.y), self.num_classes), np.float32)
        labels[self._seen] = seen
        return labels
