"""The loop is Algorithm 1: checked against a step written out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor, nn

import cclp
from cclp.data.batches import Batches
from cclp.data.load import load
from cclp.data.normalize import fit_normalizer
from cclp.data.splits import make_split
from cclp.methods import make_methods
from cclp.methods.base import Method, Step
from cclp.nets import mlp, mnist_net
from cclp.nets.registry import make_net
from cclp.training.loop import Objective, make_optimizer, reseed, set_up, train_steps
from cclp.training.recipe import make_recipe

DATA = load("digits")
RECIPE = replace(
    make_recipe("digits", "digits", all_labels=False), max_steps=5, per_class=2, net="mlp"
)
X_LABELED = torch.tensor(DATA.train_x[:20])
Y = torch.tensor(DATA.train_y[:20])
X_UNLABELED = torch.tensor(DATA.train_x[20:60])


def make_objective(method: str = "cclp") -> Objective:
    torch.manual_seed(0)
    normalizer = fit_normalizer("zscore", DATA.train_x)
    return Objective(normalizer, mlp(64, 10), make_methods(method, 10, {}))


def batches(unlabeled: int = 30, labels: int = 40) -> Batches:
    split = make_split(DATA.train_y, labels, 0, seed=0)
    return Batches(
        split.labeled,
        DATA.train_y[split.labeled],
        split.unlabeled,
        per_class=2,
        unlabeled_batch=unlabeled,
        seed=0,
    )


def gradients(module: nn.Module) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def total(terms: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(terms.values())).sum()


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


def test_methods_compose_in_order_and_refuse_unknown_names() -> None:
    made = make_methods("cclp", 10, {"cclp": {"weight": 0.25, "steps": 5}})
    assert [type(method).__name__ for method in made] == ["Supervised", "CCLP"]
    step = make_step()
    once = make_methods("cclp", 10, {"cclp": {"steps": 5}})[1](step)["cclp"]
    torch.testing.assert_close(made[1](step)["cclp"], 0.25 * once)
    with pytest.raises(ValueError, match=r"one of supervised, cclp, .*, got 'vta'"):
        make_methods("vta", 10, {})


def make_step() -> Step:
    torch.manual_seed(2)
    z = torch.randn(60, 8)
    net = mlp(64, 10)
    return Step(net, X_LABELED, Y, X_UNLABELED, z[:20], z[20:], torch.randn(20, 10), 0.0)


def test_health_looks_at_the_graph_the_loss_uses() -> None:
    settings = {"steps": 2, "similarity": "cosine", "temperature": 0.3}
    supervised, method = make_methods("cclp", 10, {"cclp": settings})
    step = make_step()
    assert supervised.health(step.z_labeled, step.labels, step.z_unlabeled) is None
    assert method.health(step.z_labeled, step.labels, step.z_unlabeled) == cclp.graph_health(
        step.z_labeled,
        step.labels,
        step.z_unlabeled,
        num_classes=10,
        max_steps=2,
        similarity="cosine",
        temperature=0.3,
    )


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


def test_training_is_plain_adam_on_the_drawn_batches() -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    objective, plain = make_objective(), make_objective()
    optimizer = make_optimizer(objective, RECIPE)
    module, stepper = fabric.setup(objective, optimizer)
    source = batches()
    outcomes = list(
        train_steps(fabric, module, stepper, source, DATA.train_x, DATA.train_y, RECIPE, seed=4)
    )
    assert [outcome.done for outcome in outcomes] == [1, 2, 3, 4, 5]
    assert [outcome.learning_rate for outcome in outcomes] == [
        RECIPE.learning_rate_at(step) for step in range(5)
    ]

    by_hand = make_optimizer(plain, RECIPE)
    for step in range(5):
        reseed(4, step, 0)
        draw = source(step)
        for group in by_hand.param_groups:
            group["lr"] = RECIPE.learning_rate_at(step)
        terms, _, _ = plain(
            torch.tensor(DATA.train_x[draw.labeled]),
            torch.tensor(DATA.train_y[draw.labeled]),
            torch.tensor(DATA.train_x[draw.unlabeled]),
            step / 5,
        )
        by_hand.zero_grad()
        total(terms).backward()  # type: ignore[no-untyped-call]
        by_hand.step()
        assert outcomes[step].terms == pytest.approx(
            {name: term.item() for name, term in terms.items()}, rel=1e-6
        )
    torch.testing.assert_close(objective.state_dict(), plain.state_dict())


def test_a_step_depends_on_seed_step_and_rank_alone() -> None:
    reseed(1, 2, 0)
    once = torch.rand(3), np.random.rand(), torch.rand(1)
    torch.rand(100)
    reseed(1, 2, 0)
    again = torch.rand(3), np.random.rand(), torch.rand(1)
    torch.testing.assert_close(once, again, rtol=0, atol=0)
    reseed(1, 2, 1)
    assert torch.rand(3).tolist() != once[0].tolist()


class Explodes(Method):
    def forward(self, step: Step) -> dict[str, Tensor]:
        return {"bang": step.logits.sum() * float("nan")}


def test_a_loss_that_is_not_finite_stops_before_the_update() -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    objective = make_objective()
    objective.methods.append(Explodes())
    before = {name: value.clone() for name, value in objective.net.named_parameters()}
    module, stepper = fabric.setup(objective, make_optimizer(objective, RECIPE))
    with pytest.raises(FloatingPointError, match=r"not finite at step 1: cross_.*bang = nan"):
        next(train_steps(fabric, module, stepper, batches(), DATA.train_x, DATA.train_y, RECIPE, 0))
    torch.testing.assert_close(dict(objective.net.named_parameters()), before)


@pytest.mark.parametrize("unlabeled", [0, 30])
def test_classes_of_one_sample_and_no_unlabeled_samples(unlabeled: int) -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    objective = make_objective()
    module, stepper = fabric.setup(objective, make_optimizer(objective, RECIPE))
    source = batches(unlabeled, labels=10)
    for outcome in train_steps(
        fabric, module, stepper, source, DATA.train_x, DATA.train_y, RECIPE, 0
    ):
        assert len(outcome.labels) == 20  # two of each, from classes of one
        assert (outcome.z_unlabeled is None) == (unlabeled == 0)


def test_labeled_samples_are_alone_at_first() -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    objective, recipe = make_objective(), replace(RECIPE, alone=0.4, prior=1.0)
    module, stepper = fabric.setup(objective, make_optimizer(objective, recipe))
    outcomes = train_steps(
        fabric, module, stepper, batches(30), DATA.train_x, DATA.train_y, recipe, 0
    )
    sizes = [0 if o.z_unlabeled is None else len(o.z_unlabeled) for o in outcomes]
    assert sizes == [0, 0, 30, 30, 30]


@pytest.mark.parametrize(
    ("net", "size", "least"),
    [
        ("mnist", 128, 4),
        ("mnist_small", 64, 8),
        ("svhn", 128, 4),
        ("cifar", 192, 4),
        ("small", 96, 4),
    ],
)
def test_nets_follow_the_data(net: str, size: int, least: int) -> None:
    made = make_net(net, DATA.spec.shape, 10)
    assert made.embedding_size == size
    smallest = (1, least, least + 1)
    assert make_net(net, smallest, 10).features(torch.zeros(2, *smallest)).shape == (
        2,
        size,
    )
    if net == "small":  # larger images are halved more often
        for side, poolings in ((16, 2), (28, 3), (32, 3), (33, 4), (64, 4), (224, 6)):
            large = make_net(net, (3, side, side + 1), 10)
            assert sum(isinstance(part, nn.MaxPool2d) for part in large.modules()) == poolings
            assert large.embedding_size == size
    with pytest.raises(ValueError, match=f"images of {least} x {least} pixels or more, got"):
        make_net(net, (1, least, least - 1), 10)
    first = next(module for module in made.modules() if isinstance(module, nn.Conv2d))
    assert first.in_channels == 1


@pytest.mark.parametrize("how", [{"jitter": 1.0}, {"recolour": True}, {"mirror": True}])
def test_images_are_changed_in_training_only(how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    images, y = torch.rand(4, 1, 28, 28), np.arange(4) % 2
    objective = set_up(
        Fabric(accelerator="cpu", devices=1), images.numpy(), y, make_split(y, None, 0, 0),
        replace(make_recipe("paper", "mnist"), **how), mnist_net, list[Method],
        normalization="zscore", labeled_batch=None, seed=0,
    ).objective  # fmt: skip
    seen = []
    objective.net.features[0].register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    x = objective.inputs(images)
    assert torch.equal(x, objective.normalizer(images))
    objective(images, torch.from_numpy(y), images, 0.0)
    labeled, unlabeled = seen
    for changed in (labeled, unlabeled):
        assert not torch.equal(changed, x)
        assert changed.is_contiguous(memory_format=torch.channels_last)
    assert not torch.equal(labeled, unlabeled)  # each in its own way


def test_images_are_channels_last() -> None:
    objective = Objective(fit_normalizer("zscore", DATA.train_x), mnist_net(), [])
    for module in objective.modules():
        if isinstance(module, nn.Conv2d):
            assert module.weight.is_contiguous(memory_format=torch.channels_last)
    x = objective.inputs(torch.zeros(2, 3, 8, 8))
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert not x.is_contiguous()
