"""GANs: losses by hand, who learns from which term, and a mixture of two that is learned."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cclp.methods import make_methods, required_net
from cclp.methods.ali import ALI
from cclp.methods.bad_gan import BadGAN
from cclp.methods.base import Inputs, Method, Step
from cclp.methods.catgan import CatGAN, indecision
from cclp.methods.improved_gan import ImprovedGAN, discriminator_loss, feature_matching
from cclp.methods.triple_gan import TripleGAN
from cclp.nets import Net
from cclp.nets.ali import LATENT, JointFeatures
from cclp.nets.density import MADE
from cclp.nets.discriminators import PairDiscriminator
from cclp.nets.registry import make_net
from cclp.runs.start import Stopped, resume, train
from cclp.training.objective import Objective
from tests.inputs import image_inputs, vector_inputs
from tests.runs import assert_same_run, stop_after, tiny_config

LN3 = math.log(3)
LN2 = math.log(2)
X = torch.tensor([[LN3, 0.0], [0.0, 0.0]])  # as logits: (3/4, 1/4) and (1/2, 1/2)
H = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))  # entropy of the first
GANS = ("improved_gan", "catgan", "triple_gan", "bad_gan", "ali")
CENTRES = torch.tensor([[2.0, 1.0], [-1.0, -1.5]])


class Given(nn.Module):
    """A generator that makes these samples, whatever the noise."""

    def __init__(self, samples: Tensor) -> None:
        super().__init__()
        self.samples = nn.Parameter(samples.clone())

    def forward(self, noise: Tensor, condition: Tensor | None = None) -> Tensor:
        return self.samples[: len(noise)]

    def noise(self, count: int) -> Tensor:
        return torch.zeros(count, 1)


def quiet_net() -> Net:
    """Two inputs are two embeddings are two logits."""
    net = Net(nn.Identity(), 2, 2, dropout=0.0)
    linear = net.classifier[1]
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(2))
    return net


def make_step(net: Net, x_unlabeled: Tensor | None = X, *, progress: float = 1.0) -> Step:
    x = torch.eye(2)
    z = net.features(x)
    z_unlabeled = None if x_unlabeled is None else net.features(x_unlabeled)
    return Step(
        net, x, torch.tensor([0, 1]), x_unlabeled, z, z_unlabeled, net.classifier(z), progress
    )


def given(method: Method, net: Net, samples: Tensor) -> Method:
    """The method with a generator that makes these samples."""
    method.attach(net, vector_inputs(2), 2)
    method.generator = Given(samples)
    return method


def values(terms: dict[str, Tensor]) -> dict[str, float]:
    return {name: term.item() for name, term in terms.items()}


def learners(term: Tensor, modules: dict[str, nn.Module]) -> set[str]:
    """Names of the modules that a term gives gradients to, of all of its layers or of none."""
    names = set()
    for name, module in modules.items():
        parameters = [p for p in module.parameters() if p.requires_grad]
        found = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
        given = [g is not None and bool(g.any()) for g in found]
        if any(given):
            names.add(name)
    return names


def objective_of(name: str, inputs: Inputs, net: Net | None = None) -> Objective:
    """On four classes, or two in two dimensions, with a net of the registry if none is given."""
    classes = 2 if inputs.shape == (2,) else 4
    net = net or make_net(required_net(name) or "mlp", inputs.shape, classes)
    objective = Objective(nn.Identity(), net, make_methods(name, classes, {}))
    objective.attach(inputs, 60)
    return objective


def unnormalised_net() -> Net:
    """Of points of a plane, without batch norm: the scale of made-up samples is seen."""
    body = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU())
    return Net(body, 64, 2, dropout=0.0)


def mixture(count: int) -> tuple[Tensor, Tensor]:
    """Two small Gaussians in two dimensions, as many samples of each, and whose they are."""
    y = torch.arange(count) % 2
    return CENTRES[y] + 0.3 * torch.randn(count, 2), y


def energy_distance(x: Tensor, y: Tensor) -> float:
    """2 E|x − y| − E|x − x'| − E|y − y'|: 0 for samples of one distribution."""
    return float(2 * torch.cdist(x, y).mean() - torch.cdist(x, x).mean() - torch.cdist(y, y).mean())


def learn_mixture(name: str, steps: int, learning_rate: float = 1e-3) -> Objective:
    """Train on the mixture for so many steps."""
    torch.manual_seed(0)
    net = None if required_net(name) else unnormalised_net()
    objective = objective_of(name, vector_inputs(2), net)
    _, method = objective.methods
    assert isinstance(method, Method)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in module.parameters() if p.requires_grad], "lr": rate}
        for module, rate in (
            (objective.net, learning_rate),
            (method, learning_rate * method.learning_rate),
        )
    ]
    adam = torch.optim.Adam(groups, betas=(0.5, 0.999))
    slower = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.0, steps)  # or the players go round
    for number in range(steps):
        x_labeled, labels = mixture(10)
        x, _ = mixture(100)
        terms, _, _ = objective(x_labeled, labels, x, number / steps, steps)
        adam.zero_grad()
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        adam.step()
        slower.step()
    return objective.eval()


def test_improved_gan_by_hand() -> None:
    """ln Z of (ln 3, 0) is ln 4, of (0, 0) ln 2: p(real) = 4/5 and 2/3."""
    net = quiet_net()
    method = given(ImprovedGAN(2, weight=0.5), net, X.flip(0) + LN2)  # Z = 4 and 8
    expected = -(math.log(4 / 5) + math.log(2 / 3)) / 4 + (math.log(5) + math.log(9)) / 4
    found = values(method(make_step(net)))
    assert found == pytest.approx({"improved_gan": 0.5 * expected, "generator": LN2**2}, rel=1e-6)
    assert feature_matching(X, torch.zeros(3, 2)).item() == pytest.approx(LN3**2 / 8)
    assert discriminator_loss(200 * X, -200 * X.abs() - 200).isfinite()


def test_catgan_by_hand() -> None:
    net = quiet_net()
    mean = (0.625, 0.375)
    of_mean = -sum(p * math.log(p) for p in mean)
    method = given(CatGAN(2, weight=0.5), net, X.flip(1))  # (1/4, 3/4) and (1/2, 1/2)
    indecisive = (H + LN2) / 2 - of_mean
    expected = {"catgan": 0.5 * (indecisive - (H + LN2) / 2), "generator": indecisive}
    assert values(method(make_step(net))) == pytest.approx(expected, rel=1e-5)
    sure = torch.tensor([[300.0, 0, 0], [0, 300, 0]], requires_grad=True)
    assert indecision(sure).item() == pytest.approx(-LN2)
    indecision(sure).backward()  # type: ignore[no-untyped-call]
    assert sure.grad is not None
    assert sure.grad.isfinite().all()


class FirstOfPair(nn.Module):
    """A discriminator whose logit is a · (first input) + b · (first number beside it)."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([a, b]))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        return self.weights[0] * x[:, 0] + self.weights[1] * condition[:, 0]


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def test_triple_gan_by_hand() -> None:
    """C chooses the first class for the first sample (3/4) and, of two alike, for the second."""
    net = quiet_net()
    method = given(TripleGAN(2, weight=0.7, entropy=0.2, balance=0.1), net, X.flip(1))
    method.discriminator = FirstOfPair(1.0, 0.5)
    found = values(method(make_step(net)))
    # labeled (1, 0) of class 0, (0, 1) of class 1, and the first unlabeled one: logits 1.5, 0 and
    # ln 3 + 0.5; the other: 0.5; made up, (0, ln 3) for class 0 and (0, 0) for class 1: 0.5 and 0
    real = (softplus(-1.5) + LN2 + softplus(-LN3 - 0.5)) / 3
    made_up = (softplus(0.5) + LN2) / 2
    mean = -(math.log(0.625) + math.log(0.375)) / 2
    expected = {
        "discriminator": real + softplus(0.5) / 2 + made_up / 2,
        "generator": (softplus(-0.5) + LN2) / 4,
        "triple_gan": 0.7 * (0.75 * softplus(-LN3 - 0.5) + 0.5 * softplus(-0.5)) / 2,
        "confidence": 0.2 * (H + LN2) / 2 + 0.1 * mean,
        "made_up": 0.1 * (-math.log(0.25) + LN2) / 2,
    }
    assert found == pytest.approx(expected, rel=1e-5)
    early = method(make_step(net, progress=0.2))
    assert "made_up" not in early


def test_triple_gan_teaches_the_classifier_by_the_probability_of_its_choice() -> None:
    """The gradient of p_max · c, and none of c = −ln D."""
    net = quiet_net()
    method = given(TripleGAN(2, weight=1.0), net, X)
    method.discriminator = FirstOfPair(1.0, 0.5)
    logits = X.clone().requires_grad_()
    step = make_step(net)._replace(z_unlabeled=logits)
    method(step)["triple_gan"].backward()
    slope = 0.75 * 0.25 * softplus(-LN3 - 0.5) / 2
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[0], torch.tensor([slope, -slope]))


def test_triple_gan_has_each_player_learn_from_its_terms() -> None:
    torch.manual_seed(0)
    objective = objective_of("triple_gan", vector_inputs(16))
    x = torch.randn(40, 16)
    terms, _, _ = objective(x[:20], torch.arange(20) % 4, x, 0.5, 10)
    modules = {
        "features": objective.net.features,
        "classifier": objective.net.classifier,
        "generator": objective.get_submodule("methods.1.generator"),
        "discriminator": objective.get_submodule("methods.1.discriminator"),
    }
    assert {name: learners(term, modules) for name, term in terms.items()} == {
        "cross_entropy": {"features", "classifier"},
        "discriminator": {"discriminator"},
        "generator": {"generator"},
        "triple_gan": {"features", "classifier"},
        "confidence": {"features", "classifier"},
        "made_up": {"features", "classifier"},
    }


def test_a_pair_discriminator_looks_at_both() -> None:
    torch.manual_seed(0)
    judge = PairDiscriminator((1, 8, 8), 3).eval()
    x, y = torch.randn(2, 1, 8, 8), torch.eye(3)
    logits = judge(x, y[:2])
    assert logits.shape == (2,)
    assert (logits != judge(x.flip(0), y[:2])).all()
    assert (logits != judge(x, y[1:])).all()
    torch.testing.assert_close(logits, judge(x, y[:2]))
    assert (judge.train()(x, y[:2]) != logits).all()  # noise


class Linear(nn.Module):
    """A density model whose log density is w · (first input)."""

    def __init__(self, w: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))

    def forward(self, x: Tensor) -> Tensor:
        return self.w * x[:, 0]


def test_bad_gan_by_hand() -> None:
    """ln p of real samples: 2 ln 3 and 0, of made-up ones 4 and −2; ε between the two real ones."""
    net = quiet_net()
    method = given(BadGAN(2, density=0.5, entropy=0.2), net, torch.tensor([[2.0, 0], [-1.0, 0]]))
    plain = given(ImprovedGAN(2), net, torch.tensor([[2.0, 0], [-1.0, 0]]))
    method.density_model = Linear(2.0)
    tenth = 0.1 * 2 * LN3  # interpolated
    expected = {
        **values(plain(make_step(net))),
        "density": -LN3,
        "unlikely": 0.5 * (4 - tenth) / 2,
        "conditional_entropy": 0.2 * (H + LN2) / 2,
    }
    assert values(method(make_step(net))) == pytest.approx(expected, rel=1e-5)
    assert float(method.get_buffer("threshold")) == pytest.approx(tenth)
    method(make_step(net, torch.zeros(2, 2)))  # now the mean of two batches
    assert float(method.get_buffer("threshold")) == pytest.approx(tenth / 2)
    assert "unlikely" not in method(make_step(net, progress=0.2))
    assert set(method.state_dict()) >= {"threshold", "batches"}


def test_bad_gan_has_each_network_learn_from_its_terms() -> None:
    torch.manual_seed(0)
    objective = objective_of("bad_gan", vector_inputs(16))
    method = objective.methods[1]
    assert isinstance(method, BadGAN)
    method.batches.fill_(100)
    method.threshold.fill_(-1e3)  # all made-up samples are too likely
    x = torch.randn(40, 16)
    terms, _, _ = objective(x[:20], torch.arange(20) % 4, x, 0.5, 10)
    modules = {
        "net": objective.net,
        "generator": method.generator,
        "density_model": method.density_model,
    }
    assert {name: learners(term, modules) for name, term in terms.items()} == {
        "cross_entropy": {"net"},
        "improved_gan": {"net"},
        "generator": {"generator"},
        "density": {"density_model"},
        "unlikely": {"generator"},
    }


def test_a_density_integrates_to_one_and_looks_back_only() -> None:
    torch.manual_seed(0)
    model = MADE((2,), hidden=20, noise=0.3)
    axis = torch.linspace(-8, 8, 401)
    grid = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        mass = model.log_density(grid).double().exp().sum() * (axis[1] - axis[0]) ** 2
    assert float(mass) == pytest.approx(1, abs=1e-3)
    model = MADE((1, 2, 2), hidden=20)
    outputs = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        lambda x: model.last(torch.relu(model.first(x))).view(4, 9).sum(1), torch.randn(4)
    )
    assert (outputs.triu() == 0).all()
    assert (outputs[3, :3] != 0).all()
    assert MADE((1,), hidden=5)(torch.zeros(3, 1)).shape == (3,)


def test_a_density_model_learns_a_mixture() -> None:
    torch.manual_seed(0)
    model = MADE((2,), hidden=100)
    adam = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(200):
        adam.zero_grad()
        (-model(mixture(200)[0]).mean()).backward()
        adam.step()
    x, _ = mixture(2000)
    shared = -0.5 * torch.cdist(x, CENTRES).square() / 0.09 - math.log(2 * math.pi * 0.09)
    exact = (shared.logsumexp(1) - LN2).mean()
    with torch.no_grad():
        found = model.log_density(x).mean()
    assert exact - 0.3 < found < exact + 0.02


class FirstOfJoint(JointFeatures):
    """Two inputs are two embeddings, plus the first number of the code."""

    def __init__(self) -> None:
        super().__init__((2,))

    def encode(self, x: Tensor) -> Tensor:
        return torch.full((len(x), LATENT), LN2)

    def joint(self, x: Tensor, z: Tensor) -> Tensor:
        return x + z[:, :1]


def test_ali_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes of real samples are ln 2, of made-up ones 0: Z = 8 and 4 of real, 4 and 2 of others."""
    monkeypatch.setattr(ALI, "noise", lambda self, count: torch.zeros(count, LATENT))
    net = quiet_net()
    net.features = FirstOfJoint()
    method = given(ALI(2, weight=0.5), net, X)
    real = (math.log(9 / 8) + math.log(5 / 4)) / 2, (math.log(9) + math.log(5)) / 2
    fake = (math.log(5 / 4) + math.log(3 / 2)) / 2, (math.log(5) + math.log(3)) / 2
    expected = {"ali": 0.25 * (real[0] + fake[1]), "encoder_generator": 0.5 * (fake[0] + real[1])}
    assert values(method(make_step(net))) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="needs its own net, 'ali'"):
        ALI(2).attach(quiet_net(), vector_inputs(2), 2)


def test_ali_has_each_network_learn_from_its_terms() -> None:
    torch.manual_seed(0)
    objective = objective_of("ali", vector_inputs(16))
    features = objective.net.features
    assert isinstance(features, JointFeatures)
    x = torch.randn(40, 16)
    terms, _, _ = objective(x[:20], torch.arange(20) % 4, x, 0.5, 10)
    modules = {
        "encoder": features.encoder,
        "of_x": features.of_x,
        "of_z": features.of_z,
        "of_both": features.of_both,
        "classifier": objective.net.classifier,
        "generator": objective.get_submodule("methods.1.generator"),
    }
    judge = {"of_x", "of_z", "of_both", "classifier"}
    assert {name: learners(term, modules) for name, term in terms.items()} == {
        "cross_entropy": judge,
        "ali": judge,
        "encoder_generator": {"encoder", "generator"},
    }


@pytest.mark.parametrize("shape", [(5,), (1, 8, 8), (1, 28, 28), (3, 32, 32)])
def test_the_net_of_ali(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    net = make_net("ali", shape, 3)
    x = torch.randn(4, *shape)
    assert net.features(x).shape == (4, net.embedding_size)
    assert not torch.equal(net.features(x), net.features(x))  # codes are drawn
    net.eval()
    torch.testing.assert_close(net(x), net(x), rtol=0, atol=0)
    assert net(x).shape == (4, 3)
    assert not list(net.buffers())  # no batch norm: nothing that made-up samples could move


@pytest.mark.parametrize("name", ["improved_gan", "catgan"])
def test_the_generator_learns_from_its_term_alone(name: str) -> None:
    torch.manual_seed(0)
    objective = objective_of(name, vector_inputs(16))
    x = torch.randn(40, 16)
    terms, _, _ = objective(x[:20], torch.arange(20) % 4, x, 0.5, 10)
    generator = objective.get_submodule("methods.1.generator")
    modules = {
        "features": objective.net.features,
        "classifier": objective.net.classifier,
        "generator": generator,
    }
    assert learners(terms[name], modules) == {"features", "classifier"}
    assert learners(terms["generator"], modules) == {"generator"}
    assert all(parameter.requires_grad for parameter in objective.parameters())


@pytest.mark.parametrize(
    ("name", "steps", "near"),
    [
        ("improved_gan", 300, 0.45),
        ("triple_gan", 200, 0.2),
        ("bad_gan", 300, 0.45),
    ],
)
def test_a_mixture_is_learned(name: str, steps: int, near: float) -> None:
    objective = learn_mixture(name, steps)
    x, y = mixture(500)
    with torch.no_grad():
        made = objective.draw(500)
        logits = objective.network(x)
    assert made is not None
    noise = torch.randn(500, 2)  # what a generator that knows nothing might make
    assert energy_distance(made, x) < near * energy_distance(noise, x)
    nearest = torch.cdist(made, CENTRES).argmin(1)
    assert 0.25 < nearest.float().mean() < 0.75  # both of the two are made
    if name == "triple_gan":  # each as asked for: classes in turn
        assert (nearest == torch.arange(500) % 2).float().mean() > 0.95
    assert (logits.argmax(1) == y).float().mean() > 0.99


def test_catgan_makes_samples_of_all_classes() -> None:
    """Its generator wants no more than that: nothing asks that they are like the data."""
    objective = learn_mixture("catgan", 200)
    x, y = mixture(500)
    with torch.no_grad():
        made = objective.draw(500)
        assert made is not None
        p = objective.network(made).softmax(1)
        logits = objective.network(x)
    assert p.amax(1).mean() > 0.9
    assert 0.3 < p[:, 0].mean() < 0.7
    assert (logits.argmax(1) == y).float().mean() > 0.99


@pytest.mark.parametrize("name", GANS)
def test_samples_are_as_the_network_takes_them(name: str) -> None:
    torch.manual_seed(0)
    for inputs in (vector_inputs(5), image_inputs(1, 8), image_inputs(3, 32)):
        objective = objective_of(name, inputs).eval()
        with torch.no_grad():
            drawn = objective.draw(3)
        assert drawn is not None
        assert drawn.shape == (3, *inputs.shape)
        if inputs.are_images:  # pixels in [0, 255], normalised to [−1, 1]
            assert drawn.abs().max() <= 1
            assert drawn.std() > 0


@pytest.mark.parametrize("name", GANS)
def test_a_resumed_training_equals_an_undisturbed_one(name: str, tmp_path: Path) -> None:
    config = tiny_config(max_steps=6, method=name)
    train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=stop_after(3))
    resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")
