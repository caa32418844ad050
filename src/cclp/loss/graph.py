"""Eq. 2-4: embeddings -> similarities -> transition matrix.

Z (N, F) are the embeddings, A = exp(similarity) the adjacency, H (N, N) its row-normalised form.
A never exists: similarities are kept as the logits of a row softmax, which cannot overflow.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cclp.checks import check_number
from cclp.loss.autograd import first_order, outside_autocast
from cclp.loss.inputs import at_least_float32, check_embeddings, values_visible

Similarity = str | Callable[[Tensor], Tensor]
SIMILARITIES = ("dot", "cosine", "euclidean")


class Metric(NamedTuple):
    """How alike two embeddings are: the three arguments that define it, checked."""

    similarity: Similarity
    temperature: float
    bandwidth: float | Tensor


def make_metric(
    similarity: Similarity, temperature: float | None, bandwidth: float | Tensor
) -> Metric:
    """Check the arguments of a similarity and fill in the default temperature.

    Raises:
        TypeError, ValueError: naming the argument, what came and what was expected.
    """
    if not callable(similarity) and similarity not in SIMILARITIES:
        names = ", ".join(map(repr, SIMILARITIES))
        raise ValueError(f"similarity must be {names} or a callable, got {similarity!r}")
    if temperature is None:
        # Cosines lie in [-1, 1]: at temperature 1 no softmax could separate classes.
        temperature = 0.1 if similarity == "cosine" else 1.0
    temperature = check_number("temperature", temperature, above=0)
    if isinstance(bandwidth, Tensor):
        if bandwidth.ndim > 1 or not bandwidth.dtype.is_floating_point:
            raise ValueError(
                "bandwidth must be a number or a floating-point tensor of shape () or (features,), "
                f"got shape {tuple(bandwidth.shape)} of {bandwidth.dtype}"
            )
        if values_visible(bandwidth) and not bool(((bandwidth > 0) & bandwidth.isfinite()).all()):
            low, high = bandwidth.detach().aminmax()
            raise ValueError(f"bandwidth must be finite and above 0, got {low:g} to {high:g}")
    else:
        bandwidth = check_number("bandwidth", bandwidth, above=0)
    return Metric(similarity, temperature, bandwidth)


class Points(NamedTuple):
    """Embeddings as the similarity sees them, in float64.

    Attributes:
        y: (N, F): log A is YY', or -|y_i - y_j|² for "euclidean".
        scale: the derivative in Z is that in Y, without its part along the unit row for "cosine",
            divided by it; a number, or of shape (F,) or (N, 1).
    """

    y: Tensor
    scale: float | Tensor


def double(x: Tensor) -> Tensor:
    """In float64; on the CPU if it comes from Apple's MPS, which has no float64."""
    return x.to("cpu" if x.device.type == "mps" else x.device, torch.float64)


def make_points(z: Tensor, metric: Metric) -> Points:
    """Y of a built-in similarity; the temperature is in it."""
    y, scale = double(z), metric.temperature**0.5
    if metric.similarity == "cosine":
        # Dividing by the largest entry first keeps squares from under- or overflowing. A row of
        # zeros stays; below the cut-off the gradient, 1/|z|, could not be represented.
        largest = y.abs().amax(1, keepdim=True)
        nonzero = largest > 1e8 * torch.finfo(z.dtype).tiny
        largest = torch.where(nonzero, largest, 1)
        length = largest * torch.where(nonzero, (y / largest).norm(dim=1, keepdim=True), 1)
        return Points(y / (length * scale), length * scale)
    if metric.similarity == "euclidean":
        # Distances do not see the shift, but the expanded square does.
        y = y - y.mean(0)
        bandwidth = metric.bandwidth
        if isinstance(bandwidth, Tensor):
            bandwidth = double(bandwidth.detach())
        found = Points(y / (bandwidth * scale), bandwidth * scale)
        check_range(found.y, y, z.dtype)
        return found
    return Points(y if scale == 1 else y / scale, scale)


def check_range(scaled: Tensor, y: Tensor, dtype: torch.dtype) -> None:
    """Refuse a bandwidth by which squared distances leave the range of the dtype.

    Embeddings that leave it themselves give what is not finite, as elsewhere in torch.
    """
    if not values_visible(scaled) or not scaled.numel():
        return
    most = (torch.finfo(dtype).max / (8 * scaled.shape[1])) ** 0.5
    largest = scaled.abs().max().item()
    if largest > most and y.abs().max().item() <= most:
        raise ValueError(
            f"bandwidth must be larger: distances of embeddings divided by it reach {largest:.0e}, "
            f"expected at most {most:.0e} in {str(dtype).removeprefix('torch.')}"
        )


def log_adjacency(points: Points, metric: Metric, first_row: int = 0) -> Tensor:
    """log A of Eq. 2 in float64: float32 would round away what near points differ by.

    Args:
        points: of a built-in similarity.
        metric: the similarity.
        first_row: rows before it are left out.

    Returns:
        (N - first_row, N).
    """
    y, rows = points.y, points.y[first_row:]
    if metric.similarity != "euclidean":
        return rows @ y.T
    squares = y.square().sum(1)
    # -|y_i - y_j|² as one matrix product: no (N, N, F) tensor. Nothing is nearer than itself.
    found = torch.addmm(-squares, rows, y.T, alpha=2)
    return found.sub_(squares[first_row:, None]).clamp_max_(0)


def rounded(log_A: Tensor, like: Tensor) -> Tensor:
    """The same in the dtype and on the device of Z, in memory of its own.

    Rows are shifted where that saves digits: a softmax over a row does not see it.
    """
    if like.dtype == torch.float64:
        return log_A.clone()
    # The diagonal bounds all of it: self-similarity is the largest size a similarity can have.
    if not values_visible(log_A) or log_A.diagonal().max().item() > 100:
        log_A = log_A - log_A.amax(1, keepdim=True)
    return log_A.to(like.device, like.dtype)


def adjacency_gradient(
    grad: Tensor, z: Tensor, bandwidth: Tensor | None, metric: Metric
) -> tuple[Tensor, Tensor | None]:
    """Derivatives in Z, (N, F), and in the bandwidth from that in log A, (N, N)."""
    both = grad + grad.T  # log A is symmetric: one product instead of two
    if metric.similarity == "dot":
        dz = both @ z.to(both)
        return (dz if metric.temperature == 1 else dz / metric.temperature).to(z), None
    y, scale = make_points(z, metric)
    if metric.similarity == "cosine":
        y = y.to(both)
        dy = both @ y
        dy.addcmul_(y, (y * dy).sum(1, keepdim=True), value=-metric.temperature)
    else:
        # Differences of points: in float32 only while they have digits left.
        if grad.dtype != torch.float64 and values_visible(y) and y.abs().max() > 1e3:
            both = both.double()
        y = y.to(both)
        dy = (both @ y).addcmul_(y, both.sum(1, keepdim=True), value=-1).mul_(2)
    dz = (dy / (scale.to(dy) if isinstance(scale, Tensor) else scale)).to(z)
    if bandwidth is None:
        return dz, None
    dlog = (dy * y).sum(0).to(bandwidth).neg_()
    return dz, dlog.sum_to_size(bandwidth.shape) / bandwidth.detach()


class _LogAdjacency(torch.autograd.Function):
    """Z, and the bandwidth if it is a tensor, to log A in the dtype of Z."""

    @staticmethod
    def forward(z: Tensor, bandwidth: Tensor | None, metric: Metric) -> Tensor:
        return rounded(log_adjacency(make_points(z, metric), metric), z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, bandwidth, ctx.metric = inputs
        ctx.save_for_backward(z, bandwidth)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        z, bandwidth = ctx.saved_tensors
        with outside_autocast(z.device):
            return *adjacency_gradient(grad, z, bandwidth, ctx.metric), None


def check_bandwidth(metric: Metric, features: int) -> Tensor | None:
    """The bandwidth if it is a tensor that is used, of a shape that fits."""
    bandwidth = metric.bandwidth
    if metric.similarity != "euclidean" or not isinstance(bandwidth, Tensor):
        return None
    if bandwidth.ndim == 1 and bandwidth.shape[0] not in (1, features):
        raise ValueError(
            f"bandwidth must hold one value or one per feature ({features}), "
            f"got shape {tuple(bandwidth.shape)}"
        )
    return bandwidth


def similarities(z: Tensor, metric: Metric) -> Tensor:
    """Log-adjacency log A of Eq. 2, but for a shift of its rows.

    Args:
        z: (N, F).
        metric: the similarity.

    Returns:
        (N, N), in the dtype of ``z``, differentiable.
    """
    if callable(metric.similarity):
        logits = _called(metric.similarity, z)
        return logits if metric.temperature == 1 else logits / metric.temperature
    log_A: Tensor = _LogAdjacency.apply(z, check_bandwidth(metric, z.shape[1]), metric)  # type: ignore[no-untyped-call]
    return log_A


def _called(similarity: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    logits = similarity(z)
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"similarity: the callable must return a torch.Tensor, got {type(logits).__name__}"
        )
    expected = (z.shape[0], z.shape[0])
    if tuple(logits.shape) != expected:
        raise ValueError(
            f"similarity: the callable must return shape {expected}, got {tuple(logits.shape)}"
        )
    return logits.to(z.dtype)


def transition_matrix(
    z: Tensor,
    *,
    similarity: Similarity = "dot",
    temperature: float | None = None,
    bandwidth: float | Tensor = 1.0,
) -> Tensor:
    r"""Transition probabilities of the random walk on the graph of a batch.

    Eq. 2-3: :math:`H_{ij} = A_{ij} / \sum_k A_{ik}` with :math:`A_{ij} = \exp(f(z_i, z_j))`.

    Args:
        z: embeddings, (N, F).
        similarity: ``"dot"``, ``"cosine"``, ``"euclidean"`` (−‖z_i − z_j‖² / bandwidth²) or a
            callable from (N, F) to (N, N).
        temperature: divides the similarity; None is 1, and 0.1 for ``"cosine"``.
        bandwidth: of ``"euclidean"``: a number, or a tensor with one value per feature.

    Returns:
        H, (N, N), rows summing to one, in at least float32.

    Raises:
        TypeError, ValueError: for a wrong argument, which is named.

    Examples:
        >>> import torch
        >>> H = transition_matrix(torch.tensor([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0]]))
        >>> [[round(p, 4) for p in row] for row in H.tolist()]
        [[0.5, 0.5, 0.0001], [0.5, 0.5, 0.0001], [0.0001, 0.0001, 0.9998]]
    """
    metric = make_metric(similarity, temperature, bandwidth)
    z = at_least_float32(check_embeddings("z", z))
    with outside_autocast(z.device):
        return similarities(z, metric).softmax(1)
