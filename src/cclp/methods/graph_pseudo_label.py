"""Pseudo-labels from label propagation on a nearest-neighbour graph of all training inputs."""

import torch.nn.functional as F
from torch import Tensor

from cclp.checks import check_integer, check_number
from cclp.methods.base import Method, Step, check_weight


class GraphPseudoLabel(Method):
    """Cross entropy of the classifier on pseudo-labels; beside CCLP also the prior of its graph.

    The pseudo-labels are made before training by :class:`cclp.pseudo_labels.labeler.Labeler`, which
    also decides whether they are good enough, and refreshed while training goes on (label
    propagation as in Iscen et al. 2019, here on the inputs and not on the embeddings).

    Args:
        num_classes: C.
        weight: of the cross entropy on pseudo-labels, as long as there are any.
        decay: share of the training over which the weight of pseudo-labels in CCLP's label
            propagation decays linearly to zero; after it there are none.
        refreshes: how often they are refreshed within that time: the classifier's predictions,
            smoothed over the graph.
        supervised_warmup: share of the training, at its beginning, in which steps see labeled
            samples only; the first pseudo-labels are then a refresh. Skipped where the graph's own
            are good enough.
    """

    def __init__(
        self,
        num_classes: int,
        weight: float = 1.0,
        *,
        decay: float = 1.0,
        refreshes: int = 0,
        supervised_warmup: float = 0.0,
    ) -> None:
        super().__init__()
        self.weight = check_weight(weight)
        self.decay = check_number("decay", decay, above=0, most=1)
        self.refreshes = check_integer("refreshes", refreshes, least=0)
        self.supervised_warmup = check_number(
            "supervised_warmup", supervised_warmup, least=0, most=1
        )
        if supervised_warmup >= decay:
            raise ValueError(
                f"supervised_warmup must be below decay, {decay:g}, got {supervised_warmup:g}"
            )

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.pseudo_labels is None or step.z_unlabeled is None or not self.weight:
            return {}
        logits = step.net.classifier(step.z_unlabeled).float()
        return {"graph_pseudo_label": self.weight * F.cross_entropy(logits, step.pseudo_labels)}
