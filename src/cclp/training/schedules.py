"""The learning rate as a pure function of the step."""

import math
from dataclasses import dataclass
from typing import Any

from cclp.checks import check_integer

ONE_CYCLE_WARMUP = 0.3


@dataclass(frozen=True)
class PiecewiseConstant:
    """A learning rate that is constant between steps: (from step, factor), first step 0.

    The steps are those of a training of ``length`` steps; a shorter or longer one has them moved in
    proportion.
    """

    length: int
    pieces: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if not self.pieces or self.pieces[0][0] != 0:
            raise ValueError(f"pieces must begin at step 0, got {self.pieces!r}")

    def factor(self, step: int, max_steps: int) -> float:
        """What the learning rate is multiplied with at ``step`` of ``max_steps``."""
        place = step * self.length // max_steps
        return next(factor for start, factor in reversed(self.pieces) if place >= start)


@dataclass(frozen=True)
class OneCycle:
    """Up from 1/25 within the first 30 % of steps, down to 0 over the rest, along cosines."""

    def factor(self, step: int, max_steps: int) -> float:
        """What the learning rate is multiplied with at ``step`` of ``max_steps``."""
        done = step / max_steps
        if done < ONE_CYCLE_WARMUP:
            rise = 0.5 - 0.5 * math.cos(math.pi * done / ONE_CYCLE_WARMUP)
            return 1 / 25 + (1 - 1 / 25) * rise
        return 0.5 + 0.5 * math.cos(math.pi * (done - ONE_CYCLE_WARMUP) / (1 - ONE_CYCLE_WARMUP))


Schedule = PiecewiseConstant | OneCycle


def schedule_from_json(content: dict[str, Any]) -> Schedule:
    """A schedule as a run has recorded it; :class:`OneCycle` has nothing to record."""
    if not content:
        return OneCycle()
    return PiecewiseConstant(
        check_integer("length", content["length"], least=1),
        tuple((int(start), float(factor)) for start, factor in content["pieces"]),
    )
