"""``Objective``: normalisation, augmentation, network and methods behind one forward pass."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import Adam
from torch.profiler import record_function

from cclp.methods.anchors import Anchors
from cclp.methods.base import Inputs, Method, Step
from cclp.nets.base import Net
from cclp.training.recipe import Recipe


class Objective(nn.Module):
    """Everything that turns a step's samples into terms of the loss.

    One pass of one module is what DDP asks for; inside it the network may run many times. Its state
    is all there is to save besides the optimizer's.

    Args:
        normalizer: of raw inputs.
        net: to be trained.
        methods: whose terms are added up.
        augment: normalised inputs, in training only.

    Attributes:
        anchors: of all classes; None if none is ever absent from a step.
    """

    def __init__(
        self,
        normalizer: nn.Module,
        net: Net,
        methods: list[Method],
        augment: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.normalizer = normalizer
        self.augment = augment
        self.net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.methods = nn.ModuleList(methods)
        self.anchors: Anchors | None = None
        self.uses_unlabeled = any(method.uses_unlabeled for method in methods)

    def attach(self, inputs: Inputs, samples: int) -> None:
        """Let the methods make what else they need: see :meth:`Method.attach`."""
        for method in self._methods():
            method.attach(self.net, inputs, samples)

    @property
    def neighbours(self) -> int:
        """The largest number of neighbours in a graph of the inputs that a method asks for."""
        return max((method.neighbours for method in self._methods()), default=0)

    @property
    def network_name(self) -> str:
        """Of the module to evaluate and predict with: a method's teacher, else the trained net."""
        for number, method in enumerate(self._methods()):
            if method.evaluated is not None:
                return f"methods.{number}.{method.evaluated}"
        return "net"

    @property
    def network(self) -> Net:
        """The module of that name."""
        return cast(Net, self.get_submodule(self.network_name))

    def after_step(self) -> None:
        """Tell the methods that the optimizer has changed the network."""
        for method in self._methods():
            method.after_step(self.net)

    def draw(self, count: int) -> Tensor | None:
        """Samples of the first generative model among the methods; None without one."""
        drawn = (method.draw(count) for method in self._methods())
        return next((samples for samples in drawn if samples is not None), None)

    def _methods(self) -> list[Method]:
        return [cast(Method, method) for method in self.methods]

    @torch.no_grad()
    def keep_anchors(self, x: Tensor) -> None:
        """Keep anchors from now on.

        Args:
            x: some samples, which show the sizes of embeddings and logits.
        """
        mode = self.training
        self.eval()
        z = self.net.features(self.inputs(x))
        self.anchors = Anchors(self.net.classifier(z).shape[1], z.shape[1])
        self.train(mode)

    def inputs(self, x: Tensor, *, augmented: bool = False) -> Tensor:
        """Raw samples as the network takes them."""
        x = self.normalizer(x)
        if augmented and self.augment is not None:
            x = self.augment(x)
        return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x

    def forward(
        self,
        x_labeled: Tensor,
        labels: Tensor,
        x_unlabeled: Tensor | None,
        progress: float,
        max_steps: int = 1,
        pseudo_labels: Tensor | None = None,
        pseudo_label_weight: float = 0.0,
        weights: Tensor | None = None,
        unlabeled: Tensor | None = None,
        x_neighbours: Tensor | None = None,
    ) -> tuple[dict[str, Tensor], Tensor, Tensor | None]:
        """Terms of the loss by name, and both embeddings, detached."""
        x_labeled = self.inputs(x_labeled, augmented=True)
        z_labeled = self.net.features(x_labeled)
        z_unlabeled = None
        if x_unlabeled is not None:  # a pass of its own, with its own batch statistics
            x_unlabeled = self.inputs(x_unlabeled, augmented=True)
            z_unlabeled = self.net.features(x_unlabeled)
        step = Step(
            net=self.net,
            x_labeled=x_labeled,
            labels=labels,
            x_unlabeled=x_unlabeled,
            z_labeled=z_labeled,
            z_unlabeled=z_unlabeled,
            logits=self.net.classifier(z_labeled),
            progress=progress,
            max_steps=max_steps,
            pseudo_labels=pseudo_labels,
            pseudo_label_weight=pseudo_label_weight,
            weights=weights,
            absent=None if self.anchors is None else self.anchors.absent(labels),
            unlabeled=unlabeled,
            x_neighbours=(
                None if x_neighbours is None else self.inputs(x_neighbours, augmented=True)
            ),
        )
        if self.anchors is not None:
            self.anchors.update(z_labeled, labels)
        terms = {}
        for method in self.methods:
            with record_function(type(method).__name__):  # for profilers
                terms.update(method(step))
        return terms, z_labeled.detach(), None if z_unlabeled is None else z_unlabeled.detach()


def make_optimizer(objective: Objective, recipe: Recipe) -> Adam:
    """Adam; its weight decay is the gradient of ½λΣw², on weights of layers and nothing else.

    Groups have a ``factor``: the learning rate of a method's own networks, relative to the net's.
    """
    net = objective.net
    decay: dict[Tensor, float] = {
        module.weight: l2
        for part, l2 in ((net.features, recipe.l2_features), (net.classifier, recipe.l2_classifier))
        for module in part.modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    }
    methods = cast(list[Method], list(objective.methods))
    factors = {p: method.learning_rate for method in methods for p in method.parameters()}
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for parameter in filter(lambda p: p.requires_grad, objective.parameters()):
        kind = decay.get(parameter, 0.0), factors.get(parameter, 1.0)
        groups.setdefault(kind, []).append(parameter)
    beta1 = min((m.adam_beta1 for m in methods if m.adam_beta1 is not None), default=0.9)
    return Adam(
        [
            {"params": group, "weight_decay": l2, "factor": factor}
            for (l2, factor), group in groups.items()
        ],
        lr=recipe.learning_rate,
        betas=(beta1, 0.999),
        eps=recipe.adam_eps,
    )
