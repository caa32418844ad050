"""Free points in two dimensions: layouts, forces, and what is measured of them."""

import math
from collections.abc import Callable

import pytest
import torch

from cclp.experiments.toy import points as toy
from cclp.experiments.toy.points import Layout, Moment

LAYOUTS: list[Callable[[int, float], Layout]] = [toy.circles, toy.moons, toy.arc]


def line(points: int = 40) -> Layout:
    """Two parallel lines along x, the first point of each labeled."""
    x = torch.arange(points // 2, dtype=torch.float64)
    z = torch.cat([torch.stack([x, torch.full_like(x, y)], 1) for y in (0.0, 5.0)])
    classes = torch.arange(2).repeat_interleave(points // 2)
    return Layout(z, classes, torch.tensor([0, points // 2]), torch.zeros(2, 3).double())


@pytest.mark.parametrize("make", LAYOUTS)
def test_layouts(make: Callable[[int, float], Layout]) -> None:
    layout = make(3, 0.02)
    assert layout.z.shape == (200, 2)
    assert layout.z.dtype == torch.float64
    assert layout.classes[layout.labeled].tolist() == [0, 1]
    assert sorted([*layout.labeled.tolist(), *layout.unlabeled.tolist()]) == list(range(200))
    again, other = make(3, 0.02), make(4, 0.02)
    assert torch.equal(layout.z, again.z)
    assert torch.equal(layout.classifier, again.classifier)
    assert not torch.equal(layout.z, other.z)


@pytest.mark.parametrize(("make", "classes"), [*((make, 2) for make in LAYOUTS), (toy.blobs, 3)])
def test_layouts_of_any_number_of_points(make: Callable[..., Layout], classes: int) -> None:
    layout = make(0, 0.1, 31)
    assert len(layout.z) == 30
    assert layout.classes.bincount().tolist() == [30 // classes] * classes
    assert layout.classes[layout.labeled].tolist() == list(range(classes))
    assert layout.classifier.shape == (classes, 3)


def test_circles_are_circles() -> None:
    layout = toy.circles(0, 0.0)
    radius = layout.z.norm(dim=1)
    torch.testing.assert_close(radius[layout.classes == 0], torch.ones(100).double())
    torch.testing.assert_close(radius[layout.classes == 1], torch.full((100,), 0.5).double())


def test_a_descent_is_gradient_descent() -> None:
    """On ½‖z‖² each step is a factor, but for the pull of supervision on labeled points."""
    layout = line()
    moments = list(toy.descend(layout, lambda _, z, w: z.square().sum() / 2, 0.1, iterations=3))
    assert [moment.iteration for moment in moments] == [0, 1, 2, 3]
    free = layout.unlabeled
    torch.testing.assert_close(moments[3].z[free], 0.9**3 * layout.z[free])
    torch.testing.assert_close(moments[0].regulariser, -layout.z)
    assert (moments[1].supervised[free] == 0).all()
    # two logits of 0: half of what is missing pulls, shared by two labeled points
    pull = moments[1].classifier[:, :2] / 0.1
    expected = 0.25 * (layout.z[layout.labeled[0]] - layout.z[layout.labeled[1]])
    torch.testing.assert_close(pull, torch.stack([expected, -expected]))


def test_entropy_moves_the_classifier_too_and_cclp_does_not() -> None:
    layout = toy.moons(0, 0.05)
    arguments = layout, layout.z, layout.classifier
    assert toy.forces(*arguments, toy.certain)[2].abs().max() > 0
    loss, on_points, on_classifier = toy.forces(*arguments, toy.compact(3))
    assert loss > math.log(100)
    assert on_points.abs().max() > 0
    assert (on_classifier == 0).all()


def test_opposition_is_counted_by_side() -> None:
    layout = line()
    classifier = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]).double()  # all are of class 1
    forces = torch.zeros(2, 40, 2).double()
    supervised, regulariser = forces
    supervised[layout.labeled] = torch.tensor([0.0, 1.0]).double()
    regulariser[layout.labeled] = torch.tensor([[1.0, -1.0], [0.0, 1.0]]).double()
    counts = toy.Opposition()
    still = torch.zeros_like(classifier)
    counts.count(layout, Moment(0, layout.z, classifier, 0.0, supervised, regulariser, still))
    assert counts.to_json() == {
        "wrong_side": {"opposed": 1, "of": 1},
        "right_side": {"opposed": 0, "of": 1},
    }


@pytest.mark.parametrize(("angle", "share"), [(0.0, 1.0), (math.pi / 2, 0.0), (math.pi / 3, 0.5)])
def test_share_along_the_manifold(angle: float, share: float) -> None:
    layout = line()
    sizes = torch.arange(1, 41).double()[:, None]
    force = sizes * torch.tensor([math.cos(angle), math.sin(angle)]).double()
    assert toy.along_manifold(layout, layout.z, force) == pytest.approx(share, abs=1e-6)


def test_agreement_of_directions() -> None:
    layout = line()
    same = torch.arange(1, 41).double()[:, None] * torch.tensor([3.0, 4.0]).double()
    torch.testing.assert_close(toy.agreement(layout.z, same), torch.ones(40).double())
    mixed = same * torch.tensor([1.0, -1.0]).double().repeat(20)[:, None]
    assert toy.agreement(layout.z, mixed).max() < 0.25


def test_posteriors_keep_the_given_labels() -> None:
    layout = toy.arc(0, 0.03)
    phi = toy.posteriors(layout, layout.z)
    torch.testing.assert_close(phi.sum(1), torch.ones(200).double())
    assert phi[layout.labeled].tolist() == [[1, 0], [0, 1]]
    middle = phi[90:110, 1]
    assert ((middle > 0.2) & (middle < 0.8)).all()
