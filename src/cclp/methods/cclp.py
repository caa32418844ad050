"""Compact clustering via label propagation: the paper's method."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from cclp.checks import check_number
from cclp.loss.cclp import CCLPLoss
from cclp.loss.health import GraphHealth, graph_health
from cclp.methods.base import Method, Step


class CCLP(Method):
    """The loss of :class:`cclp.CCLPLoss` on a step's embeddings; the classifier is not touched.

    Args:
        num_classes: C.
        prior: share of the training over which the prior of its steps gives way to the graph, in
            proportion to time; 0: there is none.
        teach: weight of the classifier's cross-entropy on classes of the prior, as long as there is
            one; 0: it learns from labels only, as in the paper.
        **settings: of :class:`cclp.CCLPLoss`.
    """

    def __init__(
        self, num_classes: int, *, prior: float = 0.0, teach: float = 0.0, **settings: Any
    ) -> None:
        super().__init__()
        self.loss = CCLPLoss(num_classes, **settings)
        self.prior = check_number("prior", prior, least=0)
        self.teach = check_number("teach", teach, least=0)

    def forward(self, step: Step) -> dict[str, Tensor]:
        weight = max(0.0, 1 - step.progress / self.prior) if self.prior else 0.0
        prior = step.prior if weight > 0 else None
        terms = {"cclp": self.loss(step.z_labeled, step.labels, step.z_unlabeled, prior, weight)}
        if prior is not None and step.z_unlabeled is not None and self.teach:
            logits = step.net.classifier(step.z_unlabeled).float()
            terms["taught"] = self.teach * F.cross_entropy(logits, prior)
        return terms

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
        )
