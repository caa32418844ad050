"""Algorithm 1, a step at a time, on Lightning Fabric. What a run writes is in run.py."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import NamedTuple, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from cclp.data.augment import jitter, mirror, recolour
from cclp.data.batches import Batches, step_seed
from cclp.data.normalize import fit_normalizer
from cclp.data.splits import Split
from cclp.methods.base import Method, Step
from cclp.nets.base import Net
from cclp.training.recipe import Recipe

_generators = RLock()


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


class Objective(nn.Module):
    """Everything that turns a step's samples into terms of the loss, behind one forward pass.

    One pass of one module is what DDP asks for; inside it the network may run many times. Its state
    is all there is to save besides the optimizer's.
    """

    def __init__(
        self,
        normalizer: nn.Module,
        net: Net,
        methods: list[Method],
        change: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.normalizer = normalizer
        self.change = change
        self.net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.methods = nn.ModuleList(methods)
        self.uses_unlabeled = any(method.uses_unlabeled for method in methods)
        for method in methods:
            method.attach(self.net)

    @property
    def network_name(self) -> str:
        """Of the module to evaluate and predict with: a method's teacher, else the trained net."""
        for number, method in enumerate(self.methods):
            if isinstance(method, Method) and method.evaluated is not None:
                return f"methods.{number}.{method.evaluated}"
        return "net"

    @property
    def network(self) -> Net:
        """The module of that name."""
        return cast(Net, self.get_submodule(self.network_name))

    def after_step(self) -> None:
        """Let the methods know that the optimizer has changed the network."""
        for method in self.methods:
            assert isinstance(method, Method)
            method.after_step(self.net)

    def inputs(self, x: Tensor, *, changed: bool = False) -> Tensor:
        """Raw samples as the network takes them, and as it is trained on them if changed."""
        x = self.normalizer(x)
        if changed and self.change is not None:
            x = self.change(x)
        return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x

    def forward(
        self,
        x_labeled: Tensor,
        labels: Tensor,
        x_unlabeled: Tensor | None,
        progress: float,
        prior: Tensor | None = None,
        length: int = 1,
    ) -> tuple[dict[str, Tensor], Tensor, Tensor | None]:
        """Terms of the loss by name, and both embeddings, detached."""
        x_labeled = self.inputs(x_labeled, changed=True)
        z_labeled = self.net.features(x_labeled)
        z_unlabeled = None
        if x_unlabeled is not None:  # a pass of its own, with its own batch statistics
            x_unlabeled = self.inputs(x_unlabeled, changed=True)
            z_unlabeled = self.net.features(x_unlabeled)
        logits = self.net.classifier(z_labeled)
        step = Step(
            self.net,
            x_labeled,
            labels,
            x_unlabeled,
            z_labeled,
            z_unlabeled,
            logits,
            progress,
            prior,
            length,
        )
        terms = {name: term for method in self.methods for name, term in method(step).items()}
        return terms, z_labeled.detach(), None if z_unlabeled is None else z_unlabeled.detach()


class Training(NamedTuple):
    """A training that is set up.

    Attributes:
        objective, optimizer: as they are saved.
        module, stepper: the same, as Fabric runs them.
        batches: which samples each step sees.
    """

    objective: Objective
    optimizer: Adam
    module: nn.Module
    stepper: Optimizer
    batches: Batches


def set_up(
    fabric: Fabric,
    x: NDArray[np.generic],
    y: NDArray[np.int64],
    split: Split,
    recipe: Recipe,
    net: Callable[[], Net],
    methods: Callable[[], list[Method]],
    *,
    normalization: str,
    labeled_batch: int | None,
    seed: int,
) -> Training:
    """Everything that the first step needs.

    Args:
        fabric: device, precision and strategy.
        x, y: the training set.
        split: who is labeled and who is seen unlabeled.
        recipe: how to train.
        net, methods: make them; called once all generators are seeded.
        normalization: of the inputs.
        labeled_batch: at most so many labeled samples in a step.
        seed: of the weights and all steps.
    """
    reseed(seed, step=-1, rank=0)
    normalizer = fit_normalizer(normalization, x, split.unlabeled)
    objective = Objective(normalizer, net(), methods(), partial(change, recipe))
    optimizer = make_optimizer(objective, recipe)
    module, stepper = fabric.setup(objective, optimizer)
    batches = Batches(
        split.labeled,
        y[split.labeled],
        split.unlabeled if objective.uses_unlabeled else split.unlabeled[:0],
        per_class=recipe.per_class,
        unlabeled_batch=recipe.unlabeled_batch,
        labeled_batch=labeled_batch,
        seed=seed,
        world_size=fabric.world_size,
    )
    return Training(objective, optimizer, module, stepper, batches)


def change(recipe: Recipe, x: Tensor) -> Tensor:
    """Normalised inputs as the recipe trains on them."""
    if recipe.jitter:
        x = jitter(x, recipe.jitter)
    if recipe.mirror:
        x = mirror(x)
    return recolour(x) if recipe.recolour else x


def cclp_settings(recipe: Recipe) -> dict[str, float | str]:
    """What a recipe says of CCLP, as the method takes it."""
    return {
        "weight": recipe.weight,
        "chain_steps": recipe.chain_steps,
        "similarity": recipe.similarity,
        "bandwidth": recipe.bandwidth,
        "prior": recipe.prior,
        "teach": recipe.teach,
    }


def make_optimizer(objective: Objective, recipe: Recipe) -> Adam:
    """Adam; its weight decay is the gradient of ½λΣw², on weights of layers and nothing else."""
    net = objective.net
    decay: dict[Tensor, float] = {
        module.weight: l2
        for part, l2 in ((net.features, recipe.l2_features), (net.classifier, recipe.l2_classifier))
        for module in part.modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    }
    groups: dict[float, list[Tensor]] = {}
    for parameter in filter(lambda p: p.requires_grad, objective.parameters()):
        groups.setdefault(decay.get(parameter, 0.0), []).append(parameter)
    return Adam(
        [{"params": group, "weight_decay": l2} for l2, group in groups.items()],
        lr=recipe.learning_rate,
        eps=recipe.adam_eps,
    )


@contextmanager
def own_randomness() -> Iterator[None]:
    """Reseed as you like within: the caller's global generators are given back.

    One thread at a time: they are everybody's.
    """
    with _generators, torch.random.fork_rng():
        legacy, plain = np.random.get_state(), random.getstate()
        try:
            yield
        finally:
            np.random.set_state(legacy)
            random.setstate(plain)


def reseed(seed: int, step: int, rank: int) -> None:
    """Make all randomness of a step a function of (seed, step, rank)."""
    number = step_seed(seed, step, rank)
    torch.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)


def train_steps(
    fabric: Fabric,
    objective: nn.Module,
    optimizer: Optimizer,
    batches: Batches,
    x: NDArray[np.generic],
    y: NDArray[np.int64],
    recipe: Recipe,
    seed: int,
    first: int = 0,
    prior: NDArray[np.float32] | None = None,
) -> Iterator[StepResult]:
    """Train from step ``first`` to the recipe's last; yields after each step.

    Args:
        fabric: device, precision and strategy.
        objective: an :class:`Objective` that Fabric has set up, with ``optimizer``.
        batches: which samples each step sees.
        x, y: the training set.
        recipe: of which the learning rates, the number of steps and the beginning are used.
        seed: of all randomness within a step.
        first: steps that are done already.
        prior: class probabilities of the training set, (N, C).

    Raises:
        FloatingPointError: before the update, if a term of the loss is not finite: in all
            processes, wherever it happened.
    """
    objective.train()
    for step in range(first, recipe.max_steps):
        begun = time.perf_counter()
        reseed(seed, step, fabric.global_rank)
        draw = batches(step, fabric.global_rank)
        some = len(draw.unlabeled) > 0 and step >= recipe.first_unlabeled
        x_labeled, labels, x_unlabeled, believed = fabric.to_device(
            (
                torch.from_numpy(x[draw.labeled]),
                torch.from_numpy(y[draw.labeled]),
                torch.from_numpy(x[draw.unlabeled]) if some else None,
                torch.from_numpy(prior[draw.unlabeled]) if some and prior is not None else None,
            )
        )
        learning_rate = recipe.learning_rate_at(step)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate

        terms, z_labeled, z_unlabeled = objective(
            x_labeled, labels, x_unlabeled, step / recipe.max_steps, believed, recipe.max_steps
        )
        losses = torch.stack(list(terms.values()))
        means = cast(Tensor, fabric.all_reduce(losses.detach().clone()))  # over the processes
        values = dict(zip(terms, means.tolist(), strict=True))
        if not np.isfinite(list(values.values())).all():
            what = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise FloatingPointError(f"the loss is not finite at step {step + 1}: {what}")
        optimizer.zero_grad()
        fabric.backward(losses.sum())
        optimizer.step()
        objective.after_step()  # type: ignore[operator]
        yield StepResult(
            step + 1,
            values,
            learning_rate,
            z_labeled,
            labels,
            z_unlabeled,
            time.perf_counter() - begun,
        )
