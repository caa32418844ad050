"""Compact clustering via label propagation: the paper's method."""

from copy import copy
from typing import Any

import torch
from torch import Tensor

from cclp.loss.cclp import CCLPLoss
from cclp.loss.graph import log_adjacency, make_metric, make_points, similarities
from cclp.loss.health import GraphHealth, graph_health
from cclp.methods.anchors import Absent
from cclp.methods.base import Method, Step


class CCLP(Method):
    """The loss of :class:`cclp.CCLPLoss` on a step's embeddings; the classifier is not touched.

    Where a step has pseudo-labels (method ``graph_pseudo_label``), they are the prior of its label
    propagation, with the weight that they have at that time. Where a step has labels of some
    classes only, anchors stand for the others: see :mod:`cclp.methods.anchors`.

    Args:
        num_classes: C.
        **settings: of :class:`cclp.CCLPLoss`.
    """

    def __init__(self, num_classes: int, **settings: Any) -> None:
        super().__init__()
        self.loss = CCLPLoss(num_classes, **settings)

    def forward(self, step: Step) -> dict[str, Tensor]:
        loss, prior = self.loss, step.pseudo_labels
        z_labeled, labels, share = step.z_labeled, step.labels, 1.0
        if step.z_unlabeled is not None and step.absent is not None:
            near = self._near(step, step.z_unlabeled, step.absent)
            z_labeled = torch.cat([z_labeled, near.z])
            labels = torch.cat([labels, near.classes])
            if not loss.gather:  # columns of the other classes would cost time and change nothing
                present, labels = torch.unique(labels, return_inverse=True)
                loss = copy(loss)
                loss.num_classes = len(present)
                prior = None if prior is None else _restricted(prior, present)
            # With less than one sample for each class a sample is alone with the nearest label,
            # right or wrong: to pull it there does harm.
            share = min(1.0, len(step.z_unlabeled) / self.loss.num_classes)
        term = loss(z_labeled, labels, step.z_unlabeled, prior, step.pseudo_label_weight)
        return {"cclp": share * term}

    @torch.no_grad()
    def _near(self, step: Step, z_unlabeled: Tensor, absent: Absent) -> Absent:
        """Absent classes that an unlabeled sample is nearest to, or that are its pseudo-label.

        The others hardly count in label propagation, and with thousands of classes cost too much.
        """
        z_anchors = absent.z.to(z_unlabeled.dtype)
        known = torch.cat([step.z_labeled, z_anchors])
        metric = make_metric(self.loss.similarity, self.loss.temperature, self.loss.bandwidth)
        z = torch.cat([known, z_unlabeled]).float()
        if callable(metric.similarity):
            rows = similarities(z, metric)[len(known) :]
        else:
            rows = log_adjacency(make_points(z, metric), metric, len(known))
        nearest = rows[:, : len(known)].argmax(1)
        chosen = torch.zeros(len(known), dtype=torch.bool, device=z.device)
        chosen[nearest] = True
        chosen = chosen[len(step.z_labeled) :]
        if step.pseudo_labels is not None:
            chosen |= torch.isin(absent.classes, step.pseudo_labels.argmax(1))
        return Absent(z_anchors[chosen], absent.classes[chosen])

    def health(
        self, z_labeled: Tensor, labels: Tensor, z_unlabeled: Tensor | None
    ) -> GraphHealth | None:
        if self.loss.neighbours is not None:  # another graph, and perhaps too many points for it
            return None
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


def _restricted(prior: Tensor, classes: Tensor) -> Tensor:
    """Class probabilities given that it is one of ``classes``; uniform if it is none of them."""
    some = prior[:, classes] + torch.finfo(prior.dtype).tiny
    return some / some.sum(1, keepdim=True)
