"""What the graph, or a network, believes about every sample."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cclp.labelling.live import LiveGraph
from cclp.labelling.queries import Influence
from cclp.pseudo_labels.leave_one_out import LeftOut

SHARPNESS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
USUAL_SHARPNESS, TRUST = 3.0, 5.0  # before there is evidence; in labels
OPEN = (0.2, 0.4, 0.6, 0.8, 0.95)  # edges of openness, see ``Influence.openness``
MOST_TESTED = 400  # labels that are left out after an answer

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tested:
    """Labeled samples and what is said of each without its own label.

    Attributes:
        classes: ids, in the order of the columns.
        samples: that were tested: another label of their class is there.
        columns: of their classes.
        probabilities: of all classes, (T, C).
        openness: share of the prior variance that the other labels leave, (T,).
    """

    classes: tuple[int, ...]
    samples: NDArray[np.int64]
    columns: NDArray[np.int64]
    probabilities: Floats
    openness: Floats

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each is predicted right."""
        return np.asarray(self.probabilities.argmax(1) == self.columns)


@dataclass(frozen=True)
class Beliefs:
    """Class probabilities of all nodes.

    Attributes:
        classes: ids, in the order of the columns.
        probabilities: (n, C); C may be 0.
        tested: labels that were left out.
        shares: of the classes.
        graph: the left-out labels of the graph, if something else is believed.
    """

    classes: tuple[int, ...]
    probabilities: Floats
    tested: Tested
    shares: Floats
    graph: Tested | None = None

    @property
    def left_out(self) -> Tested:
        """What the graph says of labels without them."""
        return self.tested if self.graph is None else self.graph

    def with_probabilities(self, probabilities: Floats) -> "Beliefs":
        """The same, but for the probabilities."""
        return replace(self, probabilities=probabilities)

    @property
    def best(self) -> NDArray[np.intp]:
        """Column of the likeliest class of each node."""
        return np.asarray(self.probabilities.argmax(1))

    @property
    def certainty(self) -> Floats:
        """Probability of it."""
        return np.asarray(self.probabilities.max(1))


def graph_beliefs(
    live: LiveGraph,
    classes: Sequence[int],
    values: NDArray[np.int16],
    influence: Influence,
    most: int = MOST_TESTED,
) -> Beliefs:
    """Class mass normalisation of the propagated labels, and probabilities that fit the labels.

    Label spreading is so even that its largest class may have a tenth of a row. Rows are raised to
    a power under which the left-out labels are most probable (as temperature scaling does).

    Args:
        live: propagated labels.
        classes: ids of those that have a label.
        values: of each sample, the id of its class, or less than 0.
        influence: of the labels.
        most: labels that are tested.
    """
    classes = tuple(sorted(classes))
    n = len(live.F)
    if not classes:
        none = np.empty(0, np.int64)
        nothing = Tested((), none, none, np.empty((0, 0)), np.empty(0))
        return Beliefs((), np.empty((n, 0)), nothing, np.empty(0))
    tested = np.flatnonzero((values >= 0) & live.is_known)
    tested = tested[live.counts[values[tested]] > 1]
    if len(tested) > most:
        tested = np.sort(np.random.default_rng(0).permutation(tested)[:most])
    shares = np.full(len(classes), 1 / len(classes))
    columns = np.searchsorted(classes, values[tested])
    rows = live.left_out(tested, values[tested], classes, shares)
    if len(tested):
        found = LeftOut(tested, rows.argmax(1) == columns)
        shares = live.shares(classes, found, columns)
        rows = live.left_out(tested, values[tested], classes, shares)
    weight = _weights(influence, live.place[tested], live.members)
    power = fit_sharpness(rows, columns, weight)
    probabilities = sharpened(live.balanced(classes, shares), power)
    openness = influence.openness_without(live.place[tested])
    found_tested = Tested(classes, tested, columns, sharpened(rows, power), openness)
    return Beliefs(classes, probabilities, found_tested, shares)


def sharpened(rows: Floats, power: float) -> Floats:
    """Rows raised to a power, with a sum of one; rows of zeros become even."""
    top = rows.max(1, keepdims=True)
    raised = np.divide(rows, top, out=np.ones_like(rows), where=top > 0) ** power
    return np.asarray(raised / raised.sum(1, keepdims=True))


def _weights(influence: Influence, nodes: NDArray[np.intp], members: NDArray[np.int64]) -> Floats:
    """How much tested labels count: the share of all samples that are as open, over that of labels.

    At most 1: a label that stands for many samples is still one label.
    """
    if not len(nodes):
        return np.empty(0)
    bins = np.digitize(influence.openness(), OPEN)
    share = np.bincount(bins, members, len(OPEN) + 1) / members.sum()
    mine = np.digitize(influence.openness_without(nodes), OPEN)
    labels = np.bincount(mine, minlength=len(OPEN) + 1) / len(nodes)
    return np.asarray((share[mine] / labels[mine]).clip(max=1))


def fit_sharpness(rows: Floats, columns: NDArray[np.int64], weight: Floats) -> float:
    """The power of ``SHARPNESS`` under which the classes are most probable.

    Args:
        rows: (T, C).
        columns: the classes, (T,).
        weight: of each, (T,).
    """
    if not len(rows):
        return USUAL_SHARPNESS

    def score(power: float) -> float:
        chosen = sharpened(rows, power)[np.arange(len(rows)), columns]
        prior = TRUST * abs(np.log(power / USUAL_SHARPNESS))
        return float(weight @ np.log(chosen.clip(0.01)) - prior)

    return max(SHARPNESS, key=score)
