"""A trained network put to use: evaluate it on data, predict the classes of files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cclp.checks import refuse_options
from cclp.data.dataset import Dataset, InputSpec
from cclp.data.load import load
from cclp.data.normalize import ZScore
from cclp.data.splits import Source
from cclp.data.user.load import read_samples
from cclp.nets.registry import make_net
from cclp.nets.sizes import compare_sizes
from cclp.progress import Reporter
from cclp.runs.checkpoint import does_not_fit, load_checkpoint
from cclp.runs.data import load_data, split_data
from cclp.runs.record import damage_named, read_config, read_record, read_verdict
from cclp.runs.trust import check_config, confirm_data, confirm_features
from cclp.training.config import Config
from cclp.training.evaluation import EvaluationSet, error_rate, evaluation_set, run_net
from cclp.training.machine import make_fabric
from cclp.training.objective import Objective
from cclp.training.trainer import tensors_below
from cclp.user_code import confirm_named, is_user_code

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Evaluation(NamedTuple):
    """How a network does on labeled samples.

    Attributes:
        data: name of the data.
        source: which part of them was measured.
        error: share of wrong predictions.
        classes: names.
        confusion: count of each (class, predicted class), (C, C).
        verified: whether the data are the published ones; None for a user's own.
    """

    data: str
    source: Source
    error: float
    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    verified: bool | None


class Prediction(NamedTuple):
    """The class of a file, or of a row of it, and how probable the network finds every class.

    Attributes:
        file: its path.
        row: of the file, counted from 0; None for an image.
        label: name of the most probable class.
        probability: of it.
        probabilities: of all classes, in the order of the run's.
    """

    file: str
    row: int | None
    label: str
    probability: float
    probabilities: tuple[float, ...]

    @property
    def margin(self) -> float:
        """By how much the most probable class is ahead of the next: small where in doubt."""
        second, first = sorted(self.probabilities)[-2:]
        return first - second


class Trained(NamedTuple):
    """A run's network as its last checkpoint has it.

    Attributes:
        config: of the run.
        spec: of its samples.
        fingerprint: of its data.
        fabric: where the network is.
        objective: the network, with what normalises its inputs.
        temperature: by which logits are divided before they become probabilities.
    """

    config: Config
    spec: InputSpec
    fingerprint: str
    fabric: "Fabric"
    objective: Objective
    temperature: float


def open_run(out: Path, net: str | None = None, report: Reporter | None = None) -> Trained:
    """The network of a run, from its last checkpoint.

    Args:
        out: the run directory.
        net: the user's own network named again, if the run needs it.
        report: warns of damaged checkpoints.

    Raises:
        ValueError: if there is none that can be used.
    """
    about, config = read_config(out)
    net = confirm_named("net", config.recipe.net, net)
    if "classes" not in (about.get("data") or {}):
        raise ValueError(
            f"{out} was made by an older version, which did not record its classes: train it again"
        )
    with damage_named(out / "config.json"):
        spec = InputSpec.from_json(about["data"])
        fingerprint = str(about["data"]["fingerprint"])
    checkpoint = load_checkpoint(out / "checkpoint", (report or Reporter()).warn)
    if checkpoint is None:
        raise ValueError(f"{out} has no checkpoint yet: resume it with cclp train --resume")
    check_config(out, checkpoint.step, checkpoint.info)
    fabric = make_fabric("auto", config.precision)  # before the user's own net is tried
    try:
        tensors, network = checkpoint.tensors, checkpoint.info.get("network", "net")
        check_sizes(net, spec, tensors_below(tensors, f"objective.{network}."))
        normalizer = ZScore(**tensors_below(tensors, "objective.normalizer."))
        objective = Objective(normalizer, make_net(net, spec.shape, spec.num_classes), [])
        objective.net.load_state_dict(tensors_below(tensors, f"objective.{network}."))
    except (RuntimeError, TypeError) as error:
        raise does_not_fit(out, checkpoint, error) from None
    objective.to(fabric.device)
    verdict = read_verdict(out)
    temperature = 1.0 if verdict is None else verdict.temperature
    return Trained(config, spec, fingerprint, fabric, objective, temperature)


def check_sizes(net: str, spec: InputSpec, tensors: Mapping[str, Tensor]) -> None:
    """Make sure that a network is as large as its weights are, before its memory is taken.

    Raises:
        RuntimeError: if not.
    """
    if not is_user_code(net):
        compare_sizes(lambda: make_net(net, spec.shape, spec.num_classes), tensors)


def evaluate(
    out: Path,
    data: str | None = None,
    *,
    data_dir: Path | None = None,
    verify: bool = True,
    target: str | None = None,
    skip_bad: bool = False,
    features: str | None = None,
    net: str | None = None,
    report: Reporter | None = None,
) -> Evaluation:
    """Measure a run's network.

    Args:
        out: the run directory.
        data: name or path of labeled data: their test set, or all their labels if they have none.
            None: what the run itself was measured on.
        data_dir, verify, target, skip_bad: of the data, see :func:`cclp.data.load.load`.
        features: of the run named again, if they are the user's own or have moved.
        net: the user's own network named again, if the run needs it.
        report: shows progress.

    Raises:
        ValueError: if run or data cannot be used, or do not fit together.
    """
    report = report or Reporter()
    if data is None:
        refuse_options(
            {"target": target, "skip_bad": skip_bad, "no_verify": not verify},
            "has no effect without DATA",
        )
    trained = open_run(out, net, report)
    confirm_features(out, trained.spec, features)
    if data is None:
        recorded = _cross_validated(out)
        if recorded is not None:
            return recorded
        config = trained.config
        confirm_data(out, config, data_dir)
        found = load_data(config, report, trained.fingerprint, data_dir, trained.spec, features)
        measured = evaluation_set(found, split_data(config, found))
    else:
        found = load(
            data,
            data_dir,
            verify=verify,
            target=target,
            skip_bad=skip_bad,
            features=features,
            spec=trained.spec,
            fetch=False,
            report=report,
        )
        measured = evaluation_set(found, None) or _all_labels(found)
    if measured is None:
        raise ValueError(f"{data or out} has no labels to measure the error on: name labeled data")
    count = len(measured.index)
    with report.work(f"evaluating {count} samples", count) as advance:
        logits = run_net(
            trained.fabric, trained.objective, measured.x, measured.index, advance
        ).logits
    classes = trained.spec.classes
    return Evaluation(
        found.name,
        measured.source,
        error_rate(logits, measured.y),
        classes,
        _confusion(measured.y, logits.argmax(1).numpy(), len(classes)),
        found.verified,
    )


def _confusion(
    y: NDArray[np.int64], predicted: NDArray[np.int64], num_classes: int
) -> NDArray[np.int64]:
    pairs = y * num_classes + predicted
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, -1)


def _cross_validated(out: Path) -> Evaluation | None:
    """What cross-validation has found, if that is how a run was measured."""
    run = read_record(out)
    if run.evaluated_on != "cross_validated" or run.predictions is None:
        return None
    y, predicted = run.predictions.y, run.predictions.predicted
    confusion = _confusion(y, predicted, len(run.classes))
    error = float((y != predicted).mean())
    return Evaluation(
        run.data, "cross_validated", error, tuple(run.classes), confusion, run.verified
    )


def _all_labels(data: Dataset) -> EvaluationSet | None:
    known = np.flatnonzero(data.train_y >= 0)
    if not len(known):
        return None
    return EvaluationSet("labeled", data.train_x, known, data.train_y[known], [])


def predict(
    out: Path,
    paths: Sequence[Path],
    *,
    skip_bad: bool = False,
    features: str | None = None,
    net: str | None = None,
    report: Reporter | None = None,
) -> Iterator[Prediction]:
    """Classes of files, in their order.

    Args:
        out: the run directory.
        paths: images, folders of images, ``.npz`` and ``.npy`` with X, tables with the columns of
            the run's.
        skip_bad: whether to leave out images that cannot be read.
        features: of the run named again, if they are the user's own or have moved.
        net: the user's own network named again, if the run needs it.
        report: warns of what is left out.

    Raises:
        ValueError: if run or files cannot be used.
    """
    report = report or Reporter()
    trained = open_run(out, net, report)
    confirm_features(out, trained.spec, features)
    for places, x in read_samples(
        paths, trained.spec, skip_bad=skip_bad, report=report, features=features
    ):
        if not len(x):
            continue
        logits = run_net(trained.fabric, trained.objective, x).logits / trained.temperature
        for (file, row), each in zip(places, logits.softmax(1).tolist(), strict=True):
            k = max(range(len(each)), key=each.__getitem__)
            yield Prediction(file, row, trained.spec.classes[k], each[k], tuple(each))
