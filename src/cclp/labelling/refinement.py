"""MBO threshold dynamics after the answers, in the background.

They make the propagated labels better, most of all with a label or two of each class, but take
seconds for 70,000 samples. So an answer is propagated at once without them, and corrected when
there is time. A correction of a sample holds as long as later answers do not change its class.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cclp.labelling.beliefs import Beliefs
from cclp.labelling.live import LiveGraph
from cclp.pseudo_labels.solvers import (
    FEW_CLASSES,
    MOST_DYNAMIC_VALUES,
    largest_class,
    threshold_dynamics,
)

PAUSE = 1.0  # seconds without an answer before it begins

Floats = NDArray[np.float64]


class Correction(NamedTuple):
    """Classes of the nodes, ids, (n,): as they were propagated, and after the dynamics."""

    before: NDArray[np.int64]
    after: NDArray[np.int64]


class Task(NamedTuple):
    """All that the dynamics need, not to be changed meanwhile."""

    walk: sparse.csr_matrix
    F: Floats
    labels: Floats
    shares: Floats
    classes: tuple[int, ...]

    @classmethod
    def of(
        cls,
        walk: sparse.csr_matrix,
        live: LiveGraph,
        beliefs: Beliefs,
        values: NDArray[np.int16],
    ) -> "Task | None":
        """From the labels; None if there is nothing to do, or too much.

        Args:
            walk: on the graph.
            live: propagated labels.
            beliefs: from them.
            values: of the samples.
        """
        classes = beliefs.classes
        n = len(live.F)
        if len(classes) < 2 or len(classes) != len(beliefs.shares):
            return None
        if len(classes) > FEW_CLASSES and n * len(classes) > MOST_DYNAMIC_VALUES:
            return None
        labeled = np.flatnonzero(values >= 0)
        labels = np.zeros((n, len(classes)))
        np.add.at(labels, (live.place[labeled], np.searchsorted(classes, values[labeled])), 1)
        return cls(walk, live.F[:, list(classes)].copy(), labels, beliefs.shares, classes)

    def run(self) -> Correction:
        """The dynamics, from label spreading after class mass normalisation."""
        ids = np.array(self.classes, np.int64)
        first = largest_class(self.F, self.shares)
        found = threshold_dynamics(first, self.walk, self.labels, self.shares)
        return Correction(ids[first.argmax(1)], ids[found.argmax(1)])


def corrected(beliefs: Beliefs, correction: Correction) -> Beliefs:
    """Beliefs in which the likeliest class of corrected nodes has changed places with the better.

    Args:
        beliefs: of the graph.
        correction: of an earlier state; where another class is believed by now, it does not count.
    """
    if not beliefs.classes:
        return beliefs
    ids = np.array(beliefs.classes, np.int64)
    best = beliefs.best
    known = np.isin(correction.after, ids)
    wrong = known & (ids[best] == correction.before) & (correction.before != correction.after)
    nodes = np.flatnonzero(wrong)
    better = np.searchsorted(ids, correction.after[nodes])
    probabilities = beliefs.probabilities.copy()
    probabilities[nodes, better] = beliefs.probabilities[nodes, best[nodes]]
    probabilities[nodes, best[nodes]] = beliefs.probabilities[nodes, better]
    return beliefs.with_probabilities(probabilities)


class Refiner:
    """A thread that runs the dynamics when nobody has answered for a while.

    Args:
        task: gives what there is to do now, or None.
        done: takes the result.
    """

    def __init__(self, task: Callable[[], Task | None], done: Callable[[Correction], None]) -> None:
        self._task, self._done = task, done
        self._asked, self._closing = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Something has changed."""
        self._idle.clear()
        self._asked.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until there is nothing left to do; whether that is so."""
        return self._idle.wait(seconds)

    def close(self) -> None:
        """End the thread, after what it is doing."""
        self._closing.set()
        self._asked.set()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            while self._asked.is_set() and not self._closing.is_set():
                self._asked.clear()
                self._closing.wait(PAUSE)
            if self._closing.is_set():
                self._idle.set()
                return
            task = self._task()
            if task is not None:
                self._done(task.run())
            if not self._asked.is_set():
                self._idle.set()
