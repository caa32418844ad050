"""Π-model: consistency of two predictions under different noise."""

from collections.abc import Callable

from torch import Tensor

from cclp.checks import check_function, check_number
from cclp.methods.base import Method, Step, check_weight, kept_statistics, ramp_up


class PiModel(Method):
    """Squared difference of two predictions for each unlabeled sample (Laine & Aila 2017).

    The noise is the network's own (input noise, dropout), and ``augment`` if there is one. The
    gradient flows through both passes, as in the original.

    Args:
        num_classes: C.
        weight: of the term, when it has been ramped up.
        ramp: share of the training over which the weight grows.
        augment: of the inputs of the second pass, (N, …) to (N, …).
    """

    def __init__(
        self,
        num_classes: int,
        weight: float = 10.0,
        *,
        ramp: float = 0.4,
        augment: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.weight = check_weight(weight)
        self.ramp = check_number("ramp", ramp, least=0)
        self.augment = check_function("augment", augment)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.x_unlabeled is None or step.z_unlabeled is None:
            return {}
        x = step.x_unlabeled if self.augment is None else self.augment(step.x_unlabeled)
        with kept_statistics(step.net):
            again = step.net(x)
        loss = squared_difference(step.net.classifier(step.z_unlabeled), again)
        return {"pi_model": self.weight * ramp_up(step.progress, self.ramp) * loss}


def squared_difference(logits: Tensor, others: Tensor) -> Tensor:
    """Σ (p − q)² over classes of each row's softmax, averaged over rows, in float32."""
    return (logits.float().softmax(1) - others.float().softmax(1)).square().sum(1).mean()
