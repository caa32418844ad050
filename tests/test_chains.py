"""Markov chains far beyond the range of a dtype, against sums over all paths in logarithms."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import sklearn.datasets
import torch
from torch import Tensor

import cclp
from cclp.loss import chains
from cclp.loss.chains import chain_loss
from tests.batches import random_batch


def _in_logarithms(logits: Tensor, Phi: Tensor, steps: int) -> Tensor:
    """Eq. 9 without its 1/N², every sum over paths a log-sum-exp: (N, N, N), exact, slow."""
    log_H = logits.log_softmax(1)
    log_G = log_H + (Phi @ Phi.T).log()
    T = Phi @ (Phi / Phi.sum(0)).T
    log_chain, total = log_H, (T * log_H).sum()
    for _ in range(steps - 1):
        log_chain = (log_G[:, :, None] + log_chain).logsumexp(1)
        total = total + (T * log_chain).sum()
    return -total / steps


def _case(norm: float, tight: bool = False) -> tuple[Tensor, Tensor]:
    """Embeddings (40, 16) of four classes on a sphere, and soft posteriors, in float64.

    Points stand anywhere, or, if tight, in two small groups per class.
    """
    generator = torch.Generator().manual_seed(0)
    classes, group = torch.arange(40) % 4, torch.arange(40) // 4 % 2
    z = torch.randn(40, 16, generator=generator, dtype=torch.float64)
    if tight:
        z = (
            0.2 * z
            + torch.randn(4, 2, 16, generator=generator, dtype=torch.float64)[classes, group]
        )
    scores = 5 * torch.nn.functional.one_hot(classes) + 2 * torch.randn(40, 4, generator=generator)
    return norm * torch.nn.functional.normalize(z), scores.double().softmax(1)


class _Compared(NamedTuple):
    """A loss and its gradient in the embeddings, as computed and exact."""

    loss: float
    exact: float
    gradient: Tensor
    expected: Tensor


def _compare(norm: float, dtype: torch.dtype, steps: int, tight: bool = False) -> _Compared:
    z, Phi = _case(norm, tight)
    z = z.to(dtype).requires_grad_()
    wide = z.detach().double().requires_grad_()
    loss = chain_loss(z @ z.T, Phi.to(dtype), steps)
    exact = _in_logarithms(wide @ wide.T, Phi, steps)
    (gradient,), (expected,) = torch.autograd.grad(loss, z), torch.autograd.grad(exact, wide)
    return _Compared(loss.item(), exact.item(), gradient.double(), expected)


@pytest.mark.parametrize("steps", [1, 2, 3, 6])
@pytest.mark.parametrize(
    ("norm", "dtype"),
    [(0.1, torch.float32), (5, torch.float32), (9, torch.float64), (16, torch.float64)],
)
def test_within_range_chains_are_exact(norm: float, dtype: torch.dtype, steps: int) -> None:
    loss, exact, gradient, expected = _compare(norm, dtype, steps)
    assert loss == pytest.approx(exact, rel=2e-6)
    assert (gradient - expected).norm() < 1e-4 * expected.norm()


BEYOND = [
    (9, torch.float32),
    (12, torch.float32),
    (26, torch.float32),
    (100, torch.float32),
    (40, torch.float64),
]


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("steps", [2, 3, 10, 20])
@pytest.mark.parametrize(("norm", "dtype"), BEYOND)
def test_beyond_the_range_chains_are_exact(
    norm: float, dtype: torch.dtype, steps: int, tight: bool
) -> None:
    """With a floor of 1e-30 the gradient would be off by 54 % at norm 9 and 66 % at norm 12."""
    loss, exact, gradient, expected = _compare(norm, dtype, steps, tight)
    assert loss == pytest.approx(exact, rel=1e-6)
    assert (gradient - expected).norm() < 2e-3 * expected.norm()


@pytest.mark.parametrize("steps", [3, 10])
@pytest.mark.parametrize("shape", ["moons", "circles"])
def test_two_dimensions_at_a_small_bandwidth(shape: str, steps: int) -> None:
    """Two of the paths in the place of all made 42.6 of a loss of 36.9 on moons."""
    make = sklearn.datasets.make_moons if shape == "moons" else sklearn.datasets.make_circles
    points, truth = make(120, noise=0.05, random_state=0)
    z = torch.from_numpy(points)
    first = [int(np.flatnonzero(truth == c)[0]) for c in (0, 1)]
    rest = np.setdiff1d(np.arange(120), first)
    found = []
    for dtype in (torch.float32, torch.float64):
        leaf = z.to(dtype).requires_grad_()
        loss = cclp.cclp_loss(
            leaf[first], torch.tensor([0, 1]), leaf[rest],
            num_classes=2, similarity="euclidean", bandwidth=0.15, chain_steps=steps,
        )  # fmt: skip
        found.append((loss.item(), torch.autograd.grad(loss, leaf)[0].double()))
    (value, gradient), (exact, expected) = found
    assert value == pytest.approx(exact, rel=1e-5)
    assert (gradient - expected).norm() < 1e-3 * expected.norm()


def test_a_wider_dtype_is_paid_for_only_where_a_chain_that_counts_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    widths = []
    multiply = chains._multiply

    def watched(logits: Tensor, *rest: Any) -> Any:
        widths.append(logits.dtype)
        return multiply(logits, *rest)

    def refuse(*_: Any) -> None:
        raise ArithmeticError

    monkeypatch.setattr(chains, "_multiply", watched)
    monkeypatch.setattr("cclp.loss.fused.sum_paths", refuse)
    corners, labels = torch.eye(3), torch.arange(3)

    def loss(norm: float, apart: float) -> None:
        group = norm * corners.repeat(4, 1)
        group[3:6] += apart * torch.eye(3).roll(1, 0)
        cclp.cclp_loss(norm * corners, labels, group, num_classes=3)

    loss(3, 0)
    assert widths == [torch.float32]
    loss(12, 0)  # classes are e^-144 apart: T is zero between them
    assert widths[1:] == [torch.float32]
    loss(12, 9)  # within each class a point is e^-81 away
    assert widths[2:] == [torch.float32, torch.float64]
    with pytest.raises(ArithmeticError):
        loss(40, 39)
    assert widths[4:] == [torch.float32, torch.float64]


def test_denormal_numbers_are_never_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product with them takes a hundred times as long."""
    products = []
    multiply = chains._product

    def watched(G: Tensor, K: Tensor, *rest: Any) -> Tensor:
        tiny = torch.finfo(G.dtype).tiny
        products.append(all(not ((x != 0) & (x.abs() < tiny)).any() for x in (G, K)))
        return multiply(G, K, *rest)

    monkeypatch.setattr(chains, "_product", watched)
    for norm in (9.0, 9.5, 10.0, 27.0, 28.0):
        z, Phi = _case(norm, tight=True)
        for dtype in (torch.float32, torch.float64):
            logits = (z @ z.T).to(dtype).requires_grad_()
            torch.autograd.grad(chain_loss(logits, Phi.to(dtype), 3), logits)
    assert len(products) > 20
    assert all(products)


@pytest.mark.parametrize("steps", [2, 3, 6])
def test_derivative_with_faint_entries(steps: int) -> None:
    """Finite differences of the function as computed, path by path: norm 40."""
    z, Phi = _case(40)
    logits = z @ z.T
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        direction = torch.randn(40, 40, generator=generator, dtype=torch.float64)
        turn = 1e-3 * torch.randn(40, 4, generator=generator, dtype=torch.float64) * Phi
        leaves = logits.clone().requires_grad_(), Phi.clone().requires_grad_()
        loss = chain_loss(*leaves, steps)
        d_logits, d_Phi = torch.autograd.grad(loss, leaves)
        slope = (d_logits * direction).sum() + (d_Phi * turn).sum()
        h = 1e-4
        ahead = chain_loss(logits + h * direction, Phi + h * turn, steps)
        behind = chain_loss(logits - h * direction, Phi - h * turn, steps)
        assert ((ahead - behind) / (2 * h)).item() == pytest.approx(slope.item(), rel=1e-5)


def test_faint_or_not_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where values cannot be looked at, the general path is taken: it gives the same numbers."""
    batch = random_batch(1, labeled=20, unlabeled=20, dtype=torch.float32)
    results = []
    for visible in (True, False):
        monkeypatch.setattr("cclp.loss.chains.values_visible", lambda *_, visible=visible: visible)
        z = batch.z_unlabeled.clone().requires_grad_()
        loss = cclp.cclp_loss(batch.z_labeled, batch.labels, z, num_classes=3, chain_steps=4)
        results.append((loss, *torch.autograd.grad(loss, z)))
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steps", [3, 6, 20])
def test_class_scattered_among_another(steps: int, dtype: torch.dtype) -> None:
    """Every move within the scattered class costs e^-27, a move within the other nothing.

    No transition is out of range, but the ratio of their chains is, and no path joins them.
    """
    scattered = torch.arange(8) < 2
    logits = torch.where(scattered, -27.0, 0.0).expand(8, 8).to(dtype).contiguous()
    Phi = torch.nn.functional.one_hot(scattered.long()).to(dtype)
    leaves = logits.requires_grad_(), (0.999 * Phi + 5e-4).requires_grad_()
    for posteriors in (Phi, leaves[1]):
        exact = _in_logarithms(logits.detach().double(), posteriors.detach().double(), steps)
        loss = chain_loss(logits, posteriors, steps)
        assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
        assert torch.autograd.grad(loss, logits)[0].isfinite().all()
    for gradient in torch.autograd.grad(chain_loss(*leaves, steps), leaves):
        assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("squared", "dtype"),
    [
        (95, torch.float32),
        (110, torch.float32),
        (400, torch.float32),
        (900, torch.float32),
        (700, torch.float64),
        (760, torch.float64),
    ],
)
def test_a_chain_by_a_point_that_is_hardly_ever_of_the_class(
    squared: float, dtype: torch.dtype
) -> None:
    """Two labels of a class, and between them one of the other: the way leads by its neighbour."""
    near = squared**0.5
    z = torch.tensor([[-near], [near], [0.0], [0.0]], dtype=dtype, requires_grad=True)
    labels = torch.tensor([0, 0, 1])
    own = lambda z: -((z - z.T) ** 2)  # noqa: E731
    for similarity in ("euclidean", own) if squared < 700 else ("euclidean",):
        loss = cclp.cclp_loss(
            z[:3], labels, z[3:], num_classes=2, similarity=similarity, chain_steps=2
        )
        (gradient,) = torch.autograd.grad(loss, z)
        # far from the labels: phi = e^-D² / (1 + 2 e^-D²), so the loss is 7/8 D² + a constant
        assert loss.item() == pytest.approx(0.875 * squared + 0.34657, rel=1e-5)
        torch.testing.assert_close(
            gradient[:2, 0].abs(), torch.full((2,), 0.875 * near).to(dtype), rtol=1e-3, atol=0
        )
        assert gradient[2:].abs().max() < 1e-3
