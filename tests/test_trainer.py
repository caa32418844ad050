"""A training step is Algorithm 1: checked against one written out by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor, nn

import cclp
from cclp.data.load import load
from cclp.data.normalize import ZScore
from cclp.data.splits import make_split
from cclp.methods import make_methods
from cclp.methods.base import Method, Step
from cclp.nets import Net, mlp, mnist_net, small_net
from cclp.training.objective import Objective, make_optimizer
from cclp.training.recipe import make_recipe
from cclp.training.seeding import own_randomness, reseed
from cclp.training.trainer import Trainer

DATA = load("digits")
EVERYONE = np.arange(len(DATA.train_x))
RECIPE = replace(make_recipe("short", "digits"), max_steps=5, per_class=2, unlabeled_batch=30)
X_LABELED = torch.tensor(DATA.train_x[:20])
Y = torch.tensor(DATA.train_y[:20])
X_UNLABELED = torch.tensor(DATA.train_x[20:60])


def make_net() -> Net:
    return mlp(64, 10, hidden_sizes=[16], embedding_size=8)


def make_objective(method: str = "cclp") -> Objective:
    torch.manual_seed(0)
    return Objective(ZScore.fit(DATA.train_x, EVERYONE), make_net(), make_methods(method, 10, {}))


def make_trainer(
    *,
    num_labels: int = 40,
    net: Callable[[], Net] = make_net,
    methods: Callable[[], list[Method]] = lambda: make_methods("cclp", 10, {}),
    labeled_batch: int | None = None,
    seed: int = 4,
    **changes: Any,
) -> Trainer:
    return Trainer(
        Fabric(accelerator="cpu", devices=1),
        replace(RECIPE, **changes),
        DATA.train_x,
        DATA.train_y,
        make_split(DATA.train_y, num_labels, 0, seed=0),
        make_net=net,
        make_methods=methods,
        labeled_batch=labeled_batch,
        seed=seed,
    )


def gradients(module: nn.Module) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def total(terms: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(terms.values())).sum()


def copied(trainer: Trainer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.state().items()}


def assert_same_state(trainer: Trainer, state: dict[str, Tensor]) -> None:
    torch.testing.assert_close(trainer.state(), state, rtol=0, atol=0)


# --- the objective ---


def test_terms_and_gradients_are_those_written_by_hand() -> None:
    objective, plain = make_objective(), make_objective()
    torch.manual_seed(1)
    terms, z_labeled, z_unlabeled = objective(X_LABELED, Y, X_UNLABELED, 0.0)
    total(terms).backward()  # type: ignore[no-untyped-call]

    torch.manual_seed(1)
    net = plain.net
    mean, std = float(DATA.train_x.mean()), float(DATA.train_x.std())
    z_l = net.features((X_LABELED - mean) / std)
    z_u = net.features((X_UNLABELED - mean) / std)
    cross_entropy = F.cross_entropy(net.classifier(z_l), Y)
    compactness = cclp.cclp_loss(z_l, Y, z_u, num_classes=10)
    (cross_entropy + compactness).backward()  # type: ignore[no-untyped-call]

    assert z_unlabeled is not None
    assert not z_labeled.requires_grad
    torch.testing.assert_close(z_labeled, z_l.detach())
    torch.testing.assert_close(z_unlabeled, z_u.detach())
    torch.testing.assert_close(terms["cross_entropy"], cross_entropy)
    torch.testing.assert_close(terms["cclp"], compactness)
    torch.testing.assert_close(gradients(objective.net), gradients(net), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(objective.net.named_buffers()), dict(net.named_buffers()))


def test_cclp_gives_the_classifier_no_gradient_and_the_features_some() -> None:
    objective = make_objective()
    terms, _, _ = objective(X_LABELED, Y, X_UNLABELED, 0.0)
    terms["cclp"].backward(retain_graph=True)
    assert all(grad is None for grad in gradients(objective.net.classifier).values())
    assert all(grad is not None for grad in gradients(objective.net.features).values())
    terms["cross_entropy"].backward()
    assert all(grad is not None for grad in gradients(objective.net.classifier).values())


def test_supervised_ignores_unlabeled_samples() -> None:
    objective = make_objective("supervised")
    assert not objective.uses_unlabeled
    assert make_objective("cclp").uses_unlabeled
    terms, _, _ = objective(X_LABELED, Y, None, 0.0)
    assert set(terms) == {"cross_entropy"}


def test_l2_is_on_weights_of_layers_only() -> None:
    objective = make_objective()
    recipe = replace(RECIPE, l2_features=0.3, l2_classifier=0.7)
    optimizer = make_optimizer(objective, recipe)
    found = {
        id(parameter): group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in objective.named_parameters():
        layer = objective.get_submodule(name.rpartition(".")[0])
        weight = isinstance(layer, nn.Linear) and name.endswith("weight")
        expected = (0.7 if "classifier" in name else 0.3) if weight else 0.0
        assert found[id(parameter)] == expected, name
    assert len(found) == len(list(objective.parameters()))


def test_adam_has_the_published_settings() -> None:
    defaults = make_optimizer(make_objective(), replace(RECIPE, adam_eps=1e-7)).defaults
    assert (defaults["betas"], defaults["eps"]) == ((0.9, 0.999), 1e-7)


def test_images_are_channels_last() -> None:
    objective = Objective(ZScore.fit(DATA.train_x, EVERYONE), mnist_net(width=2), [])
    for module in objective.modules():
        if isinstance(module, nn.Conv2d):
            assert module.weight.is_contiguous(memory_format=torch.channels_last)
    x = objective.inputs(torch.zeros(2, 3, 8, 8))
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert not x.is_contiguous()


# --- steps ---


def test_training_is_plain_adam_on_the_drawn_batches() -> None:
    trainer = make_trainer()
    plain = make_objective()
    plain.load_state_dict(trainer.objective.state_dict())
    by_hand = make_optimizer(plain, RECIPE)
    trainer.module.train()
    for step in range(5):
        result = trainer.step(step)
        assert result.done == step + 1
        assert result.learning_rate == RECIPE.learning_rate_at(step)

        reseed(4, step, 0)
        batch = trainer.batches(step)
        for group in by_hand.param_groups:
            group["lr"] = RECIPE.learning_rate_at(step)
        terms, _, _ = plain(
            torch.tensor(DATA.train_x[batch.labeled]),
            torch.tensor(DATA.train_y[batch.labeled]),
            torch.tensor(DATA.train_x[batch.unlabeled]),
            step / 5,
        )
        by_hand.zero_grad()
        total(terms).backward()  # type: ignore[no-untyped-call]
        by_hand.step()
        expected = {name: term.item() for name, term in terms.items()}
        assert result.terms == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(trainer.objective.state_dict(), plain.state_dict())


def test_fit_takes_the_steps_that_are_left() -> None:
    whole, rest = make_trainer(), make_trainer()
    whole.fit([])
    assert (whole.done, whole.last, whole.finished) == (5, True, True)
    for step in range(3):
        rest.step(step)
    resumed = make_trainer()
    resumed.load_state(3, copied(rest))
    resumed.fit([])
    assert_same_state(resumed, whole.state())


@pytest.mark.parametrize("net", [make_net, lambda: small_net(in_channels=1, width=4, poolings=2)])
def test_a_step_depends_on_seed_step_and_state_alone(net: Callable[[], Net]) -> None:
    trainer, other = make_trainer(net=net), make_trainer(net=net)
    for step in (0, 1):
        trainer.step(step)
    state = copied(trainer)
    first = trainer.step(2)
    after = copied(trainer)

    torch.manual_seed(99)  # whatever else the process has drawn
    np.random.seed(99)
    other.load_state(2, state)
    assert other.done == 2
    assert_same_state(other, state)
    for mine, theirs in zip(other.objective.parameters(), trainer.objective.parameters()):  # noqa: B905
        assert mine.stride() == theirs.stride()
    again = other.step(2)
    assert again.terms == first.terms
    assert torch.equal(again.labels, first.labels)
    assert_same_state(other, after)
    other.load_state(2, state)
    assert other.step(3).terms != first.terms


def test_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    one = make_trainer()
    torch.manual_seed(2)
    assert_same_state(make_trainer(), one.state())
    other = make_trainer(seed=5).state()
    assert not torch.equal(
        other["objective.net.classifier.1.weight"], one.state()["objective.net.classifier.1.weight"]
    )


def test_randomness_is_a_function_of_seed_step_and_rank() -> None:
    def drawn(*place: int) -> list[float]:
        reseed(*place)
        return [*torch.rand(3).tolist(), float(np.random.rand())]

    once = drawn(1, 2, 0)
    torch.rand(100)
    assert drawn(1, 2, 0) == once
    for other in ((2, 2, 0), (1, 3, 0), (1, 2, 1)):
        assert not set(drawn(*other)) & set(once)


def test_the_callers_random_numbers_are_not_touched() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    with own_randomness():
        make_trainer().step(0)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]


def test_a_state_of_another_network_does_not_fit() -> None:
    state = make_trainer(net=lambda: mlp(64, 10, hidden_sizes=[9], embedding_size=8)).state()
    with pytest.raises(RuntimeError, match="size mismatch"):
        make_trainer().load_state(0, state)


class Explodes(Method):
    def forward(self, step: Step) -> dict[str, Tensor]:
        return {"bang": step.logits.sum() * (float("nan") if step.progress > 0 else 1.0)}


def test_a_loss_that_is_not_finite_stops_before_the_update() -> None:
    trainer = make_trainer(methods=lambda: [*make_methods("supervised", 10, {}), Explodes()])
    trainer.step(0)
    before = copied(trainer)
    with pytest.raises(FloatingPointError, match=r"not finite at step 2: cross_.*bang = nan"):
        trainer.step(1)
    weights = [name for name, _ in trainer.objective.named_parameters()]
    after = trainer.state()
    for name in (n for n in before if n.startswith("adam.") or n[len("objective.") :] in weights):
        assert torch.equal(after[name], before[name]), name
    assert trainer.done == 0  # fit counts


@pytest.mark.parametrize("unlabeled", [0, 30])
def test_classes_of_one_sample_and_no_unlabeled_samples(unlabeled: int) -> None:
    trainer = make_trainer(num_labels=10, unlabeled_batch=unlabeled)
    result = trainer.step(0)
    assert len(result.labels) == 20  # two of each, from classes of one
    assert (result.z_unlabeled is None) == (unlabeled == 0)


@pytest.mark.parametrize(("most", "classes", "per_class"), [(200, 10, 2), (10, 10, 1), (4, 4, 1)])
def test_labeled_batch_limits_the_labeled_samples(most: int, classes: int, per_class: int) -> None:
    trainer = make_trainer(labeled_batch=most)
    drawn = [trainer.step(step).labels for step in range(3)]
    for labels in drawn:
        counts = [count for count in labels.bincount().tolist() if count]
        assert counts == [per_class] * classes
    assert len(set(torch.cat(drawn).tolist())) == 10  # classes take turns
    assert trainer.samples(5) == 5 * (classes * per_class + 30)


class Spy(Method):
    """Keeps what a method is given."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def forward(self, step: Step) -> dict[str, Tensor]:
        self.steps.append(step)
        return {"spy": 0 * step.logits.sum()}


def test_warmup_steps_see_labeled_samples_only() -> None:
    spy = Spy()
    trainer = make_trainer(methods=lambda: [spy])
    trainer.warmup_steps = 2
    sizes = [trainer.step(step).z_unlabeled for step in range(4)]
    assert [None if z is None else len(z) for z in sizes] == [None, None, 30, 30]
    assert [step.x_unlabeled is None for step in spy.steps] == [True, True, False, False]
    assert [trainer.samples(steps) for steps in (0, 1, 2, 3, 5)] == [0, 20, 40, 90, 190]


def test_a_step_has_the_pseudo_labels_of_its_samples() -> None:
    spy = Spy()
    trainer = make_trainer(methods=lambda: [spy])
    labels = np.random.default_rng(0).random((len(DATA.train_x), 10)).astype(np.float32)
    trainer.pseudo_labels, trainer.warmup_steps = labels, 1
    trainer.pseudo_label_weight = lambda step: max(0.0, 1 - step / 3)
    for step in range(5):
        trainer.step(step)
    warmup, *counted, over, _ = spy.steps
    for seen, number in zip(counted, (1, 2), strict=True):
        assert seen.pseudo_labels is not None
        expected = labels[trainer.batches(number).unlabeled]
        np.testing.assert_array_equal(seen.pseudo_labels.numpy(), expected)
        assert seen.pseudo_label_weight == 1 - number / 3
    for without in (warmup, over):
        assert (without.pseudo_labels, without.pseudo_label_weight) == (None, 0.0)
    assert [step.progress for step in spy.steps] == [0.0, 0.2, 0.4, 0.6, 0.8]
    assert {step.max_steps for step in spy.steps} == {5}


@pytest.mark.parametrize(
    "how", [{"random_affine": 1.0}, {"color_jitter": True}, {"horizontal_flip": True}]
)
def test_images_are_augmented_in_training_only(how: dict[str, Any]) -> None:
    trainer = make_trainer(net=lambda: small_net(in_channels=1, width=2, poolings=2), **how)
    objective = trainer.objective
    seen = []
    first = next(iter(objective.net.features.children()))
    first.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    images = X_LABELED.float()
    x = objective.inputs(images)
    assert torch.equal(x, objective.normalizer(images))
    objective(images, Y, images, 0.0)
    labeled, unlabeled = seen
    for changed in (labeled, unlabeled):
        assert not torch.equal(changed, x)
        assert changed.is_contiguous(memory_format=torch.channels_last)
    assert not torch.equal(labeled, unlabeled)  # each in its own way
    seen.clear()
    trainer.predict(DATA.train_x[:20])
    assert torch.equal(seen[0], x)


def test_recalibrated_statistics_are_of_the_current_weights() -> None:
    trainer = make_trainer(num_labels=40)
    for step in range(3):
        trainer.step(step)
    before = copied(trainer)
    trainer.recalibrate()
    after = copied(trainer)
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name in after if "running" in name or "num_batches" in name}
    norm = trainer.objective.net.features[3]
    linear = trainer.objective.net.features[2]
    x = trainer.objective.inputs(torch.tensor(DATA.train_x)).flatten(1)
    torch.testing.assert_close(norm.running_mean, linear(x).mean(0), rtol=1e-4, atol=1e-5)
    assert norm.momentum == 0.01
    trainer.recalibrate()
    assert_same_state(trainer, after)
