"""The only reader of a run directory: typed values, checked while they are read.

Records of version 0.1 are read under today's names. Every error names its file.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.checks import check_choice, check_integer, check_number
from cclp.data.splits import Source
from cclp.files import DAMAGE, Directory, parse_json
from cclp.runs.arrays import (
    Embedding,
    Ints,
    Predictions,
    Unlabeled,
    read_embedding,
    read_generated,
    read_predictions,
    read_unlabeled,
)
from cclp.runs.directory import read_json_file
from cclp.runs.trust import check_newest_config
from cclp.runs.upgrade import upgrade_config, upgrade_result
from cclp.runs.verdict import checked_verdict
from cclp.selection.verdict import Verdict
from cclp.training.config import Config
from cclp.training.recipe import Recipe, Settings, checked_settings

Environment = dict[str, dict[str, Any]]
EVALUATED_ON = (
    "test",
    "held_out",
    "cross_validated",
)  # "labeled" is what cclp evaluate may measure
MOST_UNNAMED = 10_000  # classes of a run that has no names for them
_AT_LEAST_0 = ("step", "error", "seconds", "step_seconds")  # of the metrics


@dataclass(frozen=True)
class Result:
    """What a finished run has come to: ``result.json``.

    Attributes:
        error: share of wrong predictions; None if there was nothing to measure it on.
        evaluated_on: the test set, samples held out of the training set, or the labels, each
            predicted by a model that had not seen it; None: nothing.
        num_samples: on which the error was measured.
        num_labels: labeled samples in training.
        data: their name.
        data_verified: whether they are the published files; None for a user's own.
        method, seed, recipe, precision: as in :class:`cclp.training.config.Config`.
        seconds: of training, over all restarts.
        restarts: how often the run was resumed.
        environment: versions and machine, by part and name.
        settings: of the methods, by method and name.
        decisions: what the run decided while it ran, by name; see
            :class:`cclp.pseudo_labels.schedule.Decision`.
    """

    error: float | None
    evaluated_on: Source | None
    num_samples: int
    num_labels: int
    data: str
    data_verified: bool | None
    method: str
    seed: int
    recipe: Recipe
    precision: str
    seconds: float
    restarts: int
    environment: Environment
    settings: Settings = field(default_factory=dict)
    decisions: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.error is not None:
            check_number("error", self.error, least=0, most=1)
        if self.evaluated_on is not None:
            check_choice("evaluated_on", self.evaluated_on, EVALUATED_ON)
        for name in ("num_samples", "num_labels", "seed", "restarts"):
            check_integer(name, getattr(self, name), least=0)
        check_number("seconds", self.seconds, least=0)
        for name, kind in (("data", str), ("method", str), ("precision", str), ("decisions", dict)):
            _check_type(name, getattr(self, name), kind)
        _check_type("data_verified", self.data_verified, bool | None)
        _check_environment(self.environment)
        checked_settings(self.settings)
        check_number(
            "supervised_warmup", self.decisions.get("supervised_warmup", 0), least=0, most=1
        )
        for name in ("correct", "tested"):
            check_integer(name, self.decisions.get(name) or 0, least=0)

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which :meth:`from_json` makes an equal Result."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Result":
        known = {"settings": {}, "decisions": {}, **upgrade_result(content)}
        values = {f.name: known[f.name] for f in fields(cls)}
        return cls(**{**values, "recipe": Recipe.from_json(known["recipe"])})


@dataclass(frozen=True)
class RunRecord:
    """All that a run directory holds; what is not there (yet) is None or empty.

    Attributes:
        path: of the directory.
        config: what the run is made of.
        command: that started it.
        data: name of the data.
        verified: whether they are the published files; None for a user's own.
        fingerprint: SHA-256 of the data.
        classes: their names.
        white: value of a white pixel.
        environment: versions and machine, by part and name.
        metrics: a line for each logged step; a value that was not finite is NaN.
        result: once the run is finished.
        embedding: of some training samples, over time.
        predictions: of the last evaluation, or of the labels if it was by cross-validation.
        unlabeled: predictions of unlabeled training samples, at the end.
        generated: images by a method's generative model, (N, 1 or 3, H, W).
        verdict: what cross-validation over the labels has found.
    """

    path: Path
    config: Config
    command: str | None
    data: str
    verified: bool | None
    fingerprint: str | None
    classes: list[str]
    white: float
    environment: Environment
    metrics: list[dict[str, float]]
    result: Result | None
    embedding: Embedding | None
    predictions: Predictions | None
    unlabeled: Unlabeled | None
    generated: NDArray[np.uint8] | None
    verdict: Verdict | None

    @property
    def step(self) -> int:
        """How far training has come, by what is logged."""
        if self.result is not None:
            return self.config.recipe.max_steps
        return int(self.metrics[-1]["step"]) if self.metrics else 0

    @property
    def error(self) -> float | None:
        """Of the result, else the last one measured; None if there is none that is finite."""
        if self.result is not None:
            return self.result.error
        errors = [line["error"] for line in self.metrics if "error" in line]
        return errors[-1] if errors and math.isfinite(errors[-1]) else None

    @property
    def evaluated_on(self) -> Source | None:
        """What the error is measured on."""
        if self.result is not None:
            return self.result.evaluated_on
        if self.verdict is not None and not any("error" in line for line in self.metrics):
            return "cross_validated"
        return "held_out" if self.config.held_out else "test"


def read_record(path: Path) -> RunRecord:
    """Read a run directory, finished or not.

    Raises:
        ValueError: if it is none, or if a file of it is damaged. The file is named.
    """
    file = path / "config.json"
    content, config = read_config(path)
    check_newest_config(path)
    with damage_named(file):
        data, environment = _part(content, "data"), content.get("environment", {})
        command, verified = content.get("command"), data.get("verified")
        fingerprint = data.get("fingerprint")
        _check_environment(environment)
        for name, value in (("command", command), ("fingerprint", fingerprint)):
            _check_type(name, value, str | None)
        _check_type("verified", verified, bool | None)
        white = check_number("white", data.get("white") or 255, above=0)
    embedding = read_embedding(path / "embedding")
    predictions = read_predictions(path / "predictions.npz")
    unlabeled = read_unlabeled(path / "unlabeled.npz")
    seen: list[tuple[Path, Ints, Ints]] = []
    if embedding:
        seen.append((path / "embedding", embedding.y, embedding.predicted))
    if predictions:
        seen.append((path / "predictions.npz", predictions.y, predictions.predicted))
    if unlabeled:
        named = np.concatenate([unlabeled.predicted, unlabeled.second])
        seen.append((path / "unlabeled.npz", named, named))
    return RunRecord(
        path=path,
        config=config,
        command=command,
        data=str(data.get("name", config.data)),
        verified=verified,
        fingerprint=fingerprint,
        classes=_class_names(file, data.get("classes"), seen),
        white=white,
        environment=environment,
        metrics=read_metrics(path),
        result=read_result(path),
        embedding=embedding,
        predictions=predictions,
        unlabeled=unlabeled,
        generated=read_generated(path / "generated.npz"),
        verdict=read_verdict(path),
    )


def read_config(path: Path) -> tuple[dict[str, Any], Config]:
    """The content of ``config.json`` under today's names, and the configuration in it.

    Raises:
        ValueError: if ``path`` is not a run directory, or the file is damaged.
    """
    content = read_json(path, "config.json")
    if "config" not in content and "configuration" in content:
        raise ValueError(f"{path} is not a run directory: it was made by cclp export")
    with damage_named(path / "config.json"):
        content["config"] = upgrade_config(_part(content, "config"))
        if "prior_features" in content:
            content["pseudo_label_features"] = content.pop("prior_features")
        return content, Config.from_json(content["config"])


def read_result(path: Path) -> Result | None:
    """The result of a run; None as long as it is not finished.

    Raises:
        ValueError: if ``result.json`` is damaged.
    """
    file = path / "result.json"
    if not Directory(path).has(file.name):
        return None
    content = read_json(path, file.name)
    with damage_named(file):
        return Result.from_json(content)


def read_verdict(path: Path) -> Verdict | None:
    """What cross-validation over the labels of a run has found; None if there was none.

    Raises:
        ValueError: if ``verdict.json`` is damaged.
    """
    file = path / "verdict.json"
    if not Directory(path).has(file.name):
        return None
    content = read_json(path, file.name)
    with damage_named(file):
        return checked_verdict(content)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The lines of ``metrics.jsonl``; what was not finite is NaN. The last may be incomplete.

    Raises:
        ValueError: if another line is damaged. It is named.
    """
    file = path / "metrics.jsonl"
    try:
        lines = Directory(path).read_bytes(file.name).splitlines()
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        try:
            values = parse_json(line)
        except ValueError as error:
            if number == len(lines):  # being written
                break
            raise ValueError(f"{file} is damaged in line {number}: {error}") from None
        with damage_named(file, f" in line {number}"):
            _check_type("line", values, dict)
            check_integer("step", values["step"], least=0)
            found.append({name: _metric(name, value) for name, value in values.items()})
    return found


def read_json(path: Path, name: str) -> dict[str, Any]:
    """The object in a JSON file of a directory.

    Raises:
        ValueError: if the file is not there, or holds anything else.
    """
    try:
        content = read_json_file(Directory(path), name)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path} is not a run directory: it has no {name}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path / name} is damaged: expected an object of JSON")
    return content


@contextmanager
def damage_named(file: Path, where: str = "") -> Iterator[None]:
    """Turn whatever is raised within for a wrong record into one line that names its file."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"{file} is damaged{where}: expected {error}") from None
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{file} is damaged{where}: {reason}") from None


def _part(content: dict[str, Any], name: str) -> dict[str, Any]:
    _check_type(name, content[name], dict)
    part: dict[str, Any] = content[name]
    return part


def _check_type(name: str, value: object, kind: Any) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must not be {value!r:.40}")


def _check_environment(environment: object) -> None:
    if not isinstance(environment, dict) or not all(
        isinstance(part, dict) for part in environment.values()
    ):
        raise TypeError(f"environment must hold objects, got {environment!r:.40}")


def _metric(name: str, value: object) -> float:
    least = 0 if name in _AT_LEAST_0 else None
    return math.nan if value is None else check_number(name, value, least=least)


def _class_names(file: Path, names: object, seen: Sequence[tuple[Path, Ints, Ints]]) -> list[str]:
    """The recorded names; of an old run, which has none, the numbers that occur."""
    largest = -1
    for source, y, predicted in seen:
        if y.min(initial=0) < -1 or predicted.min(initial=0) < 0:
            raise ValueError(f"{source} is damaged: it holds a class below 0")
        largest = max(largest, int(y.max(initial=-1)), int(predicted.max(initial=-1)))
    if names is None and largest >= MOST_UNNAMED:
        where = " or ".join(str(source) for source, _, _ in seen)
        raise ValueError(
            f"{where} is damaged: it holds class {largest}, expected one below {MOST_UNNAMED:,}"
        )
    if names is None:
        return [str(c) for c in range(largest + 1)]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{file} is damaged: expected a list of names under 'classes'")
    if largest >= len(names):
        where = " or ".join(str(source) for source, _, _ in seen)
        raise ValueError(
            f"{where} is damaged: it holds class {largest}, but {file.name} names {len(names)} "
            "classes"
        )
    return names
