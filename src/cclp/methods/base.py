"""What every method is: a step's tensors in, named terms of the loss out."""

from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from cclp.health import GraphHealth
from cclp.nets import Net


class Step(NamedTuple):
    """One training step, as a method sees it.

    Attributes:
        net: the network, for methods that need more passes.
        x_labeled: inputs, (N_L, …).
        labels: class indices, (N_L,).
        x_unlabeled: inputs, (N_U, …), or None.
        z_labeled, z_unlabeled: their embeddings, from two passes with batch statistics of their
            own; (N, F), or None.
        logits: of the labeled samples, (N_L, C).
        progress: share of the training that lies behind, for ramps.
    """

    net: Net
    x_labeled: Tensor
    labels: Tensor
    x_unlabeled: Tensor | None
    z_labeled: Tensor
    z_unlabeled: Tensor | None
    logits: Tensor
    progress: float


class Method(nn.Module):
    """A term of the loss, or several. State that must survive a restart is a buffer.

    A new method is one file with one subclass, and one line in ``cclp.methods.METHODS``.
    """

    uses_unlabeled: ClassVar[bool] = True

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Named terms, already weighted: the loss is their sum."""
        raise NotImplementedError

    def health(
        self, z_labeled: Tensor, labels: Tensor, z_unlabeled: Tensor | None
    ) -> GraphHealth | None:
        """Diagnostics of a step's embeddings, if the method has any."""
        return None
