"""How long the runs of a study will take on this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cclp.experiments.study import Cell, check_same, steps_done, unfinished
from cclp.methods import make_methods
from cclp.progress import Reporter
from cclp.training.config import Config

if TYPE_CHECKING:
    from cclp.training.trainer import Trainer


class Estimate(NamedTuple):
    """What is left of a run.

    Attributes:
        cell: which.
        state: in words.
        minutes: of training on this machine, with nothing else beside it.
    """

    cell: Cell
    state: str
    minutes: float


def estimate(cells: Sequence[Cell], runs: Path, report: Reporter) -> Iterator[Estimate]:
    """Estimate the time of each run by timing one step of its kind.

    Evaluations and pseudo-labels add to it; steps of a supervised warm-up take less.
    """
    check_same(runs, cells)
    timed: dict[tuple[object, ...], float] = {}
    for cell in cells:
        if not unfinished(runs, [cell]):
            yield Estimate(cell, "finished", 0.0)
            continue
        done, recipe = steps_done(runs, cell), cell.config.recipe
        kind = (
            cell.config.data,
            cell.config.method,
            repr(replace(recipe, max_steps=1)),
            repr(cell.config.method_settings),
        )
        if kind not in timed:
            report.info(f"Timing a step: {cell.config.method} on {cell.config.data}.")
            shape = (1, 28, 28) if recipe.net.startswith("mnist") else (3, 32, 32)
            timed[kind] = seconds_per_step(cell.config, shape, num_classes=10)
        state = f"step {done:,} of {cell.max_steps:,}" if done else f"{cell.max_steps:,} steps"
        yield Estimate(cell, state, (cell.max_steps - done) * timed[kind] / 60)


def seconds_per_step(config: Config, shape: tuple[int, ...], num_classes: int) -> float:
    """Time one training step on random inputs."""
    trainer = trainer_on_noise(config, shape, num_classes)
    trainer.step(0)  # includes what is done once
    return trainer.step(1).seconds


def trainer_on_noise(config: Config, shape: tuple[int, ...], num_classes: int) -> "Trainer":
    """A training of random images, whose steps take as long as those of real ones."""
    from cclp.data.splits import Split
    from cclp.nets.registry import make_net
    from cclp.training.machine import make_fabric
    from cclp.training.seeding import own_randomness
    from cclp.training.trainer import Trainer

    recipe = config.recipe
    each = max(recipe.per_class, -(-recipe.unlabeled_batch // num_classes), 1)
    y = np.tile(np.arange(num_classes), each)
    x = np.random.default_rng(0).integers(0, 256, (len(y), *shape), np.uint8)
    everyone = np.arange(len(y))
    with own_randomness():
        trainer = Trainer(
            make_fabric(config.accelerator, config.precision),
            recipe,
            x,
            y,
            Split(everyone, everyone, everyone[:0]),
            make_net=lambda: make_net(recipe.net, shape, num_classes),
            make_methods=lambda: make_methods(config.method, num_classes, config.method_settings),
            labeled_batch=config.labeled_batch,
            seed=0,
        )
    if trainer.objective.neighbours:
        trainer.neighbours = lambda samples, uniform: samples
    return trainer
