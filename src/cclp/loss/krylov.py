"""Linear systems that are known by what their matrix does to a vector."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

ITERATIONS = 300
Limit = Callable[[Tensor], float]


def solve(apply: Callable[[Tensor], Tensor], b: Tensor, limit: Limit) -> tuple[Tensor, float]:
    """x with ``apply(x) = b`` for each column by BiCGSTAB (van der Vorst 1992).

    Args:
        apply: a linear function of each column.
        b: right-hand sides, (N, m).
        limit: largest entry of the residual that is small enough, given x.

    Returns:
        The best x, and the largest entry of its residual.
    """
    x, r = b.clone(), b - apply(b)
    shadow, p = r.clone(), r.clone()
    rho = (shadow * r).sum(0)
    best, least = x.clone(), r.abs().max().item()
    for _ in range(ITERATIONS):
        if least <= limit(best):
            break
        v = apply(p)
        alpha = _ratio(rho, (shadow * v).sum(0))
        s = r - alpha * v
        t = apply(s)
        omega = _ratio((t * s).sum(0), (t * t).sum(0))
        x = x + alpha * p + omega * s
        r = s - omega * t
        largest = r.abs().max().item()
        if not math.isfinite(largest):
            break
        if largest < least:
            best, least = x, largest
        before, rho = rho, (shadow * r).sum(0)
        beta = _ratio(rho, before) * _ratio(alpha, omega)
        p = r + beta * (p - omega * v)
    return best, least


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b; 0 where a column is done and both are 0."""
    return torch.where(b == 0, torch.zeros_like(a), a / torch.where(b == 0, torch.ones_like(b), b))
