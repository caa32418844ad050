"""CCLP without unlabeled data: a regulariser of fully supervised training.

``z_unlabeled`` is None: the graph is over labeled samples alone, and pulls each class into one
cluster. A convolutional network learns 1,347 digits, all labeled. Errors are on 450 test images.

    python examples/regularise_supervised.py
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import cclp
from cclp.data.load import load
from cclp.nets import mnist_net


def train(weight: float, seed: int, epochs: int) -> float:
    """Train with CCLP of that weight; the test error."""
    data = load("digits")
    x, x_test = (torch.tensor(x / 16, dtype=torch.float32) for x in (data.train_x, data.test_x))
    y, y_test = torch.tensor(data.train_y), torch.tensor(data.test_y)
    torch.manual_seed(seed)
    batches = DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True, drop_last=True)
    net = mnist_net(width=8)
    regulariser = cclp.CCLPLoss(10, weight=weight)
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 4e-3, total_steps=epochs * len(batches)
    )
    for _ in range(epochs):
        for x_batch, y_batch in batches:
            z = net.features(x_batch)
            loss = F.cross_entropy(net.classifier(z), y_batch)
            if weight:
                loss = loss + regulariser(z, y_batch, None)  # nothing unlabeled
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    net.eval()
    error = (net(x_test).argmax(1) != y_test).float().mean()
    return float(error)


def main() -> None:
    """Train with each weight and every seed, and print errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    for name, weight in (("cross entropy", 0.0), ("with CCLP", 0.1)):
        errors = [train(weight, seed, options.epochs) for seed in range(options.seeds)]
        each = ", ".join(f"{error:.1%}" for error in errors)
        print(f"{name}: {np.mean(errors):.1%} of test images wrong ({each})")


if __name__ == "__main__":
    main()
