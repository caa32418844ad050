"""Arguments that had another name in an earlier version: it still works, with a warning."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def renamed(old: str, new: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function that takes ``new`` and, until the next version, ``old`` in its place.

    >>> @renamed("steps", "chain_steps")
    ... def walk(chain_steps=3):
    ...     return chain_steps
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     walk(steps=5), str(said[0].message)
    (5, 'walk: steps is called chain_steps since version 0.2; steps will go in 0.3')
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        name = function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            given: dict[str, Any] = kwargs
            if old in given:
                if new in given:
                    raise TypeError(f"{name}: {old} is called {new} now: give one of them")
                warnings.warn(
                    f"{name}: {old} is called {new} since version 0.2; {old} will go in 0.3",
                    FutureWarning,
                    stacklevel=2,
                )
                given[new] = given.pop(old)
            return function(*args, **kwargs)

        return checked

    return decorate
