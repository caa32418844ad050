"""From a scene to all that a picture of it shows, by the functions of the package. No server."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

import cclp
from cclp.experiments.toy import points as toy
from cclp.experiments.toy.points import Moment
from cclp.lab.scene import FARTHEST, NONE, Scene
from cclp.loss.health import HealthWarning, ideal_loss

DIGITS = 5  # of what is only drawn
BEYOND = 4.0  # regions reach so many times as far as the points do


class Frame(NamedTuple):
    """A scene at one moment.

    Attributes:
        scene: with the points as they stand now.
        after: the scene one step of gradient descent later.
        posteriors: (N, C): propagated, or with the method "entropy" the classifier's.
        forces: of supervision, and of either method times its weight, (N, 2) each.
        losses: of the same three, without weight.
        masses: of the classes, by propagated labels, (C,).
        ideal: the smallest CCLP loss that these posteriors allow.
        warnings: of the graph; None if they were not asked for.
    """

    scene: Scene
    after: Scene
    posteriors: Tensor
    forces: dict[str, Tensor]
    losses: dict[str, float]
    masses: Tensor
    ideal: float
    warnings: list[HealthWarning] | None


class Term(NamedTuple):
    """A term of the loss: its value, its forces on points (N, 2) and classifier (C, 3)."""

    loss: float
    force: Tensor
    on_classifier: Tensor


def loss_terms(scene: Scene, names: tuple[str, ...]) -> dict[str, Term]:
    """Terms of the loss by name: "supervised", "cclp", "entropy"; without weights."""
    terms = {
        "supervised": toy.supervision,
        "cclp": toy.compact(scene.settings.chain_steps, scene.graph),
        "entropy": toy.certain,
    }
    layout = scene.layout
    return {
        name: Term(*toy.forces(layout, scene.z, scene.classifier, terms[name])) for name in names
    }


def step(scene: Scene, found: dict[str, Term]) -> Scene:
    """The scene after a step of gradient descent.

    Raises:
        ValueError: if it diverges, as too large a step does.
    """
    settings = scene.settings
    supervised, method = found["supervised"], found[settings.method]
    moment = Moment(
        iteration=0,
        z=scene.z,
        classifier=scene.classifier,
        loss=method.loss,
        supervised=supervised.force,
        regulariser=settings.weight * method.force,
        on_classifier=supervised.on_classifier + settings.weight * method.on_classifier,
    )
    z, classifier = moment.moved(settings.step_size)
    if not max(z.abs().max(), classifier.abs().max()) <= FARTHEST:
        raise ValueError("The descent diverges: take a smaller step size, or a smaller weight.")
    return replace(scene, z=z, classifier=classifier)


def compute_frame(scene: Scene, diagnose: bool = True) -> Frame:
    """Compute a frame; with a diagnosis of the graph, which is a tenth of the work."""
    graph, method = scene.graph, scene.settings.method
    found = loss_terms(scene, ("supervised", "cclp", "entropy"))
    weights = {"supervised": 1.0, "cclp": scene.settings.weight, "entropy": scene.settings.weight}
    propagated = toy.posteriors(scene.layout, scene.z, graph)
    by_classifier = toy.logits(scene.z, scene.classifier).softmax(1)
    return Frame(
        scene=scene,
        after=step(scene, found),
        posteriors=by_classifier if method == "entropy" else propagated,
        forces={name: weights[name] * term.force for name, term in found.items()},
        losses={name: term.loss for name, term in found.items()},
        masses=propagated.sum(0),
        ideal=ideal_loss(propagated).item(),
        # its warnings do not depend on the length of chains, and short ones are cheap
        warnings=toy.health(scene.layout, scene.z, 1, graph).warnings() if diagnose else None,
    )


def descend(scene: Scene, steps: int = 1) -> Scene:
    """The scene after some steps of gradient descent."""
    for _ in range(steps):
        scene = step(scene, loss_terms(scene, ("supervised", scene.settings.method)))
    return scene


def landmarks(scene: Scene) -> dict[str, float]:
    """CCLP losses to compare with: compact and balanced classes, and all points in one spot."""
    classes = len(set(scene.labels.tolist()) - {NONE})
    n = len(scene.z)
    return {
        "compact": math.log(n / classes),
        "one_spot": math.log(n) + (scene.settings.chain_steps - 1) / 2 * math.log(classes),
    }


def accuracy(scene: Scene) -> float | None:
    """Share of points of known class on their side of the linear boundary; None if there is none.

    A point that was added by hand has the class of its label, if it has one.
    """
    truth = torch.where(scene.truth == NONE, scene.labels, scene.truth)
    known = truth != NONE
    if not known.any():
        return None
    right = toy.logits(scene.z, scene.classifier).argmax(1) == truth
    return right[known].double().mean().item()


def transitions(scene: Scene, point: int) -> Tensor:
    """A row of H: where a walk goes from a point, (N,)."""
    metric = {"similarity": scene.settings.similarity, "bandwidth": scene.settings.bandwidth}
    return cclp.transition_matrix(scene.z, **metric)[point]  # type: ignore[arg-type]


def regions(scene: Scene) -> list[list[list[float]]]:
    """Decision regions of the linear classifier, by class: convex polygons, by their corners."""
    low, high = scene.z.amin(0), scene.z.amax(0)
    centre, reach = (low + high) / 2, BEYOND * float((high - low).max().clamp_min(1e-3))
    corners = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]]).double()
    box = (centre + reach * corners).tolist()
    found = []
    for c, own in enumerate(scene.classifier):
        polygon = box
        for other, weights in enumerate(scene.classifier):
            if other != c:
                polygon = _clip(polygon, (own - weights).tolist())
        found.append(polygon)
    return found


def _clip(polygon: list[list[float]], line: list[float]) -> list[list[float]]:
    """The part of a convex polygon where a x + b y + c ≥ 0 (Sutherland and Hodgman)."""
    a, b, c = line
    kept = []
    for (x0, y0), (x1, y1) in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        first, second = a * x0 + b * y0 + c, a * x1 + b * y1 + c
        if first >= 0:
            kept.append([x0, y0])
        if (first >= 0) != (second >= 0):
            t = first / (first - second)
            kept.append([x0 + t * (x1 - x0), y0 + t * (y1 - y0)])
    return kept


def to_json(found: Frame, edges_of: int | None = None, digits: int = DIGITS) -> dict[str, Any]:
    """A frame as the page draws it; points and classifier to the last digit."""

    def short(values: Tensor) -> list[Any]:
        return values.round(decimals=digits).tolist()

    scene = found.scene
    return {
        "points": scene.z.tolist(),
        "classifier": scene.classifier.tolist(),
        "next": {"points": found.after.z.tolist(), "classifier": found.after.classifier.tolist()},
        "posteriors": short(found.posteriors),
        "forces": {name: short(force) for name, force in found.forces.items()},
        "losses": found.losses,
        "landmarks": {**landmarks(scene), "ideal": found.ideal},
        "masses": found.masses.tolist(),
        "accuracy": accuracy(scene),
        "regions": regions(scene),
        "edges": None if edges_of is None else short(transitions(scene, edges_of)),
        "warnings": None if found.warnings is None else [w._asdict() for w in found.warnings],
    }
