"""Single samples of a run: predictions of the unlabeled, confident mistakes, generated ones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.report.pictures import png
from cclp.runs.arrays import DOUBTFUL, UNLABELED
from cclp.runs.record import RunRecord

AT_ONCE = 24  # samples; more are folded up


def unlabeled_section(run: RunRecord) -> dict[str, Any] | None:
    """Predictions of unlabeled samples: the most doubtful ones, and the most certain ones."""
    unlabeled = run.unlabeled
    if unlabeled is None:
        return None
    found = [
        {
            "name": unlabeled.names[k],
            "predicted": run.classes[unlabeled.predicted[position]],
            "second": run.classes[unlabeled.second[position]],
            "probability": _percent(unlabeled.probability[position]),
            "image": _image(unlabeled.images, k, run.white),
        }
        for k, position in enumerate(unlabeled.shown)
    ]
    return {
        "images": unlabeled.images is not None,
        "count": f"{len(unlabeled.index):,}",
        "chosen": len(unlabeled.index) == UNLABELED,
        "doubtful": found[:AT_ONCE],
        "more": found[AT_ONCE:DOUBTFUL],
        "certain": found[DOUBTFUL:],
    }


def mistakes_section(run: RunRecord) -> dict[str, Any] | None:
    """The most confident mistakes, with their images if they are images."""
    predictions = run.predictions
    if predictions is None:
        return None
    found = []
    for k, index in enumerate(predictions.mistakes):
        y, predicted = int(predictions.y[index]), int(predictions.predicted[index])
        found.append(
            {
                "name": predictions.names[k],
                "truth": run.classes[y] if y >= 0 else "unknown",
                "predicted": run.classes[predicted],
                "probability": _percent(predictions.probability[index]),
                "image": _image(predictions.images, k, run.white),
            }
        )
    return {"images": predictions.images is not None, "all": found}


def generated_section(run: RunRecord) -> list[str] | None:
    """Images that the method's generative model has made."""
    return None if run.generated is None else [png(image, 255) for image in run.generated]


def _percent(probability: float) -> str:
    return f"{100 * probability:.1f} %"


def _image(images: NDArray[np.uint8] | None, k: int, white: float) -> str | None:
    return None if images is None else png(images[k], white)
