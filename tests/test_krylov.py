"""Linear systems that are known by what their matrix does to a vector."""

import pytest
import torch

from cclp.loss import krylov


def test_every_column_is_solved() -> None:
    generator = torch.Generator().manual_seed(0)
    A = torch.rand(30, 30, generator=generator, dtype=torch.float64) / 30
    A = torch.eye(30, dtype=torch.float64) - 0.9 * A / A.sum(1, keepdim=True)
    b = torch.rand(30, 3, generator=generator, dtype=torch.float64)
    b[:, 1] = 0  # done at once
    b[:, 2] = A @ torch.ones(30, dtype=torch.float64)
    x, residual = krylov.solve(lambda x: A @ x, b, lambda x: 1e-12)
    assert residual <= 1e-12
    torch.testing.assert_close(x, torch.linalg.solve(A, b), rtol=0, atol=1e-10)


def test_what_has_no_solution_ends_with_the_best_there_is() -> None:
    A = torch.diag(torch.tensor([1.0, 2.0, 0.0])).double()
    b = torch.tensor([[1.0], [2.0], [3.0]]).double()
    x, residual = krylov.solve(lambda x: A @ x, b, lambda x: 1e-12)
    assert residual >= 3
    assert residual == pytest.approx((b - A @ x).abs().max().item())


def test_the_limit_is_that_of_the_solution_so_far() -> None:
    A, b, asked = torch.eye(2).double() * 2, torch.ones(2, 1).double(), []

    def limit(x: torch.Tensor) -> float:
        asked.append(x.max().item())
        return 1e-12

    x, _ = krylov.solve(lambda x: A @ x, b, limit)
    assert x.tolist() == [[0.5], [0.5]]
    assert asked[-1] == 0.5
