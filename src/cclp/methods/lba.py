"""Learning by association: walks from labeled to unlabeled embeddings and back should end in their
class.
"""

import torch
from torch import Tensor

from cclp.checks import check_number
from cclp.loss.autograd import outside_autocast
from cclp.methods.base import Method, Step, check_weight

SMOOTHING = 1e-8  # within the logarithms, as in the original


class LBA(Method):
    """Walker and visit loss over embeddings (Haeusser et al. 2017), the paper's main comparison.

    With M = Z_L Z_Uᵀ, a walker goes from labeled to unlabeled samples by softmax(M) and back by
    softmax(Mᵀ). It should end with equal probability at every labeled sample of its class, and
    visit all unlabeled samples alike.

    Args:
        num_classes: C.
        weight: of the walker's term.
        visit: weight of the visit term, relative to it.
    """

    def __init__(self, num_classes: int, weight: float = 1.0, *, visit: float = 1.0) -> None:
        super().__init__()
        self.weight = check_weight(weight)
        self.visit = check_number("visit", visit, least=0)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.z_unlabeled is None:
            return {}
        with outside_autocast(step.z_labeled.device):
            walker, visit = association(
                step.z_labeled.float(), step.labels, step.z_unlabeled.float()
            )
        return {"walker": self.weight * walker, "visit": self.weight * self.visit * visit}


def association(z_labeled: Tensor, labels: Tensor, z_unlabeled: Tensor) -> tuple[Tensor, Tensor]:
    """Both losses: cross entropies of the walks against their targets."""
    match = z_labeled @ z_unlabeled.T
    there, back = match.softmax(1), match.T.softmax(1)
    same = (labels[:, None] == labels[None]).to(match.dtype)
    target = same / same.sum(1, keepdim=True)
    walker = -(target * torch.log(there @ back + SMOOTHING)).sum(1).mean()
    visit = -torch.log(there.mean(0) + SMOOTHING).mean()
    return walker, visit
