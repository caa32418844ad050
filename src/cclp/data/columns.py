"""Columns of a table, as training fitted them: what turns the cells of a row into features.

They are plain values and part of a run's record, so that other tables can be brought to them.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from cclp.checks import check_choice, check_integer, check_number

Cycle = Literal["month", "weekday", "hour"]
CYCLES = get_args(Cycle)


@dataclass(frozen=True)
class NumberColumn:
    """Numbers; one feature, and one more if missing cells are marked.

    Attributes:
        name: in the header.
        mean: over the training rows; it replaces missing cells.
        indicator: whether a second feature is 1 where the cell is missing.
        decimal_comma: whether 1,234 is a little more than one, where a file leaves it open.
    """

    name: str
    mean: float
    indicator: bool = False
    decimal_comma: bool = False
    kind: Literal["number"] = "number"

    @property
    def size(self) -> int:
        return 1 + self.indicator


@dataclass(frozen=True)
class BooleanColumn:
    """Words such as yes and no; a feature 1 or 0, and one more if missing cells are marked.

    Attributes:
        name, mean, indicator: as in :class:`NumberColumn`.
    """

    name: str
    mean: float
    indicator: bool = False
    kind: Literal["boolean"] = "boolean"

    @property
    def size(self) -> int:
        return 1 + self.indicator


@dataclass(frozen=True)
class DateColumn:
    """Dates, with or without time: days, and sine and cosine of what repeats.

    Attributes:
        name, mean, indicator: as in :class:`NumberColumn`; the mean is in days after the origin.
        origin: the earliest of training, in days after 1970; later dates are positive.
        day_first: whether 1/2/2024 is in February.
        cycles: the parts of the date that vary in training.
    """

    name: str
    mean: float
    origin: float
    day_first: bool
    cycles: tuple[Cycle, ...] = ()
    indicator: bool = False
    kind: Literal["date"] = "date"

    @property
    def size(self) -> int:
        return 1 + self.indicator + 2 * len(self.cycles)


@dataclass(frozen=True)
class ChoiceColumn:
    """One of a few values, one-hot; a value that is not among them is all zeros.

    Attributes:
        name: in the header.
        categories: of the training rows, each one feature; "" stands for missing cells.
        other: whether there is a feature for all values that are not among the categories.
    """

    name: str
    categories: tuple[str, ...]
    other: bool = False
    kind: Literal["choice"] = "choice"

    @property
    def size(self) -> int:
        return len(self.categories) + self.other


@dataclass(frozen=True)
class TextColumn:
    """Free text: TF-IDF of the words, of Euclidean norm 1.

    Attributes:
        name: in the header.
        words: that are counted, in lower case; each is one feature.
        idf: inverse document frequency of each.
    """

    name: str
    words: tuple[str, ...]
    idf: tuple[float, ...]
    kind: Literal["text"] = "text"

    @property
    def size(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class EmbeddingColumn:
    """Free text: the features that a model makes of it; zeros where the cell is missing.

    Attributes:
        name: in the header.
        width: how many features there are.
    """

    name: str
    width: int
    kind: Literal["embedding"] = "embedding"

    @property
    def size(self) -> int:
        return self.width


Column = NumberColumn | BooleanColumn | DateColumn | ChoiceColumn | TextColumn | EmbeddingColumn


def column_from_json(content: dict[str, Any]) -> Column:
    """The column of which ``dataclasses.asdict`` made this; older records have no kind.

    Raises:
        ValueError, TypeError, KeyError: if it is none.
    """
    name = str(content["name"])
    if "kind" in content:
        kind = content["kind"]
    else:
        kind = "number" if content["categories"] is None else "choice"
    check_choice("kind", kind, ("number", "boolean", "date", "choice", "text", "embedding"))
    if kind == "choice":
        categories = tuple(map(str, content["categories"]))
        return ChoiceColumn(name, categories, "other" in content and bool(content["other"]))
    if kind == "text":
        words = tuple(map(str, content["words"]))
        idf = tuple(check_number("idf", value) for value in content["idf"])
        if len(words) != len(idf):
            raise ValueError(f"column {name!r} has {len(words)} words, but {len(idf)} of their idf")
        return TextColumn(name, words, idf)
    if kind == "embedding":
        return EmbeddingColumn(name, check_integer("width", content["width"], least=1))
    mean = check_number("mean", content["mean"])
    indicator = "indicator" in content and bool(content["indicator"])
    if kind == "number":
        comma = "decimal_comma" in content and bool(content["decimal_comma"])
        return NumberColumn(name, mean, indicator, comma)
    if kind == "boolean":
        return BooleanColumn(name, mean, indicator)
    for cycle in content["cycles"]:
        check_choice("cycles", cycle, CYCLES)
    origin = check_number("origin", content["origin"])
    cycles = tuple(content["cycles"])
    return DateColumn(name, mean, origin, bool(content["day_first"]), cycles, indicator)
