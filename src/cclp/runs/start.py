"""Start a run or resume it. A run directory is all that a run leaves:

==================== ================================================================
``config.json``      what was asked for, the labeled set, the data, the environment
``metrics.jsonl``    one line every ten steps and at evaluations
``checkpoint/``      the last two
``embedding/``       ``STEP.npz``: at most 1,000 fixed training points, at evaluations
``predictions.npz``  of the last evaluation
``result.json``      at the end
``verdict.json``     how models compare, if one was chosen by cross-validation
``unlabeled.npz``    predictions for a user's own unlabeled samples, at the end
``generated.npz``    images by a method's generative model, at the end
``tensorboard/``     event files, if asked for
``profile/``         where the time went, if asked for; with the name of the machine
==================== ================================================================
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cclp.data.dataset import Dataset, InputSpec
from cclp.files import DAMAGE
from cclp.methods import GENERATIVE, check_settings, method_parts
from cclp.phases import whole
from cclp.progress import Reporter
from cclp.runs.checkpoint import Checkpoint, load_checkpoint
from cclp.runs.data import load_data, with_held_out
from cclp.runs.directory import Metrics, check_new, create, locked
from cclp.runs.record import read_config, read_json, read_result, read_verdict
from cclp.runs.run import Run
from cclp.runs.trust import (
    check_config,
    check_newest_config,
    confirm_features,
    confirm_training,
    is_own,
    signed,
)
from cclp.runs.upgrade import is_old
from cclp.training.callbacks import Callback
from cclp.training.config import Config
from cclp.training.machine import (
    differences,
    environment,
    fabric_precision,
    find_device,
    has_bfloat16,
    make_fabric,
)
from cclp.training.processes import (
    check_launched,
    launched,
    local_rank_zero_first,
    may_be_restarted,
    shares_its_store,
)
from cclp.training.recipe import sized
from cclp.training.seeding import own_randomness
from cclp.training.trainer import Stopped
from cclp.user_code import confirm_named, is_user_code

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Stopped", "resume", "train"]

TRAINING_SHARE = 0.6  # of a time limit; the rest is for the comparison of models
SAFE_SHARE = 0.85  # of the time that is left: steps are timed by a few of them


def train(
    config: Config,
    out: Path,
    report: Reporter | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    command: str | None = None,
    data: Dataset | None = None,
    *,
    auto: bool = False,
    fixed_steps: bool = True,
    time_limit: float | None = None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Train from the beginning into a new directory.

    Under torchrun with restarts, a directory with the same run is resumed.

    Args:
        config: what to do.
        out: the run directory; must not exist, or be empty.
        report: what the user sees.
        should_stop: asked after each step; if it says so, the state is saved and the run stops.
        command: that made the run, to be recorded.
        data: of the configuration, if they are read already.
        fixed_steps: whether the recipe's number of steps is meant; or as many, on vectors, as their
            number asks for.
        time_limit: in seconds: fewer steps are done if need be.
        auto: whether to compare models by cross-validation first, and train the best one.
        callbacks: called after the run's own.

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
        report.warn(
            "This machine has no bfloat16 of its own: --precision 32 is likely to be faster."
        )
    if may_be_restarted() and shares_its_store():
        report.warn(
            "Restarts by torchrun are likely to fail: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1."
        )
    asked = config.to_json()  # before data decide about steps, method and labels held out
    check_settings(config.method, config.method_settings)  # before data are fetched
    fabric = _fabric(config)
    begun = _begun_before(out, config) if fabric.is_global_zero else None
    with launched(fabric, report.warn):
        begun = fabric.broadcast(begun)
        if begun is not None:
            return _resume(
                fabric, out, begun, config, report, should_stop, features=config.features
            )
        if data is None:
            data = local_rank_zero_first(
                fabric, lambda: load_data(config, report, features=config.features)
            )
        if not fixed_steps and len(data.spec.shape) == 1 and config.recipe.name == "fast":
            config = replace(config, recipe=sized(config.recipe, len(data.train_y)))
        auto = auto and fabric.world_size == 1
        config = with_held_out(config, data, auto)
        selection = None
        clock, training = time.monotonic(), 0.0
        if auto or time_limit is not None:
            from cclp.runs.auto import plan_steps, select_model, write_selection  # scikit-learn
        with own_randomness():
            if time_limit is not None:
                share = TRAINING_SHARE if auto else SAFE_SHARE
                config, training = plan_steps(config, data, report, time_limit, share)
            if auto:
                limit = None if time_limit is None else (1 - TRAINING_SHARE) * time_limit
                with whole("comparison of models"):
                    config, selection = select_model(config, data, report, limit, training)
            if time_limit is not None and auto:
                left = time_limit - (time.monotonic() - clock)
                config, _ = plan_steps(config, data, report, left, SAFE_SHARE)
        verdict = None if selection is None else selection.verdict
        with own_randomness():
            run = Run(fabric, out, config, data, report, verdict=verdict)
        run.check_same_everywhere()
        if fabric.is_global_zero:
            about = {"command": command, "asked": asked, **run.record(environment(device))}
            create(out, signed(about))
            if selection is not None:
                write_selection(out, data, selection)
        with _lock(fabric, out), own_randomness():
            return run.fit(should_stop, callbacks)


def resume(
    out: Path,
    report: Reporter | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    data_dir: Path | None = None,
    net: str | None = None,
    method: str | None = None,
    features: str | None = None,
    devices: int | None = None,
    pseudo_label_features: Path | None = None,
) -> dict[str, Any]:
    """Resume a run from its last checkpoint, bit for bit; a finished run is left as it is.

    Args, Returns, Raises: as :func:`train`; ValueError if ``out`` is not a run directory or is in
    use, or if the data are not those it began with. ``data_dir`` is where they are now, if they
    have moved. ``net``, ``method`` and ``features`` name the user's own code again, if the run
    needs it. Of a run that is not the user's own, ``data_dir``, ``devices`` and
    ``pseudo_label_features`` are named again too: see :mod:`cclp.runs.trust`.
    """
    report = report or Reporter()
    about, config = read_config(out)
    finished = _result_of(out)
    if finished is not None:
        check_newest_config(out)
        report.warn(f"{out} is finished: nothing to resume.")
        return finished
    _check_version(out)
    config = replace(
        config,
        method=confirm_named("method", config.method, method),
        recipe=replace(config.recipe, net=confirm_named("net", config.recipe.net, net)),
    )
    confirm_training(out, config, data_dir, devices, pseudo_label_features)
    if pseudo_label_features is not None:
        config = replace(config, pseudo_label_features=str(pseudo_label_features))
    fabric = _fabric(config)
    with launched(fabric, report.warn):
        return _resume(fabric, out, about, config, report, should_stop, data_dir, features)


def _resume(
    fabric: "Fabric",
    out: Path,
    about: dict[str, Any],
    config: Config,
    report: Reporter,
    should_stop: Callable[[], bool],
    data_dir: Path | None = None,
    features: str | None = None,
) -> dict[str, Any]:
    """From the last checkpoint. Only process 0 looks at the directory."""
    first = fabric.is_global_zero
    finished: dict[str, Any] | None = fabric.broadcast(_result_of(out) if first else None)
    if finished is not None:
        return finished
    try:
        fingerprint, _ = str(about["data"]["fingerprint"]), about["labeled"]
        spec = InputSpec.from_json(about["data"]) if "columns" in about["data"] else None
        changed = differences(about["environment"], environment(find_device(config.accelerator)))
    except DAMAGE as error:
        raise ValueError(f"{out / 'config.json'} cannot be used: {error!r}") from None
    if spec is not None:
        confirm_features(out, spec, features)
    data = local_rank_zero_first(
        fabric, lambda: load_data(config, report, fingerprint, data_dir, spec, features)
    )
    if changed:
        report.warn(
            f"Resuming, but not bit for bit: {', '.join(changed)}. The result may differ a little "
            "from that of a run in one go; nothing to do."
        )
    with _lock(fabric, out), own_randomness():
        checkpoint = fabric.broadcast(_checkpoint_of(out, report) if first else None)
        verdict = read_verdict(out)
        run = Run(fabric, out, with_held_out(config, data), data, report, checkpoint, verdict)
        run.check_recorded(about)
        run.check_same_everywhere()
        return run.fit(should_stop)


def _checkpoint_of(out: Path, report: Reporter) -> Checkpoint | None:
    """The newest, if there is one, and if ``config.json`` and ``metrics.jsonl`` belong to it.

    Before the first, only the user's signature can tell that ``config.json`` was changed. It is
    missing too if another user or another machine has begun the run: that is said, not refused.
    """
    saved = load_checkpoint(out / "checkpoint", report.warn)
    if saved is not None:
        check_config(out, saved.step, saved.info)
        if "metrics" in saved.info:  # not in early versions
            Metrics(out / "metrics.jsonl").check(saved.step, saved.info["metrics"])
    elif not is_own(out):
        report.warn(
            f"{out / 'config.json'} was changed since the run began, or you did not begin it here: "
            "the run starts at step 0 with what it says now."
        )
    return saved


def _fabric(config: Config) -> "Fabric":
    check_launched(config.devices)
    parts = method_parts(config.method)
    warms_up = "graph_pseudo_label" in parts and any(part in GENERATIVE for part in parts)
    return make_fabric(
        config.accelerator,
        config.precision,
        config.devices,
        unused=warms_up or any(map(is_user_code, (config.recipe.net, *parts))),
    )


def _lock(fabric: "Fabric", out: Path) -> AbstractContextManager[None]:
    """The directory, by process 0."""
    return locked(out) if fabric.is_global_zero else nullcontext()


def _begun_before(out: Path, config: Config) -> dict[str, Any] | None:
    """What ``config.json`` says of this run if it has begun and torchrun restarts it; else None.

    Raises:
        ValueError: if the directory holds anything else.
    """
    if not may_be_restarted() or not (out / "config.json").exists():
        check_new(out)
        return None
    about, recorded = read_config(out)
    held_out = recorded.held_out if config.held_out is None else config.held_out
    if about.get("asked") != _as_read(config.to_json()) and recorded != replace(
        config, held_out=held_out
    ):
        check_new(out)  # it is not
    _check_version(out)
    return about


def _as_read(content: Any) -> Any:
    """Plain values as they are once they were written to a JSON file and read."""
    return json.loads(json.dumps(content))


def _check_version(out: Path) -> None:
    """Refuse to resume what version 0.1 has begun: its checkpoints are others.

    Raises:
        ValueError: for such a run.
    """
    if is_old(read_json(out, "config.json")["config"]["recipe"]):
        raise ValueError(f"{out} was begun by version 0.1: resume it with that version")


def _result_of(out: Path) -> dict[str, Any] | None:
    """Of a run, if it is finished."""
    try:
        result = read_result(out)
    except ValueError as error:
        raise ValueError(f"{error}; remove it to finish the run again") from None
    return None if result is None else result.to_json()
