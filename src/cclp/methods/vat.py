"""Virtual adversarial training: find the small perturbation that changes the prediction most, and
penalise the change.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor

from cclp.checks import check_integer, check_number
from cclp.draws import randint, randn_like, seeded_generators
from cclp.methods.base import Method, Step, check_weight, kept_statistics
from cclp.methods.entropy import mean_entropy


class VAT(Method):
    """KL divergence of the prediction under the worst small perturbation (Miyato et al. 2018).

    The direction is found by power iteration: the gradient of the divergence on the perturbation,
    by autograd, from a random start. The passes of a step see the same noise and dropout, so that
    the perturbation alone makes the difference; they leave no gradients on parameters and do not
    touch batch statistics.

    Args:
        num_classes: C.
        weight: of the term.
        radius: norm of the perturbation, relative to √D for inputs of D values: z-scored inputs
            have norm √D themselves. (The original's ε = 2 for MNIST in [0, 1] is 0.23 here.)
        iterations: of the power method.
        entropy: weight of the predictions' mean entropy beside it (VAT + Ent).
        xi: norm of the trial perturbation, relative as well.
    """

    def __init__(
        self,
        num_classes: int,
        weight: float = 1.0,
        *,
        radius: float = 0.2,
        iterations: int = 1,
        entropy: float = 0.0,
        xi: float = 0.02,
    ) -> None:
        super().__init__()
        self.weight = check_weight(weight)
        self.radius = check_number("radius", radius, above=0)
        self.iterations = check_integer("iterations", iterations, least=1)
        self.entropy = check_number("entropy", entropy, least=0)
        self.xi = check_number("xi", xi, above=0)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.x_unlabeled is None or step.z_unlabeled is None:
            return {}
        net, x = step.net, step.x_unlabeled.detach()
        size = x[0].numel() ** 0.5
        again = same_noise(x.device)
        with kept_statistics(net):
            with again(), torch.no_grad():
                clean = net(x).float()
            direction = _unit(randn_like(x))
            for _ in range(self.iterations):
                trial = direction.mul(self.xi * size).requires_grad_()
                with torch.enable_grad(), again():
                    distance = divergence(clean, net(x + trial))
                (gradient,) = torch.autograd.grad(distance, trial)
                direction = _unit(gradient.detach())
            with again():
                loss = divergence(clean, net(x + self.radius * size * direction))
        terms = {"vat": self.weight * loss}
        if self.entropy:
            logits = net.classifier(step.z_unlabeled)
            terms["vat_entropy"] = self.entropy * mean_entropy(logits)
        return terms


def divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(p ‖ q) of each row's softmax, averaged over rows, in float32; p has no gradient."""
    log_p = logits.detach().float().log_softmax(1)
    return (log_p.exp() * (log_p - others.float().log_softmax(1))).sum(1).mean()


def _unit(direction: Tensor) -> Tensor:
    """Each sample's at norm 1; one without a direction stays 0."""
    flat = direction.flatten(1).float()
    largest = flat.abs().amax(1, keepdim=True)
    flat = flat / torch.where(largest > 0, largest, 1)  # or tiny gradients would vanish squared
    norm = flat.norm(dim=1, keepdim=True)
    return (flat / torch.where(norm > 0, norm, 1)).reshape(direction.shape)


def same_noise(device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """Gives a context in which random numbers are the same each time it is entered."""
    seed = int(randint(2**62, (), torch.device("cpu")).item())

    return partial(seeded_generators, seed, device)
