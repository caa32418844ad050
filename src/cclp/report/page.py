"""The page: what each run says, in words and charts, put together by a template."""

import math
from collections import Counter
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cclp.report.charts import Series, embedding_picture, line_chart, png, short, shorten
from cclp.report.read import Predictions, RunRecord, read_run

METHODS = {"cclp": "CCLP", "supervised": "Labels only"}
NOT_TERMS = ("step", "loss", "learning_rate", "step_seconds", "error")
MATRIX = 25  # classes at most; beyond, a list of confusions says more

# Light and dark, ten each; further classes take hues a golden angle apart.
PALETTE = (
    "#2f6fd0 #e07b00 #17915a #d2283c #8450cc #8a5a32 #dd4fa3 #74830a #0797a8 #b58f00",
    "#6ea2ff #ff9f3d #45c488 #ff6b74 #b794ff #c4946c #ff8ccb #a9bb2f #3fcfdf #f2d45c",
)

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
        "1 is balanced. Worry if the largest grows far above 1 and the data are not that unbalanced.",
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


def make_report(runs: list[Path]) -> str:
    """Make one self-contained HTML page of one or several run directories.

    Args:
        runs: run directories, finished or not. Several are compared.

    Returns:
        The text of the page. It needs no network, and no script to be read.

    Raises:
        ValueError: if there is no run, if a directory is not a run, or if a file of it is damaged.
    """
    if not runs:
        raise ValueError("runs must hold at least one run directory, got none")
    records = [read_run(path) for path in runs]
    names = _names(runs)
    views = [
        _view(record, name, f"run-{number}")
        for number, (record, name) in enumerate(zip(records, names, strict=True), 1)
    ]
    here = files("cclp.report")
    environment = Environment(
        loader=PackageLoader("cclp.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    classes = max(len(record.classes) for record in records)
    return environment.get_template("page.html.j2").render(
        title=views[0]["sentence"] if len(runs) == 1 else f"{len(runs)} runs compared",
        runs=views,
        overlay=_overlay(records, names) if len(runs) > 1 else None,
        style=Markup(here.joinpath("style.css").read_text("utf-8")),
        script=Markup(here.joinpath("script.js").read_text("utf-8")),
        colours=Markup(_colours(max(classes, len(runs), 10))),
    )


def percent(share: float, count: int = 0) -> str:
    """A share in per cent, with the digits that ``count`` samples can tell."""
    return f"{100 * share:.{2 if count >= 2000 else 1}f} %"


def interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share seen in ``count`` samples.

    >>> [round(bound, 3) for bound in interval(0.1, 100)]
    [0.055, 0.174]
    """
    z = 1.96
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2) / (1 + z * z / count)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def _names(runs: list[Path]) -> list[str]:
    """The directories' names, or their paths where names would be the same."""
    names = [path.resolve().name for path in runs]
    return [
        name if names.count(name) == 1 else str(path)
        for name, path in zip(names, runs, strict=True)
    ]


def _colours(count: int) -> str:
    """CSS: ``.k0``, ``.k1``, … set ``--k``, for light and for dark."""
    light, dark = (list(half.split()) for half in PALETTE)
    for c in range(10, count):
        hue, further = round(c * 137.5) % 360, 8 * (c % 3)
        light.append(f"hsl({hue} 65% {36 + further}%)")
        dark.append(f"hsl({hue} 70% {60 + further}%)")
    rules = ["".join(f".k{c}{{--k:{k}}}" for c, k in enumerate(half)) for half in (light, dark)]
    return f"{rules[0]}@media screen and (prefers-color-scheme:dark){{{rules[1]}}}"


def _view(run: RunRecord, name: str, anchor: str) -> dict[str, Any]:
    """What the template shows of a run."""
    config, result = run.config, run.result
    step = int(run.metrics[-1]["step"]) if run.metrics else 0
    steps = config["recipe"].get("steps")
    errors = _values(run, "error")
    error = result["error"] if result else (errors.y[-1] if errors.y else None)
    count, noun = _measured(run)
    who = f"{METHODS.get(config['method'], config['method'])} on {config['data']}"
    labels = config["labels"] if config["labels"] is not None else "all"
    what = f"{who}, {labels} labels, seed {config['seed']}"
    if result:
        outcome = (
            f"{percent(error, count)} error on {count:,} {noun} (last iterate)"
            if error is not None
            else "the error was not measured"
        )
    else:
        outcome = "unfinished"
        if error is not None and math.isfinite(error):
            outcome += f", {percent(error)} error on {noun} at step {errors.x[-1]:,.0f} of {steps}"
    return {
        "name": name,
        "anchor": anchor,
        "sentence": f"{what}: {outcome}",
        "what": what,
        "outcome": outcome,
        "unfinished": None if result else f"step {step:,} of {steps}",
        "verified": run.verified,
        "method": METHODS.get(config["method"], config["method"]),
        "labels": labels,
        "seed": config["seed"],
        "error": (
            percent(error, count) if error is not None and math.isfinite(error) else "not measured"
        ),
        "minutes": f"{result['seconds'] / 60:.1f}" if result else "–",
        "facts": _facts(run, error, count, step, steps),
        "error_chart": _error_chart([(run, "error", "k0")]) if errors.y else None,
        "loss": _loss(run),
        "pace": _pace(run),
        "embedding": _embedding(run),
        "confusion": _confusion(run.predictions, run.classes) if run.predictions else None,
        "mistakes": _mistakes(run) if run.predictions else None,
        "health": _health(run),
        "config": _flat(config),
        "command": run.command,
        "environment": [
            (part, _flat(values) if isinstance(values, dict) else [(part, str(values))])
            for part, values in run.environment.items()
        ],
    }


def _measured(run: RunRecord) -> tuple[int, str]:
    """How many samples the error was measured on (0: not recorded), and what they are."""
    result = run.result or {}
    noun = "samples" if "samples" in result else "images"
    held_out = bool(run.config.get("held_out"))
    if "measured_on" in result:
        held_out = "held-out" in str(result["measured_on"])
    count = result.get("samples", result.get("images", 0))
    return int(count or 0), f"held-out training {noun}" if held_out else f"test {noun}"


def _facts(
    run: RunRecord, error: float | None, count: int, step: int, steps: int | None
) -> list[tuple[str, str, str]]:
    """Name, value, remark."""
    result = run.result or {}
    facts = []
    if error is not None and math.isfinite(error):
        remark = ""
        if result and count:
            low, high = interval(error, count)
            remark = f"{percent(low, count)} to {percent(high, count)} by the number of samples"
        facts.append(("Error", percent(error, count), remark))
    labels = run.config["labels"]
    facts.append(("Labels", f"{result.get('labels', labels) or 'all'}", ""))
    facts.append(("Steps", f"{step:,}", "" if result or not steps else f"of {steps:,}"))
    if result:
        restarts = result.get("restarts", 0)
        remark = "" if not restarts else f"{restarts} restart{'s' * (restarts > 1)}"
        facts.append(("Time", f"{result['seconds'] / 60:.1f} min", remark))
    seconds = [line["step_seconds"] for line in run.metrics if "step_seconds" in line]
    if seconds:
        facts.append(("Step time", f"{1000 * float(np.nanmedian(seconds)):.0f} ms", "median"))
    device = run.environment.get("machine", {}).get("device") or run.config.get("accelerator")
    facts.append(("Device", str(device), f"precision {run.config.get('precision')}"))
    return facts


def _values(run: RunRecord, key: str, name: str = "", colour: str = "k0") -> Series:
    lines = [line for line in run.metrics if key in line]
    return Series(name or key, colour, [m["step"] for m in lines], [m[key] for m in lines])


def _error_chart(
    runs: Iterable[tuple[RunRecord, str, str]], size: tuple[int, int] = (480, 270)
) -> Markup:
    lines = []
    for run, name, colour in runs:
        values = _values(run, "error", name, colour)
        lines.append(Series(name, colour, values.x, [100 * v for v in values.y]))
    return line_chart(lines, label="Error", y_label="error, %", unit=" %", dots=True, size=size)


def _overlay(records: list[RunRecord], names: list[str]) -> dict[str, Any]:
    """The error curves of all runs in one chart."""
    runs = [(run, name, f"k{i}") for i, (run, name) in enumerate(zip(records, names, strict=True))]
    runs = [(run, name, colour) for run, name, colour in runs if _values(run, "error").y]
    return {
        "chart": _error_chart(runs, (560, 260)) if runs else None,
        "legend": [(name, colour) for _, name, colour in runs],
    }


def _loss(run: RunRecord) -> dict[str, Any] | None:
    """The terms of the loss, and their sum if there are several."""
    keys = dict.fromkeys(key for line in run.metrics for key in line)
    terms = [key for key in keys if key not in NOT_TERMS and not key.startswith("health/")]
    lines = [_values(run, term, term, f"k{i}") for i, term in enumerate(terms)]
    if len(terms) != 1 and "loss" in keys:
        lines.insert(0, _values(run, "loss", "sum", "k-none"))  # below the others
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


def _pace(run: RunRecord) -> list[tuple[str, Markup]]:
    """Title and chart of the learning rate and of the time of a step."""
    rate = _values(run, "learning_rate", "learning rate", "k4")
    time = _values(run, "step_seconds", "time of a step", "k8")
    time = Series(time.name, time.colour, time.x, [1000 * v for v in time.y])
    size = (480, 170)
    charts = [
        (rate, line_chart([rate], label="Learning rate", y_label="learning rate", size=size)),
        (time, line_chart([time], label="Time", y_label="time, ms", unit=" ms", size=size)),
    ]
    return [(series.name.capitalize(), chart) for series, chart in charts if series.y]


def _embedding(run: RunRecord) -> dict[str, Any] | None:
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


def _confusion(predictions: Predictions, classes: list[str]) -> dict[str, Any]:
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
        "names": [(name, shorten(name)) for name in classes],
        "rows": rows,
        "frequent": [
            (classes[i], classes[j], n, int(totals[i])) for (i, j), n in pairs.most_common(15)
        ],
        "lowest": [(classes[c], recall[c], int(totals[c])) for c in by_recall[:15]],
        "samples": len(y),
        "wrong": int(wrong.sum()),
    }


def _mistakes(run: RunRecord) -> dict[str, Any]:
    predictions = run.predictions
    assert predictions is not None
    found = []
    for k, index in enumerate(predictions.mistakes):
        y, predicted = int(predictions.y[index]), int(predictions.predicted[index])
        found.append(
            {
                "name": predictions.names[k],
                "true": run.classes[y] if y >= 0 else "unknown",
                "predicted": run.classes[predicted],
                "probability": f"{100 * predictions.probability[index]:.1f} %",
                "image": None
                if predictions.images is None
                else png(predictions.images[k], run.white),
            }
        )
    return {"images": predictions.images is not None, "all": found}


def _health(run: RunRecord) -> dict[str, Any] | None:
    """Charts of the diagnostics, and their warnings in words: now, and those that have passed."""
    from cclp.health import GraphHealth  # imports torch

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
    charts = []
    for title, fields, options, meaning in HEALTH:
        series = [
            _values(run, f"health/{field}", name, f"k{i}")
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
                "now": short(series[-1].y[-1]),
            }
        )
    return {
        "last": last,
        "warnings": [text for step, text in latest.values() if step == last],
        "passed": [(step, text) for step, text in latest.values() if step < last],
        "charts": charts,
    }


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows of a table."""
    rows = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", "–" if value is None or value == {} else str(value)))
    return rows
