"""Recipes: every number of a training but the data, the labels and the seed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from cclp.data.load import Kind
from cclp.data.published.catalog import CATALOG

Similarity = Literal["dot", "cosine", "euclidean"]
SIMILARITIES = get_args(Similarity)
ONE_CYCLE_WARMUP = 0.3


@dataclass(frozen=True)
class Pieces:
    """A learning rate that is constant between steps: (from step, factor), first step 0.

    The steps are those of a training of ``length`` steps; a shorter or longer one has them moved in
    proportion.
    """

    length: int
    pieces: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if not self.pieces or self.pieces[0][0] != 0:
            raise ValueError(f"pieces must begin at step 0, got {self.pieces!r}")

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with at ``step`` of ``steps``."""
        place = step * self.length // steps
        return next(factor for start, factor in reversed(self.pieces) if place >= start)


@dataclass(frozen=True)
class OneCycle:
    """Up from 1/25 within the first 30 % of steps, down to 0 over the rest, along cosines."""

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied with at ``step`` of ``steps``."""
        done = step / steps
        if done < ONE_CYCLE_WARMUP:
            rise = 0.5 - 0.5 * math.cos(math.pi * done / ONE_CYCLE_WARMUP)
            return 1 / 25 + (1 - 1 / 25) * rise
        return 0.5 + 0.5 * math.cos(math.pi * (done - ONE_CYCLE_WARMUP) / (1 - ONE_CYCLE_WARMUP))


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        name: of the recipe.
        net: of :data:`NETS`, or the user's own as "module:function". "mnist_half" is "mnist" with
            half the channels; "mnist_small" is "small" for MNIST: it does not look at two pixels of
            every border.
        max_steps: training steps.
        learning_rate: largest one.
        schedule: its course.
        per_class: labeled samples of each class in a step.
        unlabeled_batch: unlabeled samples in a step.
        l2_features, l2_classifier: λ of ½λΣw² on the weights of convolutions and linear layers.
        weight: w of the method's term.
        chain_steps: S of CCLP.
        similarity, bandwidth: of CCLP; the bandwidth is for "euclidean".
        adam_eps: of Adam.
        prior: share of the training over which labels that were spread over the inputs give way to
            those spread over the embeddings, for CCLP; 0: there is no such prior.
        teach: weight of the classifier's cross-entropy on classes of the prior.
        renew: how often the prior is made again within that time, by what the classifier says of
            all samples; batch norm's running statistics are settled for it.
        alone: share of the training, at its beginning, in which CCLP sees only labeled samples; its
            prior is then what the classifier says by the end of that. It has no effect without a
            prior that lasts longer, and where labels spread over the inputs are good as they are:
            where nine of ten, left out in turn, are right; with 20 labels a class or fewer, unless
            they are poor.
        settle: whether batch norm's running statistics are replaced, before every evaluation, by
            those of training samples under the weights of that time.
        jitter: how far images are moved, turned, stretched and slanted in training; 1 is a little.
        recolour: whether images get another contrast and brightness in training, and half of them
            become negatives.
        mirror: whether half of the images are flipped in training, left to right.
    """

    name: str
    net: str
    max_steps: int
    learning_rate: float
    schedule: Pieces | OneCycle
    per_class: int = 10
    unlabeled_batch: int = 100
    l2_features: float = 1e-4
    l2_classifier: float = 1e-4
    weight: float = 1.0
    chain_steps: int = 3
    similarity: Similarity = "dot"
    bandwidth: float = 1.0
    adam_eps: float = 1e-7
    prior: float = 0.0
    teach: float = 0.0
    renew: int = 0
    alone: float = 0.0
    settle: bool = False
    jitter: float = 0.0
    recolour: bool = False
    mirror: bool = False

    def learning_rate_at(self, step: int) -> float:
        """A pure function of the step."""
        return self.learning_rate * self.schedule.factor(step, self.max_steps)

    @property
    def first_unlabeled(self) -> int:
        """The step that is the first to see unlabeled samples."""
        return round(self.alone * self.max_steps) if self.alone < self.prior else 0

    @property
    def renewals(self) -> frozenset[int]:
        """After which steps the prior is made again: at equal distances while it counts.

        Where labeled samples are alone at first, also at the end of that.
        """
        begun, end = self.first_unlabeled, self.prior * self.max_steps
        steps = (begun + round((end - begun) * k / (self.renew + 1)) for k in range(self.renew + 1))
        return frozenset(step for step in steps if 0 < step < end)


def paper(data: str, all_labels: bool, kind: Kind) -> Recipe:
    """The authors' released settings.

    With all labels the column is the same and w = 1; the number of steps for that was not
    published.
    """
    late = Pieces(75_000, ((0, 1.0), (40_000, 1 / 3), (55_000, 0.1)))
    if data == "mnist":
        factors = tuple((5_000 * k, max(0.333**k, 1e-3)) for k in range(9))
        return Recipe("paper", "mnist", 45_000, 1e-3, Pieces(45_000, factors))
    if data == "svhn":
        return Recipe("paper", "svhn", 75_000, 3e-4, late, l2_features=1e-6, l2_classifier=1e-6)
    if data == "cifar10":
        return Recipe(
            "paper",
            "cifar",
            75_000,
            3e-4,
            late,
            l2_features=1e-8,
            l2_classifier=1e-6,
            weight=1.0 if all_labels else 0.1,
        )
    raise ValueError(f"recipe 'paper' is for mnist, svhn and cifar10, got data {data!r}")


def short(data: str, all_labels: bool, kind: Kind) -> Recipe:
    """The paper's networks and batches on a short one-cycle schedule, and nothing for CCLP alone.

    Tried on MNIST; for all else it is a first guess.
    """
    if data in ("mnist", "fashion_mnist"):
        return Recipe("short", "mnist", 3_000, 2e-3, OneCycle())
    if data in ("svhn", "cifar10"):
        return replace(
            paper(data, all_labels, kind),
            name="short",
            max_steps=3_000,
            learning_rate=1e-3,
            schedule=OneCycle(),
        )
    if data in CATALOG:
        raise ValueError(f"recipes 'short' and 'fast' are not for {data}")
    if kind == "vectors":
        return replace(_perceptron, name="short", max_steps=500)
    return Recipe("short", "svhn", 2_000, 1e-3, OneCycle())


def fast(data: str, all_labels: bool, kind: Kind) -> Recipe:
    """Ours: the least error in minutes on two cores. For images; published ones with few labels.

    Small nets take many times the steps of the paper's in the same time. On MNIST, labels spread
    over the inputs guide the whole of it. On SVHN and CIFAR-10 a net that has seen only the labels,
    and images that are changed a great deal, knows more than they do: it begins alone, and then
    learns from what it says itself, smoothed over the graph of the inputs. So it does on a user's
    own images, which are changed only as nearly all may be. All else is "short".
    """
    if kind == "vectors" or data == "digits" or (all_labels and data in CATALOG):
        return replace(short(data, all_labels, kind), name="fast")
    quick = Recipe(
        "fast", "small", 4_000, 4e-3, OneCycle(), unlabeled_batch=250, teach=1.0, prior=1.0,
        settle=True,
    )  # fmt: skip
    if data == "mnist":
        return replace(quick, net="mnist_small", per_class=5, jitter=1.0)
    self_taught = replace(quick, weight=0.1, jitter=2.0, alone=0.5, renew=5)
    if data == "svhn":
        return replace(self_taught, max_steps=7_000, alone=0.2, renew=9, recolour=True)
    return replace(self_taught, mirror=data == "cifar10")


def digits(data: str, all_labels: bool, kind: Kind) -> Recipe:
    """Ours, for the small bundled digits: a perceptron, seconds."""
    if data != "digits":
        raise ValueError(f"recipe 'digits' is for digits, got data {data!r}")
    return _perceptron


_perceptron = Recipe(
    "digits",
    "mlp",
    300,
    4e-3,
    OneCycle(),
    per_class=5,
    unlabeled_batch=400,
    similarity="euclidean",  # in the first steps it spreads labels better than dot products
    bandwidth=2.0,
)

RECIPES: dict[str, Callable[[str, bool, Kind], Recipe]] = {
    "paper": paper,
    "short": short,
    "fast": fast,
    "digits": digits,
}


def make_recipe(
    name: str | None, data: str, *, all_labels: bool = False, kind: Kind = "images"
) -> Recipe:
    """The recipe of that name for that data; the shortest there is for None."""
    if name is None:
        name = "digits" if data == "digits" else "fast"
    if name not in RECIPES:
        raise ValueError(f"recipe must be one of {', '.join(RECIPES)}, got {name!r}")
    return RECIPES[name](data, all_labels, kind)
