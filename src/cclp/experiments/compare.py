"""Methods side by side: the same splits, the same network, the same steps.

==================== ==============================================================
``compare.json``     what was asked for; the directory belongs to it
``runs/``            a run directory for each method and seed
``results.json``     errors, times and differences, so far
``results.md``       the same as a table
``figure.png``       the same as a figure
==================== ==============================================================
"""

import io
import statistics
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cclp.experiments.sweep import Cell, go
from cclp.files import write_bytes, write_json
from cclp.methods import check_methods, file_name, method_parts
from cclp.progress import Reporter
from cclp.runs.directory import Metrics, read_json
from cclp.training.config import Config

REFERENCE, BASELINE = "cclp", "supervised"


@dataclass(frozen=True)
class Row:
    """What is known of a method.

    Attributes:
        method: its name.
        errors: by seed, of the runs that are finished.
        step_seconds: median of all logged steps; None if there is none.
        diverged: seeds with which its loss did not stay finite.
    """

    method: str
    errors: dict[int, float]
    step_seconds: float | None
    diverged: tuple[int, ...] = ()


def compare(
    config: Config,
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    report: Reporter | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Row]:
    """Train every method with every seed, what is finished already excepted.

    A run whose loss does not stay finite is a result too: the others go on.

    Args:
        config: of all runs, but for method and seed.
        methods: names, see :func:`cclp.methods.method_parts`.
        seeds: each draws its own labeled set and weights, the same for all methods.
        out: directory; one of the same comparison is gone on with.
        report: what the user sees.
        should_stop: asked after each step.

    Raises:
        ValueError: for wrong settings, or if ``out`` holds another comparison.
        cclp.runs.start.Stopped: if ``should_stop`` said so; all is saved.
    """
    report = report or Reporter()
    check_methods(methods)
    _claim(out, config)
    diverged: set[tuple[str, int]] = set()
    cells = [  # seed by seed, so that an unfinished comparison is a fair one
        _cell(config, method, seed) for seed in seeds for method in methods
    ]
    for ended in go(cells, out / "runs", report, should_stop):
        if ended.problem is not None:
            method, seed = ended.cell.config.method, ended.cell.config.seed
            report.warn(f"{method}, seed {seed}: {ended.problem}. Going on with the others.")
            diverged.add((method, seed))
        write_results(out, methods, diverged)
    return write_results(out, methods, diverged)


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
            same = Config.from_json({**read_json(out, "compare.json")["config"], **ours}) == config
        except (KeyError, TypeError, ValueError):
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


def write_results(
    out: Path, methods: Sequence[str], diverged: Set[tuple[str, int]] = frozenset()
) -> list[Row]:
    """Read all finished runs of a comparison and write what they say together.

    Args:
        out: its directory.
        methods: in this order.
        diverged: methods and seeds of runs that could not be finished.
    """
    results = [
        read_json(path.parent, "result.json") | {"folder": path.parent}
        for path in sorted((out / "runs").glob("*/result.json"))
    ]
    rows = [
        replace(
            _row(method, results),
            diverged=tuple(sorted(seed for name, seed in diverged if name == method)),
        )
        for method in methods
    ]
    table = [_summary(row, rows) for row in rows]
    environment = results[0]["environment"] if results else None
    write_json(out / "results.json", {"methods": table, "environment": environment})
    write_bytes(out / "results.md", markdown(table).encode())
    write_bytes(out / "figure.png", figure(rows))
    return rows


def _row(method: str, results: list[dict[str, Any]]) -> Row:
    errors, seconds = {}, []
    for result in results:
        if result["method"] == method and result["error"] is not None:
            errors[int(result["seed"])] = float(result["error"])
            lines = Metrics(result["folder"] / "metrics.jsonl").lines()
            seconds += [line["step_seconds"] for line in lines]
    return Row(
        method, dict(sorted(errors.items())), statistics.median(seconds) if seconds else None
    )


def _summary(row: Row, rows: list[Row]) -> dict[str, Any]:
    """A method's figures: spread over seeds, cost relative to labels alone, paired differences."""
    by_name = {other.method: other for other in rows}
    base, reference = by_name.get(BASELINE), by_name.get(REFERENCE)
    errors = list(row.errors.values())
    others = reference.errors if reference is not None and reference is not row else {}
    paired = [error - others[seed] for seed, error in row.errors.items() if seed in others]
    relative = (
        row.step_seconds / base.step_seconds
        if base is not None and base.step_seconds and row.step_seconds
        else None
    )
    return {
        "method": row.method,
        "errors": {str(seed): error for seed, error in row.errors.items()},
        "diverged": list(row.diverged),
        "mean": statistics.fmean(errors) if errors else None,
        "standard_deviation": statistics.stdev(errors) if len(errors) > 1 else None,
        "step_seconds": row.step_seconds,
        "steps_relative_to_supervised": relative,
        "to_cclp": statistics.fmean(paired) if paired else None,
        "to_cclp_standard_deviation": statistics.stdev(paired) if len(paired) > 1 else None,
    }


def markdown(table: list[dict[str, Any]]) -> str:
    """One row per method, best first; what is not known yet is a dash."""
    lines = [
        "| method | error, % | seeds | difference to cclp, points | step time ÷ supervised |",
        "|---|---|---|---|---|",
    ]
    for row in sorted(table, key=lambda row: (row["mean"] is None, row["mean"])):
        lines.append(
            f"| {row['method']} "
            f"| {_spread(row['mean'], row['standard_deviation'])} "
            f"| {len(row['errors'])}{_diverged(row)} "
            f"| {_spread(row['to_cclp'], row['to_cclp_standard_deviation'], '+')} "
            f"| {_number(row['steps_relative_to_supervised'])} |"
        )
    return "\n".join(lines) + "\n"


def _spread(mean: float | None, deviation: float | None, sign: str = "") -> str:
    if mean is None:
        return "–"
    spread = "" if deviation is None else f" ± {100 * deviation:.2f}"
    return f"{100 * mean:{sign}.2f}{spread}"


def _diverged(row: dict[str, Any]) -> str:
    return f", {len(row['diverged'])} diverged" if row["diverged"] else ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def figure(rows: list[Row]) -> bytes:
    """Errors of all methods, best at the top; a dot is a seed."""
    from matplotlib.figure import Figure

    known = [row for row in rows if row.errors]
    known.sort(key=lambda row: -statistics.fmean(row.errors.values()))
    drawn = Figure(figsize=(7, 1 + 0.4 * max(len(known), 1)), layout="constrained")
    axis = drawn.subplots()
    for place, row in enumerate(known):
        errors = [100 * error for error in row.errors.values()]
        colour = "tab:orange" if "cclp" in row.method.split("+") else "silver"
        axis.barh(place, statistics.fmean(errors), color=colour)
        axis.plot(errors, [place] * len(errors), "k.", ms=4)
    axis.set_yticks(range(len(known)), [row.method for row in known])
    axis.set_xlabel("error, %; dots are seeds")
    content = io.BytesIO()
    drawn.savefig(content, dpi=120, format="png")
    return content.getvalue()
