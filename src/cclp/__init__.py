"""cclp: few labels, many unlabeled samples, one accurate PyTorch classifier.

Implements and extends *Semi-Supervised Learning via Compact Latent Space Clustering*
(Kamnitsas et al., ICML 2018). Importing the package is cheap: torch is loaded when the first
public name is used (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOME = {
    "CCLPLoss": "loss.cclp",
    "GraphHealth": "loss.health",
    "Model": "model",
    "cclp_loss": "loss.cclp",
    "fit": "model",
    "graph_health": "loss.health",
    "propagate_labels": "loss.propagation",
    "transition_matrix": "loss.graph",
}

__all__ = [
    "CCLPLoss",
    "GraphHealth",
    "Model",
    "cclp_loss",
    "fit",
    "graph_health",
    "propagate_labels",
    "transition_matrix",
]

if TYPE_CHECKING:
    from cclp.loss.cclp import CCLPLoss, cclp_loss
    from cclp.loss.graph import transition_matrix
    from cclp.loss.health import GraphHealth, graph_health
    from cclp.loss.propagation import propagate_labels
    from cclp.model import Model, fit


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cclp' has no attribute {name!r}")
    value = getattr(import_module(f"cclp.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
