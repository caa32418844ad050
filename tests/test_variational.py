"""Variational methods: densities against scipy, bounds against integrals, who learns from what."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad
from torch import Tensor, nn

from cclp.methods import make_methods, required_net
from cclp.methods.auxiliary import ADGM, SDGM
from cclp.methods.base import Method, Step
from cclp.methods.m1_m2 import M1M2
from cclp.methods.m2 import M2
from cclp.methods.mmcvae import MMCVAE, hinge, imbalance, one_hot_of
from cclp.methods.variational import (
    bound_over_classes,
    kl_to_standard,
    log_likelihood,
    log_normal,
    observed,
)
from cclp.nets import Net
from cclp.nets.autoencoders import AuxiliaryFeatures, Gaussian, LatentFeatures, draw_gaussian
from cclp.nets.registry import make_net
from cclp.runs.start import Stopped, resume, train
from cclp.training.objective import Objective
from tests.inputs import image_inputs, vector_inputs
from tests.runs import assert_same_run, stop_after, tiny_config

NAMES = ("m2", "m1_m2", "sdgm", "adgm", "mmcvae")
LN2 = math.log(2)
SURE = -60.0  # log variance of a sample that is its mean


class Fixed(nn.Module):
    """A network that is a formula."""

    def __init__(self, formula: Callable[..., Any]) -> None:
        super().__init__()
        self.formula = formula

    def forward(self, *given: Tensor) -> Any:
        return self.formula(*given)


def fix(method: nn.Module, **formulas: Callable[..., Any]) -> None:
    for name, formula in formulas.items():
        delattr(method, name)
        method.add_module(name, Fixed(formula))


def auxiliary_net(size: int = 1, classes: int = 2, inputs: int = 1) -> Net:
    return Net(AuxiliaryFeatures(inputs, 8, 4, 0.0, size), 4, classes, dropout=0.0)


def set_up(method: Method, net: Net, size: int = 1) -> None:
    method.attach(net, vector_inputs(size), 2)


def a_step(net: Net, x: Tensor, labels: Tensor, x_unlabeled: Tensor | None) -> Step:
    z = net.features(x)
    z_unlabeled = None if x_unlabeled is None else net.features(x_unlabeled)
    return Step(net, x, labels, x_unlabeled, z, z_unlabeled, net.classifier(z), 0.5)


# Densities.


def test_densities_are_those_of_scipy() -> None:
    generator = torch.Generator().manual_seed(0)
    x, mean, log_variance = torch.randn(3, 5, 4, generator=generator)
    expected = stats.norm(mean, (0.5 * log_variance).exp()).logpdf(x).sum(1)
    np.testing.assert_allclose(log_normal(x, mean, log_variance), expected, rtol=1e-5)
    vectors = log_likelihood(x, mean, vector_inputs(4))
    np.testing.assert_allclose(vectors, stats.norm(mean).logpdf(x).sum(1), rtol=1e-5)
    bits = (x > 0).float()
    pixels = log_likelihood(bits, mean, image_inputs(1, 2))
    np.testing.assert_allclose(pixels, stats.bernoulli(mean.sigmoid()).logpmf(bits).sum(1), 1e-5)
    # grey pixels: the mean over bits drawn from them
    grey = log_likelihood(torch.tensor([0.25]), torch.tensor([0.4]), image_inputs(1, 1))
    p = 1 / (1 + math.exp(-0.4))
    assert grey.item() == pytest.approx(0.25 * math.log(p) + 0.75 * math.log(1 - p), rel=1e-6)


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (0.7, 0.3), (-1.0, 2.5)])
def test_the_divergence_is_the_integral(mean: float, variance: float) -> None:
    q, p = stats.norm(mean, math.sqrt(variance)), stats.norm()
    expected, _ = quad(lambda z: q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), -12, 12)
    two = kl_to_standard(torch.full((2,), mean), torch.full((2,), math.log(variance)))
    assert two.item() == pytest.approx(2 * expected, rel=1e-5, abs=1e-7)


def test_samples_have_the_moments_and_pass_gradients() -> None:
    torch.manual_seed(0)
    mean = torch.full((40_000,), 2.0, requires_grad=True)
    log_variance = torch.full((40_000,), math.log(0.25), requires_grad=True)
    drawn = draw_gaussian(mean, log_variance)
    assert drawn.mean().item() == pytest.approx(2, abs=0.01)
    assert drawn.std().item() == pytest.approx(0.5, abs=0.01)
    drawn.square().mean().backward()  # type: ignore[no-untyped-call]
    assert mean.grad is not None
    assert log_variance.grad is not None
    assert mean.grad.sum().item() == pytest.approx(4, abs=0.02)  # d(μ² + σ²)/dμ
    assert log_variance.grad.sum().item() == pytest.approx(0.25, abs=0.02)  # d(μ² + σ²)/d ln σ²


def test_log_variances_are_bounded() -> None:
    encoder = Gaussian((1,), 2, 4)
    mean, log_variance = encoder(1e6 * torch.ones(1, 1))
    assert mean.shape == log_variance.shape == (1, 2)
    assert log_variance.abs().max() <= 8


def test_the_bound_over_classes_by_hand() -> None:
    elbo = torch.tensor([[-1.0, -3.0], [-2.0, -2.5]])
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])
    expected = [
        0.75 * (-1 - math.log(0.75)) + 0.25 * (-3 - math.log(0.25)),
        0.5 * (-2 - math.log(0.5)) + 0.5 * (-2.5 - math.log(0.5)),
    ]
    torch.testing.assert_close(bound_over_classes(logits, elbo), torch.tensor(expected))
    best = bound_over_classes(elbo, elbo)  # q(y) ∝ exp ELBO: the most there is
    torch.testing.assert_close(best, elbo.logsumexp(1))
    assert (bound_over_classes(logits, elbo) < best).all()


def test_pixels_are_explained_in_0_to_1() -> None:
    inputs = image_inputs(1, 2)
    pixels = torch.tensor([[[[0.0, 0.2], [0.6, 1.0]]]])
    torch.testing.assert_close(observed(inputs.from_pixels(pixels), inputs), pixels.flatten(1))
    x = torch.randn(3, 5)
    assert torch.equal(observed(x, vector_inputs(5)), x)


# M2.


def test_m2_by_hand() -> None:
    """q(z|x, y) = N(1, 0+), p(x|y, z) = N(z + y_1, 1), and a q(y|x) of (3/4, 1/4)."""
    net = Net(nn.Identity(), 1, 2, dropout=0.0)
    linear = net.classifier[1]
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.copy_(torch.tensor([math.log(3), 0.0]))
    method = M2(2, weight=0.5, latent=1, hidden=4)
    set_up(method, net)

    def encode(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ones = torch.ones_like(x + y[..., :1])
        return ones, SURE * ones

    fix(method, encoder=encode, decoder=lambda z, y: z + y[..., 1:])
    x, u = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0]])
    terms = method(a_step(net, x, torch.tensor([0, 1]), u))
    kl = 0.5 * (1 - 1 - SURE)

    def elbo(x: float, y: int) -> float:
        return float(stats.norm.logpdf(x, 1 + y)) - LN2 - kl

    labeled = (elbo(1, 0) + elbo(3, 1)) / 2
    assert terms["m2_labeled"].item() == pytest.approx(-0.5 * labeled, rel=1e-6)
    bound = 0.75 * (elbo(0, 0) - math.log(0.75)) + 0.25 * (elbo(0, 1) - math.log(0.25))
    assert terms["m2"].item() == pytest.approx(-0.5 * bound, rel=1e-6)


MANY = 40_000
GRID = torch.linspace(-9, 9, 4001)[:, None]
Y = torch.eye(2)


def log_integral(log_p: Tensor, *spacing: float) -> float:
    """Of exp(log_p) on a grid."""
    return float(log_p.double().flatten().logsumexp(0)) + sum(map(math.log, spacing))


def log_density(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """scipy's, of every number."""
    return torch.tensor(stats.norm(mean.numpy(), deviation.numpy()).logpdf(x.numpy()))


def log_sum(logs: list[float]) -> float:
    return math.log(sum(map(math.exp, logs)))


@torch.no_grad()
def log_p_of(x: float, y: Tensor, decode: Callable[[Tensor, Tensor], Tensor]) -> float:
    """ln p(x, y) = ln p(y) ∫ N(x; decode(z, y), 1) N(z; 0, 1) dz."""
    made = decode(GRID, y.expand(len(GRID), -1))
    log_p = log_density(torch.tensor(x), made, torch.ones(()))
    log_prior = log_density(GRID, torch.zeros(()), torch.ones(()))
    return log_integral(log_p + log_prior, 18 / 4000) - LN2


@torch.no_grad()
def test_m2_is_below_the_integral_whatever_its_networks() -> None:
    torch.manual_seed(0)
    net = Net(nn.Identity(), 1, 2, dropout=0.0)
    method = M2(2, latent=1, hidden=8)
    set_up(method, net)
    for x in (-0.5, 1.2):
        many = torch.full((MANY, 1), x)
        evidence = [log_p_of(x, y, method.decoder) for y in Y]
        elbo = method.elbo(many, torch.eye(2)[:, None])
        means, errors = elbo.mean(1), elbo.std(1) / math.sqrt(MANY)
        for mean, error, y, log_p in zip(means, errors, Y, evidence, strict=True):
            assert mean + 4 * error < log_p
            # the same with the integral over q(z|x, y) on a grid
            mean_z, log_variance = method.encoder(many[:1], y)
            log_q = log_density(GRID, mean_z, (0.5 * log_variance).exp())
            weights = log_q.exp() * (18 / 4000)
            fit = log_likelihood(many[:1], method.decoder(GRID, y), vector_inputs(1))
            prior = log_density(GRID, torch.zeros(()), torch.ones(()))
            exact = (weights * (fit[:, None] + prior - log_q)).sum() - LN2
            assert mean.item() == pytest.approx(exact.item(), abs=float(4 * error) + 1e-4)
        bound = bound_over_classes(net(many), elbo.T).mean()
        assert bound.item() < log_sum(evidence)


W, C, B = 1.5, 0.8, torch.tensor([0.3, -0.4])  # x = W z + C a + B_y + N(0, 1)


def posterior_of_z(rest: Tensor) -> tuple[Tensor, Tensor]:
    """Of rest = W z + N(0, 1)."""
    mean = W * rest / (1 + W**2)
    return mean, torch.full_like(mean, -math.log(1 + W**2))


@torch.no_grad()
def test_with_the_true_posterior_m2_is_the_integral() -> None:
    torch.manual_seed(0)
    method = M2(2, latent=1, hidden=4)
    set_up(method, Net(nn.Identity(), 1, 2, dropout=0.0))
    fix(
        method,
        encoder=lambda x, y: posterior_of_z(x - y @ B[:, None]),
        decoder=lambda z, y: W * z + y @ B[:, None],
    )
    for x in (-0.5, 1.2):
        elbo = method.elbo(torch.full((MANY, 1), x), torch.eye(2)[:, None])
        for mean, y in zip(elbo.mean(1), Y, strict=True):
            log_p = log_p_of(x, y, method.decoder)
            expected = stats.norm.logpdf(x, (y @ B).item(), math.sqrt(1 + W**2)) - LN2
            assert log_p == pytest.approx(expected, abs=1e-5)
            assert mean.item() == pytest.approx(log_p, abs=0.03)


# M1 + M2.


def latent_net(inputs: int = 1) -> Net:
    return Net(LatentFeatures(inputs, 8, 4, size=1), 4, 2, dropout=0.0)


def test_m1_m2_by_hand() -> None:
    """q(z₁|x) = N(x, 0+), p(x|z₁) = N(2 z₁, 1), q(z₂|z₁, y) = N(1, 0+), p(z₁|y, z₂) = N(z₂ + y₁, 4)
    and an even q(y|z₁).
    """
    net = latent_net().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    features = net.features
    assert isinstance(features, LatentFeatures)
    fix(features, encoder=lambda x: (x, torch.full_like(x, SURE)))
    method = M1M2(2, weight=0.5, latent=1, hidden=4)
    set_up(method, net)

    def style(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ones = torch.ones_like(z + y[..., :1])
        return ones, SURE * ones

    def explain(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        mean = z + y[..., 1:]
        return mean, torch.full_like(mean, math.log(4))

    fix(method, decoder=lambda z: 2 * z, style=style, explain=explain)
    x, u = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0]])
    terms = {name: t.item() for name, t in method(a_step(net, x, torch.arange(2), u)).items()}

    def m1(x: float) -> float:
        return float(stats.norm.logpdf(x, 2 * x)) - 0.5 * (x**2 - 1 - SURE)

    def m2(z: float, y: int) -> float:
        return float(stats.norm.logpdf(z, 1 + y, 2)) - LN2 - 0.5 * (1 - 1 - SURE)

    assert terms == pytest.approx(
        {
            "m1": -(m1(1) + m1(3) + m1(0)) / 3,
            "m1_m2_labeled": -0.5 * (m2(1, 0) + m2(3, 1)) / 2,
            "m1_m2": -0.5 * ((m2(0, 0) + m2(0, 1)) / 2 + LN2),
        },
        rel=1e-6,
    )


@torch.no_grad()
def test_m1_m2_is_below_the_integrals_whatever_its_networks() -> None:
    """ln p(x) = ln ∫ p(x|z₁) N(z₁; 0, 1) dz₁, and ln p(z₁, y) of M2."""
    torch.manual_seed(0)
    net = latent_net()
    method = M1M2(2, latent=1, hidden=8)
    set_up(method, net)
    features = net.features
    assert isinstance(features, LatentFeatures)
    prior = log_density(GRID, torch.zeros(()), torch.ones(()))
    for value in (-0.5, 1.2):
        many = torch.full((MANY, 1), value)
        made = log_density(torch.tensor(value), method.decoder(GRID), torch.ones(()))
        bound, _ = method.autoencode(features, many)
        off = 4 * bound.std() / math.sqrt(MANY)
        assert bound.mean() + off < log_integral(made + prior, 18 / 4000)
        for elbo, y in zip(method.elbo(many, torch.eye(2)[:, None]), Y, strict=True):
            mean, log_variance = method.explain(GRID, y.expand(len(GRID), -1))
            density = log_density(torch.tensor(value), mean, (0.5 * log_variance).exp())
            log_p = log_integral(density + prior, 18 / 4000) - LN2
            assert elbo.mean() + 4 * elbo.std() / math.sqrt(MANY) < log_p


@torch.no_grad()
def test_with_the_true_posteriors_m1_m2_is_the_integrals() -> None:
    """x = W z₁ + N(0, 1), and z₁ = W z₂ + B_y + N(0, 1)."""
    torch.manual_seed(0)
    net = latent_net()
    method = M1M2(2, latent=1, hidden=4)
    set_up(method, net)
    features = net.features
    assert isinstance(features, LatentFeatures)
    fix(features, encoder=posterior_of_z)

    def explain(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        mean = W * z + y @ B[:, None]
        return mean, torch.zeros_like(mean)

    fix(
        method,
        decoder=lambda z: W * z,
        style=lambda z, y: posterior_of_z(z - y @ B[:, None]),
        explain=explain,
    )
    for value in (-0.5, 1.2):
        many = torch.full((MANY, 1), value)
        expected = stats.norm.logpdf(value, 0, math.sqrt(1 + W**2))
        assert method.autoencode(features, many)[0].mean().item() == pytest.approx(
            expected, abs=0.03
        )
        for elbo, y in zip(method.elbo(many, torch.eye(2)[:, None]), Y, strict=True):
            expected = stats.norm.logpdf(value, (y @ B).item(), math.sqrt(1 + W**2)) - LN2
            assert elbo.mean().item() == pytest.approx(expected, abs=0.03)


def test_the_latent_net_is_for_vectors_and_images() -> None:
    torch.manual_seed(0)
    for shape in ((5,), (1, 8, 8), (3, 32, 32)):
        net = make_net("latent", shape, 4).eval()
        x = torch.randn(3, *shape)
        assert net.features(x).shape == (3, net.embedding_size)
        assert net(x).shape == (3, 4)
    with pytest.raises(ValueError, match="method 'm1_m2' needs net 'latent'"):
        set_up(M1M2(4), make_net("mlp", (5,), 4), 5)


# SDGM and ADGM.


def plane() -> tuple[Tensor, Tensor, float]:
    """Points (a, z) of a grid, and its spacing."""
    axis = torch.linspace(-9, 9, 401)
    a, z = torch.meshgrid(axis, axis, indexing="ij")
    return a.reshape(-1, 1), z.reshape(-1, 1), 18 / 400


@torch.no_grad()
@pytest.mark.parametrize("kind", [SDGM, ADGM])
def test_auxiliary_bounds_are_below_the_integral(kind: type[SDGM]) -> None:
    """ln p(x, y) = ln p(y) ∫∫ p(z) p(a|…) p(x|…) da dz, with the networks as they begin."""
    torch.manual_seed(0)
    net = auxiliary_net().eval()  # no batch statistics
    method = kind(2, latent=1, hidden=8)
    set_up(method, net)
    assert isinstance(net.features, AuxiliaryFeatures)
    a, z, spacing = plane()
    for x in (-0.5, 1.2):
        many = torch.full((MANY, 1), x)
        evidence = []
        q = tuple(part.expand(MANY, -1) for part in _q_a(net, many[:1]))
        drawn = draw_gaussian(*q)
        elbo = method.elbo(many, drawn, (q[0], q[1]), torch.eye(2)[:, None])
        for number, y in enumerate(Y):
            given = y.expand(len(a), -1)
            made, log_p_a = method.model(many[: len(a)].new_full((len(a), 1), x), a, z, given)
            log_p = log_likelihood(torch.full_like(a, x), made, vector_inputs(1))
            log_prior = log_density(z, torch.zeros(()), torch.ones(()))[:, 0]
            evidence.append(log_integral(log_p + log_prior + log_p_a, spacing, spacing) - LN2)
            if kind is ADGM:  # a is integrated out: the model is M2's
                assert evidence[-1] == pytest.approx(log_p_of(x, y, method.p_x), abs=2e-3)
            mean, error = elbo[number].mean(), elbo[number].std() / math.sqrt(MANY)
            assert mean + 4 * error < evidence[-1]
        features = net.features.body(torch.cat([many, drawn], 1))
        bound = bound_over_classes(net.classifier(features), elbo.T)
        assert bound.mean() + 4 * bound.std() / math.sqrt(MANY) < log_sum(evidence)


def _q_a(net: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    assert isinstance(net.features, AuxiliaryFeatures)
    _, _, q = net.features.sample(x)
    return q


@torch.no_grad()
def test_with_the_true_posterior_sdgm_is_the_integral() -> None:
    """x = W z + C a + B_y + N(0, 1), a = N(0, 1): everything is Gaussian."""
    torch.manual_seed(0)
    method = SDGM(2, latent=1, hidden=4)
    set_up(method, auxiliary_net())
    fix(
        method,
        q_z=lambda a, x, y: posterior_of_z(x - C * a - y @ B[:, None]),
        p_x=lambda z, y, a: W * z + C * a + y @ B[:, None],
        p_a=lambda z, y: (torch.zeros_like(z), torch.zeros_like(z)),
    )
    whole = 1 + W**2 + C**2
    for x in (-0.5, 1.2):
        many = torch.full((MANY, 1), x)
        for y in Y:
            mean = C * (many - y @ B) / whole
            q_a = mean, torch.full_like(mean, math.log(1 - C**2 / whole))
            elbo = method.elbo(many, draw_gaussian(*q_a), q_a, y.expand(MANY, -1))
            expected = stats.norm.logpdf(x, (y @ B).item(), math.sqrt(whole)) - LN2
            assert elbo.mean().item() == pytest.approx(expected, abs=0.03)


@torch.no_grad()
def test_with_the_true_posterior_adgm_is_the_integral() -> None:
    """x = W z + B_y + N(0, 1), and p(a|x, z, y) = q(a|x) = N(x, 1/4)."""
    torch.manual_seed(0)
    method = ADGM(2, latent=1, hidden=4)
    set_up(method, auxiliary_net())

    def auxiliary(x: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.full_like(x, math.log(0.25))

    fix(
        method,
        q_z=lambda a, x, y: posterior_of_z(x - y @ B[:, None]),
        p_x=lambda z, y: W * z + y @ B[:, None],
        p_a=lambda z, y, x: auxiliary(x),
    )
    for x in (-0.5, 1.2):
        many = torch.full((MANY, 1), x)
        q_a = auxiliary(many)
        for y in Y:
            elbo = method.elbo(many, draw_gaussian(*q_a), q_a, y.expand(MANY, -1))
            expected = stats.norm.logpdf(x, (y @ B).item(), math.sqrt(1 + W**2)) - LN2
            assert elbo.mean().item() == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("kind", [SDGM, ADGM])
def test_auxiliary_models_by_hand(kind: type[SDGM]) -> None:
    """All densities are fixed: q(a|x) = N(0, 0+) at 0, q(z|…) = N(1, 0+), p(a|…) = N(2, 1)."""
    net = auxiliary_net().eval()
    assert isinstance(net.features, AuxiliaryFeatures)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    method = kind(2, weight=0.5, latent=1, hidden=4)
    set_up(method, net)

    def constant(mean: float, log_variance: float) -> Callable[..., tuple[Tensor, Tensor]]:
        def density(*given: Tensor) -> tuple[Tensor, Tensor]:
            ones = torch.ones_like(sum(part[..., :1] for part in given))  # type: ignore[arg-type]
            return mean * ones, log_variance * ones

        return density

    fix(
        method,
        q_z=constant(1.0, SURE),
        p_a=constant(2.0, 0.0),
        p_x=lambda z, y, a=0.0: z + a + y[..., 1:],
    )
    x, u = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0]])
    terms = method(a_step(net, x, torch.tensor([0, 1]), u))

    def elbo(x: float, y: int) -> float:
        log_a = stats.norm.logpdf(0, 2) - stats.norm.logpdf(0)  # q(a|x) has variance 1
        return float(stats.norm.logpdf(x, 1 + y) + log_a) - LN2 - 0.5 * (1 - 1 - SURE)

    labeled = (elbo(1, 0) + elbo(3, 1)) / 2
    assert terms[f"{method.name}_labeled"].item() == pytest.approx(-0.5 * labeled, rel=1e-6)
    bound = (elbo(0, 0) + elbo(0, 1)) / 2 + LN2  # q(y|a, x) is even
    assert terms[method.name].item() == pytest.approx(-0.5 * bound, rel=1e-6)


def test_the_auxiliary_net_samples_while_training_only() -> None:
    torch.manual_seed(0)
    for shape in ((5,), (1, 8, 8), (1, 28, 28), (3, 32, 32)):
        net = make_net("auxiliary", shape, 4)
        x = torch.randn(3, *shape)
        assert isinstance(net.features, AuxiliaryFeatures)
        _, first, (mean, _) = net.features.sample(x)
        assert not torch.equal(first, mean)
        assert not torch.equal(first, net.features.sample(x)[1])
        net.eval()
        assert torch.equal(net.features(x), net.features(x))
        assert net.features(x).shape == (3, net.embedding_size)
        assert net(x).shape == (3, 4)
    features = make_net("auxiliary", (5,), 4).eval().features
    assert isinstance(features, AuxiliaryFeatures)
    x = torch.randn(3, 5)
    z, a, (mean, _) = features.sample(x)
    assert torch.equal(a, mean)
    torch.testing.assert_close(z, features(x))
    with pytest.raises(ValueError, match="method 'sdgm' needs net 'auxiliary'"):
        set_up(SDGM(4), make_net("mlp", (5,), 4), 5)


# mmCVAE.


def test_margins_by_hand() -> None:
    scores = torch.tensor([[2.0, 0.5, -1.0], [0.2, 0.0, 0.1]])
    # 1 + 0.5 − 2 < 0; 1 + 0.2 − 0.1
    assert hinge(scores, torch.tensor([0, 2])).item() == pytest.approx(1.1 / 2, rel=1e-6)
    # at the largest score: the margin of the second is 0.1
    assert hinge(scores, scores.argmax(1)).item() == pytest.approx(0.9 / 2, rel=1e-6)
    off = imbalance(scores, torch.tensor([0, 2]), scores, torch.tensor([0, 0]))
    # (2, 0, 0.1) / 2 against (2.2, 0, 0) / 2
    assert off.item() == pytest.approx(math.hypot(0.1, 0.05), rel=1e-6)


def test_mmcvae_by_hand() -> None:
    net = Net(nn.Identity(), 2, 2, dropout=0.0)
    linear = net.classifier[1]
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(2))
    method = MMCVAE(2, weight=2, hat=0.25, balance=0.5, elbo=0.1, latent=1, hidden=4)
    set_up(method, net, 2)

    def encode(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ones = torch.ones(len(x), 1)
        return 0 * ones, 0 * ones

    fix(method, encoder=encode, decoder=lambda z, y: 0 * z + y)
    x, u = torch.tensor([[0.5, 0.0], [0.0, 2.0]]), torch.tensor([[0.25, 0.0], [0.0, 3.0]])
    terms = {name: t.item() for name, t in method(a_step(net, x, torch.arange(2), u)).items()}

    def elbo(x: list[float], y: int) -> float:
        return float(stats.norm.logpdf(x, [1 - y, y]).sum()) - LN2

    assert terms == pytest.approx(
        {
            "mmcvae_hinge": 2 * 0.5 / 2,
            "mmcvae_labeled": -0.1 * (elbo([0.5, 0], 0) + elbo([0, 2], 1)) / 2,
            "mmcvae_hat": 2 * 0.25 * 0.75 / 2,
            "mmcvae_balance": 2 * 0.5 * math.hypot(0.25 / 2, 1 / 2),
            "mmcvae": -0.1 * (elbo([0.25, 0], 0) + elbo([0, 3], 1)) / 2,
        },
        rel=1e-5,
    )


def test_the_straight_through_gradient() -> None:
    scores = torch.tensor([[math.log(3), 0.0]], requires_grad=True)
    y = one_hot_of(scores, 0.5)
    assert y.tolist() == [[1, 0]]
    (y @ torch.tensor([2.0, 5.0])).sum().backward()  # type: ignore[no-untyped-call]
    # half of Σ_j g_j ∂p_j/∂f_0 = p_0 (g_0 − p·g) = 3/4 (2 − 2.75)
    expected = 0.5 * 0.75 * (2 - 2.75)
    torch.testing.assert_close(scores.grad, torch.tensor([[expected, -expected]]))


# Who learns from what.


def objective_for(name: str, size: int, classes: int, **settings: Any) -> Objective:
    net = make_net(required_net(name) or "mlp", (size,), classes)
    objective = Objective(nn.Identity(), net, make_methods(name, classes, {name: settings}))
    objective.attach(vector_inputs(size), 60)
    return objective


def learners(name: str, **settings: Any) -> dict[str, set[str]]:
    """Which parts get gradients that are not zero from each term."""
    torch.manual_seed(0)
    objective = objective_for(name, 6, 3, **settings)
    parts: dict[str, nn.Module] = {"classifier": objective.net.classifier}
    features = objective.net.features
    within = {"sdgm": ("auxiliary", "body"), "adgm": ("auxiliary", "body")}
    within["m1_m2"] = ("encoder", "body")
    parts |= (
        {part: features.get_submodule(part) for part in within[name]}
        if name in within
        else {"features": features}
    )
    parts |= dict(objective.methods[1].named_children())
    x, y = torch.randn(40, 6), torch.arange(15) % 3
    terms, _, _ = objective(x[:15], y, x[15:], 0.5, 10)
    found = {}
    for term in (key for key in terms if key != "cross_entropy"):
        objective.zero_grad()
        terms[term].backward(retain_graph=True)
        found[term] = {
            part
            for part, module in parts.items()
            if any(p.grad is not None and p.grad.norm() > 0 for p in module.parameters())
        }
    return found


def test_who_learns_from_m2() -> None:
    assert learners("m2") == {
        "m2_labeled": {"encoder", "decoder"},
        "m2": {"features", "classifier", "encoder", "decoder"},
    }


def test_who_learns_from_m1_m2() -> None:
    """The encoder of z₁ and the decoder of x from M1 alone."""
    assert learners("m1_m2") == {
        "m1": {"encoder", "decoder"},
        "m1_m2_labeled": {"style", "explain"},
        "m1_m2": {"body", "classifier", "style", "explain"},
    }


@pytest.mark.parametrize("name", ["sdgm", "adgm"])
def test_who_learns_from_auxiliary_models(name: str) -> None:
    model = {"q_z", "p_a", "p_x"}
    assert learners(name) == {
        f"{name}_labeled": {"auxiliary", *model},
        name: {"auxiliary", "body", "classifier", *model},
    }


def test_who_learns_from_mmcvae() -> None:
    net, model = {"features", "classifier"}, {"encoder", "decoder"}
    expected = {
        "mmcvae_hinge": net,
        "mmcvae_labeled": model,
        "mmcvae_hat": net,
        "mmcvae_balance": net,
        "mmcvae": net | model,
    }
    assert learners("mmcvae") == expected
    assert learners("mmcvae", straight_through=0) == {**expected, "mmcvae": model}


# The models as wholes.


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_a_mixture(name: str) -> None:
    """Four round clusters, a class each, and three labels of each class."""
    torch.manual_seed(0)
    centres = torch.tensor([[3.0, 3.0], [3.0, -3.0], [-3.0, 3.0], [-3.0, -3.0]])
    objective = objective_for(name, 2, 4, hidden=32, latent=2)
    y = torch.arange(212) % 4
    x = centres[y] + 0.8 * torch.randn(212, 2)
    optimizer = torch.optim.Adam(objective.parameters(), lr=5e-3)
    before = after = math.nan
    for number in range(600 if name == "m1_m2" else 150):  # M2 can but follow M1
        terms, _, _ = objective(x[:12], y[:12], x[12:], 0.5, 10)
        after = terms[name].item()
        before = after if number == 0 else before
        optimizer.zero_grad()
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert after < before
    objective.eval()
    with torch.no_grad():
        drawn = objective.draw(400)
        assert drawn is not None
        off = (drawn - centres.repeat(100, 1)).norm(dim=1)
        assert off.median() < 1
        assert off.quantile(0.75 if name == "m1_m2" else 0.9) < 2
        assert (objective.net(x).argmax(1) == y).float().mean() > 0.95


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", [8, 32])
def test_images_are_drawn_as_the_network_takes_them(name: str, side: int) -> None:
    torch.manual_seed(0)
    channels = 1 if side == 8 else 3
    inputs = image_inputs(channels, side)
    net = make_net(required_net(name) or "mlp", inputs.shape, 4)
    objective = Objective(nn.Identity(), net, make_methods(name, 4, {name: {"hidden": 16}}))
    objective.attach(inputs, 60)
    drawn = objective.draw(5)
    assert drawn is not None
    assert drawn.shape == (5, *inputs.shape)
    assert drawn.abs().max() < 1  # within the range of images
    x = drawn.detach().contiguous(memory_format=torch.channels_last)
    terms, _, _ = objective(x, torch.arange(5) % 4, x, 0.5, 10)
    assert all(term.isfinite() for term in terms.values())


@pytest.mark.parametrize("name", ["m2", "m1_m2", "sdgm"])
def test_stopped_and_resumed_equals_undisturbed(name: str, tmp_path: Path) -> None:
    config = tiny_config(method=name, settings={name: {"hidden": 16}})
    train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=stop_after(7))
    resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (M2, {"weight": -1}, "weight must be at least 0"),
        (M2, {"latent": 0}, "latent must be at least 1"),
        (SDGM, {"hidden": 0}, "hidden must be at least 1"),
        (ADGM, {"weight": -1}, "weight must be at least 0"),
        (MMCVAE, {"hat": -0.1}, "hat must be at least 0"),
        (MMCVAE, {"straight_through": -1}, "straight_through must be at least 0"),
    ],
)
def test_settings_are_checked(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(10, **settings)
