"""Batches that tests share."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Embedded(NamedTuple):
    z_labeled: Tensor
    labels: Tensor
    z_unlabeled: Tensor
    num_classes: int

    @property
    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Z_L, Y_L, Z_U for the reference."""
        one_hot = np.eye(self.num_classes)[self.labels.numpy()]
        return self.z_labeled.double().numpy(), one_hot, self.z_unlabeled.double().numpy()


def random_batch(
    seed: int = 0,
    labeled: int = 9,
    unlabeled: int = 12,
    features: int = 4,
    classes: int = 3,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> Embedded:
    """Points without structure; every class has a label as long as there are enough."""
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(labeled + unlabeled, features, generator=generator, dtype=torch.float64)
    z = z.to(dtype)
    return Embedded(z[:labeled], torch.arange(labeled) % classes, z[labeled:], classes)


def compact_batch(classes: int, per_class: int, labeled_per_class: int, norm: float) -> Embedded:
    """Every class in one spot, classes orthogonal."""
    corners = norm * torch.eye(classes, dtype=torch.float64)
    labels = torch.arange(classes).repeat(labeled_per_class)
    rest = torch.arange(classes).repeat(per_class - labeled_per_class)
    return Embedded(corners[labels], labels, corners[rest], classes)
