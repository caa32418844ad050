"""A method of your own: --method examples/own_method.py:Neighbours.

Each unlabeled sample is trained to be predicted as the labeled sample with the nearest embedding;
the weight of this term ramps up over the first half of the training.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from cclp.methods.base import Method, Step, ramp_up


class Neighbours(Method):
    """Cross entropy with the label of the nearest labeled sample.

    Args:
        num_classes: C.
        weight: of the term; ``--weight`` sets it.
    """

    def __init__(self, num_classes: int, weight: float = 0.1) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Named terms, which are added to the loss and logged."""
        if step.z_unlabeled is None:
            return {}
        with torch.no_grad():
            nearest = torch.cdist(step.z_unlabeled.float(), step.z_labeled.float()).argmin(1)
        logits = step.net.classifier(step.z_unlabeled)
        loss = F.cross_entropy(logits.float(), step.labels[nearest])
        return {"neighbours": self.weight * ramp_up(step.progress, 0.5) * loss}
