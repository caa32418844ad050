"""Figures of Table 1 and of the ablation over S."""

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cclp.experiments.ablation import BAND, BEST, CHAINS, curves, name_of
from cclp.experiments.table1 import beside
from cclp.report.figures import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, PAPER = "#2b5fc1", "#999999"


def table1_figures(out: Path, content: dict[str, Any]) -> "dict[str, Figure | bytes]":
    """Our errors and the paper's, cell by cell."""
    from matplotlib.figure import Figure

    lines = beside(list(content["records"].values()))
    figure = Figure(figsize=(7.4, 1.3 + 0.34 * len(lines)), layout="constrained")
    axis = figure.subplots()
    for place, line in enumerate(reversed(lines)):
        for value, colour, name in ((line.paper, PAPER, "the paper"), (line.ours, OURS, "here")):
            axis.errorbar(
                value.mean, place, xerr=value.deviation, fmt="o", color=colour, ms=6, capsize=2,
                label=name if place == 0 else None,
            )  # fmt: skip
    names = [f"{line.row}, {line.column.title}" for line in reversed(lines)]
    axis.set_yticks(range(len(lines)), names, fontsize=8.5)
    axis.set(xscale="log", xlabel="error, %", ylim=(-0.6, len(lines) - 0.4))
    ticks = [tick for tick in (0.2, 0.5, 1, 2, 5, 10, 20, 50) if _within(axis, tick)]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    if lines:
        axis.legend(frameon=False, fontsize=9)
    plain(axis)
    return {"figure": figure}


def _within(axis: "Axes", tick: float) -> bool:
    low, high = axis.get_xlim()
    return bool(low <= tick <= high)


def ablation_figures(out: Path, content: dict[str, Any]) -> "dict[str, Figure | bytes]":
    """Error against S, a panel for each curve."""
    from matplotlib.figure import Figure

    found = curves(list(content["records"].values()))
    figure = Figure(figsize=(4.6 * max(len(found), 1), 3.6), layout="constrained")
    axes = figure.subplots(1, max(len(found), 1), squeeze=False)[0]
    for axis, ((data, amount), curve) in zip(axes, found.items(), strict=False):
        _curve(axis, curve)
        axis.set_title(name_of(data, amount))
    for axis in axes:
        names = ["no\nSSL" if not s else str(s) for s in CHAINS]
        axis.set_xticks(range(len(CHAINS)), names)
        axis.set(xlabel="S, the longest chain", xlim=(-0.5, len(CHAINS) - 0.5))
    axes[0].set_ylabel("error on held-out images, %")
    plain(*axes)
    return {"figure": figure}


def _curve(axis: "Axes", curve: dict[int, list[float]]) -> None:
    """All seeds, their mean, and where the paper's band would be."""
    places = {s: place for place, s in enumerate(CHAINS)}
    if 1 in curve:
        least, most = BAND
        one = fmean(curve[1])
        across = [places[s] for s in CHAINS if s in BEST]
        axis.fill_between(
            [min(across) - 0.4, max(across) + 0.4], one * (1 - most), one * (1 - least),
            color=PAPER, alpha=0.3, lw=0, label="the paper: 5-25 % below S = 1",
        )  # fmt: skip
        axis.legend(frameon=False, fontsize=8.5, loc="upper right")
    chains = {s: errors for s, errors in curve.items() if s}
    for s, errors in chains.items():
        axis.plot([places[s]] * len(errors), errors, "o", color=OURS, ms=4, alpha=0.6)
    axis.plot([places[s] for s in chains], [fmean(e) for e in chains.values()], color=OURS, lw=1.4)
    highest = max((error for errors in chains.values() for error in errors), default=1.0)
    axis.set_ylim(0, 1.35 * highest)
    if 0 in curve:  # most often far above
        mean = fmean(curve[0])
        axis.plot(
            places[0], min(mean, 1.3 * highest), "^" if mean > 1.3 * highest else "o", color="k"
        )
        axis.annotate(
            f"{mean:.2f} %", (places[0], min(mean, 1.3 * highest)), (0, -8),
            textcoords="offset points", ha="center", va="top", fontsize=8.5,
        )  # fmt: skip
