"""Cross entropy on the labeled samples: the baseline, and part of every method."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from cclp.methods.base import Method, Step


class Supervised(Method):
    """Labels only. No unlabeled sample touches the network, not even its batch statistics."""

    uses_unlabeled: ClassVar[bool] = False

    def __init__(self, num_classes: int) -> None:
        super().__init__()

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.weights is None:
            return {"cross_entropy": F.cross_entropy(step.logits, step.labels)}
        each = F.cross_entropy(step.logits, step.labels, reduction="none")
        # a plain mean: divided by the batch's sum, its expectation would not be the weighted mean
        return {"cross_entropy": (step.weights * each).mean()}
