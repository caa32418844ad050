"""Diagnostics: numbers that are right, warnings that fire when they should and only then."""

import math

import pytest
import torch

import cclp
from cclp.loss.health import LIMITS, GraphHealth
from tests.batches import compact_batch, random_batch


def codes(health: GraphHealth) -> list[str]:
    return [warning.code for warning in health.warnings()]


def test_healthy_batch() -> None:
    batch = compact_batch(classes=4, per_class=10, labeled_per_class=3, norm=4.0)
    health = cclp.graph_health(*batch[:3], num_classes=4)
    assert health.self_transition == pytest.approx(1 / 10, rel=1e-5)
    assert health.posterior_entropy == pytest.approx(0, abs=1e-4)
    assert health.smallest_class_mass == pytest.approx(1, rel=1e-5)
    assert health.largest_class_mass == pytest.approx(1, rel=1e-5)
    assert health.largest_excess == 0
    assert 1 <= health.moves_to_label < 10
    assert health.distance_to_ideal == pytest.approx(0, abs=1e-4)
    assert health.warnings() == []
    assert all(isinstance(value, float) for value in health)


def test_distance_to_ideal_is_loss_minus_entropy_of_t() -> None:
    """All points in one spot: the loss is ln N + ½(S-1) ln C, T of soft labels is uniform."""
    z = torch.zeros(12, 2, dtype=torch.float64)
    labels = torch.full((12, 3), 1 / 3).double()
    health = cclp.graph_health(z, labels, None, num_classes=3, chain_steps=5)
    assert health.distance_to_ideal == pytest.approx(2 * math.log(3), rel=1e-6)


@pytest.mark.parametrize(
    ("classes", "labeled_per_class", "unlabeled"),
    [(2, 1, 198), (10, 10, 100), (2, 50, 60), (2, 30, 20)],
)
def test_collapse_into_one_class_warns(
    classes: int, labeled_per_class: int, unlabeled: int
) -> None:
    """The loss is at its ideal, so the distance shows nothing."""
    labels = torch.arange(classes).repeat(labeled_per_class)
    corners = 8 * torch.eye(classes)
    health = cclp.graph_health(
        corners[labels], labels, corners[:1].repeat(unlabeled, 1), num_classes=classes
    )
    assert health.distance_to_ideal == pytest.approx(0, abs=1e-3)
    n = len(labels) + unlabeled
    assert health.smallest_class_mass == pytest.approx(labeled_per_class * classes / n, rel=1e-4)
    assert health.largest_class_mass == pytest.approx(
        (labeled_per_class + unlabeled) * classes / n, rel=1e-4
    )
    assert codes(health) == ["collapsed"]


def test_collapse_into_two_classes_warns() -> None:
    labels = torch.arange(10).repeat(10)
    corners = 8 * torch.eye(10)
    health = cclp.graph_health(corners[labels], labels, corners[:2].repeat(50, 1), num_classes=10)
    # Half the unlabeled mass each, less a tenth for its labels and 0.09 for chance, of 0.9.
    assert health.largest_excess == pytest.approx((0.5 - 0.1 - 0.09) / 0.9, rel=1e-4)
    assert codes(health) == ["collapsed"]


def test_balanced_chance_does_not_warn() -> None:
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        for classes in (2, 10):
            labels = torch.arange(classes).repeat(10)
            for unlabeled in (1, 3, 30, 100):
                rest = torch.randint(classes, (unlabeled,), generator=generator)
                corners = 4 * torch.eye(classes)
                health = cclp.graph_health(
                    corners[labels], labels, corners[rest], num_classes=classes
                )
                assert health.warnings() == []


def test_isolated_points_warn() -> None:
    batch = random_batch(0, scale=20.0, features=64, dtype=torch.float32)
    health = cclp.graph_health(*batch[:3], num_classes=3)
    assert health.self_transition > 0.99
    assert "isolated" in codes(health)


def test_uniform_posteriors_warn() -> None:
    z = torch.zeros(30, 4)
    health = cclp.graph_health(z[:6], torch.arange(6) % 3, z[6:], num_classes=3)
    assert health.posterior_entropy == pytest.approx(1, rel=1e-5)
    assert codes(health) == ["uncertain"]


def test_unreachable_points_warn() -> None:
    generator = torch.Generator().manual_seed(0)
    axes = 30 * torch.eye(3)
    group = axes[2] + 0.1 * torch.randn(20, 3, generator=generator)
    health = cclp.graph_health(axes[:2], torch.tensor([0, 1]), group, num_classes=2)
    assert health.moves_to_label == 1e18
    assert "unreachable" in codes(health)


def test_single_class_and_absent_classes_are_fine() -> None:
    batch = compact_batch(classes=2, per_class=8, labeled_per_class=3, norm=4.0)
    health = cclp.graph_health(*batch[:3], num_classes=7)
    assert health.smallest_class_mass == pytest.approx(1, rel=1e-5)
    one = cclp.graph_health(batch.z_labeled[::2], torch.zeros(3).long(), None, num_classes=2)
    assert (one.smallest_class_mass, one.posterior_entropy, one.moves_to_label) == (1.0, 0.0, 0.0)
    assert one.warnings() == []


@pytest.mark.parametrize("name", LIMITS)
def test_each_limit_has_a_warning_of_its_own(name: str) -> None:
    well = GraphHealth(*[0.0] * len(GraphHealth._fields))
    assert well._replace(**{name: LIMITS[name]}).warnings() == []
    (warning,) = well._replace(**{name: 1.5 * LIMITS[name]}).warnings()
    assert str(warning) == f"{warning}" == warning.message
    other = [n for n in LIMITS if n != name]
    rest = well._replace(**{n: 1.5 * LIMITS[n] for n in other})
    assert warning.code not in codes(rest)
    assert len(codes(rest)) == len(other)
