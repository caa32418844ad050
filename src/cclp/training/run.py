"""A run and its directory: begin, resume, and everything that is written along the way.

==================== ================================================================
``config.json``      what was asked for, the labeled set, the data, the environment
``metrics.jsonl``    one line every ten steps and at evaluations
``checkpoint/``      the last two
``embedding/``       ``STEP.npz``: at most 1,000 fixed training points, at evaluations
``result.json``      at the end
``tensorboard/``     event files, if asked for
==================== ================================================================
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from cclp.data.batches import Batches
from cclp.data.catalog import Dataset, load
from cclp.data.normalize import fit_normalizer
from cclp.data.splits import make_split
from cclp.files import write_bytes, write_json
from cclp.methods import make_methods
from cclp.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from cclp.training.config import Config
from cclp.training.directory import Metrics, check_new, create, locked, tensorboard
from cclp.training.evaluation import embedding_file, embedding_points, error_rate, run_net
from cclp.training.loop import Objective, Outcome, make_net, make_optimizer, reseed, train_steps
from cclp.training.machine import (
    differences,
    environment,
    fabric_precision,
    find_device,
    has_bfloat16,
)
from cclp.training.progress import Reporter

LOG_EVERY = 10
SECONDS_BETWEEN_CHECKPOINTS = 300.0


class Stopped(Exception):  # noqa: N818 - not an error
    """The user asked to stop, and the state is saved."""


def train(
    config: Config,
    out: Path,
    report: Reporter | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Train from the beginning into a new directory.

    Args:
        config: what to do.
        out: the run directory; must not exist, or be empty.
        report: what the user sees.
        should_stop: asked after each step; if it says so, the state is saved and the run stops.

    Returns:
        The content of ``result.json``.

    Raises:
        ValueError: for data or settings that cannot be, and for a directory that is not empty.
        FloatingPointError: if the loss or the weights stop being finite.
        Stopped: if ``should_stop`` said so.
    """
    check_new(out)
    device = find_device(config.accelerator)
    config = replace(  # what "auto" stands for is settled now, and stays when resumed elsewhere
        config,
        accelerator=device.type,  # type: ignore[arg-type]
        precision="bf16" if fabric_precision(config.precision, device) == "bf16-mixed" else "32",
    )
    report = report or Reporter()
    if config.precision == "bf16" and not has_bfloat16(device):
        report.say("This machine has no bfloat16 of its own: expect --precision 32 to be faster.")
    data = _load(config)
    run = Run(out, config, data, report)
    create(
        out,
        {
            "config": config.to_json(),
            "data": {"fingerprint": data.fingerprint, "verified": data.verified},
            "labeled": "all" if config.labels is None else run.split.labeled.tolist(),
            "environment": environment(device),
        },
    )
    with locked(out):
        return run.go(should_stop)


def resume(
    out: Path,
    report: Reporter | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    data_dir: Path | None = None,
) -> dict[str, Any]:
    """Go on with a run from its last checkpoint, bit for bit; a finished run is left as it is.

    Args, Returns, Raises: as :func:`train`; ValueError if ``out`` is not a run directory or is in
    use, or if the data are not those it began with. ``data_dir`` is where they are now, if they
    have moved.
    """
    report = report or Reporter()
    about = _read(out, "config.json")
    try:
        config = Config.from_json(about["config"])
        labeled, fingerprint = about["labeled"], str(about["data"]["fingerprint"])
        changed = differences(about["environment"], environment(find_device(config.accelerator)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{out / 'config.json'} cannot be used: {error!r}") from None
    if (out / "result.json").exists():
        result = _read(out, "result.json")
        if "error" not in result:
            raise ValueError(f"{out / 'result.json'} is damaged: remove it to finish the run again")
        report.say(f"{out} is finished: nothing to resume.")
        return result
    data = _load(config if data_dir is None else replace(config, data_dir=str(data_dir)))
    if data.fingerprint != fingerprint:
        raise ValueError(
            f"{config.data} has changed since {out} began: its SHA-256 is "
            f"{data.fingerprint[:12]}…, expected {fingerprint[:12]}…"
        )
    if changed:
        report.say(f"Resuming, but not bit for bit: {', '.join(changed)}.")
    with locked(out):
        checkpoint = load_checkpoint(out / "checkpoint", report.say)
        run = Run(out, config, data, report, checkpoint)
        if labeled != "all" and run.split.labeled.tolist() != labeled:
            raise ValueError(
                f"{out}: the labeled set recorded in config.json cannot be drawn again by this "
                f"version of numpy ({np.__version__})"
            )
        return run.go(should_stop)


class Run:
    """One training with its files: ``go`` continues from whatever is in the directory."""

    def __init__(
        self,
        out: Path,
        config: Config,
        data: Dataset,
        report: Reporter,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.out, self.config, self.data, self.report = out, config, data, report
        self.split = make_split(data.train_y, config.labels, config.held_out, config.seed)
        self.done = 0 if checkpoint is None else checkpoint.step
        recipe = config.recipe
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("training in several processes is not there yet: leave out torchrun")
        if self.done > recipe.steps:
            raise ValueError(f"{out} has done {self.done} steps, more than steps={recipe.steps}")
        device = find_device(config.accelerator)
        self.fabric = Fabric(
            accelerator=config.accelerator,
            devices=1,
            precision=fabric_precision(config.precision, device),
            loggers=[tensorboard(out, self.done)] if config.tensorboard else [],
        )
        torch.backends.cudnn.deterministic = True  # or resuming would not be bit for bit
        reseed(config.seed, step=-1, rank=0)
        settings = {
            "cclp": {
                "weight": recipe.weight,
                "steps": recipe.chain_steps,
                "similarity": recipe.similarity,
                "bandwidth": recipe.bandwidth,
            }
        }
        self.objective = Objective(
            fit_normalizer(config.normalization, data.train_x[self.split.unlabeled]),
            make_net(recipe, data),
            make_methods(config.method, data.num_classes, settings),
        )
        self.optimizer = make_optimizer(self.objective, recipe)
        self.module, self.stepper = self.fabric.setup(self.objective, self.optimizer)
        self.batches = Batches(
            self.split.labeled,
            data.train_y[self.split.labeled],
            self.split.unlabeled if self.objective.uses_unlabeled else self.split.unlabeled[:0],
            per_class=recipe.per_class,
            unlabeled_batch=recipe.unlabeled_batch,
            labeled_batch=config.labeled_batch,
            seed=config.seed,
            world_size=self.fabric.world_size,
        )
        self.metrics = Metrics(out / "metrics.jsonl")
        self.begun = self.saved_at = time.monotonic()
        self.seconds_before = 0.0
        self.restarts = 0
        self.saved = self.done
        self.warned: set[str] = set()
        if checkpoint is not None:
            try:
                self._restore(checkpoint)
            except (RuntimeError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{out}: checkpoint {checkpoint.step} does not fit this network: {error}"
                ) from None

    def go(self, should_stop: Callable[[], bool]) -> dict[str, Any]:
        """Train to the end, writing along the way."""
        config, recipe = self.config, self.config.recipe
        self.metrics.forget_after(self.done)
        title = f"{config.method} on {config.data}, seed {config.seed}"
        self.report.begin(title, self.done, recipe.steps)
        error = None
        try:
            for outcome in train_steps(
                self.fabric,
                self.module,
                self.stepper,
                self.batches,
                self.data.train_x,
                self.data.train_y,
                recipe,
                config.seed,
                first=self.done,
            ):
                done = self.done = outcome.done
                self.report.step(done, outcome.terms, outcome.seconds)
                last = done == recipe.steps
                evaluated = last or done % config.evaluation_interval == 0
                if evaluated:
                    error = self._evaluate(done)
                if evaluated or done % LOG_EVERY == 0:
                    self._log(outcome, error if evaluated else None)
                stop = should_stop() and not last
                if last or stop or self._checkpoint_is_due(done):
                    self.save(done)
                if stop:
                    raise Stopped(f"Stopped at step {done} of {recipe.steps}, saved.")
        except FloatingPointError as problem:
            good = f"step {self.saved} is kept" if self.saved else "there is none yet"
            raise FloatingPointError(f"{problem}; last good checkpoint: {good}") from None
        finally:
            for logger in self.fabric.loggers:
                logger.finalize("")
        if error is None:  # killed after the last step, before its result was written
            error = self._evaluate(recipe.steps)
        result = self._result(error)
        write_json(self.out / "result.json", result)
        return result

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Put a checkpoint into net and optimizer."""
        self.seconds_before = checkpoint.info["seconds"]
        self.restarts = checkpoint.info["restarts"] + 1
        self.objective.load_state_dict(_part(checkpoint.tensors, "objective."))
        for name, parameter in self.objective.named_parameters():
            self.optimizer.state[parameter] = {
                key: (
                    torch.empty_like(parameter).copy_(value)  # in the weight's memory format
                    if value.shape == parameter.shape
                    else value
                )
                for key, value in _part(checkpoint.tensors, f"adam.{name}.").items()
            }

    def save(self, done: int) -> None:
        """Write a checkpoint: all that the steps to come depend on."""
        tensors = {f"objective.{n}": t for n, t in self.objective.state_dict().items()}
        for name, parameter in self.objective.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"adam.{name}.{key}"] = value
        info = {"seconds": self._seconds(), "restarts": self.restarts}
        self.metrics.sync()
        save_checkpoint(self.out / "checkpoint", Checkpoint(done, tensors, info))
        self.saved, self.saved_at = done, time.monotonic()

    def _checkpoint_is_due(self, done: int) -> bool:
        late = time.monotonic() - self.saved_at >= SECONDS_BETWEEN_CHECKPOINTS
        return late or done % self.config.checkpoint_every == 0

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.begun

    def _evaluate(self, done: int) -> float:
        """Error on the test set, or on what is held out; embeddings of fixed training points."""
        data, hidden = self.data, self.split.held_out
        x, y = (
            (data.train_x[hidden], data.train_y[hidden])
            if len(hidden)
            else (data.test_x, data.test_y)
        )
        error = error_rate(run_net(self.fabric, self.objective, x).logits, y)
        self.report.error(done, error)
        self._embed(done)
        return error

    def _embed(self, done: int) -> None:
        points = embedding_points(self.split, self.config.seed)
        outputs = run_net(self.fabric, self.objective, self.data.train_x[points])
        folder = self.out / "embedding"
        folder.mkdir(exist_ok=True)
        content = embedding_file(
            outputs, points, self.data.train_y[points], np.isin(points, self.split.labeled)
        )
        write_bytes(folder / f"{done:08d}.npz", content)

    def _log(self, outcome: Outcome, error: float | None) -> None:
        values: dict[str, float] = {
            **outcome.terms,
            "loss": sum(outcome.terms.values()),
            "learning_rate": outcome.learning_rate,
            "step_seconds": outcome.seconds,
        }
        if error is not None:
            values["error"] = error
            for method in self.objective.methods:
                health = method.health(outcome.z_labeled, outcome.labels, outcome.z_unlabeled)  # type: ignore[operator]
                if health is not None:
                    values |= {f"health/{name}": v for name, v in health._asdict().items()}
                    for warning in health.warnings():
                        kind = " ".join(warning.split()[:4])  # before its numbers
                        if kind not in self.warned:
                            self.report.say(f"Step {outcome.done}: {warning}")
                        self.warned.add(kind)
        self.metrics.add({"step": outcome.done, **values})
        self.fabric.log_dict(values, outcome.done)

    def _result(self, error: float) -> dict[str, Any]:
        config = self.config
        return {
            "error": error,
            "measured_on": "held-out training images" if config.held_out else "test set",
            "images": config.held_out or len(self.data.test_y),
            "data": config.data,
            "data_verified": self.data.verified,
            "labels": len(self.split.labeled),
            "method": config.method,
            "seed": config.seed,
            "recipe": config.to_json()["recipe"],
            "normalization": config.normalization,
            "precision": config.precision,
            "seconds": round(self._seconds(), 1),
            "restarts": self.restarts,
            "environment": environment(self.fabric.device),
        }


def _load(config: Config) -> Dataset:
    return load(config.data, None if config.data_dir is None else Path(config.data_dir))


def _read(out: Path, name: str) -> dict[str, Any]:
    """A JSON file of a run directory."""
    try:
        content = json.loads((out / name).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{out} is not a run directory: it has no {name}") from None
    except ValueError as error:
        raise ValueError(f"{out / name} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{out / name} is damaged: expected an object of JSON")
    return content


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin with ``prefix``, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
