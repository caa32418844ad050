"""Classes that a step has no label of, present by the last embedding of one of their samples."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from cclp.loss.gather import gather_rows


class Absent(NamedTuple):
    """Anchors of classes that are absent from a step.

    Attributes:
        z: their last embeddings, without gradient, (A, F).
        classes: class indices, (A,).
    """

    z: Tensor
    classes: Tensor


class Anchors(nn.Module):
    """The last embedding of a labeled sample of each class: a bank, kept in checkpoints.

    Where classes take turns, an unlabeled sample of a class that is absent from a step would be
    pulled into the cluster of another. With the bank every class is there, at no forward pass.

    Args:
        num_classes: C.
        embedding_size: F.

    Examples:
        >>> anchors = Anchors(3, 2)
        >>> anchors.update(torch.ones(2, 2), torch.tensor([0, 2]))
        >>> anchors.absent(torch.tensor([0, 1]))
        Absent(z=tensor([[1., 1.]]), classes=tensor([2]))
    """

    z: Tensor
    seen: Tensor

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__()
        self.register_buffer("z", torch.zeros(num_classes, embedding_size))
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))

    def absent(self, labels: Tensor) -> Absent:
        """Anchors of the classes seen so far that are not among ``labels``."""
        absent = self.seen.clone()
        absent[labels] = False
        classes = absent.nonzero()[:, 0]
        return Absent(self.z[classes], classes)

    @torch.no_grad()
    def update(self, z: Tensor, labels: Tensor) -> None:
        """Keep embeddings of labeled samples, of all processes.

        Args:
            z: (N_L, F); no gradient is kept.
            labels: their classes, (N_L,).
        """
        labels = gather_rows(labels)
        self.z[labels] = gather_rows(z.detach()).to(self.z.dtype)
        self.seen[labels] = True
