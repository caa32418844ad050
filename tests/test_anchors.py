"""Classes that are absent from a step: the bank of anchors, and CCLP with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

import cclp
from benchmarks.many_classes import gaussians
from cclp.data.splits import Split
from cclp.methods import make_methods
from cclp.methods.anchors import Absent, Anchors
from cclp.methods.base import Step
from cclp.methods.cclp import CCLP
from cclp.nets import Net, mlp
from cclp.runs.start import Stopped, resume, train
from cclp.sklearn import CCLPClassifier, classifier
from cclp.sklearn.parameters import estimator_recipe
from cclp.training.trainer import Trainer
from tests.runs import last_weights, stop_after, tiny_config

CLASSES = 210  # more than there are labels in a step
CORNERS = 4 * torch.eye(6)  # where the classes are


def test_the_bank_keeps_the_last_embedding_of_each_class() -> None:
    anchors = Anchors(4, 2)
    assert not anchors.seen.any()
    assert anchors.absent(torch.tensor([1])).classes.tolist() == []
    z = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    anchors.update(z, torch.tensor([3, 0]))
    anchors.update(z.detach() + 10, torch.tensor([0, 1]))
    assert anchors.seen.tolist() == [True, True, False, True]
    found = anchors.absent(torch.tensor([1]))
    assert found.classes.tolist() == [0, 3]  # neither that of the step nor the one never seen
    assert found.z.tolist() == [[11, 12], [1, 2]]
    assert not found.z.requires_grad
    assert set(anchors.state_dict()) == {"z", "seen"}


def make_step(
    unlabeled: Tensor, absent: Absent | None, pseudo_labels: Tensor | None = None, weight: float = 0
) -> Step:
    """Labels of classes 0 and 1 of six."""
    net = Net(nn.Identity(), 6, 6, dropout=0.0)
    z = CORNERS[:2]
    return Step(
        net, z, torch.tensor([0, 1]), unlabeled, z, unlabeled, net.classifier(z), 0.5,
        pseudo_labels=pseudo_labels, pseudo_label_weight=weight, absent=absent,
    )  # fmt: skip


def near(*classes: int) -> Tensor:
    """Samples near the corners of classes; more of them than classes."""
    z = CORNERS[list(classes)]
    noise = torch.Generator().manual_seed(0)
    return (z + 0.3 * torch.randn(z.shape, generator=noise)).requires_grad_()


def with_anchors(*classes: int) -> dict[str, Any]:
    """Labeled points of the loss, if anchors of these classes are among them."""
    index = torch.tensor([0, 1, *classes])
    return {"z_labeled": CORNERS[index], "labels": index}


def test_absent_classes_near_a_sample_are_labeled_points() -> None:
    unlabeled = near(0, 1, 2, 4, 2, 4, 0)
    absent = Absent(CORNERS[2:].clone().requires_grad_(), torch.arange(2, 6))
    (term,) = CCLP(6)(make_step(unlabeled, absent)).values()
    expected = cclp.cclp_loss(**with_anchors(2, 4), z_unlabeled=unlabeled, num_classes=6)
    torch.testing.assert_close(term, expected)
    (grad,) = torch.autograd.grad(term, unlabeled)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, unlabeled)[0])
    (again,) = CCLP(6)(make_step(unlabeled, absent)).values()
    again.backward()
    assert absent.z.grad is None
    assert unlabeled.grad is not None


def test_without_anchors_a_sample_is_pulled_to_another_class() -> None:
    unlabeled = near(0, 1, 2, 2, 2, 2)
    absent = Absent(CORNERS[2:], torch.arange(2, 6))
    pulled = {}
    for name, given in (("anchors", absent), ("none", None)):
        (term,) = CCLP(6)(make_step(unlabeled, given)).values()
        (grad,) = torch.autograd.grad(term, unlabeled)
        pulled[name] = -grad[2:, :2].mean().item()  # towards classes 0 and 1
    assert pulled["none"] > 2 * abs(pulled["anchors"])


def test_fewer_samples_than_classes_count_less() -> None:
    unlabeled = near(0, 2, 3)
    absent = Absent(CORNERS[2:], torch.arange(2, 6))
    (term,) = CCLP(6)(make_step(unlabeled, absent)).values()
    expected = cclp.cclp_loss(**with_anchors(2, 3), z_unlabeled=unlabeled, num_classes=6)
    torch.testing.assert_close(term, 3 / 6 * expected)


def test_pseudo_labels_bring_the_anchors_of_their_classes() -> None:
    unlabeled = near(0, 1, 2, 2, 0, 1)
    absent = Absent(CORNERS[2:], torch.arange(2, 6))
    prior = torch.eye(6)[[0, 1, 5, 2, 0, 1]]
    prior[5] = 1 / 6  # the shares of all classes
    (term,) = CCLP(6)(make_step(unlabeled, absent, prior, 0.4)).values()
    some = prior[:, [0, 1, 2, 5]]
    present: dict[str, Any] = {
        **with_anchors(2, 5),
        "labels": torch.arange(4),
        "z_unlabeled": unlabeled,
    }
    expected = cclp.cclp_loss(
        **present, num_classes=4, prior=some / some.sum(1, keepdim=True), prior_weight=0.4
    )
    torch.testing.assert_close(term, expected)


def test_pseudo_labels_of_classes_that_are_not_there() -> None:
    """No anchor was seen yet: such a sample is of each class alike."""
    nobody = Absent(torch.empty(0, 6), torch.empty(0, dtype=torch.int64))
    unlabeled, prior = near(0, 1, 2, 3, 0, 1), torch.eye(6)[[0, 1, 2, 3, 0, 1]]
    (term,) = CCLP(6)(make_step(unlabeled, nobody, prior, 1.0)).values()
    known = torch.tensor([[1.0, 0], [0, 1], [0.5, 0.5], [0.5, 0.5], [1, 0], [0, 1]])
    expected = cclp.cclp_loss(**with_anchors(), z_unlabeled=unlabeled, num_classes=2, prior=known)
    torch.testing.assert_close(term, expected)


def make_trainer(num_classes: int = CLASSES, method: str = "cclp") -> Trainer:
    """As the estimator makes it."""
    X, y, _, _ = gaussians(num_classes, 3, 0)
    everyone = np.arange(len(X))
    recipe = estimator_recipe(
        len(X), method=method, max_iter=6, batch_size=(1, 40), learning_rate=4e-3
    )
    return Trainer(
        Fabric(accelerator="cpu", devices=1),
        recipe,
        X,
        y.astype(np.int64),
        Split(np.flatnonzero(y >= 0), everyone, everyone[:0]),
        make_net=lambda: mlp(X.shape[1], num_classes, hidden_sizes=[16], embedding_size=8),
        make_methods=lambda: make_methods(method, num_classes, {}),
        labeled_batch=200,
        seed=0,
    )


def test_a_trainer_fills_the_bank() -> None:
    trainer = make_trainer()
    anchors = trainer.objective.anchors
    assert anchors is not None
    first = trainer.step(0)
    assert int(anchors.seen.sum()) == 200
    assert torch.equal(anchors.z[first.labels], first.z_labeled)
    assert anchors.absent(first.labels).classes.tolist() == []
    second = trainer.step(1)
    assert anchors.seen.all()
    left = anchors.absent(second.labels)
    assert len(left.classes) == 10
    row = {int(c): z for c, z in zip(first.labels, first.z_labeled, strict=True)}
    assert torch.equal(left.z, torch.stack([row[int(c)] for c in left.classes]))


@pytest.mark.parametrize(("classes", "method"), [(200, "cclp"), (CLASSES, "supervised")])
def test_no_bank_where_it_has_no_use(classes: int, method: str) -> None:
    trainer = make_trainer(classes, method)
    assert trainer.objective.anchors is None
    assert not any("anchors" in name for name in trainer.state())


def test_resuming_with_a_bank_is_bit_for_bit() -> None:
    whole, part, rest = make_trainer(), make_trainer(), make_trainer()
    whole.fit([])
    for step in range(3):
        part.step(step)
    state = {name: tensor.clone() for name, tensor in part.state().items()}
    assert {"objective.anchors.z", "objective.anchors.seen"} < set(state)
    rest.load_state(3, state)
    rest.fit([])
    torch.testing.assert_close(rest.state(), whole.state(), rtol=0, atol=0)
    forgetful = make_trainer()
    state["objective.anchors.z"] = torch.zeros_like(state["objective.anchors.z"])
    forgetful.load_state(3, state)
    forgetful.fit([])
    weights = "objective.net.classifier.1.weight"
    assert not torch.equal(forgetful.state()[weights], whole.state()[weights])


def test_a_run_with_a_bank_resumes_bit_for_bit(tmp_path: Path) -> None:
    config = tiny_config(max_steps=8, labeled_batch=4, method="cclp+graph_pseudo_label")
    train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(config, tmp_path / "stopped", should_stop=stop_after(5))
    resume(tmp_path / "stopped")
    assert last_weights(tmp_path / "stopped") == last_weights(tmp_path / "whole")


def test_unlabeled_samples_do_not_harm_where_classes_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fewer labels in a step, so that there need not be 400 classes. Without anchors: 19 %."""
    monkeypatch.setattr(classifier, "LABELED_BATCH", 20)
    X, y, X_test, truth = gaussians(60, 20, 0)
    small: dict[str, Any] = {"hidden_sizes": (64,), "max_iter": 150, "batch_size": (1, 80)}

    def error(method: str) -> float:
        model = CCLPClassifier(method=method, device="cpu", random_state=0, **small).fit(X, y)
        return float((model.predict(X_test) != truth).mean())

    assert error("cclp") < error("supervised") + 0.01 < 0.1
