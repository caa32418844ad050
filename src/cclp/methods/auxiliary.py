"""SDGM and ADGM: variational autoencoders whose classifier has an auxiliary variable."""

import math
from collections.abc import Sequence
from typing import ClassVar

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
from cclp.nets.autoencoders import AuxiliaryFeatures, Gaussian, Joint, draw_gaussian


class SDGM(Autoencoder):
    """Skip deep generative model: p(x, y, z, a) = p(y) p(z) p(a|z, y) p(x|a, z, y).

    Maaløe et al. 2016. The auxiliary variable a makes q(y|x) = ∫ q(y|a, x) q(a|x) da more than one
    softmax can say. The net "auxiliary" is q(a|x) and q(y|a, x); beside it are q(z|a, x, y) and
    the p of the model. With a ~ q(a|x) and z ~ q(z|a, x, y)

        ELBO(x, y) = E[ln p(x|a, z, y) + ln p(y) + ln p(z) + ln p(a|z, y)
                       − ln q(a|x) − ln q(z|a, x, y)]

    and without a label E_q(a|x) Σ_y q(y|a, x) [ELBO(x, y) − ln q(y|a, x)].

    As in the paper both networks of the net learn from all terms. There, the cross entropy counts
    0.1 N / N_L times the bounds; here they are weighted. One sample of a and z instead of five,
    the mean of a for the cross entropy and in evaluation instead of samples, smaller layers, no
    prior on weights, pixels as probabilities instead of drawn bits, layer norm beside the net.

    Args:
        num_classes: C.
        weight: of both bounds, which are in nats per sample.
        latent: size of z.
        hidden: size of the two hidden layers of each network.
    """

    name: ClassVar[str] = "sdgm"
    q_z: Gaussian
    p_a: Gaussian
    p_x: Joint

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        if not isinstance(net.features, AuxiliaryFeatures):
            raise ValueError(f"method {self.name!r} needs net 'auxiliary'")
        size = math.prod(inputs.shape)
        self.inputs = inputs
        auxiliary, causes = net.features.size, (self.latent, self.num_classes)
        self.q_z = Gaussian((auxiliary, size, self.num_classes), self.latent, self.hidden)
        self.make_model(size, auxiliary, causes)

    def make_model(self, size: int, auxiliary: int, causes: Sequence[int]) -> None:
        """Networks of p(a|…) and p(x|…), of the sizes of x, a, and z and y."""
        self.p_a = Gaussian(causes, auxiliary, self.hidden)
        self.p_x = Joint((*causes, auxiliary), size, self.hidden)

    def model(self, x: Tensor, a: Tensor, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of pixels or means of p(x|a, z, y), and ln p(a|z, y)."""
        return self.p_x(z, y, a), log_normal(a, *self.p_a(z, y))

    def forward(self, step: Step) -> dict[str, Tensor]:
        y = F.one_hot(step.labels, self.num_classes).float()
        _, elbo = self.bounds(step.net, step.x_labeled, y)
        terms = {f"{self.name}_labeled": -self.weight * elbo.mean()}
        if step.x_unlabeled is not None:
            every = torch.eye(self.num_classes, device=y.device)[:, None]
            logits, elbo = self.bounds(step.net, step.x_unlabeled, every)
            terms[self.name] = -self.weight * bound_over_classes(logits, elbo.T).mean()
        return terms

    def bounds(self, net: Net, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of q(y|a, x), (N, C), and ELBO(x, y), with the same sample of a."""
        assert isinstance(net.features, AuxiliaryFeatures)
        with kept_statistics(net):  # a is drawn anew: the samples have been counted already
            embeddings, a, q_a = net.features.sample(x)
        return net.classifier(embeddings), self.elbo(x, a, q_a, y)

    def elbo(self, x: Tensor, a: Tensor, q_a: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        """ELBO(x, y) with one sample of z.

        Args:
            x: samples, (N, …).
            a: of q(a|x), (N, A).
            q_a: its mean and log variance.
            y: classes, (…, N or 1, C).

        Returns:
            (…, N).
        """
        flat = x.flatten(1)
        q_z = self.q_z(a, flat, y)
        made, log_p_a = self.model(flat, a, draw_gaussian(*q_z), y)
        fit = log_likelihood(observed(x, self.inputs), made, self.inputs)
        return (
            fit - math.log(self.num_classes) - kl_to_standard(*q_z) + log_p_a - log_normal(a, *q_a)
        )

    def make(self, z: Tensor, y: Tensor) -> Tensor:
        """Logits of pixels or means, with a ~ p(a|z, y)."""
        made: Tensor = self.p_x(z, y, draw_gaussian(*self.p_a(z, y)))
        return made


class ADGM(SDGM):
    """Auxiliary deep generative model: p(x, y, z, a) = p(y) p(z) p(x|z, y) p(a|x, z, y).

    Maaløe et al. 2016. As :class:`SDGM`, but a is no cause of x: integrated out, the model is M2's,
    and a makes q(y, z|x) more than factors of Gaussians and a softmax can say.
    """

    name: ClassVar[str] = "adgm"

    def make_model(self, size: int, auxiliary: int, causes: Sequence[int]) -> None:
        self.p_a = Gaussian((*causes, size), auxiliary, self.hidden)
        self.p_x = Joint(causes, size, self.hidden)

    def model(self, x: Tensor, a: Tensor, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of pixels or means of p(x|z, y), and ln p(a|x, z, y)."""
        return self.p_x(z, y), log_normal(a, *self.p_a(z, y, x))

    def make(self, z: Tensor, y: Tensor) -> Tensor:
        """Logits of pixels or means."""
        made: Tensor = self.p_x(z, y)
        return made
