"""Sketches of trained weights, for every recipe and method: has a change moved any number?

``python -m tests.digests`` prints them as JSON; ``--write`` records them in digests.json. Results
differ between processors by rounding, which training amplifies. The process keeps to instructions
that all x86-64 machines of the last ten years have (:data:`COMMON`), with one thread and without
oneDNN, which chooses the order of its sums by the sizes of the caches. That leaves differences (MKL
has its own kernels for each vendor), so sketches are compared to a tolerance: measured with and
without AVX2, perceptrons differ by up to 5e-6 of the norm of their weights, and convolutional nets
by up to 7e-3, where a pseudo-label may fall on another side.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_suffix(".json")
PROJECTIONS = 6
Sketch = list[float]
COMMON = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
METHODS = (
    "supervised", "cclp", "lba", "entropy", "pseudo_label", "pi_model", "mean_teacher", "vat",
    "fixmatch", "cclp+vat",
)  # fmt: skip


def tolerance(name: str) -> float:
    """Of a sketch: relative to the norm of the weights."""
    perceptron = name.startswith(("digits", "estimator")) and not name.endswith("cnn")
    return 1e-3 if perceptron else 0.02


def in_common_mode() -> dict[str, Sketch]:
    """Digests by name, from a process of its own that keeps to common instructions."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.digests"],
        env=os.environ | COMMON,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    digests: dict[str, Sketch] = json.loads(done.stdout)
    return digests


def digests() -> dict[str, Sketch]:
    """Of this process: must have been started with :data:`COMMON`."""
    import torch

    torch.backends.mkldnn.set_flags(_enabled=False)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CCLP_DATA"] = folder
        return {**_recipes(Path(folder)), **_methods(Path(folder)), **_estimators()}


def _recipes(folder: Path) -> dict[str, Sketch]:
    """Twelve steps of every recipe, on images of the shape it is for."""
    from cclp.training.recipe import make_recipe

    cases = [
        ("paper", "mnist", 1),
        ("paper", "svhn", 3),
        ("paper", "cifar10", 3),
        ("short", "mnist", 1),
        ("short", "own", 3),
        ("fast", "mnist", 1),
        ("fast", "svhn", 3),
        ("fast", "cifar10", 3),
        ("fast", "own", 3),
    ]
    found = {}
    for name, data, channels in cases:
        path = _images(folder / f"images-{channels}.npz", channels)
        recipe = make_recipe(name, data, kind="images")
        per_class, unlabeled = (2, 16) if name == "fast" else (1, 6)  # larger networks
        recipe = replace(recipe, max_steps=12, per_class=per_class, unlabeled_batch=unlabeled)
        for method in ("cclp", "supervised") if name == "fast" else ("cclp",):
            out = folder / f"{name}-{data}-{method}"
            used = recipe.method if method == "cclp" else method
            found[f"{name} {data} {method}"] = _train(out, path, recipe, used)
    # labels that the graph of the inputs says nothing about: one recipe trains without it first,
    # the other does not use it
    path = _images(folder / "noise.npz", 3, visible=False)
    for data in ("own", "mnist"):
        recipe = make_recipe("fast", data, kind="images")
        recipe = replace(recipe, max_steps=12, per_class=2, unlabeled_batch=16)
        found[f"fast {data} noise"] = _train(folder / f"noise-{data}", path, recipe, recipe.method)
    return found


def _methods(folder: Path) -> dict[str, Sketch]:
    """Twelve steps of every method, on the bundled digits."""
    from cclp.training.recipe import make_recipe

    found = {}
    for name in METHODS:
        recipe = replace(
            make_recipe("short", "digits"), max_steps=12, per_class=2, unlabeled_batch=30
        )
        out = folder / f"method-{name}"
        found[f"digits {name}"] = _train(out, "digits", recipe, name, labels=30)
    return found


def _estimators() -> dict[str, Sketch]:
    from sklearn.datasets import load_digits

    from cclp.sklearn import CCLPClassifier

    X, truth = load_digits(return_X_y=True)
    X, truth = X[:300], truth[:300]
    y = truth.copy()
    y[60:] = -1
    plain: dict[str, Any] = {
        "max_iter": 12, "batch_size": (2, 60), "random_state": 0, "device": "cpu",
    }  # fmt: skip
    cases: dict[str, dict[str, Any]] = {
        "default": {},
        "early stopping": {"early_stopping": True},
        "no pseudo-labels": {"method": "cclp"},
        "vat": {"method": "vat"},
        "cnn": {"net": "cnn", "image_shape": (8, 8)},
    }
    found = {}
    for name, settings in cases.items():
        model = CCLPClassifier(**plain, **settings).fit(X, y)
        state = list(model.module_.state_dict().values())
        found[f"estimator {name}"] = _sketch([t.numpy() for t in state])
    return found


def _train(
    out: Path, data: Path | str, recipe: Any, method: str, labels: int | None = None
) -> Sketch:
    from safetensors.numpy import load_file

    from cclp.runs.start import train
    from cclp.training.config import Config

    train(
        Config(
            data=str(data),
            recipe=recipe,
            num_labels=labels,
            method=method,
            accelerator="cpu",
            precision="32",
            evaluate_every=6,
        ),
        out,
    )
    tensors = load_file(max((out / "checkpoint").glob("*.safetensors")))
    names = sorted(name for name in tensors if name.startswith("objective."))
    return _sketch([tensors[name] for name in names if ".methods." not in name])


def _sketch(arrays: list[Any]) -> Sketch:
    """The norm of all weights, and their projections on random signs relative to it."""
    import numpy as np

    weights = np.concatenate([array.astype(np.float64).ravel() for array in arrays])
    signs = np.random.default_rng(0).integers(0, 2, (PROJECTIONS, len(weights)), np.int8)
    norm = float(np.linalg.norm(weights))
    return [round(norm, 6), *(round(float((2 * s - 1.0) @ weights) / norm, 6) for s in signs)]


def _images(path: Path, channels: int, *, visible: bool = True) -> Path:
    """Images of 16 x 16 pixels in three classes, 12 of 60 labeled; bars show the class, or not."""
    import numpy as np

    if path.exists():
        return path
    rng = np.random.default_rng(0)
    count = 80
    y = np.arange(count) % 3
    x = rng.integers(0, 90, (count, channels, 16, 16)).astype(np.uint8)
    if visible:
        for i, of in enumerate(y):
            x[i, :, 4 * of + 2 + i % 2] = 255
    known = np.where(np.arange(count) < 12, y, -1)
    np.savez(path, X=x[:60], y=known[:60], X_test=x[60:], y_test=y[60:])
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        RECORDED.write_text(json.dumps(in_common_mode(), indent=2) + "\n")
    else:
        print(json.dumps(digests(), indent=2))
