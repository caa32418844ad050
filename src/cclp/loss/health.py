"""Diagnostics of the graph of one batch."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from cclp.checks import check_integer
from cclp.loss.autograd import outside_autocast
from cclp.loss.chains import chain_loss
from cclp.loss.graph import Similarity, double, make_metric, similarities
from cclp.loss.inputs import make_batch
from cclp.loss.paths import class_shares
from cclp.loss.propagation import Propagation, check_propagation, check_smoothing, posteriors
from cclp.renamed import renamed

Code = Literal["collapsed", "isolated", "uncertain", "unreachable"]
LIMITS = {  # beyond them, a warning; by field of GraphHealth
    "largest_excess": 0.25,
    "self_transition": 0.9,
    "posterior_entropy": 0.95,
    "moves_to_label": 1e8,
}


class HealthWarning(NamedTuple):
    """What is wrong with a graph; ``str()`` is the message.

    Attributes:
        code: of the kind: one class holds most of the unlabeled mass ("collapsed"), points reach
            only themselves ("isolated"), posteriors are near uniform ("uncertain"), points reach
            no label ("unreachable").
        message: a sentence or two for people who do not know the method, with what to do.
    """

    code: Code
    message: str

    def __str__(self) -> str:
        return self.message


class GraphHealth(NamedTuple):
    """Diagnostics of one batch: plain numbers, and :meth:`warnings`.

    Attributes:
        self_transition: mean of H_ii. Near 1, points reach only themselves.
        posterior_entropy: mean entropy of Φ_U over ln C. Near 1, posteriors are uniform.
        smallest_class_mass: of the classes with a label in the batch, relative to equal masses.
        largest_class_mass: the same, largest. Far above 1, the batch collapses into one class.
        largest_excess: what a class holds of the unlabeled mass beyond its share of the labels and
            beyond chance (three standard deviations), relative to what is left to hold. Near 1, the
            batch collapses into one class.
        moves_to_label: the largest expected number of moves before an unlabeled point meets a
            label, at most 1e18 (harmonic only; 0 without unlabeled points).
        distance_to_ideal: the loss minus the entropy of T, its smallest possible value for these
            posteriors. It is 0 for compact clusters even if they are the wrong ones.
    """

    self_transition: float
    posterior_entropy: float
    smallest_class_mass: float
    largest_class_mass: float
    largest_excess: float
    moves_to_label: float
    distance_to_ideal: float

    def warnings(self) -> list[HealthWarning]:
        """What is wrong and what to do about it: one for each of :data:`LIMITS` that is passed."""
        known: dict[str, tuple[Code, str]] = {
            "largest_excess": (
                "collapsed",
                "One class may be taking over: many more unlabeled samples go to it than its share "
                "of the labels. If your data are that unbalanced, nothing to do; if not, lower the "
                "learning rate or the weight of the loss, or begin with a supervised warm-up.",
            ),
            "self_transition": (
                "isolated",
                "Samples hardly influence each other: the net has moved them too far apart. "
                "Normal in the first steps; if it stays, use similarity='cosine', or raise the "
                "temperature or bandwidth.",
            ),
            "posterior_entropy": (
                "uncertain",
                "The net does not yet tell the classes of unlabeled samples apart. Normal early "
                "in training: nothing to do; later, put more labels into the batch, or lower the "
                "temperature or bandwidth.",
            ),
            "moves_to_label": (
                "unreachable",
                "Some unlabeled samples are so unlike all labeled ones that nothing certain is "
                "learned from them. Label some of these, put more labels into the batch, or raise "
                "the temperature or bandwidth.",
            ),
        }
        values = self._asdict()
        return [HealthWarning(*known[name]) for name in LIMITS if values[name] > LIMITS[name]]


@renamed("steps", "chain_steps")
@torch.no_grad()
def graph_health(
    z_labeled: Tensor,
    labels: Tensor,
    z_unlabeled: Tensor | None,
    *,
    num_classes: int,
    chain_steps: int = 3,
    similarity: Similarity = "dot",
    temperature: float | None = None,
    bandwidth: float | Tensor = 1.0,
    propagation: Propagation = "harmonic",
    smoothing: float | None = None,
) -> GraphHealth:
    """Diagnose the graph of one batch.

    Args:
        z_labeled, labels, z_unlabeled, num_classes, chain_steps, similarity, temperature,
            bandwidth, propagation, smoothing: as in :func:`cclp.cclp_loss`.

    Returns:
        A record of plain numbers. Reading them synchronises a GPU: call it now and then.

    Raises:
        TypeError, ValueError: for a wrong argument, which is named.

    Examples:
        One class has taken over the unlabeled points: the masses show it, the loss does not.

        >>> import torch
        >>> z_labeled = torch.tensor([[4.0, 0.0], [0.0, 4.0]])
        >>> health = graph_health(
        ...     z_labeled, torch.tensor([0, 1]), z_labeled[1:].repeat(98, 1), num_classes=2)
        >>> round(health.distance_to_ideal, 3), round(health.largest_class_mass, 2)
        (0.0, 1.98)
        >>> [warning.code for warning in health.warnings()]
        ['collapsed']
    """
    check_integer("chain_steps", chain_steps, least=1)
    check_propagation(propagation)
    check_smoothing(smoothing)
    metric = make_metric(similarity, temperature, bandwidth)
    batch = make_batch(z_labeled, labels, z_unlabeled, num_classes)
    with outside_autocast(batch.z.device):
        logits = similarities(batch.z, metric)
        phi_u, moves = posteriors(
            batch, logits, metric, smoothing=smoothing, propagation=propagation
        )
        phi = torch.cat([double(batch.y), phi_u])
        n = phi.shape[0]
        loss = chain_loss(logits, phi, chain_steps).item() / n
    labeled = batch.y.sum(0) > 0
    relative_mass = phi.sum(0)[labeled] * labeled.sum() / n
    some_unlabeled = phi_u.shape[0] > 0
    return GraphHealth(
        self_transition=logits.softmax(1).diagonal().mean().item(),
        posterior_entropy=(
            torch.special.entr(phi_u).sum(1).mean().item() / math.log(num_classes)
            if some_unlabeled
            else 0.0
        ),
        smallest_class_mass=relative_mass.min().item(),
        largest_class_mass=relative_mass.max().item(),
        largest_excess=_excess(batch.y.mean(0), phi_u).max().item() if some_unlabeled else 0.0,
        moves_to_label=0.0 if moves is None else min(moves.max().item(), 1e18),
        distance_to_ideal=loss - ideal_loss(phi).item(),
    )


def ideal_loss(phi: Tensor) -> Tensor:
    """The smallest possible loss for these posteriors, (N, C): the entropy of T."""
    T = phi @ class_shares(phi.T)  # Eq. 6
    entropy: Tensor = torch.special.entr(T).sum() / len(phi)
    return entropy


def _excess(labeled_share: Tensor, phi_u: Tensor) -> Tensor:
    """How much more of the unlabeled mass each class holds than labels and chance explain, (C,)."""
    left = 1 - labeled_share
    chance = 3 * (labeled_share * left / phi_u.shape[0]).sqrt()
    excess = (phi_u.mean(0) - labeled_share - chance).clamp_min(0)
    return torch.where(left > 0, excess / torch.where(left > 0, left, 1), 0)
