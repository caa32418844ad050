"""Callbacks: which hooks are called, in which order, and what each callback does."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor

from cclp.data.batches import Batches
from cclp.data.load import load
from cclp.data.splits import Split, make_split
from cclp.methods import make_methods
from cclp.nets import mlp
from cclp.progress import Cost, Reporter
from cclp.runs.arrays import read_generated, read_unlabeled
from cclp.runs.callbacks import GENERATED, WriteGenerated, WriteUnlabeled
from cclp.training.callbacks import (
    Callback,
    EarlyStopping,
    Evaluate,
    Evaluation,
    History,
    Progress,
    RecalibrateAtEnd,
)
from cclp.training.evaluation import EvaluationSet
from cclp.training.recipe import make_recipe
from cclp.training.trainer import StepResult, Stopped, Trainer
from tests.runs import stop_after

DATA = load("digits")
TEST = EvaluationSet("test", DATA.test_x, np.arange(40), DATA.test_y[:40], [])


def make_trainer(max_steps: int = 5, method: str = "cclp") -> Trainer:
    recipe = replace(make_recipe("short", "digits"), max_steps=max_steps, per_class=1)
    return Trainer(
        Fabric(accelerator="cpu", devices=1),
        replace(recipe, unlabeled_batch=20),
        DATA.train_x,
        DATA.train_y,
        make_split(DATA.train_y, 20, 0, seed=0),
        make_net=lambda: mlp(64, 10, hidden_sizes=[8], embedding_size=4),
        make_methods=lambda: make_methods(method, 10, {}),
        labeled_batch=None,
        seed=0,
    )


class Log(Callback):
    """Writes down the calls of its hooks."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name, self.calls = name, calls

    def on_setup(self, trainer: Trainer) -> None:
        self.calls.append(f"{self.name} setup {trainer.done}")

    def on_start(self, trainer: Trainer) -> None:
        self.calls.append(f"{self.name} start {trainer.done}")

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        assert trainer.done == result.done
        stopping = " stopping" * trainer.stopping
        self.calls.append(f"{self.name} step {result.done}{stopping}")

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        assert trainer.evaluation is evaluation
        self.calls.append(f"{self.name} evaluation {evaluation.done}")

    def on_end(self, trainer: Trainer) -> None:
        self.calls.append(f"{self.name} end {trainer.done}")


class Scripted(Callback):
    """Evaluates every step, with these errors."""

    def __init__(self, *errors: float) -> None:
        self.errors = iter(errors)

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        trainer.evaluated(Evaluation(result.done, next(self.errors), None))


def test_hooks_are_called_in_order() -> None:
    calls: list[str] = []
    evaluate = Evaluate(2, None, recalibrate=False)
    make_trainer(3).fit([Log("a", calls), evaluate, Log("b", calls)])
    assert calls == [
        "a setup 0", "b setup 0", "a start 0", "b start 0",
        "a step 1", "b step 1",
        "a step 2", "a evaluation 2", "b evaluation 2", "b step 2",
        "a step 3", "a evaluation 3", "b evaluation 3", "b step 3",
        "a end 3", "b end 3",
    ]  # fmt: skip


def test_a_callback_ends_the_training() -> None:
    class EndAfterTwo(Callback):
        def on_step(self, trainer: Trainer, result: StepResult) -> None:
            trainer.finished = result.done == 2

    calls: list[str] = []
    trainer = make_trainer()
    trainer.fit([EndAfterTwo(), Log("a", calls)])
    assert calls == ["a setup 0", "a start 0", "a step 1", "a step 2", "a end 2"]
    assert not trainer.last


def test_a_stopped_training_is_not_ended() -> None:
    calls: list[str] = []
    trainer = make_trainer()
    with pytest.raises(Stopped, match="step 2 of 5"):
        trainer.fit([Log("a", calls)], stop_after(2))
    assert calls == ["a setup 0", "a start 0", "a step 1", "a step 2 stopping"]
    calls.clear()
    trainer.fit([Log("a", calls)])
    assert calls == ["a setup 2", "a start 2", "a step 3", "a step 4", "a step 5", "a end 5"]


def test_after_the_last_step_there_is_nothing_to_stop() -> None:
    calls: list[str] = []
    trainer = make_trainer(2)
    trainer.fit([Log("a", calls)], stop_after(2))
    assert calls == ["a setup 0", "a start 0", "a step 1", "a step 2", "a end 2"]
    calls.clear()
    trainer.fit([Evaluate(1, None, recalibrate=False), Log("a", calls)])  # resumed at its end
    assert calls == ["a setup 2", "a start 2", "a evaluation 2", "a end 2"]


def test_evaluation_is_of_the_network_without_noise() -> None:
    found: list[Evaluation] = []

    class Keep(Callback):
        def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
            found.append(evaluation)
            assert trainer.objective.training

        def on_step(self, trainer: Trainer, result: StepResult) -> None:
            net = deepcopy(trainer.objective).eval()
            with torch.no_grad():
                logits = net.net(net.inputs(torch.tensor(DATA.test_x[:40])))
            assert found[-1].logits is not None
            torch.testing.assert_close(found[-1].logits, logits)
            assert found[-1].error == float((logits.argmax(1).numpy() != TEST.y).mean())

    make_trainer(2).fit([Evaluate(1, TEST, recalibrate=False), Keep()])
    assert [evaluation.done for evaluation in found] == [1, 2]


@pytest.mark.parametrize("how", ["evaluate", "end"])
def test_recalibration(how: str) -> None:
    def statistics(*callbacks: Callback) -> dict[str, Tensor]:
        trainer = make_trainer(2)
        trainer.fit(callbacks)
        return dict(trainer.objective.net.named_buffers())

    plain = statistics(Evaluate(9, TEST, recalibrate=False))
    recalibrated = (
        statistics(Evaluate(9, TEST, recalibrate=True))
        if how == "evaluate"
        else statistics(RecalibrateAtEnd())
    )
    assert all(not torch.equal(plain[name], recalibrated[name]) for name in plain)


def test_early_stopping_restores_the_best_network() -> None:
    states: list[Any] = []

    class Keep(Callback):
        def on_step(self, trainer: Trainer, result: StepResult) -> None:
            states.append(deepcopy(trainer.objective.state_dict()))

    trainer = make_trainer(9)
    errors = (0.5, 0.3, 0.4, 0.3, 0.35)  # an equal one is not better
    trainer.fit([Keep(), Scripted(*errors), EarlyStopping(patience=3)])
    assert trainer.done == 5
    torch.testing.assert_close(trainer.objective.state_dict(), states[1], rtol=0, atol=0)


def test_early_stopping_waits_while_the_error_falls() -> None:
    trainer = make_trainer(5)
    trainer.fit([Scripted(0.5, 0.4, 0.45, 0.3, 0.2), EarlyStopping(patience=2)])
    assert trainer.done == 5


def test_progress_reports_steps_and_errors() -> None:
    class Calls(Reporter):
        def __init__(self) -> None:
            self.calls: list[tuple[Any, ...]] = []

        def begin(self, title: str, done: int, steps: int, cost: Cost = int) -> None:
            self.calls.append((title, done, steps, cost(2)))

        def step(self, done: int, terms: Mapping[str, float], seconds: float) -> None:
            assert seconds > 0
            self.calls.append((done, *terms))

        def error(self, done: int, error: float) -> None:
            self.calls.append((done, error))

    report, trainer = Calls(), make_trainer(2)
    trainer.fit([Progress(report, "digits"), Scripted(0.5, 0.25)])
    steps = [(done, "cross_entropy", "cclp") for done in (1, 2)]
    assert report.calls == [("digits", 0, 2, 60), steps[0], (1, 0.5), steps[1], (2, 0.25)]
    silent = Calls()
    make_trainer(1).fit([Progress(silent, "digits"), Evaluate(1, None, recalibrate=False)])
    assert silent.calls[1:] == [steps[0]]


def test_history_keeps_terms_and_scores() -> None:
    results: list[StepResult] = []

    class Keep(Callback):
        def on_step(self, trainer: Trainer, result: StepResult) -> None:
            results.append(result)

    history = History()
    make_trainer(3).fit([Keep(), history, Evaluate(2, TEST, recalibrate=False)])
    for name in ("cross_entropy", "cclp"):
        assert history.values[name] == [result.terms[name] for result in results]
    assert history.values["validation_step"] == [2, 3]
    assert all(0 <= score <= 1 for score in history.values["validation_score"])
    without = History()
    make_trainer(1).fit([without, Evaluate(1, None, recalibrate=False)])
    assert set(without.values) == {"cross_entropy", "cclp"}


def test_a_hook_sees_the_batch_of_its_step() -> None:
    class Check(Callback):
        def on_step(self, trainer: Trainer, result: StepResult) -> None:
            assert isinstance(trainer.batches, Batches)
            drawn = trainer.batches(result.done - 1)
            np.testing.assert_array_equal(result.labels.numpy(), DATA.train_y[drawn.labeled])
            assert len(result.z_labeled) == len(drawn.labeled)
            assert result.z_unlabeled is not None
            assert len(result.z_unlabeled) == len(drawn.unlabeled)
            assert not result.z_labeled.requires_grad

    make_trainer(2).fit([Check()])


def test_what_the_trained_net_says_of_unlabeled_samples(tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.fit([WriteUnlabeled(tmp_path, DATA, temperature=2.0)], lambda: False)
    found = read_unlabeled(tmp_path / "unlabeled.npz")
    assert found is not None
    index = np.setdiff1d(trainer.split.unlabeled, trainer.split.labeled)
    np.testing.assert_array_equal(found.index, index)
    logits = trainer.predict(DATA.train_x, index).logits
    np.testing.assert_array_equal(found.predicted, logits.argmax(1))
    np.testing.assert_allclose(found.probability, (logits / 2).softmax(1).amax(1), rtol=1e-6)
    assert found.images is not None
    np.testing.assert_array_equal(found.images, DATA.train_x[index[found.shown]])


def test_images_of_a_generative_model_are_written(tmp_path: Path) -> None:
    trainer = make_trainer(2, method="improved_gan")
    before = {name: tensor.clone() for name, tensor in trainer.state().items()}
    WriteGenerated(tmp_path).on_end(trainer)
    for name, tensor in trainer.state().items():
        assert torch.equal(tensor, before[name]), name
    images = read_generated(tmp_path / "generated.npz")
    assert images is not None
    assert images.shape == (GENERATED, 1, 8, 8)
    assert len(np.unique(images)) > 10
    trainer.fit([])
    WriteGenerated(tmp_path).on_end(trainer)
    later = read_generated(tmp_path / "generated.npz")
    assert later is not None
    assert (later != images).any()
    (tmp_path / "generated.npz").unlink()
    WriteGenerated(tmp_path).on_end(make_trainer(1))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_where_all_are_labeled(tmp_path: Path) -> None:
    trainer = make_trainer()
    known = np.arange(100)
    trainer.split = Split(known, known, known[:0])
    WriteUnlabeled(tmp_path, DATA).on_end(trainer)
    assert list(tmp_path.iterdir()) == []
