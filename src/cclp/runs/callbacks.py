"""Callbacks that write into a run directory. Only process 0 writes."""

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cclp.data.dataset import Dataset
from cclp.files import Directory
from cclp.progress import Reporter
from cclp.runs.checkpoint import Checkpoint, save_checkpoint
from cclp.runs.directory import Metrics, digest_of_config
from cclp.runs.outputs import (
    embedding_file,
    embedding_points,
    generated_file,
    predictions_file,
    unlabeled_file,
    unlabeled_points,
)
from cclp.training.callbacks import Callback, Evaluation, GraphPseudoLabels
from cclp.training.evaluation import EvaluationSet
from cclp.training.trainer import StepResult, Trainer

if TYPE_CHECKING:
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

LOG_EVERY = 10
GENERATED = 64  # images
SECONDS_BETWEEN_CHECKPOINTS = 300.0


class WriteOutputs(Callback):
    """``embedding/STEP.npz`` of fixed training points, and ``predictions.npz``, at evaluations."""

    phase = "predictions for the report"

    def __init__(self, out: Path, data: Dataset, measured: EvaluationSet | None) -> None:
        self.out, self.data, self.measured = out, data, measured

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        points = embedding_points(trainer.split, trainer.seed)
        outputs = trainer.predict(trainer.x, points)
        if not trainer.fabric.is_global_zero:
            return
        folder = Directory(self.out, "embedding")
        folder.make()
        labeled = np.isin(points, trainer.split.labeled)
        content = embedding_file(outputs, points, trainer.y[points], labeled)
        folder.write_bytes(f"{evaluation.done:08d}.npz", content)
        if self.measured is not None and evaluation.logits is not None:
            content = predictions_file(evaluation.logits, self.measured)
            Directory(self.out).write_bytes("predictions.npz", content)


class WriteUnlabeled(Callback):
    """``unlabeled.npz`` at the end: what the trained net says of unlabeled training samples.

    Args:
        out: run directory.
        data: that the run is trained on.
        temperature: by which logits are divided before they become probabilities.
    """

    phase = "predictions for the report"

    def __init__(self, out: Path, data: Dataset, temperature: float = 1.0) -> None:
        self.out, self.data, self.temperature = out, data, temperature

    def on_end(self, trainer: Trainer) -> None:
        index = unlabeled_points(trainer.split, trainer.seed)
        if not len(index):
            return
        logits = trainer.predict(trainer.x, index).logits
        if trainer.fabric.is_global_zero:
            names, pictures = self.data.train_names, self.data.train_pictures
            looks = self.data.train_x if pictures is None else pictures
            content = unlabeled_file(logits, index, looks, names, self.temperature)
            Directory(self.out).write_bytes("unlabeled.npz", content)


class WriteGenerated(Callback):
    """``generated.npz`` at the end: images that a method's generative model has made."""

    phase = "predictions for the report"

    def __init__(self, out: Path) -> None:
        self.out = out

    def on_end(self, trainer: Trainer) -> None:
        pixels = trainer.draw(GENERATED) if trainer.fabric.is_global_zero else None
        if pixels is not None:
            Directory(self.out).write_bytes("generated.npz", generated_file(pixels))


class WriteMetrics(Callback):
    """A line of ``metrics.jsonl`` every ten steps and, with the graph's health, at evaluations.

    Args:
        metrics: the file.
        report: is told of each kind of health warning once.
        seconds: of the run so far.
        events: TensorBoard's logger, if it is asked for.
    """

    phase = "metrics"

    def __init__(
        self,
        metrics: Metrics,
        report: Reporter,
        seconds: Callable[[], float],
        events: "TensorBoardLogger | None" = None,
    ) -> None:
        self.metrics, self.report, self.seconds = metrics, report, seconds
        self.events = events
        self.warned: set[str] = set()

    def on_start(self, trainer: Trainer) -> None:
        if trainer.fabric.is_global_zero:
            self.metrics.forget_after(trainer.done)

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        evaluation = trainer.evaluation
        evaluated = evaluation is not None and evaluation.done == result.done
        if not trainer.fabric.is_global_zero or not (evaluated or result.done % LOG_EVERY == 0):
            return
        values: dict[str, float] = {
            **result.terms,
            "loss": sum(result.terms.values()),
            "learning_rate": result.learning_rate,
            "step_seconds": result.seconds,
            "seconds": self.seconds(),
        }
        if evaluation is not None and evaluated:
            if evaluation.error is not None:
                values["error"] = evaluation.error
            values |= self._health(trainer, result)
        self.metrics.add({"step": result.done, **values})
        if self.events is not None:
            self.events.log_metrics(values, result.done)

    def _health(self, trainer: Trainer, result: StepResult) -> dict[str, float]:
        values: dict[str, float] = {}
        for method in trainer.objective.methods:
            health = method.health(result.z_labeled, result.labels, result.z_unlabeled)  # type: ignore[operator]
            if health is None:
                continue
            values |= {f"health/{name}": value for name, value in health._asdict().items()}
            for warning in health.warnings():
                if warning.code not in self.warned:
                    self.report.warn(f"Step {result.done}: {warning}")
                self.warned.add(warning.code)
        return values

    def close(self) -> None:
        """Write what TensorBoard has not yet written."""
        if self.events is not None:
            self.events.finalize("")


class WriteCheckpoints(Callback):
    """A checkpoint every so many steps, every five minutes, before a stop, and at the end.

    Args:
        out: run directory.
        every: steps.
        metrics: to be on the disk before a checkpoint is.
        info: plain values to save beside the tensors, as they are at that time.
        pseudo_labels: to be saved as long as they are used.
    """

    phase = "checkpoints"

    def __init__(
        self,
        out: Path,
        every: int,
        metrics: Metrics,
        info: Callable[[], dict[str, Any]],
        pseudo_labels: GraphPseudoLabels | None,
    ) -> None:
        self.out, self.every, self.metrics = out, every, metrics
        self.info, self.pseudo_labels = info, pseudo_labels
        self.saved, self.saved_at = 0, time.monotonic()

    def on_start(self, trainer: Trainer) -> None:
        self.saved, self.saved_at = trainer.done, time.monotonic()

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        late = time.monotonic() - self.saved_at >= SECONDS_BETWEEN_CHECKPOINTS
        due = late or result.done % self.every == 0 or trainer.finished or trainer.stopping
        if due and trainer.fabric.is_global_zero:
            self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Write all that the steps to come depend on."""
        tensors, info = trainer.state(), self.info()
        if self.pseudo_labels is not None:
            info["decisions"] = self.pseudo_labels.decision.to_json()
            used = self.pseudo_labels.schedule.are_used_after(trainer.done)
            if trainer.pseudo_labels is not None and used:
                tensors["pseudo_labels"] = torch.from_numpy(trainer.pseudo_labels)
        info |= {"network": trainer.objective.network_name, "config": self.config_digest}
        info["metrics"] = self.metrics.digest
        self.metrics.sync()
        save_checkpoint(self.out / "checkpoint", Checkpoint(trainer.done, tensors, info))
        self.saved, self.saved_at = trainer.done, time.monotonic()

    @cached_property
    def config_digest(self) -> str:
        """Of ``config.json`` as it was when the first checkpoint was written."""
        return digest_of_config(self.out)
