"""A run and its directory: begin, resume, and everything that is written along the way.

==================== ================================================================
``config.json``      what was asked for, the labeled set, the data, the environment
``metrics.jsonl``    one line every ten steps and at evaluations
``checkpoint/``      the last two
``embedding/``       ``STEP.npz``: at most 1,000 fixed training points, at evaluations
``predictions.npz``  of the last evaluation
``result.json``      at the end
``tensorboard/``     event files, if asked for
==================== ================================================================
"""

import hashlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from cclp.data.dataset import Dataset
from cclp.data.load import load
from cclp.data.published.catalog import CATALOG
from cclp.data.splits import Split, make_split
from cclp.files import cache_root, write_bytes, write_json
from cclp.methods import make_methods, method_parts
from cclp.nets.registry import make_net
from cclp.progress import Reporter
from cclp.runs.checkpoint import Checkpoint, does_not_fit, load_checkpoint, save_checkpoint
from cclp.runs.directory import (
    Metrics,
    check_new,
    clear_partial,
    create,
    locked,
    read_json,
    read_run,
    tensorboard,
)
from cclp.training.config import Config, named_again
from cclp.training.evaluation import (
    embedding_file,
    embedding_points,
    error_rate,
    evaluation_set,
    predictions_file,
    recalibrate_batchnorm,
    run_net,
)
from cclp.training.loop import (
    StepResult,
    cclp_settings,
    own_randomness,
    set_up,
    train_steps,
)
from cclp.training.machine import (
    differences,
    environment,
    fabric_precision,
    find_device,
    has_bfloat16,
    keep_memory,
    make_fabric,
)
from cclp.training.processes import (
    any_of,
    check_started,
    local_rank_zero_first,
    may_be_restarted,
    shares_its_store,
    together,
)
from cclp.user_code import is_user_code

if TYPE_CHECKING:
    from cclp.pseudo_labels.prior import Prior

LOG_EVERY = 10
SECONDS_BETWEEN_CHECKPOINTS = 300.0


class Stopped(Exception):  # noqa: N818 - not an error
    """The user asked to stop, and the state is saved."""


def train(
    config: Config,
    out: Path,
    report: Reporter | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    command: str | None = None,
) -> dict[str, Any]:
    """Train from the beginning into a new directory.

    Under torchrun with restarts, a directory with the same run is gone on with.

    Args:
        config: what to do.
        out: the run directory; must not exist, or be empty.
        report: what the user sees.
        should_stop: asked after each step; if it says so, the state is saved and the run stops.
        command: that made the run, to be recorded.

    Returns:
        The content of ``result.json``.

    Raises:
        ValueError: for data or settings that cannot be, and for a directory that is not empty.
        FloatingPointError: if the loss or the weights stop being finite.
        WorkerDied: if another process has ended.
        Stopped: if ``should_stop`` said so.
    """
    device = find_device(config.accelerator)
    config = replace(  # what "auto" stands for is settled now, and stays when resumed elsewhere
        config,
        accelerator=device.type,  # type: ignore[arg-type]
        precision="bf16" if fabric_precision(config.precision, device) == "bf16-mixed" else "32",
    )
    report = report or Reporter()
    if config.precision == "bf16" and not has_bfloat16(device):
        report.warn("This machine has no bfloat16 of its own: expect --precision 32 to be faster.")
    if may_be_restarted() and shares_its_store():
        report.warn(
            "Restarts by torchrun are likely to fail: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1."
        )
    fabric = _fabric(config)
    begun = _begun_before(out, config) if fabric.is_global_zero else None
    with together(fabric):
        begun = fabric.broadcast(begun)
        if begun is not None:
            return _go_on(fabric, out, begun, config, report, should_stop)
        data = local_rank_zero_first(fabric, lambda: load_data(config, report))
        if config.held_out is None:
            config = replace(config, held_out=_part_to_hold_out(data))
        with own_randomness():
            run = Run(fabric, out, config, data, report)
        _check_same(run)
        if fabric.is_global_zero:
            create(
                out,
                {
                    "command": command,
                    "config": config.to_json(),
                    "data": {
                        "name": data.name,
                        "fingerprint": data.fingerprint,
                        "verified": data.verified,
                        "left_out": list(data.left_out),
                        **data.spec.to_json(),
                    },
                    "labeled": "all" if config.num_labels is None else run.split.labeled.tolist(),
                    "prior_features": run.features_digest,
                    "environment": environment(device),
                },
            )
        with _held(fabric, out), own_randomness():
            return run.go(should_stop)


def _fabric(config: Config) -> Fabric:
    check_started(config.devices)
    return make_fabric(
        config.accelerator,
        config.precision,
        config.devices,
        config.strategy,
        unused=any(map(is_user_code, (config.recipe.net, *method_parts(config.method)))),
    )


def _check_same(run: "Run") -> None:
    """Make sure that all processes train alike.

    Raises:
        ValueError: in a process that has other data, samples or precision than process 0.
    """
    mine = run.config.precision, run.data.fingerprint, run.split.labeled.tolist()
    if run.fabric.broadcast(mine) != mine:
        raise ValueError(
            f"this process does not have the data, labeled set or precision of process 0: here "
            f"SHA-256 {mine[1][:12]}…, precision {mine[0]}, numpy {np.__version__}"
        )


def _held(fabric: Fabric, out: Path) -> AbstractContextManager[None]:
    """The directory, by process 0."""
    return locked(out) if fabric.is_global_zero else nullcontext()


def _begun_before(out: Path, config: Config) -> dict[str, Any] | None:
    """What ``config.json`` says of this run if it has begun and torchrun starts it anew; else None.

    Raises:
        ValueError: if the directory holds anything else.
    """
    if not may_be_restarted() or not (out / "config.json").exists():
        check_new(out)
        return None
    about, recorded = read_run(out)
    held_out = recorded.held_out if config.held_out is None else config.held_out
    if recorded != replace(config, held_out=held_out):
        check_new(out)  # it is not
    return about


def resume(
    out: Path,
    report: Reporter | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    data_dir: Path | None = None,
    net: str | None = None,
    method: str | None = None,
) -> dict[str, Any]:
    """Go on with a run from its last checkpoint, bit for bit; a finished run is left as it is.

    Args, Returns, Raises: as :func:`train`; ValueError if ``out`` is not a run directory or is in
    use, or if the data are not those it began with. ``data_dir`` is where they are now, if they
    have moved. ``net`` and ``method`` name the user's own code again, if the run needs it.
    """
    report = report or Reporter()
    about, config = read_run(out)
    config = replace(
        config,
        method=named_again("method", config.method, method),
        recipe=replace(config.recipe, net=named_again("net", config.recipe.net, net)),
    )
    finished = _result_of(out)
    if finished is not None:
        report.warn(f"{out} is finished: nothing to resume.")
        return finished
    fabric = _fabric(config)
    with together(fabric):
        return _go_on(fabric, out, about, config, report, should_stop, data_dir)


def _result_of(out: Path) -> dict[str, Any] | None:
    """Of a run, if it is finished."""
    if not (out / "result.json").exists():
        return None
    result = read_json(out, "result.json")
    if "error" not in result:
        raise ValueError(f"{out / 'result.json'} is damaged: remove it to finish the run again")
    return result


def _go_on(
    fabric: Fabric,
    out: Path,
    about: dict[str, Any],
    config: Config,
    report: Reporter,
    should_stop: Callable[[], bool],
    data_dir: Path | None = None,
) -> dict[str, Any]:
    """From the last checkpoint. Only process 0 looks at the directory."""
    first = fabric.is_global_zero
    finished: dict[str, Any] | None = fabric.broadcast(_result_of(out) if first else None)
    if finished is not None:
        return finished
    try:
        labeled, fingerprint = about["labeled"], str(about["data"]["fingerprint"])
        changed = differences(about["environment"], environment(find_device(config.accelerator)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{out / 'config.json'} cannot be used: {error!r}") from None
    data = local_rank_zero_first(
        fabric, lambda: load_data(config, report, fingerprint, moved_to=data_dir)
    )
    if config.held_out is None:
        config = replace(config, held_out=_part_to_hold_out(data))
    if changed:
        report.warn(f"Resuming, but not bit for bit: {', '.join(changed)}.")
    with _held(fabric, out), own_randomness():
        saved = load_checkpoint(out / "checkpoint", report.warn) if first else None
        if saved is not None and saved.info.get("config") != _config_digest(out):
            raise ValueError(
                f"{out / 'config.json'} has changed since checkpoint {saved.step} was written: put "
                "back what it was"
            )
        run = Run(fabric, out, config, data, report, fabric.broadcast(saved))
        if labeled != "all" and run.split.labeled.tolist() != labeled:
            raise ValueError(
                f"{out}: the labeled set recorded in config.json cannot be drawn again by this "
                f"version of numpy ({np.__version__})"
            )
        _check_same(run)
        if run.features is not None and run.features_digest != about.get("prior_features"):
            raise ValueError(
                f"prior_features {config.prior_features} has changed since the run began"
            )
        return run.go(should_stop)


def _config_digest(out: Path) -> str:
    """SHA-256 of what a run was asked to do."""
    return hashlib.sha256((out / "config.json").read_bytes()).hexdigest()


class Run:
    """One training with its files: ``go`` continues from whatever is in the directory."""

    def __init__(
        self,
        fabric: Fabric,
        out: Path,
        config: Config,
        data: Dataset,
        report: Reporter,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        keep_memory()
        self.fabric, self.out, self.config = fabric, out, config
        self.data, self.report = data, report
        self.writes = fabric.is_global_zero
        self.split = split_data(config, data)
        self.measured = evaluation_set(data, self.split)
        self.done = 0 if checkpoint is None else checkpoint.step
        recipe = config.recipe
        if "cclp" not in method_parts(config.method) or self.split.all_labeled:
            recipe = replace(recipe, alone=0.0, renew=0)  # there is no prior to wait for
        self.recipe = recipe
        self.features = self._read_features()
        self.events = tensorboard(out, self.done) if config.tensorboard and self.writes else None
        torch.backends.cudnn.deterministic = True  # or resuming would not be bit for bit
        of_cclp = cclp_settings(recipe) | config.settings.get("cclp", {})
        if config.graph == "global":
            of_cclp["gather"] = True
        settings = {**config.settings, "cclp": of_cclp}
        self.training = set_up(
            self.fabric,
            data.train_x,
            data.train_y,
            self.split,
            recipe,
            lambda: make_net(recipe.net, data.spec.shape, data.num_classes),
            lambda: make_methods(config.method, data.num_classes, settings),
            normalization=config.normalization,
            labeled_batch=config.labeled_batch,
            seed=config.seed,
        )
        self.objective, self.optimizer = self.training.objective, self.training.optimizer
        self.metrics = Metrics(out / "metrics.jsonl")
        self.begun = self.saved_at = time.monotonic()
        self.seconds_before = 0.0
        self.restarts = 0
        self.saved = self.done
        self.warned: set[str] = set()
        self.prior: Prior | None = None  # of process 0
        self.classes: NDArray[np.float32] | None = None  # by it, in all processes
        if checkpoint is not None:
            try:
                self._restore(checkpoint)
            except (RuntimeError, KeyError, TypeError) as error:
                raise does_not_fit(out, checkpoint, error) from None

    def go(self, should_stop: Callable[[], bool]) -> dict[str, Any]:
        """Train to the end, writing along the way."""
        config = self.config
        if self.writes:
            clear_partial(self.out)
            self.metrics.forget_after(self.done)
        title = f"{config.method} on {self.data.name}, seed {config.seed}"
        self.report.begin(title, self.done, self.recipe.max_steps, self._cost)
        error, finished = None, False
        try:
            self.classes = self._believed()
            recipe, renewals = self.recipe, self.recipe.renewals
            for outcome in train_steps(
                self.fabric,
                self.training.module,
                self.training.stepper,
                self.training.batches,
                self.data.train_x,
                self.data.train_y,
                recipe,
                config.seed,
                self.done,
                self.classes,
            ):
                done = self.done = outcome.done
                self.report.step(done, outcome.terms, outcome.seconds)
                last = done == recipe.max_steps
                evaluated = last or done % config.evaluation_interval == 0
                if evaluated:
                    error = self._evaluate(done)
                if self.writes and (evaluated or done % LOG_EVERY == 0):
                    self._log(outcome, evaluated, error)
                if self.classes is not None and done in renewals:
                    self._renew(self.classes)
                stop = any_of(self.fabric, should_stop()) and not last
                finished = last
                if self.writes and (last or stop or self._checkpoint_is_due(done)):
                    self.save(done)
                if stop:
                    raise Stopped(f"Stopped at step {done} of {recipe.max_steps}, saved.")
        except FloatingPointError as problem:
            good = f"step {self.saved} is kept" if self.saved else "there is none yet"
            raise FloatingPointError(f"{problem}; last good checkpoint: {good}") from None
        finally:
            if self.events is not None:
                self.events.finalize("")
        if not finished:  # killed after the last step, before its result was written
            error = self._evaluate(recipe.max_steps)
        result = self._result(error)
        if self.writes:
            write_json(self.out / "result.json", result)
        return result

    def _cost(self, steps: int) -> int:
        """Of so many steps from the first on: the samples that they see."""
        batches, alone = self.training.batches, min(steps, self.recipe.first_unlabeled)
        labeled = batches.classes_per_step * batches.per_class
        return steps * labeled + (steps - alone) * batches.unlabeled_batch

    @property
    def _needs_prior(self) -> bool:
        """Whether there are steps left that a prior is good for."""
        recipe = self.config.recipe
        some = self.done < recipe.prior * recipe.max_steps
        return some and "cclp" in method_parts(self.config.method)

    def _read_features(self) -> NDArray[np.float32] | None:
        """What the user has for the prior in place of the inputs, if it is still needed."""
        if self.config.prior_features is None or not self._needs_prior:
            return None
        from cclp.pseudo_labels.prior import read_features

        return read_features(Path(self.config.prior_features), len(self.data.train_y))

    @property
    def features_digest(self) -> str | None:
        """SHA-256 of the features, if there are any."""
        return None if self.features is None else hashlib.sha256(self.features.data).hexdigest()

    def _believed(self) -> NDArray[np.float32] | None:
        """Classes of the training set by the prior; process 0 makes it, all get them."""
        if not self._needs_prior:
            return None
        if self.writes:
            self.prior = self._make_prior(self.classes)
        classes = None if self.prior is None else self.prior.classes
        classes, alone = self.fabric.broadcast((classes, self.recipe.alone))
        self.recipe = replace(self.recipe, alone=alone)
        return classes

    def _make_prior(self, spread: NDArray[np.float32] | None) -> "Prior | None":
        """Labels spread over the inputs, or over features of them; ``spread``: they were before."""
        from cclp.pseudo_labels.prior import Prior  # scipy.sparse takes a while to import

        data, features = self.data, self.features
        over = "the inputs" if features is None else "the features"
        settled = spread is not None or self.split.all_labeled  # good enough before, or known
        if not settled:
            self.report.info(f"Spreading labels over {over}.")
        prior = Prior(
            data.train_x if features is None else features,
            data.train_y,
            self.split,
            data.num_classes,
            cache_root() / "neighbours",
            spread,
        )
        if settled:
            return prior
        left_out = prior.graph.leave_out()
        per_class = len(self.split.labeled) / data.num_classes
        if left_out.is_good(per_class, data.num_classes):
            self.recipe = replace(self.recipe, alone=0.0)
        if self.recipe.first_unlabeled:
            self.report.info(f"The net begins with labels alone. Spread over {over}, {left_out}.")
            return prior
        if left_out.is_poor(data.num_classes):
            self.report.warn(f"Labels spread over {over} are not used: only {left_out}.")
            return None
        self.report.info(f"Labels are spread over {over}: {left_out}.")
        return prior

    def _renew(self, classes: NDArray[np.float32]) -> None:
        """Replace the classes by what the classifier says now, smoothed over the prior's graph."""
        self._settle()
        outputs = run_net(self.fabric, self.objective, self.data.train_x, self.split.unlabeled)
        if not torch.isfinite(outputs.logits).all():
            raise FloatingPointError(f"the logits are not finite after step {self.done}")
        before = classes.argmax(1)
        if self.prior is not None:
            self.prior.renew(outputs.logits.softmax(1).numpy())
            classes[:] = self.prior.classes
        classes[:] = self.fabric.broadcast(classes)
        changed = int((classes.argmax(1) != before).sum())
        self.report.info(f"Labels by what the net says, smoothed: {changed} samples change.")

    def _settle(self) -> None:
        """Batch norm's statistics under the weights of now."""
        recalibrate_batchnorm(
            self.fabric,
            self.objective,
            self.data.train_x,
            self.split.unlabeled,
            self.config.seed,
        )

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Put a checkpoint into net and optimizer."""
        self.seconds_before = checkpoint.info["seconds"]
        self.restarts = checkpoint.info["restarts"] + 1
        self.objective.load_state_dict(checkpoint.part("objective."))
        alone = float(checkpoint.info.get("alone", self.recipe.alone))
        self.recipe = replace(self.recipe, alone=alone)
        if "prior" in checkpoint.tensors:
            self.classes = checkpoint.tensors["prior"].numpy()
        for name, parameter in self.objective.named_parameters():
            self.optimizer.state[parameter] = {
                key: (
                    torch.empty_like(parameter).copy_(value)  # in the weight's memory format
                    if value.shape == parameter.shape
                    else value
                )
                for key, value in checkpoint.part(f"adam.{name}.").items()
            }

    def save(self, done: int) -> None:
        """Write a checkpoint: all that the steps to come depend on."""
        tensors = {f"objective.{n}": t for n, t in self.objective.state_dict().items()}
        for name, parameter in self.objective.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"adam.{name}.{key}"] = value
        if self.classes is not None and self._needs_prior:
            tensors["prior"] = torch.from_numpy(self.classes)
        info = {
            "seconds": self._seconds(),
            "restarts": self.restarts,
            "alone": self.recipe.alone,
            "network": self.objective.network_name,
            "config": self.config_digest,
        }
        self.metrics.sync()
        save_checkpoint(self.out / "checkpoint", Checkpoint(done, tensors, info))
        self.saved, self.saved_at = done, time.monotonic()

    @cached_property
    def config_digest(self) -> str:
        """Of ``config.json`` as it was when the first checkpoint was written."""
        return _config_digest(self.out)

    def _checkpoint_is_due(self, done: int) -> bool:
        late = time.monotonic() - self.saved_at >= SECONDS_BETWEEN_CHECKPOINTS
        return late or done % self.config.checkpoint_every == 0

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.begun

    def _evaluate(self, done: int) -> float | None:
        """Error, if there is something to measure it on; embeddings of fixed training points."""
        if self.config.recipe.settle:
            self._settle()
        self._embed(done)
        if self.measured is None:
            return None
        logits = run_net(self.fabric, self.objective, self.measured.x, self.measured.index).logits
        error = error_rate(logits, self.measured.y)
        if self.writes:
            write_bytes(self.out / "predictions.npz", predictions_file(logits, self.measured))
        self.report.error(done, error)
        return error

    def _embed(self, done: int) -> None:
        points = embedding_points(self.split, self.config.seed)
        outputs = run_net(self.fabric, self.objective, self.data.train_x, points)
        if not self.writes:
            return
        folder = self.out / "embedding"
        folder.mkdir(exist_ok=True)
        content = embedding_file(
            outputs, points, self.data.train_y[points], np.isin(points, self.split.labeled)
        )
        write_bytes(folder / f"{done:08d}.npz", content)

    def _log(self, outcome: StepResult, evaluated: bool, error: float | None) -> None:
        values: dict[str, float] = {
            **outcome.terms,
            "loss": sum(outcome.terms.values()),
            "learning_rate": outcome.learning_rate,
            "step_seconds": outcome.seconds,
            "seconds": self._seconds(),
        }
        if evaluated:
            if error is not None:
                values["error"] = error
            for method in self.objective.methods:
                health = method.health(outcome.z_labeled, outcome.labels, outcome.z_unlabeled)  # type: ignore[operator]
                if health is not None:
                    values |= {f"health/{name}": v for name, v in health._asdict().items()}
                    for warning in health.warnings():
                        kind = " ".join(warning.split()[:4])  # before its numbers
                        if kind not in self.warned:
                            self.report.warn(f"Step {outcome.done}: {warning}")
                        self.warned.add(kind)
        self.metrics.add({"step": outcome.done, **values})
        if self.events is not None:
            self.events.log_metrics(values, outcome.done)

    def _result(self, error: float | None) -> dict[str, Any]:
        config = self.config
        return {
            "error": error,
            "measured_on": "nothing" if self.measured is None else self.measured.what,
            "samples": 0 if self.measured is None else len(self.measured.y),
            "data": self.data.name,
            "data_verified": self.data.verified,
            "labels": len(self.split.labeled),
            "method": config.method,
            "seed": config.seed,
            "recipe": config.to_json()["recipe"],
            "alone": self.recipe.alone,  # as it was: the recipe's, or 0
            "normalization": config.normalization,
            "precision": config.precision,
            "seconds": round(self._seconds(), 1),
            "restarts": self.restarts,
            "environment": environment(self.fabric.device),
        }


def load_data(
    config: Config,
    report: Reporter,
    fingerprint: str | None = None,
    moved_to: Path | None = None,
) -> Dataset:
    """The data of a configuration.

    Args:
        config: that names them.
        report: told of what takes long.
        fingerprint: that they must have, if the run has begun.
        moved_to: where they are now: the folder of published data, or the user's own data.

    Raises:
        ValueError: if they cannot be had, or have changed.
    """
    if moved_to is not None and config.data in CATALOG:
        config = replace(config, data_dir=str(moved_to))
    elif moved_to is not None:
        config = replace(config, data=str(moved_to))
    elif config.data not in CATALOG and not Path(config.data).exists():
        raise ValueError(f"{config.data} is not there: if it has moved, add --data-dir NEW_PLACE")
    data = load(
        config.data,
        None if config.data_dir is None else Path(config.data_dir),
        verify=config.verify,
        image_size=config.image_size,
        target=config.target,
        skip_bad=config.skip_bad,
        report=report,
    )
    if fingerprint is not None and data.fingerprint != fingerprint:
        raise ValueError(
            f"{config.data} has changed since the run began: its SHA-256 is "
            f"{data.fingerprint[:12]}…, expected {fingerprint[:12]}…"
        )
    return data


def split_data(config: Config, data: Dataset) -> Split:
    """Who is labeled, unlabeled and held out in a run."""
    return make_split(data.train_y, config.num_labels, config.held_out or 0, config.seed)


def _part_to_hold_out(data: Dataset) -> int:
    """A fifth of the known labels, but for the last of each class; none if there is a test set."""
    known = data.train_y[data.train_y >= 0]
    if len(data.test_y):
        return 0
    return min(-(-len(known) // 5), len(known) - len(np.unique(known)))
