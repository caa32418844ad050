"""One run: the data, the labels, the method, the recipe, the seed. All of it is in config.json."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from cclp.checks import check_choice, check_integer, check_number
from cclp.methods import check_method
from cclp.training.recipe import SIMILARITIES, NetName, OneCycle, Pieces, Recipe

Precision = Literal["auto", "bf16", "32"]
Accelerator = Literal["auto", "cpu", "cuda", "mps"]
Normalization = Literal["zscore", "zca"]
PRECISIONS = get_args(Precision)
ACCELERATORS = get_args(Accelerator)
NORMALIZATIONS = get_args(Normalization)


@dataclass(frozen=True)
class Config:
    """What a run is made of; checked when made.

    Attributes:
        data: name in the catalogue.
        recipe: how to train.
        labels: how many labeled samples, in equal shares of the classes; None: all.
        method: of :data:`cclp.methods.METHODS`.
        seed: of the labeled set, the weights and all steps.
        data_dir: folder of data that are not bundled.
        held_out: so many training samples are kept from training, and the error is measured on them
            instead of the test set.
        labeled_batch: at most so many labeled samples in a step.
        normalization: z-scores per channel, or ZCA.
        precision: "bf16", "32", or "auto": what the machine multiplies fastest.
        accelerator: where to train.
        evaluate_every: steps between evaluations; None: a tenth of the training.
        checkpoint_every: steps between checkpoints. They are at most five minutes apart in any
            case.
        tensorboard: whether to write event files too.
    """

    data: str
    recipe: Recipe
    labels: int | None = 100
    method: str = "cclp"
    seed: int = 0
    data_dir: str | None = None
    held_out: int = 0
    labeled_batch: int | None = None
    normalization: Normalization = "zscore"
    precision: Precision = "auto"
    accelerator: Accelerator = "auto"
    evaluate_every: int | None = None
    checkpoint_every: int = 100
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_method(self.method)
        check_choice("normalization", self.normalization, NORMALIZATIONS)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("accelerator", self.accelerator, ACCELERATORS)
        check_choice("similarity", self.recipe.similarity, SIMILARITIES)
        check_number("learning_rate", self.recipe.learning_rate, above=0)
        check_choice("net", self.recipe.net, get_args(NetName))
        for name in ("weight", "l2_features", "l2_classifier"):
            check_number(name, getattr(self.recipe, name), least=0)
        check_number("adam_eps", self.recipe.adam_eps, above=0)
        check_number("bandwidth", self.recipe.bandwidth, above=0)
        for name, value, least in (
            ("seed", self.seed, 0),
            ("labels", self.labels, 2),
            ("held_out", self.held_out, 0),
            ("labeled_batch", self.labeled_batch, 2),
            ("evaluate_every", self.evaluate_every, 1),
            ("checkpoint_every", self.checkpoint_every, 1),
            ("steps", self.recipe.steps, 1),
            ("per_class", self.recipe.per_class, 1),
            ("unlabeled_batch", self.recipe.unlabeled_batch, 0),
            ("chain_steps", self.recipe.chain_steps, 1),
        ):
            if value is not None:
                check_integer(name, value, least=least)
        if self.recipe.unlabeled_batch == 1:
            raise ValueError(
                "unlabeled_batch must be 0 or at least 2 (batch norm needs two samples), got 1"
            )

    @property
    def evaluation_interval(self) -> int:
        return self.evaluate_every or max(1, self.recipe.steps // 10)

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which :meth:`from_json` makes an equal Config."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Config":
        recipe = dict(content["recipe"])
        schedule = recipe["schedule"]
        recipe["schedule"] = (
            Pieces(
                check_integer("length", schedule["length"], least=1),
                tuple((int(start), float(factor)) for start, factor in schedule["pieces"]),
            )
            if schedule
            else OneCycle()
        )
        return cls(**{**content, "recipe": Recipe(**recipe)})
