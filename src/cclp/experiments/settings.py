"""Settings of the methods with all defaults, and what two runs differ in."""

import inspect
from dataclasses import fields
from typing import Any

import cclp
from cclp.methods import METHODS, method_class
from cclp.training.config import Config
from cclp.training.recipe import Settings

_IDENTITY = ("data", "num_labels", "method", "seed")


def defaults(method: str) -> dict[str, Any]:
    """Settings of a method that are not given; of a user's own method none are known."""
    if method not in METHODS:
        return {}
    made = cclp.CCLPLoss if method == "cclp" else method_class(method)  # it hands its settings on
    parameters = inspect.signature(made).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def with_defaults(settings: Settings) -> dict[str, dict[str, Any]]:
    """Settings of methods, by method and name, with the methods' own defaults."""
    return {method: defaults(method) | values for method, values in settings.items()}


def differences(found: Config, wanted: Config) -> str:
    """List what makes two configurations different runs, on whatever machine."""
    pairs = [(name, getattr(found, name), getattr(wanted, name)) for name in _IDENTITY]
    pairs.append(("held_out", found.held_out or 0, wanted.held_out or 0))
    pairs += [
        (field.name, getattr(found.recipe, field.name), getattr(wanted.recipe, field.name))
        for field in fields(wanted.recipe)
        if field.name not in ("method", "settings")  # they are part of the run's own
    ]
    mine, theirs = (with_defaults(config.method_settings) for config in (found, wanted))
    pairs += [
        (f"{method}.{name}", mine.get(method, {}).get(name), theirs.get(method, {}).get(name))
        for method in mine.keys() & theirs.keys()
        for name in sorted(mine[method].keys() | theirs[method].keys())
    ]
    return ", ".join(
        f"{name} {here} instead of {there}" for name, here, there in pairs if here != there
    )
