"""CatGAN: the classifier is sure of real samples, and of none that a generator makes."""

import math

from torch import Tensor

from cclp.methods.base import Step, frozen, kept_statistics
from cclp.methods.entropy import mean_entropy
from cclp.methods.gan import GAN


class CatGAN(GAN):
    """Entropies of K classes tell real from made up: there is no class for what is made up.

    Springenberg 2016, Equations 7 to 9. The classifier is sure of each unlabeled sample and uses
    all classes alike, and is unsure of made-up samples; the generator wants it to be sure of each
    of them, and to see all classes alike among them. Nothing else ties its samples to the data:
    vectors, which have no bounds, may become far larger than real ones.

    Other than in the paper, the classifier is any network here, both networks are updated at once,
    and the cross entropy of labels has weight 1. Made-up samples are normalised by statistics of
    their own batch, which do not count among the running ones. With several processes, each takes
    the mean over its own batch.

    Args:
        num_classes: C.
        weight: of the classifier's terms.
    """

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.z_unlabeled is None:
            return {}
        made_up = self.make(self.noise(len(step.z_unlabeled)))
        with kept_statistics(step.net):
            fake = step.net(made_up.detach())
            with frozen(step.net):
                judged = step.net(made_up)
        real = step.net.classifier(step.z_unlabeled)
        # L_D = −H[E_u p(y | x)] + E_u H[p(y | x)] − E_z H[p(y | G(z))]   (Equation 7, and CE: 9)
        # L_G = −H[E_z p(y | G(z))] + E_z H[p(y | G(z))]                  (Equation 8)
        return {
            "catgan": self.weight * (indecision(real) - mean_entropy(fake)),
            "generator": indecision(judged),
        }


def indecision(logits: Tensor) -> Tensor:
    """E H[p] − H[E p] of each row's softmax p: least when each is sure and all classes are used."""
    log_mean = logits.float().log_softmax(1).logsumexp(0) - math.log(len(logits))
    return mean_entropy(logits) + (log_mean.exp() * log_mean).sum()
