"""The loss against the paper: reference, landmarks, symmetries, derivatives, dtypes, errors."""

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import cclp
from cclp.loss import chains
from tests import reference
from tests.batches import Embedded, compact_batch, random_batch

SIMILARITIES: list[dict[str, Any]] = [
    {"similarity": "dot"},
    {"similarity": "dot", "temperature": 2.0},
    {"similarity": "cosine"},
    {"similarity": "cosine", "temperature": 0.5},
    {"similarity": "euclidean"},
    {"similarity": "euclidean", "bandwidth": 0.7},
    {"similarity": "euclidean", "bandwidth": torch.tensor([0.5, 1.0, 1.5, 2.0]).double()},
]


def _for_reference(options: dict[str, Any]) -> dict[str, Any]:
    default = 0.1 if options["similarity"] == "cosine" else 1.0
    bandwidth = options.get("bandwidth", 1.0)
    return {
        "kind": options["similarity"],
        "temperature": options.get("temperature", default),
        "bandwidth": bandwidth.numpy() if isinstance(bandwidth, Tensor) else bandwidth,
    }


def _loss(batch: Embedded, **options: Any) -> Tensor:
    z_labeled, labels, z_unlabeled, classes = batch
    return cclp.cclp_loss(z_labeled, labels, z_unlabeled, num_classes=classes, **options)


# --- the reference ---


@pytest.mark.parametrize("steps", [1, 2, 3, 6])
@pytest.mark.parametrize("options", SIMILARITIES, ids=str)
def test_as_printed_is_the_paper(options: dict[str, Any], steps: int) -> None:
    for seed, unlabeled in ((0, 12), (1, 1), (2, 0)):
        batch = random_batch(seed, unlabeled=unlabeled)
        loss = cclp.CCLPLoss.as_printed(batch.num_classes, chain_steps=steps, **options)(*batch[:3])
        expected = reference.cclp_as_printed(*batch.arrays, steps, **_for_reference(options))
        assert loss.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("steps", [1, 3, 6])
@pytest.mark.parametrize("options", SIMILARITIES, ids=str)
def test_as_released_is_the_released_code(options: dict[str, Any], steps: int) -> None:
    for seed, unlabeled in ((0, 12), (1, 1), (2, 0)):
        batch = random_batch(seed, unlabeled=unlabeled)
        loss = cclp.CCLPLoss.as_released(batch.num_classes, chain_steps=steps, **options)(
            *batch[:3]
        )
        expected = reference.cclp_as_released(*batch.arrays, steps, **_for_reference(options))
        assert loss.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("options", SIMILARITIES, ids=str)
def test_default_is_the_paper_times_n(options: dict[str, Any]) -> None:
    batch = random_batch(3)
    n = len(batch.z_labeled) + len(batch.z_unlabeled)
    expected = n * reference.cclp_as_printed(*batch.arrays, 3, **_for_reference(options))
    assert _loss(batch, **options).item() == pytest.approx(expected, rel=1e-7)
    assert _loss(batch, normalization="pairs", **options).item() == pytest.approx(
        expected / n, rel=1e-7
    )


@pytest.mark.parametrize("options", SIMILARITIES, ids=str)
def test_float32_is_close_to_the_paper(options: dict[str, Any]) -> None:
    batch = random_batch(4, labeled=30, unlabeled=40, dtype=torch.float32)
    expected = 70 * reference.cclp_as_printed(*batch.arrays, 3, **_for_reference(options))
    assert _loss(batch, **options).item() == pytest.approx(expected, rel=1e-5)


def test_soft_labels_follow_the_reference() -> None:
    batch = random_batch(5)
    soft = torch.rand(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    soft /= soft.sum(1, keepdim=True)
    z_l, _, z_u = batch.arrays
    loss = cclp.CCLPLoss.as_printed(3)(batch.z_labeled, soft, batch.z_unlabeled)
    assert loss.item() == pytest.approx(
        reference.cclp_as_printed(z_l, soft.numpy(), z_u, 3), rel=1e-10
    )


def test_one_hot_soft_labels_equal_class_indices() -> None:
    batch = random_batch(6)
    one_hot = torch.nn.functional.one_hot(batch.labels).double()
    torch.testing.assert_close(_loss(batch), _loss(batch._replace(labels=one_hot)))


def test_class_without_label_contributes_nothing() -> None:
    """Three classes of which only two occur are the same as two classes."""
    batch = random_batch(7, classes=2)
    torch.testing.assert_close(
        _loss(batch), _loss(batch._replace(num_classes=5)), rtol=1e-12, atol=0
    )


def test_none_and_empty_are_the_same() -> None:
    batch = random_batch(8, unlabeled=0)
    none = cclp.cclp_loss(batch.z_labeled, batch.labels, None, num_classes=3)
    torch.testing.assert_close(none, _loss(batch), rtol=0, atol=0)


def test_callable_equals_built_in() -> None:
    batch = random_batch(9)
    by_hand = _loss(batch, similarity=lambda z: -torch.cdist(z, z).square() / 0.49)
    torch.testing.assert_close(by_hand, _loss(batch, similarity="euclidean", bandwidth=0.7))
    by_hand = _loss(batch, similarity=lambda z: z @ z.T, temperature=2.0)
    torch.testing.assert_close(by_hand, _loss(batch, temperature=2.0))


def test_symmetric_propagation_enters_the_loss() -> None:
    batch = random_batch(10)
    z_l, y, z_u = batch.arrays
    phi_u = reference.propagate_symmetrically(reference.similarity(np.concatenate([z_l, z_u])), y)
    # With every point labeled by what was propagated, nothing is left to propagate.
    everyone = torch.cat([batch.z_labeled, batch.z_unlabeled])
    expected = cclp.cclp_loss(
        everyone, torch.from_numpy(np.concatenate([y, phi_u])), None, num_classes=3
    )
    torch.testing.assert_close(_loss(batch, propagation="symmetric"), expected, rtol=1e-8, atol=0)


# --- landmarks ---


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_compact_classes_reach_the_entropy_of_t(steps: int) -> None:
    batch = compact_batch(classes=4, per_class=6, labeled_per_class=2, norm=8.0)
    assert _loss(batch, chain_steps=steps).item() == pytest.approx(math.log(24 / 4), rel=1e-7)


@pytest.mark.parametrize("steps", [1, 2, 3, 20])
def test_all_points_in_one_spot(steps: int) -> None:
    z = torch.ones(24, 3, dtype=torch.float64)
    loss = cclp.cclp_loss(z, torch.arange(24) % 4, None, num_classes=4, chain_steps=steps)
    expected = math.log(24) + (steps - 1) / 2 * math.log(4)
    assert loss.item() == pytest.approx(expected, rel=1e-9)


def test_one_class_swallowing_all_reaches_its_own_ideal() -> None:
    z_labeled = torch.tensor([[8.0, 0.0], [0.0, 8.0]], dtype=torch.float64)
    loss = cclp.cclp_loss(
        z_labeled, torch.tensor([0, 1]), z_labeled[1:].repeat(198, 1), num_classes=2
    )
    assert loss.item() == pytest.approx(199 / 200 * math.log(199), rel=1e-6)


# --- symmetries ---

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 12)


@given(seed=seeds, labeled=sizes, unlabeled=st.integers(0, 12), steps=st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_symmetries(seed: int, labeled: int, unlabeled: int, steps: int) -> None:
    batch = random_batch(seed, labeled, unlabeled)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(unlabeled, generator=generator)
    classes = torch.randperm(3, generator=generator)
    rotation, _ = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=generator))
    for similarity in ("dot", "euclidean"):
        loss = _loss(batch, similarity=similarity, chain_steps=steps)
        for other in (
            batch._replace(z_unlabeled=batch.z_unlabeled[order]),
            batch._replace(labels=classes[batch.labels]),
            batch._replace(
                z_labeled=batch.z_labeled @ rotation, z_unlabeled=batch.z_unlabeled @ rotation
            ),
        ):
            again = _loss(other, similarity=similarity, chain_steps=steps)
            torch.testing.assert_close(again, loss, rtol=1e-7, atol=1e-9)


@given(seed=seeds, offset=st.floats(-1e3, 1e3))
@settings(max_examples=10, deadline=None)
def test_euclidean_does_not_see_an_offset(seed: int, offset: float) -> None:
    batch = random_batch(seed, dtype=torch.float32)
    moved = batch._replace(
        z_labeled=batch.z_labeled + offset, z_unlabeled=batch.z_unlabeled + offset
    )
    # The offset itself rounds the points: compare with the rounded points moved back, exactly.
    back = moved._replace(
        z_labeled=(moved.z_labeled.double() - offset).float(),
        z_unlabeled=(moved.z_unlabeled.double() - offset).float(),
    )
    torch.testing.assert_close(
        _loss(moved, similarity="euclidean"), _loss(back, similarity="euclidean"),
        rtol=1e-4, atol=0,
    )  # fmt: skip


# --- derivatives ---


@pytest.mark.parametrize("propagation", ["harmonic", "symmetric"])
@pytest.mark.parametrize("steps", [1, 3, 6])
@pytest.mark.parametrize("options", SIMILARITIES[1::2] + SIMILARITIES[-1:], ids=str)
def test_gradcheck(options: dict[str, Any], steps: int, propagation: str) -> None:
    """A large smoothing too: its terms in the derivative vanish at 1e-10."""
    batch = random_batch(11, labeled=5, unlabeled=4)
    for smoothing in (1e-10, 0.1):

        def loss(z_labeled: Tensor, z_unlabeled: Tensor, smoothing: float = smoothing) -> Tensor:
            moved = batch._replace(z_labeled=z_labeled, z_unlabeled=z_unlabeled)
            return _loss(
                moved, chain_steps=steps, propagation=propagation, smoothing=smoothing, **options
            )

        leaves = (
            batch.z_labeled.clone().requires_grad_(),
            batch.z_unlabeled.clone().requires_grad_(),
        )
        assert torch.autograd.gradcheck(loss, leaves)


def test_gradcheck_with_absent_class_and_soft_labels() -> None:
    batch = random_batch(12, labeled=4, unlabeled=3, classes=2)
    soft = torch.tensor([[0.7, 0.3, 0, 0], [0, 1, 0, 0], [0.5, 0.5, 0, 0], [1, 0, 0, 0]]).double()

    def loss(z_labeled: Tensor, z_unlabeled: Tensor) -> Tensor:
        return cclp.cclp_loss(z_labeled, soft, z_unlabeled, num_classes=4)

    leaves = batch.z_labeled.clone().requires_grad_(), batch.z_unlabeled.clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, leaves)


def test_gradients_flow_through_posteriors_unless_detached() -> None:
    """With posteriors held constant, the gradient is that of the loss with soft labels for all."""
    batch = random_batch(13)
    phi = cclp.propagate_labels(*batch[:3], num_classes=3)
    one_hot = torch.nn.functional.one_hot(batch.labels).double()
    everyone = torch.cat([batch.z_labeled, batch.z_unlabeled]).requires_grad_()
    constant = cclp.cclp_loss(everyone, torch.cat([one_hot, phi]), None, num_classes=3)
    (expected,) = torch.autograd.grad(constant, everyone)
    gradients = {}
    for detach in (True, False):
        loss = cclp.cclp_loss(
            everyone[:9], batch.labels, everyone[9:], num_classes=3, detach_posteriors=detach
        )
        (gradients[detach],) = torch.autograd.grad(loss, everyone)
    torch.testing.assert_close(gradients[True], expected)
    assert (gradients[False] - expected).abs().max() > 0.1 * expected.abs().max()


@pytest.mark.parametrize("scale", [0.5, 12.0])
def test_backward_twice_gives_the_same(scale: float) -> None:
    """Nothing that was saved is overwritten, with faint chains (scale 12) or without."""
    batch = random_batch(22, scale=scale, dtype=torch.float32)
    z = batch.z_unlabeled.clone().requires_grad_()
    for steps in (1, 2, 3, 6):
        loss = _loss(batch._replace(z_unlabeled=z), chain_steps=steps)
        first, second, third = (
            torch.autograd.grad(loss, z, retain_graph=True)[0] for _ in range(3)
        )
        assert torch.equal(first, second)
        assert torch.equal(first, third)


@pytest.mark.parametrize("propagation", ["harmonic", "symmetric"])
@pytest.mark.parametrize("similarity", ["dot", "cosine", "euclidean"])
def test_second_derivatives_are_refused(similarity: str, propagation: str) -> None:
    """Also beside another term, where PyTorch would drop them silently."""
    batch = random_batch(23)
    z = batch.z_unlabeled.clone().requires_grad_()
    loss = (
        _loss(batch._replace(z_unlabeled=z), similarity=similarity, propagation=propagation)
        + (z**3).sum()
    )
    with pytest.raises(RuntimeError, match="second derivatives are not implemented"):
        torch.autograd.grad(loss, z, create_graph=True)


def test_gradient_at_many_steps_is_not_cut_by_a_floor() -> None:
    """Ten classes in one loose blob, S = 10: float32 agrees with float64."""
    batch = random_batch(14, labeled=50, unlabeled=50, classes=10, scale=0.1)
    gradients = []
    for dtype in (torch.float64, torch.float32):
        z = batch.z_unlabeled.to(dtype).requires_grad_()
        moved = batch._replace(z_labeled=batch.z_labeled.to(dtype), z_unlabeled=z)
        gradients.append(torch.autograd.grad(_loss(moved, chain_steps=10), z)[0].double())
    assert gradients[0].norm() > 1e-4
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("scale", [1.0, 12.0])
@pytest.mark.parametrize("steps", [1, 2, 6])
@pytest.mark.parametrize("options", SIMILARITIES[:6:2], ids=str)
def test_functional_gradients(options: dict[str, Any], steps: int, scale: float) -> None:
    """``torch.func.grad`` equals autograd, with faint chains (scale 12) or without."""
    batch = random_batch(26, scale=scale)

    def loss(z: Tensor) -> Tensor:
        return _loss(batch._replace(z_unlabeled=z), chain_steps=steps, **options)

    z = batch.z_unlabeled.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(z), z)
    assert torch.equal(torch.func.grad(loss)(batch.z_unlabeled), expected)


def test_functional_second_derivatives_are_refused() -> None:
    """Neither those of nested transforms nor those of autograd around one are dropped."""
    batch = random_batch(27)

    def slope(z: Tensor) -> Tensor:
        inner = torch.func.grad(lambda z: _loss(batch._replace(z_unlabeled=z)) + (z**3).sum())
        total: Tensor = inner(z).sum()
        return total

    with pytest.raises(RuntimeError, match="second derivatives are not implemented"):
        torch.func.grad(slope)(batch.z_unlabeled)
    outside = slope(batch.z_unlabeled.clone().requires_grad_())
    with pytest.raises(RuntimeError, match="second derivatives are not implemented"):
        outside.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("unlabeled", [0, 150])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_classes_as_blocks_make_no_difference(
    unlabeled: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large batch, products leave out what is zero between labels of different classes."""
    batch = random_batch(5, labeled=280, unlabeled=unlabeled)
    batch = batch._replace(labels=(batch.labels * 7 + torch.arange(280) % 40 // 9), num_classes=30)
    products = []
    product = chains._product

    def watched(G: Tensor, K: Tensor, blocks: Any, *rest: Any) -> Tensor:
        products.append(0 if blocks is None else len(blocks.rows))
        return product(G, K, blocks, *rest)

    monkeypatch.setattr(chains, "_product", watched)
    found = []
    for large in (200, 10_000):
        monkeypatch.setattr("cclp.loss.fused._LARGE", large)
        leaves = [z.clone().requires_grad_() for z in (batch.z_labeled, batch.z_unlabeled)]
        moved = batch._replace(z_labeled=leaves[0], z_unlabeled=leaves[1])
        loss = _loss(moved, chain_steps=steps)
        found.append((loss.detach(), *torch.autograd.grad(loss, leaves)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-14)
    half = len(products) // 2
    assert products[half:] == [0] * half
    assert all(5 <= number <= 8 for number in products[:half])
    assert half == 2 * (steps - 1)


# --- dtypes, autocast, compile, meta ---


@pytest.mark.parametrize("apart", [1e2, 1e4, 1e6])
def test_far_groups_in_float32(apart: float) -> None:
    """Squared distances of 1e8 bandwidths, rounded to 8, made 8.05 of a loss of 6.00."""
    generator = torch.Generator().manual_seed(0)
    group = torch.arange(40) % 2
    # whole bandwidths are exact in float32 and the same in float64
    near = torch.randint(-1024, 1024, (40, 3), generator=generator) / 512
    z = near + apart * group[:, None] * torch.tensor([1.0, 0, 0])
    found = []
    for dtype in (torch.float32, torch.float64):
        leaf = z.float().to(dtype).requires_grad_()
        loss = cclp.cclp_loss(leaf[:4], group[:4], leaf[4:], num_classes=2, similarity="euclidean")
        found.append((loss.item(), torch.autograd.grad(loss, leaf)[0].double()))
    (loss_32, gradient), (loss_64, expected) = found
    assert loss_32 == pytest.approx(loss_64, rel=1e-5)
    assert (gradient - expected).norm() < 2e-3 * expected.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_inputs_give_the_loss_of_their_values(dtype: torch.dtype) -> None:
    batch = random_batch(15, dtype=dtype)
    z = batch.z_unlabeled.clone().requires_grad_()
    loss = _loss(batch._replace(z_unlabeled=z))
    exact = _loss(batch._replace(z_labeled=batch.z_labeled.double(), z_unlabeled=z.double()))
    (gradient,) = torch.autograd.grad(loss, z)
    (expected,) = torch.autograd.grad(exact, z)
    assert loss.dtype == torch.float32
    assert loss.shape == ()
    assert gradient.dtype == dtype
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient, expected, rtol=1e-2, atol=1e-5)


def test_autocast_does_not_reach_inside() -> None:
    """Neither forward nor, if a user calls it there, backward."""
    batch = random_batch(16, labeled=30, unlabeled=30, features=16, dtype=torch.float32)
    z = batch.z_unlabeled.clone().requires_grad_()
    for options in SIMILARITIES[:6]:
        plain = _loss(batch._replace(z_unlabeled=z), **options)
        (expected,) = torch.autograd.grad(plain, z)
        for low in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", low):
                loss = _loss(batch._replace(z_unlabeled=z), **options)
                (gradient,) = torch.autograd.grad(loss, z)
            torch.testing.assert_close(loss, plain, rtol=0, atol=0)
            torch.testing.assert_close(gradient, expected, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (cclp.CCLPLoss, {"similarity": "cosine", "propagation": "symmetric", "chain_steps": 5}),
        (cclp.CCLPLoss.as_printed, {"similarity": lambda z: -torch.cdist(z, z)}),
        (cclp.CCLPLoss.as_released, {"similarity": "euclidean", "learn_bandwidth": True}),
    ],
)
def test_compiles_whole(make: Any, options: dict[str, Any]) -> None:
    """The default ones are part of a compiled training step in test_compatibility.py."""
    torch._dynamo.reset()
    batch = random_batch(17, dtype=torch.float32)
    module = make(3, **options)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    losses, gradients = [], []
    for function in (module, compiled):
        z = batch.z_unlabeled.clone().requires_grad_()
        loss = function(batch.z_labeled, batch.labels, z)
        losses.append(loss)
        gradients.append(torch.autograd.grad(loss, z)[0])
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=0)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-7)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own
def test_compiled_loss_takes_any_sizes() -> None:
    """More sizes than torch is willing to recompile for."""
    torch._dynamo.reset()
    module = cclp.CCLPLoss(3)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    for labeled, unlabeled in ((4, 0), (4, 1), *((n, n + 3) for n in range(4, 16))):
        batch = random_batch(labeled, labeled, unlabeled, dtype=torch.float32)
        torch.testing.assert_close(compiled(*batch[:3]), module(*batch[:3]), rtol=1e-5, atol=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own
def test_compiled_loss_takes_a_prior_that_decays() -> None:
    """One graph for every weight but the first, and one for a loss with other settings."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    batch = random_batch(17, dtype=torch.float32)
    prior = torch.rand(12, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    module = cclp.CCLPLoss(3)
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    for weight in (1.0, 0.9, 0.5, 0.3, 0.0):
        gradients = []
        for function in (module, compiled):
            z = batch.z_unlabeled.clone().requires_grad_()
            loss = function(batch.z_labeled, batch.labels, z, prior, weight)
            gradients.append(torch.autograd.grad(loss, z)[0])
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-7)
    assert counter.frame_count == 2
    other = cclp.CCLPLoss(3, smoothing=1e-3)
    compiled = torch.compile(other, fullgraph=True, backend=counter)
    torch.testing.assert_close(compiled(*batch[:3]), other(*batch[:3]), rtol=1e-5, atol=0)
    assert counter.frame_count <= 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own
@pytest.mark.parametrize("label", [-1, 3])
def test_compiled_loss_refuses_a_label_out_of_range(label: int) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(cclp.CCLPLoss(3), fullgraph=True, backend="aot_eager")
    z_labeled, labels, z_unlabeled, _ = random_batch(17, dtype=torch.float32)
    assert compiled(z_labeled, labels, z_unlabeled).isfinite()
    labels = labels.clone()
    labels[1] = label
    with pytest.raises(RuntimeError, match="labels must lie in 0 … 2"):
        compiled(z_labeled, labels, z_unlabeled)
    soft = torch.eye(3)[labels.clamp(0, 2)]
    assert compiled(z_labeled, soft, z_unlabeled).isfinite()
    soft[0] = torch.tensor([-1.0, 1.0, 1.0])
    with pytest.raises(RuntimeError, match="labels: rows must be probabilities"):
        compiled(z_labeled, soft, z_unlabeled)


@pytest.mark.parametrize("propagation", ["harmonic", "symmetric"])
@pytest.mark.parametrize("similarity", ["dot", "cosine", "euclidean"])
def test_nothing_depends_on_data(similarity: str, propagation: Any) -> None:
    """Meta tensors have no values: any look at one, which would stop a GPU, raises."""
    z = torch.empty(20, 8, device="meta", requires_grad=True)
    labels = torch.empty(8, dtype=torch.long, device="meta")
    loss = cclp.cclp_loss(
        z[:8], labels, z[8:], num_classes=3, similarity=similarity, propagation=propagation
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.device.type == "meta"
    assert z.grad is not None
    assert z.grad.shape == (20, 8)


# --- the module ---


def test_module_holds_settings_and_weight_multiplies() -> None:
    batch = random_batch(18)
    options = {"chain_steps": 2, "similarity": "cosine", "temperature": 0.3}
    module = cclp.CCLPLoss(3, weight=0.25, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(module(*batch[:3]), 0.25 * _loss(batch, **options))
    assert "chain_steps=2" in repr(module)
    assert list(module.parameters()) == []


def test_module_can_be_copied_and_pickled() -> None:
    batch = random_batch(24, dtype=torch.float32)
    settings: list[dict[str, Any]] = [
        {},
        {"similarity": "euclidean", "bandwidth": torch.ones(4)},
        {"similarity": "euclidean", "bandwidth": torch.ones(4), "learn_bandwidth": True},
    ]
    for setting in settings:
        module = cclp.CCLPLoss(3, **setting)
        for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            torch.testing.assert_close(other(*batch[:3]), module(*batch[:3]), rtol=0, atol=0)


def test_bandwidth_is_not_shared_with_the_caller() -> None:
    batch = random_batch(25, dtype=torch.float32)
    bandwidth = torch.ones(4)
    module = cclp.CCLPLoss(3, similarity="euclidean", bandwidth=bandwidth)
    before = module(*batch[:3])
    bandwidth.fill_(9)
    torch.testing.assert_close(module(*batch[:3]), before, rtol=0, atol=0)


def test_numbers_of_numpy_are_numbers() -> None:
    module = cclp.CCLPLoss(np.int64(3), chain_steps=np.int32(2), temperature=np.float32(0.5))  # type: ignore[arg-type]
    assert module.num_classes == 3


@pytest.mark.parametrize("bandwidth", [0.5, torch.tensor([0.5, 0.6, 0.7, 0.8])])
@pytest.mark.parametrize("make", [cclp.CCLPLoss, cclp.CCLPLoss.as_released])
def test_bandwidth_can_be_learned(make: Any, bandwidth: float | Tensor) -> None:
    batch = random_batch(19, dtype=torch.float32)
    module = make(3, similarity="euclidean", bandwidth=bandwidth, learn_bandwidth=True)
    fixed = make(3, similarity="euclidean", bandwidth=bandwidth)
    loss = module(*batch[:3])
    torch.testing.assert_close(loss, fixed(*batch[:3]), rtol=1e-6, atol=0)
    (parameter,) = module.parameters()
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        module(*batch[:3]).backward()
        assert parameter.grad.abs().min() > 0
        optimizer.step()
        assert (module.bandwidth > 0).all()
    assert module(*batch[:3]) < loss


def test_learned_bandwidth_has_the_right_gradient() -> None:
    batch = random_batch(20)

    def loss(bandwidth: Tensor) -> Tensor:
        return _loss(batch, similarity="euclidean", bandwidth=bandwidth)

    for value in (0.8, [0.5, 1.0, 1.5, 2.0]):
        leaf = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(loss, leaf)


def test_similarity_module_trains_with_the_loss() -> None:
    class Bilinear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = torch.nn.Parameter(torch.eye(4))

        def forward(self, z: Tensor) -> Tensor:
            return z @ self.matrix @ z.T

    batch = random_batch(21, dtype=torch.float32)
    module = cclp.CCLPLoss(3, similarity=Bilinear())
    module(*batch[:3]).backward()
    (matrix,) = module.parameters()
    assert matrix.grad is not None
    assert matrix.grad.abs().max() > 0


# --- the prior ---


def _prior(batch: Embedded, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = (len(batch.z_unlabeled), batch.num_classes)
    return torch.rand(*size, generator=generator, dtype=batch.z_labeled.dtype).softmax(1)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_a_prior_takes_its_share_of_the_posteriors(weight: float, steps: int) -> None:
    batch = random_batch(22)
    prior = _prior(batch)
    Z_L, Y_L, Z_U = batch.arrays
    H = reference.transition_matrix(reference.similarity(np.vstack([Z_L, Z_U]), "dot"))
    mixed = (1 - weight) * reference.propagate(H, Y_L) + weight * prior.numpy()
    phi = cclp.propagate_labels(
        *batch[:3], num_classes=3, prior=prior, prior_weight=weight, smoothing=0.0
    )
    np.testing.assert_allclose(phi.numpy(), mixed, rtol=1e-10)
    total = reference.cross_entropy_of_chains(H, np.vstack([Y_L, mixed]), steps, 0.0, 0.0)
    loss = _loss(batch, chain_steps=steps, prior=prior, prior_weight=weight, smoothing=0.0)
    assert loss.item() == pytest.approx(total / (steps * len(H)), rel=1e-10)


def test_gradients_beside_a_prior() -> None:
    z_labeled, labels, z_unlabeled, classes = batch = random_batch(23)
    prior = _prior(batch).requires_grad_()

    def loss(z_l: Tensor, z_u: Tensor) -> Tensor:
        return cclp.cclp_loss(z_l, labels, z_u, num_classes=classes, prior=prior, prior_weight=0.4)

    inputs = (z_labeled.requires_grad_(), z_unlabeled.requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs)
    torch.autograd.backward(loss(*inputs))
    assert prior.grad is None


def test_the_module_passes_a_prior_on() -> None:
    batch = random_batch(24)
    prior = _prior(batch)
    module = cclp.CCLPLoss(3, weight=2.0)
    expected = 2 * _loss(batch, prior=prior, prior_weight=0.5)
    torch.testing.assert_close(module(*batch[:3], prior, 0.5), expected)
    with pytest.raises(ValueError, match="prior must be None"):
        cclp.CCLPLoss.as_released(3)(*batch[:3], prior)


def test_a_prior_of_no_unlabeled_samples() -> None:
    batch = random_batch(25, unlabeled=0)
    torch.testing.assert_close(_loss(batch, prior=torch.zeros(0, 3)), _loss(batch))


# --- wrong input ---

Z = torch.zeros(4, 2)
Y = torch.tensor([0, 1, 0, 1])
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "label too large": ({"labels": torch.tensor([0, 1, 2, 1])}, ValueError, r"labels .*0 … 1.*2"),
    "label negative": ({"labels": torch.tensor([0, -1, 0, 1])}, ValueError, r"labels .*-1"),
    "float labels": ({"labels": torch.zeros(4)}, TypeError, r"labels .*integer.*float32"),
    "NaN labels": ({"labels": torch.full((4, 2), torch.nan)}, ValueError, r"labels.*nan"),
    "integer matrix": ({"labels": torch.ones(4, 2).long()}, TypeError, r"labels .*floating"),
    "rows off": ({"labels": torch.full((4, 2), 0.6)}, ValueError, r"labels.*sum to 1"),
    "zero rows": ({"labels": torch.zeros(4, 2).bfloat16()}, ValueError, r"labels.*off by 1"),
    "negative soft": ({"labels": torch.tensor([[1.5, -0.5]] * 4)}, ValueError, r"labels.*-0.5"),
    "too few labels": ({"labels": Y[:3]}, ValueError, r"labels .*\(4,\).*\(3,\)"),
    "labels no tensor": ({"labels": [0, 1, 0, 1]}, TypeError, r"labels .*list"),
    "labels elsewhere": ({"labels": Y.to("meta")}, ValueError, r"labels .*device.*cpu.*meta"),
    "features": ({"z_unlabeled": torch.zeros(4, 3)}, ValueError, r"z_unlabeled .*2.*got 3"),
    "dtypes": ({"z_unlabeled": Z.double()}, ValueError, r"z_unlabeled .*float32.*float64"),
    "devices": ({"z_unlabeled": Z.to("meta")}, ValueError, r"z_unlabeled .*cpu.*meta"),
    "1-D": ({"z_labeled": torch.zeros(4)}, ValueError, r"z_labeled .*shape.*\(4,\)"),
    "no features": ({"z_labeled": Z[:, :0]}, ValueError, r"z_labeled .*\(4, 0\)"),
    "3-D": ({"z_unlabeled": torch.zeros(4, 2, 1)}, ValueError, r"z_unlabeled .*\(4, 2, 1\)"),
    "integers": ({"z_labeled": Z.long()}, TypeError, r"z_labeled .*int64"),
    "no tensor": ({"z_labeled": [[0.0]]}, TypeError, r"z_labeled .*list"),
    "no labeled": ({"z_labeled": Z[:0], "labels": Y[:0]}, ValueError, r"z_labeled .*at least one"),
    "steps": ({"chain_steps": 0}, ValueError, r"chain_steps .*at least 1, got 0"),
    "steps float": ({"chain_steps": 2.0}, TypeError, r"chain_steps .*integer.*float"),
    "similarity": ({"similarity": "dott"}, ValueError, r"similarity .*'dot'.*'dott'"),
    "similarity shape": ({"similarity": lambda z: z}, ValueError, r"similarity.*\(8, 8\).*, 2\)"),
    "similarity type": ({"similarity": lambda z: 1.0}, TypeError, r"similarity.*float"),
    "temperature": ({"temperature": 0.0}, ValueError, r"temperature .*above 0.*0.0"),
    "temperature NaN": ({"temperature": math.nan}, ValueError, r"temperature .*nan"),
    "temperature text": ({"temperature": "1"}, TypeError, r"temperature .*str"),
    "bandwidth": ({"bandwidth": -1.0}, ValueError, r"bandwidth .*-1.0"),
    "bandwidth zero": ({"bandwidth": torch.tensor([1.0, 0.0])}, ValueError, r"bandwidth .*0"),
    "bandwidth size": (
        {"bandwidth": torch.ones(3), "similarity": "euclidean"}, ValueError, r"bandwidth .*\(3,\)",
    ),
    "bandwidth shape": ({"bandwidth": torch.ones(2, 2)}, ValueError, r"bandwidth .*\(2, 2\)"),
    "classes": ({"num_classes": 1}, ValueError, r"num_classes .*at least 2, got 1"),
    "normalization": ({"normalization": "n"}, ValueError, r"normalization .*'nodes'.*'n'"),
    "propagation": ({"propagation": "x"}, ValueError, r"propagation .*'harmonic'.*'x'"),
    "smoothing": ({"smoothing": 1.0}, ValueError, r"smoothing .*1.0"),
    "prior no tensor": ({"prior": [1]}, TypeError, r"prior .*list"),
    "prior shape": ({"prior": Z[:3]}, ValueError, r"prior .*\(4, 2\).*\(3, 2\)"),
    "prior integers": ({"prior": Z.long()}, ValueError, r"prior .*floating-point.*int64"),
    "prior rows": ({"prior": Z}, ValueError, r"prior: .*sum to 1.*off by 1"),
    "prior elsewhere": ({"prior": Z.to("meta")}, ValueError, r"prior .*device.*cpu.*meta"),
    "prior weight": (
        {"prior": Z + 0.5, "prior_weight": 1.5}, ValueError, r"prior_weight .*at most 1, got 1.5",
    ),
    "prior weight negative": (
        {"prior": Z + 0.5, "prior_weight": -1}, ValueError, r"prior_weight .*at least 0, got -1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_named(case: str) -> None:
    change, error, message = WRONG[case]
    arguments: dict[str, Any] = {"z_labeled": Z, "labels": Y, "z_unlabeled": Z, "num_classes": 2}
    arguments |= change
    with pytest.raises(error, match=message):
        cclp.cclp_loss(**arguments)
    data = ("z_labeled", "labels", "z_unlabeled", "prior", "prior_weight")
    setting = {k: v for k, v in change.items() if k not in data}
    in_call = case in ("similarity shape", "similarity type", "bandwidth size")
    if setting and not in_call:
        with pytest.raises(error, match=message):
            cclp.CCLPLoss(**{"num_classes": 2, **setting})


def test_wrong_settings_of_the_module_are_named() -> None:
    with pytest.raises(ValueError, match=r"learn_bandwidth.*euclidean.*'dot'"):
        cclp.CCLPLoss(2, learn_bandwidth=True)
    with pytest.raises(ValueError, match=r"weight .*inf"):
        cclp.CCLPLoss(2, weight=math.inf)
    with pytest.raises(TypeError, match="smoothing"):
        cclp.CCLPLoss.as_released(2, smoothing=0.1)
