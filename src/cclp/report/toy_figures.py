"""Figures of the toy problems: the paper's Figures 2 and 3, and what several seeds say."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cclp.experiments.toy.descents import IDEAL, by_case, course_file
from cclp.report.figures import plain
from cclp.report.panels import BLUE, COLOURS, RED, SUPERVISED, Course, draw_panel, film
from cclp.runs.upgrade import upgrade_warning

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, TITLE, LEGEND = 2.15, 0.28, 0.25  # of a panel and what is around it, inches
MOONS, ARC = 0.72, 0.62  # height of a panel relative to its width


def circles_figures(out: Path, content: dict[str, Any]) -> "dict[str, Figure | bytes]":
    """By name of the file without its ending: figures, and the animation's bytes."""
    cclp, cer, large = (Course(course_file(out, n)) for n in ("cclp", "cer", "large-step"))
    return {
        "figure": _circles(cclp, cer),
        "seeds": _seeds(content["records"], {"cclp": ("CCLP", BLUE), "cer": ("CER", RED)}),
        "large-step": _large_step(large, by_case(content["records"])["large-step"][0]),
        "animation": film([("CCLP, S = 10", cclp), ("conditional entropy (CER)", cer)], aspect=1),
    }


def moons_figures(out: Path, content: dict[str, Any]) -> "dict[str, Figure | bytes]":
    """By name of the file without its ending: figures, and the animation's bytes."""
    one, ten, ambiguous = (Course(course_file(out, n)) for n in ("s1", "s10", "ambiguous"))
    return {
        "figure": _moons(one, ten),
        "alignment": _alignment(by_case(content["records"])["s10"]),
        "ambiguous": _ambiguous(ambiguous),
        "animation": film([("CCLP, S = 1", one), ("CCLP, S = 10", ten)], MOONS),
    }


def _figure(columns: float, height: float) -> "Figure":
    """So many panels wide, so many inches high."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH * columns, height), layout="constrained")


def _title(course: Course, frame: int) -> str:
    return f"iteration {course.iteration[frame]}: {course.accuracy[frame]:.0%} right"


def _circles(cclp: Course, cer: Course) -> "Figure":
    figure = _figure(5, 2 * (WIDTH + TITLE) + LEGEND)
    axes = figure.subplots(2, 5).flat
    window = cclp.window(1)
    start = "start, one label each"
    draw_panel(axes[0], cclp, 0, start, colours="labels", arrows=False, window=window)
    draw_panel(axes[1], cclp, 0, "labels propagated", arrows=False, window=window)
    for axis, iteration in zip(axes[2:7], (0, 30, 90, 240, 600), strict=True):
        frame = cclp.frame(iteration)
        draw_panel(axis, cclp, frame, _title(cclp, frame), arrows=iteration < 600, window=window)
    box = [axes[7], axes[8], axes[9]]
    for axis, iteration in zip(box, (0, 120, 600), strict=True):
        frame = cer.frame(iteration)
        title = "CER, " + _title(cer, frame)
        draw_panel(axis, cer, frame, title, arrows=iteration < 600, window=cer.window(1))
        axis.title.set_fontsize(8.5)
    _legend(figure)
    _dashed_box(figure, box)
    return figure


def _dashed_box(figure: "Figure", axes: "list[Axes]") -> None:
    """Around some panels, once it is known where they are."""
    from matplotlib.patches import Rectangle
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()
    boxes = [axis.get_tightbbox() for axis in axes]
    where = Bbox.union([box for box in boxes if box is not None]).padded(3)
    (left, bottom), (right, top) = figure.transFigure.inverted().transform(where.get_points())
    box = Rectangle(
        (left, bottom), right - left, top - bottom, fill=False, ls=(0, (5, 3)), lw=1.3,
        transform=figure.transFigure,
    )  # fmt: skip
    figure.add_artist(box)


def _legend(figure: "Figure") -> None:
    """What points, stars, arrows and lines are, below all panels."""
    from matplotlib.lines import Line2D

    def mark(marker: str, colour: str, label: str, **more: Any) -> Line2D:
        return Line2D([], [], ls="", marker=marker, color=colour, label=label, **more)

    figure.legend(
        handles=[
            mark("*", BLUE, "labeled", markersize=11, markeredgecolor="black"),
            mark("o", "#9a9a9a", "class 0", markersize=5),
            mark("^", "#9a9a9a", "class 1", markersize=5),
            mark(r"$\rightarrow$", "black", "regulariser's force", markersize=13),
            mark(r"$\rightarrow$", SUPERVISED, "supervised force", markersize=13),
            Line2D([], [], color="#999999", ls=(0, (4, 3)), label="classifier's boundary"),
        ],
        loc="outside lower center", ncols=6, fontsize=8.5, frameon=False, handletextpad=0.4,
    )  # fmt: skip


def _seeds(records: dict[str, Any], names: dict[str, tuple[str, str]]) -> "Figure":
    """Accuracy and loss of all seeds by iteration."""
    figure = _figure(4, 2.6)
    left, right = figure.subplots(1, 2)
    for case, (name, colour) in names.items():
        for k, record in enumerate(by_case(records)[case]):
            curve = record["curve"]
            label = name if k == 0 else None
            left.plot(curve["iteration"], curve["accuracy"], color=colour, alpha=0.6, label=label)
    for record in by_case(records)["cclp"]:
        curve = record["curve"]
        right.plot(curve["iteration"], curve["loss"], color=BLUE, alpha=0.6)
    right.axhline(IDEAL, color="black", lw=1, ls=":")
    right.annotate("ideal: ln(N/C) = 4.61", (0.02, 0.97 * IDEAL),
                   xycoords=("axes fraction", "data"), va="top", fontsize=9)  # fmt: skip
    left.set(xlabel="iteration", ylabel="linear accuracy", ylim=(0, 1.02))
    right.set(xlabel="iteration", ylabel="loss of CCLP", yscale="log", ylim=(4, None))
    right.set_yticks([4, 5, 10, 20], ["4", "5", "10", "20"])
    right.minorticks_off()
    left.legend(frameon=False, loc="lower right")
    plain(left, right)
    return figure


def _large_step(course: Course, record: dict[str, Any]) -> "Figure":
    figure = _figure(4, WIDTH + TITLE + 0.5)
    for axis, iteration in zip(figure.subplots(1, 4), (0, 2, 10, 200), strict=True):
        frame = course.frame(iteration)
        title = f"iteration {course.iteration[frame]}: loss {course.loss[frame]:.2f}"
        draw_panel(axis, course, frame, title, arrows=iteration < 200, window=course.window(1))
    mass = record["largest_class_mass"]
    codes = ", ".join(map(upgrade_warning, record["warnings"]))
    figure.supxlabel(
        f"Step 1.0 instead of 0.05: one class ends with {mass:.0f} of {len(course.classes)} "
        f"points.\nWarning of graph_health: {codes or 'none'}.",
        fontsize=8,
    )
    return figure


def _moons(one: Course, ten: Course) -> "Figure":
    figure = _figure(5, 2 * (MOONS * WIDTH + TITLE) + LEGEND)
    axes = figure.subplots(2, 5)
    for row, course, name in ((axes[0], one, "S = 1"), (axes[1], ten, "S = 10")):
        row[0].set_ylabel(name, fontsize=12)
        for axis, iteration in zip(row, (0, 12, 30, 96, 600), strict=True):
            frame = course.frame(iteration)
            title = _title(course, frame)
            draw_panel(axis, course, frame, title, arrows=iteration < 600, window=ten.window(MOONS))
    _legend(figure)
    return figure


def _alignment(records: list[dict[str, Any]]) -> "Figure":
    """Share of forces along the moon by iteration, every seed and the mean."""
    figure = _figure(3, 2.8)
    axis = figure.subplots()
    at = records[0]["alignment"]["iteration"]
    for steps, colour in (("1", RED), ("10", BLUE)):
        rows = [record["alignment"][steps] for record in records]
        for row in rows:
            axis.plot(at, row, color=colour, alpha=0.25, lw=0.8)
        means = [sum(values) / len(values) for values in zip(*rows, strict=True)]
        axis.plot(at, means, "o-", color=colour, label=f"S = {steps}", ms=4)
    axis.axhline(2 / math.pi, color="black", lw=1, ls=":")
    axis.annotate("forces without direction: 2/π", (0.98, 0.64), xycoords=("axes fraction", "data"),
                  ha="right", va="bottom", fontsize=8.5)  # fmt: skip
    axis.set(xlabel="iteration of the descent with S = 10", ylabel="share of force along the moon")
    axis.legend(frameon=False, loc="lower right")
    plain(axis)
    return figure


def _ambiguous(course: Course) -> "Figure":
    from matplotlib.cm import ScalarMappable

    figure = _figure(4.4, ARC * WIDTH + TITLE)
    axes = figure.subplots(1, 4)
    for axis, iteration in zip(axes, (0, 9, 30, 200), strict=True):
        frame = course.frame(iteration)
        title = f"iteration {course.iteration[frame]}"
        draw_panel(axis, course, frame, title, arrows=iteration < 200, window=course.window(ARC))
    bar = figure.colorbar(ScalarMappable(cmap=COLOURS), ax=axes, pad=0.01)
    bar.set_ticks([0, 0.5, 1])
    bar.set_label("propagated label", fontsize=9)
    return figure
