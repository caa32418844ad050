"""``Share``: work on many rows, divided among the processes of a training."""

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray


class Share:
    """What one of several processes does of a piece of work. Alone it does all of it.

    Args:
        rank: of the process.
        size: how many processes there are. All have to do the same work in the same order.
        device: from which they send.

    Examples:
        >>> Share(1, 3).rows(10)
        slice(3, 6, None)
    """

    def __init__(self, rank: int = 0, size: int = 1, device: torch.device | None = None) -> None:
        self.rank, self.size, self.device = rank, size, device or torch.device("cpu")

    def rows(self, count: int) -> slice:
        """Which of so many rows are this process's."""
        return self._rows(count, self.rank)

    def whole(self, mine: NDArray[Any], count: int) -> NDArray[Any]:
        """The rows of all processes in their order, (count, …)."""
        if self.size == 1 or count == 0:
            return mine
        rows = torch.from_numpy(np.ascontiguousarray(mine))
        padded = rows.new_zeros(-(-count // self.size), *rows.shape[1:], device=self.device)
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        each = (self._rows(count, rank) for rank in range(self.size))
        sizes = (part.stop - part.start for part in each)
        return torch.cat([p[:n] for p, n in zip(parts, sizes, strict=True)]).cpu().numpy()

    def all_have(self, found: bool) -> bool:
        """Whether it is true in every process."""
        return bool(self.whole(np.full(1, found, np.uint8), self.size).all())

    def _rows(self, count: int, rank: int) -> slice:
        return slice(count * rank // self.size, count * (rank + 1) // self.size)


ALONE = Share()
