"""Errors by seed become a mean, a standard deviation and paired differences: here only."""

import math
from collections.abc import Iterable, Mapping
from statistics import fmean, stdev
from typing import NamedTuple


class Summary(NamedTuple):
    """What several seeds have in common.

    Attributes:
        mean: over seeds; not a number if every run has diverged, or there is none.
        deviation: standard deviation over seeds (n − 1); None for a single one.
        seeds: number of runs that were finished; None if it was not published.
        diverged: number of runs whose loss did not stay finite.

    Examples:
        >>> print(percent([0.01, 0.02, None]))
        1.50 ± 0.71, 1 diverged
    """

    mean: float
    deviation: float | None = None
    seeds: int | None = None
    diverged: int = 0

    def text(self, digits: int = 2, sign: str = "") -> str:
        """``mean ± standard deviation``; a dash if there is no mean.

        Args:
            digits: after the decimal point.
            sign: "+" to show the sign of a positive mean too.
        """
        if math.isnan(self.mean):
            return "–"
        deviation = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.mean:{sign}.{digits}f}{deviation}"

    def __str__(self) -> str:
        return self.text() + (f", {self.diverged} diverged" if self.diverged else "")


def summarize(values: Iterable[float | None]) -> Summary:
    """The summary of one value for each seed; None is a run that diverged."""
    all_values = list(values)
    known = [value for value in all_values if value is not None]
    return Summary(
        fmean(known) if known else math.nan,
        stdev(known) if len(known) > 1 else None,
        len(known),
        len(all_values) - len(known),
    )


def percent(errors: Iterable[float | None]) -> Summary:
    """The summary of errors, which are shares, in percent."""
    return summarize(None if error is None else 100 * error for error in errors)


def paired_differences(
    errors: Mapping[int, float | None], others: Mapping[int, float | None]
) -> list[float]:
    """Errors minus those of another method with the same seed, where both are known."""
    pairs = ((error, others.get(seed)) for seed, error in errors.items())
    return [mine - other for mine, other in pairs if mine is not None and other is not None]
