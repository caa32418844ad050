"""The ladder: two levels by hand, what a clean pass is, who learns, and resuming."""

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cclp.methods.base import Step, kept_statistics
from cclp.methods.ladder import Ladder, denoising_cost
from cclp.methods.ladder_gamma import LadderGamma
from cclp.nets import mlp
from cclp.nets.ladder import Combinator, Decoder, LadderNet, Level
from cclp.nets.registry import make_net
from cclp.runs.start import Stopped, resume, train
from cclp.training.evaluation import recalibrate_batchnorm
from cclp.training.machine import make_fabric
from cclp.training.objective import Objective
from tests.inputs import image_inputs, vector_inputs
from tests.runs import assert_same_run, stop_after, tiny_config

SHAPES = [(6,), (1, 8, 8), (1, 28, 28), (3, 32, 32)]


def ladder_net(shape: tuple[int, ...] = (6,), name: str = "ladder") -> LadderNet:
    torch.manual_seed(0)
    net = make_net(name, shape, 3)
    assert isinstance(net, LadderNet)
    return net


def quiet(net: LadderNet) -> LadderNet:
    net.encoder.noise = 0.0
    for level in net.levels:
        level.noise = 0.0
    return net


def make_step(net: LadderNet, x: Tensor) -> Step:
    z_labeled, z = net.features(x[:6]), net.features(x)
    logits = net.classifier(z_labeled)
    return Step(net, x[:6], torch.arange(6) % 3, x, z_labeled, z, logits, 0.5)


def normal(a: Tensor) -> Tensor:
    """z-scores over the batch, with the constant of batch norm."""
    axes = [0, *range(2, a.ndim)]
    return (a - a.mean(axes, keepdim=True)) / (
        a.var(axes, correction=0, keepdim=True) + 1e-5
    ).sqrt()


# --- values ---


def test_the_combinator_by_hand() -> None:
    combine = Combinator(1)
    z, u = torch.tensor([[2.0]]), torch.tensor([[0.0]])
    assert combine(z, u).item() == 0  # a1, a4 to a6, a9 and a10 are 0 at first
    with torch.no_grad():
        combine.a[:, 0] = torch.tensor([2.0, 1.0, 0.0, 3.0, 0.5, 1.0, 1.0, 0.0, 2.0, 0.25])
    # u = 0: μ = 2 · ½ + 0.5 = 1.5, v = 1 · ½ + 0.25 = 0.75
    assert combine(z, u).item() == pytest.approx((2 - 1.5) * 0.75 + 1.5)
    u = torch.tensor([[1.0]])
    half = 1 / (1 + np.exp(-1.0))
    mean, share = 2 * half + 3 + 0.5, half + 2 + 0.25
    assert combine(z, u).item() == pytest.approx((2 - mean) * share + mean)


def test_the_cost_of_two_samples_by_hand() -> None:
    """a = (0, 4): m = 2, s = 2, z = (−1, 1); ẑ = (1, 3) is normalised to (−½, ½)."""
    found = denoising_cost(torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0], [4.0]]))
    assert found.item() == pytest.approx(0.25, rel=1e-5)


def test_the_loss_of_two_samples_by_hand() -> None:
    """One level below the classifier, no noise: of two samples every z is 1 and −1."""
    level = Level(nn.Linear(1, 1, bias=False), nn.ReLU(), noise=0.0)
    net = LadderNet([level], 1, 2, flat=True)
    method = Ladder(2, input_weight=1000, first_weight=10, later_weight=0.1, noise=0, input_noise=0)
    method.attach(net, vector_inputs(1), 2)
    with torch.no_grad():
        level.layer.weight.fill_(2.0)
        net.top.layer.weight.copy_(torch.tensor([[1.0], [-3.0]]))
        for combine in method.decoder.combinators:
            assert isinstance(combine, Combinator)
            combine.a[-1] = 1.0  # v = 1: ẑ is z̃
    x = torch.tensor([[1.0], [3.0]])
    # Inputs: ẑ = x costs nothing. W x = (2, 6), m = 4, s = 2, z̃ = (−1, 1): ((−1 − 2) / 2)² and
    # ((1 − 6) / 2)². h = (0, 1), at the top (0, 1) and (0, −3), s = ½ and 3/2, z̃ = (−1, 1) and
    # (1, −1): (−1 / ½)², 0, (1 / 1.5)² and ((−1 + 3) / 1.5)².
    first, top = (2.25 + 6.25) / 2, (4 + 0 + 4 / 9 + 16 / 9) / 4
    found = method(make_step(net, x)._replace(x_unlabeled=x))["ladder"].item()
    assert found == pytest.approx(10 * first + 0.1 * top, rel=1e-4)
    alone = LadderGamma(2, weight=0.5, noise=0, input_noise=0)
    alone.attach(net, vector_inputs(1), 2)
    with torch.no_grad():
        alone.combinator.a[-1] = 1.0
    found = alone(make_step(net, x))["ladder_gamma"].item()
    assert found == pytest.approx(0.5 * top, rel=1e-4)


def test_the_decoder_goes_down_level_by_level() -> None:
    torch.manual_seed(0)
    decoder = Decoder([4, 3, 2])
    for parameter in decoder.parameters():
        nn.init.normal_(parameter)
    noisy, p = [torch.randn(7, size) for size in (4, 3, 2)], torch.rand(7, 2)
    top = decoder.combinators[2](noisy[2], normal(p))
    middle = decoder.combinators[1](noisy[1], normal(top @ decoder.layers[1].weight.T))
    bottom = decoder.combinators[0](noisy[0], normal(middle @ decoder.layers[0].weight.T))
    torch.testing.assert_close(decoder(noisy, p), [bottom, middle, top])


# --- the network ---


@pytest.mark.parametrize("name", ["ladder", "ladder_gamma"])
@pytest.mark.parametrize("shape", SHAPES)
def test_evaluation_is_a_clean_pass_with_statistics_of_clean_passes(
    name: str, shape: tuple[int, ...]
) -> None:
    net, x = ladder_net(shape, name), torch.randn(12, *shape)
    for level in net.levels:
        level.norm.momentum = None  # the mean over all passes
    with torch.no_grad():
        for level in net.levels:
            level.bias.normal_(std=0.3)
        z = net.features(x)
        net.classifier(z)  # noisy embeddings leave the statistics alone
        h = x.flatten(1) if name == "ladder" or len(shape) == 1 else x
        for level in net.levels:
            a = level.layer(h)
            axes = [0, *range(2, a.ndim)]
            torch.testing.assert_close(level.norm.running_mean, a.mean(axes), rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(level.norm.running_var, a.var(axes), rtol=1e-3, atol=1e-5)
            assert level.norm.num_batches_tracked == 1
            assert level.norm.running_var is not None
            level.norm.running_var.copy_(a.var(axes, correction=0))  # as it is normalised below
            z_clean, h = (
                h,
                level.then((normal(a) + level.bias) * (1.0 if level.gain is None else level.gain)),
            )
        net.eval()
        torch.testing.assert_close(net.features(x), z_clean, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(net(x), h, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(z, z_clean, atol=1e-2)


def test_training_is_a_noisy_pass() -> None:
    net = ladder_net()
    x = torch.randn(4000, 6)
    noisy, logits = net.noisy(x)
    assert [z.shape[1] for z in noisy] == [6, 250, 125, 60, 60, 60, 3]
    assert (noisy[0] - x).std().item() == pytest.approx(0.3, rel=0.05)
    assert noisy[1].std().item() == pytest.approx((1 + 0.3**2) ** 0.5, rel=0.02)
    torch.manual_seed(5)
    with kept_statistics(net):
        one = net(x)
        torch.manual_seed(5)
        torch.testing.assert_close(net.noisy(x)[1], one)
    assert not torch.equal(logits, one)
    quiet(net)
    with kept_statistics(net):
        torch.testing.assert_close(net.noisy(x)[1], net(x))
    for a, z in zip(net.clean(x)[1:], net.noisy(x)[0][1:], strict=True):
        torch.testing.assert_close(normal(a), z)


def test_widths_and_convolutions_are_those_of_the_paper() -> None:
    sizes = [level.bias.numel() for level in ladder_net((1, 28, 28)).levels]
    assert sizes == [1000, 500, 250, 250, 250, 3]
    net = ladder_net((1, 28, 28), "ladder_gamma")
    x, sides = torch.randn(2, 1, 28, 28), []
    for level in net.levels[:-1]:
        sides.append(tuple(level.layer(x).shape[1:]))
        x = level.after(level.layer(x))
    assert sides == [(32, 32, 32), (64, 14, 14), (64, 16, 16), (128, 6, 6), (3, 6, 6)]
    assert x.shape == (2, 3)
    assert net.levels[0].gain is None
    assert net.top.gain is not None
    with pytest.raises(ValueError, match="images of 8 x 8 pixels or more"):
        make_net("ladder_gamma", (1, 7, 8), 3)


def test_a_copy_remembers_for_itself() -> None:
    net = ladder_net()
    other = deepcopy(net)
    other.features(torch.randn(8, 6))
    assert other.top.norm.num_batches_tracked == 1
    assert net.top.norm.num_batches_tracked == 0
    assert len(list(net.parameters())) == len({id(p) for p in net.parameters()})
    with kept_statistics(other):
        other.features(torch.randn(8, 6))
    assert other.top.norm.num_batches_tracked == 1


def test_recalibration_is_of_all_levels_and_clean() -> None:
    net = ladder_net()
    x = torch.randn(40, 6)
    net.features(x + 3)
    objective = Objective(nn.Identity(), net, [])
    recalibrate_batchnorm(make_fabric("cpu", "32"), objective, x.numpy(), np.arange(40), 0)
    found = net.clean(x)
    for level, a in zip(net.levels, found[1:], strict=True):
        torch.testing.assert_close(level.norm.running_mean, a.mean(0), rtol=1e-3, atol=1e-4)


# --- the methods ---


def test_noise_of_the_inputs_by_their_kind() -> None:
    for inputs, noise in (
        (vector_inputs(6), 0.3),
        (image_inputs(1, 8), 1),
        (image_inputs(3, 8), 0.3),
    ):
        net = ladder_net(inputs.shape)
        Ladder(3).attach(net, inputs, 9)
        assert net.encoder.noise == noise
        LadderGamma(3, noise=0.2, input_noise=0.7).attach(net, inputs, 9)
        assert net.encoder.noise == 0.7
        assert [level.noise for level in net.levels] == [0.2] * 6
    with pytest.raises(ValueError, match="must be a ladder's, got Net"):
        Ladder(3).attach(mlp(6, 3), vector_inputs(6), 9)
    for wrong in ("weight", "input_weight", "first_weight", "later_weight", "noise", "input_noise"):
        with pytest.raises(ValueError, match=f"{wrong} must be at least 0"):
            Ladder(3, **{wrong: -1})


def test_the_classifier_learns_from_the_denoising_through_both_passes() -> None:
    """No gradient is stopped: without the decoder's share there is one of the clean pass."""
    net = ladder_net()
    method = Ladder(3)
    method.attach(net, vector_inputs(6), 20)
    step = make_step(net, torch.randn(20, 6))
    method(step)["ladder"].backward()
    for name, parameter in (*net.named_parameters(), *method.named_parameters()):
        assert parameter.grad is not None, name
    # At first every ẑ is 0 whatever the noisy pass: the gradient of W is the clean pass's.
    for level in net.levels:
        assert level.layer.weight.grad is not None
        assert level.layer.weight.grad.norm() > 0


def test_a_decoder_learns_to_take_the_noise_away() -> None:
    """On points in a plane of eight dimensions much of the noise can be told from the data."""
    torch.manual_seed(0)
    x = torch.randn(200, 2) @ torch.randn(2, 8)
    x = x / x.std()
    net = ladder_net((8,))
    method = Ladder(3, input_weight=10, first_weight=1)
    method.attach(net, vector_inputs(8), 200)
    adam = torch.optim.Adam([*net.parameters(), *method.parameters()], lr=5e-3)
    for _ in range(300):
        loss = method(make_step(net, x))["ladder"]
        adam.zero_grad()
        loss.backward()
        adam.step()
    noisy, logits = net.noisy(x)
    denoised = method.decoder(noisy, logits.softmax(1))[0]
    before, after = ((z - x).square().mean().item() for z in (noisy[0], denoised))
    assert before == pytest.approx(0.09, rel=0.1)
    assert after < 0.6 * before


@pytest.mark.parametrize("method", ["ladder", "ladder_gamma"])
def test_stopped_and_resumed_equals_undisturbed(method: str, tmp_path: Path) -> None:
    config = tiny_config(max_steps=6, evaluate_every=3, method=method)
    train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=stop_after(4))
    resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
