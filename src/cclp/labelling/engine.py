"""What follows from the labels: beliefs about all samples, the next questions, the error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cclp.labelling.atlas import ALIKE, Atlas
from cclp.labelling.beliefs import Beliefs, Tested, graph_beliefs
from cclp.labelling.expected import Drawn, Expected, expect_error
from cclp.labelling.labels import UNLABELED, Change
from cclp.labelling.live import LiveGraph
from cclp.labelling.queries import Influence, uncertainty
from cclp.labelling.refinement import Correction, Task, corrected
from cclp.pseudo_labels.solvers import random_walk

_TESTED_AT_FIRST = 100  # labels that came with the data: each costs a solve
_TESTED_OF_MANY = 16  # labels that were given at once, or faster than they are propagated
_OPEN_WEIGHT = 0.3  # of samples that are believed of a class but far from its labels
_FIRST = 12  # answers, after which the groups are known and their typical samples count more
_TYPICAL = 0.5  # power of the typicality
_DRAWN_EACH = 4  # questions, of which one is drawn at random: that tells the error without a bias


class Question(NamedTuple):
    """A sample to ask about, and whether it was drawn at random."""

    sample: int
    drawn: bool = False


@dataclass(frozen=True)
class Network:
    """Predictions of a trained network.

    Attributes:
        classes: ids, sorted.
        probabilities: of them, for each node, (n, C).
        seen: whether each sample was labeled when it was trained, (N,).
    """

    classes: tuple[int, ...]
    probabilities: NDArray[np.float64]
    seen: NDArray[np.bool_]

    def beliefs(
        self,
        values: NDArray[np.int16],
        place: NDArray[np.intp],
        graph: Beliefs,
        influence: Influence,
    ) -> Beliefs:
        """As those of the graph; the labels given since are what it is tested on."""
        tested = np.flatnonzero(~self.seen & np.isin(values, self.classes))
        columns = np.searchsorted(self.classes, values[tested])
        openness = influence.openness_without(place[tested])
        rows = self.probabilities[place[tested]]
        found = Tested(self.classes, tested, columns, rows, openness)
        return Beliefs(self.classes, self.probabilities, found, graph.shares, graph.left_out)


class Engine:
    """Labels of samples on their graph, and what follows from them.

    Args:
        atlas: the graph.
        values, news, drawn: see :class:`cclp.labelling.decisions.Decisions`.
        order: in which samples are drawn; None: a random one, the same each time.

    Attributes:
        beliefs: about all nodes.
        expected: error of the beliefs about unlabeled samples.
    """

    def __init__(
        self,
        atlas: Atlas,
        values: NDArray[np.int16],
        news: Sequence[bool] = (),
        drawn: NDArray[np.bool_] | None = None,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self.atlas = atlas
        self.network: Network | None = None
        self.correction: Correction | None = None
        self._walk = random_walk(atlas.W)
        self.live = LiveGraph(atlas.W, atlas.place)
        self.influence = Influence(atlas.values, atlas.vectors, atlas.members)
        rng = np.random.default_rng(0)
        given = np.flatnonzero(values != UNLABELED)
        labeled = rng.permutation(given[values[given] >= 0])
        drawn = np.zeros(len(values), np.bool_) if drawn is None else drawn
        labeled = labeled[np.argsort(~drawn[labeled], kind="stable")]
        self._order = rng.permutation(len(values)) if order is None else order
        if len(labeled) > 1:
            self.live.find_own(atlas.place[labeled[:_TESTED_AT_FIRST]])
        before = np.full(len(given), UNLABELED, np.int16)
        self.update(Change(given, before, values[given]), values, news, drawn)

    def update(
        self,
        change: Change,
        values: NDArray[np.int16],
        news: Sequence[bool],
        drawn: NDArray[np.bool_],
    ) -> None:
        """Take in a change.

        Args:
            change: that was made.
            values: of all samples after it.
            news: whether each answer so far was of a new class.
            drawn: whether each sample was drawn at random to be asked about.
        """
        self.values, self._news, self._drawn = values.copy(), list(news), drawn.copy()
        self.live.update(change)
        new = np.random.default_rng(len(values)).permutation(change.samples[change.after >= 0])
        if 1 < len(new) < len(values):
            self.live.find_own(self.atlas.place[new[:_TESTED_OF_MANY]])
        self.influence.restart(self.atlas.place[values != UNLABELED])
        self._believe()

    def task(self) -> Task | None:
        """What refines the beliefs of the graph, if anything does."""
        if self.network is not None:
            return None
        return Task.of(self._walk, self.live, self.beliefs, self.values)

    def correct(self, correction: Correction) -> None:
        """Believe what refinement has found."""
        self.correction = correction
        self._believe()

    def take(self, network: "Network | None") -> None:
        """Believe a network from now on, or the graph again."""
        self.network = network
        self._believe()

    def _believe(self) -> None:
        classes = np.unique(self.values[self.values >= 0]).tolist()
        found = graph_beliefs(self.live, classes, self.values, self.influence)
        if self.correction is not None:
            found = corrected(found, self.correction)
        if self.network is not None:
            found = self.network.beliefs(self.values, self.atlas.place, found, self.influence)
        self.beliefs: Beliefs = found  # at once: others read it meanwhile
        self.expected: Expected = self._expect()

    def _expect(self) -> Expected:
        beliefs, influence, place = self.beliefs, self.influence, self.atlas.place
        if len(beliefs.classes) < 2:
            return Expected()
        labeled = np.flatnonzero(self.values >= 0)
        known = np.isin(self.values[labeled], beliefs.classes)
        columns = np.searchsorted(beliefs.classes, self.values[labeled[known]])
        other = influence.classify(place[labeled[known]], columns, len(beliefs.classes))
        return expect_error(
            beliefs,
            self.unlabeled,
            other != beliefs.best,
            influence.openness(),
            self._news,
            self._left_out_of_drawn(),
        )

    def _left_out_of_drawn(self) -> Drawn:
        """What is predicted of the samples that were drawn at random, without their own labels."""
        mine = np.flatnonzero(self._drawn & (self.values >= 0))
        tested = self.beliefs.tested
        correct = tested.correct[np.isin(tested.samples, mine)]
        if self.network is None:
            alone = self.live.counts[self.values[mine]] == 1  # nothing tells of their class
        else:
            alone = ~self.network.seen[mine] & ~np.isin(self.values[mine], self.network.classes)
        return Drawn(int((~correct).sum()) + int(alone.sum()), int(correct.sum()))

    @property
    def unlabeled(self) -> NDArray[np.int64]:
        """Samples of each node that nobody has decided about, (n,)."""
        return np.bincount(
            self.atlas.place[self.values == UNLABELED], minlength=len(self.atlas.members)
        )

    def propagated(self) -> dict[int, int]:
        """How many unlabeled samples are held for each class, by id."""
        beliefs = self.beliefs
        if not beliefs.classes:
            return {}
        counts = np.bincount(beliefs.best, self.unlabeled, len(beliefs.classes))
        return {c: int(n) for c, n in zip(beliefs.classes, counts, strict=True)}

    def ask(
        self,
        count: int,
        exclude: Sequence[int] = (),
        forbidden: NDArray[np.bool_] | None = None,
    ) -> list[Question]:
        """Samples to ask about, best first; no two of them are near-duplicates.

        Args:
            count: of samples.
            exclude: samples that are asked about already.
            forbidden: whether each sample must not be asked about, (N,).
        """
        trial, place = self.influence.copy(), self.atlas.place
        for sample in exclude:
            trial.add(int(place[sample]))
        free = self.values == UNLABELED
        asked = int((~free).sum()) + int(free[list(exclude)].sum())
        free[list(exclude)] = False
        if forbidden is not None:
            free &= ~forbidden
        doubt = uncertainty(self.beliefs.probabilities) + _OPEN_WEIGHT * trial.openness()
        weight = self.atlas.members * doubt
        found: list[Question] = []
        for number in range(asked, asked + count):
            if not free.any():
                break
            drawn = number >= _FIRST and number % _DRAWN_EACH == 0
            if drawn:
                sample = int(self._order[free[self._order].argmax()])
            else:
                open_ = np.bincount(place[free], minlength=len(weight)) > 0
                gains = trial.gains(weight)
                if number >= _FIRST:
                    gains *= self.atlas.typicality**_TYPICAL
                node = np.where(open_, gains, -np.inf).argmax()
                sample = int((free & (place == node)).argmax())
            free[place == place[sample]] = False
            trial.add(int(place[sample]))
            found.append(Question(sample, drawn))
        return found

    def followers(self, sample: int) -> int:
        """Other samples about which a label of this one would tell much."""
        alike = self.influence.followers(int(self.atlas.place[sample]), ALIKE)
        return max(0, int(self.atlas.members[alike].sum()) - 1)

    def by_sample(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The likeliest class of each sample, an id or ``UNLABELED``, and its probability, (N,)."""
        beliefs, place = self.beliefs, self.atlas.place
        if not beliefs.classes:
            return np.full(len(place), UNLABELED, np.int64), np.zeros(len(place))
        best = np.array(beliefs.classes, np.int64)[beliefs.best]
        return best[place], beliefs.certainty[place]
