"""Temporal ensembling: consistency with an average of a sample's past predictions."""

import torch
from torch import Tensor

from cclp.checks import check_number
from cclp.loss.gather import gather_rows
from cclp.methods.base import Inputs, Method, Step, check_weight, ramp_up
from cclp.nets import Net


class TemporalEnsembling(Method):
    """Squared difference to the average of each unlabeled sample's past predictions.

    Laine & Aila 2017, Section 2.2. They were made under other noise and by other weights, at no
    pass of their own. The average is exponential, with its bias towards 0 corrected by how often
    the sample was seen; one that is seen for the first time adds nothing.

    A sample's average changes in the step that sees it, not at the end of an epoch. Trainings of
    few epochs have little to average over.

    Args:
        num_classes: C.
        weight: of the term, when it has been ramped up.
        decay: of the average, α.
        ramp: share of the training over which the weight grows.
    """

    mean: Tensor
    seen: Tensor

    def __init__(
        self, num_classes: int, weight: float = 10.0, *, decay: float = 0.6, ramp: float = 0.4
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.weight = check_weight(weight)
        self.decay = check_number("decay", decay, least=0)
        if decay >= 1:
            raise ValueError(f"decay must be below 1, got {decay!r}")
        self.ramp = check_number("ramp", ramp, least=0)

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        self.register_buffer("mean", torch.zeros(samples, self.num_classes))
        self.register_buffer("seen", torch.zeros(samples, dtype=torch.int64))

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.z_unlabeled is None or step.unlabeled is None:
            return {}
        predictions = step.net.classifier(step.z_unlabeled).float().softmax(1)
        targets, known = self.targets(step.unlabeled)
        loss = (known * (predictions - targets).square().sum(1)).mean()
        self.update(step.unlabeled, predictions)
        weight = self.weight * ramp_up(step.progress, self.ramp)
        return {"temporal_ensembling": weight * loss}

    def targets(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Z / (1 − αᵗ) of samples that were seen t times, (N, C); 1 if t is above 0, else 0, (N,).

        Args:
            index: in the training set, (N,).
        """
        times = self.seen[index]
        known = (times > 0).float()
        share = 1 - self.decay ** times.clamp(min=1)
        return self.mean[index] / share[:, None], known

    @torch.no_grad()
    def update(self, index: Tensor, predictions: Tensor) -> None:
        """Z ← α Z + (1 − α) p, of all processes; of a sample that is there twice, p is the mean.

        Args:
            index: in the training set, (N,).
            predictions: p, (N, C); no gradient is kept.
        """
        samples, where = torch.unique(gather_rows(index), return_inverse=True)
        p = gather_rows(predictions.detach())
        sums = p.new_zeros(len(samples), p.shape[1]).index_add_(0, where, p)
        new = sums / where.bincount()[:, None]
        self.mean[samples] = self.decay * self.mean[samples] + (1 - self.decay) * new
        self.seen[samples] += 1
