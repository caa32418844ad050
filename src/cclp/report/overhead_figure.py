"""The figure of what CCLP costs: time by N and S, and what it adds to a step of each network."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cclp.experiments.overhead import FITTED_FROM, fit, rows
from cclp.report.figures import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHAIN_COLOURS = {"1": "#9db8e8", "3": "#2b5fc1", "10": "#14295a"}
NET_COLOURS = {"mnist": "#e07b00", "svhn": "#17915a", "cifar": "#8450cc"}
NAMES = {"mnist": "MNIST net", "svhn": "SVHN net", "cifar": "CIFAR net"}


def overhead_figures(out: Path, content: dict[str, Any]) -> "dict[str, Figure | bytes]":
    """By name of the file without its ending."""
    from matplotlib.figure import Figure

    records = list(content["records"].values())
    figure = Figure(figsize=(9.2, 3.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    _growth(left, records)
    _added(right, records)
    for axis in (left, right):
        axis.set(xscale="log", yscale="log", xlabel="points in a batch, N")
        sizes = content["settings"]["sizes"]
        axis.set_xticks(sizes, [f"{n:,}" for n in sizes], fontsize=8)
        axis.minorticks_off()
    plain(left, right)
    return {"figure": figure}


def _growth(axis: "Axes", records: list[dict[str, Any]]) -> None:
    """Time of the loss by N, for each S, with the fitted power."""
    sizes = [record["n"] for record in records]
    for steps, colour in CHAIN_COLOURS.items():
        seconds = [record["loss_seconds"]["128"][steps] for record in records]
        power, factor = fit(records, steps)
        axis.plot(sizes, seconds, "o", color=colour, ms=5, label=f"S = {steps}: N^{power:.2f}")
        far = [n for n in sizes if n >= FITTED_FROM]
        axis.plot(far, [factor * n**power for n in far], color=colour, lw=1)
    axis.set(ylabel="forward and backward, s", title="The loss alone (128 features)")
    axis.legend(frameon=False, fontsize=9)


def _added(axis: "Axes", records: list[dict[str, Any]]) -> None:
    """What the loss adds to a step by N, for each network; the paper's bound."""
    table = rows(records)
    for net, colour in NET_COLOURS.items():
        of_net = [row for row in table if row.net == net]
        if not of_net:
            continue
        sizes, added = [row.n for row in of_net], [100 * row.added["3"] for row in of_net]
        axis.plot(sizes, added, color=colour, lw=1.2, label=NAMES[net])
        for row, value in zip(of_net, added, strict=True):
            fill = colour if row.measured else "white"
            axis.plot(row.n, value, "o", color=colour, mfc=fill, ms=5)
    axis.plot([1000], [10], marker="v", color="black", ms=8, ls="")
    axis.plot([800, 1250], [10, 10], color="black", lw=1.5)
    axis.annotate(
        "the paper: < 10 %\nat N = 1000 (CIFAR, GPU)", (1000, 10), (0, 9),
        textcoords="offset points", ha="center", va="bottom", fontsize=8.5,
    )  # fmt: skip
    ticks = [0.01, 0.1, 1, 10, 100]
    axis.set_yscale("log")
    axis.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axis.set(ylabel="added to the network's time, %", title="CCLP with S = 3 in a training step")
    axis.legend(frameon=False, fontsize=9, loc="lower right")
