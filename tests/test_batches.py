"""Which samples are labeled, and which samples each step sees."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cclp.data.batches import Batches, step_seed
from cclp.data.splits import labeled_subset, make_split

Y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), [5, *[50] * 9]))


def make(labels: list[int], pool: int = 100, **changes: Any) -> Batches:
    arguments: dict[str, Any] = {"per_class": 2, "unlabeled_batch": 8, "seed": 1, **changes}
    y = np.array(labels)
    return Batches(1000 + np.arange(len(y)), y, np.arange(pool), **arguments)


@pytest.mark.parametrize("count", [10, 30, 57, 100, 455])
def test_labeled_set_is_balanced(count: int) -> None:
    chosen = labeled_subset(Y, count, seed=0)
    assert len(np.unique(chosen)) == count
    sizes = np.bincount(Y[chosen])
    assert sizes[0] == 5 or sizes[0] >= count // 10
    others = sizes[1:] if sizes[0] == 5 else sizes
    assert others.max() - others.min() <= 1


def test_labeled_sets_are_nested_and_seeded() -> None:
    small, large = labeled_subset(Y, 20, seed=3), labeled_subset(Y, 60, seed=3)
    assert set(small) < set(large)
    assert set(small) != set(labeled_subset(Y, 20, seed=4))
    np.testing.assert_array_equal(small, labeled_subset(Y, 20, seed=3))


@pytest.mark.parametrize("count", [9, 456])
def test_labels_out_of_range(count: int) -> None:
    with pytest.raises(
        ValueError,
        match=rf"num_labels must be from 10 \(one per class\) to 455 \(all\), got {count}",
    ):
        labeled_subset(Y, count, seed=0)


def test_split_keeps_held_out_samples_away() -> None:
    split = make_split(Y, num_labels=40, held_out=100, seed=0)
    assert len(split.held_out) == 100
    assert set(split.held_out).isdisjoint(split.unlabeled)
    assert set(split.labeled) < set(split.unlabeled)
    assert len(split.unlabeled) == 355
    everything = make_split(Y, num_labels=None, held_out=100, seed=0)
    np.testing.assert_array_equal(everything.labeled, everything.unlabeled)
    with pytest.raises(ValueError, match="held_out must be from 0 to 445, got 455"):
        make_split(Y, num_labels=None, held_out=455, seed=0)


def test_a_batch_is_a_pure_function_of_seed_step_and_rank() -> None:
    labels = [0] * 7 + [1] * 9
    one, other = make(labels), make(labels)
    for step in (5, 0, 123456, 5):
        np.testing.assert_array_equal(one(step).labeled, other(step).labeled)
        np.testing.assert_array_equal(one(step).unlabeled, other(step).unlabeled)
    assert not np.array_equal(one(3).unlabeled, make(labels, seed=2)(3).unlabeled)
    assert not np.array_equal(one(3).unlabeled, one(4).unlabeled)


def test_every_step_has_n_of_each_class() -> None:
    labels = np.array([0] * 7 + [1] * 9 + [2] * 2)
    batches = make(labels.tolist())
    for step in range(20):
        assert np.bincount(labels[batches(step).labeled - 1000]).tolist() == [2, 2, 2]


def test_an_epoch_holds_each_sample_once() -> None:
    batches = make([0] * 6 + [1] * 4, pool=40)
    unlabeled = np.concatenate([batches(step).unlabeled for step in range(10)]).reshape(2, 40)
    for epoch in unlabeled:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(40))
    assert not np.array_equal(*unlabeled)
    labeled = np.concatenate([batches(step).labeled[:2] for step in range(3)])
    np.testing.assert_array_equal(np.sort(labeled), 1000 + np.arange(6))


def test_ranks_see_different_samples() -> None:
    batches = make([0] * 40 + [1] * 40, pool=48, world_size=3)
    seen = [batches(step, rank).unlabeled for step in range(2) for rank in range(3)]
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(48))
    labeled = np.concatenate([batches(0, rank).labeled for rank in range(3)])
    assert len(np.unique(labeled)) == len(labeled) == 12


def test_small_sets_repeat() -> None:
    batch = make([0, 1, 1], pool=3, per_class=5, unlabeled_batch=7)(0)
    assert np.bincount(batch.labeled - 1000).tolist()[0] == 5
    assert set(np.bincount(batch.labeled - 1000).tolist()[1:]) == {2, 3}
    assert sorted(np.bincount(batch.unlabeled).tolist()) == [2, 2, 3]


def test_no_unlabeled_samples() -> None:
    assert make([0, 1], pool=0)(3).unlabeled.shape == (0,)
    assert make([0, 1], unlabeled_batch=0)(3).unlabeled.shape == (0,)


def test_labeled_batch_caps_the_samples_of_each_class() -> None:
    labels = np.repeat(np.arange(4), 10)
    batch = make(labels.tolist(), per_class=10, labeled_batch=15)(0)
    assert np.bincount(labels[batch.labeled - 1000]).tolist() == [3, 3, 3, 3]


def test_more_classes_than_fit_take_turns() -> None:
    labels = np.repeat(np.arange(7), 3)
    batches = make(labels.tolist(), labeled_batch=3)
    drawn = [labels[batches(step).labeled - 1000] for step in range(300)]
    assert all(len(set(classes)) == 3 for classes in drawn)
    for first in range(0, 300, 3):  # three turns for seven classes
        assert len(set(np.concatenate(drawn[first : first + 3]))) == 7
    assert len({tuple(sorted(classes)) for classes in drawn}) > 20
    samples = np.concatenate([batches(step).labeled for step in range(300)])
    assert np.bincount(samples - 1000).min() > 20  # of 43 on average: no sample is left out


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=12),
    pool=st.integers(0, 20),
    per_class=st.integers(1, 8),
    cap=st.none() | st.integers(2, 40),
    step=st.integers(0, 10**6),
)
def test_any_shape_of_data(
    sizes: list[int], pool: int, per_class: int, cap: int | None, step: int
) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    batches = make(labels.tolist(), pool, per_class=per_class, labeled_batch=cap)
    batch = batches(step)
    counts = np.bincount(labels[batch.labeled - 1000], minlength=len(sizes))
    assert len(batch.labeled) <= (len(sizes) * per_class if cap is None else max(cap, 1))
    assert len(set(counts[counts > 0])) == 1
    assert (counts > 0).sum() == min(len(sizes), cap or len(sizes))
    assert len(batch.unlabeled) == (8 if pool else 0)


def test_seeds_of_steps_differ() -> None:
    seeds = {
        step_seed(seed, step, rank)
        for seed in range(5)
        for step in range(-1, 50)
        for rank in (0, 1)
    }
    assert len(seeds) == 5 * 51 * 2
    assert all(0 <= seed < 2**63 for seed in seeds)
