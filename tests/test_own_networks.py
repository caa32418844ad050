"""Methods that own networks: inputs, gradients, optimizer, and networks that they need."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cclp.commands.configure import make_config
from cclp.data.normalize import value_range
from cclp.methods import GENERATIVE, NETS, make_methods, method_parts, required_net
from cclp.methods.base import Inputs, average, frozen
from cclp.nets import mlp
from cclp.nets.registry import make_net
from cclp.runs.start import train
from cclp.sklearn import CCLPClassifier
from cclp.training.config import Config
from cclp.training.objective import Objective, make_optimizer
from cclp.training.recipe import make_recipe
from tests.inputs import image_inputs, vector_inputs
from tests.runs import tiny_config


def test_pixels_become_inputs_and_back() -> None:
    inputs = Inputs((1, 2, 2), torch.full((1, 1, 1, 1), 4.0), torch.full((1, 1, 1, 1), 0.5), 0, 16)
    pixels = torch.tensor([0.0, 0.25, 0.5, 1.0]).reshape(1, 1, 2, 2)
    x = inputs.from_pixels(pixels)
    assert x.flatten().tolist() == [-2.0, 0.0, 2.0, 6.0]  # (0, 4, 8, 16) normalised
    torch.testing.assert_close(inputs.to_pixels(x), pixels)
    assert inputs.to_pixels(x + 100).max() == 1
    assert inputs.are_images
    assert not vector_inputs(3).are_images
    assert image_inputs(3, 8).from_pixels(torch.ones(1, 3, 8, 8)).max() == 1


def test_the_range_of_images_is_what_is_there() -> None:
    everyone = np.arange(2)
    digits = np.zeros((2, 1, 2, 2), np.uint8)
    digits[1] = 16
    assert value_range(digits, everyone) == (0, 16)
    assert value_range(digits[:1], everyone[:1]) == (0, 1)  # all black
    assert value_range(digits.astype(np.float32) - 3, everyone) == (-3, 13)
    assert value_range(np.ones((2, 5), np.float32), everyone) == (0, 0)


def test_a_frozen_network_passes_gradients_on_and_gets_none() -> None:
    layer, x = nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True)
    layer.bias.requires_grad_(False)
    with frozen(layer):
        frozen_loss = layer(x).sum()
    (frozen_loss + layer(x.detach()).sum()).backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, layer.weight.detach())
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[1, 1]]  # of the second pass alone
    assert (layer.weight.requires_grad, layer.bias.requires_grad) == (True, False)


def test_an_average_moves_by_a_share() -> None:
    mean, new = nn.Linear(1, 1), nn.Linear(1, 1)
    expected = [
        0.75 * m + 0.25 * n for m, n in zip(mean.parameters(), new.parameters(), strict=True)
    ]
    average(mean, new, 0.25)
    torch.testing.assert_close(list(mean.parameters()), expected)


def test_own_networks_are_in_the_optimizer_with_their_learning_rate() -> None:
    objective = Objective(nn.Identity(), mlp(4, 2), make_methods("improved_gan", 2, {}))
    objective.attach(vector_inputs(4), 10)
    optimizer = make_optimizer(objective, make_recipe("short", "digits"))
    generator = set(objective.methods[1].parameters())
    assert generator
    seen = set()
    for group in optimizer.param_groups:
        own = generator.intersection(group["params"])
        assert group["factor"] == (0.25 if own else 1.0)
        assert not own or own == set(group["params"])
        seen |= set(group["params"])
    assert seen == set(objective.parameters())
    assert optimizer.defaults["betas"][0] == 0.5
    plain = Objective(nn.Identity(), mlp(4, 2), make_methods("cclp", 2, {}))
    assert make_optimizer(plain, make_recipe("short", "digits")).defaults["betas"][0] == 0.9


@pytest.mark.parametrize("name", NETS)
def test_a_method_brings_the_network_that_it_needs(name: str) -> None:
    recipe = make_recipe("short", "digits")
    assert recipe.net == "mlp"
    assert Config("digits", recipe, name).recipe == replace(recipe, net=NETS[name])
    assert Config("digits", recipe, f"cclp+{name}").recipe.net == NETS[name]
    with pytest.raises(ValueError, match=f"net has no effect with --method {name}"):
        make_config("digits", method=name, net="mlp")
    X, y = np.zeros((4, 2)), np.array([0, 1, -1, -1])
    with pytest.raises(ValueError, match=r"network of its own.* use cclp train"):
        CCLPClassifier(method=name).fit(X, y)


def test_two_methods_with_networks_of_their_own_do_not_go_together() -> None:
    assert required_net("cclp+vat") is None
    with pytest.raises(ValueError, match="ladder and ali have networks of their own"):
        required_net("ladder+ali")


@pytest.mark.parametrize("name", ["cclp+ladder", "cclp+improved_gan", "cclp+sdgm", "cclp+m1_m2"])
def test_generative_methods_and_cclp_are_added_up_on_the_same_embeddings(name: str) -> None:
    """Each part has the terms that it has alone, and CCLP pulls at the features of the network."""
    torch.manual_seed(0)
    inputs = image_inputs(1, 8)
    objective = Objective(
        nn.Identity(), make_net(required_net(name) or "mlp", inputs.shape, 4),
        make_methods(name, 4, {}),
    )  # fmt: skip
    objective.attach(inputs, 60)
    x = torch.randn(40, 1, 8, 8)
    terms, _, _ = objective(x[:20], torch.arange(20) % 4, x, 0.5, 10)
    _, own = method_parts(name)
    assert {"cross_entropy", "cclp"} < terms.keys()
    assert any(term.startswith(own) for term in terms)
    pulled = torch.autograd.grad(
        terms["cclp"], list(objective.net.features.parameters()), allow_unused=True
    )
    assert any(g is not None and g.any() for g in pulled)
    for part in objective.methods[2].parameters():  # what the other method owns, it alone teaches
        (g,) = torch.autograd.grad(terms["cclp"], part, retain_graph=True, allow_unused=True)
        assert g is None


@pytest.mark.parametrize("method", [*GENERATIVE, "cclp+ladder", "cclp+improved_gan"])
def test_training_in_bfloat16_stays_finite(method: str, tmp_path: Path) -> None:
    """Two steps are no training: the loss is finite, and the run evaluates and ends."""
    result = train(tiny_config(method=method, precision="bf16", max_steps=2), tmp_path / "run")
    assert result["precision"] == "bf16"
    assert 0 <= result["error"] <= 1
