"""The loss with walks over the nearest points only: ``neighbours=k``."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import cclp
from cclp.loss import sparse
from tests import reference
from tests.batches import Embedded, compact_batch, random_batch

SIMILARITIES: list[dict[str, Any]] = [
    {"similarity": "dot"},
    {"similarity": "cosine", "temperature": 0.5},
    {"similarity": "euclidean", "bandwidth": 1.5},
    {"similarity": "euclidean", "bandwidth": torch.tensor([0.5, 1.0, 1.5, 2.0]).double()},
]


def loss_of(batch: Embedded, **options: Any) -> Tensor:
    z_labeled, labels, z_unlabeled, classes = batch
    return cclp.cclp_loss(z_labeled, labels, z_unlabeled, num_classes=classes, **options)


def with_gradient(batch: Embedded, **options: Any) -> tuple[float, Tensor]:
    """The loss, and its derivative in all embeddings."""
    z = torch.cat([batch.z_labeled, batch.z_unlabeled]).requires_grad_()
    n_l = len(batch.labels)
    loss = loss_of(batch._replace(z_labeled=z[:n_l], z_unlabeled=z[n_l:]), **options)
    (gradient,) = torch.autograd.grad(loss, z)
    return loss.item(), gradient


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("options", SIMILARITIES, ids=str)
def test_walks_go_over_the_nearest_points(options: dict[str, Any], steps: int) -> None:
    for seed, unlabeled, k in ((0, 12, 4), (1, 1, 2), (2, 20, 7)):
        batch = random_batch(seed, unlabeled=unlabeled)
        found = loss_of(batch, chain_steps=steps, neighbours=k, smoothing=1e-3, **options)
        bandwidth = options.get("bandwidth", 1.0)
        expected = reference.cclp_over_neighbours(
            *batch.arrays, steps, k, 1e-3,
            kind=options["similarity"], temperature=options.get("temperature", 1.0),
            bandwidth=bandwidth.numpy() if isinstance(bandwidth, Tensor) else bandwidth,
        )  # fmt: skip
        assert found.item() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("options", SIMILARITIES, ids=str)
def test_over_all_points_it_is_the_whole_graph(options: dict[str, Any], steps: int) -> None:
    for seed, unlabeled in ((0, 12), (2, 0)):
        batch = random_batch(seed, unlabeled=unlabeled)
        options = {**options, "chain_steps": steps, "smoothing": 1e-8}
        whole, gradient = with_gradient(batch, **options)
        for neighbours in (len(gradient) - 1, 1000):
            found, own = with_gradient(batch, neighbours=neighbours, **options)
            assert found == pytest.approx(whole, rel=1e-7)
            torch.testing.assert_close(own, gradient, rtol=1e-6, atol=1e-7)


def test_soft_labels_a_prior_and_constant_posteriors_are_as_in_the_whole_graph() -> None:
    batch = random_batch(4)
    n = len(batch.z_labeled) + len(batch.z_unlabeled)
    soft = torch.softmax(torch.randn(9, 3, generator=torch.Generator().manual_seed(0)).double(), 1)
    prior = torch.full((12, 3), 1 / 3).double()
    for options in (
        {"prior": prior, "prior_weight": 0.3},
        {"detach_posteriors": True},
        {"normalization": "pairs"},
    ):
        given: dict[str, Any] = {**options, "smoothing": 1e-8}
        for made in (batch, batch._replace(labels=soft)):
            whole, gradient = with_gradient(made, **given)
            found, own = with_gradient(made, neighbours=n - 1, **given)
            assert found == pytest.approx(whole, rel=1e-7)
            torch.testing.assert_close(own, gradient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", SIMILARITIES, ids=str)
def test_its_gradient_is_that_of_the_sparse_graph(options: dict[str, Any]) -> None:
    batch, h = random_batch(5, labeled=6, unlabeled=18), 1e-4
    _, gradient = with_gradient(batch, neighbours=5, **options)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        way = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
        there, back = (
            loss_of(
                batch._replace(
                    z_labeled=batch.z_labeled + step * way[:6],
                    z_unlabeled=batch.z_unlabeled + step * way[6:],
                ),
                neighbours=5,
                **options,
            ).item()
            for step in (h, -h)
        )
        assert (there - back) / (2 * h) == pytest.approx((gradient * way).sum().item(), rel=1e-4)


def test_a_learned_bandwidth_has_the_same_gradient() -> None:
    batch = random_batch(6)
    found = []
    for neighbours in (None, 20):
        loss = cclp.CCLPLoss(
            3, similarity="euclidean", bandwidth=1.3, learn_bandwidth=True, smoothing=1e-8,
            neighbours=neighbours,
        )  # fmt: skip
        assert loss.log_bandwidth is not None
        loss(*batch[:3]).backward()
        assert loss.log_bandwidth.grad is not None
        found.append(loss.log_bandwidth.grad.item())
    assert found[1] == pytest.approx(found[0], rel=1e-5)


def test_where_classes_are_clusters_few_neighbours_are_enough() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(4, size=400)
    z = 5 * np.eye(4)[classes] + 0.5 * rng.normal(size=(400, 4))
    z_all, labels = torch.from_numpy(z).float(), torch.from_numpy(classes)
    batch = Embedded(z_all[:40], labels[:40], z_all[40:], 4)
    whole, gradient = with_gradient(batch)
    errors, angles = [], []
    for neighbours in (5, 20, 80):
        found, own = with_gradient(batch, neighbours=neighbours)
        errors.append(abs(found / whole - 1))
        angles.append(1 - torch.cosine_similarity(own.flatten(), gradient.flatten(), dim=0).item())
        assert own.dtype == torch.float32
    assert max(errors) < 0.05
    assert errors[0] > errors[1] > errors[2]
    assert max(angles) < 0.05


def test_compact_classes_reach_the_optimum() -> None:
    batch = compact_batch(classes=3, per_class=8, labeled_per_class=2, norm=6.0)
    assert loss_of(batch, neighbours=3).item() == pytest.approx(np.log(24 / 3), rel=1e-4)


def test_no_island_is_without_labels() -> None:
    """The nearest neighbours of all points of the second cluster are in it; no label is."""
    z = torch.tensor(
        [[4.0, 0], [0, 1.0], [4.1, 0], [4.2, 0], [0, 4.0], [0, 4.1], [0, 4.2]]
    ).double()
    batch = Embedded(z[:2], torch.tensor([0, 1]), z[2:], 2)
    few, whole = loss_of(batch, neighbours=2).item(), loss_of(batch).item()
    assert abs(few - whole) < 1  # 7.7 against 3.5 where points out of reach have the mean label


def clusters(scale: float, n: int = 60, classes: int = 10) -> Embedded:
    """Points around the axes; a tenth of them, but one of each class at least, is labeled."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    z = 0.3 * torch.randn(n, 128, generator=generator) + 5 * torch.eye(128)[y]
    n_l = max(n // 10, classes)
    return Embedded(scale * z[:n_l], y[:n_l], scale * z[n_l:], classes)


@pytest.mark.parametrize("scale", [1.0, 2.0, 3.0])
def test_at_large_norms_it_is_the_whole_graph_too(scale: float) -> None:
    """Up to 18; at 12 a walk meets a label after 10^5 moves."""
    batch = clusters(scale)
    whole, gradient = with_gradient(batch)
    found, own = with_gradient(batch, neighbours=59)
    assert found == pytest.approx(whole, rel=1e-4)
    torch.testing.assert_close(own, gradient, rtol=1e-3, atol=1e-4 * gradient.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_embeddings_come_in_any_precision(dtype: torch.dtype) -> None:
    batch = random_batch(10, dtype=dtype)
    whole, gradient = with_gradient(batch, smoothing=1e-8)
    found, own = with_gradient(batch, neighbours=20, smoothing=1e-8)
    assert found == pytest.approx(whole, rel=1e-5)
    assert own.dtype == dtype
    torch.testing.assert_close(own, gradient, rtol=2e-2, atol=1e-5)


def test_points_at_the_origin_and_duplicates() -> None:
    batch = random_batch(11)
    z = batch.z_unlabeled.clone()
    z[0] = 0
    z[1] = z[2] = z[3]
    for options in ({"similarity": "cosine"}, {"similarity": "euclidean"}, {}):
        given: dict[str, Any] = {**options, "smoothing": 1e-8}
        whole, gradient = with_gradient(batch._replace(z_unlabeled=z), **given)
        found, own = with_gradient(batch._replace(z_unlabeled=z), neighbours=20, **given)
        assert found == pytest.approx(whole, rel=1e-6)
        torch.testing.assert_close(own, gradient, rtol=1e-5, atol=1e-6)


def test_what_is_not_finite_is_not_hidden() -> None:
    batch = random_batch(12)
    z = batch.z_unlabeled.clone()
    z[4, 0] = torch.nan
    assert loss_of(batch._replace(z_unlabeled=z), neighbours=5).isnan()


def test_beyond_its_range_it_is_finite() -> None:
    found, gradient = with_gradient(clusters(30.0), neighbours=5)
    assert np.isfinite(found)
    assert gradient.isfinite().all()


def test_only_one_side_may_learn() -> None:
    batch = random_batch(13)
    _, both = with_gradient(batch, neighbours=6)
    z = batch.z_unlabeled.clone().requires_grad_()
    (alone,) = torch.autograd.grad(loss_of(batch._replace(z_unlabeled=z), neighbours=6), z)
    torch.testing.assert_close(alone, both[9:])


def test_functional_gradients_work() -> None:
    batch = random_batch(14)
    _, expected = with_gradient(batch, neighbours=6)
    found = torch.func.grad(lambda z: loss_of(batch._replace(z_unlabeled=z), neighbours=6))(
        batch.z_unlabeled
    )
    torch.testing.assert_close(found, expected[9:])


def test_parts_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = random_batch(15, unlabeled=30)
    whole, gradient = with_gradient(batch, neighbours=6)
    monkeypatch.setattr(sparse, "ENTRIES", 100)  # two rows, or columns, at a time
    found, own = with_gradient(batch, neighbours=6)
    assert found == pytest.approx(whole, rel=1e-12)
    torch.testing.assert_close(own, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("smoothing", [None, 1e-8, 1e-2])
def test_iterations_find_what_a_factorisation_does(
    monkeypatch: pytest.MonkeyPatch, smoothing: float | None
) -> None:
    batch = random_batch(16, unlabeled=40)
    whole, gradient = with_gradient(batch, neighbours=8, smoothing=smoothing)
    monkeypatch.setattr(sparse, "DIRECT", 0)
    found, own = with_gradient(batch, neighbours=8, smoothing=smoothing)
    assert found == pytest.approx(whole, rel=1e-7)
    torch.testing.assert_close(own, gradient, rtol=1e-5, atol=1e-7)


def test_iterations_that_do_not_arrive_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = clusters(4.0)
    monkeypatch.setattr(sparse, "DIRECT", 0)
    with pytest.warns(UserWarning, match=r"labels are propagated with smoothing=0\.01"):
        found, own = with_gradient(batch, neighbours=5)
    assert np.isfinite(found)
    assert own.isfinite().all()
    with pytest.raises(ValueError, match=r"labels do not arrive .* with smoothing=1e-12"):
        loss_of(batch, neighbours=5, smoothing=1e-12)
    jump = 1e-2  # asked for, so there is no other
    monkeypatch.setattr(sparse, "DIRECT", 4000)
    _, expected = with_gradient(batch, neighbours=5, smoothing=jump)
    monkeypatch.setattr(sparse, "DIRECT", 0)
    _, own = with_gradient(batch, neighbours=5, smoothing=jump)
    torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)


def test_without_gradient_it_is_the_same_value() -> None:
    batch = random_batch(7)
    with torch.no_grad():
        plain = loss_of(batch, neighbours=4)
    assert plain.item() == with_gradient(batch, neighbours=4)[0]
    assert not plain.requires_grad


def test_second_derivatives_are_refused() -> None:
    batch = random_batch(8)
    z = batch.z_unlabeled.clone().requires_grad_()
    loss = loss_of(batch._replace(z_unlabeled=z), neighbours=4)
    with pytest.raises(RuntimeError, match="second derivatives are not implemented"):
        torch.autograd.grad(loss, z, create_graph=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbours": 0}, "neighbours must be at least 1, got 0"),
        ({"neighbours": 2.5}, "neighbours must be an integer"),
        ({"neighbours": 2, "similarity": lambda z: z @ z.T}, "neighbours needs a built-in"),
        ({"neighbours": 2, "propagation": "symmetric"}, "neighbours needs propagation='harmonic'"),
    ],
)
def test_what_it_cannot_do_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        cclp.CCLPLoss(3, **options)
    with pytest.raises((ValueError, TypeError), match=message):
        loss_of(random_batch(9), **options)


def test_the_originals_have_no_neighbours() -> None:
    for make in (cclp.CCLPLoss.as_released, cclp.CCLPLoss.as_printed):
        with pytest.raises(TypeError, match="neighbours"):
            make(3, neighbours=5)


def test_a_bandwidth_is_checked_as_in_the_whole_graph() -> None:
    batch = random_batch(17, dtype=torch.float32)
    for bandwidth, message in ((torch.ones(3), "one per feature"), (1e-30, "must be larger")):
        with pytest.raises(ValueError, match=f"bandwidth must .*{message.split()[-1]}"):
            loss_of(batch, neighbours=4, similarity="euclidean", bandwidth=bandwidth)
