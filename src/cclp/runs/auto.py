"""``--method auto``: what to train is chosen by cross-validation, and recorded with the run."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from cclp.data.dataset import Dataset
from cclp.data.weights import class_shares, label_weights
from cclp.files import cache_root, write_bytes, write_json
from cclp.methods import method_parts
from cclp.nets.registry import make_net
from cclp.progress import Reporter
from cclp.runs.data import split_data
from cclp.runs.outputs import predictions_file
from cclp.selection.problem import Candidate, Problem
from cclp.selection.select import Selection, select
from cclp.training.config import Config
from cclp.training.evaluation import EvaluationSet
from cclp.training.machine import make_fabric

TIMED_STEPS, FEWEST_STEPS = 6, 50


def make_problem(config: Config, data: Dataset, report: Reporter) -> Problem:
    """What a run is to learn."""
    names, y = data.spec.classes, data.train_y
    return Problem(
        data.train_x,
        y,
        split_data(config, data),
        names,
        config.seed,
        make_fabric=lambda: make_fabric(config.accelerator, config.precision),
        make_net=lambda net: make_net(net, data.spec.shape, data.num_classes),
        label_weights=lambda labeled: label_weights(
            y[labeled], names, config.class_weight, config.class_prior
        ),
        class_prior=lambda labeled: class_shares(
            config.class_prior, names, np.bincount(y[labeled], minlength=len(names))
        ),
        key=f"{config.accelerator} {config.precision}",
        labeled_batch=config.labeled_batch,
        cache=cache_root() / "neighbours",
        report=report,
    )


def select_model(
    config: Config,
    data: Dataset,
    report: Reporter,
    seconds: float | None = None,
    training: float = 0.0,
) -> tuple[Config, Selection]:
    """The configuration of the model that suits the data, and why it does.

    What is cross-validated is kept in the user's cache: if it is stopped, the same command
    continues.

    Args:
        config: of the preferred model.
        data: to train on.
        report: shows progress, and the verdict.
        seconds: that cross-validation may take.
        training: seconds of a training, if they are known.
    """
    cache = cache_root() / "selection" / data.fingerprint[:24]
    cache.mkdir(parents=True, exist_ok=True)
    problem = make_problem(config, data, report)
    found = select(problem, config.recipe, config.method_settings, cache, seconds, training)
    chosen = found.candidate
    if found.verdict is not None:
        report.info(found.verdict.table())
        for sentence in found.verdict.sentences:
            report.info(sentence)
        if found.verdict.advice is not None:
            report.warn(f"A simpler model is clearly better here:\n{found.verdict.advice}")
    else:
        report.warn(
            "Fewer than two classes have two labels: nothing can be measured, no models compared."
        )
    parts = method_parts(chosen.method)
    settings = {name: values for name, values in config.settings.items() if name in parts}
    recipe = replace(chosen.recipe, method=chosen.method)
    return replace(config, method=chosen.method, recipe=recipe, settings=settings), found


def plan_steps(
    config: Config, data: Dataset, report: Reporter, seconds: float, share: float = 1.0
) -> tuple[Config, float]:
    """The configuration with as many steps as fit into a time, and the seconds they take.

    Args:
        config: whose steps are timed, a few of them.
        data: to train on.
        report: is told.
        seconds: that are left.
        share: of them, for the training.
    """
    chosen = Candidate(config.method, "", config.method, config.recipe, config.method_settings)
    problem = make_problem(config, data, Reporter())
    trainer = problem.trainer(chosen, problem.split)
    for step in range(TIMED_STEPS):
        if step == TIMED_STEPS // 2:  # the first are slow
            begun = time.perf_counter()
        trainer.step(step)
    each = (time.perf_counter() - begun) / (TIMED_STEPS - TIMED_STEPS // 2)
    fit = int(share * seconds / each)
    steps = min(config.recipe.max_steps, max(FEWEST_STEPS, fit))
    if steps < config.recipe.max_steps:
        report.info(f"{steps} steps instead of {config.recipe.max_steps}, to end in time.")
    if fit < FEWEST_STEPS:
        report.warn(
            f"{FEWEST_STEPS} steps are the fewest that make sense: the time limit will be passed."
        )
    return replace(config, recipe=replace(config.recipe, max_steps=steps)), steps * each


def write_selection(out: Path, data: Dataset, found: Selection) -> None:
    """``verdict.json`` and, of the labels out of fold, ``predictions.npz``, in a run directory."""
    if found.verdict is None:
        return
    write_json(out / "verdict.json", found.verdict.to_json())
    names = data.train_names
    measured = EvaluationSet(
        "cross_validated",
        data.train_x,
        found.tested,
        data.train_y[found.tested],
        [names[i] if names else f"training {i}" for i in found.tested],
        data.train_pictures,
    )
    content = predictions_file(torch.from_numpy(found.logits), measured)
    write_bytes(out / "predictions.npz", content)
