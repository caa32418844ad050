"""Bad GAN: improved GAN whose generator keeps away from where real samples are dense."""

import torch
from torch import Tensor

from cclp.checks import check_number
from cclp.methods.base import Inputs, Step, frozen
from cclp.methods.entropy import mean_entropy
from cclp.methods.improved_gan import ImprovedGAN
from cclp.nets import Net
from cclp.nets.density import MADE


class BadGAN(ImprovedGAN):
    """Improved GAN, and a density model p(x) that pushes made-up samples to unlikely places.

    Dai et al. 2017, Section 4. A generator that is as good as the data teaches the classifier
    nothing; one that makes samples between the clusters moves its boundaries there. Made-up samples
    with a density above ε, that of the least likely tenth of real ones, are penalised.

    Other than in the paper, p(x) is a small MADE that is trained in the same steps, not a
    PixelCNN++ trained before; ε is a moving average over batches of the training, not of held-out
    samples; log densities are per value; all made-up samples of every step are looked at, not 30 of
    every tenth, and those below ε count in the mean. The conditional entropy of the paper's
    Equation 4 is off, as in its code for MNIST (0.1 for SVHN there); the terms for a diverse
    generator, which that code has for SVHN and CIFAR-10, are not here.

    Args:
        num_classes: C.
        weight: of both terms of the classifier.
        density: weight of the generator's penalty.
        begin: share of the training from which on there is one: the density model learns first.
        entropy: weight of the entropy of predictions for unlabeled samples.
    """

    SHARE = 0.1  # of real samples that are less likely than ε, and of a batch in its average
    density_model: MADE
    threshold: Tensor
    batches: Tensor

    def __init__(
        self,
        num_classes: int,
        weight: float = 1.0,
        *,
        density: float = 0.01,
        begin: float = 0.3,
        entropy: float = 0.0,
    ) -> None:
        super().__init__(num_classes, weight)
        self.density = check_number("density", density, least=0)
        self.begin = check_number("begin", begin, least=0, most=1)
        self.entropy = check_number("entropy", entropy, least=0)
        self.register_buffer("threshold", torch.zeros(()))
        self.register_buffer("batches", torch.zeros(()))

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        super().attach(net, inputs, samples)
        self.density_model = MADE(inputs.shape)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.x_unlabeled is None or step.z_unlabeled is None:
            return {}
        made_up = self.make(self.noise(len(step.z_unlabeled)))
        terms = self.play(step, step.z_unlabeled, made_up)
        log_p = self.density_model(step.x_unlabeled)
        terms["density"] = -log_p.mean()  # maximum likelihood
        self.watch(log_p.detach())
        if step.progress >= self.begin and self.density:
            with frozen(self.density_model):
                likely = self.density_model(made_up)
            # E max(ln p(G(z)) − ε, 0)
            terms["unlikely"] = self.density * (likely - self.threshold).relu().mean()
        if self.entropy:
            logits = step.net.classifier(step.z_unlabeled)
            terms["conditional_entropy"] = self.entropy * mean_entropy(logits)
        return terms

    @torch.no_grad()
    def watch(self, log_p: Tensor) -> None:
        """Move ε, in place, towards the 10th percentile of a batch of real samples."""
        self.batches += 1
        share = torch.clamp(1 / self.batches, min=self.SHARE)  # the plain mean of the first ones
        self.threshold += share * (log_p.quantile(self.SHARE) - self.threshold)
