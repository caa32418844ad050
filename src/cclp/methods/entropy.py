"""Entropy minimisation: confident predictions for unlabeled samples."""

import torch
from torch import Tensor

from cclp.methods.base import Method, Step, check_weight


class Entropy(Method):
    """Mean entropy of the predictions for unlabeled samples (Grandvalet & Bengio 2005).

    The paper's CER. It draws decision boundaries away from samples, and tears clusters that a
    boundary crosses early (the paper's Figure 3).

    Args:
        num_classes: C.
        weight: of the term.
    """

    def __init__(self, num_classes: int, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = check_weight(weight)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.z_unlabeled is None:
            return {}
        return {"entropy": self.weight * mean_entropy(step.net.classifier(step.z_unlabeled))}


def mean_entropy(logits: Tensor) -> Tensor:
    """−Σ p ln p of each row's softmax, averaged over rows, in float32 or better."""
    log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(1)
    return -(log_p.exp() * log_p).sum(1).mean()
