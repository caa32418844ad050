"""Temporal ensembling and the graph Laplacian: values by hand, state, processes."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from cclp.methods import temporal_ensembling
from cclp.methods.base import Step, ramp_up
from cclp.methods.laplacian import Laplacian
from cclp.methods.temporal_ensembling import TemporalEnsembling
from cclp.nets import Net, mlp
from cclp.pseudo_labels.graph import NeighbourGraph
from cclp.pseudo_labels.solvers import random_walk
from cclp.pseudo_labels.walk import RandomNeighbours
from cclp.runs.start import Stopped, resume, train
from cclp.sklearn import CCLPClassifier
from tests.inputs import vector_inputs
from tests.runs import assert_same_run, stop_after, tiny_config

LN3 = math.log(3)
X = torch.tensor([[LN3, 0.0], [0.0, 0.0]])  # predictions (3/4, 1/4) and (1/2, 1/2)


def quiet_net() -> Net:
    """Its logits are its inputs."""
    net = Net(nn.Identity(), 2, 2, dropout=0.0)
    linear = net.classifier[1]
    assert isinstance(linear, nn.Linear)
    nn.init.eye_(linear.weight)
    return net


def make_step(
    x_labeled: Tensor, x: Tensor | None, index: list[int] | None = None, progress: float = 1.0
) -> Step:
    net = quiet_net()
    rows = None if index is None else torch.tensor(index)
    labels, logits = torch.arange(len(x_labeled)) % 2, net.classifier(x_labeled)
    return Step(net, x_labeled, labels, x, x_labeled, x, logits, progress, unlabeled=rows)


def ensemble(samples: int = 4, **settings: Any) -> TemporalEnsembling:
    method = TemporalEnsembling(2, **{"weight": 1.0, **settings})
    method.attach(quiet_net(), vector_inputs(2), samples)
    return method


def term(method: TemporalEnsembling, x: Tensor, index: list[int], progress: float = 1.0) -> float:
    return float(method(make_step(X, x, index, progress))["temporal_ensembling"].item())


def test_temporal_ensembling_by_hand() -> None:
    method = ensemble()
    assert term(method, X, [2, 0]) == 0  # seen for the first time
    # Z / (1 − 0.6) is the first prediction itself.
    torch.testing.assert_close(
        method.targets(torch.tensor([2, 0, 1]))[0],
        torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.0, 0.0]]),
    )
    # Sample 2 now (1/4, 3/4): 2 · (1/2)², of two samples; sample 1 is new.
    turned = torch.tensor([[0.0, LN3], [LN3, 0.0]])
    assert term(method, turned, [2, 1]) == pytest.approx(0.25, rel=1e-6)
    # Z = 0.6 · 0.4 · 3/4 + 0.4 · 1/4 = 0.28, over 1 − 0.36
    target, known = method.targets(torch.tensor([2, 1, 3]))
    assert target[0, 0].item() == pytest.approx(0.28 / 0.64, rel=1e-6)
    assert known.tolist() == [1, 1, 0]
    assert method.seen.tolist() == [1, 1, 2, 0]
    expected = 2 * (0.28 / 0.64 - 0.75) ** 2 / 2 * ramp_up(0.2, 0.4)
    found = term(method, torch.stack([X[0], X[0]]), [2, 1], progress=0.2)
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_sample_that_is_twice_in_a_step_counts_once() -> None:
    method = ensemble(decay=0.5)
    method.update(torch.tensor([1, 1, 3]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    assert method.seen.tolist() == [0, 1, 0, 1]
    assert method.mean.tolist() == [[0, 0], [0.25, 0.25], [0, 0], [0.5, 0]]


def test_what_all_processes_have_seen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    method, alone = ensemble(), ensemble()
    others = {torch.int64: torch.tensor([3, 0]), torch.float32: torch.eye(2)}
    monkeypatch.setattr(
        temporal_ensembling, "gather_rows", lambda rows: torch.cat([rows, others[rows.dtype]])
    )
    method.update(torch.tensor([1]), torch.tensor([[0.5, 0.5]]))
    monkeypatch.undo()
    alone.update(torch.tensor([1, 3, 0]), torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]]))
    torch.testing.assert_close(method.state_dict(), alone.state_dict(), rtol=0, atol=0)


def test_gradients_go_to_the_new_predictions_alone() -> None:
    method = ensemble()
    x = X.clone().requires_grad_()
    method(make_step(X, x, [0, 1]))
    assert not method.mean.requires_grad
    later = (X.flip(1) + 1).requires_grad_()
    method(make_step(X, later, [0, 1]))["temporal_ensembling"].backward()
    assert x.grad is None
    assert later.grad is not None
    assert later.grad[0].norm() > 0


def test_the_network_learns_from_the_second_step_on() -> None:
    torch.manual_seed(0)
    net, x = mlp(6, 2, hidden_sizes=[5], embedding_size=4), torch.randn(8, 6)
    method = TemporalEnsembling(2)
    method.attach(net, vector_inputs(6), 8)
    for least in (False, True):
        net.zero_grad()
        z = net.features(x)
        step = Step(net, x, torch.arange(8) % 2, x, z, z, net.classifier(z), 1.0)
        method(step._replace(unlabeled=torch.arange(8)))["temporal_ensembling"].backward()
        grads = [parameter.grad for parameter in net.parameters()]
        assert all((grad is not None and bool(grad.norm() > 0)) == least for grad in grads)


def test_stopped_and_resumed_equals_undisturbed(tmp_path: Path) -> None:
    """Of 1347 samples steps see 700: from the second on, some again."""
    config = tiny_config(max_steps=6, evaluate_every=3, method="temporal_ensembling")
    config = replace(config, recipe=replace(config.recipe, unlabeled_batch=700))
    train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=stop_after(4))
    resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


# --- the graph Laplacian ---


def test_neighbours_have_similar_predictions() -> None:
    """(3/4, 1/4) and (1/2, 1/2): squares of 1/4 twice; the other is its own neighbour."""
    near = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    step = make_step(torch.eye(2), torch.tensor([[LN3, 0.0], [0.0, 0.0]]))
    step = step._replace(x_neighbours=near)
    found = Laplacian(2, weight=2)(step)["laplacian"].item()
    assert found == pytest.approx(2 * (2 / 16) / 2, rel=1e-6)
    found = Laplacian(2, weight=2, of="embeddings")(step)["laplacian"].item()
    assert found == pytest.approx(2 * LN3**2 / 2, rel=1e-6)
    assert Laplacian(2)(make_step(torch.eye(2), None)) == {}


def test_neighbours_are_drawn_by_their_affinities() -> None:
    """Of 40 points, a few twice, each neighbour as often as its share of the affinities says."""
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 3)).astype(np.float32)
    x[30:] = x[:10]  # duplicates are one node
    rows = np.arange(2, 40)
    graph = NeighbourGraph(x, rows, neighbours=4)
    draw = RandomNeighbours(graph, rows, len(x))
    assert graph.W is not None
    walk = random_walk(graph.W).toarray()
    uniform = (np.arange(2000) + 0.5) / 2000
    for sample in rows[::7]:
        drawn = draw(np.full(2000, sample), uniform)
        node = graph.place[np.searchsorted(rows, sample)]
        shares = np.bincount(graph.place[np.searchsorted(rows, drawn)], minlength=len(walk)) / 2000
        np.testing.assert_allclose(shares, walk[node], atol=1e-3)
        assert node not in np.flatnonzero(shares)
    ends = draw(np.array([2, 2]), np.array([0.0, np.nextafter(1, 0)]))
    assert {int(graph.place[np.searchsorted(rows, i)]) for i in ends} <= set(walk[0].nonzero()[0])
    same = np.ones((5, 2), np.float32)
    alone = RandomNeighbours(NeighbourGraph(same), np.arange(5), 5)
    assert alone(np.array([3, 4]), np.array([0.1, 0.9])).tolist() == [3, 4]


def test_a_run_draws_neighbours_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    config = tiny_config(method="laplacian")
    train(config, tmp_path / "whole")
    assert "laplacian" in json.loads((tmp_path / "whole/metrics.jsonl").read_text().split("\n")[0])
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=stop_after(7))
    resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_the_estimator_draws_neighbours_too() -> None:
    X, y = load_digits(return_X_y=True)
    few = np.where(np.arange(len(y)) < 100, y, -1)
    model = CCLPClassifier(method="laplacian", max_iter=3, random_state=0).fit(X[:300], few[:300])
    assert len(model.history_["laplacian"]) == 3
    assert all(value > 0 for value in model.history_["laplacian"])


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (TemporalEnsembling, {"weight": -1}, "weight must be at least 0"),
        (TemporalEnsembling, {"decay": 1.0}, "decay must be below 1"),
        (TemporalEnsembling, {"decay": -0.1}, "decay must be at least 0"),
        (TemporalEnsembling, {"ramp": -1}, "ramp must be at least 0"),
        (Laplacian, {"neighbours": 0}, "neighbours must be at least 1"),
        (Laplacian, {"of": "logits"}, "of must be one of 'predictions', 'embeddings'"),
    ],
)
def test_settings_are_checked(method: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method(10, **settings)
