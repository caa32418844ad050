"""Pixels as samples: semi-supervised segmentation, which the paper names as future work.

Discs and squares with stripes, on noise; three images have masks, 200 have none. In each step the
embeddings of some pixels form the graph: labeled ones in equal shares of the classes, others at
random. The measure is the mean IoU on 200 test images. Similarity and weight of CCLP were chosen on
other images (``--part validation``).

    python examples/segmentation.py
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import cclp

SIZE, CLASSES = 32, 3
LABELED_PIXELS, UNLABELED_PIXELS = 40, 200  # in the graph: the former of each class


def stripes(rng: np.random.Generator, across: bool) -> NDArray[np.float64]:
    """A wave over the image, of any length, down or across it, up to 35 degrees off."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    angle = rng.uniform(-0.6, 0.6) + (np.pi / 2 if across else 0)
    place = np.cos(angle) * rows + np.sin(angle) * columns
    return np.asarray(np.sin(2 * np.pi * place / rng.uniform(4, 6) + rng.uniform(0, 2 * np.pi)))


def draw(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images, (N, 1, SIZE, SIZE), and masks, (N, SIZE, SIZE): 0 background, 1 disc, 2 square."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    images = rng.normal(0, 0.4, (count, 1, SIZE, SIZE))
    masks = np.zeros((count, SIZE, SIZE), np.int64)
    for image, mask in zip(images, masks, strict=True):
        for shape in (1, 2):
            (y, x), radius = rng.uniform(6, SIZE - 6, 2), rng.uniform(4, 8)
            far_down, far_right = abs(rows - y), abs(columns - x)
            inside = (
                np.hypot(far_down, far_right) < radius
                if shape == 1
                else np.maximum(far_down, far_right) < 0.9 * radius
            )
            image[0, inside] += rng.uniform(0.7, 1.5) * stripes(rng, across=shape == 2)[inside]
            mask[inside] = shape
    return torch.tensor(images, dtype=torch.float32), torch.tensor(masks)


def make_net() -> tuple[nn.Module, nn.Module]:
    """Convolutions from an image to an embedding of each pixel, and a classifier of those."""
    layers: list[nn.Module] = []
    for inputs, dilation in ((1, 1), (24, 2), (24, 4), (24, 4)):
        layers += [
            nn.Conv2d(inputs, 24, 3, padding=dilation, dilation=dilation),
            nn.BatchNorm2d(24),
            nn.ELU(),
        ]
    return nn.Sequential(*layers), nn.Conv2d(24, CLASSES, 1)


def sample(z: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    """Embeddings and classes of pixels of (N, F, H, W), the same number of each class."""
    pixels, classes = z.movedim(1, -1).flatten(0, 2), masks.flatten()
    shares = [(classes == c).float() for c in range(CLASSES)]
    chosen = torch.cat([share.multinomial(LABELED_PIXELS) for share in shares])
    return pixels[chosen], classes[chosen]


def train(weight: float, seed: int, steps: int, labeled: int) -> nn.Module:
    """Train with CCLP of that weight on that many images with masks, and 200 without."""
    (x_labeled, masks), (x_all, _) = draw(labeled, seed), draw(200, 1000 + seed)
    torch.manual_seed(seed)
    features, classifier = make_net()
    regulariser = cclp.CCLPLoss(CLASSES, weight=weight, similarity="euclidean", bandwidth=2.0)
    net = nn.Sequential(features, classifier)
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(steps):
        z = features(x_labeled)
        loss = F.cross_entropy(classifier(z), masks)
        if weight:
            unlabeled = features(x_all[torch.randint(len(x_all), (8,))])
            pixels = unlabeled.movedim(1, -1).flatten(0, 2)
            z_unlabeled = pixels[torch.randint(len(pixels), (UNLABELED_PIXELS,))]
            loss = loss + regulariser(*sample(z, masks), z_unlabeled)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return net.eval()


@torch.no_grad()
def mean_iou(net: nn.Module, images: Tensor, masks: Tensor) -> float:
    """Intersection over union of prediction and mask, the mean over classes."""
    predicted = net(images).argmax(1)
    scores = [
        ((predicted == c) & (masks == c)).sum() / ((predicted == c) | (masks == c)).sum()
        for c in range(CLASSES)
    ]
    return torch.stack(scores).mean().item()


def main() -> None:
    """Train with each weight and every seed, and print the mean IoU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="sets of images with masks")
    parser.add_argument("--max-steps", type=int, default=200, help="of each training")
    parser.add_argument("--labeled", type=int, default=3, help="images with masks")
    parser.add_argument("--weights", type=float, nargs="+", default=[0, 0.1], help="of CCLP")
    parser.add_argument("--part", choices=["test", "validation"], default="test")
    options = parser.parse_args()
    measured = draw(200, {"test": 90_000, "validation": 80_000}[options.part])
    for weight in options.weights:
        scores = [
            mean_iou(train(weight, seed, options.max_steps, options.labeled), *measured)
            for seed in range(options.seeds)
        ]
        each = ", ".join(f"{score:.3f}" for score in scores)
        print(f"CCLP weight {weight:g}: mean IoU {np.mean(scores):.3f} ({each})", flush=True)


if __name__ == "__main__":
    main()
