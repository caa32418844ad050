"""One graph over the embeddings of all processes: what their batches hold, put together."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from cclp.loss.inputs import Batch, Prior

Part = TypeVar("Part")


def world_size() -> int:
    """Number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_rows(rows: Tensor) -> Tensor:
    """Rows of all processes in the order of their ranks; each may have another number of them.

    The gradient is right for a loss that all processes compute alike from the result, and whose
    gradients they average, as DistributedDataParallel does: each keeps that of its own rows, times
    the number of processes. No bytes are sent for it.

    Args:
        rows: (n, …); all but n as in the other processes.
    """
    if world_size() == 1:
        return rows
    from cclp.loss.collective import all_gather_rows  # loads torch._dynamo

    gathered: Tensor = all_gather_rows(rows)
    return gathered


def my_share(parts: Iterable[Part]) -> list[Part]:
    """Every R-th of some parts of the work, for this one of R processes."""
    every = world_size()
    return list(parts)[dist.get_rank() if every > 1 else 0 :: every]


def sum_of_all(tensors: Sequence[Tensor]) -> None:
    """Replace tensors by their sums over all processes; no gradient goes through it."""
    if world_size() > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)


def gather_batch(batch: Batch, prior: Prior | None) -> tuple[Batch, Prior | None]:
    """The batches of all processes as one, and what is known of its unlabeled points.

    Args:
        batch: of this process.
        prior: of its unlabeled points, in all processes or in none.
    """
    if world_size() == 1:
        return batch, prior
    labeled, unlabeled = batch.z.tensor_split([batch.y.shape[0]])
    z = torch.cat([gather_rows(labeled), gather_rows(unlabeled)])
    joint = Batch(z, gather_rows(batch.y))
    return joint, None if prior is None else Prior(gather_rows(prior.phi), prior.weight)
