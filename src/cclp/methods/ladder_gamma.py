"""Γ-model: the ladder with its top level alone."""

from torch import Tensor

from cclp.methods.base import Inputs, Method, Step, check_weight
from cclp.methods.ladder import check_noise, denoising_cost, prepare
from cclp.nets import Net
from cclp.nets.ladder import NOISE, Combinator, LadderNet, normalize


class LadderGamma(Method):
    """The classifier's level of a noisy pass, denoised with the help of the noisy prediction.

    Rasmus et al. 2015, Sections 3 and 4.1.2: a ladder whose decoder is its top level. Network and
    passes are as in :class:`~cclp.methods.ladder.Ladder`; for images the paper's CNN-Γ, in which
    pooling follows batch norm and noise here and has none of its own.

    Args:
        num_classes: C.
        weight: of the term.
        noise, input_noise: as in :class:`~cclp.methods.ladder.Ladder`.
    """

    combinator: Combinator

    def __init__(
        self,
        num_classes: int,
        weight: float = 1.0,
        *,
        noise: float = NOISE,
        input_noise: float | None = None,
    ) -> None:
        super().__init__()
        self.weight = check_weight(weight)
        self.noise, self.input_noise = check_noise(noise, input_noise)
        self.combinator = Combinator(num_classes)

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        prepare(net, inputs, self.noise, self.input_noise)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.x_unlabeled is None or step.z_unlabeled is None:
            return {}
        net = step.net
        assert isinstance(net, LadderNet)
        noisy = net.top.noisy(step.z_unlabeled)
        probabilities = net.top.after(noisy).float().softmax(1)
        estimate = self.combinator(noisy, normalize(probabilities))
        clean = net.clean(step.x_unlabeled)[-1]
        return {"ladder_gamma": self.weight * denoising_cost(estimate, clean)}
