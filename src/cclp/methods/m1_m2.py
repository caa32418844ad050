"""M1 + M2: the variational autoencoder with classes, on the latent variables of one without."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cclp.methods.base import Inputs, Step, kept_statistics
from cclp.methods.variational import (
    Autoencoder,
    bound_over_classes,
    kl_to_standard,
    log_likelihood,
    log_normal,
    observed,
)
from cclp.nets import Net
from cclp.nets.autoencoders import Gaussian, Joint, LatentFeatures, draw_gaussian


class M1M2(Autoencoder):
    """Two models: M1 explains samples x by z₁ ~ N(0, 1), M2 explains z₁ by its class and a style.

    Kingma et al. 2014, Section 2. The net "latent" is q(z₁|x) and q(y|z₁). Of M1, whose bound

        ELBO(x) = E_q(z₁|x) ln p(x|z₁) − KL(q(z₁|x) ‖ N(0, 1))                     (Eq. 5)

    teaches q(z₁|x) and p(x|z₁) and nothing else, M2 gets samples of z₁ as its data: Equations 6 and
    7, see :class:`~cclp.methods.m2.M2`, with p(z₁|y, z₂) = N(mean, variance).

    In the paper M1 is trained before; here both learn in the same steps, and M2 follows M1. The
    cross entropy is weighted as in ``m2``. The net is evaluated at the mean of z₁.

    Args:
        num_classes: C.
        weight: of both bounds of M2, which are in nats per sample.
        latent: size of z₂.
        hidden: size of the two hidden layers of each network.
    """

    decoder: Joint
    style: Gaussian
    explain: Gaussian

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        if not isinstance(net.features, LatentFeatures):
            raise ValueError("method 'm1_m2' needs net 'latent'")
        self.inputs, size = inputs, net.features.size
        self.decoder = Joint((size,), math.prod(inputs.shape), self.hidden)  # p(x|z₁)
        self.style = Gaussian((size, self.num_classes), self.latent, self.hidden)  # q(z₂|z₁, y)
        self.explain = Gaussian((self.latent, self.num_classes), size, self.hidden)  # p(z₁|y, z₂)

    def forward(self, step: Step) -> dict[str, Tensor]:
        features = step.net.features
        assert isinstance(features, LatentFeatures)
        bounds, z_labeled = self.autoencode(features, step.x_labeled)
        y = F.one_hot(step.labels, self.num_classes).float()
        terms = {"m1_m2_labeled": -self.weight * self.elbo(z_labeled, y).mean()}
        if step.x_unlabeled is not None:
            more, z = self.autoencode(features, step.x_unlabeled)
            bounds = torch.cat([bounds, more])
            every = torch.eye(self.num_classes, device=y.device)[:, None]
            with kept_statistics(step.net):  # z₁ is drawn: those of its mean count
                logits = step.net.classifier(features.body(z))
            bound = bound_over_classes(logits, self.elbo(z, every).T)
            terms["m1_m2"] = -self.weight * bound.mean()
        return {"m1": -bounds.mean(), **terms}

    def autoencode(self, features: LatentFeatures, x: Tensor) -> tuple[Tensor, Tensor]:
        """ELBO(x) with one sample of z₁, (N,), and that sample, which passes no gradient on."""
        q = features.encoder(x.flatten(1))
        z = draw_gaussian(*q)
        fit = log_likelihood(observed(x, self.inputs), self.decoder(z), self.inputs)
        return fit - kl_to_standard(*q), z.detach()

    def elbo(self, z: Tensor, y: Tensor) -> Tensor:
        """ELBO(z₁, y) with one sample of z₂: (…, N) for z₁ (N, …) and classes (…, N or 1, C)."""
        q = self.style(z, y)
        fit = log_normal(z, *self.explain(draw_gaussian(*q), y))
        return fit - kl_to_standard(*q) - math.log(self.num_classes)

    def make(self, z: Tensor, y: Tensor) -> Tensor:
        made: Tensor = self.decoder(draw_gaussian(*self.explain(z, y)))
        return made
