"""A run directory as plain values, checked while it is read."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.data.published.formats import read_npz
from cclp.files import parse_json
from cclp.runs.directory import read_json

_AT_LEAST_0 = ("error", "seconds", "samples", "images", "restarts", "steps")
FRAMES = 40  # of an embedding at most: more make the page heavy and show no more

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Embedding:
    """The same P points at T steps.

    Attributes:
        steps: T of them, ascending.
        z: (T, P, F), finite.
        predicted: class indices, (T, P).
        y: class indices, (P,); −1 if unknown.
        labeled: whether training saw the class, (P,).
        index: of the points in the training set, (P,).
        recorded: how many steps the directory holds; T of them were read.
    """

    steps: list[int]
    z: Floats
    predicted: Ints
    y: Ints
    labeled: NDArray[np.bool_]
    index: Ints
    recorded: int


@dataclass(frozen=True)
class Predictions:
    """What the trained net says of N samples.

    Attributes:
        y, predicted: class indices, (N,).
        probability: of the predicted class, (N,).
        mistakes: indices of the most confident ones, (K,).
        names: of those, K of them.
        images: of those, (K, 1 or 3, H, W); None if they are no images.
    """

    y: Ints
    predicted: Ints
    probability: Floats
    mistakes: Ints
    names: list[str]
    images: NDArray[np.uint8] | None


@dataclass(frozen=True)
class RunRecord:
    """All that a run directory says. What it does not hold (yet) is None or empty."""

    path: Path
    config: dict[str, Any]
    command: str | None
    name: str  # of the data
    verified: bool | None  # None: a user's own data, for which nothing is published
    classes: list[str]
    white: float
    environment: dict[str, Any]
    metrics: list[dict[str, float]]  # by step; a value that was not finite is NaN
    result: dict[str, Any] | None
    embedding: Embedding | None
    predictions: Predictions | None


def read_run(path: Path) -> RunRecord:
    """Read a run directory, finished or not.

    Raises:
        ValueError: if it is none, or if a file of it is not what it should be. The file is named.
    """
    file = path / "config.json"
    about = read_json(path, "config.json")
    config, data = _part(file, about, "config"), _part(file, about, "data")
    _number(file, "steps", _part(file, config, "recipe").get("steps"))
    environment = _part(file, {"environment": {}, **about}, "environment")
    command = about.get("command")
    if not isinstance(command, str | None):
        raise ValueError(f"{file} is damaged: expected text for 'command', got {command!r:.40}")
    for name, kind in (("data", str), ("method", str), ("seed", int), ("labels", int | None)):
        if name not in config or not isinstance(config[name], kind):
            raise ValueError(f"{file} is damaged: expected {name!r} in 'config'")
    white = _number(file, "white", data.get("white") or 255)
    if white <= 0:
        raise ValueError(f"{file} is damaged: expected 'white' above 0, got {white:g}")
    embedding = _read_embedding(path / "embedding")
    predictions = _read_predictions(path / "predictions.npz")
    seen: list[tuple[Path, Ints, Ints]] = []
    if embedding:
        seen.append((path / "embedding", embedding.y, embedding.predicted))
    if predictions:
        seen.append((path / "predictions.npz", predictions.y, predictions.predicted))
    return RunRecord(
        path=path,
        config=config,
        command=command,
        name=str(data.get("name", config["data"])),
        verified=data.get("verified"),
        classes=_class_names(file, data.get("classes"), seen),
        white=white,
        environment={part: _part(file, environment, part) for part in environment},
        metrics=_read_metrics(path / "metrics.jsonl"),
        result=_read_result(path),
        embedding=embedding,
        predictions=predictions,
    )


def _part(file: Path, content: dict[str, Any], name: str) -> dict[str, Any]:
    part = content.get(name)
    if not isinstance(part, dict):
        raise ValueError(f"{file} is damaged: expected an object under {name!r}, got {part!r:.40}")
    return part


def _number(file: Path, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{file} is damaged: expected a number for {name!r}, got {value!r:.40}")
    if not math.isfinite(value) or (value < 0 and name in _AT_LEAST_0):
        raise ValueError(f"{file} is damaged: {name!r} must not be {value}")
    return float(value)


def _read_result(path: Path) -> dict[str, Any] | None:
    file = path / "result.json"
    if not file.exists():
        return None
    result = read_json(path, file.name)
    if result.get("error", 0) is not None and _number(file, "error", result.get("error")) > 1:
        raise ValueError(f"{file} is damaged: expected an error of at most 1")
    for name in ("seconds", "samples" if "samples" in result else "images"):
        _number(file, name, result.get(name))
    _number(file, "restarts", result.get("restarts", 0))
    return result


def _read_metrics(file: Path) -> list[dict[str, float]]:
    try:
        lines = file.read_bytes().splitlines()
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
        if not isinstance(values, dict) or not isinstance(values.get("step"), int):
            raise ValueError(f"{file} is damaged in line {number}: expected an object with a step")
        found.append(
            {
                name: math.nan if value is None else _number(file, name, value)
                for name, value in values.items()
            }
        )
    return found


def _class_names(file: Path, names: object, seen: Sequence[tuple[Path, Ints, Ints]]) -> list[str]:
    """The recorded names; of an old run, which has none, the numbers that occur."""
    largest = -1
    for source, y, predicted in seen:
        if y.min(initial=0) < -1 or predicted.min(initial=0) < 0:
            raise ValueError(f"{source} is damaged: it holds a class below 0")
        largest = max(largest, int(y.max(initial=-1)), int(predicted.max(initial=-1)))
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


def _load(file: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Arrays of an npz file, these among them."""
    arrays = read_npz(file)
    for name in names:
        if name not in arrays:
            raise ValueError(f"{file} is damaged: expected an array {name!r}")
    return arrays


def _check(file: Path, name: str, array: NDArray[Any], kinds: str, *shape: int) -> None:
    """``kinds`` are letters of numpy.dtype.kind; a −1 in the shape fits any length."""
    fits = array.ndim == len(shape) and all(
        n in (-1, m) for n, m in zip(shape, array.shape, strict=True)
    )
    if array.dtype.kind not in kinds or not fits:
        raise ValueError(
            f"{file} is damaged: expected {name!r} of shape {shape}, "
            f"got {array.dtype} of shape {array.shape}"
        )


def _read_embedding(folder: Path) -> Embedding | None:
    files = sorted(
        (file for file in folder.glob("*.npz") if file.stem.isdecimal()), key=lambda f: int(f.stem)
    )
    if not files:
        return None
    chosen = np.unique(np.linspace(0, len(files) - 1, FRAMES).round().astype(int))
    frames: list[dict[str, NDArray[Any]]] = []
    steps = []
    for file in (files[i] for i in chosen):
        arrays = _load(file, ("z", "predicted", "y", "labeled", "index"))
        _check(file, "z", arrays["z"], "f", *(frames[0]["z"].shape if frames else (-1, -1)))
        for name, kinds in (("predicted", "iu"), ("y", "iu"), ("index", "iu"), ("labeled", "b")):
            _check(file, name, arrays[name], kinds, len(arrays["z"]))
        if np.isfinite(arrays["z"]).all() and arrays["z"].size:
            frames.append(arrays)
            steps.append(int(file.stem))
    if not frames:
        return None
    last = frames[-1]
    return Embedding(
        steps=steps,
        z=np.stack([frame["z"] for frame in frames]).astype(np.float64),
        predicted=np.stack([frame["predicted"] for frame in frames]).astype(np.int64),
        y=last["y"].astype(np.int64),
        labeled=last["labeled"],
        index=last["index"].astype(np.int64),
        recorded=len(files),
    )


def _read_predictions(file: Path) -> Predictions | None:
    if not file.exists():
        return None
    arrays = _load(file, ("y", "predicted", "probability", "mistakes", "mistake_names"))
    _check(file, "y", arrays["y"], "iu", -1)
    _check(file, "mistakes", arrays["mistakes"], "iu", -1)
    count, few = len(arrays["y"]), len(arrays["mistakes"])
    _check(file, "predicted", arrays["predicted"], "iu", count)
    _check(file, "probability", arrays["probability"], "f", count)
    _check(file, "mistake_names", arrays["mistake_names"], "U", few)
    if few and not (0 <= arrays["mistakes"].min() and arrays["mistakes"].max() < count):
        raise ValueError(f"{file} is damaged: 'mistakes' must be indices below {count}")
    images = arrays.get("mistake_inputs")
    if images is not None:
        if len(images) != few:
            raise ValueError(f"{file} is damaged: {few} mistakes, but {len(images)} inputs of them")
        if (
            images.dtype != np.uint8
            or images.ndim != 4
            or images.shape[1] not in (1, 3)
            or not images.size
        ):
            images = None
    return Predictions(
        y=arrays["y"].astype(np.int64),
        predicted=arrays["predicted"].astype(np.int64),
        probability=arrays["probability"].astype(np.float64),
        mistakes=arrays["mistakes"].astype(np.int64),
        names=[str(name) for name in arrays["mistake_names"]],
        images=images,
    )
