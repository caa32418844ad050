"""Records of several seeds in words: counts, means, lowest and highest values."""

from collections.abc import Iterable
from statistics import fmean
from typing import Any, Literal, NamedTuple

from cclp.experiments.toy import points


class Count(NamedTuple):
    """A number of cases, of all that there are."""

    found: int
    of: int

    @property
    def share(self) -> float:
        return self.found / max(self.of, 1)

    @property
    def all(self) -> bool:
        return self.found == self.of

    def __str__(self) -> str:
        return f"{self.found:,} of {self.of:,}"


def count(answers: Iterable[bool]) -> Count:
    """Count the true ones."""
    known = list(answers)
    return Count(sum(known), len(known))


def opposed(records: list[dict[str, Any]], *sides: Literal["wrong_side", "right_side"]) -> Count:
    """Steps in which a force on a labeled point opposed supervision, over all seeds."""
    parts = [record["opposition"][side] for record in records for side in sides]
    return Count(sum(part["opposed"] for part in parts), sum(part["of"] for part in parts))


def spread(records: list[dict[str, Any]]) -> str:
    """Mean, lowest and highest accuracy over seeds."""
    values = [record["accuracy"] for record in records]
    return f"mean {fmean(values):.3f}, lowest {min(values):.3f}, highest {max(values):.3f}"


def mistakes(records: list[dict[str, Any]]) -> str:
    """Fewest and most points on the wrong side over seeds."""
    numbers = [round((1 - record["accuracy"]) * points.POINTS) for record in records]
    return f"{min(numbers)} to {max(numbers)} of {points.POINTS} points wrong"
