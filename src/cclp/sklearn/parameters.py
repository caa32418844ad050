"""The parameters of an estimator, checked, as the trainer takes them."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cclp.checks import check_choice, check_integer, check_number
from cclp.data.splits import Split
from cclp.loss.graph import SIMILARITIES
from cclp.methods import method_parts, required_net
from cclp.nets import Net, mlp
from cclp.nets.registry import call_net, make_net
from cclp.training.recipe import VECTOR_BANDWIDTH, Recipe, Settings, usual_steps
from cclp.training.schedules import OneCycle

DECAY = 0.6  # of pseudo-labels beside weighted labels
MakeNet = Callable[[tuple[int, ...], int], torch.nn.Module]


def estimator_recipe(
    count: int,
    *,
    method: Any,
    max_iter: Any,
    batch_size: Any,
    learning_rate: Any,
) -> Recipe:
    """How to train on so many samples."""
    if not isinstance(method, str):
        raise ValueError(f"method must be a string, got {method!r}")
    check_number("learning_rate", learning_rate, above=0)
    if not isinstance(batch_size, tuple | list) or len(batch_size) != 2:
        raise ValueError(
            "batch_size must be (labeled samples of each class, unlabeled samples), got "
            f"{batch_size!r}"
        )
    per_class, unlabeled = batch_size
    check_integer("batch_size[1]", unlabeled, least=2)
    steps = usual_steps(count) if max_iter is None else max_iter
    return Recipe(
        "estimator",
        "mlp",
        check_integer("max_iter", steps, least=1),
        learning_rate,
        OneCycle(),
        method=method,
        per_class=check_integer("batch_size[0]", per_class, least=1),
        unlabeled_batch=max(2, min(unlabeled, count // 2)),
    )


def method_settings(
    method: str, weight: Any, similarity: Any, chain_steps: Any, weighted: bool = False
) -> Settings:
    """Keyword arguments of each method, by its name.

    Labels of samples or classes that have weights are not outvoted by pseudo-labels, which have
    none: those are beside CCLP in its label propagation only.
    """
    check_choice("similarity", similarity, SIMILARITIES)
    check_integer("chain_steps", chain_steps, least=1)
    parts = method_parts(method)
    if required_net(method) is not None:
        raise ValueError(
            f"method={method!r} has a network of its own, which the estimator cannot hold: use "
            "cclp train"
        )
    found: Settings = {name: {} for name in parts}
    if "cclp" in parts:
        found["cclp"] = {"chain_steps": chain_steps, "similarity": similarity}
        if similarity == "euclidean":
            found["cclp"]["bandwidth"] = VECTOR_BANDWIDTH
    if "graph_pseudo_label" in parts and weighted:
        found["graph_pseudo_label"] = {"decay": DECAY, "weight": float("cclp" not in parts)}
    if weight is None:
        return found
    if not parts:
        raise ValueError(f"weight has no effect with method={method!r}, got {weight!r}")
    weights = weight
    if not isinstance(weight, dict):
        own = [name for name in parts if name != "graph_pseudo_label"] or parts
        if len(own) != 1:
            raise ValueError(
                f"weight must be by method, as in {{'vat': 0.3}}, for method={method!r}, got "
                f"{weight!r}"
            )
        weights = {own[0]: weight}
    for name, value in weights.items():
        if name not in parts:
            raise ValueError(f"weight has {name!r}, but the method is {method!r}")
        found[name]["weight"] = check_number("weight", value, least=0)
    return found


def sample_shape(features: int, net: Any, image_shape: Any) -> tuple[int, ...]:
    """Of a sample, as the network takes it."""
    if image_shape is None:
        if net == "cnn":
            raise ValueError("net='cnn' needs image_shape, got None")
        return (features,)
    if not isinstance(image_shape, tuple | list):
        raise ValueError(f"image_shape must be a tuple, got {image_shape!r}")
    shape = tuple(image_shape)
    shape = (1, *shape) if len(shape) == 2 else shape
    if len(shape) != 3 or prod(shape) != features:
        raise ValueError(
            "image_shape must be (height, width) or (channels, height, width) of the "
            f"{features} features, got {image_shape!r}"
        )
    return shape


def build_net(
    net: str | MakeNet,
    shape: tuple[int, ...],
    num_classes: int,
    hidden_sizes: Any,
    embedding_size: Any,
) -> Net:
    """The network that the parameters ask for."""
    if not isinstance(hidden_sizes, tuple | list):
        raise ValueError(f"hidden_sizes must be a tuple, got {hidden_sizes!r}")
    if callable(net):
        return call_net(net, getattr(net, "__name__", repr(net)), shape, num_classes)
    check_choice("net", net, ("mlp", "cnn", "linear"))
    if net == "linear":
        return make_net("linear", shape, num_classes)
    if net == "cnn":
        return make_net("mnist", shape, num_classes)
    return mlp(prod(shape), num_classes, hidden_sizes=hidden_sizes, embedding_size=embedding_size)


def make_split(y: NDArray[np.int64], validation_fraction: Any, seed: int) -> Split:
    """All samples are seen unlabeled, but for those held out: of each class, if it has two.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Class indices; -1 is unlabeled.

    validation_fraction : float or None
        Share of the labels to hold out; None: nothing is held out.

    seed : int
        Of the draw.
    """
    held_out = np.empty(0, np.int64)
    if validation_fraction is not None:
        share = check_number("validation_fraction", validation_fraction, above=0)
        if share >= 1:
            raise ValueError(f"validation_fraction must be below 1, got {share!r}")
        rng = np.random.default_rng(seed)
        classes = [rng.permutation(np.flatnonzero(y == c)) for c in range(y.max() + 1)]
        held_out = np.concatenate(
            [i[: min(len(i) - 1, max(1, round(share * len(i))))] for i in classes]
        )
        if not len(held_out):
            raise ValueError("early_stopping needs a class with at least 2 labels, got none")
    labeled = np.setdiff1d(np.flatnonzero(y >= 0), held_out)
    return Split(labeled, np.setdiff1d(np.arange(len(y)), held_out), np.sort(held_out))


def subtract(X: NDArray[Any], offset: NDArray[Any]) -> NDArray[np.float32]:
    """X - offset, rounded to float32 only then: times in seconds are large and differ by little."""
    x = np.empty(X.shape, np.float32)
    with np.errstate(over="ignore"):
        np.subtract(X, offset, out=x, casting="same_kind")
    if not np.isfinite(x).all():
        raise ValueError("Input X contains infinity or a value too large for dtype('float32').")
    return x
