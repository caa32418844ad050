"""An experiment's directory: figures from its raw results, and a page of all of it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cclp.experiments.folder import damage_named, read_results
from cclp.experiments.tables import TABLES, refresh
from cclp.files import read_bytes, write_bytes
from cclp.report.figures import house_style, png, svg
from cclp.report.overhead_figure import overhead_figures
from cclp.report.page import render
from cclp.report.pictures import data_uri
from cclp.report.summary import flat
from cclp.report.table_figures import ablation_figures, table1_figures
from cclp.report.toy_figures import circles_figures, moons_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    draw: "Callable[[Path, dict[str, Any]], dict[str, Figure | bytes]]"
    captions: dict[str, str]


_FREE = (
    "200 points move freely in two dimensions: there is no network. They and a linear classifier "
    "descend the supervised loss of the two labeled points plus one regulariser, by plain gradient "
    "descent with step 0.05 for 600 iterations. Similarity is −‖z_i − z_j‖²/σ² with σ = 0.15. A "
    "seed draws the noise, the labeled points and the first classifier; none was left out."
)
_ARROWS = (
    "Colour is what a point is held for, pale is open. The forces on unlabeled points of a panel, "
    "the regulariser's on its stars and the supervised ones have a scale each; of the first, the "
    "largest tenth is cut."
)
EXPERIMENTS = {
    "circles": Description(
        "Two circles, one label each (the paper's Section 4.1, Figure 2)",
        f"{_FREE} Radii and the smaller noise (0.02) were chosen among five layouts, by the "
        "accuracy of CCLP with four other draws.",
        circles_figures,
        {
            "figure": f"From start to end, seed 0. {_ARROWS} In the dashed box conditional entropy "
            "(CER) of all points instead of CCLP; there colour is what the classifier says.",
            "animation": "The same, moving.",
            "seeds": "All seeds, with little noise.",
            "large-step": "The same circles with too large a step. The loss ends at the ideal of "
            "the wrong clusters.",
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
        "machine, taking turns, best of two calls or more. Half of the points are labeled, ten "
        "classes.",
        overhead_figures,
        {
            "figure": "Left: time of the loss, and powers of N fitted from N = 1000 on. Right: "
            "what it adds; where a dot is hollow, the network's time is that of 1000 images in "
            "proportion to N.",
        },
    ),
    "table1": Description(
        "Errors with few and with all labels (the paper's Table 1)",
        "Test error of the last iterate; a seed draws the labeled set, the first weights and all "
        "steps. No setting was chosen by a test error, but those of the recipe fast were read "
        "between its redesigns. Rows marked as quoted are from the paper, which quotes most of "
        "them from elsewhere; the others were measured with this code.",
        table1_figures,
        {"figure": "Ours and the paper's, with standard deviations over seeds."},
    ),
    "ablation": Description(
        "Error against the length of the chains, S (the paper's Figure 4)",
        "Error of the last iterate on 10,000 held-out training images; all else is the same. With "
        "S = 1 clusters are made compact without regard to those that are there.",
        ablation_figures,
        {"figure": "Dots are seeds. Grey: where the paper finds the errors of 3 ≤ S ≤ 6."},
    ),
}


def write_figures(out: Path) -> None:
    """Draw the figures of an experiment into its directory, SVG and PNG, and the animation.

    Raises:
        ValueError: if the directory holds no finished experiment, or is damaged.
    """
    if _read(out)["experiment"] in TABLES:
        refresh(out)  # runs may have been copied there
    content = _read(out)
    with house_style():
        with damage_named(out):
            drawn = EXPERIMENTS[content["experiment"]].draw(out, content)
        for name, figure in drawn.items():
            if isinstance(figure, bytes):
                write_bytes(out / f"{name}.gif", figure)
            else:
                write_bytes(out / f"{name}.png", png(figure))
                write_bytes(out / f"{name}.svg", svg(figure))


def make_experiment_page(out: Path) -> str:
    """One self-contained HTML page of an experiment, whose figures are drawn already.

    Raises:
        ValueError: if the directory holds no finished experiment.
    """
    content = _read(out)
    about = EXPERIMENTS[content["experiment"]]
    pictures = [(_picture(out, name), caption) for name, caption in about.captions.items()]
    table = TABLES.get(content["experiment"])
    return render(
        "experiment.html.j2",
        title=about.title,
        about=about.about,
        claims=content["claims"],
        pictures=pictures,
        grids=table.grids(list(content["records"].values())) if table else [],
        command=content["command"],
        settings=flat(content["settings"]),
        environment=[(part, flat(values)) for part, values in content["environment"].items()],
    )


def _picture(out: Path, name: str) -> str:
    """A data URI."""
    ending = "gif" if name == "animation" else "png"
    try:
        content = read_bytes(out / f"{name}.{ending}")
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename} is missing: draw it with cclp report {out}") from None
    return data_uri(f"image/{ending}", content)


def _read(out: Path) -> dict[str, Any]:
    content = read_results(out)
    name = content["experiment"]
    if name not in EXPERIMENTS:
        raise ValueError(f"{out} holds {name!r}, an experiment that cannot be drawn here")
    if not content["claims"] and name not in TABLES:
        raise ValueError(f"{out} is unfinished: resume with cclp reproduce {name} --out {out}")
    return content
