"""mmCVAE: margins between the classes' scores, and an autoencoder given the predicted class."""

import torch
import torch.nn.functional as F
from torch import Tensor

from cclp.checks import check_number
from cclp.methods.base import Step
from cclp.methods.m2 import M2


class MMCVAE(M2):
    """A max-margin classifier whose predictions are the condition of an autoencoder.

    Li et al. 2018, "Max-margin deep generative models for (semi-)supervised learning". Of the
    scores f(x), the net's logits, the loss is hinge(f, y) of labeled samples; hat(f) = hinge(f, ŷ)
    of unlabeled ones, with ŷ = argmax f; the imbalance of both; and −ELBO(x, y or ŷ) of the
    autoencoder of :class:`~cclp.methods.m2.M2`. Through ŷ, a one-hot vector, a straight-through
    gradient reaches the net: that of softmax f.

    In the paper the hinge loss stands for the cross entropy; here it stands beside it. The other
    weights are those of the authors' code, relative to the hinge loss. Perceptrons instead of
    convolutions for encoder and decoder. Balance takes it that classes are as frequent among
    unlabeled samples as in labeled batches.

    Args:
        num_classes: C.
        weight: of hinge, hat and balance together.
        hat: of the hat loss within.
        balance: of the imbalance within.
        elbo: of the bounds, which are in nats per sample, for encoder and decoder.
        straight_through: factor of the gradient that the bounds give to the net.
        latent: size of z.
        hidden: size of the two hidden layers of encoder and decoder.
    """

    def __init__(
        self,
        num_classes: int,
        weight: float = 1.0,
        hat: float = 0.3,
        balance: float = 1e-3,
        elbo: float = 0.1,
        straight_through: float = 0.03,
        latent: int = 50,
        hidden: int = 256,
    ) -> None:
        super().__init__(num_classes, weight, latent, hidden)
        self.hat = check_number("hat", hat, least=0)
        self.balance = check_number("balance", balance, least=0)
        self.elbo_weight = check_number("elbo", elbo, least=0)
        self.straight_through = check_number("straight_through", straight_through, least=0)

    def forward(self, step: Step) -> dict[str, Tensor]:
        scores, labels = step.logits.float(), step.labels
        y = F.one_hot(labels, self.num_classes).float()
        terms = {
            "mmcvae_hinge": self.weight * hinge(scores, labels),
            "mmcvae_labeled": -self.elbo_weight * self.elbo(step.x_labeled, y).mean(),
        }
        if step.x_unlabeled is not None and step.z_unlabeled is not None:
            guessed = step.net.classifier(step.z_unlabeled).float()
            y_hat = guessed.argmax(1)
            off_balance = imbalance(scores, labels, guessed, y_hat)
            bound = self.elbo(step.x_unlabeled, one_hot_of(guessed, self.straight_through))
            terms["mmcvae_hat"] = self.weight * self.hat * hinge(guessed, y_hat)
            terms["mmcvae_balance"] = self.weight * self.balance * off_balance
            terms["mmcvae"] = -self.elbo_weight * bound.mean()
        return terms


def hinge(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean of max(0, 1 + max_{j≠y} f_j − f_y)."""
    own = scores.gather(1, labels[:, None])
    others = scores.scatter(1, labels[:, None], -torch.inf).amax(1)
    return F.relu(1 + others - own[:, 0]).mean()


def imbalance(scores: Tensor, labels: Tensor, guessed: Tensor, y_hat: Tensor) -> Tensor:
    """‖E_L f_y − E_U f_ŷ‖ over classes: means over all samples of the scores of their own class."""
    here, there = (
        (f * F.one_hot(y, f.shape[1])).mean(0) for f, y in ((scores, labels), (guessed, y_hat))
    )
    norm: Tensor = torch.linalg.vector_norm(here - there)
    return norm


def one_hot_of(scores: Tensor, factor: float) -> Tensor:
    """The largest score as a one-hot vector, with ``factor`` times the gradient of the softmax."""
    p = scores.softmax(1)
    return F.one_hot(scores.argmax(1), scores.shape[1]) + factor * (p - p.detach())
