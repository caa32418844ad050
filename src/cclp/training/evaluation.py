"""Error on held-out images, and embeddings for pictures."""

import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cclp.data.splits import Indices, Split

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from cclp.training.loop import Objective

_BATCH = 500
_POINTS = 1000


class Outputs(NamedTuple):
    """Embeddings, (N, F), and logits, (N, C), in float32 on the CPU."""

    z: Tensor
    logits: Tensor


@torch.no_grad()
def run_net(fabric: "Fabric", objective: "Objective", x: NDArray[np.generic]) -> Outputs:
    """Embeddings and logits of all ``x``, in evaluation mode; the mode is put back."""
    mode = objective.training
    objective.eval()
    z, logits = [], []
    with fabric.autocast():
        for start in range(0, len(x), _BATCH):
            batch = fabric.to_device(torch.tensor(x[start : start + _BATCH]))
            z.append(objective.net.features(objective.inputs(batch)))
            logits.append(objective.net.classifier(z[-1]))
    objective.train(mode)
    return Outputs(torch.cat(z).float().cpu(), torch.cat(logits).float().cpu())


def error_rate(logits: Tensor, y: NDArray[np.int64]) -> float:
    """Share of samples whose largest logit is not their class."""
    return float((logits.argmax(1).numpy() != y).mean())


def embedding_points(split: Split, seed: int) -> Indices:
    """At most 1,000 training points, the same at every evaluation; up to half of them labeled."""
    rng = np.random.default_rng([seed, 0xE3B])
    labeled = rng.permutation(split.labeled)[: _POINTS // 2]
    others = rng.permutation(np.setdiff1d(split.unlabeled, labeled))
    return np.concatenate([labeled, others])[:_POINTS]


def embedding_file(
    outputs: Outputs, index: Indices, y: Indices, labeled: NDArray[np.bool_]
) -> bytes:
    """The content of ``embedding/STEP.npz``: what a picture of the points needs."""
    content = io.BytesIO()
    np.savez(
        content,
        z=outputs.z.numpy(),
        predicted=outputs.logits.argmax(1).numpy(),
        y=y,
        index=index,
        labeled=labeled,
    )
    return content.getvalue()
