"""Training and test set from the contents of a published data set's files."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cclp.data.published.formats import Labeled, parse_cifar, parse_idx, parse_svhn

Contents = Mapping[str, tuple[Path, bytes]]  # path and unpacked content of each file, by name
Parts = tuple[Labeled, Labeled]


def read_digits(contents: Contents) -> Parts:
    """1,797 digits of 8 x 8 pixels in 0 … 16, bundled with scikit-learn.

    There is no published split. Ours is fixed: the test set is 450 images, stratified by class.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    x = bunch.images.astype(np.uint8)[:, None]
    y = bunch.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        x, y, test_size=450, stratify=y, random_state=0
    )
    return Labeled(train_x, train_y), Labeled(test_x, test_y)


def read_idx(contents: Contents) -> Parts:
    """Four IDX files: images and labels of MNIST or of a set in its format."""
    parts = []
    for split in ("train", "t10k"):
        path, content = contents[f"{split}-images-idx3-ubyte"]
        x = parse_idx(content, path, 3)
        path, content = contents[f"{split}-labels-idx1-ubyte"]
        y = parse_idx(content, path, 1)
        if len(x) != len(y) or len(x) == 0 or y.max() > 9:
            raise ValueError(
                f"{path.parent}: the {split} files must hold as many images as labels, all in "
                f"0 … 9, but hold {len(x)} images and {len(y)} labels up to {y.max(initial=0)}"
            )
        parts.append(Labeled(x[:, None], y.astype(np.int64)))
    return parts[0], parts[1]


def read_svhn(contents: Contents) -> Parts:
    """Two MATLAB files: training set, test set."""
    train, test = (parse_svhn(content, path) for path, content in contents.values())
    return train, test


def read_cifar(contents: Contents) -> Parts:
    """Binary batches of CIFAR-10; the last one is the test set."""
    *train, test = (parse_cifar(content, path) for path, content in contents.values())
    return (
        Labeled(np.concatenate([b.x for b in train]), np.concatenate([b.y for b in train])),
        test,
    )
