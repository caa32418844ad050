"""Files of an evaluation: embeddings of fixed points, predictions and the worst mistakes.

:mod:`cclp.runs.arrays` reads them.
"""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cclp.data.splits import Indices, Split
from cclp.training.evaluation import EvaluationSet, Outputs

_POINTS, _LABELED_POINTS = 1000, 100  # more marks would hide the picture
_MISTAKES = 24


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
    inputs = measured.x[measured.index[mistakes]]
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
