"""Triple-GAN: a classifier and a generator make pairs (x, y), which a discriminator judges."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from cclp.checks import check_number
from cclp.methods.base import Inputs, Method, Step, check_weight, frozen, kept_statistics
from cclp.methods.entropy import mean_entropy
from cclp.nets import Net
from cclp.nets.discriminators import PairDiscriminator
from cclp.nets.generators import Generator


class TripleGAN(Method):
    """Three players: classifier C(x), generator G(z, y), and a discriminator D(x, y) of pairs.

    Li et al. 2017, Algorithm 1. C gives real samples classes, G gives classes samples, and D learns
    to tell both kinds of pairs from labeled ones. Classes are discrete, so C learns from D by the
    probability of its own choice, as in REINFORCE. As in the paper, a part of the unlabeled samples
    (here half of them) stand, with C's classes, among the real pairs, as labeled ones are few.

    Other than in the paper, all are updated at once, C is any network, is not trained alone
    first, and is evaluated without an average of its weights; D is smaller.

    Args:
        num_classes: C.
        weight: of the classifier's adversarial term.
        entropy: weight of the entropy of its predictions for unlabeled samples.
        balance: weight of the cross entropy of a uniform distribution and their mean.
        made_up: weight of the cross entropy of made-up samples and the classes they are made for.
        begin: share of the training from which on made-up samples are learned from.
    """

    adam_beta1: ClassVar[float | None] = 0.5
    generator: Generator
    discriminator: PairDiscriminator
    inputs: Inputs

    def __init__(
        self,
        num_classes: int,
        weight: float = 0.5,
        *,
        entropy: float = 0.3,
        balance: float = 1e-3,
        made_up: float = 0.1,
        begin: float = 0.3,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.weight = check_weight(weight)
        self.entropy = check_number("entropy", entropy, least=0)
        self.balance = check_number("balance", balance, least=0)
        self.made_up = check_number("made_up", made_up, least=0)
        self.begin = check_number("begin", begin, least=0, most=1)

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        self.inputs = inputs
        self.generator = Generator(inputs.shape, self.num_classes)
        self.discriminator = PairDiscriminator(inputs.shape, self.num_classes)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.x_unlabeled is None or step.z_unlabeled is None:
            return {}
        x, logits = step.x_unlabeled, step.net.classifier(step.z_unlabeled)
        likeliest, chosen = logits.float().softmax(1).max(1)
        samples, classes = self.make(len(x))
        return {
            "discriminator": self.judge(step, chosen, samples.detach(), classes),
            "generator": 0.5 * judged_real(self.frozen_judge(samples, classes)).mean(),
            **self.teach(step, logits, likeliest, self.frozen_judge(x, chosen)),
            **self.learn_made_up(step, samples.detach(), classes),
        }

    def judge(self, step: Step, chosen: Tensor, made: Tensor, classes: Tensor) -> Tensor:
        """−E ln D(x, y) − ½ E ln(1 − D(x_u, C(x_u))) − ½ E ln(1 − D(G(z, y), y))."""
        assert step.x_unlabeled is not None
        half = len(chosen) // 2
        x_real = torch.cat([step.x_labeled, step.x_unlabeled[:half]])
        y_real = torch.cat([step.labels, chosen[:half]])
        real = self.discriminator(x_real, self.one_hot(y_real))
        classified = self.discriminator(step.x_unlabeled[half:], self.one_hot(chosen[half:]))
        generated = self.discriminator(made, self.one_hot(classes))
        return judged_real(real).mean() + 0.5 * (
            judged_made_up(classified).mean() + judged_made_up(generated).mean()
        )

    def teach(
        self, step: Step, logits: Tensor, likeliest: Tensor, judged: Tensor
    ) -> dict[str, Tensor]:
        """What the classifier learns from unlabeled samples.

        ½ E[p_max · (−ln D(x, argmax p))], whose gradient is that of p_max times a constant, and
        confidence and balance: E H[p] and −(1/K) Σ_k ln E p_k.
        """
        mean = logits.float().log_softmax(1).logsumexp(0)  # ln Σ p_k
        regularisers = self.entropy * mean_entropy(logits)
        regularisers = regularisers - self.balance * (mean.mean() - math.log(len(logits)))
        return {
            "triple_gan": self.weight * (likeliest * judged_real(judged).detach()).mean(),
            "confidence": regularisers,
        }

    def learn_made_up(self, step: Step, made: Tensor, classes: Tensor) -> dict[str, Tensor]:
        """CE(C(G(z, y)), y), the paper's pseudo discriminative loss, once G is good enough."""
        if step.progress < self.begin or not self.made_up:
            return {}
        with kept_statistics(step.net):
            logits = step.net(made).float()
        return {"made_up": self.made_up * F.cross_entropy(logits, classes)}

    def frozen_judge(self, x: Tensor, classes: Tensor) -> Tensor:
        """Logits of D, which does not learn from them."""
        with frozen(self.discriminator):
            logits: Tensor = self.discriminator(x, self.one_hot(classes))
        return logits

    def one_hot(self, classes: Tensor) -> Tensor:
        return F.one_hot(classes, self.num_classes).float()

    def make(self, count: int) -> tuple[Tensor, Tensor]:
        """So many samples, as the network takes them, of all classes in turn; and their classes."""
        noise = self.generator.noise(count)
        classes = torch.arange(count, device=noise.device) % self.num_classes
        return self.inputs.from_generator(self.generator(noise, self.one_hot(classes))), classes

    def draw(self, count: int) -> Tensor | None:
        return self.make(count)[0]


def judged_real(logits: Tensor) -> Tensor:
    """−ln D = softplus(−logit)."""
    return F.softplus(-logits.float())


def judged_made_up(logits: Tensor) -> Tensor:
    """−ln(1 − D) = softplus(logit)."""
    return F.softplus(logits.float())
