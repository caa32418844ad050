"""The sections of a run: from what it recorded to what the template shows."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from cclp.report.charts import Series, line_chart, shorten
from cclp.report.pictures import embedding_picture, png
from cclp.report.read import Predictions, RunRecord

NOT_TERMS = ("step", "loss", "learning_rate", "step_seconds", "seconds", "error")
MATRIX = 25  # classes at most; beyond, a list of confusions says more

# Title, fields of GraphHealth with their names, how to draw them, what they mean.
HEALTH: list[tuple[str, dict[str, str], dict[str, Any], str]] = [
    (
        "Self-transition",
        {"self_transition": "mean of H_ii"},
        {"top": 1, "limit": 0.9},
        "How likely a step on the graph stays where it is. Near 1, points see only themselves and "
        "learn nothing from neighbours. Worry above 0.9 after the first steps.",
    ),
    (
        "Entropy of propagated labels",
        {"posterior_entropy": "entropy / ln C"},
        {"top": 1, "limit": 0.95},
        "At 0 each unlabeled point has one class for certain, at 1 all classes alike. High is "
        "normal early. Worry if it stays above 0.95: labels do not spread.",
    ),
    (
        "Class masses",
        {"smallest_class_mass": "smallest", "largest_class_mass": "largest"},
        {},
        "What the smallest and the largest class hold of the batch, relative to equal shares. Near "
        "1 is balanced. Worry if the largest grows far above 1 and the data are not so unbalanced.",
    ),
    (
        "Largest excess",
        {"largest_excess": "excess"},
        {"top": 0.5, "limit": 0.25},
        "What a class holds of the unlabeled mass beyond its share of the labels and beyond "
        "chance. Worry above 0.25: one class may be swallowing the batch.",
    ),
    (
        "Row-sum error",
        {"row_sum_error": "|row sum − 1|"},
        {"decades": 18, "limit": 1e-8},
        "How far the propagated labels of a point were from summing to one before they were "
        "normalised. Worry above 1e−8: some points hardly ever reach a label.",
    ),
    (
        "Distance to ideal",
        {"distance_to_ideal": "loss − entropy of T"},
        {},
        "The CCLP loss minus its smallest possible value for these labels. At 0 clusters are "
        "compact, even if they are the wrong ones. Worry if it rises for good.",
    ),
]


def curve(run: RunRecord, key: str, name: str = "", colour: str = "k0") -> Series:
    """A value of the metrics by step."""
    lines = [line for line in run.metrics if key in line]
    return Series(name or key, colour, [m["step"] for m in lines], [m[key] for m in lines])


def error_chart(
    runs: Iterable[tuple[RunRecord, str, str]], size: tuple[int, int] = (480, 270)
) -> Markup:
    """The error of runs with their names and colours, in per cent."""
    lines = []
    for run, name, colour in runs:
        errors = curve(run, "error", name, colour)
        lines.append(Series(name, colour, errors.x, [100 * v for v in errors.y]))
    return line_chart(lines, label="Error", y_label="error, %", unit=" %", dots=True, size=size)


def overlay(records: list[RunRecord], names: list[str]) -> dict[str, Any]:
    """The error curves of all runs in one chart."""
    runs = [(run, name, f"k{i}") for i, (run, name) in enumerate(zip(records, names, strict=True))]
    runs = [(run, name, colour) for run, name, colour in runs if curve(run, "error").y]
    return {
        "chart": error_chart(runs, (480, 250)) if runs else None,
        "legend": [(name, colour) for _, name, colour in runs],
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
    counts = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts, (y, predicted), 1)
    totals, right = counts.sum(1), counts.diagonal()
    recall = [
        f"{r / n:.1%}".replace("%", " %") if n else "–" for r, n in zip(right, totals, strict=True)
    ]
    wrong = counts - np.diag(right)
    worst = max(int(wrong.max(initial=0)), 1)
    rows = [
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
    pairs = Counter({(i, j): int(wrong[i, j]) for i, j in zip(*np.nonzero(wrong), strict=True)})
    by_recall = sorted(np.flatnonzero(totals), key=lambda c: right[c] / totals[c])
    return {
        "matrix": len(classes) <= MATRIX,
        "dense": len(classes) > 12,
        "names": [(name, shorten(name)) for name in classes],
        "rows": rows,
        "frequent": [
            (classes[i], classes[j], n, int(totals[i])) for (i, j), n in pairs.most_common(15)
        ],
        "lowest": [(classes[c], recall[c], int(totals[c])) for c in by_recall[:15]],
        "samples": len(y),
        "wrong": int(wrong.sum()),
    }


def mistakes_section(run: RunRecord) -> dict[str, Any]:
    """The most confident mistakes, with their images if they are images."""
    predictions = run.predictions
    assert predictions is not None
    found = []
    for k, index in enumerate(predictions.mistakes):
        y, predicted = int(predictions.y[index]), int(predictions.predicted[index])
        found.append(
            {
                "name": predictions.names[k],
                "truth": run.classes[y] if y >= 0 else "unknown",
                "predicted": run.classes[predicted],
                "probability": f"{100 * predictions.probability[index]:.1f} %",
                "image": None
                if predictions.images is None
                else png(predictions.images[k], run.white),
            }
        )
    return {"images": predictions.images is not None, "all": found}


class HealthWarnings(NamedTuple):
    """Warnings of the graph: at its last diagnosis, and with their steps those that have passed."""

    last: int
    now: list[str]
    passed: list[tuple[int, str]]


def health_warnings(run: RunRecord) -> HealthWarnings | None:
    """What the diagnostics of a run say in words; None if there are none."""
    from cclp.loss.health import GraphHealth  # imports torch

    lines = [line for line in run.metrics if any(key.startswith("health/") for key in line)]
    if not lines:
        return None
    latest: dict[str, tuple[int, str]] = {}
    for line in lines:
        health = GraphHealth(
            *(line.get(f"health/{name}", math.nan) for name in GraphHealth._fields)
        )
        for warning in health.warnings():
            kind = " ".join(warning.split()[:4])  # before its numbers
            latest[kind] = (int(line["step"]), warning)
    last = int(lines[-1]["step"])
    now = [text for step, text in latest.values() if step == last]
    return HealthWarnings(last, now, [found for found in latest.values() if found[0] < last])


def health_section(run: RunRecord) -> dict[str, Any] | None:
    """Charts of the diagnostics, and their warnings in words: now, and those that have passed."""
    warnings = health_warnings(run)
    if warnings is None:
        return None
    charts = []
    for title, fields, options, meaning in HEALTH:
        series = [
            curve(run, f"health/{field}", name, f"k{i}")
            for i, (field, name) in enumerate(fields.items())
        ]
        if not any(s.y for s in series):
            continue
        charts.append(
            {
                "title": title,
                "chart": line_chart(
                    series,
                    label=title,
                    y_label=series[0].name if len(series) == 1 else "relative mass",
                    dots=True,
                    size=(340, 200),
                    **options,
                ),
                "legend": [(s.name, s.colour) for s in series] if len(series) > 1 else [],
                "meaning": meaning,
            }
        )
    return {
        "last": warnings.last,
        "warnings": warnings.now,
        "passed": warnings.passed,
        "charts": charts,
    }
