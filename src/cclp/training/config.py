"""One run: the data, the labels, the method, the recipe, the seed. All of it is in config.json."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from cclp.checks import check_choice, check_integer
from cclp.data.user.features import check_name
from cclp.data.weights import check_class_prior, check_class_weight
from cclp.methods import method_parts, required_net
from cclp.training.recipe import Recipe, Settings, checked_settings

Precision = Literal["auto", "bf16", "32"]
Accelerator = Literal["auto", "cpu", "cuda", "mps"]
Graph = Literal["local", "global"]
PRECISIONS = get_args(Precision)
ACCELERATORS = get_args(Accelerator)
GRAPHS = get_args(Graph)
LARGEST_IMAGE = 1024
LABELED_BATCH = 200
_TYPES = {  # of what no other check looks at
    "data": str, "recipe": Recipe, "method": str, "data_dir": str | None, "target": str | None,
    "pseudo_label_features": str | None, "features": str | None, "labels_from": str | None,
    "verify": bool, "skip_bad": bool, "tensorboard": bool,
}  # fmt: skip
_MAY_BE_NONE = ("num_labels", "held_out", "image_size", "labeled_batch", "evaluate_every")


@dataclass(frozen=True)
class Config:
    """What a run is made of; checked when made.

    Attributes:
        data: name in the catalogue, or path of the user's own.
        recipe: how to train; its network is replaced by the method's own, if that has one.
        method: see :func:`cclp.methods.method_parts`; empty: the recipe's.
        num_labels: how many labeled samples, in equal shares of the classes; None: all there are.
        settings: of the methods, by method and name, where they are neither the recipe's nor the
            methods' own: ``{"vat": {"weight": 0.3, "radius": 0.4}}``.
        class_weight: of the supervised term, by the names of the classes, or "balanced"; see
            :func:`cclp.data.weights.label_weights`. None: every class counts the same.
        class_prior: shares of the classes among all samples, by their names, if they are known;
            "labels", "equal", or "estimate" (or None), see :func:`cclp.data.weights.class_shares`.
        seed: of the labeled set, the weights and all steps.
        data_dir: folder of published data; None: what ``CCLP_DATA`` names, or the cache.
        verify: whether files of published data must be the published ones.
        image_size: side that images of an own folder are resized to; None: 32.
        target: column of classes in an own table.
        drop: columns of an own table to leave out.
        keep: columns of an own table to use although they look like identifiers.
        pseudo_label_features: file of features for the nearest-neighbour graph of
            graph_pseudo_label, instead of the inputs: an .npy array with a row for each training
            sample.
        labels_from: file of ``cclp label`` with the labels of the training set; those of the data
            do not count then.
        skip_bad: whether to leave out images of an own folder that cannot be read.
        features: by what own images, arrays or texts become vectors, see
            :mod:`cclp.data.user.features`.
        held_out: so many labeled samples are kept from training, and the error is measured on them
            instead of the test set. None: a fifth of them if there is no test set.
        labeled_batch: at most so many labeled samples in a step; if there are more classes, they
            take turns, and CCLP has anchors of the others.
        precision: "bf16", "32", or "auto": what the machine multiplies fastest.
        accelerator: where to train.
        devices: how many, over all machines, with a process for each; each has a batch of its own,
            and gradients are averaged (DDP).
        graph: of CCLP: "local", one for the batch of each process, or "global", one for all.
        evaluate_every: steps between evaluations; None: a tenth of the training.
        checkpoint_every: steps between checkpoints. They are at most five minutes apart in any
            case.
        tensorboard: whether to write event files too.
    """

    data: str
    recipe: Recipe
    method: str = ""
    num_labels: int | None = 100
    settings: Settings = field(default_factory=dict)
    class_weight: str | dict[str, float] | None = None
    class_prior: str | dict[str, float] | None = None
    seed: int = 0
    data_dir: str | None = None
    verify: bool = True
    image_size: int | None = None
    target: str | None = None
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    pseudo_label_features: str | None = None
    skip_bad: bool = False
    features: str | None = None
    labels_from: str | None = None
    held_out: int | None = None
    labeled_batch: int | None = LABELED_BATCH
    precision: Precision = "auto"
    accelerator: Accelerator = "auto"
    devices: int = 1
    graph: Graph = "local"
    evaluate_every: int | None = None
    checkpoint_every: int = 100
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must not be {getattr(self, name)!r}")
        for name in ("drop", "keep"):
            names = getattr(self, name)
            if not isinstance(names, tuple | list) or not all(isinstance(n, str) for n in names):
                raise TypeError(f"{name} must be names of columns, got {names!r}")
            object.__setattr__(self, name, tuple(names))
        object.__setattr__(self, "method", self.method or self.recipe.method)
        parts = method_parts(self.method)
        net = required_net(self.method) or self.recipe.net
        object.__setattr__(self, "recipe", replace(self.recipe, net=net))
        object.__setattr__(self, "settings", checked_settings(self.settings))
        for name in self.settings:
            if name not in parts:
                raise ValueError(f"settings has {name!r}, but the method is {self.method!r}")
        if self.features is not None:
            check_name(self.features)
        check_class_weight(self.class_weight)
        check_class_prior(self.class_prior)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("accelerator", self.accelerator, ACCELERATORS)
        check_choice("graph", self.graph, GRAPHS)
        for name, least in (
            ("seed", 0),
            ("num_labels", 2),
            ("held_out", 0),
            ("image_size", 8),
            ("labeled_batch", 2),
            ("devices", 1),
            ("evaluate_every", 1),
            ("checkpoint_every", 1),
        ):
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_NONE:
                check_integer(name, value, least=least)
        if self.image_size is not None and self.image_size > LARGEST_IMAGE:
            raise ValueError(f"image_size must be at most {LARGEST_IMAGE}, got {self.image_size}")
        for name, used, owner in (
            ("pseudo_label_features", self.pseudo_label_features, "graph_pseudo_label"),
            ("graph", self.graph == "global", "cclp"),
        ):
            if used and owner not in parts:
                raise ValueError(
                    f"{name} has no effect with method {self.method!r}: it is of {owner}"
                )
        similarity = self.method_settings.get("cclp", {}).get("similarity", "dot")
        if "bandwidth" in self.settings.get("cclp", {}) and similarity != "euclidean":
            raise ValueError(f"bandwidth of cclp has no effect with similarity {similarity!r}")

    @property
    def method_settings(self) -> Settings:
        """Keyword arguments of each method: the recipe's, then the run's. Merged here only."""
        merged = {
            name: {**self.recipe.settings.get(name, {}), **self.settings.get(name, {})}
            for name in method_parts(self.method)
        }
        if self.graph == "global" and "cclp" in merged:
            merged["cclp"]["gather"] = True
        return merged

    @property
    def evaluation_interval(self) -> int:
        return self.evaluate_every or max(1, self.recipe.max_steps // 10)

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which :meth:`from_json` makes an equal Config."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Config":
        return cls(**{**content, "recipe": Recipe.from_json(content["recipe"])})
