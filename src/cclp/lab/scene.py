"""Requests of the playground's page: every value is checked, within limits."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from cclp.checks import check_choice, check_integer, check_number
from cclp.experiments.toy import points as toy
from cclp.loss.graph import SIMILARITIES

MOST_POINTS, MOST_CLASSES, LONGEST_CHAIN, MOST_SKIPPED = 500, 4, 20, 50
FARTHEST = 1e4  # a coordinate or a weight beyond it has diverged
METHODS = ("cclp", "entropy")
NONE = -1  # of classes: unlabeled, or not known

LAYOUTS: dict[str, Callable[[int, float, int], toy.Layout]] = {
    "moons": toy.moons,
    "circles": toy.circles,
    "ambiguous": toy.arc,
    "blobs": toy.blobs,
}

_T = TypeVar("_T")


@dataclass(frozen=True)
class Start:
    """Where points stand first: a layout, and what it is drawn with."""

    name: str = "moons"
    points: int = toy.POINTS
    noise: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("layout", self.name, tuple(LAYOUTS))
        _at_most("points", check_integer("points", self.points, least=6), MOST_POINTS)
        check_number("noise", self.noise, least=0, most=1)
        _at_most("seed", check_integer("seed", self.seed, least=0), 10**6)


@dataclass(frozen=True)
class Settings:
    """How points move.

    Attributes:
        method: whose force is added to that of supervision, "cclp" or "entropy".
        similarity, bandwidth: of the graph, as in :func:`cclp.transition_matrix`.
        chain_steps: S.
        weight: of the method's term.
        step_size: of gradient descent.
    """

    method: Literal["cclp", "entropy"] = "cclp"
    similarity: str = toy.GRAPH["similarity"]
    bandwidth: float = toy.GRAPH["bandwidth"]
    chain_steps: int = 10
    weight: float = 1.0
    step_size: float = toy.STEP_SIZE

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        check_choice("similarity", self.similarity, SIMILARITIES)
        check_number("bandwidth", self.bandwidth, least=0.01, most=100)
        steps = check_integer("chain_steps", self.chain_steps, least=1)
        _at_most("chain_steps", steps, LONGEST_CHAIN)
        check_number("weight", self.weight, least=0, most=100)
        check_number("step_size", self.step_size, above=0, most=10)


@dataclass(frozen=True)
class Scene:
    """Points, what is known of them, and how they move.

    Attributes:
        z: points, (N, 2), float64.
        truth: classes, (N,), −1 where not known.
        labels: that the method uses, (N,), −1 where unlabeled.
        classifier: weights of the linear classifier, bias last, (C, 3).
        settings: how they move.
    """

    z: Tensor
    truth: Tensor
    labels: Tensor
    classifier: Tensor
    settings: Settings = field(default_factory=Settings)

    @property
    def layout(self) -> toy.Layout:
        """As the toy problems have it."""
        labeled = (self.labels != NONE).nonzero().squeeze(1)
        return toy.Layout(self.z, self.labels, labeled, self.classifier)

    @property
    def graph(self) -> dict[str, Any]:
        """Arguments of the loss."""
        return {
            "num_classes": len(self.classifier),
            "similarity": self.settings.similarity,
            "bandwidth": self.settings.bandwidth,
        }

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which :func:`read_scene` makes an equal scene."""
        return {
            "points": self.z.tolist(),
            "truth": self.truth.tolist(),
            "labels": self.labels.tolist(),
            "classifier": self.classifier.tolist(),
            "settings": asdict(self.settings),
        }


def begin(start: Start, settings: Settings) -> Scene:
    """The scene that a layout begins with: its one label for each class, a random classifier."""
    layout = LAYOUTS[start.name](start.seed, start.noise, start.points)
    labels = torch.full_like(layout.classes, NONE)
    labels[layout.labeled] = layout.classes[layout.labeled]
    return Scene(layout.z, layout.classes, labels, layout.classifier, settings)


def read_fields(kind: type[_T], name: str, content: object) -> _T:
    """A dataclass of plain values from JSON; what is left out has its default.

    Raises:
        TypeError, ValueError: naming what came and what was expected.
    """
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**read_object(name, content, known))


def read_object(name: str, content: object, known: set[str]) -> dict[str, Any]:
    """An object of JSON with no other keys than these."""
    if not isinstance(content, dict):
        raise TypeError(f"{name} must be an object, got {type(content).__name__}")
    unknown = sorted(content.keys() - known)
    if unknown:
        raise ValueError(f"{name} has {', '.join(sorted(known))}, got {unknown[0]!r:.40}")
    return content


def read_scene(content: object) -> Scene:
    """A scene from JSON.

    Raises:
        TypeError, ValueError: naming what came and what was expected.
    """
    names = {"points", "truth", "labels", "classifier", "settings"}
    given = read_object("scene", content, names)
    missing = sorted(names - given.keys())
    if missing:
        raise ValueError(f"scene has no {missing[0]!r}")
    z = _rows("points", given["points"], 2, (2, MOST_POINTS))
    classifier = _rows("classifier", given["classifier"], 3, (2, MOST_CLASSES))
    truth, labels = (
        _classes(name, given[name], len(z), len(classifier)) for name in ("truth", "labels")
    )
    if (labels == NONE).all():
        raise ValueError("label at least one point: click on it")
    return Scene(z, truth, labels, classifier, read_fields(Settings, "settings", given["settings"]))


def _rows(name: str, content: object, width: int, count: tuple[int, int]) -> Tensor:
    """Rows of finite numbers that are not too far out."""
    rows = _list(name, content, count)
    for row in rows:
        if not isinstance(row, list) or len(row) != width:
            raise ValueError(f"{name}: every row must hold {width} numbers, got {row!r:.40}")
        for value in row:
            check_number(name, value, least=-FARTHEST, most=FARTHEST)
    return torch.tensor(rows, dtype=torch.float64)


def _classes(name: str, content: object, count: int, num_classes: int) -> Tensor:
    classes = _list(name, content, (count, count))
    for value in classes:
        _at_most(name, check_integer(name, value, least=NONE), num_classes - 1)
    return torch.tensor(classes)


def _list(name: str, content: object, count: tuple[int, int]) -> list[Any]:
    if not isinstance(content, list):
        raise TypeError(f"{name} must be a list, got {type(content).__name__}")
    least, most = count
    if not least <= len(content) <= most:
        expected = f"{least}" if least == most else f"{least} to {most}"
        raise ValueError(f"{name} must be {expected}, got {len(content)}")
    return content


def _at_most(name: str, value: int, most: int) -> None:
    check_number(name, value, most=most)
