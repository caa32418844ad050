"""What every method is: a step's tensors in, named terms of the loss out."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from cclp.checks import check_number
from cclp.loss.health import GraphHealth
from cclp.methods.anchors import Absent
from cclp.nets import Net, batch_norms


class Inputs(NamedTuple):
    """What the inputs of the network are, for methods that make some themselves.

    Attributes:
        shape: of a sample: (channels, height, width) or (features,).
        mean, scale: of the normalisation, (x − mean) · scale, in shapes that broadcast.
        low, high: smallest and largest raw value of images; of vectors both are 0.
    """

    shape: tuple[int, ...]
    mean: Tensor
    scale: Tensor
    low: float = 0.0
    high: float = 0.0

    @property
    def are_images(self) -> bool:
        return len(self.shape) == 3

    def from_pixels(self, pixels: Tensor) -> Tensor:
        """Pixels in [0, 1] as the network takes them."""
        mean, scale = (values.to(pixels.device) for values in (self.mean, self.scale))
        return (self.low + (self.high - self.low) * pixels - mean) * scale

    def from_generator(self, made: Tensor) -> Tensor:
        """What a generator or decoder gives: logits of pixels; vectors as they are."""
        return self.from_pixels(made.float().sigmoid()) if self.are_images else made.float()

    def to_pixels(self, x: Tensor) -> Tensor:
        """Inputs of the network as pixels in [0, 1]."""
        mean, scale = (values.to(x.device) for values in (self.mean, self.scale))
        return ((x / scale + mean - self.low) / (self.high - self.low)).clamp(0, 1)


class Step(NamedTuple):
    """One training step, as a method sees it.

    Attributes:
        net: the network, for methods that need more passes.
        x_labeled: inputs, (N_L, …).
        labels: class indices, (N_L,).
        x_unlabeled: inputs, (N_U, …), or None.
        z_labeled, z_unlabeled: their embeddings, from two passes with batch statistics of their
            own; (N, F), or None.
        logits: of the labeled samples, (N_L, C).
        progress: share of the training that lies behind, for ramps.
        max_steps: of the whole training.
        pseudo_labels: class probabilities of the unlabeled samples, (N_U, C), or None: see
            :mod:`cclp.pseudo_labels`.
        pseudo_label_weight: of them in label propagation, in [0, 1].
        weights: of the labeled samples in the supervised term, (N_L,), or None: all 1.
        absent: anchors of the classes that have no label in this step; None if every class has one
            in every step.
        unlabeled: indices of the unlabeled samples in the training set, (N_U,), or None.
        x_neighbours: inputs of a neighbour of each unlabeled sample, (N_U, …), for methods that ask
            for them by ``neighbours``; or None.
    """

    net: Net
    x_labeled: Tensor
    labels: Tensor
    x_unlabeled: Tensor | None
    z_labeled: Tensor
    z_unlabeled: Tensor | None
    logits: Tensor
    progress: float
    max_steps: int = 1
    pseudo_labels: Tensor | None = None
    pseudo_label_weight: float = 0.0
    weights: Tensor | None = None
    absent: Absent | None = None
    unlabeled: Tensor | None = None
    x_neighbours: Tensor | None = None


class Method(nn.Module):
    """A term of the loss, or several. State that must survive a restart is a buffer.

    A new method is one file with one subclass, and one line in ``cclp.methods.METHODS``. Without
    unlabeled samples in a step (``x_unlabeled`` is None) it adds what it can, perhaps nothing.

    It may own further networks, made in :meth:`attach`: a generator, a decoder. Their parameters
    are in the same optimizer, so that a step is one backward pass and one update, of all networks
    at once. Who learns from which term is said where it is computed: :func:`frozen` networks pass
    gradients on and get none, and a detached tensor passes none on.

    Attributes:
        uses_unlabeled: whether steps must hold unlabeled samples.
        evaluated: name of a module of the method, a network to evaluate and predict with instead of
            the trained one.
        neighbours: of each sample in the nearest-neighbour graph of all inputs from which steps
            hold one of each unlabeled sample; 0: steps hold none.
        learning_rate: of the method's own networks, relative to that of the network.
        adam_beta1: of Adam in a training with this method; None: as usual. GANs oscillate less with
            0.5.
    """

    uses_unlabeled: ClassVar[bool] = True
    evaluated: ClassVar[str | None] = None
    neighbours: int = 0
    learning_rate: float = 1.0
    adam_beta1: ClassVar[float | None] = None

    def forward(self, step: Step) -> dict[str, Tensor]:
        """Named terms, already weighted: the loss is their sum."""
        raise NotImplementedError

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        """Called once, with the network before its first step.

        Args:
            net: to be trained.
            inputs: what it takes.
            samples: in the training set.
        """

    def after_step(self, net: Net) -> None:
        """Called when the optimizer has changed the network."""

    def health(
        self, z_labeled: Tensor, labels: Tensor, z_unlabeled: Tensor | None
    ) -> GraphHealth | None:
        """Diagnostics of a step's embeddings, if the method has any."""
        return None

    def draw(self, count: int) -> Tensor | None:
        """So many samples of a generative model, as the network takes them; None without one."""
        return None


def check_weight(weight: float) -> float:
    """Of a term: zero or more."""
    return check_number("weight", weight, least=0)


def ramp_up(progress: float, length: float) -> float:
    """From almost 0 to 1 over the first share ``length`` of the training: exp(−5 (1 − t)²).

    Laine & Aila 2017, Section 2.

    Examples:
        >>> [round(ramp_up(p, 0.4), 3) for p in (0.0, 0.2, 0.4, 1.0)]
        [0.007, 0.287, 1.0, 1.0]
    """
    left = max(0.0, 1 - progress / length) if length > 0 else 0.0
    return math.exp(-5 * left**2)


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """A pass within gives gradients to inputs, and none to the modules' parameters."""
    trained = [p for module in modules for p in module.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


@torch.no_grad()
def average(mean: nn.Module, new: nn.Module, share: float) -> None:
    """Move the parameters of ``mean`` by this share towards those of ``new``."""
    for mine, its in zip(mean.parameters(), new.parameters(), strict=True):
        mine.lerp_(its, share)


@contextmanager
def kept_statistics(net: nn.Module) -> Iterator[None]:
    """A pass within uses the statistics of its batch but does not add to the running ones.

    So that the network is evaluated with those of the samples as they are, once each.
    """
    norms = batch_norms(net)
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
