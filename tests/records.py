"""Run directories written by hand, for tests of what reads them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cclp.runs.outputs import generated_file, unlabeled_file
from cclp.runs.record import Result
from cclp.selection.verdict import ClassRow, Row, Verdict
from cclp.training.config import Config
from cclp.training.recipe import make_recipe

HEALTHY = {
    "self_transition": 0.1,
    "posterior_entropy": 0.2,
    "smallest_class_mass": 0.8,
    "largest_class_mass": 1.25,
    "largest_excess": 0.0,
    "moves_to_label": 12.0,
    "distance_to_ideal": 0.04,
}


def write_run(
    out: Path,
    *,
    classes: list[str] | None = None,
    finished: bool = True,
    metrics: list[dict[str, Any]] | None = None,
    data: dict[str, Any] | None = None,
    result: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    **about: Any,
) -> Path:
    """A run directory by hand: no embedding, no predictions yet."""
    out.mkdir(parents=True)
    recipe = replace(make_recipe("short", "digits"), max_steps=20, learning_rate=0.002)
    made_of = Config("digits", recipe, num_labels=50, seed=7, precision="32").to_json()
    kept = {"fingerprint": "f00", "verified": True, **(data or {})}
    if classes is not None:
        kept["classes"] = classes
    environment = {"versions": {"numpy": "9.8.7"}, "machine": {"processor": "abacus"}}
    content = {
        "config": {**made_of, **(config or {})},
        "command": "cclp train digits --out 'my run'",
        "data": kept,
        "labeled": [1, 2],
        "environment": environment,
        **about,
    }
    (out / "config.json").write_text(json.dumps(content))
    if metrics is None:
        metrics = [metrics_line(10, error=0.5), metrics_line(20, error=0.0911, cclp=3.25)]
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    if finished:
        ending = Result(
            error=0.0911, evaluated_on="test", num_samples=450, num_labels=50, data="digits",
            data_verified=True, method="cclp", seed=7, recipe=recipe, precision="32", seconds=90.0,
            restarts=0, environment=environment,
        )  # fmt: skip
        (out / "result.json").write_text(json.dumps({**ending.to_json(), **(result or {})}))
    return out


def metrics_line(
    step: int, *, error: float | None = None, cclp: float | None = 4.5, **health: float
) -> dict[str, Any]:
    line: dict[str, Any] = {
        "step": step, "cross_entropy": 0.5, "cclp": cclp, "learning_rate": 0.001,
        "loss": None if cclp is None else cclp + 0.5, "step_seconds": 0.05,
    }  # fmt: skip
    if error is not None:
        line["error"] = error
        line |= {f"health/{name}": value for name, value in {**HEALTHY, **health}.items()}
    return line


def write_embedding(
    out: Path, classes: int, features: int = 6, steps: tuple[int, ...] = (10, 20)
) -> NDArray[np.float32]:
    """Points around their classes' means, nearer at every step; returns those of the last."""
    rng = np.random.default_rng(0)
    y = np.arange(3 * classes) % classes
    means = rng.normal(size=(classes, features)) * 5
    (out / "embedding").mkdir()
    for number, step in enumerate(steps, 1):
        z = (means[y] + rng.normal(size=(len(y), features)) / number).astype(np.float32)
        np.savez(
            out / "embedding" / f"{step:08d}.npz",
            z=z, predicted=y, y=y, index=np.arange(len(y)), labeled=np.arange(len(y)) < classes,
        )  # fmt: skip
    return z


def write_predictions(
    out: Path, y: list[int], predicted: list[int], inputs: NDArray[np.uint8] | None = None
) -> None:
    mistakes = np.flatnonzero(np.array(y) != np.array(predicted))
    arrays: dict[str, Any] = {
        "y": np.array(y),
        "predicted": np.array(predicted),
        "probability": np.linspace(0.5, 1, len(y), dtype=np.float32),
        "mistakes": mistakes,
        "mistake_names": np.array([f"test {i}" for i in mistakes], dtype=np.str_),
    }
    if inputs is not None:
        arrays["mistake_inputs"] = inputs
    np.savez(out / "predictions.npz", **arrays)


def make_verdict(**changes: Any) -> Verdict:
    """Of three classes: logistic regression is better than cclp, which is chosen."""
    rows = (
        Row("logistic", "logistic regression", 40, 0.1, 0.04, 0.23, 0.11, 0.88, 1.25, False),
        Row("cclp", "cclp (recipe fast)", 40, 0.15, 0.07, 0.29, 0.16, 0.84, 312.4, True),
        Row("majority", "most frequent class", 40, 0.5, 0.35, 0.65, 0.6667, 0.22, 0.0, False),
    )
    verdict = Verdict(
        rows=rows,
        chosen="cclp",
        sentences=(
            "About 15 % of new samples are predicted wrong.",
            "Logistic regression is fine.",
        ),
        advice="from sklearn.linear_model import LogisticRegression\nmodel = LogisticRegression()",
        classes=(
            ClassRow("a", 20, 20, 2, 0.9),
            ClassRow("b", 20, 20, 4, 0.875),
            ClassRow("c", 1, 0, 0, None),
        ),
        tested=40,
        folds=5,
        steps=0.5,
        temperature=1.3,
    )
    return replace(verdict, **changes)


def write_verdict(out: Path, verdict: Verdict | None = None) -> None:
    content = (verdict or make_verdict()).to_json()
    (out / "verdict.json").write_text(json.dumps(content))


def write_unlabeled(
    out: Path,
    probabilities: list[list[float]],
    x: NDArray[Any] | None = None,
    names: list[str] | None = None,
) -> None:
    """Predictions with these probabilities of the classes, (N, C), for all of ``x``."""
    index = np.arange(len(probabilities))
    samples = np.zeros((len(index), 2), np.float32) if x is None else x
    content = unlabeled_file(torch.tensor(probabilities).log(), index, samples, names)
    (out / "unlabeled.npz").write_bytes(content)


def write_generated(out: Path, count: int = 3) -> None:
    pixels = torch.linspace(0, 1, 16 * count).reshape(count, 1, 4, 4)
    (out / "generated.npz").write_bytes(generated_file(pixels))
