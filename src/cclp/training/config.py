"""One run: the data, the labels, the method, the recipe, the seed. All of it is in config.json."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from cclp.checks import check_choice, check_integer, check_number
from cclp.methods import method_parts
from cclp.nets.registry import check_net
from cclp.training.recipe import SIMILARITIES, OneCycle, Pieces, Recipe
from cclp.user_code import is_user_code

Precision = Literal["auto", "bf16", "32"]
Accelerator = Literal["auto", "cpu", "cuda", "mps"]
Strategy = Literal["auto", "ddp"]
Graph = Literal["local", "global"]
Normalization = Literal["zscore", "zca"]
Setting = bool | float | str
PRECISIONS = get_args(Precision)
ACCELERATORS = get_args(Accelerator)
STRATEGIES = get_args(Strategy)
GRAPHS = get_args(Graph)
NORMALIZATIONS = get_args(Normalization)
LARGEST_IMAGE = 1024
_KINDS = {  # of what no other check looks at
    "data": str, "method": str, "settings": dict, "data_dir": str | None, "target": str | None,
    "prior_features": str | None,
    "verify": bool, "skip_bad": bool, "tensorboard": bool,
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """What a run is made of; checked when made.

    Attributes:
        data: name in the catalogue, or path of the user's own.
        recipe: how to train.
        num_labels: how many labeled samples, in equal shares of the classes; None: all there are.
        method: see :func:`cclp.methods.method_parts`.
        settings: of the methods, by method and name, where they are not the methods' own:
            ``{"vat": {"weight": 0.3, "radius": 0.4}}``.
        seed: of the labeled set, the weights and all steps.
        data_dir: folder of published data; None: what ``CCLP_DATA`` names, or the cache.
        verify: whether files of published data must be the published ones.
        image_size: side that images of an own folder are brought to; None: 32.
        target: column of classes in an own table.
        prior_features: file of features to spread the prior's labels over, instead of the inputs:
            an .npy array with a row for each training sample.
        skip_bad: whether to leave out images of an own folder that cannot be read.
        held_out: so many labeled samples are kept from training, and the error is measured on them
            instead of the test set. None: a fifth of them if there is no test set.
        labeled_batch: at most so many labeled samples in a step.
        normalization: z-scores per channel, or ZCA.
        precision: "bf16", "32", or "auto": what the machine multiplies fastest.
        accelerator: where to train.
        devices: how many, over all machines, with a process for each; each has a batch of its own.
        strategy: how they work together: "ddp" averages their gradients; "auto" is that for more
            than one.
        graph: of CCLP: "local", one for the batch of each process, or "global", one for all.
        evaluate_every: steps between evaluations; None: a tenth of the training.
        checkpoint_every: steps between checkpoints. They are at most five minutes apart in any
            case.
        tensorboard: whether to write event files too.
    """

    data: str
    recipe: Recipe
    num_labels: int | None = 100
    method: str = "cclp"
    settings: dict[str, dict[str, Setting]] = field(default_factory=dict)
    seed: int = 0
    data_dir: str | None = None
    verify: bool = True
    image_size: int | None = None
    target: str | None = None
    prior_features: str | None = None
    skip_bad: bool = False
    held_out: int | None = None
    labeled_batch: int | None = 200
    normalization: Normalization = "zscore"
    precision: Precision = "auto"
    accelerator: Accelerator = "auto"
    devices: int = 1
    strategy: Strategy = "auto"
    graph: Graph = "local"
    evaluate_every: int | None = None
    checkpoint_every: int = 100
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must not be {getattr(self, name)!r}")
        parts = method_parts(self.method)
        for name, values in self.settings.items():
            if name not in parts:
                raise ValueError(f"settings has {name!r}, but the method is {self.method!r}")
            if not isinstance(values, dict):
                raise TypeError(f"settings of {name} must be by name, got {values!r}")
            for key, setting in values.items():
                if not isinstance(setting, bool | int | float | str):
                    raise TypeError(f"{name}.{key} must be a number or a name, got {setting!r}")
            if "weight" in values:
                check_number(f"weight of {name}", values["weight"], least=0)
        check_choice("normalization", self.normalization, NORMALIZATIONS)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("accelerator", self.accelerator, ACCELERATORS)
        check_choice("strategy", self.strategy, STRATEGIES)
        check_choice("graph", self.graph, GRAPHS)
        check_choice("similarity", self.recipe.similarity, SIMILARITIES)
        check_number("learning_rate", self.recipe.learning_rate, above=0)
        check_net(self.recipe.net)
        for name in ("weight", "l2_features", "l2_classifier", "teach", "jitter"):
            check_number(name, getattr(self.recipe, name), least=0)
        check_number("adam_eps", self.recipe.adam_eps, above=0)
        check_number("bandwidth", self.recipe.bandwidth, above=0)
        for name in ("prior", "alone"):
            check_number(name, getattr(self.recipe, name), least=0, most=1)
        for name, value, least in (
            ("seed", self.seed, 0),
            ("num_labels", self.num_labels, 2),
            ("held_out", self.held_out, 0),
            ("image_size", self.image_size, 8),
            ("labeled_batch", self.labeled_batch, 2),
            ("devices", self.devices, 1),
            ("evaluate_every", self.evaluate_every, 1),
            ("checkpoint_every", self.checkpoint_every, 1),
            ("max_steps", self.recipe.max_steps, 1),
            ("per_class", self.recipe.per_class, 1),
            ("unlabeled_batch", self.recipe.unlabeled_batch, 0),
            ("chain_steps", self.recipe.chain_steps, 1),
            ("renew", self.recipe.renew, 0),
        ):
            if value is not None:
                check_integer(name, value, least=least)
        if self.image_size is not None and self.image_size > LARGEST_IMAGE:
            raise ValueError(f"image_size must be at most {LARGEST_IMAGE}, got {self.image_size}")
        for name in ("settle", "recolour", "mirror"):
            if not isinstance(getattr(self.recipe, name), bool):
                raise TypeError(f"{name} must be true or false, got {getattr(self.recipe, name)!r}")
        if self.prior_features is not None and not self.recipe.prior:
            raise ValueError("prior_features has no effect: prior is 0")
        if self.prior_features is not None and "cclp" not in parts:
            raise ValueError(f"prior_features has no effect with method {self.method!r}")
        if self.graph == "global" and "cclp" not in parts:
            raise ValueError(f"graph has no effect with method {self.method!r}")
        if self.recipe.unlabeled_batch == 1:
            raise ValueError(
                "unlabeled_batch must be 0 or at least 2 (batch norm needs two samples), got 1"
            )

    @property
    def evaluation_interval(self) -> int:
        return self.evaluate_every or max(1, self.recipe.max_steps // 10)

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which :meth:`from_json` makes an equal Config."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Config":
        content = dict(content)
        weights = content.pop("weights", {})  # of a run made when there was nothing else to set
        content.setdefault("settings", {name: {"weight": w} for name, w in weights.items()})
        return cls(**{**content, "recipe": recipe_from_json(content["recipe"])})


def recipe_from_json(content: dict[str, Any]) -> Recipe:
    """A recipe as a run has recorded it."""
    recipe, schedule = dict(content), content["schedule"]
    recipe["schedule"] = (
        Pieces(
            check_integer("length", schedule["length"], least=1),
            tuple((int(start), float(factor)) for start, factor in schedule["pieces"]),
        )
        if schedule
        else OneCycle()
    )
    if isinstance(recipe.get("jitter"), bool):  # of a run made when there was one amount
        recipe["jitter"] = float(recipe["jitter"])
    return Recipe(**recipe)


def named_again(what: str, recorded: str, given: str | None) -> str:
    """The user's own code that a recorded run needs, as it was named just now.

    Importing runs code, and a run directory may come from anyone: what it names is not enough.

    Args:
        what: "net" or "method".
        recorded: what the run says.
        given: what the user says.

    Raises:
        ValueError: if the run needs code that was not named, or none and some was.
    """
    if is_user_code(recorded) and given is None:
        raise ValueError(
            f"this run needs code of your own, {what} {recorded!r}, which is imported only if you "
            f"name it again: add --{what} {recorded}"
        )
    if given is not None and not (is_user_code(recorded) and is_user_code(given)):
        raise ValueError(f"--{what} {given} has no effect: this run has {what} {recorded!r}")
    return given or recorded
