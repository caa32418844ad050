"""Evaluation: what a network predicts for samples, and batch norm's statistics before it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cclp.data.dataset import Dataset
from cclp.data.splits import Indices, Source, Split
from cclp.loss.gather import gather_rows
from cclp.nets import batch_norms
from cclp.training.processes import share_buffers

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from cclp.training.objective import Objective

_BATCH, _BATCH_VALUES = 500, 500 * 3 * 32 * 32  # large images go in smaller batches
_RECALIBRATED = 5000


class Outputs(NamedTuple):
    """Embeddings, (N, F), and logits, (N, C), in float32 on the CPU."""

    z: Tensor
    logits: Tensor


@dataclass(frozen=True)
class EvaluationSet:
    """What the error is measured on.

    Attributes:
        source: the test set, held-out samples of the training set, or any labeled samples.
        x: samples among which they are.
        index: which ones.
        y: their classes, as many as the index.
        names: what to call them.
        pictures: as many as ``x``, if samples are features of images.
    """

    source: Source
    x: NDArray[Any]
    index: Indices
    y: Indices
    names: Sequence[str]
    pictures: NDArray[np.uint8] | None = None


def evaluation_set(data: Dataset, split: Split | None) -> EvaluationSet | None:
    """What is held out of the training set, else the test set; None if there is neither."""
    if split is not None and len(split.held_out):
        x, y, names, index = data.train_x, data.train_y, data.train_names, split.held_out
        source: Source = "held_out"
        kind, pictures = "training", data.train_pictures
    elif len(data.test_y):
        x, y, names, index = data.test_x, data.test_y, data.test_names, np.arange(len(data.test_y))
        source = kind = "test"
        pictures = data.test_pictures
    else:
        return None
    called = [names[i] if names else f"{kind} {i}" for i in index]
    return EvaluationSet(source, x, index, y[index], called, pictures)


@torch.no_grad()
def run_net(
    fabric: "Fabric",
    objective: "Objective",
    x: NDArray[Any],
    index: Indices | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> Outputs:
    """Embeddings and logits of ``x``, in evaluation mode; the mode is put back.

    Several processes do a part each, with the running statistics of process 0; all get the whole.

    Args:
        fabric, objective: the network and where it runs.
        x: samples; may be a memory map.
        index: of those to run; None: all.
        advance: called with the number of samples of each batch that is done.
    """
    rows = max(1, min(_BATCH, _BATCH_VALUES // prod(x.shape[1:])))
    total = len(x) if index is None else len(index)
    first, last, shared = 0, total, 1 < fabric.world_size <= total
    if shared:
        share_buffers(objective)
        first, last = (total * (fabric.global_rank + i) // fabric.world_size for i in (0, 1))
    network, mode = objective.network, objective.training
    objective.eval()
    z, logits = [], []
    with fabric.autocast():
        for start in range(first, last, rows):
            part = slice(start, min(start + rows, last))
            batch = fabric.to_device(torch.tensor(x[part if index is None else index[part]]))
            z.append(network.features(objective.inputs(batch)))
            logits.append(network.classifier(z[-1]))
            advance(len(batch))
    objective.train(mode)
    parts = [torch.cat(z), torch.cat(logits)]
    return Outputs(*((gather_rows(p) if shared else p).float().cpu() for p in parts))


@torch.no_grad()
def recalibrate_batchnorm(
    fabric: "Fabric", objective: "Objective", x: NDArray[Any], index: Indices, seed: int
) -> None:
    """Replace the running statistics of batch norm by those of samples under the current weights.

    In short trainings the running ones remember the first steps.

    Args:
        fabric, objective: the network and where it runs.
        x: samples.
        index: of those to choose from; at most 5,000 are run.
        seed: of the choice.
    """
    network = objective.network
    norms = batch_norms(network)
    if not norms:
        return
    mode, momentum = objective.training, [norm.momentum for norm in norms]
    objective.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
        norm.train()
    chosen = np.random.default_rng([seed, 0xB47]).permutation(index)[:_RECALIBRATED]
    rows = max(2, min(_BATCH, _BATCH_VALUES // prod(x.shape[1:])))
    with fabric.autocast():
        for part in np.array_split(chosen, -(-len(chosen) // rows)):
            batch = fabric.to_device(torch.tensor(x[part]))
            network.classifier(network.features(objective.inputs(batch)))
    for norm, before in zip(norms, momentum, strict=True):
        norm.momentum = before
    objective.train(mode)


def error_rate(logits: Tensor, y: NDArray[np.int64]) -> float:
    """Share of samples whose largest logit is not their class."""
    return float((logits.argmax(1).numpy() != y).mean())
