"""Elimination without subtraction: posteriors and derivatives where a factorisation fails."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import cclp
from cclp.loss import elimination, propagation
from cclp.loss.elimination import Elimination
from cclp.loss.propagation import Harmonic, harmonic_gradient, solve_harmonic
from tests import reference
from tests.batches import random_batch


def _contested(norm: float) -> tuple[Tensor, Tensor]:
    """Two unlabeled groups, one as far from either label and one between them; log A and Y."""
    generator = torch.Generator().manual_seed(0)
    spots = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0.7, 0.7, 0]])
    spot = torch.tensor([0, 1, 0, 1] + [2, 3] * 5)
    # as tight as makes the ways out of a group differ by little at every norm
    z = norm * spots[spot] + 0.2 / norm * torch.randn(14, 3, generator=generator)
    return (z @ z.T).double(), torch.eye(2).double()[spot[:4]]


def _solve(log_A: Tensor, y: Tensor, smoothing: float | None = None) -> Harmonic:
    return solve_harmonic(log_A[len(y) :].clone(), y, smoothing, torch.float64)


@pytest.mark.parametrize(
    ("norm", "logarithmic"), [(4, False), (9, False), (20, False), (30, True), (100, True)]
)
def test_derivatives_are_those_of_exact_arithmetic(norm: float, logarithmic: bool) -> None:
    """Walks of e^10000 moves, and a gradient right to six digits."""
    log_A, y = _contested(norm)
    found = _solve(log_A, y)
    assert isinstance(found.factors, Elimination)
    assert (found.factors.log_P is not None) == logarithmic
    exact = torch.from_numpy(reference.propagate_exactly(log_A.numpy(), y.numpy()))
    assert (found.phi - exact).abs().max() < 1e-12
    assert found.phi.max() < 0.9
    slope = torch.randn(10, 2, generator=torch.Generator().manual_seed(1)).double()
    gradient = harmonic_gradient(found, y, slope)
    assert gradient.sum(1).abs().max() < 1e-12  # a softmax does not see a shift of a row
    for place in gradient.abs().flatten().topk(6).indices.tolist():
        i, j = divmod(place, 14)
        values = []
        for h in (1e-4, -1e-4):
            moved = log_A.clone()
            moved[4 + i, j] += h
            phi = reference.propagate_exactly(moved.numpy(), y.numpy())
            values.append((torch.from_numpy(phi) * slope).sum().item())
        assert gradient[i, j].item() == pytest.approx((values[0] - values[1]) / 2e-4, rel=1e-6)
        assert abs(gradient[i, j]) > 1e-3


@pytest.mark.parametrize("smoothing", [0.0, 1e-4])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_equals_the_factorisation_where_that_is_right(
    smoothing: float, logarithmic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More points than one block and less than three."""
    batch = random_batch(3, labeled=7, unlabeled=75)
    z = torch.cat([batch.z_labeled, batch.z_unlabeled]).double()
    log_A, y = z @ z.T, torch.eye(3).double()[batch.labels]
    slope = torch.randn(75, 3, generator=torch.Generator().manual_seed(1)).double()
    plain = _solve(log_A, y, smoothing)
    assert isinstance(plain.factors, tuple)
    assert not isinstance(plain.factors, Elimination)
    monkeypatch.setattr(propagation, "_TRUSTED_MOVES", 0.0)
    monkeypatch.setattr(elimination, "_LEAST_EXIT", 2.0 if logarithmic else 0.0)
    found = _solve(log_A, y, smoothing)
    assert isinstance(found.factors, Elimination)
    assert (found.factors.log_P is not None) == logarithmic
    torch.testing.assert_close(found.phi, plain.phi, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(found.moves, plain.moves, rtol=1e-10, atol=0)
    expected = harmonic_gradient(plain, y, slope)
    torch.testing.assert_close(harmonic_gradient(found, y, slope), expected, rtol=1e-8, atol=1e-12)


def test_smoothing_is_exact_too() -> None:
    """A jump of 1e-10 beside walks of 1e34 moves: every posterior is the mean label."""
    log_A, y = _contested(9)
    found = _solve(log_A, y, 1e-10)
    assert found.moves.max().item() == pytest.approx(1e10, rel=1e-9)
    far = found.phi[::2]
    torch.testing.assert_close(far, torch.full_like(far, 0.5), rtol=0, atol=1e-9)


def test_is_done_only_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(propagation, "eliminate", refuse)
    batch = random_batch(0, dtype=torch.float32)
    cclp.cclp_loss(*batch[:3], num_classes=3)
    with pytest.raises(AssertionError):
        cclp.cclp_loss(12 * batch.z_labeled, batch.labels, 12 * batch.z_unlabeled, num_classes=3)


def test_the_loss_at_first_steps_of_a_net_with_large_embeddings() -> None:
    """Its posteriors are those of exact arithmetic, and its gradient has no NaN as printed."""
    generator = torch.Generator().manual_seed(0)
    z = 9 * torch.nn.functional.normalize(torch.randn(60, 16, generator=generator))
    z.requires_grad_()
    labels = torch.arange(10) % 5
    loss = cclp.CCLPLoss.as_printed(5)(z[:10], labels, z[10:])
    (gradient,) = torch.autograd.grad(loss, z)
    assert gradient.isfinite().all()
    logits = reference.similarity(z.detach().double().numpy())
    Y = np.eye(5)[labels.numpy()]
    Phi = np.concatenate([Y, reference.propagate_exactly(logits, Y)])
    H = reference.transition_matrix(logits)
    expected = reference.cross_entropy_of_chains(H, Phi, 3, 0.0, 0.0) / (3 * 60**2)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("norm", "seed"), [(1e10, 33), (1e12, 3), (1e13, 8), (1e16, 26)])
def test_gradients_are_finite_where_logarithms_have_no_digits_left(norm: float, seed: int) -> None:
    """From 1e9 on, rounding of similarities is larger than what an exponential can take."""
    rng = torch.Generator().manual_seed(seed)
    z = norm * torch.randn(12, 4, dtype=torch.float64, generator=rng)
    z.requires_grad_()
    phi = cclp.propagate_labels(z[:4], torch.tensor([0, 1, 0, 1]), z[4:], num_classes=2)
    (gradient,) = torch.autograd.grad(phi[:, 0].sum(), z)
    assert gradient.isfinite().all()


def test_a_bandwidth_that_leaves_the_range_is_refused() -> None:
    z = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 0, 1])
    graph: dict[str, Any] = {"num_classes": 2, "similarity": "euclidean"}
    with pytest.raises(ValueError, match=r"bandwidth must be larger: .* reach 2e\+20, expected"):
        cclp.cclp_loss(z[:4], y, z[4:], bandwidth=1e-20, **graph)
    loss = cclp.cclp_loss(1e-20 * z[:4], y, 1e-20 * z[4:], bandwidth=1e-20, **graph)
    assert loss.item() == pytest.approx(cclp.cclp_loss(z[:4], y, z[4:], **graph).item(), rel=1e-5)
