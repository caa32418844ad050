"""All randomness of a step as a function of (seed, step, rank)."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import numpy as np
import torch

from cclp.data.batches import step_seed

_generators = RLock()


@contextmanager
def own_randomness() -> Iterator[None]:
    """Reseed as you like within: the caller's global generators are restored.

    One thread at a time: they belong to the whole process.
    """
    with _generators, torch.random.fork_rng():
        legacy, plain = np.random.get_state(), random.getstate()
        try:
            yield
        finally:
            np.random.set_state(legacy)
            random.setstate(plain)


def reseed(seed: int, step: int, rank: int) -> None:
    """Make all randomness of a step a function of (seed, step, rank)."""
    number = step_seed(seed, step, rank)
    if torch.accelerator.is_available():
        torch.manual_seed(number)
    else:  # the same, without a stack trace for each kind of device that is not there
        torch.default_generator.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)
