"""Panels of a descent: points, labels, forces and the boundary at one iteration; and a film."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cclp.data.npz import read_npz
from cclp.files import Directory
from cclp.report.figures import png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, RED = "#2b5fc1", "#c8242f"  # of class 0 and 1
COLOURS = "coolwarm"  # pale in the middle: a label that is open
SUPERVISED = "#f2b600"
ARROW = 0.09  # longest, as a share of the panel
MILLISECONDS = 120  # of a frame


class Course:
    """A descent as it was recorded: see :class:`cclp.experiments.toy.descents.Course`."""

    def __init__(self, file: Path) -> None:
        folder = Directory(file.parent.parent, file.parent.name)
        arrays = read_npz(file, folder.read_bytes(file.name))
        frames, points, labels = (
            len(arrays.get(name, ())) for name in ("iteration", "classes", "labeled")
        )
        shapes = {
            "iteration": (frames,), "loss": (frames,), "accuracy": (frames,),
            "classes": (points,), "labeled": (labels,), "belief": (frames, points),
            "z": (frames, points, 2), "boundary": (frames, 3),
            "supervised": (frames, labels, 2), "regulariser": (frames, points, 2),
        }  # fmt: skip
        for name, shape in shapes.items():
            array = arrays.get(name)
            if array is None or array.shape != shape or array.size == 0:
                raise ValueError(f"{file} is damaged: expected {name!r} of shape {shape}")
            if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
                raise ValueError(f"{file} is damaged: {name!r} must hold finite numbers")
        if not 0 <= arrays["labeled"].min() <= arrays["labeled"].max() < points:
            raise ValueError(f"{file} is damaged: 'labeled' must be indices below {points}")
        self.iteration: list[int] = arrays["iteration"].tolist()
        self.loss: list[float] = arrays["loss"].tolist()
        self.accuracy: list[float] = arrays["accuracy"].tolist()
        self.classes, self.labeled = arrays["classes"], arrays["labeled"]
        self.z, self.belief, self.boundary, self.supervised, self.regulariser = (
            arrays[name].astype(np.float64)
            for name in ("z", "belief", "boundary", "supervised", "regulariser")
        )

    def frame(self, iteration: int) -> int:
        """Number of the recorded frame nearest to an iteration."""
        return int(np.abs(np.array(self.iteration) - iteration).argmin())

    def window(self, aspect: float) -> "Window":
        """What holds the first frame and the labeled points throughout, with some room around."""
        seen = np.concatenate([self.z[0], *self.z[:, self.labeled]])
        low, high = seen.min(0), seen.max(0)
        width, height = high - low
        half = 0.56 * max(width, height / aspect)
        return Window((low + high) / 2, half, aspect * half)


class Window(NamedTuple):
    """A part of the plane: its centre, half its width, half its height."""

    centre: NDArray[np.float64]
    across: float
    up: float


def draw_panel(
    axis: "Axes",
    course: Course,
    frame: int,
    title: str,
    *,
    colours: Literal["labels", "belief"] = "belief",
    arrows: bool = True,
    window: Window,
) -> None:
    """One iteration.

    Args:
        axis: where.
        course: of what.
        frame: number of the recorded frame.
        title: above it.
        colours: whether unlabeled points are grey, or have the colour of what they are held for.
        arrows: whether forces are drawn.
        window: what is seen of the plane.
    """
    z, labeled = course.z[frame], course.labeled
    free = np.setdiff1d(np.arange(len(z)), labeled)
    _draw_boundary(axis, course.boundary[frame], window)
    longest = 2 * window.across * ARROW
    if arrows:
        force = course.regulariser[frame][free]
        full = float(np.quantile(np.linalg.norm(force, axis=1), 0.9))
        _draw_arrows(axis, z[free], force, "black", longest=longest, full=full, width=0.005)
    for of_class, marker in ((0, "o"), (1, "^")):
        points = free[course.classes[free] == of_class]
        look: dict[str, Any] = {"color": "#9a9a9a"}
        if colours == "belief":
            look = {"c": course.belief[frame][points], "cmap": COLOURS, "vmin": 0, "vmax": 1}
        x, y = z[points].T
        axis.scatter(x, y, s=15, marker=marker, edgecolors="#555555", lw=0.3, **look)
    if arrows:  # each kind with its own scale: else one often hides behind its star
        for force, colour in (
            (course.regulariser[frame][labeled], "black"),
            (course.supervised[frame], SUPERVISED),
        ):
            full = float(np.linalg.norm(force, axis=1).max())
            _draw_arrows(
                axis, z[labeled], force, colour, longest=1.6 * longest, full=full, width=0.011
            )
    x, y = z[labeled].T
    axis.scatter(
        x, y, c=np.array([BLUE, RED])[course.classes[labeled]], s=150, marker="*",
        edgecolors="black", lw=0.8, zorder=4,
    )  # fmt: skip
    axis.set(
        xlim=window.centre[0] + np.array([-window.across, window.across]),
        ylim=window.centre[1] + np.array([-window.up, window.up]),
        xticks=[], yticks=[], aspect="equal",
    )  # fmt: skip
    axis.set_title(title, fontsize=10)
    axis.spines[:].set_color("#bbbbbb")


def _draw_boundary(axis: "Axes", boundary: NDArray[np.float64], window: Window) -> None:
    """The line on which the classifier is undecided."""
    normal, offset = boundary[:2], boundary[2]
    length = float(np.linalg.norm(normal))
    if length < 1e-6:
        return
    foot = window.centre - normal * (normal @ window.centre + offset) / length**2
    along = 3 * window.across * np.array([-normal[1], normal[0]]) / length
    axis.plot(*np.stack([foot - along, foot + along]).T, color="#999999", lw=1, ls=(0, (4, 3)))


def _draw_arrows(
    axis: "Axes",
    z: NDArray[np.float64],
    force: NDArray[np.float64],
    colour: str,
    *,
    longest: float,
    full: float,
    width: float,
) -> None:
    """Forces on points: smaller than ``full``, they are shorter and paler; larger, they are cut."""
    sizes = np.linalg.norm(force, axis=1)
    if not full > 0:
        return
    relative = np.minimum(sizes / full, 1)
    arrows = force * (relative * longest / np.maximum(sizes, 1e-30))[:, None]
    axis.quiver(
        *z.T, *arrows.T, angles="xy", scale_units="xy", scale=1, width=width, color=colour,
        alpha=0.25 + 0.75 * relative, headwidth=4, headlength=5, headaxislength=4.5, zorder=3,
        edgecolor="#7a5c00" if colour == SUPERVISED else "none", linewidth=0.4,
    )  # fmt: skip


def film(courses: Sequence[tuple[str, Course]], aspect: float) -> bytes:
    """A GIF of descents side by side, frame by frame; the last one stays for a while."""
    from matplotlib.figure import Figure
    from PIL import Image

    images = []
    for frame, iteration in enumerate(courses[0][1].iteration):
        figure = Figure(figsize=(3.1 * len(courses), 3.1 * aspect + 0.6))
        axes = figure.subplots(1, len(courses), squeeze=False)[0]
        top = 1 - 0.58 / (3.1 * aspect + 0.6)
        figure.subplots_adjust(0.01, 0.01, 0.99, top, 0.03)
        for axis, (name, course) in zip(axes, courses, strict=True):
            title = f"{name}\nloss {course.loss[frame]:.2f}, accuracy {course.accuracy[frame]:.2f}"
            draw_panel(axis, course, frame, title, window=course.window(aspect))
        figure.text(0.5, 0.995, f"iteration {iteration}", ha="center", va="top", fontsize=9)
        images.append(Image.open(io.BytesIO(png(figure, 84))).convert("RGB"))
    some = np.concatenate([np.asarray(images[i]) for i in (0, len(images) // 4, -1)])
    palette = Image.fromarray(some).quantize(96, dither=Image.Dither.NONE)
    few = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    content = io.BytesIO()
    few[0].save(
        content, format="GIF", save_all=True, append_images=few[1:], loop=0, optimize=True,
        duration=[MILLISECONDS] * (len(few) - 1) + [3000],
    )  # fmt: skip
    return content.getvalue()
