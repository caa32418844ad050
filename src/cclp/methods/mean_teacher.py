"""Mean teacher: consistency with a network whose weights are an average of the past ones."""

from collections.abc import Callable
from copy import deepcopy
from typing import ClassVar

import torch
from torch import Tensor

from cclp.checks import check_function, check_number
from cclp.methods.base import Inputs, Method, Step, average, check_weight, ramp_up
from cclp.methods.pi_model import squared_difference
from cclp.nets import Net

AVERAGED = 1 / 50  # of the training


class MeanTeacher(Method):
    """Squared difference to the predictions of a teacher (Tarvainen & Valpola 2017).

    The teacher's weights are an exponential average of the network's; it sees the samples under
    noise of its own, keeps batch statistics of its own, and is what is evaluated and saved for
    predictions.

    Args:
        num_classes: C.
        weight: of the term, when it has been ramped up.
        decay: of the average; None: it reaches over a fiftieth of the training, as the original's
            0.999 does of 40,000 steps. In the first steps it is 1 − 1/(t + 1), so that the random
            first weights are soon forgotten.
        ramp: share of the training over which the weight grows.
        augment: of the teacher's inputs, (N, …) to (N, …).
    """

    evaluated: ClassVar[str | None] = "teacher"
    teacher: Net
    steps: Tensor

    def __init__(
        self,
        num_classes: int,
        weight: float = 10.0,
        *,
        decay: float | None = None,
        ramp: float = 0.4,
        augment: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.weight = check_weight(weight)
        self.decay = None if decay is None else check_number("decay", decay, least=0)
        if decay is not None and decay >= 1:
            raise ValueError(f"decay must be below 1, got {decay!r}")
        self.ramp = check_number("ramp", ramp, least=0)
        self.augment = check_function("augment", augment)
        self.max_steps = 1
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def attach(self, net: Net, inputs: Inputs, samples: int) -> None:
        self.teacher = deepcopy(net).requires_grad_(False)

    def forward(self, step: Step) -> dict[str, Tensor]:
        self.max_steps = step.max_steps
        if step.x_unlabeled is None or step.z_unlabeled is None:
            return {}
        x = step.x_unlabeled if self.augment is None else self.augment(step.x_unlabeled)
        with torch.no_grad():
            target = self.teacher(x)
        loss = squared_difference(step.net.classifier(step.z_unlabeled), target)
        return {"mean_teacher": self.weight * ramp_up(step.progress, self.ramp) * loss}

    @torch.no_grad()
    def after_step(self, net: Net) -> None:
        self.steps += 1
        steps = max(2, AVERAGED * self.max_steps)  # never the student itself
        share = 1 / steps if self.decay is None else 1 - self.decay
        average(self.teacher, net, max(share, 1 / (int(self.steps) + 1)))
