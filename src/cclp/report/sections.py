"""The sections of a report: from what a run recorded to what the template shows."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from markupsafe import Markup

from cclp.report.charts import Series, line_chart, shorten
from cclp.report.pictures import embedding_picture
from cclp.runs.arrays import Ints, Predictions
from cclp.runs.record import RunRecord

NOT_TERMS = ("step", "loss", "learning_rate", "step_seconds", "seconds", "error")
MATRIX = 25  # classes at most; beyond, a list of confusions is clearer


def curve(run: RunRecord, key: str, name: str = "", colour: str = "k0") -> Series:
    """A value of the metrics by step."""
    lines = [line for line in run.metrics if key in line]
    return Series(name or key, colour, [m["step"] for m in lines], [m[key] for m in lines])


def error_curve(run: RunRecord, name: str = "error", colour: str = "k0") -> Series:
    """The error in per cent."""
    errors = curve(run, "error", name, colour)
    return Series(name, colour, errors.x, [100 * value for value in errors.y])


def error_chart(
    runs: Iterable[tuple[RunRecord, str, str]], size: tuple[int, int] = (480, 270)
) -> Markup | None:
    """The error of runs with their names and colours; None if none has recorded any."""
    lines = [line for line in (error_curve(*run) for run in runs) if line.y]
    if not lines:
        return None
    return line_chart(lines, label="Error", y_label="error, %", unit=" %", dots=True, size=size)


def overlay(records: list[RunRecord], names: list[str]) -> dict[str, Any]:
    """The error curves of all runs in one chart."""
    runs = [(run, name, f"k{i}") for i, (run, name) in enumerate(zip(records, names, strict=True))]
    return {
        "chart": error_chart(runs, (480, 250)),
        "legend": [(name, colour) for run, name, colour in runs if curve(run, "error").y],
    }


def loss_lines(run: RunRecord) -> list[Series]:
    """The terms of the loss, and their sum if there are several."""
    keys = dict.fromkeys(key for line in run.metrics for key in line)
    terms = [key for key in keys if key not in NOT_TERMS and not key.startswith("health/")]
    lines = [curve(run, term, term, f"k{i}") for i, term in enumerate(terms)]
    if len(terms) != 1 and "loss" in keys:
        lines.insert(0, curve(run, "loss", "sum", "k-none"))  # below the others
    return lines


def loss_section(run: RunRecord) -> dict[str, Any] | None:
    """The terms of the loss in a chart."""
    lines = loss_lines(run)
    if not lines:
        return None
    everything = np.array([v for line in lines for v in line.y])
    values = everything[np.isfinite(everything)]
    wide = len(values) > 0 and values.min() >= 0 and values.max() > 20 * np.quantile(values, 0.02)
    lost = sum(not all(map(math.isfinite, line.values())) for line in run.metrics)
    return {
        "chart": line_chart(
            lines,
            label="Terms of the loss",
            y_label="loss, log scale" if wide else "loss",
            decades=6 if wide else 0,
        ),
        "legend": [(line.name, line.colour) for line in lines],
        "lost": lost,
        "log": wide,
    }


def pace_section(run: RunRecord) -> list[tuple[str, Markup]]:
    """Title and chart of the learning rate and of the time of a step."""
    rate = curve(run, "learning_rate", "learning rate", "k4")
    time = curve(run, "step_seconds", "time of a step", "k8")
    time = Series(time.name, time.colour, time.x, [1000 * v for v in time.y])
    size = (480, 170)
    charts = [
        (rate, line_chart([rate], label="Learning rate", y_label="learning rate", size=size)),
        (time, line_chart([time], label="Time", y_label="time, ms", unit=" ms", size=size)),
    ]
    return [(series.name.capitalize(), chart) for series, chart in charts if series.y]


def embedding_section(run: RunRecord) -> dict[str, Any] | None:
    """The picture and its legend."""
    if run.embedding is None:
        return None
    seen = np.unique(run.embedding.y)
    return {
        **embedding_picture(run.embedding, run.classes),
        "step": run.embedding.steps[-1],
        "shown": len(run.embedding.steps),
        "recorded": run.embedding.recorded,
        "points": len(run.embedding.y),
        "unknown": bool((seen < 0).any()),
        "legend": [(run.classes[c], f"k{c}") for c in range(len(run.classes))],
    }


def confusion_section(predictions: Predictions, classes: list[str]) -> dict[str, Any]:
    """Counts of true against predicted classes, recall of each, and the frequent confusions."""
    known = predictions.y >= 0
    y, predicted = predictions.y[known], predictions.predicted[known]
    totals = np.bincount(y, minlength=len(classes))
    right = np.bincount(y[y == predicted], minlength=len(classes))
    recall = [
        f"{r / n:.1%}".replace("%", " %") if n else "–" for r, n in zip(right, totals, strict=True)
    ]
    wrong = y != predicted
    pairs = Counter(zip(y[wrong].tolist(), predicted[wrong].tolist(), strict=True))
    frequent = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))[:15]
    by_recall = sorted(np.flatnonzero(totals), key=lambda c: right[c] / totals[c])
    matrix = len(classes) <= MATRIX
    return {
        "matrix": matrix,
        "dense": len(classes) > 12,
        "names": [(name, shorten(name)) for name in classes],
        "rows": _matrix_rows(y, predicted, classes, recall) if matrix else [],
        "frequent": [(classes[i], classes[j], n, int(totals[i])) for (i, j), n in frequent],
        "lowest": [(classes[c], recall[c], int(totals[c])) for c in by_recall[:15]],
        "samples": len(y),
        "wrong": int(wrong.sum()),
    }


def _matrix_rows(
    y: Ints, predicted: Ints, classes: list[str], recall: list[str]
) -> list[dict[str, Any]]:
    """The rows of the matrix of confusions."""
    counts = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts, (y, predicted), 1)
    totals = counts.sum(1)
    worst = max(int((counts - np.diag(counts.diagonal())).max(initial=0)), 1)
    return [
        {
            "name": classes[c],
            "total": int(totals[c]),
            "recall": recall[c],
            "cells": [
                {
                    "count": int(n),
                    "right": c == other,
                    "shade": round(float(n / max(totals[c], 1) if c == other else n / worst), 2),
                    "deep": c == other and n > 0.75 * totals[c],
                    "title": f"{n} of class {classes[c]} predicted as {classes[other]}",
                }
                for other, n in enumerate(counts[c])
            ],
        }
        for c in range(len(classes))
    ]
