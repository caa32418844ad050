"""Labels spread over the inputs before training, in the trainer and by themselves."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_wine, make_moons

from cclp.data.load import load
from cclp.data.splits import make_split
from cclp.methods.base import Step
from cclp.methods.cclp import CCLP
from cclp.nets import mlp
from cclp.pseudo_labels import prior as module
from cclp.pseudo_labels.prior import LabelGraph, LeftOut, Prior, comparable
from cclp.runs.start import Stopped, resume, train
from cclp.training.evaluation import Outputs
from tests.runs import last_weights, metrics, tiny_config
from tests.test_cli import call
from tests.test_run import Heard, after


def spread(
    X: NDArray[Any], y: NDArray[np.int64], num_classes: int, cache: Path | None = None
) -> NDArray[np.float32]:
    return LabelGraph(X, y, num_classes, cache).spread()


def left_out(X: NDArray[Any], y: NDArray[np.int64], num_classes: int) -> LeftOut:
    return LabelGraph(X, y, num_classes).leave_out()


def some_labels(y: NDArray[np.int64], per_class: int) -> NDArray[np.int64]:
    few = np.full(len(y), -1)
    for c in np.unique(y):
        few[np.flatnonzero(y == c)[:per_class]] = c
    return few


def one_label_each(y: NDArray[np.int64]) -> NDArray[np.int64]:
    return some_labels(y, 1)


def test_borders_move_to_where_they_cut_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moons with noise in eight more dimensions, three labels each: most mistakes go."""
    linear, moved = [], []
    for seed in range(5):
        X, y = make_moons(1000, noise=0.1, random_state=seed)
        X = np.hstack([X, 0.3 * np.random.default_rng(seed).normal(size=(1000, 8))])
        few = some_labels(y, 3)
        moved.append((spread(X, few, 2).argmax(1) != y).mean())
        with monkeypatch.context() as patch:
            patch.setattr(module, "_least_cut", lambda classes, *_: classes)
            linear.append((spread(X, few, 2).argmax(1) != y).mean())
    assert np.mean(moved) < 0.7 * np.mean(linear)


def test_where_there_are_no_clusters_no_class_takes_all() -> None:
    X = np.random.default_rng(0).normal(size=(200, 20))
    few = np.full(200, -1)
    few[:4] = 0, 0, 1, 1
    assert spread(X, few, 2).sum(0).min() > 20


def test_borders_stop_before_they_have_passed_over_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stripes in an even square are no clusters: borders would move until they are short."""
    X = np.random.default_rng(0).uniform(size=(3000, 2))
    X = X[np.lexsort(X.T[::-1])]  # the graph's own order
    stripes = (X[:, 0] // 0.065).astype(int) % 2
    few = some_labels(stripes, 2)
    moves = module._moves(LabelGraph(X, few, 2).affinity)
    labels = np.eye(2)[few] * (few >= 0)[:, None]

    def moved() -> float:
        found = module._least_cut(np.eye(2)[stripes], moves, labels, labels.sum(0))
        return float((found.argmax(1) != stripes).mean())

    assert 0 < moved() <= 0.1
    monkeypatch.setattr(module, "MOST_MOVED", 1.0)
    assert moved() > 0.12


def test_labels_of_copies_may_disagree() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    few = np.full(60, -1)
    few[[0, 30, 1, 2]] = 0, 1, 0, 1  # 0 and 30 are the same
    found = spread(np.concatenate([X, X]), few, 2)
    assert found[0].tolist() == [1, 0]
    assert found[30].tolist() == [0, 1]
    assert np.isfinite(found).all()


def test_labels_follow_the_moons() -> None:
    X, y = make_moons(400, noise=0.05, random_state=0)
    prior = spread(X, one_label_each(y), 2)
    assert prior.dtype == np.float32
    np.testing.assert_array_equal(prior.sum(1), 1)
    assert (prior.argmax(1) == y).mean() > 0.97


def test_units_are_told_apart() -> None:
    """Alcohol in percent beside proline in hundreds: nothing but proline would count."""
    X, y = load_wine(return_X_y=True)
    np.testing.assert_allclose(comparable(X).std(0), 1, rtol=1e-4)
    assert (spread(X, one_label_each(y), 3).argmax(1) == y).mean() > 0.85
    pixels = np.random.default_rng(0).uniform(0, [1, 2, 5], (100, 3))
    np.testing.assert_allclose(comparable(pixels).std(0), pixels.std(0), rtol=1e-4)


def test_scale_and_offset_do_not_matter() -> None:
    X, y = make_moons(200, noise=0.1, random_state=0)
    few = one_label_each(y)
    np.testing.assert_array_equal(spread(X, few, 2), spread(1000 * X + 50, few, 2))


def test_many_features_become_components() -> None:
    x = np.random.default_rng(0).normal(size=(200, 3, 8, 8))
    assert comparable(x).shape == (200, 64)
    assert comparable(x[:50]).shape == (50, 192)


def test_unequal_labels_bend_it_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four labels of one class and one of each other: no reason to think the class that large."""
    X, y = load_wine(return_X_y=True)
    few = one_label_each(y)
    few[:4] = y[:4]
    right = (spread(X, few, 3).argmax(1) == y).mean()
    monkeypatch.setattr(module, "EQUAL_LABELS", 0)
    assert right > (spread(X, few, 3).argmax(1) == y).mean() + 0.1


def test_samples_that_no_label_reaches_get_the_classes_shares() -> None:
    X = np.concatenate([np.linspace(0, 1, 10), 100 + np.linspace(0, 1, 10)])[:, None]
    y = np.full(20, -1)
    y[[0, 1, 9]] = [0, 0, 1]
    prior = spread(X, y, 2)
    np.testing.assert_allclose(prior[10:], [[7 / 13, 6 / 13]] * 10)
    assert set(prior[:10].ravel()) == {0, 1}


def test_samples_beyond_the_graph_go_with_their_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = make_moons(600, noise=0.05, random_state=0)
    monkeypatch.setattr(module, "MOST_NODES", 200)
    few = one_label_each(y)
    prior = spread(X, few, 2)
    assert (prior.argmax(1) == y).mean() > 0.95
    assert (prior.argmax(1) == few)[few >= 0].all()


def test_far_from_any_label() -> None:
    X, y = make_moons(5000, noise=0.05, random_state=0)
    assert (spread(X, one_label_each(y), 2).argmax(1) == y).mean() > 0.99


def test_known_labels_stay() -> None:
    X, y = load_wine(return_X_y=True)
    np.testing.assert_array_equal(spread(X, y, 3).argmax(1), y)


def test_copies_and_outliers() -> None:
    X, y = make_moons(2000, noise=0.05, random_state=0)
    X[-1] = 1e4
    rough = X.round(1)
    for unit in (1, 1000):
        prior = spread(unit * rough, one_label_each(y), 2)
        assert set(prior.ravel()) == {0, 1}
        assert (prior.argmax(1) == y).mean() > 0.7


@pytest.mark.parametrize(
    "X", [np.zeros((2, 3)), np.zeros((9, 1)), np.ones((3, 2)) * 1e30, np.eye(4)]
)
def test_degenerate_inputs_give_distributions(X: NDArray[Any]) -> None:
    y = np.full(len(X), -1)
    y[:2] = [0, 1]
    prior = spread(X, y, 3)
    np.testing.assert_allclose(prior.sum(1), 1, rtol=1e-6)


def test_numbers_whose_squares_are_not_finite() -> None:
    X, y = load_wine(return_X_y=True)
    few = one_label_each(y)
    for unit in (1e19, 1e30):
        assert (spread(unit * X, few, 3) == spread(X, few, 3)).mean() > 0.99


@pytest.mark.parametrize("copies", [1, 2])
def test_labels_left_out_in_turn(copies: int) -> None:
    """The quick way, by what a label adds to its own node, against spreading the others alone."""
    X, y = load_wine(return_X_y=True)
    X, y = np.tile(X, (copies, 1)), np.tile(y, copies)
    few = np.full(len(y), -1)
    some = np.random.default_rng(1).permutation(len(y))[:30]
    few[some] = y[some]
    right = 0
    for i in some:
        others = few.copy()
        others[i] = -1
        right += int(spread(X, others, 3)[i].argmax() == y[i])
    found = left_out(X, few, 3)
    assert found.tried == 30
    assert found.right == pytest.approx(right, abs=1)  # the classes' shares differ by a label
    assert right > 20
    assert left_out(X, one_label_each(y), 3) == LeftOut(0, 0)


@pytest.mark.parametrize("size", [30, 200])
def test_labels_that_no_other_reaches_are_wrong(size: int) -> None:
    """Twelve islands with a label each; every class has two more labels elsewhere."""
    island = np.arange(12 * size) // size
    X = np.random.default_rng(0).normal(size=(len(island), 2)) + 1e4 * island[:, None]
    y = np.full(len(X), -1)
    y[::size] = np.arange(12) % 4
    assert left_out(X, y, 4) == LeftOut(0, 12, 0.0)


def test_copies_that_were_moved_are_near_each_other_only() -> None:
    distance, index = np.array([[0.0, 0], [0, 0], [0, 0], [5, 5]]), [[1, 2], [0, 2], [0, 1], [0, 1]]
    walk = module._affinity(distance, np.array(index), 1.0).toarray()
    assert walk[0, 1] > 100 * walk[0, 3] > 0


def test_a_poor_prior_is_told_from_a_good_one() -> None:
    X, y = load_wine(return_X_y=True)
    noise = np.random.default_rng(0).normal(size=X.shape)
    assert left_out(noise, y, 3).is_poor(3)
    assert not left_out(X, y, 3).is_poor(3)
    assert left_out(X, y, 3).tried == 100
    assert not LeftOut(0, 0).is_poor(2)
    assert not LeftOut(1, 4).is_poor(2)  # too few to tell
    assert LeftOut(30, 100).is_poor(10)
    same = left_out(np.zeros((20, 1)), np.arange(20) % 2, 2)  # nothing tells them apart
    assert same == LeftOut(0, 20, 0.0)
    assert same.is_poor(2)


def test_a_good_prior_knows_as_much_as_a_net_would() -> None:
    assert LeftOut(90, 100).is_good(100, 10)
    assert not LeftOut(89, 100).is_good(100, 10)
    assert not LeftOut(95, 100, 0.0).is_good(100, 10)
    assert LeftOut(60, 100, 0.0).is_good(20, 10)
    assert not LeftOut(60, 100).is_good(21, 10)
    assert not LeftOut(30, 100).is_good(20, 10)
    assert LeftOut(0, 0).is_good(1, 10)
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [40, 5, 5])
    together, apart = (rng.normal(place, 1)[:, None] for place in (10 * np.minimum(y, 1), 10 * y))
    found = left_out(together, y, 3)  # two of the classes are in one place
    assert found.right >= 40
    assert found.worst < 0.5
    assert left_out(apart, y, 3) == LeftOut(50, 50)


def test_a_poor_prior_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LabelGraph, "leave_out", lambda _: LeftOut(3, 30))
    plain = tiny_config(max_steps=4)
    report = Heard()
    recipe = replace(plain.recipe, prior=0.5)
    train(replace(plain, recipe=recipe), tmp_path / "with", report)
    train(plain, tmp_path / "without")
    assert last_weights(tmp_path / "with") == last_weights(tmp_path / "without")
    expected = "inputs are not used: only 3 of 30 labels are right when left out"
    assert any(expected in text for text in report.said)


def test_it_gives_way_in_proportion_to_time() -> None:
    torch.manual_seed(0)
    z_labeled, z_unlabeled = torch.randn(4, 3), torch.randn(6, 3)
    labels, prior = torch.tensor([0, 1, 0, 1]), torch.eye(2).repeat(3, 1)
    net = mlp(3, 2)
    method = CCLP(2, prior=0.5)

    def term(progress: float, given: torch.Tensor | None) -> float:
        step = Step(
            net, z_labeled, labels, z_unlabeled, z_labeled, z_unlabeled, z_labeled, progress, given
        )
        return float(method(step)["cclp"])

    for progress in (0.0, 0.2, 0.4, 0.5, 0.9):
        weight = max(0.0, 1 - progress / 0.5)
        expected = method.loss(z_labeled, labels, z_unlabeled, prior, weight).item()
        assert term(progress, prior) == pytest.approx(expected)
    assert term(0.5, prior) == term(0.5, None)
    assert term(0.0, prior) != term(0.0, None)


def test_the_trainer_begins_with_it_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    plain = tiny_config(max_steps=8)
    config = replace(plain, recipe=replace(plain.recipe, prior=0.75))
    report = Heard()
    train(config, tmp_path / "whole", report)
    assert any("Spreading labels over the inputs" in text for text in report.told)
    assert any("of 30 labels are right when left out" in text for text in report.told)
    for stop in (3, 7):  # with a prior, and when it is over
        out = tmp_path / str(stop)
        with pytest.raises(Stopped):
            train(config, out, should_stop=after(stop))
        resume(out, Heard())
        assert last_weights(out) == last_weights(tmp_path / "whole")
    train(plain, tmp_path / "plain")
    assert metrics(tmp_path / "plain")[0]["cclp"] != metrics(tmp_path / "whole")[0]["cclp"]


def test_held_out_samples_are_not_in_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def watched(
        x: NDArray[Any], y: NDArray[np.int64], classes: int, cache: Path, rows: NDArray[np.int64]
    ) -> LabelGraph:
        seen.append((len(rows), int((y >= 0).sum())))
        return LabelGraph(x, y, classes, None, rows)

    monkeypatch.setattr(module, "LabelGraph", watched)
    plain = tiny_config(max_steps=2, held_out=100)
    train(replace(plain, recipe=replace(plain.recipe, prior=1.0)), tmp_path / "run")
    assert seen == [(1347 - 100, 30)]


class Read(np.ndarray[Any, Any]):
    """An array that remembers the most rows that were read at a time."""

    most = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        Read.most = max(Read.most, len(found))
        return found


@pytest.mark.parametrize("shape", [(3, 20, 20), (1_200,)])
def test_some_rows_are_a_graph_of_their_own(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    stripes = 100 * (np.arange(shape[-1]) % 8 < 4)
    x = rng.integers(0, 40, (300, *shape)) + y.reshape(-1, *[1] * len(shape)) * stripes
    rows = np.sort(rng.permutation(300)[:280])
    few = np.where(np.arange(280) % 10, -1, y[rows])
    monkeypatch.setattr("cclp.pseudo_labels.features._BATCH", 50)
    expected = LabelGraph(x[rows], few, 2).spread()
    assert (expected.argmax(1) == y[rows]).mean() > 0.95
    Read.most = 0
    np.testing.assert_array_equal(LabelGraph(x.view(Read), few, 2, rows=rows).spread(), expected)
    if len(shape) == 3:  # images may be more than memory holds
        assert Read.most == 50


def test_where_all_is_labeled_there_is_nothing_to_search_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(module, "LabelGraph")
    plain = tiny_config(max_steps=8, num_labels=None, evaluate_every=1)
    recipe = replace(plain.recipe, prior=1.0, teach=1.0, alone=0.5, renew=3)
    report = Heard()
    train(replace(plain, recipe=recipe), tmp_path / "run", report)
    assert report.told == []
    assert all("taught" in line for line in metrics(tmp_path / "run"))
    data = load("digits")
    split = make_split(data.train_y, None, 100, seed=0)
    classes = Prior(data.train_x, data.train_y, split, 10).classes
    np.testing.assert_array_equal(classes[split.labeled].argmax(1), data.train_y[split.labeled])
    assert not classes[split.held_out].any()


def test_the_classifier_learns_from_it_as_long_as_it_counts() -> None:
    torch.manual_seed(0)
    net = mlp(3, 2).eval()
    x = torch.randn(10, 3)
    z = net.features(x)
    prior, labels = torch.eye(2).repeat(3, 1), torch.tensor([0, 1, 0, 1])

    def terms(method: CCLP, progress: float, given: torch.Tensor | None) -> dict[str, float]:
        step = Step(net, x[:4], labels, x[4:], z[:4], z[4:], net(x[:4]), progress, given)
        return {name: term.item() for name, term in method(step).items()}

    taught = terms(CCLP(2, prior=0.5, teach=2.0), 0.4, prior)
    expected = torch.nn.functional.cross_entropy(net(x[4:]), prior.argmax(1))
    assert taught["taught"] == pytest.approx(2 * expected.item())
    assert taught["cclp"] == terms(CCLP(2, prior=0.5), 0.4, prior)["cclp"]
    for method, progress, given in (
        (CCLP(2, prior=0.5, teach=2.0), 0.5, prior),
        (CCLP(2, prior=0.5, teach=2.0), 0.4, None),
        (CCLP(2, prior=0.5), 0.4, prior),
    ):
        assert set(terms(method, progress, given)) == {"cclp"}


def test_classifier_and_graph_mend_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    few = some_labels(y, 3)
    guess = np.where(rng.random(len(y)) < 0.3, rng.integers(0, 3, len(y)), y)
    said = np.full((len(y), 3), 0.2) + 0.4 * np.eye(3)[guess]

    def graph_of(noise: float) -> LabelGraph:
        noisy = X / X.std(0) + noise * np.random.default_rng(1).normal(size=X.shape)
        return LabelGraph(noisy, few, 3)

    def right(classes: NDArray[Any]) -> float:
        return float((classes.argmax(1) == y).mean())

    alone, good, poor = right(said), graph_of(0.7), graph_of(2.0)
    assert right(good.smooth(said)) > max(alone, right(good.spread())) + 0.03
    assert right(poor.spread()) < 0.6  # it knows little, and does no harm
    assert right(poor.smooth(said)) > alone - 0.03
    monkeypatch.setattr(module, "MOST_NODES", 90)
    part = graph_of(0.7)
    smooth = part.smooth(said).argmax(1)
    np.testing.assert_array_equal(smooth[part.others], guess[part.others])  # not in the graph
    assert (smooth[part.nodes] != guess[part.nodes]).any()


def test_what_is_smoothed_is_a_walk_that_begins_anew() -> None:
    X, y = load_wine(return_X_y=True)
    few = some_labels(y, 3)
    said = np.random.default_rng(0).dirichlet(np.ones(3), len(y))
    graph = LabelGraph(X, few, 3)
    assert graph.affinity is not None
    W = graph.affinity.toarray()
    known = few >= 0
    begun = np.where(known[:, None], np.eye(3)[few], said)
    order = graph.nodes[graph.first]  # the graph's own
    W_of = np.empty_like(W)
    W_of[np.ix_(order, order)] = W
    found = begun
    for _ in range(10):
        found = 0.4 * begun + 0.6 * (W_of / W_of.sum(1, keepdims=True)) @ found
        found[known] = begun[known]
    np.testing.assert_array_equal(graph.smooth(said).argmax(1), found.argmax(1))


def test_smoothing_of_copies_and_of_nothing_to_tell_apart() -> None:
    X, y = load_wine(return_X_y=True)
    few = some_labels(y, 3)
    said = np.random.default_rng(0).dirichlet(np.ones(3), len(y))
    twice = LabelGraph(np.concatenate([X, X[:50]]), np.concatenate([few, np.full(50, -1)]), 3)
    found = twice.smooth(np.concatenate([said, said[:50]]))
    np.testing.assert_array_equal(found[:50], found[-50:])
    same = LabelGraph(np.zeros((4, 2)), np.array([0, 1, -1, -1]), 2)
    assert same.smooth(np.array([[0.0, 1], [1, 0], [1, 0], [0, 1]])).argmax(1).tolist() == [
        0, 1, 0, 1,
    ]  # fmt: skip


def test_renewals_are_at_equal_distances() -> None:
    recipe = replace(tiny_config().recipe, max_steps=100, prior=0.6, renew=2)
    assert recipe.renewals == {20, 40}
    assert replace(recipe, alone=0.3).renewals == {30, 40, 50}
    assert replace(recipe, alone=0.3, renew=0).renewals == {30}
    for late in (0.6, 0.7):  # there would be no prior left to wait for
        assert replace(recipe, alone=late).first_unlabeled == 0
        assert replace(recipe, alone=late).renewals == {20, 40}
    assert replace(recipe, prior=0.0).renewals == frozenset()
    assert replace(recipe, max_steps=2, renew=5).renewals == {1}


@pytest.mark.parametrize(
    ("alone", "right", "renewed"),
    [(0.0, 60, 2), (0.25, 30, 3), (0.25, 60, 2)],  # after 4, 8; 3, 6, 9; 4, 8
)
def test_the_trainer_renews_it_and_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: float, right: int, renewed: int
) -> None:
    monkeypatch.setattr(LabelGraph, "leave_out", lambda _: LeftOut(right, 100))
    plain = tiny_config(max_steps=12)
    recipe = replace(plain.recipe, prior=1.0, renew=2, alone=alone, settle=True)
    config = replace(plain, recipe=recipe)
    report = Heard()
    train(config, tmp_path / "whole", report)
    assert sum("by what the net says" in text for text in report.told) == renewed
    once = replace(config, recipe=replace(config.recipe, renew=0))
    train(once, tmp_path / "once")
    assert last_weights(tmp_path / "once") != last_weights(tmp_path / "whole")
    for stop in (2, 4, 6, 9):
        out = tmp_path / str(stop)
        with pytest.raises(Stopped):
            train(config, out, should_stop=after(stop))
        if stop == 6:
            with pytest.raises(Stopped):  # past the second renewal
                resume(out, Heard(), should_stop=after(3))
        resume(out, Heard())
        assert last_weights(out) == last_weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("method", "right", "alone"), [("cclp", 30, 3), ("cclp", 60, 0), ("lba", 30, 0)]
)
def test_only_cclp_begins_with_labels_alone_and_only_where_spread_ones_are_not_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, right: int, alone: int
) -> None:
    monkeypatch.setattr(LabelGraph, "leave_out", lambda _: LeftOut(right, 100))
    plain = tiny_config(max_steps=6, method=method, evaluate_every=1)
    recipe = replace(plain.recipe, prior=1.0, teach=1.0, alone=0.5)
    train(replace(plain, recipe=recipe), tmp_path / "run")
    lines = metrics(tmp_path / "run")
    with_unlabeled = "taught" if method == "cclp" else "walker"
    assert [with_unlabeled in line for line in lines] == [step >= alone for step in range(6)]


def test_a_poor_prior_is_good_enough_to_smooth_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LabelGraph, "leave_out", lambda _: LeftOut(0, 100))
    plain = tiny_config(max_steps=4)
    for alone, used in ((0.0, False), (0.5, True)):
        recipe = replace(plain.recipe, prior=1.0, alone=alone, teach=1.0)
        report = Heard()
        train(replace(plain, recipe=recipe), tmp_path / str(alone), report)
        assert any("by what the net says" in text for text in report.told) == used


def test_logits_that_are_not_finite_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Outputs:
        return Outputs(torch.zeros(1347, 2), torch.full((1347, 10), torch.nan))

    monkeypatch.setattr("cclp.runs.run.run_net", broken)
    plain = tiny_config(max_steps=5, evaluate_every=5)
    config = replace(plain, recipe=replace(plain.recipe, prior=1.0, renew=1))
    with pytest.raises(FloatingPointError, match="not finite after step 2; last good checkpoint"):
        train(config, tmp_path / "run")


def test_neighbours_are_searched_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_wine(return_X_y=True)
    few, plain = one_label_each(y), spread(X, one_label_each(y), 3)
    searched = []
    search = module._search

    def watched(points: NDArray[np.float32], most: int) -> module.Neighbours:
        searched.append(len(points))
        return search(points, most)

    monkeypatch.setattr(module, "_search", watched)
    cache = tmp_path / "new" / "cache"
    for labels in (few, y):  # whatever the labels
        spread(X, labels, 3, cache)
    np.testing.assert_array_equal(spread(X, few, 3, cache), plain)
    assert len(searched) == len(list(cache.iterdir())) == 1
    spread(2 * X[:100], few[:100], 3, cache)  # other data
    assert len(searched) == len(list(cache.iterdir())) == 2


def test_a_damaged_or_unwritable_cache_costs_time_only(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    few, plain = one_label_each(y), spread(X, one_label_each(y), 3)
    spread(X, few, 3, tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    other = io.BytesIO()
    np.savez(other, distance=np.ones((3, 5)), index=np.ones((3, 5)))
    for content in (b"", whole[:100], whole[:-50], b"nothing", other.getvalue()):
        file.write_bytes(content)
        np.testing.assert_array_equal(spread(X, few, 3, tmp_path), plain)
        assert file.read_bytes() == whole
    (tmp_path / "file").touch()
    np.testing.assert_array_equal(spread(X, few, 3, tmp_path / "file"), plain)


def drawings(count: int) -> NDArray[Any]:
    """Digits of twice their size."""
    return load("digits").train_x.reshape(-1, 1, 8, 8)[:count].repeat(2, 2).repeat(2, 3)


def test_images_are_bent_both_ways_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = drawings(60), np.arange(60) % 10
    graph = LabelGraph(x, y, 10, tmp_path)
    images = module.Images(x, graph.nodes[graph.first])
    points = graph.points[images.chosen]
    monkeypatch.setattr(module, "distortion_distances", None)  # they are kept
    ways = module._neighbours(points, images, tmp_path)
    monkeypatch.undo()
    for way, fresh in zip(ways, module._nearest(points, images), strict=True):
        np.testing.assert_array_equal(way, fresh)
    there, back, mean = ways
    assert all(index.shape == (60, 5) for _, index in ways)
    assert (there[0] != back[0]).any()
    assert (mean[0] <= (there[0] + back[0]).max()).all()
    assert graph.affinity is not None
    expected = sum(module._affinity(*way, module.IMAGE_SHARPNESS) for way in ways)
    np.testing.assert_allclose(graph.affinity.toarray(), expected.toarray())


@pytest.mark.parametrize("count", [2, 3, 5, 6])
def test_a_few_images(count: int) -> None:
    x = drawings(count)
    x[-1] = 0
    graph = LabelGraph(x, np.array([0, 1] + [-1] * (count - 2)), 2)
    np.testing.assert_allclose(graph.spread().sum(1), 1)
    said = np.full((count, 2), [0.0, 1.0])
    assert graph.smooth(said).argmax(1).tolist() == [0] + [1] * (count - 1)  # the first has a label
    assert graph.leave_out() == LeftOut(0, 0)


def test_features_in_place_of_the_inputs(tmp_path: Path) -> None:
    data = load("digits")
    wrong = np.random.default_rng(0).normal(size=(len(data.train_y), 10))
    known = wrong + 100 * np.eye(10)[data.train_y]
    np.save(tmp_path / "features.npy", np.asfortranarray(known))
    np.save(tmp_path / "noise.npy", wrong)
    plain = tiny_config(max_steps=8)
    recipe = replace(plain.recipe, prior=0.75)
    config = replace(plain, recipe=recipe, prior_features=str(tmp_path / "features.npy"))
    report = Heard()
    train(config, tmp_path / "whole", report)
    assert any("spread over the features: 30 of 30" in text for text in report.told)
    report = Heard()
    train(replace(config, prior_features=str(tmp_path / "noise.npy")), tmp_path / "bad", report)
    assert any("over the features are not used: only" in text for text in report.said)
    assert last_weights(tmp_path / "bad") != last_weights(tmp_path / "whole")

    out = tmp_path / "stopped"
    with pytest.raises(Stopped):
        train(config, out, should_stop=after(3))
    np.save(tmp_path / "features.npy", wrong)
    with pytest.raises(ValueError, match=r"features.npy has changed since the run began"):
        resume(out, Heard())
    np.save(tmp_path / "features.npy", known)
    with pytest.raises(Stopped):
        resume(out, Heard(), should_stop=after(3))  # at step 6 the prior is over
    (tmp_path / "features.npy").unlink()
    resume(out, Heard())
    assert last_weights(out) == last_weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros((3, 2)), r"for each of the 1347 training samples, got shape \(3, 2\)"),
        (np.zeros(1347), r"got shape \(1347,\)"),
        (np.zeros((1347, 0)), r"got shape \(1347, 0\)"),
        (np.full((1347, 2), np.nan), "must be finite"),
        (np.full((1347, 2), "a"), "must be an .npy array of numbers"),
        (np.full((1347, 2), None), "cannot be read as .npy"),
        (None, "cannot be read as .npy"),
    ],
)
def test_features_that_cannot_be_used(
    content: NDArray[Any] | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        np.save(tmp_path / "f.npy", content)
    plain = tiny_config(max_steps=2)
    recipe = replace(plain.recipe, prior=1.0)
    with pytest.raises(ValueError, match=message):
        train(
            replace(plain, recipe=recipe, prior_features=str(tmp_path / "f.npy")), tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["train", "digits", "--max-steps", "2", "--num-labels", "20", "--quiet"]
    assert call(*short, "--prior", "0.5", "--out", str(tmp_path / "run")) == 0
    about = json.loads((tmp_path / "run" / "config.json").read_text())
    assert about["config"]["recipe"]["prior"] == 0.5
    for wrong, message in (
        (["--prior", "2"], "prior must be at most 1, got 2.0"),
        (["--prior", "0.5", "--method", "vat"], "--prior has no effect with --method vat"),
        (["--prior-features", "f.npy"], "prior_features has no effect: prior is 0"),
        (["--prior-features", "f", "--method", "vat"], "--prior-features has no effect with"),
        (["--prior", "0.5", "--prior-features", "f.npy"], "f.npy cannot be read as .npy"),
    ):
        assert call(*short, *wrong) == 2
        assert message in capsys.readouterr().err
