"""Choose what to train: by cross-validation over the labels, among what a run can hold."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from cclp.data.splits import Indices
from cclp.pseudo_labels.evidence import log_evidence
from cclp.pseudo_labels.shares import FAR, distance
from cclp.selection.cross_validation import OutOfFold, clearly_worse, cross_validate
from cclp.selection.problem import Candidate, Floats, Problem
from cclp.selection.simple import TITLES
from cclp.selection.verdict import Ints, Row, Verdict, class_rows, interval, score
from cclp.training.recipe import Recipe, Settings, linear

FEW_LABELS = 7  # of each class: with fewer, cross-validation says little, and unlabeled data much
PREFERENCE = np.log(20)  # prior log-odds of the first candidate
SHORTER, FEWEST_STEPS = 4, 20  # a training with a quarter of the steps, if that is enough
CLEAR = 0.05  # level of the sign test that calls a model clearly better
LOGISTIC, MAJORITY = "logistic_regression", "majority"
FROM_LABELS = (LOGISTIC, "random_forest", "supervised")
ADVICE = {
    "random_forest": (
        "sklearn.ensemble",
        "RandomForestClassifier",
        "data.train_x[known], data.train_y[known]",
    ),
    "graph": ("cclp.sklearn", "GraphLabelPropagation", "data.train_x, data.train_y"),
}


class Selection(NamedTuple):
    """What was chosen, and why.

    Attributes:
        candidate: to be trained on all labels.
        verdict: None if labels are too few to judge by.
        tested: samples whose labels were predicted out of fold, (T,).
        logits: of these by the chosen model, divided by its temperature, (T, C).
    """

    candidate: Candidate
    verdict: Verdict | None
    tested: Indices
    logits: Floats


def candidates(
    recipe: Recipe, num_labels: int, images: bool, settings: Settings
) -> list[Candidate]:
    """What may be chosen, the one that is preferred first.

    Args:
        recipe: of the preferred one.
        num_labels: of all classes.
        images: or vectors.
        settings: of methods, by method and name.
    """
    method = recipe.method
    found = [
        Candidate(method, _title(method), method, recipe, settings),
        Candidate("supervised", "the same net, labels only", "supervised", recipe, {}),
    ]
    steps = recipe.max_steps // SHORTER
    if steps >= FEWEST_STEPS:  # where the error rises again
        title = f"{_title(method)}, {steps} steps"
        shorter = Candidate(
            f"{method}, short", title, method, replace(recipe, max_steps=steps), settings
        )
        found.insert(1, shorter)
    if images or recipe.net != "mlp":
        return found
    simple = linear(recipe, num_labels)
    graph = {k: v for k, v in settings.items() if k == "graph_pseudo_label"}
    return [
        *found,
        Candidate(LOGISTIC, TITLES[LOGISTIC], "supervised", simple, {}),
        Candidate(
            "linear+graph_pseudo_label",
            "linear + graph pseudo-labels",
            "graph_pseudo_label",
            replace(simple, l2_classifier=recipe.l2_classifier),
            graph,
        ),
    ]


def _title(method: str) -> str:
    return (
        method.replace("cclp", "CCLP")
        .replace("graph_pseudo_label", "graph pseudo-labels")
        .replace("+", " + ")
    )


def select(
    problem: Problem,
    recipe: Recipe,
    settings: Settings,
    cache: Path | None = None,
    seconds: float | None = None,
    training: float = 0.0,
) -> Selection:
    """Judge candidates and simple models by cross-validation, and choose a candidate.

    Args:
        problem: samples and labels.
        recipe: of the preferred candidate.
        settings: of methods, by method and name.
        cache: folder that keeps what is done, for the next time.
        seconds: that may be spent.
        training: that a training of the preferred candidate takes, if that is known.
    """
    labels = problem.y[problem.split.labeled]
    nets = candidates(recipe, len(labels), problem.x.ndim == 4, settings)
    found = cross_validate(problem, nets, cache, seconds, training)
    if found is None:
        nothing = np.empty((0, problem.num_classes))
        return Selection(nets[0], None, np.empty(0, np.int64), nothing)
    y, counts = problem.y[found.index], np.bincount(labels, minlength=problem.num_classes)
    chosen = choose(found, y, [c.name for c in nets], counts, problem.shares)
    temperature = fit_temperature(found.rows(chosen), y)
    verdict = make_verdict(problem, found, nets, chosen, temperature)
    candidate = next(c for c in nets if c.name == chosen)
    return Selection(candidate, verdict, found.index, found.rows(chosen) / temperature)


def choose(found: OutOfFold, y: Ints, names: Sequence[str], counts: Ints, shares: Floats) -> str:
    """The candidate with the largest posterior probability.

    The likelihood is that of the labels under a model that is right as often as it was; classes
    count by their shares of all samples, however many labels they have. The first candidate is
    preferred, the more so where there are few labels of a class, as in
    :func:`cclp.pseudo_labels.committee.committee_weights`: another must be better by more than a
    label or two. Those that were clearly worse after some folds are out.

    Args:
        found: predictions of labels.
        y: these labels, (T,).
        names: of the candidates.
        counts: of all labels by class, tested or not, (C,).
        shares: of the classes, (C,).
    """
    per_class = len(counts) / (1 / np.maximum(counts, 1)).sum()
    posterior = []
    for number, name in enumerate(names):
        rows = found.rows(name)
        if len(rows) < len(y):
            posterior.append(-np.inf)
            continue
        evidence = log_evidence(rows.argmax(1) == y, y, shares)
        few = 4 * np.log(max(1.0, FEW_LABELS / per_class))
        posterior.append(evidence + (PREFERENCE + few if number == 0 else 0.0))
    return names[int(np.argmax(posterior))]


def fit_temperature(logits: Floats, y: Ints) -> float:
    """The temperature that makes labels most likely: of probabilities that mean what they say.

    A few labels that are all predicted right would ask for certainty; an eighth of a label of each
    class is spread over them, so that it stays finite.

    Args:
        logits: of samples that the model has not seen, (T, C).
        y: their classes, (T,).
    """
    classes = logits.shape[1]
    target = np.full(logits.shape, 0.125 / len(y))
    target[np.arange(len(y)), y] += 1

    def loss(log_temperature: float) -> float:
        return float(-(target * log_softmax(logits / np.exp(log_temperature), 1)).sum() / classes)

    best = minimize_scalar(loss, bounds=(-3.0, 4.0), method="bounded")
    return float(np.exp(best.x))


def make_verdict(
    problem: Problem,
    found: OutOfFold,
    choices: Sequence[Candidate],
    chosen: str,
    temperature: float,
) -> Verdict:
    """The table, and what it comes to in words."""
    y = problem.y[found.index]
    counts = np.bincount(problem.y[problem.split.labeled], minlength=problem.num_classes)
    titles = TITLES | {c.name: c.title for c in choices}
    predicted = {name: found.rows(name).argmax(1) for name in found.log_probabilities}
    predicted[MAJORITY] = np.full(len(y), counts.argmax())
    trainable = {c.name for c in choices}
    rows = []
    for name, classes in predicted.items():
        tested = len(classes)
        error, balanced, f1 = score(classes, y[:tested])
        low, high = interval(error, tested)
        seconds = round(found.seconds.get(name, 0.0), 2)
        found_row = (error, low, high, balanced, f1, seconds)
        rows.append(Row(name, titles[name], tested, *found_row, name in trainable))
    rows.sort(key=lambda row: row.error)
    return Verdict(
        rows=tuple(rows),
        chosen=chosen,
        sentences=tuple(_sentences(problem, rows, chosen, predicted, y, counts)),
        advice=None if problem.x.ndim > 2 else _advice(rows, chosen, predicted, y),
        classes=tuple(class_rows(predicted[chosen], y, problem.classes, counts)),
        tested=len(y),
        folds=found.folds,
        steps=found.steps,
        temperature=temperature,
    )


def _sentences(
    problem: Problem,
    rows: Sequence[Row],
    chosen: str,
    predicted: dict[str, Ints],
    y: Ints,
    counts: Ints,
) -> list[str]:
    by_name = {row.name: row for row in rows}
    mine = by_name[chosen]
    without = min((r for r in rows if r.name in FROM_LABELS), key=lambda row: row.error)
    with_it = min(
        (r for r in rows if r.name not in (*FROM_LABELS, MAJORITY)), key=lambda row: row.error
    )
    said = []
    if problem.split.all_labeled:
        said.append(f"All samples are labeled: {mine.title} is used ({mine.error:.0%} errors).")
    elif chosen in FROM_LABELS and is_better(predicted[with_it.name], predicted[chosen], y):
        said.append(
            f"{mine.title} is used ({mine.error:.0%} errors). {with_it.title}, which uses "
            f"unlabeled data, makes fewer ({with_it.error:.0%}), but cclp train cannot train it."
        )
    elif chosen in FROM_LABELS:
        said.append(
            f"Unlabeled data does not clearly help here: {mine.title} from labels alone makes "
            f"{mine.error:.0%} errors, {with_it.title} {with_it.error:.0%}; the former is used."
        )
    elif mine.error < without.error:
        sure = is_better(predicted[chosen], predicted[without.name], y)
        perhaps = "" if sure else ", though the difference may be chance"
        said.append(
            f"Unlabeled data helps here: {without.error:.0%} errors from labels alone "
            f"({without.title}), {mine.error:.0%} with it ({mine.title}){perhaps}."
        )
    elif is_better(predicted[without.name], predicted[chosen], y):
        best = min(row.error for row in rows if row.trainable)
        why = "the best that it can" if mine.error == best else "not clearly worse than what it can"
        said.append(
            f"Unlabeled data does not help here: {without.title} from labels alone makes "
            f"{without.error:.0%} errors, but cclp train cannot train it; {mine.title} "
            f"({mine.error:.0%}) is {why}."
        )
    else:
        said.append(
            f"Cross-validation over so few labels cannot tell whether unlabeled data helps: "
            f"{mine.error:.0%} errors with it ({mine.title}), {without.error:.0%} without "
            f"({without.title}). It is used, as it usually helps."
        )
    single = [name for name, count in zip(problem.classes, counts, strict=True) if count < 2]
    of = f" of the {len(counts) - len(single)} classes with two labels or more" if single else ""
    said.append(
        f"Expect {mine.low:.0%} to {mine.high:.0%} errors on new samples{of} like the labeled ones "
        f"({len(y)} labels, each predicted by a model that had not seen it)."
    )
    tested = np.bincount(y, minlength=len(counts)) / len(y)
    if distance(problem.shares, tested) > FAR:
        wrong = [(predicted[chosen][y == c] != c).mean() for c in np.unique(y)]
        sizes = problem.shares[np.unique(y)]
        said.append(
            f"Classes are not as frequent as their labels, as far as the samples show: with their "
            f"estimated shares that is about {np.average(wrong, weights=sizes):.0%} errors."
        )
    if mine.error >= by_name[MAJORITY].error:
        said.append(
            "No model is better than always saying the most frequent class: the inputs do not show "
            "the classes, or more labels are needed."
        )
    if single:
        some = ", ".join(single[:5]) + (" …" if len(single) > 5 else "")
        said.append(f"Classes with one label cannot be measured: {some}.")
    return said


def is_better(first: Ints, second: Ints, y: Ints) -> bool:
    """Whether the first predictions are clearly better, on labels that both were asked about."""
    both = min(len(first), len(second))
    right = [classes[:both] == y[:both] for classes in (second, first)]
    return clearly_worse(right[0], right[1], CLEAR)


def _advice(rows: Sequence[Row], chosen: str, predicted: dict[str, Ints], y: Ints) -> str | None:
    """How to use a model that ``cclp train`` cannot train and that is clearly better."""
    best = next(row for row in rows if row.name != MAJORITY)
    if best.name not in ADVICE or not is_better(predicted[best.name], predicted[chosen], y):
        return None
    module, model, fitted = ADVICE[best.name]
    return (
        f"from cclp.data.load import load; from {module} import {model}\n"
        "data = load(PATH, target=COLUMN)  # as cclp train: target of tables, features if given\n"
        f"known = data.train_y >= 0; model = {model}().fit({fitted})"
    )
