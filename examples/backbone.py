"""CCLP on top of a pretrained backbone: digits with 50 labels.

A backbone is any module from images to vectors. Here a small one learns, without labels, to take
noise off the training images; then it is tuned with 50 labels. Errors are on 450 test images.

    python examples/backbone.py

With timm (``pip install timm``) a network pretrained on photographs takes the small one's place:

    python examples/backbone.py --timm resnet18 --image-size 64
"""

import argparse
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import cclp
from cclp.data.load import load
from cclp.data.splits import labeled_subset

LABELS, BATCH = 50, 200


class Digits(NamedTuple):
    """Images, (N, 1, 8, 8), and their classes."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


def load_digits() -> Digits:
    """The bundled digits."""
    data = load("digits")
    x, x_test = (torch.tensor(x / 16, dtype=torch.float32) for x in (data.train_x, data.test_x))
    return Digits(x, torch.tensor(data.train_y), x_test, torch.tensor(data.test_y))


class Photograph(nn.Module):
    """Grey images as colour images of another size, for networks trained on such.

    Args:
        size: height and width.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """(N, 1, any, any) to (N, 3, size, size)."""
        return F.interpolate(x.expand(-1, 3, -1, -1), (self.size, self.size), mode="bilinear")


def pretrain(images: Tensor, steps: int) -> nn.Module:
    """A backbone that has seen images, but no label."""
    torch.manual_seed(0)
    backbone = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ELU(),
        nn.Conv2d(32, 32, 3, padding=1, stride=2),
        nn.BatchNorm2d(32),
        nn.ELU(),
        nn.Flatten(),
        nn.Linear(512, 32),
    )
    decoder = nn.Linear(32, 64)
    optimizer = torch.optim.Adam([*backbone.parameters(), *decoder.parameters()], 2e-3)
    for _ in range(steps):
        x = images[torch.randperm(len(images))[:BATCH]]
        restored = decoder(backbone(x + 0.3 * torch.randn_like(x)))
        optimizer.zero_grad()
        F.mse_loss(restored, x.flatten(1)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return backbone


def tune(backbone: nn.Module, data: Digits, weight: float, seed: int, steps: int) -> float:
    """Tune a copy with a classifier on it, with CCLP of that weight; the test error."""
    labeled = labeled_subset(data.y.numpy(), LABELS, seed)
    x_labeled, y = data.x[labeled], data.y[labeled]
    size = backbone.eval()(x_labeled[:2]).shape[1]
    torch.manual_seed(seed)
    # Whatever the backbone's scale, batch norm makes it that of the bandwidth below.
    features = nn.Sequential(deepcopy(backbone), nn.BatchNorm1d(size))
    net = nn.Sequential(features, nn.Linear(size, 10)).train()
    regulariser = cclp.CCLPLoss(10, weight=weight, similarity="euclidean", bandwidth=2.0)
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(steps):
        z_labeled = features(x_labeled)
        loss = F.cross_entropy(net[1](z_labeled), y)
        if weight:
            z_unlabeled = features(data.x[torch.randperm(len(data.x))[:BATCH]])
            loss = loss + regulariser(z_labeled, y, z_unlabeled)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    predicted = net.eval()(data.x_test).argmax(1)
    return float((predicted != data.y_test).float().mean())


def main() -> None:
    """Tune the backbone without CCLP and with it, and print errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timm", metavar="NAME", help="a pretrained network of timm")
    parser.add_argument("--image-size", type=int, default=64, help="for timm")
    parser.add_argument("--seeds", type=int, default=3, help="labeled sets")
    parser.add_argument("--max-steps", type=int, default=150, help="of each training")
    options = parser.parse_args()
    data = load_digits()
    if options.timm:
        import timm

        network = timm.create_model(options.timm, pretrained=True, num_classes=0)
        backbone: nn.Module = nn.Sequential(Photograph(options.image_size), network)
    else:
        backbone = pretrain(data.x, 2 * options.max_steps)
    for name, weight in (("labels only", 0.0), ("with CCLP", 1.0)):
        errors = [
            tune(backbone, data, weight, seed, options.max_steps) for seed in range(options.seeds)
        ]
        each = ", ".join(f"{error:.1%}" for error in errors)
        print(f"{name}: {np.mean(errors):.1%} of test images wrong ({each})")


if __name__ == "__main__":
    main()
