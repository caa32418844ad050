"""Pseudo-labels: the classifier's own confident predictions as labels."""

import torch.nn.functional as F
from torch import Tensor

from cclp.checks import check_number
from cclp.methods.base import Method, Step, check_weight, ramp_up


class PseudoLabel(Method):
    """Cross entropy with the most probable class as the label (Lee 2013).

    Args:
        num_classes: C.
        weight: of the term, when it has been ramped up.
        threshold: predictions below this probability do not count. Lee has none.
        ramp: share of the training over which the weight grows. Lee: linearly over a sixth to a
            half of it; here along the curve that all methods share.
    """

    def __init__(
        self,
        num_classes: int,
        weight: float = 1.0,
        *,
        threshold: float = 0.8,
        ramp: float = 0.4,
    ) -> None:
        super().__init__()
        self.weight = check_weight(weight)
        self.threshold = check_number("threshold", threshold, least=0)
        self.ramp = check_number("ramp", ramp, least=0)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.z_unlabeled is None:
            return {}
        logits = step.net.classifier(step.z_unlabeled).float()
        loss = confident_cross_entropy(logits.detach(), logits, self.threshold)
        return {"pseudo_label": self.weight * ramp_up(step.progress, self.ramp) * loss}


def confident_cross_entropy(teacher: Tensor, logits: Tensor, threshold: float) -> Tensor:
    """Cross entropy with the teacher's classes where it is sure of them, over all rows.

    Args:
        teacher: logits that give the classes, (N, C).
        logits: that learn them, (N, C).
        threshold: least probability that counts.
    """
    probability, label = teacher.softmax(1).max(1)
    sure = (probability >= threshold).to(logits.dtype)
    return (F.cross_entropy(logits, label, reduction="none") * sure).mean()
