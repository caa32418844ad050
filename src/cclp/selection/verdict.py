"""``Verdict``: how models do on labels they have not seen, which one was chosen, and why."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """How a model does on labels that it has not seen.

    Attributes:
        name: of the model.
        title: for people.
        tested: labels that it was asked about; fewer if it was clearly worse on these.
        error: share of wrong predictions.
        low, high: 95 % interval of the error.
        balanced_error: mean over the classes of the share of wrong predictions.
        f1: mean over the classes.
        seconds: that fitting and predicting took, all folds together.
        trainable: whether ``cclp train`` can train it: it may be chosen.
    """

    name: str
    title: str
    tested: int
    error: float
    low: float
    high: float
    balanced_error: float
    f1: float
    seconds: float
    trainable: bool


@dataclass(frozen=True)
class ClassRow:
    """How the chosen model does on one class.

    Attributes:
        name: of the class.
        labels: how many there are.
        tested: of how many the class was predicted by a model that had not seen them; 0 if it
            cannot be measured.
        wrong: how many of these were predicted as another class.
        f1: None if it cannot be measured.
    """

    name: str
    labels: int
    tested: int
    wrong: int
    f1: float | None


@dataclass(frozen=True)
class Verdict:
    """What cross-validation over the labels has found.

    Attributes:
        rows: by error, the smallest first; "majority" is the share of wrong predictions if all
            were the most frequent class.
        chosen: name of the row that is trained.
        sentences: what it comes to, in words.
        advice: lines of Python that use a better model of scikit-learn, if there is one.
        classes: of the chosen model, class by class.
        tested: number of labels that were predicted out of fold.
        folds: in how many parts the labels were divided.
        steps: share of the training steps that the nets were given in each fold.
        temperature: by which logits of the chosen model are divided, so that its probabilities are
            as often right as they say.
    """

    rows: tuple[Row, ...]
    chosen: str
    sentences: tuple[str, ...]
    advice: str | None
    classes: tuple[ClassRow, ...]
    tested: int
    folds: int
    steps: float
    temperature: float

    def row(self, name: str) -> Row:
        """The row of that name."""
        return next(row for row in self.rows if row.name == name)

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which :meth:`from_json` makes an equal Verdict."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Verdict":
        """The inverse of :meth:`to_json`.

        Raises:
            KeyError, TypeError, ValueError: for anything else.
        """
        found = cls(
            rows=tuple(Row(**row) for row in content["rows"]),
            chosen=str(content["chosen"]),
            sentences=tuple(map(str, content["sentences"])),
            advice=None if content["advice"] is None else str(content["advice"]),
            classes=tuple(ClassRow(**row) for row in content["classes"]),
            tested=int(content["tested"]),
            folds=int(content["folds"]),
            steps=float(content["steps"]),
            temperature=float(content["temperature"]),
        )
        numbers = [found.temperature, *(v for row in found.rows for v in (row.error, row.high))]
        if not all(map(math.isfinite, numbers)) or found.temperature <= 0:
            raise ValueError("errors and temperature must be finite")
        if found.chosen not in [row.name for row in found.rows]:
            raise ValueError(f"there is no row {found.chosen!r}")
        return found

    def table(self) -> str:
        """The rows as text of at most 80 columns."""
        width = max(len(row.title) for row in self.rows)
        lines = [f"{'':2}{'':{width}}  error   95 % interval   balanced"]
        for row in self.rows:
            mark = "> " if row.name == self.chosen else "  "
            lines.append(
                f"{mark}{row.title:{width}} {row.error:6.1%}  {row.low:5.1%} – {row.high:5.1%}   "
                f"{row.balanced_error:6.1%}"
            )
        return "\n".join(lines)


class Scores(NamedTuple):
    """Of predictions: error, balanced error, and mean F1 over the classes that occur."""

    error: float
    balanced_error: float
    f1: float


def score(predicted: Ints, y: Ints) -> Scores:
    """Scores of predicted classes.

    >>> score(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]))
    Scores(error=0.25, balanced_error=0.25, f1=0.7333333333333334)
    """
    classes = np.unique(y)
    wrong = [float((predicted[y == c] != c).mean()) for c in classes]
    each = [class_f1(predicted, y, int(c)) for c in classes]
    return Scores(float((predicted != y).mean()), float(np.mean(wrong)), float(np.mean(each)))


def class_f1(predicted: Ints, y: Ints, c: int) -> float:
    """F1 of one class."""
    right = int(((predicted == c) & (y == c)).sum())
    return 2 * right / max(1, int((predicted == c).sum() + (y == c).sum()))


def class_rows(predicted: Ints, y: Ints, names: Sequence[str], counts: Ints) -> list[ClassRow]:
    """How predictions do on every class.

    Args:
        predicted: classes of the tested labels, (T,).
        y: their true ones, (T,).
        names: of the classes.
        counts: of their labels, tested or not, (C,).
    """
    rows = []
    for c, name in enumerate(names):
        of = y == c
        tested, wrong = int(of.sum()), int((predicted[of] != c).sum())
        f1 = class_f1(predicted, y, c) if tested else None
        rows.append(ClassRow(name, int(counts[c]), tested, wrong, f1))
    return rows


def interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share seen in ``count`` samples.

    >>> [round(bound, 3) for bound in interval(0.1, 100)]
    [0.055, 0.174]
    """
    z = 1.96
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2) / (1 + z * z / count)
    return max(centre - half, 0.0), min(centre + half, 1.0)
