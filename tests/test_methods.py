"""Every method: a value computed by hand, and gradients where they should be and nowhere else."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import cclp
from cclp.methods import (
    METHODS,
    NETS,
    check_methods,
    file_name,
    make_methods,
    method_parts,
    required_net,
)
from cclp.methods.base import Method, Step, kept_statistics, ramp_up
from cclp.methods.entropy import Entropy
from cclp.methods.fixmatch import FixMatch
from cclp.methods.graph_pseudo_label import GraphPseudoLabel
from cclp.methods.lba import LBA, association
from cclp.methods.mean_teacher import MeanTeacher
from cclp.methods.pi_model import PiModel
from cclp.methods.pseudo_label import PseudoLabel
from cclp.methods.vat import VAT, divergence
from cclp.nets import Net, mlp
from cclp.nets.registry import make_net
from cclp.training.objective import Objective
from tests.inputs import vector_inputs

PEERS = [name for name in METHODS if name not in ("supervised", "cclp")]
ON_EMBEDDINGS = ("lba",)  # they leave the classifier alone
FROM_SECOND_STEP = ("temporal_ensembling",)  # before it they have nothing to compare with
FROM_LABELED: dict[str, tuple[str, ...]] = {  # terms that need no unlabeled samples
    "m2": ("m2_labeled",),
    "m1_m2": ("m1", "m1_m2_labeled"),
    "sdgm": ("sdgm_labeled",),
    "adgm": ("adgm_labeled",),
    "mmcvae": ("mmcvae_hinge", "mmcvae_labeled"),
}


def quiet_net(features: nn.Module, classes: int = 2, size: int = 2) -> Net:
    """A net without noise whose classifier hands its inputs on."""
    net = Net(features, size, classes, dropout=0.0)
    linear = net.classifier[1]
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(classes, size))
        linear.bias.zero_()
    return net


def make_step(
    net: Net, x_unlabeled: Tensor | None, *, progress: float = 1.0, labeled: Tensor | None = None
) -> Step:
    x = torch.eye(2) if labeled is None else labeled
    z = net.features(x)
    z_unlabeled = None if x_unlabeled is None else net.features(x_unlabeled)
    labels = torch.arange(len(x)) % 2
    return Step(net, x, labels, x_unlabeled, z, z_unlabeled, net.classifier(z), progress)


def value(method: Method, step: Step) -> float:
    return float(sum(term.item() for term in method(step).values()))


LN3 = math.log(3)
X = torch.tensor([[LN3, 0.0], [0.0, 0.0]])  # predictions (3/4, 1/4) and (1/2, 1/2)


def test_entropy_by_hand() -> None:
    step = make_step(quiet_net(nn.Identity()), X)
    expected = (-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) + math.log(2)) / 2
    assert value(Entropy(2), step) == pytest.approx(expected, rel=1e-6)
    assert value(Entropy(2, weight=0.3), step) == pytest.approx(0.3 * expected, rel=1e-6)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (0.0, (-math.log(0.75) - math.log(0.5)) / 2),
        (0.7, -math.log(0.75) / 2),  # of two samples one is sure enough
        (0.8, 0.0),
    ],
)
def test_pseudo_label_by_hand(threshold: float, expected: float) -> None:
    step = make_step(quiet_net(nn.Identity()), X)
    method = PseudoLabel(2, threshold=threshold)
    assert value(method, step) == pytest.approx(expected, rel=1e-6)
    early = make_step(quiet_net(nn.Identity()), X, progress=0.2)
    assert value(method, early) == pytest.approx(expected * ramp_up(0.2, 0.4), rel=1e-6)


class Swing(nn.Module):
    """The first pass as it is, the second the other way round, and so on."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return x if self.passes % 2 else x.flip(1)


def test_pi_model_by_hand() -> None:
    net = quiet_net(Swing())
    z = net.features(X)
    step = Step(net, X, torch.tensor([0, 1]), X, z, z, net.classifier(z), 1.0)
    # (3/4, 1/4) against (1/4, 3/4): 2 · (1/2)²; the other sample is the same both times
    assert value(PiModel(2, weight=1), step) == pytest.approx(0.5 / 2, rel=1e-6)


def test_pi_model_augments_the_second_pass() -> None:
    net = quiet_net(nn.Identity())
    assert value(PiModel(2, weight=1), make_step(net, X)) == 0
    turned = PiModel(2, weight=1, augment=lambda x: x.flip(1))
    assert value(turned, make_step(net, X)) == pytest.approx(0.25, rel=1e-6)


def test_mean_teacher_by_hand() -> None:
    net = quiet_net(nn.Linear(2, 2, bias=False))
    first = nn.Parameter(torch.eye(2))
    net.features.weight = first  # the only one
    method = MeanTeacher(2, weight=1, decay=0.75)
    method.attach(net, vector_inputs(2), 2)
    assert value(method, make_step(net, X)) == 0  # the teacher begins as the student
    with torch.no_grad():
        first.copy_(torch.eye(2).flip(0))
    assert value(method, make_step(net, X)) == pytest.approx(0.25, rel=1e-6)
    expected = torch.eye(2)
    for decay in (1 / 2, 2 / 3, 3 / 4, 3 / 4):  # 1 − 1/(t + 1), up to 0.75
        method.after_step(net)
        expected = decay * expected + (1 - decay) * torch.eye(2).flip(0)
        torch.testing.assert_close(next(method.teacher.features.parameters()), expected)


def test_the_teacher_averages_over_a_fiftieth_of_the_training() -> None:
    net = quiet_net(nn.Linear(2, 2, bias=False))
    net.features.weight = nn.Parameter(torch.eye(2))
    method = MeanTeacher(2)
    method.attach(net, vector_inputs(2), 2)
    expected = torch.eye(2)
    for step in range(8):
        method(make_step(net, X)._replace(max_steps=200))  # decay 1 − 1/4
        with torch.no_grad():
            net.features.weight.mul_(1.5)
        method.after_step(net)
        decay = min(1 - 1 / (step + 2), 3 / 4)
        expected = decay * expected + (1 - decay) * net.features.weight
        torch.testing.assert_close(next(method.teacher.features.parameters()), expected)


def test_vat_by_hand() -> None:
    """Logits (a x, 0): the worst direction is the first axis, either way."""
    features = nn.Linear(2, 2, bias=False)
    net = quiet_net(features)
    with torch.no_grad():
        features.weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
    x = torch.tensor([[0.5, 3.0]])
    torch.manual_seed(0)
    found = value(VAT(2, radius=0.1), make_step(net, x))
    size = 0.1 * math.sqrt(2)

    def kl(p: float, q: float) -> float:
        return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))

    p, *moved = (1 / (1 + math.exp(-2 * at)) for at in (0.5, 0.5 + size, 0.5 - size))
    assert min(abs(found - kl(p, q)) for q in moved) < 1e-7
    torch.testing.assert_close(divergence(X, X.flip(1)).item(), 0.25 * LN3, rtol=1e-6, atol=0)


def test_vat_is_worse_than_chance_and_has_no_side_effects() -> None:
    torch.manual_seed(0)
    net = mlp(64, 10, hidden_sizes=[32], noise=0.3)
    x = torch.randn(50, 64)
    before = {name: t.clone() for name, t in net.named_buffers()}
    z = net.features(x)
    step = Step(net, x, torch.arange(50) % 10, x, z, z, net.classifier(z), 1.0)
    after_one_pass = {name: t.clone() for name, t in net.named_buffers()}
    assert not torch.equal(
        before["features.3.running_mean"], after_one_pass["features.3.running_mean"]
    )
    state = torch.get_rng_state()
    terms = VAT(10)(step)
    assert all(parameter.grad is None for parameter in net.parameters())
    torch.testing.assert_close(dict(net.named_buffers()), after_one_pass, rtol=0, atol=0)
    for iterations, least in ((1, 1.5), (4, 1.5)):
        torch.set_rng_state(state)
        worst = VAT(10, iterations=iterations)(step)["vat"].item()
        with kept_statistics(net):
            torch.manual_seed(5)
            clean = net(x).detach()
            r = torch.randn_like(x)
            torch.manual_seed(5)
            chance = divergence(clean, net(x + 0.2 * 8 * r / r.norm(dim=1, keepdim=True))).item()
        assert worst > least * chance
    assert terms["vat"].requires_grad


def test_vat_with_entropy() -> None:
    step = make_step(quiet_net(nn.Identity()), X)
    terms = VAT(2, entropy=0.5)(step)
    assert terms["vat_entropy"].item() == pytest.approx(0.5 * value(Entropy(2), step), rel=1e-6)
    assert set(VAT(2)(step)) == {"vat"}


def test_lba_by_hand() -> None:
    """Two labeled samples, two unlabeled ones; M = [[ln 3, 0], [0, ln 3]]."""
    z_labeled, z_unlabeled = torch.eye(2), LN3 * torch.eye(2)
    walker, visit = association(z_labeled, torch.tensor([0, 1]), z_unlabeled)
    # there and back again: 3/4 · 3/4 + 1/4 · 1/4
    assert walker.item() == pytest.approx(-math.log(0.625), rel=1e-6)
    assert visit.item() == pytest.approx(math.log(2), rel=1e-6)
    walker, _ = association(z_labeled, torch.tensor([0, 0]), z_unlabeled)
    assert walker.item() == pytest.approx(-0.5 * math.log(0.625) - 0.5 * math.log(0.375), rel=1e-6)
    step = make_step(quiet_net(nn.Identity()), z_unlabeled)
    terms = LBA(2, weight=2, visit=0.25)(step)
    assert terms["walker"].item() == pytest.approx(-2 * math.log(0.625), rel=1e-6)
    assert terms["visit"].item() == pytest.approx(0.5 * math.log(2), rel=1e-6)


def test_fixmatch_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cclp.methods.fixmatch.weak", lambda x: x)
    monkeypatch.setattr("cclp.methods.fixmatch.strong", lambda x: x.flip(1))
    step = make_step(quiet_net(nn.Identity()), X)
    # the first sample is sure (3/4) of a class that its strong version gives 1/4
    expected = -math.log(0.25) / 2
    assert value(FixMatch(2, weight=1, threshold=0.7), step) == pytest.approx(expected, rel=1e-6)
    assert value(FixMatch(2, threshold=0.8), step) == 0


def test_graph_pseudo_label_by_hand() -> None:
    """Cross entropy of the predictions (3/4, 1/4) and (1/2, 1/2)."""
    given = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    step = make_step(quiet_net(nn.Identity()), X)._replace(pseudo_labels=given)
    expected = (-math.log(0.75) + math.log(2)) / 2
    assert value(GraphPseudoLabel(2), step) == pytest.approx(expected, rel=1e-6)
    assert value(GraphPseudoLabel(2, weight=0.3), step) == pytest.approx(0.3 * expected, rel=1e-6)
    assert GraphPseudoLabel(2)(step._replace(pseudo_labels=None)) == {}
    assert GraphPseudoLabel(2, weight=0)(step) == {}


def test_pseudo_labels_are_the_prior_of_cclp() -> None:
    step = make_step(quiet_net(nn.Identity()), X)
    given = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    (_, method) = make_methods("cclp", 2, {"cclp": {"weight": 0.5}})
    assert step.z_unlabeled is not None
    batch = step.z_labeled, step.labels, step.z_unlabeled
    for pseudo_labels, weight in ((None, 0.0), (given, 0.4)):
        found = method(step._replace(pseudo_labels=pseudo_labels, pseudo_label_weight=weight))
        expected = 0.5 * cclp.cclp_loss(
            *batch, num_classes=2, prior=pseudo_labels, prior_weight=weight
        )
        torch.testing.assert_close(found["cclp"], expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"chain_steps": 2, "similarity": "cosine", "temperature": 0.3},
        {"propagation": "symmetric"},
        {"smoothing": 0.2},
    ],
    ids=str,
)
def test_health_looks_at_the_graph_the_loss_uses(settings: dict[str, Any]) -> None:
    supervised, method = make_methods("cclp", 10, {"cclp": settings})
    z, labels = (
        torch.randn(60, 8, generator=torch.Generator().manual_seed(2)),
        torch.arange(20) % 10,
    )
    batch = z[:20], labels, z[20:]
    assert supervised.health(*batch) is None
    found = method.health(*batch)
    assert found == cclp.graph_health(*batch, num_classes=10, **settings)
    assert found != cclp.graph_health(*batch, num_classes=10)


def digits_step(
    method: str, *, unlabeled: bool = True, net: str | None = None
) -> tuple[Objective, dict[str, Tensor]]:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"pseudo_label": {"threshold": 0.0}, "fixmatch": {"threshold": 0.0}}
    x = torch.randn(60, 16)
    objective = Objective(
        nn.Identity(),
        make_net(net or required_net(method) or "mlp", (16,), 4),
        make_methods(method, 4, settings),
    )
    objective.attach(vector_inputs(16), 60)
    rows = torch.arange(20, 60) if unlabeled else None
    y = torch.arange(20) % 4
    pseudo_labels = torch.eye(4)[torch.arange(40) % 4] if unlabeled else None
    x_unlabeled = x[20:] if unlabeled else None
    torch.manual_seed(1)  # whatever networks a method has drawn
    near = x[20:].flip(0) if unlabeled and objective.neighbours else None
    terms, _, _ = objective(
        x[:20], y, x_unlabeled, 0.5, 10, pseudo_labels, 0.5, unlabeled=rows, x_neighbours=near
    )
    return objective, terms


@pytest.mark.parametrize("name", [name for name in PEERS if name not in FROM_SECOND_STEP])
def test_gradients_are_where_they_should_be(name: str) -> None:
    objective, terms = digits_step(name)
    mine = [term for key, term in terms.items() if key != "cross_entropy"]
    assert mine
    torch.stack(mine).sum().backward()  # type: ignore[no-untyped-call]
    for parameter in objective.net.features.parameters():
        assert parameter.grad is not None
    norms = [p.grad.norm() for p in objective.net.features.parameters() if p.grad is not None]
    assert sum(norms) > 0
    for parameter in objective.net.classifier.parameters():
        if name in ON_EMBEDDINGS:
            assert parameter.grad is None
        else:
            assert parameter.grad is not None
            # a ladder's decoder gives 0 at first, whatever the bias
            assert parameter.grad.norm() > 0 or (name in NETS and parameter.ndim == 1)
    for method in objective.methods:
        for parameter in method.parameters():  # a teacher is not trained, a generator is
            assert (parameter.grad is not None) == parameter.requires_grad


@pytest.mark.parametrize("name", PEERS)
def test_without_unlabeled_samples_there_is_no_term(name: str) -> None:
    _, terms = digits_step(name, unlabeled=False)
    assert set(terms) == {"cross_entropy", *FROM_LABELED.get(name, ())}


@pytest.mark.parametrize("name", PEERS)
def test_under_bfloat16_terms_stay_in_float32_and_close(name: str) -> None:
    _, exact = digits_step(name)
    with torch.autocast("cpu", torch.bfloat16):
        _, rough = digits_step(name)
    for key, term in rough.items():
        assert term.isfinite()
        if key != "cross_entropy":
            assert term.dtype == torch.float32
            torch.testing.assert_close(term, exact[key], rtol=0.35, atol=0.05)


@pytest.mark.parametrize(
    "name", [name for name in PEERS if name != "mean_teacher" and required_net(name) is None]
)
def test_a_method_leaves_the_batch_statistics_alone(name: str) -> None:
    """They come from one pass over each sample as it is, whatever the method adds."""
    plain, _ = digits_step("supervised", net=required_net(name))
    other, _ = digits_step(name)
    plain_state, state = dict(plain.net.named_buffers()), dict(other.net.named_buffers())
    tracked = {name: passes for name, passes in state.items() if name.endswith("_tracked")}
    assert tracked
    assert set(map(int, tracked.values())) == {2}  # labeled and unlabeled
    torch.testing.assert_close(state, plain_state, rtol=0, atol=0)


def test_composition() -> None:
    assert method_parts("cclp+vat") == ["cclp", "vat"]
    assert method_parts("supervised") == []
    assert method_parts("cclp+mine.py:Mine") == ["cclp", "mine.py:Mine"]
    for wrong in ("cclp+", "+", "cclp+cclp", "cclp+vta", ""):
        with pytest.raises(ValueError, match="method"):
            method_parts(wrong)
    _, terms = digits_step("cclp+vat+entropy")
    assert list(terms) == ["cross_entropy", "cclp", "vat", "entropy"]
    _, alone = digits_step("entropy")
    assert alone["entropy"].item() > 0
    with pytest.raises(ValueError, match=r"one of supervised, cclp, .*, got 'vta'"):
        make_methods("vta", 10, {})
    with pytest.raises(ValueError, match="methods must be different, got cclp, vat, cclp"):
        check_methods(["cclp", "vat", "cclp"])
    assert file_name("cclp+some/mine.py:Mine") == "cclp+some-mine.py-Mine"


def test_the_teacher_is_evaluated_and_differs_from_the_student() -> None:
    objective, terms = digits_step("mean_teacher")
    assert objective.network_name == "methods.1.teacher"
    assert digits_step("vat")[0].network_name == "net"
    optimizer = torch.optim.SGD([p for p in objective.parameters() if p.requires_grad], lr=0.1)
    torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    objective.after_step()
    student, teacher = objective.net, objective.network
    assert student is not teacher
    for (name, mine), theirs in zip(student.named_parameters(), teacher.parameters(), strict=True):
        assert not torch.equal(mine, theirs), name
        assert mine.data_ptr() != theirs.data_ptr()


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (Entropy, {"weight": -1}, "weight must be at least 0"),
        (PseudoLabel, {"threshold": -0.1}, "threshold must be at least 0"),
        (MeanTeacher, {"decay": 1.0}, "decay must be below 1"),
        (VAT, {"radius": 0}, "radius must be finite and above 0"),
        (VAT, {"iterations": 0}, "iterations must be at least 1"),
        (GraphPseudoLabel, {"decay": 0}, "decay must be finite and above 0"),
        (GraphPseudoLabel, {"decay": 1.1}, "decay must be at most 1"),
        (GraphPseudoLabel, {"refreshes": -1}, "refreshes must be at least 0"),
        (GraphPseudoLabel, {"supervised_warmup": 1.5}, "supervised_warmup must be at most 1"),
    ],
)
def test_settings_are_checked(method: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method(10, **settings)
