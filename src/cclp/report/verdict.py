"""The verdict of cross-validation over the labels, model by model and class by class."""

from typing import Any

import numpy as np
from markupsafe import Markup

from cclp.report.summary import percent
from cclp.runs.record import RunRecord
from cclp.selection.verdict import ClassRow, Row, Verdict, interval

BASELINE = "majority"  # name of its row
TALL = 15  # classes; the table of more scrolls, the largest error first
_SCALES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # where bars may end


def verdict_section(verdict: Verdict) -> dict[str, Any]:
    """The sentences, and the models with their errors as bars."""
    chosen = verdict.row(verdict.chosen)
    most = _scale([row.high for row in verdict.rows if row.name != BASELINE])
    rows = [
        {
            "title": row.title,
            "chosen": row is chosen,
            "remarks": _remarks(row, chosen, verdict.tested),
            "error": percent(row.error, verdict.tested),
            "interval": _interval(row.low, row.high, verdict.tested),
            "bar": range_bar((row.low, row.error, row.high), most, chosen.error),
            "balanced": percent(row.balanced_error, verdict.tested),
            "f1": f"{row.f1:.2f}",
            "seconds": f"{row.seconds:,.0f} s" if row.seconds >= 10 else f"{row.seconds:.1f} s",
        }
        for row in verdict.rows
    ]
    return {
        "sentences": verdict.sentences,
        "rows": rows,
        "scale": f"{100 * most:g} %",
        "advice": verdict.advice,
        "tested": f"{verdict.tested:,}",
        "folds": verdict.folds,
        "steps": None if verdict.steps >= 1 else f"{100 * verdict.steps:.0f} %",
        "temperature": None if verdict.temperature == 1 else f"{verdict.temperature:.2f}",
    }


def class_section(run: RunRecord) -> dict[str, Any] | None:
    """The classes: how many labels there are, how many are wrong, and what is predicted."""
    if run.verdict is None:
        return None
    predicted = _predicted_counts(run)
    rows, tall = run.verdict.classes, len(run.verdict.classes) > TALL
    bounds = {row.name: interval(row.wrong / row.tested, row.tested) for row in rows if row.tested}
    most = _scale([high for _, high in bounds.values()])
    found = []
    for row in sorted(rows, key=_by_error) if tall else rows:
        one: dict[str, Any] = {
            "name": row.name,
            "labels": f"{row.labels:,}",
            "predicted": f"{predicted.get(row.name, 0):,}",
            "unmeasured": None if row.tested else _why_not(row),
        }
        if row.tested:
            error, (low, high) = row.wrong / row.tested, bounds[row.name]
            one |= {
                "tested": f"{row.tested:,}",
                "wrong": f"{row.wrong:,}",
                "error": percent(error, row.tested),
                "interval": _interval(low, high, row.tested),
                "bar": range_bar((low, error, high), most),
                "f1": "–" if row.f1 is None else f"{row.f1:.2f}",
            }
        found.append(one)
    return {
        "rows": found,
        "scale": f"{100 * most:g} %",
        "unlabeled": run.unlabeled is not None,
        "tall": tall,
    }


def _by_error(row: ClassRow) -> float:
    """To sort by: the largest error first, what cannot be measured last."""
    return -row.wrong / row.tested if row.tested else 1.0


def _predicted_counts(run: RunRecord) -> dict[str, int]:
    """How many unlabeled samples are predicted as each class."""
    if run.unlabeled is None:
        return {}
    counts = np.bincount(run.unlabeled.predicted, minlength=len(run.classes))
    return dict(zip(run.classes, counts.tolist(), strict=True))


def range_bar(
    values: tuple[float, float, float], most: float, reference: float | None = None
) -> Markup | None:
    """An interval and the value within it as a bar from 0 to ``most``; None if it is beyond that.

    It is hidden from screen readers: the numbers stand beside it.

    Args:
        values: lower end, value, upper end.
        most: right end of the scale.
        reference: a value that is marked too.
    """
    low, at, high = (100 * value / most for value in values)
    if high > 100.001:
        return None
    marks = [_mark("span", low, high - low, 6), _mark("at", at - 1, 2, 12)]
    if reference is not None:
        marks.insert(1, _mark("reference", 100 * reference / most - 0.3, 0.6, 14))
    return Markup(
        '<svg class="range" viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">'
        "{}</svg>"
    ).format(Markup("").join(marks))


def _mark(kind: str, x: float, width: float, height: int) -> Markup:
    return Markup('<rect class="{}" x="{:.2f}" y="{}" width="{:.2f}" height="{}"/>').format(
        kind, x, 7 - height // 2, width, height
    )


def _scale(highs: list[float]) -> float:
    """Where bars end."""
    largest = max(highs, default=1.0)
    return next((scale for scale in _SCALES if scale >= largest), 1.0)


def _interval(low: float, high: float, count: int) -> str:
    return f"{percent(low, count).removesuffix(' %')} – {percent(high, count)}"


def _remarks(row: Row, chosen: Row, tested: int) -> list[str]:
    """What sets a model apart."""
    better = not row.trainable and row.error < chosen.error
    found = {
        "chosen": row is chosen,
        "baseline": row.name == BASELINE,
        "not by cclp train": better and row.name != BASELINE,
        f"on {row.tested:,} labels": row.tested != tested,
    }
    return [remark for remark, applies in found.items() if applies]


def _why_not(row: ClassRow) -> str:
    """Why a class cannot be measured."""
    labels = {0: "no label: ", 1: "one label: "}.get(row.labels, "")
    return f"{labels}cannot be measured"
