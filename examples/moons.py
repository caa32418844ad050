"""Two moons, one label each: watch the loss turn each moon into a compact cluster.

The 2-D points themselves are the embedding: no network, no classifier, only gradient descent on
the CCLP loss. Labels spread along the moons, and points follow.
"""

import argparse
import io
import math
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import cclp
from cclp.files import write_bytes, write_json

BANDWIDTH = 0.15
STEPS = 10
STEP_SIZE = 0.05
ITERATIONS = 1000


def two_moons(points: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Points (N, 2) on two interleaving half circles, and their classes (N,).

    The first point of each class stands at the far end of its moon.
    """
    generator = torch.Generator().manual_seed(seed)
    half = points // 2
    angle = torch.linspace(0, math.pi, half)
    upper = torch.stack([angle.cos(), angle.sin()], 1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], 1)
    z = torch.cat([upper, lower])
    z = z + noise * torch.randn(z.shape, generator=generator)
    return z, torch.arange(2).repeat_interleave(half)


def nearest_label_accuracy(z: Tensor, classes: Tensor, labeled: Tensor) -> float:
    """Accuracy of giving every point the class of the nearest labeled point."""
    nearest = torch.cdist(z, z[labeled]).argmin(1)
    return (classes[labeled][nearest] == classes).float().mean().item()


def run(points: int, iterations: int, seed: int) -> dict[str, Any]:
    """Descend the loss from the two moons on; returns the course of it."""
    z, classes = two_moons(points, noise=0.05, seed=seed)
    half = points // 2
    labeled = torch.tensor([0, half])
    unlabeled = torch.tensor([i for i in range(points) if i not in (0, half)])
    settings: dict[str, Any] = {
        "num_classes": 2,
        "steps": STEPS,
        "similarity": "euclidean",
        "bandwidth": BANDWIDTH,
    }
    frames = []
    for iteration in range(iterations + 1):
        z.requires_grad_()
        loss = cclp.cclp_loss(z[labeled], classes[labeled], z[unlabeled], **settings)
        (gradient,) = torch.autograd.grad(loss, z)
        z = z.detach()
        if iteration in (0, iterations // 10, iterations):
            arguments = (z[labeled], classes[labeled], z[unlabeled])
            posteriors = torch.full((points,), -1.0)
            posteriors[labeled] = classes[labeled].float()
            phi = cclp.propagate_labels(
                *arguments, num_classes=2, similarity="euclidean", bandwidth=BANDWIDTH
            )
            posteriors[unlabeled] = phi[:, 1]
            frames.append(
                {
                    "iteration": iteration,
                    "loss": loss.item(),
                    "z": z.clone(),
                    "posteriors": posteriors,
                    "propagated_accuracy": ((posteriors > 0.5) == classes.bool())
                    .float()
                    .mean()
                    .item(),
                    "nearest_accuracy": nearest_label_accuracy(z, classes, labeled),
                    "health": cclp.graph_health(*arguments, **settings),
                }
            )
        z = z - STEP_SIZE * gradient
    return {"frames": frames, "labeled": labeled, "classes": classes, "points": points}


def draw(course: dict[str, Any], path: Path) -> None:
    """One panel per frame; colour is the propagated label, stars are the two labeled points."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    frames, labeled = course["frames"], course["labeled"]
    figure, axes = plt.subplots(
        1, len(frames), figsize=(4.2 * len(frames), 2.9), sharex=True, sharey=True,
        layout="constrained",
    )  # fmt: skip
    for axis, frame in zip(axes, frames, strict=True):
        x, y = frame["z"].T
        dots = axis.scatter(
            x, y, c=frame["posteriors"], cmap="coolwarm", vmin=0, vmax=1, s=16, linewidths=0
        )
        axis.scatter(
            x[labeled], y[labeled], c=frame["posteriors"][labeled], cmap="coolwarm", vmin=0, vmax=1,
            marker="*", s=260, edgecolors="black", linewidths=1, zorder=3,
        )  # fmt: skip
        axis.set_title(f"iteration {frame['iteration']}: loss {frame['loss']:.2f}", fontsize=11)
        axis.set_aspect("equal")
        axis.set_xticks([])
        axis.set_yticks([])
    bar = figure.colorbar(dots, ax=axes, shrink=0.8, pad=0.01, ticks=[0, 0.5, 1])
    bar.set_label("propagated label")
    figure.suptitle("Two moons, one label each (stars): gradient descent on the CCLP loss alone")
    content = io.BytesIO()
    figure.savefig(content, dpi=110, format="png")
    write_bytes(path, content.getvalue())
    plt.close(figure)


def record(course: dict[str, Any], seed: int, path: Path) -> None:
    """The numbers behind the figure, with what made them."""
    numbers = ("iteration", "loss", "propagated_accuracy", "nearest_accuracy")
    content = {
        "seed": seed,
        "points": course["points"],
        "settings": {"bandwidth": BANDWIDTH, "steps": STEPS, "step_size": STEP_SIZE},
        "versions": {
            "cclp": cclp.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "machine": platform.machine(),
        "frames": [{name: frame[name] for name in numbers} for frame in course["frames"]],
    }
    write_json(path, content)


def main() -> None:
    """Run, print a few lines, write the figure and the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/moons"), help="folder for results")
    parser.add_argument("--seed", type=int, default=0, help="of the noise on the moons")
    options = parser.parse_args()
    course = run(200, ITERATIONS, options.seed)
    ideal = math.log(course["points"] / 2)
    print("Two moons, 200 points, one label each; gradient descent on the CCLP loss alone.")
    print(
        f"{'iteration':>9}  {'loss':>6}  {'labels spread right':>19}  {'nearest label right':>19}"
    )
    for frame in course["frames"]:
        print(
            f"{frame['iteration']:>9}  {frame['loss']:6.3f}  {frame['propagated_accuracy']:19.1%}"
            f"  {frame['nearest_accuracy']:19.1%}"
        )
    print(f"The loss of two perfectly compact classes is ln(N/C) = {ideal:.3f}.")
    for warning in course["frames"][-1]["health"].warnings():
        print("Warning:", warning)
    options.out.mkdir(parents=True, exist_ok=True)
    record(course, options.seed, options.out / "moons.json")
    draw(course, options.out / "moons.png")
    print(f"Figure: {options.out / 'moons.png'}")


if __name__ == "__main__":
    main()
