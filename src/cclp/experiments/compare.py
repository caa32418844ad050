"""Methods side by side: the same splits, the same network, the same steps.

==================== ==============================================================
``compare.json``     the configuration; the directory belongs to it
``runs/``            a run directory for each method and seed
``results.json``     errors, times and paired differences, so far
``results.md``       the same as a table
``figure.png``       the same as a figure
==================== ==============================================================
"""

import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cclp.experiments.aggregate import Summary, paired_differences, percent, summarize
from cclp.experiments.outcomes import Record, read_outcomes
from cclp.experiments.study import Cell, run_study
from cclp.files import DAMAGE, write_bytes, write_json
from cclp.methods import check_methods, file_name, method_parts
from cclp.progress import Reporter
from cclp.runs.record import read_json, read_metrics
from cclp.runs.upgrade import upgrade_config
from cclp.training.config import Config

REFERENCE, BASELINE = "cclp", "supervised"


@dataclass(frozen=True)
class Row:
    """The runs of a method.

    Attributes:
        method: its name.
        errors: by seed, of the runs that have ended; None for one that diverged.
        step_seconds: median of all logged steps; None if there is none.
    """

    method: str
    errors: dict[int, float | None]
    step_seconds: float | None = None

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Row":
        """A row of ``results.json``."""
        errors = content["errors"] | dict.fromkeys(map(str, content["diverged"]))
        by_seed = {int(seed): error for seed, error in errors.items()}
        return cls(content["method"], by_seed, content["step_seconds"])


def compare(
    config: Config,
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    report: Reporter | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    jobs: int = 1,
) -> list[Row]:
    """Train every method with every seed; finished runs are kept.

    Args:
        config: of all runs, but for method and seed.
        methods: names, see :func:`cclp.methods.method_parts`.
        seeds: each draws its own labeled set and weights, the same for all methods.
        out: directory; one of the same comparison is resumed.
        report: what the user sees.
        should_stop: asked after each step.
        jobs: number of runs at a time.

    Raises:
        ValueError: for wrong settings, or if ``out`` holds another comparison.
        cclp.runs.start.Stopped: if ``should_stop`` said so; all is saved.
    """
    check_methods(methods)
    _claim(out, config)
    cells = [  # seed by seed, so that an unfinished comparison is a fair one
        _cell(config, method, seed) for seed in seeds for method in methods
    ]
    write = partial(write_results, out, methods)
    return run_study(cells, out / "runs", report or Reporter(), should_stop, write, jobs=jobs)


def _cell(config: Config, method: str, seed: int) -> Cell:
    parts = method_parts(method)
    settings = {name: s for name, s in config.settings.items() if name in parts}
    one = replace(config, method=method, seed=seed, settings=settings)
    return Cell(f"{file_name(method)}-seed{seed}", one)


def _claim(out: Path, config: Config) -> None:
    """Make the directory, or make sure that it is of the same comparison."""
    ours = {"method": config.method, "seed": config.seed}  # what its runs differ in
    if (out / "compare.json").exists():
        try:
            recorded = upgrade_config(read_json(out, "compare.json")["config"])
            same = Config.from_json({**recorded, **ours}) == config
        except DAMAGE:
            same = False
        if not same:
            raise ValueError(
                f"{out} holds a comparison with other settings: choose another --out, or give "
                "the settings it was begun with"
            )
        return
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} exists and is no comparison: choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    about = config.to_json() | dict.fromkeys(ours)
    write_json(out / "compare.json", {"config": about}, new=True)


def write_results(out: Path, methods: Sequence[str]) -> list[Row]:
    """Read all runs of a comparison that have ended, and write the table and the figure.

    Args:
        out: its directory.
        methods: in this order.
    """
    outcomes = read_outcomes(out / "runs")
    rows = [_row(method, outcomes, out / "runs") for method in methods]
    environment = next((outcome["environment"] for outcome in outcomes.values()), None)
    table = [_to_json(row, rows) for row in rows]
    write_json(out / "results.json", {"methods": table, "environment": environment})
    write_bytes(out / "results.md", markdown(rows).encode())
    write_bytes(out / "figure.png", figure(rows))
    return rows


def _row(method: str, outcomes: dict[str, Record], runs: Path) -> Row:
    mine = {name: outcome for name, outcome in outcomes.items() if outcome["method"] == method}
    errors = sorted((outcome["seed"], outcome["error"]) for outcome in mine.values())
    seconds = [
        line["step_seconds"]
        for name, outcome in mine.items()
        if outcome["problem"] is None
        for line in read_metrics(runs / name)
    ]
    return Row(method, dict(errors), statistics.median(seconds) if seconds else None)


def _to_json(row: Row, rows: list[Row]) -> dict[str, Any]:
    """A row of ``results.json``."""
    error, difference = summarize(row.errors.values()), summarize(_differences(row, rows))
    return {
        "method": row.method,
        "errors": {str(seed): e for seed, e in row.errors.items() if e is not None},
        "diverged": [seed for seed, e in row.errors.items() if e is None],
        "mean": error.mean if error.seeds else None,
        "standard_deviation": error.deviation,
        "step_seconds": row.step_seconds,
        "steps_relative_to_supervised": _relative_time(row, rows),
        "to_cclp": difference.mean if difference.seeds else None,
        "to_cclp_standard_deviation": difference.deviation,
    }


def _named(rows: list[Row], method: str) -> Row | None:
    return next((row for row in rows if row.method == method), None)


def _differences(row: Row, rows: list[Row]) -> list[float]:
    """Errors minus those of CCLP, seed by seed."""
    reference = _named(rows, REFERENCE)
    if reference is None or reference is row:
        return []
    return paired_differences(row.errors, reference.errors)


def _relative_time(row: Row, rows: list[Row]) -> float | None:
    """Time of a step relative to the supervised one."""
    base = _named(rows, BASELINE)
    if base is None or not base.step_seconds or not row.step_seconds:
        return None
    return row.step_seconds / base.step_seconds


def markdown(rows: list[Row]) -> str:
    """One row per method, best first; what is not known yet is a dash."""
    lines = [
        "| method | error, % | seeds | difference to cclp, points | step time ÷ supervised |",
        "|---|---|---|---|---|",
    ]
    errors = {row.method: percent(row.errors.values()) for row in rows}
    for row in sorted(rows, key=lambda row: _best_first(errors[row.method])):
        error, time = errors[row.method], _relative_time(row, rows)
        diverged = f", {error.diverged} diverged" if error.diverged else ""
        lines.append(
            f"| {row.method} | {error.text()} | {error.seeds}{diverged} "
            f"| {percent(_differences(row, rows)).text(sign='+')} "
            f"| {'–' if time is None else f'{time:.1f}'} |"
        )
    return "\n".join(lines) + "\n"


def _best_first(error: Summary) -> tuple[bool, float]:
    return (False, error.mean) if error.seeds else (True, 0.0)


def figure(rows: list[Row]) -> bytes:
    """Errors of all methods, best at the top; a dot is a seed."""
    from matplotlib.figure import Figure

    known = [row for row in rows if summarize(row.errors.values()).seeds]
    known.sort(key=lambda row: -summarize(row.errors.values()).mean)
    drawn = Figure(figsize=(7, 1 + 0.4 * max(len(known), 1)), layout="constrained")
    axis = drawn.subplots()
    for place, row in enumerate(known):
        errors = [100 * error for error in row.errors.values() if error is not None]
        color = "tab:orange" if "cclp" in row.method.split("+") else "silver"
        axis.barh(place, percent(row.errors.values()).mean, color=color)
        axis.plot(errors, [place] * len(errors), "k.", ms=4)
    axis.set_yticks(range(len(known)), [row.method for row in known])
    axis.set_xlabel("error, %; dots are seeds")
    content = io.BytesIO()
    drawn.savefig(content, dpi=120, format="png")
    return content.getvalue()
