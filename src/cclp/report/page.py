"""The page of one or several runs, put together by a template."""

import hashlib
import re
from base64 import b64encode
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cclp.methods import method_parts
from cclp.report.charts import shorten
from cclp.report.file import GENERATOR, check_page, write_page
from cclp.report.samples import generated_section, mistakes_section, unlabeled_section
from cclp.report.sections import (
    confusion_section,
    embedding_section,
    error_chart,
    loss_section,
    overlay,
    pace_section,
)
from cclp.report.summary import flat, headline, ingredients, minutes, num_labels, outcome, percent
from cclp.report.verdict import class_section, verdict_section
from cclp.runs.record import RunRecord, read_record

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
    records = [read_record(path) for path in runs]
    names = _names(runs)
    views = [
        _view(record, name, number)
        for number, (record, name) in enumerate(zip(records, names, strict=True))
    ]
    classes = max(len(record.classes) for record in records)
    return render(
        "page.html.j2",
        title=": ".join(headline(records[0])) if len(runs) == 1 else f"{len(runs)} runs compared",
        runs=views,
        overlay=overlay(records, names) if len(runs) > 1 else None,
        colours=max(classes, len(runs), 10),
    )


def write_report(runs: list[Path], page: Path) -> None:
    """Write the page of :func:`make_report` to a file; an older report there is replaced.

    Raises:
        ValueError: as :func:`make_report`, and if there is another file, or a report that was
            changed.
    """
    check_page(page)  # before the work
    write_page(page, make_report(runs))


def render(template: str, *, colours: int = 0, **values: Any) -> str:
    """A page from one of the templates here, with style and script in it.

    Args:
        template: its file.
        colours: how many the page needs.
        values: what the template shows.
    """
    here = files("cclp.report")
    script = here.joinpath("script.js").read_text("utf-8")
    environment = Environment(
        loader=PackageLoader("cclp.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shorten": shorten, "breakable": _breakable}
    return environment.get_template(template).render(
        generator=Markup(GENERATOR),
        style=Markup(here.joinpath("style.css").read_text("utf-8")),
        script=Markup(script),
        script_hash=Markup(content_hash(script)),
        colours=Markup(_colours(colours)),
        **values,
    )


def content_hash(script: str) -> str:
    """By which a content security policy knows a script."""
    return f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _breakable(name: str) -> Markup:
    """A name that may be broken after a slash or a plus."""
    return Markup("<wbr>").join(re.split("(?<=[/+])", name))


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


def _view(run: RunRecord, name: str, number: int) -> dict[str, Any]:
    """What the template shows of a run."""
    config, result = run.config, run.result
    what, so_far = headline(run)
    steps = config.recipe.max_steps
    return {
        "name": name,
        "anchor": f"run-{number + 1}",
        "what": what,
        "outcome": so_far,
        "unfinished": None if result else f"step {run.step:,} of {steps:,}",
        "verified": run.verified,
        "row": _row(run),
        "verdict": verdict_section(run.verdict) if run.verdict else None,
        "classes": class_section(run),
        "unlabeled": unlabeled_section(run),
        "cross_validated": run.evaluated_on == "cross_validated",
        "facts": outcome(run),
        "ingredients": ingredients(run),
        "error_chart": error_chart([(run, "error", f"k{number}")]),
        "loss": loss_section(run),
        "pace": pace_section(run),
        "embedding": embedding_section(run),
        "confusion": confusion_section(run.predictions, run.classes) if run.predictions else None,
        "mistakes": mistakes_section(run),
        "generated": generated_section(run),
        "has_graph": "cclp" in method_parts(config.method),
        "health": _health(run),
        "config": flat(config.to_json()),
        "command": run.command,
        "environment": [(part, flat(content)) for part, content in run.environment.items()],
    }


def _row(run: RunRecord) -> dict[str, str]:
    """Of the table that compares runs."""
    config, result = run.config, run.result
    count, error = result.num_samples if result else 0, run.error
    cross_validated = run.evaluated_on == "cross_validated"
    if cross_validated and error is None and run.verdict is not None:
        error = run.verdict.row(run.verdict.chosen).error
    return {
        "data": run.data,
        "method": config.method,
        "recipe": config.recipe.name,
        "steps": f"{config.recipe.max_steps:,}",
        "labels": num_labels(run),
        "seed": str(config.seed),
        "error": "not measured" if error is None else percent(error, count),
        "remark": "cross-validated" if cross_validated else "",
        "minutes": minutes(result.seconds) if result else "–",
    }


def _health(run: RunRecord) -> dict[str, Any] | None:
    if not any(key.startswith("health/") for line in run.metrics for key in line):
        return None
    from cclp.report.health import health_section  # imports torch

    return health_section(run)
