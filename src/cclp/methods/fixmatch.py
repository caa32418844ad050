"""FixMatch: confident predictions for weakly augmented samples label strongly augmented ones."""

import torch
from torch import Tensor

from cclp.checks import check_number
from cclp.data.augment import strong, weak
from cclp.methods.base import Method, Step, check_weight, kept_statistics
from cclp.methods.pseudo_label import confident_cross_entropy


class FixMatch(Method):
    """Pseudo-labels of weakly augmented samples for strongly augmented ones (Sohn et al. 2020).

    Unlike all other methods here it needs augmentation: see :mod:`cclp.data.augment`.

    Args:
        num_classes: C.
        weight: of the term.
        threshold: least probability of a pseudo-label that counts.
    """

    def __init__(self, num_classes: int, weight: float = 1.0, *, threshold: float = 0.8) -> None:
        super().__init__()
        self.weight = check_weight(weight)
        self.threshold = check_number("threshold", threshold, least=0)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.x_unlabeled is None:
            return {}
        with kept_statistics(step.net):
            with torch.no_grad():
                teacher = step.net(weak(step.x_unlabeled)).float()
            logits = step.net(strong(step.x_unlabeled)).float()
        loss = confident_cross_entropy(teacher, logits, self.threshold)
        return {"fixmatch": self.weight * loss}
