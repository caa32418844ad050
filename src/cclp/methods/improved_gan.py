"""Improved GAN: the classifier also tells real samples from those of a generator."""

import torch.nn.functional as F
from torch import Tensor

from cclp.methods.base import Step, frozen, kept_statistics
from cclp.methods.gan import GAN


class ImprovedGAN(GAN):
    """A classifier of K classes and "made up", and a generator that matches features.

    Salimans et al. 2016, Sections 3.1 and 5. The logit of "made up" is 0, as K logits have one
    degree of freedom too many; a sample is real with probability Z / (Z + 1), ln Z the logsumexp of
    its K logits. The generator's samples shall have the mean embedding of real ones.

    The paper's classifier has no batch norm: the network ``discriminator_mlp``. Any other will do
    here. In one with batch norm, made-up samples are normalised by statistics of their own batch,
    which do not count among the running ones; the generator then has the means it is to match for
    nothing, and its images look like noise, though the classifier learns all the same. Both
    networks are updated at once, the generator with a quarter of the learning rate (the paper: in
    turns, with the same rate), and the last weights are evaluated, not their average.

    Args:
        num_classes: C.
        weight: of both terms of the classifier.
    """

    learning_rate = 0.25  # else the classifier is soon too sure to teach anything

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.z_unlabeled is None:
            return {}
        return self.play(step, step.z_unlabeled, self.make(self.noise(len(step.z_unlabeled))))

    def play(self, step: Step, z_unlabeled: Tensor, made_up: Tensor) -> dict[str, Tensor]:
        """Terms of the classifier and of the generator."""
        with kept_statistics(step.net):
            fake = step.net(made_up.detach())
            with frozen(step.net):
                z_fake = step.net.features(made_up)
        real = step.net.classifier(z_unlabeled)
        return {
            "improved_gan": self.weight * discriminator_loss(real, fake),
            "generator": feature_matching(z_fake, z_unlabeled.detach()),
        }


def discriminator_loss(real: Tensor, fake: Tensor) -> Tensor:
    """−½ E ln p(real | real) − ½ E ln p(made up | made up), of K logits each.

    With s = ln Σ exp(logits): p(real) = eˢ / (eˢ + 1), so −ln p(real) = softplus(s) − s and
    −ln p(made up) = softplus(s).
    """
    s_real, s_fake = (logits.float().logsumexp(1) for logits in (real, fake))
    return 0.5 * (F.softplus(s_real) - s_real).mean() + 0.5 * F.softplus(s_fake).mean()


def feature_matching(z_fake: Tensor, z_real: Tensor) -> Tensor:
    """Mean over units of (E z_fake − E z_real)²."""
    return (z_fake.float().mean(0) - z_real.float().mean(0)).square().mean()
