"""Files of a run: embeddings of fixed points, predictions, and what the net says of the unlabeled.

:mod:`cclp.runs.arrays` reads them.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cclp.data.splits import Indices, Split
from cclp.runs.arrays import DOUBTFUL, UNLABELED
from cclp.training.evaluation import EvaluationSet, Outputs

_POINTS, _LABELED_POINTS = 1000, 100  # more marks would hide the picture
_MISTAKES = 24
_CERTAIN, _ALL_CERTAIN = 4, 100  # of each class, and of all together


def embedding_points(split: Split, seed: int) -> Indices:
    """At most 1,000 training points, the same at every evaluation; 100 labeled ones come first."""
    rng = np.random.default_rng([seed, 0xE3B])
    labeled = rng.permutation(split.labeled)[:_LABELED_POINTS]
    others = rng.permutation(np.setdiff1d(split.unlabeled, labeled))
    return np.concatenate([labeled, others])[:_POINTS]


def embedding_file(
    outputs: Outputs, index: Indices, y: Indices, labeled: NDArray[np.bool_]
) -> bytes:
    """The content of ``embedding/STEP.npz``: what a picture of the points needs."""
    content = io.BytesIO()
    np.savez(
        content,
        z=outputs.z.numpy(),
        predicted=outputs.logits.argmax(1).numpy(),
        y=y,
        index=index,
        labeled=labeled,
    )
    return content.getvalue()


def predictions_file(logits: Tensor, measured: EvaluationSet) -> bytes:
    """The content of ``predictions.npz``: every prediction, and the most confident mistakes.

    ======================================== =====================================================
    ``y``, ``predicted``, ``probability``    class, predicted class and its probability, (N,)
    ``mistakes``                             indices into these, most confident first, at most 24
    ``mistake_names``, ``mistake_inputs``    what they are called; their pixels, if they are images
    ======================================== =====================================================
    """
    probability, predicted = (values.numpy() for values in logits.softmax(1).max(1))
    wrong = np.flatnonzero(predicted != measured.y)
    mistakes = wrong[np.argsort(-probability[wrong], kind="stable")][:_MISTAKES]
    looks = measured.x if measured.pictures is None else measured.pictures
    inputs = looks[measured.index[mistakes]]
    arrays: dict[str, Any] = {
        "y": measured.y,
        "predicted": predicted,
        "probability": probability,
        "mistakes": mistakes,
        "mistake_names": np.array([measured.names[i] for i in mistakes], str),
    }
    if inputs.dtype == np.uint8 and inputs.ndim == 4:
        arrays["mistake_inputs"] = inputs
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def unlabeled_points(split: Split, seed: int) -> Indices:
    """Sorted indices of the unlabeled training samples; of more than 20,000 a random choice."""
    index = np.setdiff1d(split.unlabeled, split.labeled)
    if len(index) <= UNLABELED:
        return index
    rng = np.random.default_rng([seed, 0x5EE])
    return np.sort(rng.choice(index, UNLABELED, replace=False))


def unlabeled_file(
    logits: Tensor,
    index: Indices,
    x: NDArray[Any],
    names: Sequence[str] | None,
    temperature: float = 1.0,
) -> bytes:
    """The content of ``unlabeled.npz``: predictions, and some samples to look at.

    =================================== ==========================================================
    ``index``                           of the samples in the training set, (N,)
    ``predicted``, ``second``           the most probable class and the next one, (N,)
    ``probability``                     of the most probable class, (N,)
    ``shown``                           positions among the N: the 48 of the smallest difference
                                        between the two largest probabilities, ascending; then the
                                        4 most certain ones of each class, fewer if there are more
                                        than 25 classes
    ``shown_names``, ``shown_inputs``   what they are called; their pixels, if they are images
    =================================== ==========================================================

    Args:
        logits: of the samples, (N, C).
        index: of the samples among ``x``, (N,).
        x: the training set, or pictures of it.
        names: of the training set, if it has names.
        temperature: by which logits are divided before they become probabilities.
    """
    probabilities, classes = (logits / temperature).softmax(1).topk(2)
    largest, second = probabilities.numpy().T
    predicted = classes[:, 0].numpy()
    shown = _doubtful_and_certain(largest - second, largest, predicted, logits.shape[1])
    called = [names[i] if names else f"training {i}" for i in index[shown]]
    inputs = x[index[shown]]
    arrays: dict[str, Any] = {
        "index": index,
        "predicted": predicted,
        "second": classes[:, 1].numpy(),
        "probability": largest,
        "shown": shown,
        "shown_names": np.array(called, str),
    }
    if inputs.dtype == np.uint8 and inputs.ndim == 4:
        arrays["shown_inputs"] = inputs
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def generated_file(pixels: Tensor) -> bytes:
    """The content of ``generated.npz``: ``images``, (N, 1 or 3, H, W), as bytes.

    Args:
        pixels: in [0, 1].
    """
    content = io.BytesIO()
    np.savez_compressed(content, images=(255 * pixels).round().byte().numpy())
    return content.getvalue()


def _doubtful_and_certain(
    margin: NDArray[np.float32],
    probability: NDArray[np.float32],
    predicted: Indices,
    num_classes: int,
) -> Indices:
    """Positions of the most doubtful samples, then of the most certain ones of each class."""
    order = np.argsort(margin, kind="stable")
    rest = order[DOUBTFUL:]
    by_certainty = rest[np.argsort(-probability[rest], kind="stable")]
    each = min(_CERTAIN, _ALL_CERTAIN // num_classes)
    certain = [by_certainty[predicted[by_certainty] == c][:each] for c in range(num_classes)]
    return np.concatenate([order[:DOUBTFUL], *certain])
