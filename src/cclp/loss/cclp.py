"""``cclp_loss``: graph, propagation and chains composed. ``CCLPLoss``: the same as a module."""

from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from cclp.checks import check_choice, check_integer, check_number
from cclp.loss.autograd import outside_autocast
from cclp.loss.chains import chain_loss
from cclp.loss.fused import Settings, fused_loss
from cclp.loss.gather import gather_batch
from cclp.loss.graph import Similarity, double, make_metric, similarities
from cclp.loss.inputs import make_batch, make_prior, values_visible
from cclp.loss.propagation import (
    Propagation,
    check_propagation,
    check_smoothing,
    posteriors,
)
from cclp.loss.released import SMOOTHING, released_loss
from cclp.loss.sparse import Settings as SparseSettings
from cclp.loss.sparse import sparse_loss
from cclp.renamed import renamed

Normalization = Literal["nodes", "pairs"]
NORMALIZATIONS = ("nodes", "pairs")


@renamed("steps", "chain_steps")
def cclp_loss(
    z_labeled: Tensor,
    labels: Tensor,
    z_unlabeled: Tensor | None,
    *,
    num_classes: int,
    chain_steps: int = 3,
    similarity: Similarity = "dot",
    temperature: float | None = None,
    bandwidth: float | Tensor = 1.0,
    normalization: Normalization = "nodes",
    propagation: Propagation = "harmonic",
    smoothing: float | None = None,
    detach_posteriors: bool = False,
    prior: Tensor | None = None,
    prior_weight: float = 1.0,
    gather: bool = False,
    neighbours: int | None = None,
) -> Tensor:
    r"""Compact clustering via label propagation, for the embeddings of one batch.

    Eq. 9: :math:`\frac{1}{S} \sum_{s=1}^{S} \frac{1}{N} \sum_{i,j} -T_{ij} \log H^{(s)}_{ij}`,
    where T are ideal transitions within propagated classes and :math:`H^{(s)}` the probabilities
    of Markov chains of s moves that stay within a class until the last.

    Args:
        z_labeled: embeddings of labeled samples, (N_L, F), float64, float32, bfloat16 or float16.
        labels: class indices, (N_L,), or soft labels, (N_L, C), rows summing to one; no gradient
            goes to them. A class without a label in the batch is fine.
        z_unlabeled: embeddings of unlabeled samples, (N_U, F). None or empty: the loss regularises
            fully supervised training.
        num_classes: C, at least 2.
        chain_steps: S, the longest chain.
        similarity: ``"dot"``, ``"cosine"``, ``"euclidean"`` (−‖z_i − z_j‖² / bandwidth²) or a
            callable from (N, F) to (N, N), finite. It is called once, in at least float32.
        temperature: divides the similarity; None is 1, and 0.1 for ``"cosine"``.
        bandwidth: of ``"euclidean"``: a number, or a tensor with one value per feature.
        normalization: ``"nodes"`` divides by N, ``"pairs"`` by N².
        propagation: ``"harmonic"`` (Eq. 5) or ``"symmetric"`` (Zhou et al. 2004, the footnote).
        smoothing: probability of a jump to a random label at each move of label propagation. None:
            no jump on the CPU, 1e-10 on a GPU and in a compiled function (see below).
        detach_posteriors: treat propagated labels as constants.
        prior: posteriors of the unlabeled samples known from elsewhere, (N_U, C), for the first
            training steps, when the embedding says nothing yet; no gradient goes to them. Ours,
            not the paper's.
        prior_weight: their share in [0, 1]; the rest is left to the graph.
        gather: one graph over the batches of all processes of ``torch.distributed``, which may be
            of different sizes. All must call it, with the same settings; all get the same loss.
            Its gradient is right if gradients are averaged, as DistributedDataParallel does. With
            one process, or no process group, nothing is different. With ``neighbours`` each
            process does its part of the work, else every one does all of it.
        neighbours: k. Walks go over the k most similar points only, but for the last move of
            chains, which goes over all: another graph, for batches of many thousands, as memory is
            O(N k) then and not O(N²). Up to 4,000 unlabeled points labels are propagated as on the
            whole graph; of more by iterations, with a ``smoothing`` of 1e-10 for None that is
            raised, with a warning, where labels would not arrive. For built-in similarities,
            ``"harmonic"`` and eager mode. None: the whole graph.

    Returns:
        A scalar in at least float32. Value and gradient are finite for embeddings whose squared
        norms are, but for a gradient too large for float16 embeddings: that is infinite, as
        everywhere in PyTorch, and a ``GradScaler`` skips the step. There is no second derivative.
        The gradient is computed with the value: under ``torch.no_grad()`` the call takes a third of
        the time.

    Raises:
        TypeError, ValueError: for a wrong argument, which is named. Values are looked at in eager
            mode on the CPU only.
        RuntimeError: elsewhere, for labels or ``prior_weight`` out of range, as an asynchronous
            assertion.

    Precision:
        In eager mode on the CPU, float32 embeddings of norms up to 1e8 give the value and gradient
        of exact arithmetic to about the precision of float32, and of up to 1e18 finite ones:
        similarities and label propagation are
        computed in float64, by elimination without subtraction where a factorisation cannot be
        trusted; chains in float32, or in float64 and with logarithms where their range is left,
        which takes longer. (With a callable similarity or "symmetric", posteriors below 1e-308
        count as zero in chains.) On a GPU and in a compiled function nothing waits for values:
        chains are computed in float64 and cut off at 1e-290, and posteriors of points that meet a
        label after t moves are off by about 1e-10 t. Where chains hang on posteriors smaller than
        that, at norms beyond 9, the loss can be off by more than a tenth there. With ``neighbours``
        chains are computed in float64 everywhere and cut off at 1e-290, at norms beyond about 20.

    Differences from the paper:
        Scaled by 1/N as in the authors' code, not 1/N² as printed. Labels are propagated on the
        graph without self-loops, which has the same solution. There is no floor under the
        logarithm. See :meth:`CCLPLoss.as_printed` and :meth:`CCLPLoss.as_released` for the
        originals.

    Examples:
        Two compact classes of four points each reach the optimum, ln(N / C):

        >>> import math, torch
        >>> corners = 5 * torch.eye(2)
        >>> loss = cclp_loss(corners, torch.tensor([0, 1]), corners.repeat(3, 1), num_classes=2)
        >>> round(loss.item(), 4) == round(math.log(8 / 2), 4)
        True
    """
    check_integer("chain_steps", chain_steps, least=1)
    check_choice("normalization", normalization, NORMALIZATIONS)
    check_propagation(propagation)
    check_smoothing(smoothing)
    metric = make_metric(similarity, temperature, bandwidth)
    batch = make_batch(z_labeled, labels, z_unlabeled, num_classes)
    known = make_prior(prior, prior_weight, batch)
    if gather:
        batch, known = gather_batch(batch, known)
    n = batch.z.shape[0]
    scale = 1 / (n if normalization == "nodes" else n * n)
    check_neighbours(neighbours, similarity, propagation)
    with outside_autocast(batch.z.device):
        if neighbours is not None:
            sparse = SparseSettings(
                neighbours, chain_steps, smoothing, detach_posteriors, divided=gather
            )
            return scale * sparse_loss(batch, known, metric, sparse)
        if propagation == "harmonic" and not callable(similarity):
            settings = Settings(
                metric, chain_steps, scale / chain_steps, smoothing, detach_posteriors
            )
            return fused_loss(batch, known, settings, hard_labels=labels.ndim == 1)
        logits = similarities(batch.z, metric)  # Eq. 2
        if callable(similarity) and values_visible(logits) and not logits.isfinite().all():
            raise ValueError("similarity: the callable must return finite values, got others")
        phi = posteriors(
            batch, logits, metric, smoothing=smoothing, propagation=propagation, prior=known
        ).phi
        if detach_posteriors:
            phi = phi.detach()
        Phi = torch.cat([double(batch.y), phi])
        return scale * chain_loss(logits, Phi, chain_steps)  # Eq. 3, 6-9


def check_neighbours(neighbours: object, similarity: Similarity, propagation: str) -> None:
    """None, or a number of them and a graph for which there is a sparse one."""
    if neighbours is None:
        return
    check_integer("neighbours", neighbours, least=1)
    if torch.compiler.is_compiling():
        raise ValueError("neighbours needs eager mode: leave this loss out of torch.compile")
    if callable(similarity):
        raise ValueError("neighbours needs a built-in similarity, got a callable")
    if propagation != "harmonic":
        raise ValueError(f"neighbours needs propagation='harmonic', got {propagation!r}")


class CCLPLoss(nn.Module):
    """:func:`cclp_loss` as a module: holds and checks the settings.

    Args:
        num_classes: C.
        weight: w of Algorithm 1, multiplies the loss.
        learn_bandwidth: make the bandwidth of ``similarity="euclidean"`` a parameter, positive by
            construction: give it to the optimizer with the net's.
        chain_steps, similarity, temperature, bandwidth, normalization, propagation, smoothing,
            detach_posteriors, gather, neighbours: as in :func:`cclp_loss`.

    Shapes:
        ``forward(z_labeled, labels, z_unlabeled)``: (N_L, F), (N_L,) or (N_L, C), (N_U, F) or None
        to a scalar. ``prior``, (N_U, C), and ``prior_weight`` may follow.

    Raises:
        TypeError, ValueError: for a wrong setting, at construction.

    Examples:
        >>> import torch
        >>> regulariser = CCLPLoss(num_classes=10, weight=0.1)
        >>> z_labeled, z_unlabeled = torch.randn(20, 8), torch.randn(30, 8, requires_grad=True)
        >>> regulariser(z_labeled, torch.arange(20) % 10, z_unlabeled).backward()
        >>> z_unlabeled.grad.shape
        torch.Size([30, 8])
    """

    @renamed("steps", "chain_steps")
    def __init__(
        self,
        num_classes: int,
        *,
        weight: float = 1.0,
        learn_bandwidth: bool = False,
        chain_steps: int = 3,
        similarity: Similarity = "dot",
        temperature: float | None = None,
        bandwidth: float | Tensor = 1.0,
        normalization: Normalization = "nodes",
        propagation: Propagation = "harmonic",
        smoothing: float | None = None,
        detach_posteriors: bool = False,
        gather: bool = False,
        neighbours: int | None = None,
    ) -> None:
        super().__init__()
        self.num_classes = check_integer("num_classes", num_classes, least=2)
        self.weight = check_number("weight", weight)
        self.chain_steps = check_integer("chain_steps", chain_steps, least=1)
        check_choice("normalization", normalization, NORMALIZATIONS)
        check_propagation(propagation)
        make_metric(similarity, temperature, bandwidth)
        if learn_bandwidth and similarity != "euclidean":
            raise ValueError(
                f"learn_bandwidth=True needs similarity='euclidean', got {similarity!r}"
            )
        self.similarity = similarity  # a module among callables moves and trains with this one
        self.temperature = temperature
        self.normalization: Normalization = normalization
        self.propagation: Propagation = propagation
        self.smoothing = check_smoothing(smoothing)
        self.detach_posteriors = detach_posteriors
        self.gather = gather
        check_neighbours(neighbours, similarity, propagation)
        self.neighbours = neighbours
        self.log_bandwidth: nn.Parameter | None = None
        self._bandwidth: float | Tensor
        if learn_bandwidth:
            self.log_bandwidth = nn.Parameter(torch.as_tensor(bandwidth).detach().float().log())
        elif isinstance(bandwidth, Tensor):
            self.register_buffer("_bandwidth", bandwidth.detach().clone(), persistent=False)
        else:
            self._bandwidth = bandwidth

    @property
    def bandwidth(self) -> float | Tensor:
        """The bandwidth in use: a number, or a tensor if it is learned or one per feature."""
        return self._bandwidth if self.log_bandwidth is None else self.log_bandwidth.exp()

    def forward(
        self,
        z_labeled: Tensor,
        labels: Tensor,
        z_unlabeled: Tensor | None,
        prior: Tensor | None = None,
        prior_weight: float = 1.0,
    ) -> Tensor:
        """The weighted loss of one batch, a scalar: see :func:`cclp_loss`."""
        return self.weight * cclp_loss(
            z_labeled,
            labels,
            z_unlabeled,
            num_classes=self.num_classes,
            chain_steps=self.chain_steps,
            similarity=self.similarity,
            temperature=self.temperature,
            bandwidth=self.bandwidth,
            normalization=self.normalization,
            propagation=self.propagation,
            smoothing=self.smoothing,
            detach_posteriors=self.detach_posteriors,
            prior=prior,
            prior_weight=prior_weight,
            gather=self.gather,
            neighbours=self.neighbours,
        )

    def extra_repr(self) -> str:
        similarity = self.similarity if isinstance(self.similarity, str) else "callable"
        return (
            f"num_classes={self.num_classes}, weight={self.weight:g}, "
            f"chain_steps={self.chain_steps}, similarity={similarity!r}, "
            f"normalization={self.normalization!r}, propagation={self.propagation!r}, "
            f"smoothing={self.smoothing}"
            f"{'' if self.neighbours is None else f', neighbours={self.neighbours}'}"
        )

    @classmethod
    def as_printed(cls, num_classes: int, **settings: Any) -> Self:
        """Eq. 2-9 to the letter: scaled by 1/N², labels propagated without smoothing anywhere.

        Args:
            num_classes: C.
            **settings: those of :class:`CCLPLoss` but for ``normalization`` and ``smoothing``.
        """
        return cls(num_classes, normalization="pairs", smoothing=0.0, neighbours=None, **settings)

    @classmethod
    def as_released(cls, num_classes: int, **settings: Any) -> "CCLPLoss":
        """What the authors' TensorFlow code of 2019 computes: see :mod:`cclp.loss.released`.

        Args:
            num_classes: C.
            **settings: ``weight``, ``chain_steps``, ``similarity``, ``temperature``, ``bandwidth``,
                ``learn_bandwidth`` and ``gather`` of :class:`CCLPLoss`.
        """
        return _ReleasedLoss(
            num_classes,
            normalization="nodes",
            propagation="harmonic",
            smoothing=SMOOTHING,
            detach_posteriors=False,
            neighbours=None,
            **settings,
        )


class _ReleasedLoss(CCLPLoss):
    def forward(
        self,
        z_labeled: Tensor,
        labels: Tensor,
        z_unlabeled: Tensor | None,
        prior: Tensor | None = None,
        prior_weight: float = 1.0,
    ) -> Tensor:
        if prior is not None:
            raise ValueError("prior must be None: the released code has none")
        metric = make_metric(self.similarity, self.temperature, self.bandwidth)
        batch = make_batch(z_labeled, labels, z_unlabeled, self.num_classes)
        if self.gather:
            batch, _ = gather_batch(batch, None)
        with outside_autocast(batch.z.device):
            return self.weight * released_loss(
                batch, similarities(batch.z, metric), self.chain_steps
            )
