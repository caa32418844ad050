"""The policy of pseudo-labels: whether and when they are used, and how they are refreshed."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cclp.data.splits import Split
from cclp.progress import Reporter
from cclp.pseudo_labels.graph import LabelGraph, NeighbourGraph
from cclp.pseudo_labels.leave_one_out import LeaveOneOut
from cclp.pseudo_labels.schedule import Decision, Labels, PseudoLabelSchedule, Start
from cclp.pseudo_labels.share import ALONE, Share
from cclp.pseudo_labels.shares import FAR, distance
from cclp.pseudo_labels.solvers import equal_shares

if TYPE_CHECKING:
    from cclp.pseudo_labels.committee import Vote

# From chance to always right: a committee knows what labels alone teach, so the net needs it.
LEAST_OF_COMMITTEE = 0.1


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
        neighbours: gives the graph of the samples; None: it is made.
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
        neighbours: Callable[[], NeighbourGraph] | None = None,
    ) -> None:
        self.x, self.y, self.split, self.num_classes = x, y, split, num_classes
        self.schedule, self.cache, self.class_prior = schedule, cache, class_prior
        self.committee = committee
        self.what, self.report, self.neighbours = what, report or Reporter(), neighbours

    def prepare(self, share: Share) -> None:
        """Make the graph now, together with other processes, and spread and test the labels on it.

        Args:
            share: of this process.
        """
        if not self.split.all_labeled:
            self.graph = self._make_graph(share)

    def forget(self) -> None:
        """Let go of the graph."""
        self.__dict__.pop("graph", None)

    def start(self) -> Start:
        """Pseudo-labels before the first step, and the decision about them.

        If all samples are labeled, their classes. Otherwise labels are propagated and tested by
        leave-one-out. Good ones are used from the first step. If the recipe has a supervised
        warm-up, the others wait for it; without one, poor ones are refused.
        """
        if self.split.all_labeled:
            known = self._whole(np.eye(self.num_classes, dtype=np.float32)[self.y[self._seen]])
            return Start(known, Decision("known"))
        labels = self._propagated
        self._warn_of_shares()
        accuracy = self.graph.leave_one_out()
        per_class = len(self.split.labeled) / self.num_classes
        test: dict[str, Any] = {"shares": self._estimated_shares()}
        if self.committee:
            labels, accuracy, test["teachers"] = self._vote
        labels = self._whole(labels)
        test |= {"correct": accuracy.correct, "tested": accuracy.tested}
        guessed = f"Guessed classes of unlabeled samples (pseudo-labels) by the {self.what}"
        if self.schedule.warmup_steps and not accuracy.is_good(per_class, self.num_classes):
            warmup = self.schedule.supervised_warmup
            self.report.info(
                f"{guessed}: {_in_words(accuracy)}. The net learns from your labels alone for the "
                f"first {warmup:.0%} of the training and improves the guesses then: nothing to do."
            )
            return Start(labels, Decision("after_warmup", warmup, **test))
        if accuracy.is_poor(self.num_classes, LEAST_OF_COMMITTEE if self.committee else 0.5):
            self.report.warn(
                f"{guessed} are not used: only {_in_words(accuracy)}. Similar samples seldom "
                "share a class here. Check your labels, or try embeddings of a pretrained network "
                "(--pseudo-label-features)."
            )
            return Start(None, Decision("refused", **test))
        self.report.info(f"{guessed} are used: {_in_words(accuracy)}.")
        return Start(labels, Decision("used", **test))

    def _estimated_shares(self) -> list[float] | None:
        shares = self.graph.shares
        if self.class_prior is not None or np.array_equal(shares, equal_shares(self.num_classes)):
            return None
        return [float(share) for share in shares]

    def _warn_of_shares(self) -> None:
        """Warn of shares that are given and far from what the graph shows, if it shows any."""
        seen = self.graph.estimated_shares if self.class_prior is not None else None
        if seen is None or np.array_equal(seen, equal_shares(self.num_classes)):
            return
        if distance(self.graph.shares, seen) > FAR:
            c = int(np.abs(self.graph.shares - seen).argmax())
            self.report.warn(
                f"The class shares that were given are far from what the samples look like: one "
                f"class has {self.graph.shares[c]:.0%} as given and about {seen[c]:.0%} as seen. "
                "Wrong shares make wrong pseudo-labels: if you are not sure of them, leave them "
                "out, and they are estimated."
            )

    @cached_property
    def _propagated(self) -> Labels:
        """The graph's labels of the samples that are seen."""
        return self.graph.propagate()

    @cached_property
    def _vote(self) -> "Vote":
        """Of the committee: it is the same for every schedule."""
        from cclp.pseudo_labels.committee import vote  # loads much of scikit-learn

        graph, neighbours, seen = self.graph, self.graph.neighbours, self._seen
        x, points = self.x[seen].reshape(len(seen), -1), neighbours.points[neighbours.place]
        return vote(self._propagated, graph.left_out, x, points, graph.y, graph.shares, self.report)

    def refresh(self, predictions: NDArray[np.floating]) -> Labels:
        """New pseudo-labels: the classifier's predictions, smoothed over the graph.

        Args:
            predictions: class probabilities of ``split.unlabeled``, in its order.
        """
        return self._whole(self.graph.smooth(predictions))

    @cached_property
    def graph(self) -> LabelGraph:
        """Over which labels are propagated."""
        return self._make_graph(ALONE)

    def _make_graph(self, share: Share) -> LabelGraph:
        known = np.where(np.isin(self._seen, self.split.labeled), self.y[self._seen], -1)
        return LabelGraph(
            self.x,
            known,
            self.num_classes,
            self.cache,
            self._seen,
            self.class_prior,
            self.report,
            None if self.neighbours is None else self.neighbours(),
            share,
        )

    @property
    def _seen(self) -> NDArray[np.int64]:
        return self.split.unlabeled  # the labeled ones among them

    def _whole(self, seen: Labels) -> Labels:
        labels = np.zeros((len(self.y), self.num_classes), np.float32)
        labels[self._seen] = seen
        return labels


def _in_words(accuracy: LeaveOneOut) -> str:
    if not accuracy.tested:
        return "with one label of each class they cannot be tested"
    return f"{accuracy.correct} of {accuracy.tested} labels that were held back are guessed right"
