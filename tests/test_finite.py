"""Finite loss and gradient for every finite input."""

import itertools

import pytest
import torch
from torch import Tensor

import cclp

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def _unit(*shape: int, seed: int = 0) -> Tensor:
    z = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(z)


def _isolated_groups() -> Tensor:
    """Labeled points round one axis; two tight unlabeled groups far from them and each other."""
    axes = torch.eye(4, dtype=torch.float64)
    groups = axes.repeat_interleave(5, 0) + 1e-3 * _unit(20, 4)
    return torch.nn.functional.normalize(groups)


# Name -> (embeddings of norm about one, labels of the first ones).
LAYOUTS: dict[str, tuple[Tensor, list[int]]] = {
    "random": (_unit(20, 6), [0, 1, 2] * 3),
    "all identical": (_unit(1, 6).repeat(16, 1), [0, 1, 2]),
    "all zero": (torch.zeros(16, 6, dtype=torch.float64), [0, 1, 2]),
    "duplicates": (_unit(5, 6).repeat(4, 1), [0, 1, 2, 0, 1]),
    "one label per class": (_unit(20, 6), [0, 1, 2]),
    "one labeled point": (_unit(12, 6), [1]),
    "one unlabeled point": (_unit(7, 6), [0, 1, 2, 0, 1, 2]),
    "one of each": (_unit(2, 6), [2]),
    "isolated groups": (_isolated_groups(), [0, 0, 1, 1, 2]),
    "single class": (_unit(14, 6), [1] * 6),
    "two labels in one spot": (_unit(1, 6).repeat(8, 1), [0, 1]),
    "between two labels": (
        torch.tensor([[1.0, 0], [0, 1.0]] + [[0.5, 0.5]] * 6, dtype=torch.float64),
        [0, 1],
    ),
    "small beside large": (
        torch.tensor([[1e-3, 0], [1.0, 0], [1.0, 1e-3], [-1.0, 0]], dtype=torch.float64),
        [0, 1, 1],
    ),
    "no unlabeled point": (_unit(9, 6), [0, 1, 2] * 3),
}


def _finite(gradient: Tensor) -> bool:
    """In float16 some are too large to be represented, and infinite, but never NaN."""
    wrong = gradient.isnan() if gradient.dtype == torch.float16 else ~gradient.isfinite()
    return not wrong.any()


def test_a_gradient_too_large_for_float16_is_infinite() -> None:
    """As everywhere in PyTorch, so that a GradScaler learns of it and skips the step."""
    z = (100 * _unit(20, 6)).half().requires_grad_()
    wide = z.detach().float().requires_grad_()
    scale = torch.tensor(65536.0)
    for leaf in (z, wide):
        loss = cclp.cclp_loss(leaf[:9], torch.arange(9) % 3, leaf[9:], num_classes=3)
        (scale * loss).backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    assert wide.grad is not None
    assert wide.grad.isfinite().all()
    assert (wide.grad.abs() > 65504).any()
    assert torch.equal(z.grad, wide.grad.half())
    scaler = torch.amp.GradScaler("cpu", 65536.0)
    net = torch.nn.Linear(6, 6)
    net.weight.grad = z.grad[:6].float()
    optimizer = torch.optim.SGD(net.parameters())
    before = net.weight.detach().clone()
    scaler.scale(torch.zeros(()))
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(net.weight, before)
    assert scaler.get_scale() == 32768


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("similarity", ["dot", "cosine", "euclidean"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_loss_and_gradient_are_finite(layout: str, similarity: str, dtype: torch.dtype) -> None:
    unit, classes = LAYOUTS[layout]
    labels = torch.tensor(classes)
    chains = [(3, "harmonic")]
    if dtype in (torch.float64, torch.float32):  # others are computed in float32
        chains += [(1, "harmonic"), (20, "harmonic"), (3, "symmetric")]
    for norm, (steps, propagation) in itertools.product((1e-6, 1.0, 100.0, 1e4), chains):
        z = (norm * unit).to(dtype).requires_grad_()
        loss = cclp.cclp_loss(
            z[: len(labels)],
            labels,
            z[len(labels) :],
            num_classes=3,
            chain_steps=steps,
            similarity=similarity,
            propagation=propagation,  # type: ignore[arg-type]
        )
        loss.backward()  # type: ignore[no-untyped-call]
        case = f"norm {norm:g}, S = {steps}, {propagation}"
        assert loss.isfinite(), case
        assert z.grad is not None
        assert z.grad.dtype == dtype
        assert _finite(z.grad), case


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("similarity", ["dot", "cosine", "euclidean"])
def test_all_norms_in_one_batch_and_labels_of_all_sizes(
    similarity: str, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    for seed in range(5):
        norms = 10 ** (10 * torch.rand(24, 1, generator=generator, dtype=torch.float64) - 6)
        z = (norms * _unit(24, 6, seed=seed)).to(dtype).requires_grad_()
        small = 10 ** (-35 * torch.rand(8, 3, generator=generator, dtype=torch.float64))
        labels = small / small.sum(1, keepdim=True)
        for steps in (2, 20):
            loss = cclp.cclp_loss(
                z[:8], labels, z[8:], num_classes=3, chain_steps=steps, similarity=similarity
            )
            (gradient,) = torch.autograd.grad(loss, z)
            assert loss.isfinite(), seed
            assert _finite(gradient), seed


@pytest.mark.parametrize("classes", [10, 300])
def test_long_chains_with_many_classes_do_not_underflow(classes: int) -> None:
    """All points in one spot: chains of 20 moves shrink to C^-19 / N, below float32's range."""
    z = torch.zeros(classes, 2, requires_grad=True)
    loss = cclp.cclp_loss(z, torch.arange(classes), None, num_classes=classes, chain_steps=20)
    expected = torch.tensor(classes).log() * (1 + 19 / 2)
    torch.testing.assert_close(loss.detach(), expected, rtol=1e-5, atol=0)
