"""The configuration of a run, from the options of ``cclp train``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from cclp.checks import refuse_options
from cclp.data.load import find_kind
from cclp.data.published.catalog import CATALOG
from cclp.data.user.features import absolute_name
from cclp.methods import method_parts, required_net
from cclp.training.config import Config
from cclp.training.recipe import Recipe, Setting, Settings, make_recipe
from cclp.user_code import is_user_code

AUTO = "auto"


def is_auto(
    data: str,
    method: str | None = None,
    recipe: str | None = None,
    net: str | None = None,
    pseudo_label_features: Path | None = None,
    devices: int = 1,
    **options: Any,
) -> bool:
    """Whether models are compared first: if it is asked for, or for own data nothing else is.

    Raises:
        ValueError: if it is asked for and cannot be.
    """
    others = {"pseudo_label_features": pseudo_label_features, "devices": devices > 1}
    if method == AUTO:
        refuse_options(others, f"has no effect with --method {AUTO}: name a method")
        return True
    plain = method is None and net is None and recipe in (None, "fast")
    return plain and data not in CATALOG and not any(others.values())


def make_config(
    data: str,
    num_labels: int | str | None = None,
    recipe: str | None = None,
    data_dir: Path | None = None,
    net: str | None = None,
    method: str | None = None,
    no_verify: bool = False,
    chain_steps: int | None = None,
    pseudo_label_features: Path | None = None,
    features: str | None = None,
    labels_from: Path | None = None,
    weights: tuple[tuple[str, float], ...] = (),
    settings: tuple[tuple[str, str, Setting], ...] = (),
    **options: Any,
) -> Config:
    """A configuration from the options of ``cclp train``."""
    if num_labels is None:
        num_labels = 100 if data in CATALOG and labels_from is None else "all"
    if recipe is None and net is not None and is_user_code(net):
        recipe = "short"  # what "fast" does suits its own net
    if method == AUTO:
        method = None
    kind = find_kind(data)
    if features is not None:
        if data in CATALOG:
            raise ValueError(f"--features is for your own files, not for {data}: leave it out")
        features, kind = absolute_name(features), "vectors"
    made = make_recipe(recipe, data, all_labels=num_labels == "all", kind=kind)
    overrides = {name: options.pop(name) for name in Recipe.__dataclass_fields__ if name in options}
    overrides = {name: value for name, value in overrides.items() if value is not None}
    method = method or made.method
    parts = method_parts(method)
    if not parts:
        unused: dict[str, Any] = {"weight": weights, "setting": settings}
        unused["unlabeled_batch"] = overrides.get("unlabeled_batch")
        refuse_options(unused, "has no effect with supervised")
    if "cclp" not in parts:
        refuse_options({"chain_steps": chain_steps}, f"has no effect with --method {method}")
    if "graph_pseudo_label" not in parts:
        unused = {"pseudo_label_features": pseudo_label_features}
        refuse_options(unused, f"has no effect with --method {method}")
    if required_net(method) is not None:
        refuse_options({"net": net}, f"has no effect with --method {method}: it has its own")
    if chain_steps is not None:
        settings += (("cclp", "chain_steps", chain_steps),)
    try:
        return Config(
            data=data if data in CATALOG else str(Path(data).resolve()),
            recipe=replace(made, **overrides, net=net or made.net),
            method=method,
            num_labels=None if num_labels == "all" else int(num_labels),
            data_dir=None if data_dir is None else str(data_dir.resolve()),
            verify=not no_verify,
            features=features,
            labels_from=None if labels_from is None else str(labels_from.resolve()),
            pseudo_label_features=None
            if pseudo_label_features is None
            else str(pseudo_label_features.resolve()),
            settings=named_settings(_named(weights, parts), settings),
            **options,
        )
    except TypeError as error:  # a setting of another type than the command line can know
        raise ValueError(str(error)) from None


def _named(
    weights: tuple[tuple[str, float], ...], parts: list[str]
) -> tuple[tuple[str, float], ...]:
    """Weights by method: one without a name is the only method's."""
    for method, weight in weights:
        if not method and len(parts) != 1:
            raise ValueError(f"--weight must name a method, as in {parts[0]}={weight:g}")
    return tuple((method or parts[0], weight) for method, weight in weights)


def named_settings(
    weights: tuple[tuple[str, float], ...], settings: tuple[tuple[str, str, Setting], ...]
) -> Settings:
    """Weights and other settings by method and name.

    Raises:
        ValueError: for one that is given twice.
    """
    found: Settings = {}
    for method, name, value in (*((m, "weight", w) for m, w in weights), *settings):
        if name in found.setdefault(method, {}):
            raise ValueError(f"the {name} of {method} is given twice")
        found[method][name] = value
    return found


def data_name(config: Config) -> str:
    """Of directories: the data and how many labels."""
    labels = "all" if config.num_labels is None else config.num_labels
    return f"{Path(config.data).stem}-{labels}"
