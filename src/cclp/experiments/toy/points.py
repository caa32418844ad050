"""Points that move freely in two dimensions: the paper's Section 4.

There is no network. The embedding Z itself descends the supervised loss of a linear classifier plus
one regulariser, so that the forces of each can be seen apart. A force is minus a gradient.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import cclp
from cclp.loss.health import GraphHealth
from cclp.methods.entropy import mean_entropy

POINTS, CLASSES = 200, 2
ITERATIONS, STEP_SIZE = 600, 0.05
GRAPH: dict[str, Any] = {"num_classes": CLASSES, "similarity": "euclidean", "bandwidth": 0.15}
NEIGHBOURS = 10  # that make up a point's surroundings


class Layout(NamedTuple):
    """Where a descent begins.

    Attributes:
        z: points, (N, 2), float64: rounding must not decide what becomes of them.
        classes: (N,).
        labeled: indices of labeled points, (N_L,); of the layouts here, one of each class.
        classifier: first weights of the linear classifier, bias last, (C, 3).
    """

    z: Tensor
    classes: Tensor
    labeled: Tensor
    classifier: Tensor

    @property
    def unlabeled(self) -> Tensor:
        """Indices of all other points."""
        rest = torch.ones(len(self.z), dtype=torch.bool)
        rest[self.labeled] = False
        return rest.nonzero().squeeze(1)


class Moment(NamedTuple):
    """An iteration of a descent, before its step.

    Attributes:
        iteration: 0 is the beginning.
        z: points, (N, 2).
        classifier: weights, (C, 3).
        loss: of the regulariser.
        supervised: forces of the supervised loss, (N, 2); on unlabeled points there is none.
        regulariser: forces of the regulariser, (N, 2).
        on_classifier: forces of both, (C, 3).
    """

    iteration: int
    z: Tensor
    classifier: Tensor
    loss: float
    supervised: Tensor
    regulariser: Tensor
    on_classifier: Tensor

    def moved(self, step_size: float) -> tuple[Tensor, Tensor]:
        """Points and classifier after a step of gradient descent."""
        return (
            self.z + step_size * (self.supervised + self.regulariser),
            self.classifier + step_size * self.on_classifier,
        )


Regulariser = Callable[[Layout, Tensor, Tensor], Tensor]  # layout, points, classifier -> loss


def circles(seed: int, noise: float, points: int = POINTS) -> Layout:
    """Two concentric circles, of radius 1 and 0.5."""
    angle = 2 * math.pi * torch.arange(points // 2, dtype=torch.float64) / (points // 2)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    return _layout(torch.cat([circle, 0.5 * circle]), noise=noise, seed=seed)


def moons(seed: int, noise: float, points: int = POINTS) -> Layout:
    """Two half circles that reach into each other."""
    angle = torch.linspace(0, math.pi, points // 2, dtype=torch.float64)
    upper = torch.stack([angle.cos(), angle.sin()], 1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], 1)
    return _layout(torch.cat([upper, lower]), noise=noise, seed=seed)


def arc(seed: int, noise: float, points: int = POINTS) -> Layout:
    """One half circle, its ends labeled differently: where one class becomes the other is open."""
    angle = torch.linspace(math.pi, 0, points // 2 * 2, dtype=torch.float64)
    places = torch.stack([angle.cos(), angle.sin()], 1)
    return _layout(places, noise=noise, seed=seed, labeled=[0, len(places) - 1])


def blobs(seed: int, noise: float, points: int = POINTS) -> Layout:
    """Three clouds around the origin, a class each."""
    angle = math.pi * (0.5 + 2 * torch.arange(3, dtype=torch.float64) / 3)
    centres = torch.stack([angle.cos(), angle.sin()], 1)
    places = centres.repeat_interleave(points // 3, dim=0)
    return _layout(places, noise=noise, seed=seed, num_classes=3)


def _layout(
    points: Tensor,
    noise: float,
    seed: int,
    labeled: list[int] | None = None,
    num_classes: int = CLASSES,
) -> Layout:
    """Noise on the points, labels at random places unless they are given, random weights."""
    generator = torch.Generator().manual_seed(seed)
    z = points + noise * torch.randn(points.shape, generator=generator, dtype=points.dtype)
    share = len(points) // num_classes
    classes = torch.arange(num_classes).repeat_interleave(share)
    places = torch.randint(share, (num_classes,), generator=generator)
    places += torch.arange(num_classes) * share
    classifier = torch.randn(num_classes, 3, generator=generator, dtype=points.dtype)
    classifier[:, 2] = 0
    return Layout(z, classes, places if labeled is None else torch.tensor(labeled), classifier)


def compact(steps: int, graph: dict[str, Any] = GRAPH) -> Regulariser:
    """The CCLP loss with S = ``steps``."""

    def loss(layout: Layout, z: Tensor, classifier: Tensor) -> Tensor:
        return cclp.cclp_loss(*parts(layout, z), chain_steps=steps, **graph)

    return loss


def certain(layout: Layout, z: Tensor, classifier: Tensor) -> Tensor:
    """Conditional entropy (CER) of the classifier's predictions for all points.

    Differences from the paper: there it is of unlabeled points, which leaves labeled ones without a
    force of CER that could oppose supervision, as it is said to do.
    """
    return mean_entropy(logits(z, classifier))


def parts(layout: Layout, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The batch as the loss takes it: labeled points, their classes, unlabeled points."""
    return z[layout.labeled], layout.classes[layout.labeled], z[layout.unlabeled]


def logits(z: Tensor, classifier: Tensor) -> Tensor:
    """Of the linear classifier, (N, C)."""
    return F.linear(z, classifier[:, :2], classifier[:, 2])


def forces(
    layout: Layout, z: Tensor, classifier: Tensor, regulariser: Regulariser
) -> tuple[float, Tensor, Tensor]:
    """Loss of the regulariser, and its forces on points (N, 2) and classifier (C, 3)."""
    z, classifier = z.clone().requires_grad_(), classifier.clone().requires_grad_()
    loss = regulariser(layout, z, classifier)
    on_z, on_classifier = torch.autograd.grad(loss, (z, classifier), materialize_grads=True)
    return loss.item(), -on_z, -on_classifier


def supervision(layout: Layout, z: Tensor, classifier: Tensor) -> Tensor:
    """Cross entropy of the labeled points."""
    return F.cross_entropy(logits(z[layout.labeled], classifier), layout.classes[layout.labeled])


def descend(
    layout: Layout,
    regulariser: Regulariser,
    step_size: float = STEP_SIZE,
    iterations: int = ITERATIONS,
) -> Iterator[Moment]:
    """Gradient descent of points and classifier; gives every iteration, the last one included."""
    z, classifier = layout.z, layout.classifier
    for iteration in range(iterations + 1):
        _, supervised, on_classifier = forces(layout, z, classifier, supervision)
        loss, free, freely = forces(layout, z, classifier, regulariser)
        moment = Moment(iteration, z, classifier, loss, supervised, free, on_classifier + freely)
        yield moment
        z, classifier = moment.moved(step_size)


def accuracy(layout: Layout, moment: Moment) -> float:
    """Share of all points on their side of the classifier's boundary."""
    right = logits(moment.z, moment.classifier).argmax(1) == layout.classes
    return right.double().mean().item()


def health(layout: Layout, z: Tensor, steps: int, graph: dict[str, Any] = GRAPH) -> GraphHealth:
    """Of the graph over the points."""
    return cclp.graph_health(*parts(layout, z), chain_steps=steps, **graph)


def posteriors(layout: Layout, z: Tensor, graph: dict[str, Any] = GRAPH) -> Tensor:
    """Labels of all points, those of unlabeled ones propagated, (N, C)."""
    given = layout.classes[layout.labeled]
    phi = z.new_zeros(len(z), graph["num_classes"])
    phi[layout.labeled] = F.one_hot(given, graph["num_classes"]).to(z.dtype)
    phi[layout.unlabeled] = cclp.propagate_labels(*parts(layout, z), **graph)
    return phi


class Opposition:
    """How often the regulariser's force on a labeled point opposes that of supervision.

    Counted apart for points on the wrong side of the boundary, where supervision has something to
    put right, and for points on the right side, which it pulls outwards for ever.
    """

    def __init__(self) -> None:
        self.opposed = {"wrong_side": 0, "right_side": 0}
        self.steps = {"wrong_side": 0, "right_side": 0}

    def count(self, layout: Layout, moment: Moment) -> None:
        """Count one step."""
        at = layout.labeled
        wrong = logits(moment.z[at], moment.classifier).argmax(1) != layout.classes[at]
        against = (moment.supervised[at] * moment.regulariser[at]).sum(1) < 0
        for is_wrong, is_against in zip(wrong.tolist(), against.tolist(), strict=True):
            side = "wrong_side" if is_wrong else "right_side"
            self.steps[side] += 1
            self.opposed[side] += is_against

    def to_json(self) -> dict[str, dict[str, int]]:
        return {
            side: {"opposed": self.opposed[side], "of": self.steps[side]} for side in self.steps
        }


def surroundings(z: Tensor, classes: Tensor) -> Tensor:
    """Indices of each point's nearest of its class, itself among them, (N, neighbours)."""
    distance = torch.cdist(z, z).masked_fill(classes[:, None] != classes, math.inf)
    return distance.topk(NEIGHBOURS, largest=False).indices


def along_manifold(layout: Layout, z: Tensor, force: Tensor) -> float:
    """Share of the forces on unlabeled points that goes along the manifold: Σ |f·t| / Σ |f|.

    t is the local direction: the first principal axis of a point's surroundings in its class.
    Forces without any direction have a share of 2/π = 0.64.
    """
    near = z[surroundings(z, layout.classes)]
    near = near - near.mean(1, keepdim=True)
    direction = torch.linalg.eigh(near.mT @ near).eigenvectors[:, :, -1]
    along = (force * direction).sum(1).abs()[layout.unlabeled]
    return float(along.sum() / force[layout.unlabeled].norm(dim=1).sum())


def agreement(z: Tensor, force: Tensor) -> Tensor:
    """Length of the mean direction of the forces around each point, (N,): 1 if all agree."""
    unit = force / force.norm(dim=1, keepdim=True).clamp_min(1e-300)
    mean: Tensor = unit[surroundings(z, torch.zeros(len(z)))].mean(1)
    return mean.square().sum(1).sqrt()
