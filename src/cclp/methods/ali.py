"""ALI: an encoder and a generator make pairs (x, z), which the classifier tells apart."""

from torch import Tensor

from cclp import draws
from cclp.methods.base import Inputs, Step, frozen
from cclp.methods.gan import GAN
from cclp.methods.improved_gan import discriminator_loss
from cclp.nets import Net
from cclp.nets.ali import LATENT, JointFeatures
from cclp.nets.generators import Generator


class ALI(GAN):
    """Adversarially learned inference: D(x, z) of K classes and "made up" sees codes too.

    Dumoulin et al. 2017, Sections 2 and 4.3. Real samples come with the encoder's code, (x, E(x)),
    made-up ones with the code they are made from, (G(z), z). D tells the pairs apart and gives real
    ones a class; E and G want them to be taken for one another, so that E becomes the inverse of G.
    The logit of "made up" is 0, as in improved GAN. The network is D at (x, E(x)).

    Other than in the paper, whose semi-supervised code is not public, the networks are MLPs for
    images too and all are updated at once. D and E have no batch norm. The game is not stable: of a
    mixture of two Gaussians in the plane the generator learned little, or lost it again.

    Args:
        num_classes: C.
        weight: of the classifier's terms.
    """

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        if not isinstance(net.features, JointFeatures):
            raise ValueError("method ali needs its own net, 'ali'")
        self.inputs, self.generator = inputs, Generator(inputs.shape, latent=LATENT)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.x_unlabeled is None or step.z_unlabeled is None:
            return {}
        net, features = step.net, step.net.features
        assert isinstance(features, JointFeatures)
        noise = self.noise(len(step.x_unlabeled))
        made_up = self.make(noise)
        real = net.classifier(step.z_unlabeled)  # D(x, E(x)), without a gradient to E
        fake = net.classifier(features.joint(made_up.detach(), noise))  # D(G(z), z)
        code = features.encode(step.x_unlabeled)
        with frozen(net):
            judged_real = net.classifier(features.joint(step.x_unlabeled, code))
            judged_fake = net.classifier(features.joint(made_up, noise))
        # D: ½ E[softplus(s) − s] at (x, E(x)) + ½ E softplus(s) at (G(z), z), s the logsumexp of
        # K logits; E and G: the same with the pairs swapped
        return {
            "ali": self.weight * discriminator_loss(real, fake),
            "encoder_generator": discriminator_loss(judged_fake, judged_real),
        }

    def noise(self, count: int) -> Tensor:
        """Codes of the prior N(0, 1), on the device of the generator."""
        return draws.randn(count, LATENT, device=next(self.generator.parameters()).device)
