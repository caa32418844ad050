"""M2: a variational autoencoder whose latent variables are the class and a style."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cclp.methods.base import Inputs, Step
from cclp.methods.variational import (
    Autoencoder,
    bound_over_classes,
    kl_to_standard,
    log_likelihood,
    observed,
)
from cclp.nets import Net
from cclp.nets.autoencoders import Gaussian, Joint, draw_gaussian


class M2(Autoencoder):
    """Classes explain samples: p(x) = Σ_y p(y) ∫ p(x|y, z) p(z) dz, and the net is q(y|x).

    Kingma et al. 2014, Section 2. p(y) is uniform and p(z) = N(0, 1); q(z|x, y) and p(x|y, z) are
    networks beside the net. With a label the bound is

        ELBO(x, y) = ln p(y) + E_q(z|x,y) ln p(x|y, z) − KL(q(z|x, y) ‖ p(z))      (Eq. 6)

    and without one Σ_y q(y|x) [ELBO(x, y) − ln q(y|x)]                            (Eq. 7).

    The paper weighs the cross entropy of a labeled sample by 0.1 N, N samples in the training set:
    its mean over 100 labels counts 10 times the mean bound of unlabeled samples. Here the bounds
    are divided instead. Labeled samples count as much as unlabeled ones in the bounds, which
    teach the decoder the classes. This is M2 on the inputs; M1 + M2, the paper's best, is
    :class:`~cclp.methods.m1_m2.M1M2`.

    Args:
        num_classes: C.
        weight: of both bounds, which are in nats per sample.
        latent: size of z.
        hidden: size of the two hidden layers of encoder and decoder.
    """

    encoder: Gaussian
    decoder: Joint

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        size = math.prod(inputs.shape)
        self.inputs = inputs
        self.encoder = Gaussian((size, self.num_classes), self.latent, self.hidden)
        self.decoder = Joint((self.latent, self.num_classes), size, self.hidden)

    def forward(self, step: Step) -> dict[str, Tensor]:
        y = F.one_hot(step.labels, self.num_classes).float()
        labeled = self.elbo(step.x_labeled, y)
        terms = {"m2_labeled": -self.weight * labeled.mean()}
        if step.x_unlabeled is not None and step.z_unlabeled is not None:
            every = torch.eye(self.num_classes, device=y.device)[:, None]
            elbo = self.elbo(step.x_unlabeled, every).T
            bound = bound_over_classes(step.net.classifier(step.z_unlabeled), elbo)
            terms["m2"] = -self.weight * bound.mean()
        return terms

    def elbo(self, x: Tensor, y: Tensor) -> Tensor:
        """ELBO(x, y) with one sample of z: (…, N) for samples (N, …) and classes (…, N or 1, C)."""
        q = self.encoder(x.flatten(1), y)
        made = self.decoder(draw_gaussian(*q), y)
        fit = log_likelihood(observed(x, self.inputs), made, self.inputs)
        return fit - kl_to_standard(*q) - math.log(self.num_classes)

    def make(self, z: Tensor, y: Tensor) -> Tensor:
        made: Tensor = self.decoder(z, y)
        return made
