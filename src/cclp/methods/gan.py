"""What the methods with a generator and no other network have in common."""

from typing import ClassVar

from torch import Tensor

from cclp.methods.base import Inputs, Method, check_weight
from cclp.nets import Net
from cclp.nets.generators import Generator


class GAN(Method):
    """A generator against the network.

    Args:
        num_classes: C.
        weight: of the network's terms.
    """

    adam_beta1: ClassVar[float | None] = 0.5
    generator: Generator
    inputs: Inputs

    def __init__(self, num_classes: int, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = check_weight(weight)

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        self.inputs, self.generator = inputs, Generator(inputs.shape)

    def noise(self, count: int) -> Tensor:
        """What so many samples are made from."""
        return self.generator.noise(count)

    def make(self, noise: Tensor) -> Tensor:
        """Samples as the network takes them."""
        return self.inputs.from_generator(self.generator(noise))

    def draw(self, count: int) -> Tensor | None:
        return self.make(self.noise(count))
