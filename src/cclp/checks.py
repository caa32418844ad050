"""Checks of plain values: errors name the argument, what came and what was expected."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import TypeVar

_T = TypeVar("_T")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """One of the given strings."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> float:
    """A finite real number above ``above``, at least ``least`` and at most ``most``, if given."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be finite, got a number of too many digits") from None
    # Comparisons and not math.isfinite, which a compiled function cannot take of a symbolic number.
    if not -math.inf < number < math.inf or (above is not None and number <= above):
        expected = "finite" if above is None else f"finite and above {above:g}"
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least:g}, got {value!r}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most:g}, got {value!r}")
    return number


def check_integer(name: str, value: object, *, least: int) -> int:
    """An integer, at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_function(name: str, value: _T) -> _T:
    """Something to call, or None."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function, got {value!r}")
    return value


def refuse_options(given: Mapping[str, object], why: str) -> None:
    """Refuse options that have a value but would be ignored.

    Args:
        given: values by name; None, False and () are none.
        why: the option does not fit, for the message.

    Raises:
        ValueError: for the first of them.
    """
    for name, value in given.items():
        if value is not None and value is not False and value != ():
            raise ValueError(f"--{name.replace('_', '-')} {why}: leave it out")
