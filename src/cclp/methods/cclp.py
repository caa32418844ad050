"""Compact clustering via label propagation: the paper's method."""

from typing import Any

from torch import Tensor

from cclp.health import GraphHealth, graph_health
from cclp.losses import CCLPLoss
from cclp.methods.base import Method, Step


class CCLP(Method):
    """The loss of :class:`cclp.CCLPLoss` on a step's embeddings; the classifier is not touched.

    Args:
        num_classes: C.
        **settings: of :class:`cclp.CCLPLoss`.
    """

    def __init__(self, num_classes: int, **settings: Any) -> None:
        super().__init__()
        self.loss = CCLPLoss(num_classes, **settings)

    def forward(self, step: Step) -> dict[str, Tensor]:
        return {"cclp": self.loss(step.z_labeled, step.labels, step.z_unlabeled)}

    def health(
        self, z_labeled: Tensor, labels: Tensor, z_unlabeled: Tensor | None
    ) -> GraphHealth | None:
        return graph_health(
            z_labeled,
            labels,
            z_unlabeled,
            num_classes=self.loss.num_classes,
            steps=self.loss.steps,
            similarity=self.loss.similarity,
            temperature=self.loss.temperature,
            bandwidth=self.loss.bandwidth,
        )
