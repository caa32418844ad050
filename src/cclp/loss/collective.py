"""Rows of all processes, sent between them. It stays outside of compiled graphs, and importing what
keeps it there, ``torch._dynamo``, takes a second or more: hence a module of its own.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cclp.loss.autograd import first_order


@torch.compiler.disable  # type: ignore[untyped-decorator]
def all_gather_rows(rows: Tensor) -> Tensor:
    """What :func:`cclp.loss.gather.gather_rows` gives where there are several processes."""
    mine = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, mine)
    if not any(counts):
        return rows
    gathered: Tensor = _Gather.apply(rows, [int(count) for count in counts])  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        start = sum(counts[: dist.get_rank()])
        ctx.mine, ctx.number = slice(start, start + len(rows)), len(counts)
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad[ctx.mine] * ctx.number, None
