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


def similarities(z: Tensor, metric: Metric, first_row: int = 0) -> Tensor:
    """Log-adjacency log A of Eq. 2, for the rows from ``first_row`` on.

    Args:
        z: (N, F).
        metric: the similarity.
        first_row: rows before it are left out.

    Returns:
        (N - first_row, N), in the dtype of ``z``.
    """
    if callable(metric.similarity):
        logits = _called(metric.similarity, z)[first_row:]
    elif metric.similarity == "dot":
        logits = _gram(z, first_row)
    elif metric.similarity == "cosine":
        y = _unit_rows(z)
        logits = _gram(y, first_row)
    else:
        y = _in_bandwidths(z, metric.bandwidth)
        squares = y.square().sum(1)
        # -|y_i - y_j|² as one matrix product: no (N, N, F) tensor.
        logits = 2 * _gram(y, first_row) - squares - squares[first_row:, None]
    return logits if metric.temperature == 1 else logits / metric.temperature


def _gram(y: Tensor, first_row: int) -> Tensor:
    if first_row:
        return y[first_row:] @ y.T
    product: Tensor = _Gram.apply(y)  # type: ignore[no-untyped-call]
    return product


class _Gram(torch.autograd.Function):
    """YY'. Its derivative is one product with a symmetric matrix, where autograd's is two."""

    @staticmethod
    def forward(y: Tensor) -> Tensor:
        return y @ y.T

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        with outside_autocast(y.device):
            derivative: Tensor = (grad + grad.T) @ y
        return derivative


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


def _unit_rows(z: Tensor) -> Tensor:
    """Rows scaled to length one. A row of zeros stays, with a gradient of ordinary size."""
    # Dividing by the largest entry first keeps the square from under- or overflowing; below the
    # cut-off the gradient, which grows as 1/|z|, could not be represented.
    largest = z.detach().abs().amax(1, keepdim=True)
    nonzero = largest > 1e8 * torch.finfo(z.dtype).tiny
    scaled = z / torch.where(nonzero, largest, 1)
    norm_squared = scaled.square().sum(1, keepdim=True)
    return scaled * torch.where(nonzero, norm_squared, 1).rsqrt()


def _in_bandwidths(z: Tensor, bandwidth: float | Tensor) -> Tensor:
    """Centred embeddings in units of the bandwidth."""
    if isinstance(bandwidth, Tensor):
        if bandwidth.ndim == 1 and bandwidth.shape[0] not in (1, z.shape[1]):
            raise ValueError(
                f"bandwidth must hold one value or one per feature ({z.shape[1]}), "
                f"got shape {tuple(bandwidth.shape)}"
            )
        bandwidth = bandwidth.to(device=z.device, dtype=z.dtype)
    # Distances do not see the shift (so it needs no gradient), but float32 does: at an offset of
    # 1e3 the expanded square is off by 3 without it.
    return (z - z.detach().mean(0)) / bandwidth


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
