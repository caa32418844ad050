"""Recipes: every number of a training but the data, the labels and the seed.

A recipe checks itself when it is made and never changes; a command line that wants another value
makes another recipe.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cclp.checks import check_integer, check_number
from cclp.data.dataset import Kind
from cclp.data.published.catalog import CATALOG
from cclp.methods import METHODS, method_parts
from cclp.nets.registry import check_net
from cclp.training.schedules import OneCycle, PiecewiseConstant, Schedule, schedule_from_json
from cclp.user_code import is_user_code

VECTOR_STEPS = 300
VECTOR_BANDWIDTH = 2.0  # of CCLP's euclidean similarity, which in the first steps is the better one
Setting = bool | int | float | str
Settings = dict[str, dict[str, Setting]]


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes:
        name: of the recipe.
        net: a name of :data:`cclp.nets.registry.NETS`, or the user's own as "module:function".
        max_steps: training steps.
        learning_rate: largest one.
        schedule: of the learning rate.
        method: that the recipe is made for, see :func:`cclp.methods.method_parts`; a run may have
            another.
        settings: of methods, by method and name, where they are not the methods' own defaults:
            ``{"cclp": {"weight": 0.1}}``. They count whenever the method is used.
        per_class: labeled samples of each class in a step.
        unlabeled_batch: unlabeled samples in a step.
        l2_features, l2_classifier: λ of ½λΣw² on the weights of convolutions and linear layers.
        adam_eps: of Adam.
        recalibrate_batchnorm: whether batch norm's running statistics are computed anew before
            every evaluation, from training samples under the current weights (precise BN).
        random_affine: how far images are shifted, rotated, stretched and sheared in training; 1 is
            a little.
        color_jitter: whether images get another contrast and brightness in training, and half of
            them are inverted.
        horizontal_flip: whether half of the images are flipped in training.
    """

    name: str
    net: str
    max_steps: int
    learning_rate: float
    schedule: Schedule
    method: str = "cclp"
    settings: Settings = field(default_factory=dict)
    per_class: int = 10
    unlabeled_batch: int = 100
    l2_features: float = 1e-4
    l2_classifier: float = 1e-4
    adam_eps: float = 1e-7
    recalibrate_batchnorm: bool = False
    random_affine: float = 0.0
    color_jitter: bool = False
    horizontal_flip: bool = False

    def __post_init__(self) -> None:
        for name, kind in (("name", str), ("net", str), ("method", str), ("schedule", Schedule)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must not be {getattr(self, name)!r}")
        check_net(self.net)
        method_parts(self.method)
        object.__setattr__(self, "settings", checked_settings(self.settings))
        for name in ("learning_rate", "adam_eps"):
            check_number(name, getattr(self, name), above=0)
        for name in ("l2_features", "l2_classifier", "random_affine"):
            check_number(name, getattr(self, name), least=0)
        for name, least in (("max_steps", 1), ("per_class", 1), ("unlabeled_batch", 0)):
            check_integer(name, getattr(self, name), least=least)
        for name in ("recalibrate_batchnorm", "color_jitter", "horizontal_flip"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be true or false, got {getattr(self, name)!r}")
        if self.unlabeled_batch == 1:
            raise ValueError(
                "unlabeled_batch must be 0 or at least 2 (batch norm needs two samples), got 1"
            )

    def learning_rate_at(self, step: int) -> float:
        """A pure function of the step."""
        return self.learning_rate * self.schedule.factor(step, self.max_steps)

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which :meth:`from_json` makes an equal Recipe."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Recipe":
        return cls(**{**content, "schedule": schedule_from_json(content["schedule"])})


def checked_settings(settings: Settings) -> Settings:
    """A copy of settings of methods, once they are plain values, by method and name.

    What a method takes, it checks itself.
    """
    if not isinstance(settings, dict):
        raise TypeError(f"settings must be by method and name, got {settings!r}")
    for method, values in settings.items():
        if method not in METHODS and not is_user_code(method):
            raise ValueError(f"settings must be by method and name, got {method!r}")
        if not isinstance(values, dict):
            raise TypeError(f"settings of {method} must be by name, got {values!r}")
        for name, value in values.items():
            if not isinstance(value, bool | int | float | str):
                raise TypeError(f"{method}.{name} must be a number or a name, got {value!r}")
        if "weight" in values:
            check_number(f"weight of {method}", values["weight"], least=0)
    return {method: {**values} for method, values in settings.items()}


def merge_settings(first: Settings, second: Settings) -> Settings:
    """Both; of a setting that is in both, the second."""
    names = dict.fromkeys((*first, *second))
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in names}


def paper(data: str, all_labels: bool, kind: Kind) -> Recipe:
    """The authors' released settings.

    With all labels the column is the same and w = 1; the number of steps for that was not
    published.
    """
    late = PiecewiseConstant(75_000, ((0, 1.0), (40_000, 1 / 3), (55_000, 0.1)))
    if data == "mnist":
        factors = tuple((5_000 * k, max(0.333**k, 1e-3)) for k in range(9))
        return Recipe("paper", "mnist", 45_000, 1e-3, PiecewiseConstant(45_000, factors))
    if data == "svhn":
        return Recipe("paper", "svhn", 75_000, 3e-4, late, l2_features=1e-6, l2_classifier=1e-6)
    if data == "cifar10":
        return Recipe(
            "paper",
            "cifar",
            75_000,
            3e-4,
            late,
            settings={} if all_labels else {"cclp": {"weight": 0.1}},
            l2_features=1e-8,
            l2_classifier=1e-6,
        )
    raise ValueError(f"recipe 'paper' is for mnist, svhn and cifar10, got data {data!r}")


def short(data: str, all_labels: bool, kind: Kind) -> Recipe:
    """The paper's networks and batches on a short one-cycle schedule; a small perceptron for
    vectors and the bundled digits.

    Tried on MNIST and digits; for all else it is a first guess.
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
    if kind == "vectors" or data == "digits":
        return Recipe(
            "short",
            "mlp",
            300 if data == "digits" else 500,
            4e-3,
            OneCycle(),
            settings=_euclidean(),
            per_class=5,
            unlabeled_batch=400,
        )
    if data in CATALOG:
        raise ValueError(f"recipes 'short' and 'fast' are not for {data}")
    return Recipe("short", "svhn", 2_000, 1e-3, OneCycle())


def fast(data: str, all_labels: bool, kind: Kind) -> Recipe:
    """Ours: the least error in minutes on two cores. For own data, and published images with few
    labels.

    CCLP beside pseudo-labels from label propagation on a nearest-neighbour graph of the inputs, a
    small net that takes many times the steps of the paper's in the same time, and augmentation. On
    MNIST the pseudo-labels of the graph are used from the first step. On SVHN and CIFAR-10 a net
    trained on the labels alone, with strong augmentation, knows more than the graph does: after a
    supervised warm-up its predictions, smoothed over the graph, become the pseudo-labels. So it is
    for a user's own images, augmented only as nearly all may be. Vectors get a small perceptron,
    and pseudo-labels by a committee (see :func:`vectors`). All else is "short".
    """
    if kind == "vectors":
        return vectors()
    if data == "digits" or (all_labels and data in CATALOG):
        return replace(short(data, all_labels, kind), name="fast")
    quick = Recipe(
        "fast", "small", 4_000, 4e-3, OneCycle(), method="cclp+graph_pseudo_label",
        unlabeled_batch=250, recalibrate_batchnorm=True,
    )  # fmt: skip
    if data == "mnist":
        return replace(quick, net="mnist_small", per_class=5, random_affine=1.0)

    def warmed_up(share: float, refreshes: int) -> Settings:
        pseudo_labels = {"supervised_warmup": share, "refreshes": refreshes}
        return {"cclp": {"weight": 0.1}, "graph_pseudo_label": {**pseudo_labels}}

    if data == "svhn":
        return replace(
            quick, max_steps=7_000, random_affine=2.0, color_jitter=True, settings=warmed_up(0.2, 9)
        )
    flip = data == "cifar10"
    return replace(quick, random_affine=2.0, horizontal_flip=flip, settings=warmed_up(0.5, 5))


def vectors(count: int | None = None) -> Recipe:
    """For vectors and tables, on the command line and in the estimator.

    Args:
        count: of samples; None: not known yet, see :func:`sized`.
    """
    recipe = Recipe(
        "fast",
        "mlp",
        VECTOR_STEPS,
        4e-3,
        OneCycle(),
        method="cclp+graph_pseudo_label",
        settings=_euclidean(),
        per_class=5,
        unlabeled_batch=250,
        recalibrate_batchnorm=True,
    )
    return recipe if count is None else sized(recipe, count)


def sized(recipe: Recipe, count: int) -> Recipe:
    """A recipe for vectors with the steps and batches for so many samples."""
    return replace(
        recipe,
        max_steps=usual_steps(count),
        unlabeled_batch=max(2, min(recipe.unlabeled_batch, count // 2)),
    )


def usual_steps(count: int) -> int:
    """Of training on so many vectors."""
    few, many = 200, 2000
    return int(VECTOR_STEPS * max(1 / 3, min(1, count / few)) * max(1.0, count / many) ** (1 / 3))


def linear(recipe: Recipe, num_labels: int) -> Recipe:
    """A recipe for vectors with a linear net.

    Args:
        recipe: with another net.
        num_labels: of all classes; L2 is that of scikit-learn's logistic regression with C=1.
    """
    return replace(
        recipe, net="linear", learning_rate=0.05, l2_features=0.0, l2_classifier=1 / num_labels
    )


def _euclidean() -> Settings:
    return {"cclp": {"similarity": "euclidean", "bandwidth": VECTOR_BANDWIDTH}}


RECIPES: dict[str, Callable[[str, bool, Kind], Recipe]] = {
    "paper": paper,
    "short": short,
    "fast": fast,
}


def make_recipe(
    name: str | None, data: str, *, all_labels: bool = False, kind: Kind = "images"
) -> Recipe:
    """The recipe of that name for that data; None is "fast"."""
    name = name or "fast"
    if name not in RECIPES:
        raise ValueError(f"recipe must be one of {', '.join(RECIPES)}, got {name!r}")
    return RECIPES[name](data, all_labels, kind)
