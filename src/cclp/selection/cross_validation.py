"""Every label predicted by models that have not seen it."""

import hashlib
import io
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from cclp import __version__
from cclp.data.npz import read_npz
from cclp.data.splits import Indices, Split
from cclp.files import write_bytes
from cclp.methods import method_parts
from cclp.progress import Reporter
from cclp.pseudo_labels.schedule import PseudoLabelSchedule, Start
from cclp.selection.problem import Candidate, Floats, Problem
from cclp.selection.simple import LEAST, TITLES, Predicted, fit_simple_models
from cclp.training.callbacks import (
    Callback,
    GraphPseudoLabels,
    RecalibrateAtEnd,
    pseudo_label_schedule,
)
from cclp.training.trainer import Trainer
from cclp.user_code import is_user_code

FOLDS, IMAGE_FOLDS = 5, 3
IMAGE_STEPS = 0.25  # of a training, in each fold: nets on images take minutes
FEWEST_STEPS = 0.05


@dataclass
class OutOfFold:
    """Predictions of labels by models that have not seen them.

    Attributes:
        index: of the tested samples, in the order of the rows; a model that was clearly worse was
            asked about the first of them only.
        log_probabilities: or logits, by model, (T, C).
        seconds: that each model took.
        folds: that were done.
        steps: share of the training steps that nets were given.
    """

    index: Indices
    steps: float
    folds: int = 0
    log_probabilities: dict[str, list[Floats]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def rows(self, model: str) -> Floats:
        """Of all tested samples, (T, C)."""
        return np.concatenate(self.log_probabilities[model])


def make_folds(y: Indices, labeled: Indices, most: int, seed: int) -> list[Indices]:
    """Stratified folds of the labels of classes that have two or more.

    Args:
        y: classes of all samples.
        labeled: which are labeled.
        most: number of folds; fewer if no class has so many labels.
        seed: of the draw.

    Examples:
        >>> y = np.array([0, 0, 0, 1, 1, 1, 2])
        >>> [sorted(y[fold].tolist()) for fold in make_folds(y, np.arange(7), 3, seed=0)]
        [[0, 1], [0, 1], [0, 1]]
    """
    rng, turn = np.random.default_rng([seed, 0xF01D]), 0
    fold = np.full(len(y), -1)
    for c in np.unique(y[labeled]):
        members = rng.permutation(labeled[y[labeled] == c])
        if len(members) > 1:
            fold[members] = (turn + np.arange(len(members))) % most
            turn += len(members)  # else all small classes would be in the first folds
    return [found for k in range(most) if len(found := np.flatnonzero(fold == k))]


def cross_validate(
    problem: Problem,
    candidates: Sequence[Candidate],
    cache: Path | None,
    seconds: float | None,
    training: float = 0.0,
) -> OutOfFold | None:
    """Predict every label by simple models and candidates that have not seen it.

    Args:
        problem: samples and labels.
        candidates: nets.
        cache: folder that keeps what is done, for the next time.
        seconds: that may be spent; once they are nearly over no fold is begun, but for the first.
        training: seconds that a whole training of the first candidate takes, if that is known; if
            it is too long for the first fold, nets get fewer steps.

    Returns:
        None if fewer than two classes have two labels.
    """
    images = problem.x.ndim == 4
    steps = IMAGE_STEPS if images else 1.0
    if seconds is not None and training > 0:  # the others take about as long together
        steps = float(np.clip(seconds / (2 * training), FEWEST_STEPS, steps))
    folds = make_folds(
        problem.y, problem.split.labeled, IMAGE_FOLDS if images else FOLDS, problem.seed
    )
    tested = np.concatenate([*folds, np.empty(0, np.int64)]).astype(np.int64)
    if len(folds) < 2 or len(np.unique(problem.y[tested])) < 2:
        return None
    found, begun = OutOfFold(folds[0][:0], steps), time.monotonic()
    parts = [_Fold(problem, hidden, steps, cache) for hidden in folds]
    simple = [fit_simple_models(problem, part.hidden) | {"graph": part.graph()} for part in parts]
    _say_simple(problem, simple, tested)
    nets = time.monotonic()
    with problem.report.work("Comparing models on held-back labels", len(folds)) as done:
        for predicted in simple:
            now = time.monotonic()
            a_fold = (now - nets) / max(1, found.folds)
            if seconds is not None and found.folds and now - begun + a_fold > seconds:
                break
            _one_fold(parts.pop(0), candidates, predicted, found)  # and its graph is let go
            done(1)
    return found


def _say_simple(problem: Problem, folds: list[dict[str, Predicted]], tested: Indices) -> None:
    """How simple models do, in a line: nets take longer."""
    said = []
    for name in folds[0]:
        classes = np.concatenate([fold[name].log_probabilities.argmax(1) for fold in folds])
        said.append(f"{TITLES[name]} {(classes != problem.y[tested]).mean():.0%}")
    problem.report.info(
        f"Errors on held-back labels: {', '.join(said)}. Now nets, which take longer."
    )


def _one_fold(
    fold: "_Fold",
    candidates: Sequence[Candidate],
    simple: dict[str, Predicted],
    found: OutOfFold,
) -> None:
    predicted = dict(simple)
    left = {c.name for c in _still_in(candidates, found, fold.problem.y)}
    for candidate in candidates:
        if candidate.name not in left:
            predicted.pop(candidate.name, None)
        elif candidate.name not in simple or fold.weighted:  # else scikit-learn finds the same
            predicted[candidate.name] = fold.net(candidate)
    for name, (values, seconds) in predicted.items():
        found.log_probabilities.setdefault(name, []).append(values)
        found.seconds[name] = found.seconds.get(name, 0.0) + seconds
    found.index = np.concatenate([found.index, fold.hidden])
    found.folds += 1


def _still_in(candidates: Sequence[Candidate], found: OutOfFold, y: Indices) -> Sequence[Candidate]:
    """Those that are not yet clearly worse than another: a sign test where the two differ."""
    if not found.folds:
        return candidates
    asked = {
        c.name: found.rows(c.name).argmax(1) == y[found.index]
        for c in candidates
        if len(found.log_probabilities[c.name]) == found.folds
    }
    return [
        c
        for c in candidates
        if c.name in asked
        and not any(clearly_worse(asked[c.name], other) for other in asked.values())
    ]


def clearly_worse(first: NDArray[np.bool_], second: NDArray[np.bool_], level: float = 0.01) -> bool:
    """Whether the first is right less often than the second: a sign test where they differ."""
    wins, losses = int((first & ~second).sum()), int((~first & second).sum())
    return bool(losses and binomtest(losses, wins + losses, alternative="greater").pvalue < level)


class _Fold:
    """One part of the labels, hidden from all models."""

    def __init__(self, problem: Problem, hidden: Indices, steps: float, cache: Path | None) -> None:
        self.problem, self.hidden, self.steps, self.cache = problem, hidden, steps, cache
        known = np.setdiff1d(problem.split.labeled, hidden)
        self.weighted = problem.label_weights(known) is not None
        self.split = Split(known, problem.split.unlabeled, problem.split.held_out)
        self.labeler = problem.labeler(self.split, PseudoLabelSchedule(1))
        self.starts: dict[PseudoLabelSchedule, Start] = {}

    def graph(self) -> Predicted:
        """By label propagation."""
        begun = time.monotonic()
        seen = np.searchsorted(self.problem.split.unlabeled, self.hidden)
        labels = np.maximum(self.labeler.graph.propagate()[seen], LEAST)
        return Predicted(np.log(labels).astype(np.float64), time.monotonic() - begun)

    def net(self, candidate: Candidate) -> Predicted:
        """By a network."""
        own = any(map(is_user_code, (candidate.recipe.net, *method_parts(candidate.method))))
        kept_in = None if own else self.cache  # code of the user's own may change
        file = None if kept_in is None else kept_in / f"{self._digest(candidate)}.npz"
        if file is not None and file.exists():
            with suppress(ValueError, KeyError):
                kept = read_npz(file)
                return Predicted(np.asarray(kept["logits"], np.float64), float(kept["seconds"]))
        begun = time.monotonic()
        trainer = self._train(candidate)
        logits = trainer.predict(self.problem.x, self.hidden).logits.double().numpy()
        seconds = time.monotonic() - begun
        if file is not None:
            content = io.BytesIO()
            np.savez(content, logits=logits, seconds=np.array(seconds))
            write_bytes(file, content.getvalue())
        return Predicted(np.asarray(logits), seconds)

    def _train(self, candidate: Candidate) -> Trainer:
        recipe = replace(
            candidate.recipe, max_steps=max(1, round(self.steps * candidate.recipe.max_steps))
        )
        candidate = candidate._replace(recipe=recipe)
        trainer = self.problem.trainer(candidate, self.split)
        callbacks: list[Callback] = [RecalibrateAtEnd()]
        schedule = pseudo_label_schedule(trainer)
        if schedule is not None:
            self.labeler.schedule = schedule
            if schedule not in self.starts:
                self.starts[schedule] = self.labeler.start()
            start = self.starts[schedule]
            callbacks.insert(0, GraphPseudoLabels(self.labeler, Reporter(), start))
        trainer.fit(callbacks)
        return trainer

    def _digest(self, candidate: Candidate) -> str:
        """Of all that the logits depend on; the data are in the name of the cache's folder."""
        problem, known = self.problem, self.split.labeled
        weights, prior = problem.label_weights(known), problem.class_prior(known)
        said: list[object] = [__version__, candidate, self.steps, problem.seed, problem.key]
        said += [self.hidden.tolist(), known.tolist(), self.split.held_out.tolist()]
        said += [problem.labeled_batch, None if prior is None else prior.tolist()]
        if weights is not None:
            said += [weights.samples.tolist(), str(weights.shares)]
        return hashlib.sha256(repr(said).encode()).hexdigest()[:24]
