"""Graph Laplacian: neighbours among the inputs have similar predictions."""

from typing import Literal, get_args

from torch import Tensor

from cclp.checks import check_choice, check_integer
from cclp.methods.base import Method, Step, check_weight, kept_statistics

Smoothed = Literal["predictions", "embeddings"]


class Laplacian(Method):
    """Σ_ij P_ij ‖f_i − f_j‖² over the nearest-neighbour graph of all inputs, by its samples.

    Manifold regularisation (Belkin et al. 2006), by gradient descent on a network's outputs (Weston
    et al. 2008). Of each unlabeled sample i of a step one neighbour j is drawn with probability
    P_ij = W_ij / Σ_j W_ij, so that the mean over steps is the whole sum. The graph is that of
    ``graph_pseudo_label``, with one distance for images: HOG features, local scaling. Neighbours do
    not count among the running statistics of batch norm; unlabeled samples, which they are too, do.

    Args:
        num_classes: C.
        weight: of the term.
        neighbours: k of the graph.
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
        if step.z_unlabeled is None or step.x_neighbours is None:
            return {}
        with kept_statistics(step.net):
            near = step.net.features(step.x_neighbours)
        pair = step.z_unlabeled, near
        if self.of == "predictions":
            here, there = (step.net.classifier(z).float().softmax(1) for z in pair)
        else:
            here, there = (z.float() for z in pair)
        return {"laplacian": self.weight * (here - there).square().sum(1).mean()}
