"""Label propagation against exact arithmetic."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import cclp
from tests import reference
from tests.batches import random_batch

KINDS: list[dict[str, Any]] = [
    {"similarity": "dot"},
    {"similarity": "cosine", "temperature": 0.3},
    {"similarity": "euclidean", "bandwidth": 0.8},
]


def _options(kind: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind["similarity"], **{k: v for k, v in kind.items() if k != "similarity"}}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_closed_form_is_eq_5(kind: dict[str, Any]) -> None:
    batch = random_batch(0)
    z_l, y, z_u = batch.arrays
    H = reference.transition_matrix(
        reference.similarity(np.concatenate([z_l, z_u]), **_options(kind))
    )
    phi = cclp.propagate_labels(*batch[:3], num_classes=3, **kind).numpy()
    np.testing.assert_allclose(phi, reference.propagate(H, y), rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_iteration_converges_to_the_closed_form(kind: dict[str, Any]) -> None:
    """Φ ← HΦ with clamped labels, on our own transition matrix."""
    batch = random_batch(1, scale=0.6)
    H = cclp.transition_matrix(torch.cat([batch.z_labeled, batch.z_unlabeled]), **kind).numpy()
    phi = cclp.propagate_labels(*batch[:3], num_classes=3, **kind).numpy()
    early = reference.propagate_by_iteration(H, batch.arrays[1], 3)
    late = reference.propagate_by_iteration(H, batch.arrays[1], 5000)
    assert np.abs(early - phi).max() > 1e-3
    np.testing.assert_allclose(late, phi, rtol=0, atol=1e-8)


def test_symmetric_variant_is_the_footnote() -> None:
    batch = random_batch(2)
    z_l, y, z_u = batch.arrays
    expected = reference.propagate_symmetrically(
        reference.similarity(np.concatenate([z_l, z_u])), y
    )
    phi = cclp.propagate_labels(*batch[:3], num_classes=3, propagation="symmetric").numpy()
    np.testing.assert_allclose(phi, expected, rtol=0, atol=1e-8)


def _sub_clusters(norm: float, spread: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three classes of two tight sub-clusters each; labels in the first of them only.

    Returns:
        z_labeled, labels, z_unlabeled, all float32.
    """
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(3, 1, 8, generator=generator)
    centres = centres + 0.6 * torch.randn(3, 2, 8, generator=generator)
    z = centres[:, :, None] + spread * torch.randn(3, 2, 8, 8, generator=generator)
    z = norm * z / z.norm(dim=-1, keepdim=True)
    labeled = torch.zeros(3, 2, 8, dtype=torch.bool)
    labeled[:, 0, :3] = True
    return z[labeled], torch.arange(3).repeat_interleave(3), z[~labeled]


@pytest.mark.parametrize("spread", [0.05, 0.3])
@pytest.mark.parametrize("norm", [0.1, 1, 3, 5, 9, 12, 20, 50, 100])
def test_exact_from_float32_embeddings_at_all_norms(norm: float, spread: float) -> None:
    """With a jump of 1e-10 posteriors would be off by 0.6 at norm 12."""
    z_labeled, labels, z_unlabeled = _sub_clusters(norm, spread, seed=0)
    phi = cclp.propagate_labels(z_labeled, labels, z_unlabeled, num_classes=3)
    logits = reference.similarity(torch.cat([z_labeled, z_unlabeled]).double().numpy())
    exact = reference.propagate_exactly(logits, np.eye(3)[labels.numpy()])
    assert np.abs(phi.numpy() - exact).max() <= 1e-6


@pytest.mark.parametrize("norm", [0.1, 1.0, 10.0, 100.0, 1000.0])
def test_exact_for_a_single_blob_at_all_norms(norm: float) -> None:
    """Float32 similarities would be off by 1.5e-4 at norm 100 and 3e-2 at 1000."""
    centre = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(40, 16, generator=torch.Generator().manual_seed(1))
    z = norm * centre / centre.norm() + 0.3 / max(norm, 1) * noise
    labels = torch.arange(6) % 3
    phi = cclp.propagate_labels(z[:6], labels, z[6:], num_classes=3)
    logits = reference.similarity(z.double().numpy())
    exact = reference.propagate_exactly(logits, np.eye(3)[labels.numpy()])
    assert np.abs(phi.numpy() - exact).max() <= 1e-6


def test_far_points_get_the_labels_that_they_reach_the_likeliest() -> None:
    """At a distance of e^-1600 from two labels of one class and one of the other."""
    z_labeled = torch.tensor([[40.0, 0, 0], [0, 40.0, 0], [0, 40.0, 0]])
    z_unlabeled = torch.tensor([[0, 0, 40.0]]).repeat(5, 1)
    phi = cclp.propagate_labels(z_labeled, torch.tensor([0, 1, 1]), z_unlabeled, num_classes=2)
    torch.testing.assert_close(phi, torch.tensor([[1 / 3, 2 / 3]]).expand(5, 2))
    z_unlabeled[:, 1] += 0.1
    phi = cclp.propagate_labels(z_labeled, torch.tensor([0, 1, 1]), z_unlabeled, num_classes=2)
    torch.testing.assert_close(phi[:, 0], torch.tensor(1 / (1 + 2 * math.exp(4))).expand(5))


def test_points_that_no_label_reaches_get_the_mean_label() -> None:
    """Where Eq. 5 has no solution; the others keep theirs."""

    def graph(z: Tensor) -> Tensor:
        near = (z[:, None] - z).abs().sum(2) < 3
        return torch.where(near, z @ z.T, -torch.inf)

    z = torch.tensor([[0.0], [1.0], [0.9], [0.2], [10.0], [11.0], [40.0]])
    labels = torch.tensor([0, 1])
    for smoothing in (None, 0.0):
        phi = cclp.propagate_labels(
            z[:2], labels, z[2:], num_classes=2, similarity=graph, smoothing=smoothing
        )
        alone = cclp.propagate_labels(z[:2], labels, z[2:4], num_classes=2, similarity=graph)
        torch.testing.assert_close(phi[:2], alone)
        torch.testing.assert_close(phi[2:], torch.full((3, 2), 0.5))


def test_a_point_that_reaches_nothing_leaves_the_gradient_of_others_alone() -> None:
    z = torch.tensor([[0.0], [1.0], [0.9], [0.2]], requires_grad=True)
    apart = torch.zeros(4, 4)
    apart[3, :3] = apart[:3, 3] = -torch.inf
    labels = torch.tensor([0, 1])
    options: dict[str, Any] = {"num_classes": 2, "similarity": lambda z: z @ z.T + apart}
    phi = cclp.propagate_labels(z[:2], labels, z[2:], **options)
    (gradient,) = torch.autograd.grad(phi[0, 0], z)
    alone = cclp.propagate_labels(z[:2], labels, z[2:3], num_classes=2)
    (expected,) = torch.autograd.grad(alone[0, 0], z)
    torch.testing.assert_close(gradient, expected)
    with pytest.raises(ValueError, match="similarity: the callable must return finite values"):
        cclp.cclp_loss(z[:2], labels, z[2:], **options)


@given(
    seed=st.integers(0, 2**32 - 1),
    labeled=st.integers(1, 10),
    unlabeled=st.integers(1, 12),
    log_norm=st.floats(-3, 3),
    propagation=st.sampled_from(["harmonic", "symmetric"]),
)
@settings(max_examples=60, deadline=None)
def test_rows_are_distributions_and_follow_permutations(
    seed: int, labeled: int, unlabeled: int, log_norm: float, propagation: Any
) -> None:
    batch = random_batch(seed, labeled, unlabeled, scale=10**log_norm)
    options: dict[str, Any] = {"num_classes": 3, "propagation": propagation}
    phi = cclp.propagate_labels(*batch[:3], **options)
    assert ((phi >= 0) & (phi <= 1)).all()
    torch.testing.assert_close(phi.sum(1), torch.ones(unlabeled).double(), rtol=0, atol=1e-12)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(unlabeled, generator=generator)
    classes = torch.randperm(3, generator=generator)
    # Rounding is amplified by up to 1 / smoothing where points hardly reach a label.
    shuffled = cclp.propagate_labels(
        batch.z_labeled, batch.labels, batch.z_unlabeled[order], **options
    )
    torch.testing.assert_close(shuffled, phi[order], rtol=0, atol=1e-5)
    renamed = cclp.propagate_labels(
        batch.z_labeled, classes[batch.labels], batch.z_unlabeled, **options
    )
    torch.testing.assert_close(renamed[:, classes], phi, rtol=0, atol=1e-5)


def test_no_unlabeled_points() -> None:
    batch = random_batch(3, unlabeled=0)
    assert cclp.propagate_labels(*batch[:3], num_classes=3).shape == (0, 3)
    assert cclp.propagate_labels(batch.z_labeled, batch.labels, None, num_classes=3).shape == (0, 3)


@pytest.mark.parametrize("propagation", ["harmonic", "symmetric"])
def test_gradcheck(propagation: Any) -> None:
    batch = random_batch(4, labeled=4, unlabeled=3)

    def phi(z_labeled: Tensor, z_unlabeled: Tensor) -> Tensor:
        return cclp.propagate_labels(
            z_labeled, batch.labels, z_unlabeled, num_classes=3, propagation=propagation
        )

    leaves = batch.z_labeled.clone().requires_grad_(), batch.z_unlabeled.clone().requires_grad_()
    assert torch.autograd.gradcheck(phi, leaves)


def test_smoothing_is_a_jump_to_a_random_label() -> None:
    """At 1 - 1e-9 there is nothing but the jump; a little smoothing moves little."""
    batch = random_batch(5, labeled=4, classes=3)
    everything = cclp.propagate_labels(*batch[:3], num_classes=3, smoothing=1 - 1e-9)
    mean = torch.tensor([[0.5, 0.25, 0.25]]).double()
    torch.testing.assert_close(everything, mean.expand(12, 3), rtol=0, atol=1e-8)
    none = cclp.propagate_labels(*batch[:3], num_classes=3, smoothing=0.0)
    little = cclp.propagate_labels(*batch[:3], num_classes=3, smoothing=1e-10)
    assert 0 < (none - little).abs().max() < 1e-8
