"""The model card of an exported network: ``README.md`` as the Hugging Face Hub expects it.

Names of classes and data come from users. They stay text, whatever is in them.
"""

import re
from typing import Any

from cclp.data.splits import SOURCES
from cclp.data.user.features import short_name
from cclp.text import for_terminal

TASKS = {3: "image-classification", 1: "tabular-classification"}  # by dimensions of a sample
_SPECIAL = re.compile(r"[]\\`*_[(){}<>&!~|$:@^=#]|(?<=www)\.", re.IGNORECASE)  # within a line


def model_card(config: dict[str, Any]) -> str:
    """Metadata for the Hub, and a page for people.

    Args:
        config: the content of ``config.json``, as :func:`.export.export` writes it.
    """
    head = "".join(f"{name}: {_yaml(value)}\n" for name, value in _metadata(config).items())
    return f"---\n{head}---\n\n{_page(config)}"


def _metadata(config: dict[str, Any]) -> dict[str, Any]:
    """What the Hub searches and shows: of a network that was not measured, no results."""
    kind = config["file"].removeprefix("model.")
    task = TASKS.get(len(config["input"]["shape"]))
    found: dict[str, Any] = {
        "library_name": "cclp",
        "tags": ["cclp", "semi-supervised-learning", kind],
    }
    if task is not None:
        found["pipeline_tag"] = task
    if task is None or config["error"] is None:
        return found
    where = f"{SOURCES[config['evaluated_on']]}, {config['num_samples']} samples"
    results = {
        "task": {"type": task},
        "dataset": {
            "name": config["data"],
            "type": re.sub(r"[^a-z0-9]+", "-", config["data"].lower()).strip("-") or "own",
            "split": config["evaluated_on"],
        },
        "metrics": [
            {"type": "accuracy", "name": f"Accuracy ({where})", "value": 1 - config["error"]},
            {"type": "error", "name": f"Error ({where})", "value": config["error"]},
        ],
    }
    name = f"{config['configuration']['method']} on {config['data']}"
    found["metrics"] = ["accuracy"]
    found["model-index"] = [{"name": name, "results": [results]}]
    return found


def _yaml(value: Any) -> str:
    """A value on one line of YAML; every string is quoted."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_yaml(k)}: {_yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, float):
        return f"{value:.6f}"
    text = str(value).encode(errors="replace").decode()  # what is no character is no YAML either
    plain = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return '"' + "".join(plain) + '"'


def _page(config: dict[str, Any]) -> str:
    spec, asked, recipe = (
        config["input"],
        config["configuration"],
        config["configuration"]["recipe"],
    )
    data, unlike = _text(config["data"]), ""
    if config["data_verified"] is False:
        unlike = ", not the published files"
    classes = ", ".join(map(_text, spec["classes"]))
    shape = " x ".join(map(str, spec["shape"]))
    kind = "pixels" if len(spec["shape"]) == 3 else "features"
    scale = f", whole numbers from 0 to {spec['white']}" if spec["white"] is not None else ""
    if spec["features"] is not None:
        of = "of texts made" if spec["features"]["shape"] is None else "made"
        name = _text(short_name(spec["features"]["name"]))
        scale = f", {of} by {name}, which is not part of the network"
    elif spec["pixel_range"] is not None:
        low, high = spec["pixel_range"]
        scale += f" (pixels of the files from {low:g} to {high:g})"
    if config["error"] is not None:
        measured = f"the {SOURCES[config['evaluated_on']]}, {config['num_samples']} samples"
        found = f"{config['error']:.2%} error on {measured}; one run, its last iterate"
        if config["evaluated_on"] == "cross_validated":
            found = f"{config['error']:.2%} error by {SOURCES['cross_validated']}, "
            found += f"{config['num_samples']} of them"
    else:
        found = "not measured" if config["finished"] else "the training was not finished"
    versions = config["trained_with"]["versions"].items()
    rows = {
        "Data": f"{data}{unlike}",
        "Labels": _labels(config),
        "Classes": f"{len(spec['classes'])}: {classes}",
        "Input `x`": f"N x {shape} {kind}, float32{scale}; normalised inside",
        "Output": "`logits`, N x classes; `embedding`, N x features",
        "Accuracy": found,
        "Method": f"{_text(asked['method'])}, recipe {_text(recipe['name'])}, "
        f"{recipe['max_steps']:,} steps, seed {asked['seed']}",
        "Network": f"{_text(recipe['net'])}, {config['parameters']:,} parameters",
        "Versions": ", ".join(f"{_text(name)} {_text(number)}" for name, number in versions),
        "SHA-256": config["sha256"],
    }
    lines = [f"# {_text(config['file'])}: a classifier of {data}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows.items()]
    lines += ["", "Everything else about the training is in `config.json`. Made by `cclp export`."]
    return "\n".join(lines) + "\n"


def _labels(config: dict[str, Any]) -> str:
    """How many labels of each class the training had, if that is recorded."""
    counts = config["labels_per_class"]
    if counts is None:
        return str(config["num_labels"])
    total = sum(counts.values())
    if len(set(counts.values())) == 1:
        return f"{total}, {min(counts.values())} of each class"
    return f"{total}: {', '.join(f'{_text(name)} {count}' for name, count in counts.items())}"


def _text(name: object) -> str:
    """A name as Markdown that shows it on one line, and nothing else."""
    text = for_terminal(" ".join(str(name).encode(errors="replace").decode().split()))
    return _SPECIAL.sub(lambda special: f"\\{special.group()}", text)
