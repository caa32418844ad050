"""Graph Laplacian: near inputs have similar predictions."""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from cclp.checks import check_choice, check_integer
from cclp.methods.base import Method, Step, check_weight

Smoothed = Literal["predictions", "embeddings"]


class Neighbours(NamedTuple):
    """The k nearest others of each sample, (N, k), and weights of these edges, (N, k)."""

    others: Tensor
    weights: Tensor


class Laplacian(Method):
    """Σ W_ij ‖f_i − f_j‖² over a graph of nearest neighbours among the inputs.

    Manifold regularisation (Belkin et al. 2006), by gradient descent on a network's outputs (Weston
    et al. 2008). The graph is that of the step's batch, labeled and unlabeled samples together, and
    not that of the training set: the fewer samples in a batch, the farther are its neighbours. With
    several processes each has the graph of its own batch.

    Args:
        num_classes: C.
        weight: of the term.
        neighbours: k; at most as many as the batch has others.
        of: f, the softmax outputs or the embeddings. The latter can become small as a whole.
    """

    def __init__(
        self,
        num_classes: int,
        weight: float = 3.0,
        *,
        neighbours: int = 5,
        of: Smoothed = "predictions",
    ) -> None:
        super().__init__()
        check_choice("of", of, get_args(Smoothed))
        self.weight, self.of = check_weight(weight), of
        self.neighbours = check_integer("neighbours", neighbours, least=1)

    def forward(self, step: Step) -> dict[str, Tensor]:
        if step.x_unlabeled is None or step.z_unlabeled is None:
            return {}
        x = torch.cat([step.x_labeled, step.x_unlabeled])
        graph = nearest(x.flatten(1), self.neighbours)
        if self.of == "predictions":
            logits = torch.cat([step.logits, step.net.classifier(step.z_unlabeled)])
            f = logits.float().softmax(1)
        else:
            f = torch.cat([step.z_labeled, step.z_unlabeled]).float()
        return {"laplacian": self.weight * smoothness(f, graph)}


@torch.no_grad()
def nearest(x: Tensor, count: int) -> Neighbours:
    """Nearest neighbours of vectors (N, D), by self-tuning weights: exp(−d_ij² / (σ_i σ_j)).

    σ_i is the distance of i to its last neighbour (Zelnik-Manor & Perona 2004).
    """
    x = x.float()
    with torch.autocast(x.device.type, enabled=False):
        distances = torch.cdist(x, x)
    distances.fill_diagonal_(torch.inf)
    near, others = distances.topk(min(count, len(x) - 1), largest=False)
    sigma = near[:, -1]
    product = (sigma[:, None] * sigma[others]).clamp(min=torch.finfo(x.dtype).tiny)
    return Neighbours(others, (-near.square() / product).exp())


def smoothness(f: Tensor, graph: Neighbours) -> Tensor:
    """Σ W_ij ‖f_i − f_j‖² / Σ W_ij over the edges; f of (N, F).

    An edge that is there from both of its ends counts twice.
    """
    squares = (f[:, None] - f[graph.others]).square().sum(2)
    return (graph.weights * squares).sum() / graph.weights.sum()
