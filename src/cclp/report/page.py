"""The page: what each run says, in words and charts, put together by a template."""

import math
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cclp.report.charts import shorten
from cclp.report.read import RunRecord, read_run
from cclp.report.sections import (
    confusion_section,
    curve,
    embedding_section,
    error_chart,
    health_section,
    loss_section,
    mistakes_section,
    overlay,
    pace_section,
)

GENERATOR = '<meta name="generator" content="cclp report">'
METHODS = {"cclp": "CCLP", "supervised": "Labels only"}

# Light and dark, ten each; further classes take hues a golden angle apart.
PALETTE = (
    "#2f6fd0 #e07b00 #17915a #d2283c #8450cc #8a5a32 #dd4fa3 #74830a #0797a8 #b58f00",
    "#6ea2ff #ff9f3d #45c488 #ff6b74 #b794ff #c4946c #ff8ccb #a9bb2f #3fcfdf #f2d45c",
)


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
        _view(record, name, number)
        for number, (record, name) in enumerate(zip(records, names, strict=True))
    ]
    classes = max(len(record.classes) for record in records)
    return render(
        "page.html.j2",
        title=views[0]["sentence"] if len(runs) == 1 else f"{len(runs)} runs compared",
        runs=views,
        overlay=overlay(records, names) if len(runs) > 1 else None,
        colours=max(classes, len(runs), 10),
    )


def render(template: str, *, colours: int = 0, **values: Any) -> str:
    """A page from one of the templates here, with style and script in it.

    Args:
        template: its file.
        colours: how many the page needs.
        values: what the template shows.
    """
    here = files("cclp.report")
    environment = Environment(
        loader=PackageLoader("cclp.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shorten"] = shorten
    return environment.get_template(template).render(
        generator=Markup(GENERATOR),
        style=Markup(here.joinpath("style.css").read_text("utf-8")),
        script=Markup(here.joinpath("script.js").read_text("utf-8")),
        colours=Markup(_colours(colours)),
        **values,
    )


def is_report(path: Path) -> bool:
    """Whether a file is a page that :func:`make_report` has made, and so may be made again."""
    with path.open("rb") as file:
        begin = file.read(2000).lstrip()
    return begin.startswith(b"<!doctype html>") and GENERATOR.encode() in begin


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


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.{1 if seconds >= 57 else 2}f}"


def _names(runs: list[Path]) -> list[str]:
    """The directories' names, or their paths where names would be the same."""
    names = [path.resolve().name for path in runs]
    return [
        name if names.count(name) == 1 else str(path)
        for name, path in zip(names, runs, strict=True)
    ]


def class_colours(count: int) -> tuple[list[str], list[str]]:
    """So many colours, ten at least, for light and for dark."""
    light, dark = (list(half.split()) for half in PALETTE)
    for c in range(10, count):
        hue, further = round(c * 137.5) % 360, 8 * (c % 3)
        light.append(f"hsl({hue} 65% {36 + further}%)")
        dark.append(f"hsl({hue} 70% {60 + further}%)")
    return light, dark


def _colours(count: int) -> str:
    """CSS: ``.k0``, ``.k1``, … set ``--k``, for light and for dark."""
    halves = class_colours(count)
    rules = ["".join(f".k{c}{{--k:{k}}}" for c, k in enumerate(half)) for half in halves]
    return f"{rules[0]}@media screen and (prefers-color-scheme:dark){{{rules[1]}}}"


def headline(run: RunRecord) -> tuple[str, str]:
    """What was run, and what came of it so far."""
    config, result = run.config, run.result
    labels = config["labels"] if config["labels"] is not None else "all"
    what = f"{_method(run)} on {run.name}, {labels} labels, seed {config['seed']}"
    error, (count, noun) = _error(run), _measured(run)
    if result:
        if error is None:
            return what, "the error was not measured"
        return what, f"{percent(error, count)} error on {count:,} {noun} (last iterate)"
    if error is None or not math.isfinite(error):
        return what, "unfinished"
    where = "held-out training samples" if config.get("held_out") else "the test set"
    at = f"step {curve(run, 'error').x[-1]:,.0f} of {config['recipe']['steps']:,}"
    return what, f"unfinished, {percent(error)} error on {where} at {at}"


def _method(run: RunRecord) -> str:
    return METHODS.get(run.config["method"], str(run.config["method"]))


def _error(run: RunRecord) -> float | None:
    """The result's, else the last one measured."""
    if run.result:
        return run.result["error"]  # type: ignore[no-any-return]
    errors = curve(run, "error").y
    return errors[-1] if errors else None


def _view(run: RunRecord, name: str, number: int) -> dict[str, Any]:
    """What the template shows of a run."""
    config, result = run.config, run.result
    step = int(run.metrics[-1]["step"]) if run.metrics else 0
    steps = config["recipe"]["steps"]
    error, (count, _) = _error(run), _measured(run)
    measured = curve(run, "error").y
    what, outcome = headline(run)
    return {
        "name": name,
        "anchor": f"run-{number + 1}",
        "sentence": f"{what}: {outcome}",
        "what": what,
        "outcome": outcome,
        "unfinished": None if result else f"step {step:,} of {steps:,}",
        "verified": run.verified,
        "method": _method(run),
        "labels": config["labels"] if config["labels"] is not None else "all",
        "seed": config["seed"],
        "error": (
            percent(error, count) if error is not None and math.isfinite(error) else "not measured"
        ),
        "minutes": _minutes(result["seconds"]) if result else "–",
        "facts": _facts(run, error, count, step, steps),
        "error_chart": error_chart([(run, "error", f"k{number}")]) if measured else None,
        "loss": loss_section(run),
        "pace": pace_section(run),
        "embedding": embedding_section(run),
        "confusion": confusion_section(run.predictions, run.classes) if run.predictions else None,
        "mistakes": mistakes_section(run) if run.predictions else None,
        "health": health_section(run),
        "config": flat(config),
        "command": run.command,
        "environment": [(part, flat(content)) for part, content in run.environment.items()],
    }


def _measured(run: RunRecord) -> tuple[int, str]:
    """How many samples the error was measured on (0: not recorded), and what they are."""
    result = run.result or {}
    noun = "samples" if "samples" in result else "images"
    held_out = "held-out" in str(result.get("measured_on"))
    return int(result.get(noun, 0)), f"held-out training {noun}" if held_out else f"test {noun}"


def _facts(
    run: RunRecord, error: float | None, count: int, step: int, steps: int
) -> list[tuple[str, str, str]]:
    """Name, value, remark."""
    result = run.result or {}
    facts = []
    if error is not None and math.isfinite(error):
        remark = ""
        if result and count:
            low, high = interval(error, count)
            remark = f"95 % interval {percent(low, count)} to {percent(high, count)}"
        facts.append(("Error", percent(error, count), remark))
    labels = run.config["labels"]
    facts.append(("Labels", f"{result.get('labels', labels) or 'all'}", ""))
    facts.append(("Steps", f"{step:,}", "" if result else f"of {steps:,}"))
    if result:
        restarts = result.get("restarts", 0)
        remark = "" if not restarts else f"{restarts} restart{'s' * (restarts > 1)}"
        facts.append(("Time", f"{_minutes(result['seconds'])} min", remark))
    seconds = [s for s in curve(run, "step_seconds").y if math.isfinite(s)]
    if seconds:
        facts.append(("Step time", f"{1000 * median(seconds):.0f} ms", "median"))
    device = run.environment.get("machine", {}).get("device", run.config.get("accelerator"))
    facts.append(("Device", str(device), f"precision {run.config.get('precision')}"))
    return facts


def flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows of a table."""
    rows = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            rows += flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", "–" if value is None or value == {} else str(value)))
    return rows
