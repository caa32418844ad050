"""What a caller passes in: checked, cast, and put into one batch, labeled rows first."""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from cclp.checks import check_integer, check_number

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Batch(NamedTuple):
    """One step's embeddings and labels.

    Attributes:
        z: Z, (N, F), labeled rows first, in at least float32.
        y: Y_L, (N_L, C), one-hot or soft labels in the dtype of ``z``.
    """

    z: Tensor
    y: Tensor


class Prior(NamedTuple):
    """What is known of the unlabeled points before their graph is looked at.

    Attributes:
        phi: posteriors, (N_U, C), rows summing to one, without gradient.
        weight: their share, in [0, 1]; the rest is left to the graph. A tensor in a compiled
            function, which would else be compiled anew for every number.
    """

    phi: Tensor
    weight: float | Tensor


def check_embeddings(name: str, z: object) -> Tensor:
    """A floating-point tensor of shape (points, features)."""
    if not isinstance(z, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(z).__name__}")
    if z.ndim != 2 or z.shape[1] == 0:
        raise ValueError(f"{name} must be of shape (points, features), got {tuple(z.shape)}")
    if not z.dtype.is_floating_point:
        raise TypeError(f"{name} must be of a floating-point dtype, got {z.dtype}")
    return z


def values_visible(*tensors: Tensor) -> bool:
    """Whether looking at values costs nothing: eager mode, and every tensor on the CPU."""
    return not torch.compiler.is_compiling() and all(t.is_cpu for t in tensors)


def check_later(holds: Tensor, message: str) -> None:
    """Raise RuntimeError when the values are there, without waiting for them.

    On a GPU that is a device-side assertion, as for labels of ``F.cross_entropy``.
    """
    if not holds.is_meta:
        torch._assert_async(holds.all(), message)


def at_least_float32(z: Tensor) -> Tensor:
    """``z`` in the dtype of the precision island."""
    return z if z.dtype == torch.float64 else z.float()


def make_batch(
    z_labeled: object, labels: object, z_unlabeled: object, num_classes: object
) -> Batch:
    """Check the four arguments that every public function takes and join them.

    Raises:
        TypeError, ValueError: naming the argument, what came and what was expected.
    """
    classes = check_integer("num_classes", num_classes, least=2)
    z_l = check_embeddings("z_labeled", z_labeled)
    if z_l.shape[0] == 0:
        raise ValueError("z_labeled must hold at least one point, got shape (0, …)")
    y = _label_matrix(labels, z_l, classes)
    if z_unlabeled is None:
        return Batch(at_least_float32(z_l), y)
    z_u = check_embeddings("z_unlabeled", z_unlabeled)
    for what, came, expected in (
        ("feature size", z_u.shape[1], z_l.shape[1]),
        ("dtype", z_u.dtype, z_l.dtype),
        ("device", z_u.device, z_l.device),
    ):
        if came != expected:
            raise ValueError(
                f"z_unlabeled must have the {what} of z_labeled, {expected}, got {came}"
            )
    return Batch(at_least_float32(torch.cat([z_l, z_u])), y)


def _label_matrix(labels: Any, z: Tensor, num_classes: int) -> Tensor:
    """Y_L of shape (N_L, C) from class indices or from soft labels."""
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels must be a torch.Tensor, got {type(labels).__name__}")
    if labels.device != z.device:
        raise ValueError(
            f"labels must be on the device of z_labeled, {z.device}, got {labels.device}"
        )
    dtype = torch.float64 if z.dtype == torch.float64 else torch.float32
    count = z.shape[0]
    if labels.ndim == 1 and labels.shape[0] == count:
        if labels.dtype not in _INTEGERS:
            raise TypeError(
                f"labels of shape ({count},) must be integer class indices, got {labels.dtype}; "
                f"soft labels have shape ({count}, {num_classes})"
            )
        if values_visible(labels):
            low, high = (int(v) for v in labels.aminmax())
            if low < 0 or high >= num_classes:
                raise ValueError(
                    f"labels must lie in 0 … {num_classes - 1} (num_classes={num_classes}), "
                    f"got values from {low} to {high}"
                )
        else:
            inside = (labels >= 0) & (labels < num_classes)
            check_later(inside, f"labels must lie in 0 … {num_classes - 1}")
        return (labels[:, None] == torch.arange(num_classes, device=z.device)).to(dtype)
    if labels.ndim == 2 and tuple(labels.shape) == (count, num_classes):
        if not labels.dtype.is_floating_point:
            raise TypeError(
                f"labels of shape ({count}, {num_classes}) are soft labels and must be of a "
                f"floating-point dtype, got {labels.dtype}"
            )
        return _distributions("labels", "soft labels", labels, dtype)
    raise ValueError(
        f"labels must be of shape ({count},) (class indices) or ({count}, {num_classes}) "
        f"(soft labels) to match z_labeled, got {tuple(labels.shape)}"
    )


def make_prior(prior: Any, prior_weight: object, batch: Batch) -> Prior | None:
    """Check the two arguments of a prior.

    Raises:
        TypeError, ValueError: naming the argument, what came and what was expected.
    """
    if prior is None:
        return None
    if not isinstance(prior, Tensor):
        raise TypeError(f"prior must be a torch.Tensor, got {type(prior).__name__}")
    num_labeled, num_classes = batch.y.shape
    expected = (batch.z.shape[0] - num_labeled, num_classes)
    if tuple(prior.shape) != expected or not prior.dtype.is_floating_point:
        raise ValueError(
            f"prior must be floating-point of shape {expected}, a row of class probabilities for "
            f"each unlabeled point, got {tuple(prior.shape)} of {prior.dtype}"
        )
    if prior.device != batch.z.device:
        raise ValueError(
            f"prior must be on the device of the embeddings, {batch.z.device}, got {prior.device}"
        )
    weight: float | Tensor
    if torch.compiler.is_compiling():
        weight = batch.y.new_ones(()) * cast(float, prior_weight)
        check_later((weight >= 0) & (weight <= 1), "prior_weight must be from 0 to 1")
    else:
        weight = check_number("prior_weight", prior_weight, least=0, most=1)
    return Prior(_distributions("prior", "the prior", prior, batch.y.dtype), weight)


def _distributions(name: str, what: str, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of probabilities, to the last digit: they may have come rounded."""
    exact = rows.detach().to(dtype)
    if values_visible(rows) and len(rows):
        # Rows may have been rounded to the dtype they came in, or to float32 before that.
        tolerance = max(1e-5, 4 * torch.finfo(rows.dtype).eps)
        error = (exact.sum(1) - 1).abs().max()
        if not (error <= tolerance and (exact >= 0).all()):
            raise ValueError(
                f"{name}: every row of {what} must be non-negative and sum to 1, "
                f"got a smallest entry of {exact.min():g} and a row sum off by {error:g}"
            )
    elif not values_visible(rows):
        sums = (exact.sum(1) - 1).abs() <= 0.05
        check_later(sums & (exact >= 0).all(1), f"{name}: rows must be probabilities")
    return exact / exact.sum(1, keepdim=True)
