"""Similarities and the transition matrix."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import cclp
from tests import reference
from tests.batches import random_batch

KINDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"kind": "dot"}),
    ({"temperature": 3.0}, {"kind": "dot", "temperature": 3.0}),
    ({"similarity": "cosine"}, {"kind": "cosine", "temperature": 0.1}),
    ({"similarity": "euclidean", "bandwidth": 2.0}, {"kind": "euclidean", "bandwidth": 2.0}),
    (
        {"similarity": "euclidean", "bandwidth": torch.tensor([0.5, 1, 2, 4]).double()},
        {"kind": "euclidean", "bandwidth": np.array([0.5, 1, 2, 4])},
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), KINDS, ids=str)
def test_transition_matrix_is_eq_3(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    z = random_batch(0).z_unlabeled
    expected = reference.transition_matrix(reference.similarity(z.numpy(), **theirs))
    np.testing.assert_allclose(cclp.transition_matrix(z, **ours).numpy(), expected, rtol=1e-12)


def test_rows_sum_to_one_at_huge_norms() -> None:
    z = random_batch(1, scale=1e4, dtype=torch.float32).z_unlabeled
    for similarity in ("dot", "cosine", "euclidean"):
        H = cclp.transition_matrix(z, similarity=similarity)
        torch.testing.assert_close(H.sum(1), torch.ones(12), rtol=0, atol=1e-6)


def test_euclidean_survives_an_offset_in_float32() -> None:
    """Distances of about one at an offset of 1e3, where squares are 4e6."""
    z = random_batch(2, dtype=torch.float32).z_unlabeled + 1000
    expected = reference.transition_matrix(reference.similarity(z.double().numpy(), "euclidean"))
    H = cclp.transition_matrix(z, similarity="euclidean")
    np.testing.assert_allclose(H.numpy(), expected, rtol=2e-4)


def test_cosine_ignores_length_down_to_tiny_norms() -> None:
    z = random_batch(3, dtype=torch.float32).z_unlabeled
    H = cclp.transition_matrix(z, similarity="cosine")
    for scale in (1e-20, 1e-6, 1e6, 1e15):
        again = cclp.transition_matrix(scale * z, similarity="cosine")
        torch.testing.assert_close(again, H, rtol=1e-5, atol=1e-7)


def test_cosine_of_a_zero_row_is_zero_to_all() -> None:
    z = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], requires_grad=True)
    H = cclp.transition_matrix(z, similarity="cosine", temperature=1.0)
    torch.testing.assert_close(H[0].detach(), torch.full((3,), 1 / 3))
    H[1, 0].backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    assert z.grad.isfinite().all()


class _LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the size of the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.numel())
        return result


@pytest.mark.parametrize("similarity", ["dot", "cosine", "euclidean"])
def test_no_tensor_of_all_pairs_and_features(similarity: str) -> None:
    n, features = 50, 64
    z = torch.randn(n, features, requires_grad=True)
    with _LargestTensor() as largest:  # type: ignore[no-untyped-call]
        loss = cclp.cclp_loss(
            z[:20],
            torch.arange(20) % 3,
            z[20:],
            num_classes=3,
            similarity=similarity,
            bandwidth=torch.ones(features),
        )
        loss.backward()  # type: ignore[no-untyped-call]
    assert largest.numel == n * features


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match=r"z must be of shape \(points, features\), got \(3,\)"):
        cclp.transition_matrix(torch.zeros(3))
    with pytest.raises(TypeError, match=r"z must be .*floating-point.*int64"):
        cclp.transition_matrix(torch.zeros(3, 2).long())
    with pytest.raises(ValueError, match=r"temperature must be finite and above 0, got -1"):
        cclp.transition_matrix(torch.zeros(3, 2), temperature=-1)
