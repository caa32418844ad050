"""Classes and labels as they are now, and changes of them that can be taken back."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

UNLABELED, NOT_SURE, NONE = -1, -2, -3
WORDS = {"not_sure": NOT_SURE, "none": NONE}

Value = int | Literal["not_sure", "none"] | None


class Change(NamedTuple):
    """What a change did to samples: which, and their values before and after."""

    samples: NDArray[np.int64]
    before: NDArray[np.int16]
    after: NDArray[np.int16]

    @classmethod
    def nothing(cls) -> "Change":
        """No sample has another value."""
        none = np.empty(0, np.int64)
        return cls(none, none.astype(np.int16), none.astype(np.int16))


class Step(NamedTuple):
    """A change that can be taken back, and the classes of its labels, if it is about labels."""

    forth: Callable[[], Change]
    back: Callable[[], Change]
    classes: frozenset[int] = frozenset()


class Labels:
    """Classes and labels. Its methods make steps: nothing changes before one is taken.

    Args:
        count: of samples.

    Attributes:
        names: of the classes that there are, by id, in the order of the page.
        values: of each sample: id of its class, or one of ``UNLABELED``, ``NOT_SURE``, ``NONE``.
        who: decided about each sample, an index of ``DECIDED``.
        drawn: whether each sample was drawn at random to be asked about, (N,).
    """

    def __init__(self, count: int) -> None:
        self.names: dict[int, str] = {}
        self.values = np.full(count, UNLABELED, np.int16)
        self.who = np.zeros(count, np.uint8)
        self.drawn = np.zeros(count, np.bool_)

    def code(self, value: Value) -> int:
        """What stands for it in ``values``.

        Raises:
            ValueError: if there is no such class.
        """
        if value is None:
            return UNLABELED
        if isinstance(value, str):
            if value not in WORDS:
                raise ValueError(f"class must be an id, {', '.join(WORDS)} or null, got {value!r}")
            return WORDS[value]
        self.check_class(value)
        return value

    def check_class(self, number: object) -> None:
        """Refuse what is not the id of a class."""
        if not isinstance(number, int) or isinstance(number, bool) or number not in self.names:
            known = ", ".join(map(str, self.names))
            raise ValueError(f"class must be one of {known}, got {number!r}")

    def setting(
        self, samples: Sequence[int], codes: Sequence[int], who: int, drawn: bool = False
    ) -> Step:
        """Give samples other values."""
        where, values = np.array(samples, np.int64), np.array(codes, np.int16)
        before, who_before = self.values[where].copy(), self.who[where].copy()
        drawn_before = self.drawn[where].copy()

        def forth() -> Change:
            self.values[where], self.who[where] = values, who
            self.drawn[where] = drawn_before | drawn
            return Change(where, before, values)

        def back() -> Change:
            self.values[where], self.who[where] = before, who_before
            self.drawn[where] = drawn_before
            return Change(where, values, before)

        return Step(forth, back, frozenset(values[values >= 0].tolist()))

    def adding(self, number: int, name: str) -> Step:
        """One more class."""

        def forth() -> Change:
            self.names[number] = name
            return Change.nothing()

        def back() -> Change:
            del self.names[number]
            return Change.nothing()

        return Step(forth, back)

    def renaming(self, number: int, name: str) -> Step:
        """Another name for a class."""

        def named(it: str) -> Callable[[], Change]:
            def act() -> Change:
                self.names[number] = it
                return Change.nothing()

            return act

        return Step(named(name), named(self.names[number]))

    def merging(self, source: int, into: int) -> Step:
        """All samples of one class are of another."""
        names = dict(self.names)
        moved = np.flatnonzero(self.values == source)
        before = self.values[moved]
        after = np.full(len(moved), into, np.int16)

        def forth() -> Change:
            del self.names[source]
            self.values[moved] = into
            return Change(moved, before, after)

        def back() -> Change:
            self.names = dict(names)
            self.values[moved] = source
            return Change(moved, after, before)

        return Step(forth, back)
