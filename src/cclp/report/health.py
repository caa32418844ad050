"""The health of the graph over a training: charts, limits and warnings. Imports torch."""

import math
from typing import Any, NamedTuple

from cclp.loss.health import LIMITS, GraphHealth, HealthWarning
from cclp.report.charts import Series, line_chart
from cclp.report.sections import curve
from cclp.runs.record import RunRecord


class Diagnostic(NamedTuple):
    """A chart of diagnostics.

    Attributes:
        title: of the chart.
        names: of its lines, by field of :class:`cclp.loss.health.GraphHealth`.
        meaning: what the values mean.
        warned: for what a value beyond the limit is a sign, if there is a limit.
        top, decades: of the axis, see :func:`cclp.report.charts.line_chart`.
    """

    title: str
    names: dict[str, str]
    meaning: str
    warned: str = ""
    top: float | None = None
    decades: int = 0

    @property
    def limit(self) -> float | None:
        """Beyond it there is a warning."""
        return next((LIMITS[field] for field in self.names if field in LIMITS), None)

    @property
    def caption(self) -> str:
        """The meaning, and what a value beyond the limit is a sign of."""
        if self.limit is None:
            return self.meaning
        return f"{self.meaning} Above {self.limit:g}: {self.warned}"

    def lines(self, run: RunRecord) -> list[Series]:
        """Of a run; those of a field that it has not recorded are empty."""
        return [
            curve(run, f"health/{field}", name, f"k{i}")
            for i, (field, name) in enumerate(self.names.items())
        ]


DIAGNOSTICS = [
    Diagnostic(
        "Self-transition",
        {"self_transition": "mean of H_ii"},
        "The probability that a step of the random walk stays where it is. Near 1, points reach "
        "only themselves and learn nothing from neighbours.",
        "embeddings are too large for the similarity, unless it passes with the first steps.",
        top=1,
    ),
    Diagnostic(
        "Entropy of propagated labels",
        {"posterior_entropy": "entropy / ln C"},
        "At 0 each unlabeled point has one class for certain, at 1 all classes are equally "
        "probable. High is normal early.",
        "if it stays there, label propagation is uninformative.",
        top=1,
    ),
    Diagnostic(
        "Class masses",
        {"smallest_class_mass": "smallest", "largest_class_mass": "largest"},
        "The mass of the smallest and of the largest class in the batch, relative to equal shares. "
        "Near 1 is balanced. If the largest grows far above 1 and the data are not so unbalanced, "
        "the batch collapses into one class.",
    ),
    Diagnostic(
        "Largest excess",
        {"largest_excess": "excess"},
        "What a class holds of the unlabeled mass beyond its share of the labels and beyond "
        "chance.",
        "the batch may be collapsing into one class.",
        top=0.5,
    ),
    Diagnostic(
        "Moves to a label",
        {"moves_to_label": "expected moves"},
        "How many moves of the random walk, without stays, it takes the worst placed unlabeled "
        "point to meet a label.",
        "some points hardly ever reach a label.",
        decades=18,
    ),
    Diagnostic(
        "Distance to ideal",
        {"distance_to_ideal": "loss − entropy of T"},
        "The CCLP loss minus its smallest possible value for these labels. At 0 clusters are "
        "compact, even if they are the wrong ones. It should not rise for good.",
    ),
]


class RunWarnings(NamedTuple):
    """Warnings of a run: at its last diagnosis, and, with their steps, those that have passed."""

    last: int
    current: list[HealthWarning]
    passed: list[tuple[int, HealthWarning]]


def run_warnings(run: RunRecord) -> RunWarnings | None:
    """The latest warning of each code; None if the run has recorded no diagnostics."""
    lines = [line for line in run.metrics if any(key.startswith("health/") for key in line)]
    if not lines:
        return None
    latest: dict[str, tuple[int, HealthWarning]] = {}
    for line in lines:
        values = (line.get(f"health/{name}", math.nan) for name in GraphHealth._fields)
        for warning in GraphHealth(*values).warnings():
            latest[warning.code] = int(line["step"]), warning
    last = int(lines[-1]["step"])
    current = [warning for step, warning in latest.values() if step == last]
    return RunWarnings(last, current, [found for found in latest.values() if found[0] < last])


def health_section(run: RunRecord) -> dict[str, Any] | None:
    """Charts of the diagnostics, and warnings: current ones, and those that have passed."""
    warnings = run_warnings(run)
    if warnings is None:
        return None
    charts = []
    for diagnostic in DIAGNOSTICS:
        series = diagnostic.lines(run)
        if not any(line.y for line in series):
            continue
        chart = line_chart(
            series,
            label=diagnostic.title,
            y_label=series[0].name if len(series) == 1 else "relative mass",
            top=diagnostic.top,
            decades=diagnostic.decades,
            limit=diagnostic.limit,
            dots=True,
            size=(340, 200),
        )
        legend = [(line.name, line.colour) for line in series] if len(series) > 1 else []
        charts.append(
            {
                "title": diagnostic.title,
                "chart": chart,
                "legend": legend,
                "meaning": diagnostic.caption,
            }
        )
    return {**warnings._asdict(), "charts": charts}
