"""What the runs of a study have found, as plain records under today's names."""

from pathlib import Path
from typing import Any

from cclp.experiments.folder import damage_named
from cclp.experiments.study import DIVERGED, read_problem
from cclp.runs.record import read_config, read_json
from cclp.runs.upgrade import upgrade_result

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
    finished = (run / "result.json").exists()
    if not finished and not (run / DIVERGED).exists():
        return None
    about, config = read_config(run)
    result: Record = {}
    if finished:
        with damage_named(run / "result.json"):
            result = upgrade_result(read_json(run, "result.json"))
            result = {name: result[name] for name in ("error", "seconds", "environment")} | {
                "decisions": result.get("decisions", {})
            }
    with damage_named(run / "config.json"):
        return {
            "error": None,
            "data": config.data,
            "verified": about["data"]["verified"],
            "num_labels": config.num_labels,
            "method": config.method,
            "settings": config.method_settings,
            "seed": config.seed,
            "recipe": config.recipe.to_json(),
            "decisions": {},
            "precision": config.precision,
            "environment": about["environment"],
            "seconds": None,
            "problem": None if finished else read_problem(run),
            **result,
        }
