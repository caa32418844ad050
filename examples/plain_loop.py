"""A plain PyTorch loop: digits with 50 labels, trained without CCLP and with it.

The loop is an ordinary one; CCLP is the line marked below. Errors are on 450 test images.

    python examples/plain_loop.py
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import cclp

LABELS, UNLABELED_BATCH = 50, 200


def load(seed: int) -> tuple[Tensor, ...]:
    """Labeled images and their classes, all training images, test images and their classes."""
    images, classes = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(classes)
    train, test = train_test_split(np.arange(len(y)), test_size=450, stratify=y, random_state=0)
    labeled, _ = train_test_split(train, train_size=LABELS, stratify=y[train], random_state=seed)
    return x[labeled], y[labeled], x[train], x[test], y[test]


def train(regulariser: cclp.CCLPLoss | None, seed: int, steps: int) -> float:
    """Train a perceptron, with the regulariser if there is one; its test error."""
    x_labeled, y, x_all, x_test, y_test = load(seed)
    torch.manual_seed(seed)
    features = nn.Sequential(
        nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ELU(), nn.Linear(256, 64), nn.BatchNorm1d(64)
    )
    classifier = nn.Linear(64, 10)
    net = nn.Sequential(features, classifier)
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(steps):
        x_unlabeled = x_all[torch.randint(len(x_all), (UNLABELED_BATCH,))]
        z_labeled = features(x_labeled)
        loss = F.cross_entropy(classifier(z_labeled), y)
        if regulariser is not None:
            loss = loss + regulariser(z_labeled, y, features(x_unlabeled))  # this is CCLP
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    net.eval()
    error = (net(x_test).argmax(1) != y_test).float().mean()
    return float(error)


def main() -> None:
    """Train both ways on every labeled set, and print errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="labeled sets")
    parser.add_argument("--max-steps", type=int, default=300, help="of each training")
    options = parser.parse_args()
    # In the first steps, distances propagate labels better than the default, dot products.
    regulariser = cclp.CCLPLoss(10, similarity="euclidean", bandwidth=2.0)
    for name, term in (("labels only", None), ("with CCLP", regulariser)):
        errors = [train(term, seed, options.max_steps) for seed in range(options.seeds)]
        each = ", ".join(f"{error:.1%}" for error in errors)
        print(f"{name}: {np.mean(errors):.1%} of test images wrong ({each})")


if __name__ == "__main__":
    main()
