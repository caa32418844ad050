"""Records of runs made by version 0.1 under today's names; their values are not touched."""

from typing import Any

_CCLP = {"weight": 1.0, "chain_steps": 3, "similarity": "dot", "bandwidth": 1.0}  # and defaults
_PSEUDO_LABELS = {  # name in 0.1: name now, default now
    "teach": ("weight", 1.0),
    "prior": ("decay", 1.0),
    "renew": ("refreshes", 0),
    "alone": ("supervised_warmup", 0.0),
}
_RECIPE = {
    "steps": "max_steps",
    "settle": "recalibrate_batchnorm",
    "jitter": "random_affine",
    "recolour": "color_jitter",
    "mirror": "horizontal_flip",
}
_CONFIG = {"labels": "num_labels", "label": "target", "prior_features": "pseudo_label_features"}
_GONE = ("strategy", "normalization", "weights")
_EVALUATED_ON = {
    "test set": "test",
    "held-out training set": "held_out",
    "held-out training images": "held_out",
    "nothing": None,
}
_WARNINGS = {  # the first words of a warning of the graph: its code now
    "One class may be swallowing": "collapsed",
    "Points see little but themselves": "isolated",
    "Labels do not spread": "uncertain",
    "Some unlabeled points hardly ever": "unreachable",
}


def is_old(recipe: Any) -> bool:
    """Whether a recorded recipe has the names of version 0.1."""
    return isinstance(recipe, dict) and "steps" in recipe


def upgrade_recipe(old: dict[str, Any]) -> dict[str, Any]:
    """A recipe of version 0.1; of ``prior`` and ``alone`` it had settings of a method."""
    recipe = {_RECIPE.get(name, name): value for name, value in old.items()}
    of_cclp = {name: recipe.pop(name, default) for name, default in _CCLP.items()}
    used = float(old.get("prior", 0.0)) > 0
    settings: dict[str, dict[str, Any]] = {
        "cclp": {name: value for name, value in of_cclp.items() if value != _CCLP[name]},
        "graph_pseudo_label": {},
    }
    for name, (new, default) in _PSEUDO_LABELS.items():
        value = recipe.pop(name, default if name != "teach" else 0.0)
        if used and value != default:
            settings["graph_pseudo_label"][new] = value
    if isinstance(recipe.get("random_affine"), bool):
        recipe["random_affine"] = float(recipe["random_affine"])
    if recipe["name"] == "digits":
        recipe["name"] = "short"
    recipe["method"] = "cclp+graph_pseudo_label" if used else "cclp"
    recipe["settings"] = {name: values for name, values in settings.items() if values}
    return recipe


def upgrade_method(method: str, recipe: dict[str, Any]) -> str:
    """In version 0.1 "cclp" stood for pseudo-labels from the graph too, if the recipe had them."""
    parts = method.split("+")
    if float(recipe.get("prior", 0.0)) > 0 and "cclp" in parts:
        parts.insert(parts.index("cclp") + 1, "graph_pseudo_label")
    return "+".join(parts)


def upgrade_config(config: dict[str, Any]) -> dict[str, Any]:
    """What ``config.json`` holds under "config"; of a comparison, the method may be None."""
    if not is_old(config.get("recipe")):
        return config
    found = {_CONFIG.get(name, name): v for name, v in config.items() if name not in _GONE}
    weights = config.get("weights", {})
    found.setdefault("settings", {name: {"weight": weight} for name, weight in weights.items()})
    found["recipe"] = upgrade_recipe(config["recipe"])
    if config["method"] is not None:
        found["method"] = upgrade_method(config["method"], config["recipe"])
    found["settings"] = _upgrade_settings(found["settings"], str(found["method"]))
    return found


def _upgrade_settings(settings: dict[str, Any], method: str) -> dict[str, Any]:
    """``steps`` of CCLP is the length of its chains; ``prior`` and ``teach`` are another's now.

    Without pseudo-labels, version 0.1 ignored the latter.
    """
    found = {name: dict(values) for name, values in settings.items()}
    of_cclp = found.get("cclp", {})
    if "steps" in of_cclp:
        of_cclp["chain_steps"] = of_cclp.pop("steps")
    moved = {new: of_cclp.pop(old) for old, (new, _) in _PSEUDO_LABELS.items() if old in of_cclp}
    if moved and "graph_pseudo_label" in method.split("+"):
        found["graph_pseudo_label"] = moved
    return {name: values for name, values in found.items() if values}


def upgrade_result(result: dict[str, Any]) -> dict[str, Any]:
    """What ``result.json`` holds."""
    if not is_old(result.get("recipe")):
        return result
    found = {name: value for name, value in result.items() if name not in _GONE}
    recipe, alone = result["recipe"], found.pop("alone", None)
    found["num_labels"] = found.pop("labels")
    found["num_samples"] = found.pop("samples" if "samples" in result else "images")
    found["evaluated_on"] = _EVALUATED_ON[found.pop("measured_on")]
    found["method"] = upgrade_method(result["method"], recipe)
    found["recipe"] = upgrade_recipe(recipe)
    found["decisions"] = {}
    if "graph_pseudo_label" in found["method"].split("+") and alone is not None:
        found["decisions"]["supervised_warmup"] = alone
        if alone > 0:
            found["decisions"]["pseudo_labels"] = "after_warmup"
    return found


def upgrade_warning(warning: str) -> str:
    """The code of a recorded warning of the graph: version 0.1 recorded its sentences."""
    return next((code for words, code in _WARNINGS.items() if warning.startswith(words)), warning)
