"""What happens around the steps of a training, a class for each. Those that write files are in
:mod:`cclp.runs.callbacks`.
"""

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from cclp.methods.graph_pseudo_label import GraphPseudoLabel
from cclp.progress import Reporter
from cclp.pseudo_labels.schedule import Decision, PseudoLabelSchedule, Start
from cclp.training.evaluation import EvaluationSet, error_rate

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from cclp.pseudo_labels.labeler import Labeler
    from cclp.training.trainer import StepResult, Trainer


class Evaluation(NamedTuple):
    """What an evaluation has found.

    Attributes:
        done: number of steps done.
        error: share of wrong predictions; None if there is nothing to measure it on.
        logits: of the evaluation set, if there is one.
    """

    done: int
    error: float | None
    logits: Tensor | None


class Callback:
    """Hooks into a training; a subclass has those that it needs.

    All processes call all hooks. ``on_step`` and ``on_evaluation`` may set ``trainer.finished`` to
    end the training after this step.

    Attributes:
        phase: of a run that its time is counted for: see :mod:`cclp.phases`.
    """

    phase: ClassVar[str] = "other callbacks"

    def on_setup(self, trainer: "Trainer") -> None:
        """Before ``on_start`` of any callback: for what takes a while and shows its progress."""

    def on_start(self, trainer: "Trainer") -> None:
        """Before the first step, also of a training that is resumed."""

    def on_step(self, trainer: "Trainer", result: "StepResult") -> None:
        """After each step."""

    def on_evaluation(self, trainer: "Trainer", evaluation: Evaluation) -> None:
        """After each evaluation."""

    def on_end(self, trainer: "Trainer") -> None:
        """After the last step, unless the training was stopped."""


class Progress(Callback):
    """Shows the user how far the training is.

    Args:
        report: what the user sees.
        title: of the training.
    """

    phase = "progress"

    def __init__(self, report: Reporter, title: str) -> None:
        self.report, self.title = report, title

    def on_start(self, trainer: "Trainer") -> None:
        self.report.begin(self.title, trainer.done, trainer.recipe.max_steps, trainer.samples)

    def on_step(self, trainer: "Trainer", result: "StepResult") -> None:
        self.report.step(result.done, result.terms, result.seconds)

    def on_evaluation(self, trainer: "Trainer", evaluation: Evaluation) -> None:
        if evaluation.error is not None:
            self.report.error(evaluation.done, evaluation.error)

    def on_end(self, trainer: "Trainer") -> None:
        self.report.end()


class Evaluate(Callback):
    """Evaluates the network every so many steps and after the last one.

    Args:
        every: steps.
        measured: what the error is measured on; None: there is nothing.
        recalibrate: batch norm's statistics before each evaluation.
    """

    phase = "evaluation"

    def __init__(self, every: int, measured: EvaluationSet | None, *, recalibrate: bool) -> None:
        self.every, self.measured, self.recalibrate = every, measured, recalibrate

    def on_step(self, trainer: "Trainer", result: "StepResult") -> None:
        if trainer.last or result.done % self.every == 0:
            self.evaluate(trainer)

    def on_end(self, trainer: "Trainer") -> None:
        if trainer.evaluation is None:  # killed after the last step, before its result was written
            self.evaluate(trainer)

    def evaluate(self, trainer: "Trainer") -> None:
        """Evaluate now."""
        if self.recalibrate:
            trainer.recalibrate()
        logits = error = None
        if self.measured is not None:
            logits = trainer.predict(self.measured.x, self.measured.index).logits
            error = error_rate(logits, self.measured.y)
        trainer.evaluated(Evaluation(trainer.done, error, logits))


class EarlyStopping(Callback):
    """Ends the training when the error has not fallen for a while, and restores the best network.

    Args:
        patience: steps to wait for a better one.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.best: tuple[float, int, dict[str, Any]] | None = None

    def on_evaluation(self, trainer: "Trainer", evaluation: Evaluation) -> None:
        assert evaluation.error is not None
        if self.best is None or evaluation.error < self.best[0]:
            state = deepcopy(trainer.objective.state_dict())
            self.best = evaluation.error, evaluation.done, state
        if evaluation.done - self.best[1] >= self.patience:
            trainer.finished = True

    def on_end(self, trainer: "Trainer") -> None:
        if self.best is not None:
            trainer.objective.load_state_dict(self.best[2])


class RecalibrateAtEnd(Callback):
    """Computes batch norm's statistics anew after the last step."""

    def on_end(self, trainer: "Trainer") -> None:
        trainer.recalibrate()


class History(Callback):
    """Keeps the terms of the loss of every step, and the score of every evaluation."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def on_step(self, trainer: "Trainer", result: "StepResult") -> None:
        for name, value in result.terms.items():
            self.values.setdefault(name, []).append(value)

    def on_evaluation(self, trainer: "Trainer", evaluation: Evaluation) -> None:
        if evaluation.error is not None:
            self.values.setdefault("validation_score", []).append(1 - evaluation.error)
            self.values.setdefault("validation_step", []).append(evaluation.done)


class InputGraph(Callback):
    """Gives the trainer neighbours of samples, if a method asks for them.

    Process 0 searches for them, all get them.

    Args:
        report: what the user sees.
        cache: folder that keeps neighbours for the next time; None: nothing is kept.
    """

    phase = "neighbours"

    def __init__(self, report: Reporter, cache: Path | None) -> None:
        self.report, self.cache = report, cache

    def on_setup(self, trainer: "Trainer") -> None:
        if trainer.objective.neighbours == 0 or len(trainer.split.unlabeled) == 0:
            return
        from cclp.pseudo_labels.graph import NeighbourGraph  # loads scipy and scikit-learn
        from cclp.pseudo_labels.walk import RandomNeighbours

        rows, found = trainer.split.unlabeled, None
        if trainer.fabric.is_global_zero:
            graph = NeighbourGraph(
                trainer.x,
                rows,
                neighbours=trainer.objective.neighbours,
                distortion=False,
                cache=self.cache,
                report=self.report,
            )
            found = RandomNeighbours(graph, rows, len(trainer.x))
        trainer.neighbours = trainer.fabric.broadcast(found)


def pseudo_label_schedule(trainer: "Trainer") -> PseudoLabelSchedule | None:
    """When the method of a training uses pseudo-labels from the graph; None if it has none."""
    for method in trainer.objective.methods:
        if isinstance(method, GraphPseudoLabel):
            return PseudoLabelSchedule(
                trainer.recipe.max_steps,
                method.decay,
                method.refreshes,
                method.supervised_warmup,
            )
    return None


class GraphPseudoLabels(Callback):
    """Gives the trainer pseudo-labels from the graph, and refreshes them.

    All processes search for neighbours and propagate labels together; the rest process 0 does.

    Args:
        labeler: makes them and decides about their use.
        report: what the user sees.
        start: pseudo-labels and the decision of a training that is resumed.
    """

    phase = "label propagation"

    def __init__(self, labeler: "Labeler", report: Reporter, start: Start | None = None) -> None:
        self.labeler, self.report = labeler, report
        self.schedule: PseudoLabelSchedule = labeler.schedule
        self.refresh_steps: frozenset[int] = frozenset()
        self.start = start
        self.decision = Decision()  # about the use of pseudo-labels, once there is one

    def on_setup(self, trainer: "Trainer") -> None:
        start, self.start = self.start, None  # the trainer has the labels from here on
        if start is None:
            start = self._make(trainer.fabric)
        trainer.pseudo_labels, self.decision = start
        if self.decision.shares is not None:
            trainer.draw_classes(self.decision.shares)
        self.schedule = self.labeler.schedule.decided(self.decision)
        self.refresh_steps = self.schedule.refresh_steps
        trainer.warmup_steps = self.schedule.warmup_steps
        trainer.pseudo_label_weight = self.schedule.weight

    def _make(self, fabric: "Fabric") -> Start:
        if fabric.world_size > 1:
            from cclp.pseudo_labels.share import Share

            share = Share(fabric.global_rank, fabric.world_size, fabric.device)
            self.labeler.prepare(share)
        start: Start | None = None
        if fabric.is_global_zero:
            start = self.labeler.start()
        else:
            self.labeler.forget()
        start = fabric.broadcast(start)
        assert start is not None
        return start

    def on_step(self, trainer: "Trainer", result: "StepResult") -> None:
        if trainer.pseudo_labels is None or result.done not in self.refresh_steps:
            return
        trainer.recalibrate()
        logits = trainer.predict(trainer.x, trainer.split.unlabeled).logits
        if not torch.isfinite(logits).all():
            raise FloatingPointError(f"the logits are not finite after step {result.done}")
        first, labels = trainer.fabric.is_global_zero, None
        if first:
            labels = self.labeler.refresh(logits.softmax(1).numpy())
        labels = trainer.fabric.broadcast(labels)
        assert labels is not None
        changed = int((labels.argmax(1) != trainer.pseudo_labels.argmax(1)).sum())
        self.report.info(
            f"Guessed classes of unlabeled samples refreshed by what the net has learned: "
            f"{changed} of {len(trainer.split.unlabeled)} change."
        )
        trainer.pseudo_labels = labels
