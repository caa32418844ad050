"""``Trainer``: Algorithm 1 of the paper on Lightning Fabric, one loop for everyone who trains.

A step is a pure function of (seed, step, rank) and the state. What else happens while training goes
on (evaluation, files, progress, early stopping, pseudo-labels) is in callbacks.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cclp.data.augment import make_augmentation
from cclp.data.batches import Batches, step_seed
from cclp.data.normalize import ZScore, value_range
from cclp.data.splits import Indices, Split
from cclp.data.weights import LabelWeights
from cclp.draws import OwnInitialization
from cclp.methods.base import Inputs, Method
from cclp.nets.base import Net
from cclp.phases import phase
from cclp.training.callbacks import Callback, Evaluation
from cclp.training.evaluation import Outputs, recalibrate_batchnorm, run_net
from cclp.training.objective import Objective, make_optimizer
from cclp.training.processes import any_rank
from cclp.training.recipe import Recipe
from cclp.training.seeding import reseed

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_Maybe = Tensor | None
_Batch = tuple[Tensor, Tensor, _Maybe, _Maybe, _Maybe, _Maybe, _Maybe]
_NEIGHBOURS = 1  # a stream of random numbers
STEP = "steps"  # a phase of a run
BATCHES_SEEN = 20  # of labeled vectors, for batch norm's statistics


class Stopped(Exception):  # noqa: N818 - not an error
    """The user asked to stop."""


class StepResult(NamedTuple):
    """What a training step leaves to be looked at.

    Attributes:
        done: number of steps done.
        terms: of the loss.
        learning_rate: of the step.
        z_labeled, labels, z_unlabeled: its embeddings, detached.
        seconds: it took.
    """

    done: int
    terms: dict[str, float]
    learning_rate: float
    z_labeled: Tensor
    labels: Tensor
    z_unlabeled: Tensor | None
    seconds: float


class Trainer:
    """A training: network, optimizer and batches, and the loop over its steps.

    Args:
        fabric: device, precision and processes.
        recipe: how to train.
        x, y: the training set.
        split: which samples are labeled, and which are seen unlabeled.
        make_net, make_methods: are called once all generators are seeded.
        labeled_batch: at most so many labeled samples in a step.
        seed: of the weights and all steps.
        label_weights: of the labeled samples in the supervised term, in the order of
            ``split.labeled``; None: every class counts the same.

    Attributes:
        inputs: what the network's inputs are.
        done: steps that are done; set it, with the state, to resume.
        warmup_steps: so many steps see labeled samples only.
        pseudo_labels: class probabilities of the training set, (N, C), or None; replaced and never
            changed.
        pseudo_label_weight: of them in label propagation, as a function of the step.
        neighbours: draws one of each sample, given as many numbers in [0, 1), for methods that ask
            for them; or None.
        evaluation: the last one.
        stopping: whether the user has asked to stop after this step.
        finished: whether this was the last step; a callback may set it.
    """

    def __init__(
        self,
        fabric: "Fabric",
        recipe: Recipe,
        x: NDArray[Any],
        y: NDArray[np.int64],
        split: Split,
        *,
        make_net: Callable[[], Net],
        make_methods: Callable[[], list[Method]],
        labeled_batch: int | None,
        seed: int,
        label_weights: LabelWeights | None = None,
    ) -> None:
        reseed(seed, step=-1, rank=0)
        self.fabric, self.recipe, self.seed = fabric, recipe, seed
        self.x, self.y, self.split = x, y, split
        normalizer = ZScore.fit(x, split.unlabeled)
        augment = make_augmentation(
            recipe.random_affine, recipe.color_jitter, recipe.horizontal_flip
        )
        low, high = value_range(x, split.unlabeled)
        self.inputs = Inputs(x.shape[1:], normalizer.mean, normalizer.scale, low, high)
        with OwnInitialization():
            self.objective = Objective(normalizer, make_net(), make_methods(), augment)
            self.objective.attach(self.inputs, len(x))
        self.labeled_batch, self.label_weights = labeled_batch, label_weights
        self.batches = self._make_batches(None if label_weights is None else label_weights.shares)
        self.importance = (  # of each training sample in the supervised term
            None
            if label_weights is None
            else self.batches.importance(label_weights.samples, len(y))
        )
        some_are_absent = self.batches.classes_per_step < len(self.batches.members)
        if some_are_absent and self.objective.uses_unlabeled:
            self.objective.keep_anchors(torch.tensor(x[:2]))
        self.adam = make_optimizer(self.objective, recipe)
        self.module, self.optimizer = fabric.setup(self.objective, self.adam)
        self.done = 0
        self.warmup_steps = 0
        self.pseudo_labels: NDArray[np.float32] | None = None
        self.pseudo_label_weight: Callable[[int], float] = lambda step: 0.0
        self.neighbours: Callable[[Indices, NDArray[np.float64]], Indices] | None = None
        self.callbacks: Sequence[Callback] = ()
        self.evaluation: Evaluation | None = None
        self.stopping = self.finished = False

    def _make_batches(self, shares: NDArray[np.float64] | None) -> Batches:
        split, recipe = self.split, self.recipe
        return Batches(
            split.labeled,
            self.y[split.labeled],
            split.unlabeled if self.objective.uses_unlabeled else split.unlabeled[:0],
            per_class=recipe.per_class,
            unlabeled_batch=recipe.unlabeled_batch,
            labeled_batch=self.labeled_batch,
            shares=shares,
            seed=self.seed,
            world_size=self.fabric.world_size,
        )

    def draw_classes(self, shares: Sequence[float]) -> None:
        """Draw labeled samples in these shares of the classes, unless they have weights."""
        if self.label_weights is None:
            self.batches = self._make_batches(np.array(shares))

    @property
    def last(self) -> bool:
        """Whether all steps are done."""
        return self.done == self.recipe.max_steps

    def fit(
        self, callbacks: Sequence[Callback], should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Train from the step that is next to the last one.

        Args:
            callbacks: each hook calls them in this order.
            should_stop: asked after each step, in all processes.

        Raises:
            FloatingPointError: before the update, if a term of the loss is not finite: in all
                processes, wherever it happened.
            Stopped: if ``should_stop`` said so; callbacks have seen ``stopping``.
        """
        self.callbacks = callbacks
        self._call("on_setup")
        self._call("on_start")
        self.module.train()
        self.finished = self.last
        while not self.finished:
            with phase(STEP):
                result = self.step(self.done)
            self.done = result.done
            self.finished = self.last
            self.stopping = any_rank(self.fabric, should_stop()) and not self.last
            self._call("on_step", result)
            if self.stopping and not self.finished:
                raise Stopped(f"Stopped at step {self.done} of {self.recipe.max_steps}.")
        self._call("on_end")

    def _call(self, hook: str, *given: Any) -> None:
        for callback in self.callbacks:
            with phase(callback.phase):
                getattr(callback, hook)(self, *given)

    def step(self, step: int) -> StepResult:
        """One step of Algorithm 1: draw a batch, embed, propagate, lose, update."""
        begun = time.perf_counter()
        reseed(self.seed, step, self.fabric.global_rank)
        x_labeled, labels, x_unlabeled, pseudo_labels, *others = self._load_batch(step)
        learning_rate = self.recipe.learning_rate_at(step)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group["factor"]

        terms, z_labeled, z_unlabeled = self.module(
            x_labeled,
            labels,
            x_unlabeled,
            step / self.recipe.max_steps,
            self.recipe.max_steps,
            pseudo_labels,
            self.pseudo_label_weight(step) if pseudo_labels is not None else 0.0,
            *others,
        )
        losses = torch.stack(list(terms.values()))
        values = self._means(list(terms), losses)
        if not np.isfinite(list(values.values())).all():
            what = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise FloatingPointError(f"the loss is not finite at step {step + 1}: {what}")
        self.optimizer.zero_grad()
        self.fabric.backward(losses.sum())
        self.optimizer.step()
        self.objective.after_step()
        seconds = time.perf_counter() - begun
        return StepResult(step + 1, values, learning_rate, z_labeled, labels, z_unlabeled, seconds)

    def _load_batch(self, step: int) -> "_Batch":
        """Labeled samples with labels, unlabeled ones and their pseudo-labels, weights of the
        labeled, indices of the unlabeled, neighbours of these.
        """
        rank = self.fabric.global_rank
        labeled, unlabeled = self.batches(step, rank)
        some = len(unlabeled) > 0 and step >= self.warmup_steps
        near = None
        if some and self.neighbours is not None:
            random = np.random.default_rng((step_seed(self.seed, step, rank), _NEIGHBOURS))
            near = self.neighbours(unlabeled, random.random(len(unlabeled)))
        known = some and self.pseudo_labels is not None and self.pseudo_label_weight(step) > 0
        moved: _Batch = self.fabric.to_device(
            (
                torch.from_numpy(self.x[labeled]),
                torch.from_numpy(self.y[labeled]),
                torch.from_numpy(self.x[unlabeled]) if some else None,
                torch.from_numpy(cast(Any, self.pseudo_labels)[unlabeled]) if known else None,
                None if self.importance is None else torch.from_numpy(self.importance[labeled]),
                torch.from_numpy(unlabeled) if some else None,
                None if near is None else torch.from_numpy(self.x[near]),
            )
        )
        return moved

    def _means(self, names: list[str], losses: Tensor) -> dict[str, float]:
        """Terms of the loss, averaged over the processes."""
        means = cast(Tensor, self.fabric.all_reduce(losses.detach().clone()))
        return dict(zip(names, means.tolist(), strict=True))

    def samples(self, steps: int) -> int:
        """How many samples so many steps from the first on see: what they cost."""
        labeled = self.batches.classes_per_step * self.batches.per_class
        supervised = min(steps, self.warmup_steps)
        return steps * labeled + (steps - supervised) * self.batches.unlabeled_batch

    def predict(self, x: NDArray[Any], index: NDArray[np.int64] | None = None) -> Outputs:
        """Embeddings and logits of samples, in evaluation mode."""
        return run_net(self.fabric, self.objective, x, index)

    @torch.no_grad()
    def draw(self, count: int) -> Tensor | None:
        """Samples of a method's generative model as pixels in [0, 1]; None if there are none."""
        if not self.inputs.are_images:
            return None
        self.objective.eval()
        with self.fabric.autocast():
            drawn = self.objective.draw(count)
        self.objective.train()
        return None if drawn is None else self.inputs.to_pixels(drawn.float()).cpu()

    def recalibrate(self) -> None:
        """Compute batch norm's running statistics anew, under the current weights.

        They are of the samples that training has seen: if those are labeled vectors alone, with
        as many of each class as batches hold. Of unlabeled ones with other shares of the classes
        they would be others than the classifier has learned from.
        """
        index = self.split.unlabeled
        if self.x.ndim == 2 and not self.objective.uses_unlabeled:
            index = np.concatenate([self.batches(step).labeled for step in range(BATCHES_SEEN)])
        recalibrate_batchnorm(self.fabric, self.objective, self.x, index, self.seed)

    def evaluated(self, evaluation: Evaluation) -> None:
        """Let the callbacks know of an evaluation."""
        self.evaluation = evaluation
        self._call("on_evaluation", evaluation)

    def state(self) -> dict[str, Tensor]:
        """Tensors that the steps to come depend on: weights, buffers, the optimizer's state."""
        tensors = {f"objective.{n}": t for n, t in self.objective.state_dict().items()}
        for name, parameter in self.objective.named_parameters():
            for key, value in self.adam.state[parameter].items():
                tensors[f"adam.{name}.{key}"] = value
        return tensors

    def load_state(self, done: int, tensors: dict[str, Tensor]) -> None:
        """Resume after ``done`` steps with the tensors of :meth:`state`."""
        self.done = done
        self.objective.load_state_dict(tensors_below(tensors, "objective."))
        for name, parameter in self.objective.named_parameters():
            self.adam.state[parameter] = {
                key: (
                    torch.empty_like(parameter).copy_(value)  # in the weight's memory format
                    if value.shape == parameter.shape
                    else value
                )
                for key, value in tensors_below(tensors, f"adam.{name}.").items()
            }


def tensors_below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose names begin with ``prefix``, without it."""
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
