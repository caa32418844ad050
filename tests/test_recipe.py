"""Recipes hold the published numbers; a configuration survives JSON and refuses nonsense."""

import json
from dataclasses import replace
from typing import Any

import pytest

from cclp.commands.train import make_config
from cclp.training.config import Config
from cclp.training.recipe import OneCycle, Recipe, make_recipe
from tests.runs import tiny_config


def test_paper_mnist() -> None:
    recipe = make_recipe("paper", "mnist", all_labels=False)
    assert (recipe.net, recipe.max_steps, recipe.per_class, recipe.unlabeled_batch) == (
        "mnist", 45_000, 10, 100,
    )  # fmt: skip
    assert (recipe.l2_features, recipe.l2_classifier, recipe.adam_eps) == (1e-4, 1e-4, 1e-7)
    assert (recipe.weight, recipe.chain_steps, recipe.similarity) == (1.0, 3, "dot")
    for step in (0, 4_999, 5_000, 9_999, 10_000, 30_000, 34_999, 35_000, 44_999):
        expected = max(1e-3 * 0.333 ** (step // 5_000), 1e-6)
        assert recipe.learning_rate_at(step) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("data", "net", "l2", "weights"),
    [("svhn", "svhn", (1e-6, 1e-6), (1.0, 1.0)), ("cifar10", "cifar", (1e-8, 1e-6), (0.1, 1.0))],
)
def test_paper_svhn_and_cifar(
    data: str, net: str, l2: tuple[float, float], weights: tuple[float, float]
) -> None:
    few = make_recipe("paper", data, all_labels=False)
    assert (few.net, few.max_steps, few.l2_features, few.l2_classifier) == (net, 75_000, *l2)
    rates = [few.learning_rate_at(step) for step in (0, 39_999, 40_000, 54_999, 55_000, 74_999)]
    assert rates == pytest.approx([3e-4, 3e-4, 1e-4, 1e-4, 3e-5, 3e-5])
    assert (few.weight, make_recipe("paper", data, all_labels=True).weight) == weights


def test_a_shorter_run_has_the_same_course() -> None:
    full = make_recipe("paper", "svhn", all_labels=False)
    short = replace(full, max_steps=750)
    assert [short.learning_rate_at(step) for step in (399, 400, 549, 550)] == [
        full.learning_rate_at(step) for step in (39_900, 40_000, 54_900, 55_000)
    ]


def test_one_cycle() -> None:
    rates = [OneCycle().factor(step, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(1 / 25)
    assert max(rates) == rates[300] == 1
    assert rates[:301] == sorted(rates[:301])
    assert rates[300:] == sorted(rates[300:], reverse=True)
    assert 0 < rates[-1] < 1e-4


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("paper", "digits", "'paper' is for mnist, svhn and cifar10, got data 'digits'"),
        ("short", "digits", "'short' and 'fast' are not for digits"),
        ("fast", "digits", "'short' and 'fast' are not for digits"),
        ("digits", "mnist", "'digits' is for digits, got data 'mnist'"),
        ("quick", "mnist", "one of paper, short, fast, digits, got 'quick'"),
    ],
)
def test_recipes_that_do_not_exist(name: str, data: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_recipe(name, data, all_labels=False)


def test_default_recipe() -> None:
    assert make_recipe(None, "digits", all_labels=False).name == "digits"
    assert make_recipe(None, "mnist", all_labels=False).name == "fast"


def test_only_fast_has_a_prior_and_only_with_few_labels() -> None:
    for data in ("mnist", "svhn", "cifar10"):
        recipe = make_recipe("fast", data)
        assert recipe.prior == recipe.teach == 1
        assert (recipe.alone > 0) == (data != "mnist")
        assert (recipe.renew > 0) == (data != "mnist")
        assert recipe.mirror == (data == "cifar10")  # a mirrored digit is another
        assert recipe.recolour == (data == "svhn")
    for name in ("paper", "short", "fast"):
        for data in ("mnist", "svhn", "cifar10"):
            recipe = make_recipe(name, data, all_labels=True)
            assert (recipe.prior, recipe.teach, recipe.renew) == (0, 0, 0)
            if name != "fast":
                assert make_recipe(name, data).prior == 0


@pytest.mark.parametrize("all_labels", [False, True])  # there may be unlabeled ones all the same
def test_fast_for_images_that_it_does_not_know(all_labels: bool) -> None:
    recipe = make_recipe(None, "photos", all_labels=all_labels)
    cifar = make_recipe("fast", "cifar10")
    assert recipe == replace(cifar, mirror=False) == make_recipe("fast", "fashion_mnist")
    table = make_recipe(None, "a.csv", all_labels=all_labels, kind="vectors")
    assert table == replace(make_recipe("short", "a.csv", kind="vectors"), name="fast")


def test_a_net_of_the_users_own_is_trained_by_plain_settings() -> None:
    for data, name in (("mnist", "short"), ("digits", "digits")):
        assert make_config(data, net="mine:make").recipe.name == name
    assert make_config("mnist", net="small").recipe.name == "fast"
    assert make_config("mnist", recipe="fast", net="mine:make").recipe.name == "fast"


@pytest.mark.parametrize("name", ["paper", "short", "fast"])
def test_config_survives_json(name: str) -> None:
    config = Config(
        data="mnist", recipe=make_recipe(name, "mnist", all_labels=True), num_labels=None, seed=7
    )
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_run_that_was_made_when_jitter_had_no_amount() -> None:
    config = Config(data="mnist", recipe=make_recipe("fast", "mnist"))
    content = json.loads(json.dumps(config.to_json()))
    content["recipe"]["jitter"] = True
    for name in ("alone", "recolour", "mirror"):
        del content["recipe"][name]
    assert Config.from_json(content) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"method": "ccpl"},
            "with . between them, got 'ccpl'",
        ),
        ({"num_labels": 1}, "num_labels must be at least 2, got 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"held_out": -5}, "held_out must be at least 0"),
        ({"labeled_batch": 1}, "labeled_batch must be at least 2"),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"precision": "16"}, "precision must be one of 'auto', 'bf16', '32', got '16'"),
        ({"accelerator": "tpu"}, "accelerator must be one of"),
        ({"normalization": "minmax"}, "normalization must be one of 'zscore', 'zca'"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"unlabeled_batch": 1}, "unlabeled_batch must be 0 or at least 2"),
        ({"unlabeled_batch": -2}, "unlabeled_batch must be at least 0"),
        ({"per_class": 0}, "per_class must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be finite and above 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be finite"),
        ({"jitter": -1.0}, "jitter must be at least 0"),
        ({"alone": 1.5}, "alone must be at most 1"),
        ({"bandwidth": 0.0}, "bandwidth must be finite and above 0"),
        ({"weight": float("inf")}, "weight must be finite"),
        ({"chain_steps": 0}, "chain_steps must be at least 1"),
        ({"similarity": "rbf"}, "similarity must be one of"),
    ],
)
def test_config_refuses(changes: dict[str, Any], message: str) -> None:
    recipe = {k: v for k, v in changes.items() if k in Recipe.__dataclass_fields__}
    rest = {k: v for k, v in changes.items() if k not in recipe}
    good = tiny_config()
    with pytest.raises(ValueError, match=message):
        replace(good, recipe=replace(good.recipe, **recipe), **rest)
