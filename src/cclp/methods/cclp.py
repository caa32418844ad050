"""Compact clustering via label propagation: the paper's method."""

from typing import Any

from torch import Tensor

from cclp.loss.cclp import CCLPLoss
from cclp.loss.health import GraphHealth, graph_health
from cclp.methods.base import Method, Step


class CCLP(Method):
    """The loss of :class:`cclp.CCLPLoss` on a step's embeddings; the classifier is not touched.

    Where a step has pseudo-labels (method ``graph_pseudo_label``), they are the prior of its label
    propagation, with the weight that they have at that time.

    Args:
        num_classes: C.
        **settings: of :class:`cclp.CCLPLoss`.
    """

    def __init__(self, num_classes: int, **settings: Any) -> None:
        super().__init__()
        self.loss = CCLPLoss(num_classes, **settings)

    def forward(self, step: Step) -> dict[str, Tensor]:
        loss = self.loss(
            step.z_labeled,
            step.labels,
            step.z_unlabeled,
            step.pseudo_labels,
            step.pseudo_label_weight,
        )
        return {"cclp": loss}

    def health(
        self, z_labeled: Tensor, labels: Tensor, z_unlabeled: Tensor | None
    ) -> GraphHealth | None:
        return graph_health(
            z_labeled,
            labels,
            z_unlabeled,
            num_classes=self.loss.num_classes,
            chain_steps=self.loss.chain_steps,
            similarity=self.loss.similarity,
            temperature=self.loss.temperature,
            bandwidth=self.loss.bandwidth,
            propagation=self.loss.propagation,
            smoothing=self.loss.smoothing,
        )
