"""Which samples a step sees: a pure function of (seed, step, rank).

There is no sampler state. A stream is the endless sequence of reshuffled epochs of a set; step and
rank give the position in it.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cclp.data.splits import Indices

_CLASSES, _LABELED, _UNLABELED, _STEP = range(4)


class BatchIndices(NamedTuple):
    """Indices into the training set: of labeled samples, (N_L,), and unlabeled ones, (N_U,)."""

    labeled: Indices
    unlabeled: Indices


class Batches:
    """Batch indices of every step of a run.

    Args:
        labeled: indices of the labeled samples.
        labels: their classes. Only classes that occur are drawn.
        unlabeled: indices of the unlabeled samples; may be empty.
        per_class: labeled samples of each class in a batch. Small classes repeat.
        unlabeled_batch: unlabeled samples in a batch. A small set repeats.
        labeled_batch: at most so many labeled samples in a batch. If there are more classes, a
            batch holds one sample of so many classes, which take turns; see
            :mod:`cclp.methods.anchors` for the others.
        shares: of the classes in the labeled part of a batch, by class index; its size stays, and
            each class has at least one sample. None: all the same.
        seed: of the run.
        world_size: number of processes. They read disjoint parts of the streams.

    Raises:
        ValueError: if a batch would hold a single labeled sample.

    Examples:
        >>> batches = Batches(
        ...     np.arange(4), np.array([0, 0, 1, 1]), np.arange(100), per_class=1,
        ...     unlabeled_batch=3, seed=0,
        ... )
        >>> batches(step=7).labeled.shape, batches(step=7).unlabeled.shape
        ((2,), (3,))
        >>> bool((batches(step=7).unlabeled == batches(step=7).unlabeled).all())
        True
    """

    def __init__(
        self,
        labeled: Indices,
        labels: Indices,
        unlabeled: Indices,
        *,
        per_class: int,
        unlabeled_batch: int,
        labeled_batch: int | None = None,
        shares: NDArray[np.float64] | None = None,
        seed: int,
        world_size: int = 1,
    ) -> None:
        present = np.unique(labels)
        self.members = [labeled[labels == c] for c in present]
        classes = len(self.members)
        cap = classes * per_class if labeled_batch is None else labeled_batch
        self.classes_per_step = min(classes, cap)
        self.per_class = max(1, min(per_class, cap // classes))
        if self.classes_per_step * self.per_class < 2:
            raise ValueError("a batch must hold at least 2 labeled samples (batch norm), got 1")
        self.counts = np.full(classes, self.per_class)
        if shares is not None:
            self.counts = _apportion(shares[present], classes * self.per_class)
        self.unlabeled = unlabeled
        self.unlabeled_batch = unlabeled_batch if len(unlabeled) else 0
        self.seed = seed
        self.world_size = world_size

    def __call__(self, step: int, rank: int = 0) -> BatchIndices:
        turn = step * self.world_size + rank
        labeled = [
            self.members[c][
                self._read(len(self.members[c]), turn, int(self.counts[c]), _LABELED, int(c))
            ]
            for c in self._classes(turn)
        ]
        unlabeled = self.unlabeled[
            self._read(len(self.unlabeled), turn, self.unlabeled_batch, _UNLABELED)
        ]
        return BatchIndices(np.concatenate(labeled), unlabeled)

    def importance(self, weights: NDArray[np.float64], size: int) -> NDArray[np.float32]:
        """Factors that make the mean over labeled samples of batches a weighted mean over them all.

        Args:
            weights: of the labeled samples, in the order of their indices, (N_L,).
            size: of the training set, N.

        Returns:
            By index into the training set, (N,); 0 where there is no label.
        """
        found = np.zeros(size)
        found[np.sort(np.concatenate(self.members))] = weights / weights.sum()
        for members, share in zip(self.members, self.counts / self.counts.sum(), strict=True):
            found[members] *= len(members) / share  # a sample's turn comes so much less often
        return found.astype(np.float32)

    def _classes(self, turn: int) -> Indices:
        """Different classes for a batch; every class occurs in an epoch of turns."""
        count = len(self.members)
        if self.classes_per_step == count:
            return np.arange(count)
        turns = -(-count // self.classes_per_step)
        order = _permutation(count, (self.seed, _CLASSES, turn // turns))
        first = turn % turns * self.classes_per_step
        return order[np.arange(first, first + self.classes_per_step) % count]

    def _read(self, size: int, turn: int, count: int, *stream: int) -> Indices:
        """Positions ``turn * count`` to ``(turn + 1) * count`` of a stream over ``size`` items."""
        if count == 0:
            return np.empty(0, np.int64)
        index = np.arange(turn * count, (turn + 1) * count)
        epochs = index // size
        return np.concatenate(
            [
                _permutation(size, (self.seed, *stream, int(epoch)))[index[epochs == epoch] % size]
                for epoch in np.unique(epochs)
            ]
        )


def _apportion(shares: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """So many samples in proportion to the shares, but at least one of each class."""
    counts = np.ones(len(shares), np.int64)
    ideal = total * shares / shares.sum()
    for _ in range(total - len(shares)):
        counts[np.argmax(ideal - counts)] += 1
    return counts


@lru_cache(maxsize=256)
def _permutation(size: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    """A permutation that depends on its arguments alone; cached for speed."""
    order = np.random.default_rng(key).permutation(size)
    order.flags.writeable = False
    return order


def step_seed(seed: int, step: int, rank: int) -> int:
    """Seed of all other randomness of a step: noise, dropout, perturbations.

    Step −1 is for what comes before the first step: the initial weights.
    """
    sequence = np.random.SeedSequence((seed, _STEP, step + 1, rank))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)
