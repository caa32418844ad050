"""Small data and small runs for tests of training."""

import gzip
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from cclp.progress import Reporter
from cclp.training.config import Config
from cclp.training.recipe import make_recipe


class Messages(Reporter):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.infos: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def info(self, text: str) -> None:
        self.infos.append(text)


def stop_after(steps: int) -> Callable[[], bool]:
    """Answers yes when asked for the ``steps``-th time."""
    asked: Iterator[int] = iter(range(1, 10**6))
    return lambda: next(asked) >= steps


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


def tiny_config(*, max_steps: int = 12, **changes: Any) -> Config:
    """Digits, a few steps, evaluated and saved often."""
    recipe = replace(
        make_recipe("short", "digits"),
        max_steps=max_steps,
        per_class=2,
        unlabeled_batch=30,
        net="mlp",
    )
    settings: dict[str, Any] = {
        "num_labels": 30,
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
        assert 0 < line.pop("step_seconds") < line.pop("seconds")
    return lines


def last_weights(run: Path) -> bytes:
    """The newest checkpoint, bit for bit: weights, buffers and optimizer."""
    return max((run / "checkpoint").glob("*.safetensors")).read_bytes()


def assert_same_run(out: Path, whole: Path) -> None:
    """That a finished run is, bit for bit, the one that nothing has disturbed."""
    assert last_weights(out) == last_weights(whole)
    assert metrics(out) == metrics(whole)
    embeddings = [sorted((run / "embedding").iterdir()) for run in (out, whole)]
    assert [path.name for path in embeddings[0]] == [path.name for path in embeddings[1]]
    for mine, other in zip(*embeddings, strict=True):
        assert mine.read_bytes() == other.read_bytes()
    results = [json.loads((run / "result.json").read_text()) for run in (out, whole)]
    for result in results:
        assert result.pop("seconds") >= 0
        assert result.pop("restarts") >= 0
    assert results[0] == results[1]


def cifar(x: NDArray[np.uint8], y: NDArray[np.generic]) -> bytes:
    """The bytes of a batch of CIFAR-10's binary version."""
    return np.column_stack([y, x.reshape(len(x), -1)]).astype(np.uint8).tobytes()


def svhn(x: NDArray[np.uint8], y: NDArray[np.generic]) -> bytes:
    """The bytes of a MATLAB file of SVHN: zero is 10."""
    content = io.BytesIO()
    labels = np.where(y == 0, 10, y).astype(np.uint8)[:, None]
    savemat(content, {"X": x.transpose(2, 3, 1, 0), "y": labels})
    return content.getvalue()


def npz(**arrays: object) -> bytes:
    """The bytes of an .npz file."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def png(pixels: NDArray[np.uint8], mode: str | None = None) -> bytes:
    """The bytes of a PNG file, in the given mode of Pillow."""
    content = io.BytesIO()
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(content, "png")
    return content.getvalue()


def own_folder(folder: Path, *, labeled: int = 10, unlabeled: int = 10, test: int = 0) -> Path:
    """A user's folder of dark and light images, of different sizes and formats."""
    rng = np.random.default_rng(0)

    def write(place: Path, level: int) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        size = rng.integers(9, 40, 2)
        pixels = rng.integers(level, level + 60, (*size, 3), np.uint8)
        Image.fromarray(pixels).save(place)

    for name, level in (("dark", 10), ("light", 180)):
        for number in range(labeled):
            write(folder / name / f"{number}.jpg", level)
        for number in range(test):
            write(folder / "test" / name / f"{number}.jpg", level)
    for number in range(unlabeled):
        write(folder / "unlabeled" / f"{number}.png", (10, 180)[number % 2])
    return folder


def own_table(path: Path, rows: int = 60) -> None:
    """A user's table with numbers, choices, gaps, and two thirds of the labels missing."""
    rng = np.random.default_rng(0)
    lines = ["amount,colour,kind"]
    for number in range(rows):
        kind = number % 2
        amount = "" if number % 10 == 7 else f"{rng.normal(6 * kind):.3f}"
        colour = ("red", "blue")[kind] if number % 5 else "green"
        lines.append(f"{amount},{colour},{('no', 'yes')[kind] if number % 6 < 2 else ''}")
    path.write_text("\n".join(lines) + "\n")


def rewrite_config(run: Path, content: dict[str, Any]) -> None:
    """Another ``config.json``, of which the checkpoint knows."""
    from cclp.runs.checkpoint import load_checkpoint, save_checkpoint
    from cclp.runs.directory import digest_of_config

    (run / "config.json").write_text(json.dumps(content))
    saved = load_checkpoint(run / "checkpoint", print)
    assert saved is not None
    info = {**saved.info, "config": digest_of_config(run)}
    save_checkpoint(run / "checkpoint", saved._replace(info=info))
