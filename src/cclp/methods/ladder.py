"""Ladder network: a decoder takes the noise away from every level of the classifier."""

from math import prod

import torch
from torch import Tensor

from cclp.checks import check_number
from cclp.methods.base import Inputs, Method, Step, check_weight
from cclp.nets import Net
from cclp.nets.ladder import NOISE, Decoder, LadderNet

GREY_NOISE = 1.0


class Ladder(Method):
    """Each level of a noisy pass, denoised with the help of those above, as in the clean pass.

    Rasmus et al. 2015, Algorithm 1. The network is one of its own, :mod:`cclp.nets.ladder`: in
    training its embeddings, and the predictions that are compared with labels, are of a noisy pass;
    the clean one, which shares the weights, is the target and predicts. No gradient is stopped.

    Inputs are z-scores. MNIST's pixels have a standard deviation of 0.31 in [0, 1]: the paper's
    noise of 0.3 on them is one of 1 here, and its weight of 1000 is one of 100.

    Args:
        num_classes: C.
        weight: of all levels.
        input_weight, first_weight, later_weight: of the inputs, the first level, and each other.
        noise: standard deviation, at every level.
        input_noise: standard deviation, at the inputs; None: 1 for grey images, else 0.3, the
            paper's on MNIST and on CIFAR-10.
    """

    decoder: Decoder

    def __init__(
        self,
        num_classes: int,
        weight: float = 1.0,
        *,
        input_weight: float = 100.0,
        first_weight: float = 10.0,
        later_weight: float = 0.1,
        noise: float = NOISE,
        input_noise: float | None = None,
    ) -> None:
        super().__init__()
        self.weight = check_weight(weight)
        self.weights = (
            check_number("input_weight", input_weight, least=0),
            check_number("first_weight", first_weight, least=0),
            check_number("later_weight", later_weight, least=0),
        )
        self.noise, self.input_noise = check_noise(noise, input_noise)

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        net = prepare(net, inputs, self.noise, self.input_noise)
        self.decoder = Decoder([prod(inputs.shape), *(level.bias.numel() for level in net.levels)])

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.x_unlabeled is None:
            return {}
        net = step.net
        assert isinstance(net, LadderNet)
        noisy, logits = net.noisy(step.x_unlabeled)
        denoised = self.decoder(noisy, logits.float().softmax(1))
        inputs, *levels = zip(denoised, net.clean(step.x_unlabeled), strict=True)
        costs = [(inputs[0].float() - inputs[1].float()).square().mean()]
        costs += [denoising_cost(estimate, clean) for estimate, clean in levels]
        weights = (*self.weights, *[self.weights[-1]] * (len(costs) - 3))
        weighted = [w * cost for w, cost in zip(weights, costs, strict=True)]
        return {"ladder": self.weight * torch.stack(weighted).sum()}


def denoising_cost(estimate: Tensor, clean: Tensor) -> Tensor:
    """Mean of (ẑ_BN − z)², with z = (a − m) / s and ẑ_BN = (ẑ − m) / s: the mean of ((ẑ − a) / s)².

    Args:
        estimate: ẑ, (N, size).
        clean: a, before it is normalised; m and s are mean and standard deviation of its units.
    """
    clean = clean.float()
    variance = clean.var(0, correction=0) + 1e-5
    return ((estimate.float() - clean).square() / variance).mean()


def check_noise(noise: float, input_noise: float | None) -> tuple[float, float | None]:
    """Standard deviations: zero or more."""
    if input_noise is not None:
        check_number("input_noise", input_noise, least=0)
    return check_number("noise", noise, least=0), input_noise


def prepare(net: Net, inputs: Inputs, noise: float, input_noise: float | None) -> LadderNet:
    """Set the noise of a network that has to be a ladder's."""
    if not isinstance(net, LadderNet):
        raise ValueError(f"the net must be a ladder's, got {type(net).__name__}")
    for level in net.levels:
        level.noise = noise
    if input_noise is None:
        input_noise = GREY_NOISE if inputs.are_images and inputs.shape[0] == 1 else NOISE
    net.encoder.noise = input_noise
    return net
