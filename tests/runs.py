"""Small data and small runs for tests of training."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.training.config import Config
from cclp.training.recipe import make_recipe


def idx(array: NDArray[np.uint8]) -> bytes:
    """The bytes of an IDX file."""
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def write_mnist(
    folder: Path, *, packed: bool = True
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A little MNIST: 60 training and 20 test images whose classes can be told apart."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    sets = {}
    for name, count in (("train", 60), ("t10k", 20)):
        y = (np.arange(count) % 10).astype(np.uint8)
        x = rng.integers(0, 60, (count, 28, 28), np.uint8)
        x[np.arange(count), 2 * y + 2] = 255
        sets[name] = (x, y)
        for part, array in (("images-idx3", x), ("labels-idx1", y)):
            path = folder / f"{name}-{part}-ubyte"
            if packed:
                path = path.with_name(f"{path.name}.gz")
            path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    return sets["train"]


def tiny_config(*, steps: int = 12, **changes: Any) -> Config:
    """Digits, a few steps, evaluated and saved often."""
    recipe = replace(
        make_recipe("digits", "digits", all_labels=False),
        steps=steps,
        per_class=2,
        unlabeled_batch=30,
        net="mlp",
    )
    settings: dict[str, Any] = {
        "labels": 30,
        "evaluate_every": 6,
        "checkpoint_every": 4,
        "accelerator": "cpu",
        "precision": "32",
        **changes,
    }
    return Config(data="digits", recipe=recipe, **settings)


def metrics(run: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl without the one value that is a time."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        assert line.pop("step_seconds") > 0
    return lines


def last_weights(run: Path) -> bytes:
    """The newest checkpoint, bit for bit: weights, buffers and optimizer."""
    return max((run / "checkpoint").glob("*.safetensors")).read_bytes()
