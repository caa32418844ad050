"""A run in one sentence and a few facts: what was trained, and with which error."""

import math
from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

from cclp.methods import method_parts
from cclp.report.sections import curve
from cclp.runs.record import RunRecord
from cclp.selection.verdict import interval
from cclp.training.config import Config
from cclp.training.recipe import Recipe

SAMPLES = {  # by evaluated_on
    "test": "test samples",
    "held_out": "held-out training samples",
    "cross_validated": "labels, each predicted by a model that had not seen it",
}

PSEUDO_LABELS = {  # by what the run decided
    "known": "not needed: all labels are known",
    "used": "used from the first step",
    "after_warmup": "used after a supervised warm-up",
    "refused": "refused",
}


class Fact(NamedTuple):
    """A name, its value, and a remark on it."""

    name: str
    value: str
    remark: str = ""


def headline(run: RunRecord) -> tuple[str, str]:
    """What was trained, and the error so far."""
    config, result = run.config, run.result
    what = f"{config.method} on {run.data}, {num_labels(run)} labels, seed {config.seed}"
    if run.error is None:
        return what, "unfinished" if result is None else "the error was not measured"
    if result is not None:
        last = "" if run.evaluated_on == "cross_validated" else " (last iterate)"
        return what, f"{_error(run)}{last}"
    at = curve(run, "error").x[-1]
    return what, f"unfinished, {_error(run)} at step {at:,.0f} of {config.recipe.max_steps:,}"


def _error(run: RunRecord) -> str:
    """The error, and on what it was measured."""
    assert run.error is not None
    count = run.result.num_samples if run.result else 0
    samples = SAMPLES[run.evaluated_on or "test"]
    return f"{percent(run.error, count)} error on {f'{count:,} ' if count else ''}{samples}"


def num_labels(run: RunRecord) -> str:
    """How many labels were asked for."""
    return "all" if run.config.num_labels is None else f"{run.config.num_labels:,}"


def outcome(run: RunRecord) -> list[Fact]:
    """Error, number of labels and steps, time."""
    result, steps = run.result, run.config.recipe.max_steps
    facts = []
    if run.error is not None:
        count = result.num_samples if result else 0
        low, high = _error_interval(run, run.error, count) if count else (0.0, 1.0)
        remark = f"95 % interval {percent(low, count)} to {percent(high, count)}"
        facts.append(Fact("Error", percent(run.error, count), remark if count else ""))
    facts.append(Fact("Labels", f"{result.num_labels:,}" if result else num_labels(run)))
    facts.append(Fact("Steps", f"{run.step:,}", "" if result else f"of {steps:,}"))
    if result:
        restarts = f"{result.restarts} restart{'s' * (result.restarts > 1)}"
        time = f"{minutes(result.seconds)} min"
        facts.append(Fact("Time", time, restarts if result.restarts else ""))
    seconds = [s for s in curve(run, "step_seconds").y if math.isfinite(s)]
    if seconds:
        facts.append(Fact("Step time", f"{1000 * median(seconds):.0f} ms", "median"))
    device = run.environment.get("machine", {}).get("device", run.config.accelerator)
    facts.append(Fact("Device", str(device), f"precision {run.config.precision}"))
    return facts


def _error_interval(run: RunRecord, error: float, count: int) -> tuple[float, float]:
    """Of 95 %: that of the verdict where the error is the verdict's."""
    if run.verdict is not None and run.evaluated_on == "cross_validated":
        row = run.verdict.row(run.verdict.chosen)
        return row.low, row.high
    return interval(error, count)


def ingredients(run: RunRecord) -> list[Fact]:
    """What an error must not be quoted without: data, method, recipe, seed and the rest."""
    config, recipe = run.config, run.config.recipe
    published = {True: "the published files", False: "not the published files", None: ""}
    return [
        Fact("Data", run.data, published[run.verified]),
        Fact("Method", config.method, plain(config.method_settings)),
        Fact("Recipe", recipe.name, f"net {recipe.net}"),
        Fact("Seed", str(config.seed)),
        Fact("Augmentation", augmentation(recipe)),
        Fact("Graph pseudo-labels", *_pseudo_labels(run)),
        *_class_facts(config),
    ]


def _class_facts(config: Config) -> list[Fact]:
    """Of class weights and class shares, where a run has them."""
    facts = {"Class weight": config.class_weight, "Class prior": config.class_prior}
    return [
        Fact(name, value if isinstance(value, str) else plain(value))
        for name, value in facts.items()
        if value is not None
    ]


def augmentation(recipe: Recipe) -> str:
    """The random changes of training images.

    >>> from cclp.training.recipe import make_recipe
    >>> augmentation(make_recipe("fast", "cifar10"))
    'random affine 2, horizontal flip'
    """
    used = [f"random affine {recipe.random_affine:g}"] if recipe.random_affine else []
    used += ["colour jitter"] if recipe.color_jitter else []
    used += ["horizontal flip"] if recipe.horizontal_flip else []
    return ", ".join(used) or "none"


def _pseudo_labels(run: RunRecord) -> tuple[str, str]:
    """Whether the run used them, and why; see :class:`cclp.pseudo_labels.schedule.Decision`."""
    if "graph_pseudo_label" not in method_parts(run.config.method):
        return "none", ""
    decisions = run.result.decisions if run.result else {}
    value = PSEUDO_LABELS.get(str(decisions.get("pseudo_labels")), "asked for")
    remarks = []
    if decisions.get("tested"):
        remarks.append(
            f"leave-one-out: {decisions.get('correct')} of {decisions['tested']} correct"
        )
    if decisions.get("supervised_warmup"):
        remarks.append(f"warm-up: {percent(decisions['supervised_warmup'])} of the steps")
    if not decisions:
        remarks.append("no decision is recorded" + ("" if run.result else " yet"))
    return value, ", ".join(remarks)


def plain(values: Mapping[str, Any]) -> str:
    """Nested values in one line.

    >>> plain({"cclp": {"weight": 0.1, "gather": True}, "vat": {}})
    'cclp.weight 0.1, cclp.gather yes'
    """
    return ", ".join(f"{name} {value}" for name, value in flat(values) if value != "–")


def flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as rows of a table."""
    rows = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            rows += flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", _text(value)))
    return rows


def _text(value: object) -> str:
    if value is None or value == {}:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def percent(share: float, count: int = 0) -> str:
    """A share in per cent, with the digits that ``count`` samples justify."""
    return f"{100 * share:.{2 if count >= 2000 else 1}f} %"


def minutes(seconds: float) -> str:
    """A time in minutes, with one digit or two.

    >>> minutes(90), minutes(3)
    ('1.5', '0.05')
    """
    return f"{seconds / 60:.{1 if seconds >= 57 else 2}f}"
