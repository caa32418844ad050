"""``Run``: a trainer and its callbacks as a configuration asks for them, in a run directory."""

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cclp.data.dataset import Dataset
from cclp.data.published.catalog import CATALOG
from cclp.data.splits import Source
from cclp.data.weights import ESTIMATE, class_shares, label_weights
from cclp.files import Directory, cache_root, json_bytes
from cclp.methods import make_methods
from cclp.nets.registry import make_net
from cclp.progress import Reporter
from cclp.pseudo_labels.schedule import Decision, Start
from cclp.runs.callbacks import (
    WriteCheckpoints,
    WriteGenerated,
    WriteMetrics,
    WriteOutputs,
    WriteUnlabeled,
)
from cclp.runs.checkpoint import Checkpoint, does_not_fit
from cclp.runs.data import split_data
from cclp.runs.directory import Metrics, clear_partial, tensorboard
from cclp.runs.record import Result
from cclp.selection.verdict import Verdict
from cclp.training.callbacks import (
    Callback,
    Evaluate,
    GraphPseudoLabels,
    InputGraph,
    Progress,
    pseudo_label_schedule,
)
from cclp.training.config import Config
from cclp.training.evaluation import evaluation_set
from cclp.training.machine import environment
from cclp.training.memory import keep_memory
from cclp.training.trainer import Trainer

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Run:
    """One training with its files: ``fit`` continues from whatever is in the directory.

    Args:
        fabric: device, precision and processes.
        out: the run directory.
        config: what to do.
        data: to train on.
        report: what the user sees.
        checkpoint: to resume from.
        verdict: by which the model was chosen.

    Raises:
        ValueError: for settings that cannot be, or a checkpoint of another network.
    """

    def __init__(
        self,
        fabric: "Fabric",
        out: Path,
        config: Config,
        data: Dataset,
        report: Reporter,
        checkpoint: Checkpoint | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        keep_memory()
        torch.backends.cudnn.deterministic = True  # or resuming would not be bit for bit
        self.fabric, self.out, self.config = fabric, out, config
        self.data, self.report, self.verdict = data, report, verdict
        self.split = split_data(config, data)
        self.measured = evaluation_set(data, self.split)
        self.begun = time.monotonic()
        self.seconds_before, self.restarts = 0.0, 0
        self.trainer = Trainer(
            fabric,
            config.recipe,
            data.train_x,
            data.train_y,
            self.split,
            make_net=lambda: make_net(config.recipe.net, data.spec.shape, data.num_classes),
            make_methods=lambda: make_methods(
                config.method, data.num_classes, config.method_settings
            ),
            labeled_batch=config.labeled_batch,
            seed=config.seed,
            label_weights=label_weights(
                data.train_y[self.split.labeled],
                data.spec.classes,
                config.class_weight,
                config.class_prior,
            ),
        )
        start = None
        if checkpoint is not None:
            try:
                start = self._restore(checkpoint)
            except (RuntimeError, KeyError, TypeError, ValueError) as error:
                raise does_not_fit(out, checkpoint, error) from None
        writes = config.tensorboard and fabric.is_global_zero
        self.events = tensorboard(out, self.trainer.done) if writes else None
        self.features_digest: str | None = None
        self.pseudo_labels = self._pseudo_labels(start)

    def fit(
        self, should_stop: Callable[[], bool], further: Sequence[Callback] = ()
    ) -> dict[str, Any]:
        """Train to the end, writing along the way; returns the content of ``result.json``.

        Args:
            should_stop: asked after each step.
            further: callbacks, called after those of the run.
        """
        config, out = self.config, self.out
        if self.fabric.is_global_zero:
            clear_partial(out)
        metrics = Metrics(out / "metrics.jsonl")
        writer = WriteMetrics(metrics, self.report, self.seconds, self.events)
        checkpoints = WriteCheckpoints(
            out, config.checkpoint_every, metrics, self._info, self.pseudo_labels
        )
        title = f"{config.method} on {self.data.name}, seed {config.seed}"
        callbacks: list[Callback | None] = [
            Progress(self.report, title),
            Evaluate(
                config.evaluation_interval,
                self.measured,
                recalibrate=config.recipe.recalibrate_batchnorm,
            ),
            WriteOutputs(out, self.data, self.measured),
            self._write_unlabeled(),
            WriteGenerated(out),
            writer,
            InputGraph(self.report, cache_root() / "neighbours"),
            self.pseudo_labels,
            checkpoints,
            *further,
        ]
        try:
            self.trainer.fit([call for call in callbacks if call is not None], should_stop)
        except FloatingPointError as problem:
            good = f"step {checkpoints.saved} is kept" if checkpoints.saved else "there is none yet"
            raise FloatingPointError(f"{problem}; last good checkpoint: {good}") from None
        finally:
            writer.close()
        result = self._result().to_json()
        if self.fabric.is_global_zero:
            Directory(out).write_bytes("result.json", json_bytes(result))
        return result

    def _write_unlabeled(self) -> WriteUnlabeled | None:
        if self.config.data in CATALOG:
            return None
        temperature = 1.0 if self.verdict is None else self.verdict.temperature
        return WriteUnlabeled(self.out, self.data, temperature)

    def seconds(self) -> float:
        """Of training so far, in all sessions."""
        return self.seconds_before + time.monotonic() - self.begun

    @property
    def decision(self) -> Decision:
        """What the run has decided while it ran."""
        return Decision() if self.pseudo_labels is None else self.pseudo_labels.decision

    def record(self, machine: dict[str, Any]) -> dict[str, Any]:
        """The content of ``config.json``, but for the command."""
        data, labeled = self.data, self.split.labeled.tolist()
        return {
            "config": self.config.to_json(),
            "data": {
                "name": data.name,
                "fingerprint": data.fingerprint,
                "verified": data.verified,
                "left_out": list(data.left_out),
                **data.spec.to_json(),
            },
            "labeled": "all" if self.config.num_labels is None else labeled,
            "labels_per_class": np.bincount(
                data.train_y[labeled], minlength=data.num_classes
            ).tolist(),
            "pseudo_label_features": self.features_digest,
            "environment": machine,
        }

    def check_recorded(self, about: dict[str, Any]) -> None:
        """Make sure that a resumed run is the one that was begun.

        Raises:
            ValueError: if the labeled set or the features are others.
        """
        labeled = about.get("labeled")
        if labeled != "all" and self.split.labeled.tolist() != labeled:
            raise ValueError(
                f"{self.out}: the labeled set recorded in config.json cannot be drawn again by "
                f"this version of numpy ({np.__version__})"
            )
        recorded = about.get("pseudo_label_features")
        if self.features_digest is not None and self.features_digest != recorded:
            raise ValueError(
                f"pseudo_label_features {self.config.pseudo_label_features} has changed since the "
                "run began"
            )

    def check_same_everywhere(self) -> None:
        """Make sure that all processes train alike.

        Raises:
            ValueError: in a process that has other data, samples or precision than process 0.
        """
        mine = self.config.precision, self.data.fingerprint, self.split.labeled.tolist()
        if self.fabric.broadcast(mine) != mine:
            raise ValueError(
                f"this process does not have the data, labeled set or precision of process 0: here "
                f"SHA-256 {mine[1][:12]}…, precision {mine[0]}, numpy {np.__version__}"
            )

    def _pseudo_labels(self, start: Start | None) -> GraphPseudoLabels | None:
        """The callback that makes and refreshes pseudo-labels, if the method has any left."""
        schedule = pseudo_label_schedule(self.trainer)
        if schedule is None:
            return None
        from cclp.pseudo_labels.features import are_images  # loads scipy and scikit-learn
        from cclp.pseudo_labels.labeler import Labeler

        left = schedule.are_used_after(self.trainer.done)
        if start is None and not left:
            return None
        x, what = self.data.train_x, "inputs"
        if left and self.config.pseudo_label_features is not None:
            x, what = self._read_features(), "features"
        labeler = Labeler(
            x,
            self.data.train_y,
            self.split,
            self.data.num_classes,
            schedule,
            class_prior=class_shares(
                self.config.class_prior,
                self.data.spec.classes,
                np.bincount(self.data.train_y[self.split.labeled], minlength=self.data.num_classes),
            ),
            cache=cache_root() / "neighbours",
            committee=self.config.class_prior in (None, ESTIMATE) and not are_images(x),
            what=what,
            report=self.report,
        )
        return GraphPseudoLabels(labeler, self.report, start)

    def _read_features(self) -> Any:
        from cclp.pseudo_labels.features import read_features  # loads scikit-learn

        path = Path(str(self.config.pseudo_label_features))
        features = read_features(path, len(self.data.train_y))
        self.features_digest = hashlib.sha256(features.data).hexdigest()
        return features

    def _restore(self, checkpoint: Checkpoint) -> Start | None:
        """Put a checkpoint into net and optimizer; returns its pseudo-labels and decision."""
        info = checkpoint.info
        self.seconds_before, self.restarts = info["seconds"], info["restarts"] + 1
        self.trainer.load_state(checkpoint.step, checkpoint.tensors)
        if "decisions" not in info:
            return None
        labels = checkpoint.tensors.get("pseudo_labels")
        return Start(
            None if labels is None else labels.numpy(), Decision.from_json(info["decisions"])
        )

    def _info(self) -> dict[str, Any]:
        return {"seconds": self.seconds(), "restarts": self.restarts}

    def _result(self) -> Result:
        config, evaluation, measured = self.config, self.trainer.evaluation, self.measured
        assert evaluation is not None
        error, count = evaluation.error, 0
        source: Source | None = None
        if measured is not None:
            source, count = measured.source, len(measured.y)
        elif self.verdict is not None:
            error, source = self.verdict.row(self.verdict.chosen).error, "cross_validated"
            count = self.verdict.tested
        return Result(
            error=error,
            evaluated_on=source,
            num_samples=count,
            num_labels=len(self.split.labeled),
            data=self.data.name,
            data_verified=self.data.verified,
            method=config.method,
            seed=config.seed,
            recipe=config.recipe,
            precision=config.precision,
            seconds=round(self.seconds(), 1),
            restarts=self.restarts,
            environment=environment(self.fabric.device),
            settings=config.method_settings,
            decisions=self.decision.to_json(),
        )
