"""The paper's Table 1 as it is printed, and what our runs do not have in common with it."""

from typing import Any, Literal, NamedTuple

from cclp.experiments.aggregate import Summary
from cclp.experiments.settings import with_defaults
from cclp.methods import method_parts
from cclp.training.config import Config
from cclp.training.recipe import Recipe, Settings, make_recipe

Labels = Literal["few", "all"]
FEW = {"mnist": 100, "svhn": 1000, "cifar10": 4000}
TITLES = {"mnist": "MNIST", "svhn": "SVHN", "cifar10": "CIFAR-10"}
PAPER_SEEDS = 10
PRECISIONS = {"32": "float32", "bf16": "bfloat16"}
PSEUDO_LABELS = "graph_pseudo_label"


class Column(NamedTuple):
    """A column of the table."""

    data: str
    labels: Labels
    ssl: bool = True

    @property
    def title(self) -> str:
        if self.labels == "few":
            return f"{TITLES[self.data]}, {FEW[self.data]} labels"
        return f"{TITLES[self.data]}, all" if self.ssl else f"{TITLES[self.data]}, all, no SSL"


COLUMNS = tuple(
    column
    for data in FEW
    for column in (Column(data, "few"), Column(data, "all"), Column(data, "all", ssl=False))
)


def _quoted(*values: str) -> dict[Column, Summary]:
    """Values in percent as they are printed, a dash where there is none."""
    found = {}
    for column, value in zip(COLUMNS, values, strict=True):
        if value != "-":
            mean, _, deviation = value.partition("±")
            found[column] = Summary(float(mean), float(deviation) if deviation else None)
    return found


# fmt: off
PAPER: dict[str, dict[Column, Summary]] = {
    "conv-CatGAN": _quoted("1.39±0.28", "0.48", "-", "-", "-", "-", "19.58±0.46", "9.38", "-"),
    "Ladder (CNN-Γ)": _quoted("0.89±0.50", "-", "0.36", "-", "-", "-", "20.40±0.47", "-", "9.27"),
    "SDGM": _quoted("1.32±0.07", "-", "-", "16.61±0.24", "-", "-", "-", "-", "-"),
    "ADGM": _quoted("0.96±0.02", "-", "-", "22.86", "-", "-", "-", "-", "-"),
    "iGAN": _quoted("0.93±0.07", "-", "-", "8.11±1.3", "-", "-", "18.63±2.32", "-", "-"),
    "ALI": _quoted("-", "-", "-", "7.42±0.65", "-", "-", "17.99±1.62", "-", "-"),
    "VAT": _quoted("1.36", "0.64", "1.11", "6.83", "-", "-", "14.87", "5.81", "6.76"),
    "triple GAN": _quoted("0.91±0.58", "-", "-", "5.77±0.17", "-", "-", "16.99±0.36", "-", "-"),
    "mmCVAE": _quoted("1.24±0.54", "0.31", "-", "4.95±0.18", "3.09", "-", "-", "-", "-"),
    "BadGAN": _quoted("0.80±0.10", "-", "-", "4.25±0.03", "-", "-", "14.41±0.30", "-", "-"),
    "LBA": _quoted("0.89±0.08", "0.36±0.03", "-", "-", "-", "-", "-", "-", "-"),
    "LBA (the authors')": _quoted(
        "0.90±0.10", "0.36±0.03", "0.46±0.03", "9.25±0.65", "3.61±0.10", "4.26±0.10",
        "19.33±0.51", "8.46±0.18", "9.33±0.14"),
    "CCLP": _quoted(
        "0.75±0.14", "0.32±0.03", "0.46±0.03", "5.69±0.28", "3.04±0.05", "4.26±0.10",
        "18.57±0.41", "8.04±0.18", "9.33±0.14"),
    "Π model (larger net)": _quoted(
        "-", "-", "-", "5.43±0.25", "-", "-", "16.55±0.29", "-", "-"),
    "Mean teacher (larger net)": _quoted(
        "-", "-", "-", "5.21±0.21", "2.77±0.09", "3.04±0.04", "17.74±0.29", "7.21±0.24",
        "7.43±0.06"),
    "VAT-large (larger net)": _quoted("-", "-", "-", "5.77", "-", "-", "14.82", "-", "-"),
    "VAT-large-Ent (larger net)": _quoted("-", "-", "-", "4.28", "-", "-", "13.15", "-", "-"),
}
# fmt: on
MODELS = {  # the row that a method is to be read beside
    "cclp": "CCLP",
    "lba": "LBA (the authors')",
    "supervised": "CCLP",
    "vat": "VAT",
    "vat_large": "VAT-large (larger net)",
    "vat_large_ent": "VAT-large-Ent (larger net)",
    "pi_model": "Π model (larger net)",
    "mean_teacher": "Mean teacher (larger net)",
    "improved_gan": "iGAN",
    "bad_gan": "BadGAN",
    "catgan": "conv-CatGAN",
    "ali": "ALI",
    "triple_gan": "triple GAN",
    "ladder_gamma": "Ladder (CNN-Γ)",
    "sdgm": "SDGM",
    "adgm": "ADGM",
    "mmcvae": "mmCVAE",
}  # fmt: skip
BY_THE_AUTHORS = ("cclp", "lba", "supervised")  # run by them, with their network and settings


class Variant(NamedTuple):
    """A row of the table that is a method with a network and settings of its own."""

    method: str
    net: str
    settings: Settings


VARIANTS = {
    "vat_large": Variant("vat", "large", {"vat": {"entropy": 0.0}}),
    "vat_large_ent": Variant("vat", "large", {"vat": {"entropy": 1.0}}),
}
LARGER_NETS = {  # of the methods' own papers, where the table has their values
    (data, method): net
    for net, data_sets, methods in (
        ("discriminator_mlp", ("mnist",), ("improved_gan", "bad_gan")),
        ("large", ("svhn", "cifar10"), ("pi_model", "mean_teacher")),
    )
    for data in data_sets
    for method in methods
}


def row_name(method: str, net: str, settings: Settings) -> str:
    """The row of the table that a run belongs to.

    Args:
        method, net: of the run.
        settings: of its methods, by method and name.
    """
    found = with_defaults({name: settings.get(name, {}) for name in method_parts(method)})
    for row, variant in VARIANTS.items():
        wanted = variant.settings[variant.method].items()
        if (method, net) == variant[:2] and wanted <= found[variant.method].items():
            return row
    return method


def model_of(row: str) -> str | None:
    """The row of the paper that ours is to be read beside, with or without pseudo-labels."""
    if row in VARIANTS:
        return MODELS[row]
    parts = [part for part in method_parts(row) if part != PSEUDO_LABELS]
    if row == "supervised" or (parts and len(parts) == 1):
        return MODELS.get(parts[0] if parts else row)
    return None


def differs_from_paper(records: list[dict[str, Any]]) -> str:
    """List what the runs of one cell of the table do not have in common with the paper's.

    Args:
        records: of all seeds, see :func:`cclp.experiments.outcomes.read_outcome`.
    """
    first = records[0]
    own = [part for part in method_parts(first["method"]) if part != PSEUDO_LABELS]
    by_them = all(part in BY_THE_AUTHORS for part in own)
    all_labels = first["num_labels"] is None
    ours = Recipe.from_json(first["recipe"])
    theirs = make_recipe("paper", first["data"], all_labels=all_labels)
    parts = [
        *(_training(ours, theirs, all_labels) if by_them else _protocol(ours)),
        *_pseudo_labels(records),
        *_augmentation(ours),
        *_settings(first, theirs),
    ]
    if not all(record["verified"] for record in records):
        parts.append("not the published files")
    seeds = sum(record["error"] is not None for record in records)
    if seeds != PAPER_SEEDS:
        parts.append(f"{seeds} of {PAPER_SEEDS} seeds")
    machines = {record["environment"]["machine"]["processor"] for record in records}
    precisions = {PRECISIONS.get(record["precision"], "?") for record in records}
    parts.append(f"{' and '.join(sorted(precisions))} on {' and '.join(sorted(machines))}")
    return ", ".join(parts)


def _protocol(ours: Recipe) -> list[str]:
    """How a method was trained whose value the paper quotes from another."""
    return [
        f"net {ours.net}, {ours.max_steps:,} steps of {10 * ours.per_class} + "
        f"{ours.unlabeled_batch} images, recipe {ours.name}; the value beside it was published by "
        "the method's authors, with a network and schedule of theirs"
    ]


def _training(ours: Recipe, theirs: Recipe, all_labels: bool) -> list[str]:
    """Differences in steps, net, batches, learning rate, weight decay and batch norm."""
    unknown = " (not published for all labels)" if all_labels else ""
    parts = {
        f"{ours.max_steps:,} steps instead of {theirs.max_steps:,}{unknown}": (
            ours.max_steps != theirs.max_steps
        ),
        f"net {ours.net} instead of {theirs.net}": ours.net != theirs.net,
        f"{10 * ours.per_class} + {ours.unlabeled_batch} images a step instead of "
        f"{10 * theirs.per_class} + {theirs.unlabeled_batch}": (
            (ours.per_class, ours.unlabeled_batch) != (theirs.per_class, theirs.unlabeled_batch)
        ),
        f"learning rate {ours.learning_rate:g} instead of {theirs.learning_rate:g}": (
            ours.learning_rate != theirs.learning_rate
        ),
        "another schedule of the learning rate": ours.schedule != theirs.schedule,
        f"weight decay {ours.l2_features:g} instead of {theirs.l2_features:g}": (
            ours.l2_features != theirs.l2_features
        ),
        f"weight decay of the classifier {ours.l2_classifier:g} instead of "
        f"{theirs.l2_classifier:g}": ours.l2_classifier != theirs.l2_classifier,
        f"Adam's epsilon {ours.adam_eps:g} instead of {theirs.adam_eps:g}": (
            ours.adam_eps != theirs.adam_eps
        ),
        "batch norm recalibrated": ours.recalibrate_batchnorm,
    }
    return [part for part, differs in parts.items() if differs]


def _pseudo_labels(records: list[dict[str, Any]]) -> list[str]:
    """Pseudo-labels from the nearest-neighbour graph, which the paper does not have."""
    settings = with_defaults(records[0]["settings"]).get(PSEUDO_LABELS)
    if settings is None:
        return []
    warmups = {  # a run may have decided to skip it
        record["decisions"].get("supervised_warmup", settings["supervised_warmup"])
        for record in records
    }
    about = [f"weight {settings['weight']:g}"]
    if settings["decay"] < 1:
        about.append(f"decay over {settings['decay']:.0%} of the steps")
    about.append(f"{settings['refreshes'] or 'no'} refreshes")
    for share in sorted(warmups):
        over = f"over {share:.0%} of the steps" if share else "none"
        about.append(f"supervised warm-up: {over}")
    return [f"pseudo-labels from a nearest-neighbour graph ({'; '.join(about)})"]


def _augmentation(ours: Recipe) -> list[str]:
    """Each kind of augmentation; the paper has none."""
    parts = {
        f"random affine augmentation (strength {ours.random_affine:g})": ours.random_affine > 0,
        "color jitter and inversion": ours.color_jitter,
        "horizontal flip": ours.horizontal_flip,
    }
    return [part for part, used in parts.items() if used]


def _settings(record: dict[str, Any], theirs: Recipe) -> list[str]:
    """Settings of the methods that are not those of the paper's recipe."""
    methods = [part for part in method_parts(record["method"]) if part != PSEUDO_LABELS]
    paper = Config(record["data"], theirs, method="+".join(methods) or "supervised")
    expected, found = with_defaults(paper.method_settings), with_defaults(record["settings"])
    return [
        f"{method}.{name} {value:g} instead of {expected[method][name]:g}"
        if isinstance(value, float) and isinstance(expected[method].get(name), float)
        else f"{method}.{name} {value} instead of {expected[method].get(name)}"
        for method in methods
        for name, value in found[method].items()
        if value != expected[method].get(name)
    ]
