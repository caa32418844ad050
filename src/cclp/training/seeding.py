"""All randomness of a step as a function of (seed, step, rank)."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import numpy as np
import torch

from cclp.data.batches import step_seed
from cclp.draws import own_generator, seed_generators

_generators = RLock()


@contextmanager
def own_randomness() -> Iterator[None]:
    """Reseed as you like within: the caller's global generators are restored.

    One thread at a time: they belong to the whole process. This package's own draws are from a
    generator that no other thread has.
    """
    with _generators, torch.random.fork_rng(), own_generator():
        legacy, plain = np.random.get_state(), random.getstate()
        try:
            yield
        finally:
            np.random.set_state(legacy)
            random.setstate(plain)


def reseed(seed: int, step: int, rank: int) -> None:
    """Make all randomness of a step a function of (seed, step, rank)."""
    number = step_seed(seed, step, rank)
    seed_generators(number)
    np.random.seed(number % 2**32)
    random.seed(number)
