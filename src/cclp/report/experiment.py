"""An experiment's directory: figures from its raw results, and a page of all of it."""

import base64
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cclp.experiments.folder import RESULTS
from cclp.files import write_bytes
from cclp.report.overhead_figure import overhead_figures
from cclp.report.page import flat, render
from cclp.report.toy_figures import circles_figures, moons_figures
from cclp.training.directory import read_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 120
KINDS = {"png": "image/png", "gif": "image/gif"}


class Description(NamedTuple):
    """What the page says of an experiment.

    Attributes:
        title: of the page.
        about: what is done.
        draw: makes figures from the directory and its results.
        captions: of the figures, by name, in the order of the page.
    """

    title: str
    about: str
    draw: Any
    captions: dict[str, str]


_FREE = (
    "200 points move freely in two dimensions: there is no network. They and a linear classifier "
    "descend the supervised loss of the two labeled points plus one regulariser, by plain gradient "
    "descent with step 0.05 for 600 iterations. Similarity is −‖z_i − z_j‖²/σ² with σ = 0.15. A "
    "seed draws the noise, the labeled points and the first classifier; none was left out."
)
_ARROWS = (
    "Colour is what a point is held for, white is open; arrows are as long as forces are large, "
    "relative to the others of a panel, and the largest are cut."
)
EXPERIMENTS = {
    "circles": Description(
        "Two circles, one label each (the paper's Section 4.1, Figure 2)",
        _FREE,
        circles_figures,
        {
            "figure": f"From start to end, seed 0. {_ARROWS} In the dashed box conditional entropy "
            "(CER) instead of CCLP; there colour is what the classifier says.",
            "animation": "The same, moving.",
            "seeds": "All seeds, with little noise.",
            "large-step": "The same circles with too large a step. The loss ends at the ideal of "
            "the wrong clusters and so says nothing.",
        },
    ),
    "moons": Description(
        "Two moons, one label each (the paper's Section 4.2, Figure 3)",
        _FREE,
        moons_figures,
        {
            "figure": f"Chains of one step and of ten, seed 0. {_ARROWS}",
            "animation": "The same, moving.",
            "alignment": "Share of the forces on unlabeled points that goes along the moon, "
            "Σ |f·t| / Σ |f|, where t is the first principal axis of a point's ten nearest of its "
            "moon. Both S at the same points. Thin lines are seeds.",
            "ambiguous": "One moon with its ends labeled differently (step 0.01): in the middle "
            "labels are open, forces smaller and mixed, until a gap appears by chance.",
        },
    ),
    "overhead": Description(
        "What CCLP costs (the paper's Section 6)",
        "Forward and backward of the loss, and of the paper's networks with cross entropy, on this "
        "machine, taking turns, best of several. Half of the points are labeled, ten classes.",
        overhead_figures,
        {
            "figure": "Left: the fit begins at N = 500. Right: filled, both were measured; hollow, "
            "the network's time is that of 500 images, in proportion to N.",
        },
    ),
}


def is_experiment(path: Path) -> bool:
    """Whether a directory was made by ``cclp reproduce``."""
    return (path / RESULTS).is_file() and "experiment" in read_json(path, RESULTS)


def write_figures(out: Path) -> None:
    """Draw the figures of an experiment into its directory, SVG and PNG, and the animation.

    Raises:
        ValueError: if the directory holds no finished experiment, or is damaged.
    """
    content = _read(out)
    from matplotlib import rc_context

    # the same bytes each time, and text that stays text
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cclp", "font.family": "sans-serif"}):
        try:
            drawn = EXPERIMENTS[content["experiment"]].draw(out, content)
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"{out / RESULTS} is damaged or unfinished: {error!r}") from None
        for name, figure in drawn.items():
            if isinstance(figure, bytes):
                write_bytes(out / f"{name}.gif", figure)
            else:
                write_bytes(out / f"{name}.png", _png(figure))
                write_bytes(out / f"{name}.svg", _svg(figure))


def _png(figure: "Figure") -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return content.getvalue()


def _svg(figure: "Figure") -> bytes:
    """Coordinates to a hundredth of a point: less than half the size."""
    content = io.StringIO()
    figure.savefig(content, format="svg", metadata={"Date": None})
    return re.sub(r"(\d\.\d\d)\d+", r"\1", content.getvalue()).encode()


def make_experiment_page(out: Path) -> str:
    """One self-contained HTML page of an experiment, whose figures are drawn already.

    Raises:
        ValueError: if the directory holds no finished experiment.
    """
    content = _read(out)
    about = EXPERIMENTS[content["experiment"]]
    pictures = [(_picture(out, name), caption) for name, caption in about.captions.items()]
    return render(
        "experiment.html.j2",
        title=about.title,
        about=about.about,
        claims=content["claims"],
        pictures=pictures,
        command=content["command"],
        settings=flat(content["settings"]),
        environment=[(part, flat(values)) for part, values in content["environment"].items()],
    )


def _picture(out: Path, name: str) -> str:
    """A data URI."""
    ending = "gif" if name == "animation" else "png"
    try:
        content = (out / f"{name}.{ending}").read_bytes()
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename} is missing: draw it with cclp report {out}") from None
    return f"data:{KINDS[ending]};base64,{base64.b64encode(content).decode()}"


def _read(out: Path) -> dict[str, Any]:
    content = read_json(out, RESULTS)
    if content.get("experiment") not in EXPERIMENTS:
        raise ValueError(f"{out} holds no experiment that can be drawn")
    if not content.get("claims"):
        raise ValueError(f"{out} is unfinished: go on with {content.get('command')}")
    return content
