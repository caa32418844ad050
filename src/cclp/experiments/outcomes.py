"""What the runs of a study have found, as plain records under today's names."""

from pathlib import Path
from typing import Any

from cclp.experiments.folder import damage_named
from cclp.experiments.study import DIVERGED, read_problem
from cclp.runs.record import read_config, read_result

Record = dict[str, Any]


def read_outcomes(runs: Path) -> dict[str, Record]:
    """Records of all runs in a folder that are finished or have diverged, by directory."""
    found = {}
    for path in sorted(runs.glob("*/config.json")):
        outcome = read_outcome(path.parent)
        if outcome is not None:
            found[path.parent.name] = outcome
    return found


def read_outcome(run: Path) -> Record | None:
    """The record of a run; None as long as it has not ended.

    Returns:
        ``error`` and ``seconds`` (None if the run has diverged), ``problem`` (None if not), and
        the ``data``, ``verified``, ``num_labels`` (None: all), ``method``, ``settings`` (merged),
        ``seed``, ``recipe``, ``decisions``, ``precision`` and ``environment`` of the run.

    Raises:
        ValueError: if it is not a run directory, or a file of it is damaged.
    """
    result = read_result(run)
    if result is None and not (run / DIVERGED).exists():
        return None
    about, config = read_config(run)
    with damage_named(run / "config.json"):
        return {
            "error": None if result is None else result.error,
            "data": config.data,
            "verified": about["data"]["verified"],
            "num_labels": config.num_labels,
            "method": config.method,
            "settings": config.method_settings,
            "seed": config.seed,
            "recipe": config.recipe.to_json(),
            "decisions": {} if result is None else result.decisions,
            "precision": config.precision,
            "environment": about["environment"] if result is None else result.environment,
            "seconds": None if result is None else result.seconds,
            "problem": read_problem(run) if result is None else None,
        }
