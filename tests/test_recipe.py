"""Recipes hold the published numbers; recipes and configurations check themselves."""

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from cclp.commands.configure import make_config
from cclp.data.dataset import Kind
from cclp.runs.upgrade import upgrade_config, upgrade_recipe, upgrade_result
from cclp.training.config import Config
from cclp.training.recipe import RECIPES, Recipe, make_recipe
from cclp.training.schedules import OneCycle, PiecewiseConstant
from tests.runs import tiny_config

RECORDED = sorted(  # by version 0.1
    path
    for path in Path(__file__).parents[1].glob("results/**/config.json")
    if "steps" in json.loads(path.read_text())["config"]["recipe"]
)
WITH_GRAPH = "cclp+graph_pseudo_label"


def test_paper_mnist() -> None:
    recipe = make_recipe("paper", "mnist")
    assert (recipe.net, recipe.max_steps, recipe.per_class, recipe.unlabeled_batch) == (
        "mnist", 45_000, 10, 100,
    )  # fmt: skip
    assert (recipe.l2_features, recipe.l2_classifier, recipe.adam_eps) == (1e-4, 1e-4, 1e-7)
    assert (recipe.method, recipe.settings) == ("cclp", {})  # its defaults are the paper's
    for step in (0, 4_999, 5_000, 9_999, 10_000, 30_000, 34_999, 35_000, 44_999):
        expected = max(1e-3 * 0.333 ** (step // 5_000), 1e-6)
        assert recipe.learning_rate_at(step) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("data", "net", "l2", "weight"),
    [("svhn", "svhn", (1e-6, 1e-6), 1.0), ("cifar10", "cifar", (1e-8, 1e-6), 0.1)],
)
def test_paper_svhn_and_cifar(data: str, net: str, l2: tuple[float, float], weight: float) -> None:
    few = make_recipe("paper", data)
    assert (few.net, few.max_steps, few.l2_features, few.l2_classifier) == (net, 75_000, *l2)
    rates = [few.learning_rate_at(step) for step in (0, 39_999, 40_000, 54_999, 55_000, 74_999)]
    assert rates == pytest.approx([3e-4, 3e-4, 1e-4, 1e-4, 3e-5, 3e-5])
    assert few.settings.get("cclp", {}).get("weight", 1.0) == weight
    assert make_recipe("paper", data, all_labels=True).settings == {}


def test_a_shorter_run_has_the_same_course() -> None:
    full = make_recipe("paper", "svhn")
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


def test_pieces_begin_at_the_first_step() -> None:
    with pytest.raises(ValueError, match=r"pieces must begin at step 0, got \(\(5, 1\.0\),\)"):
        PiecewiseConstant(10, ((5, 1.0),))


# data, kind, all labels: recipe -> its net and method
MADE: list[tuple[str, Kind, bool, dict[str, tuple[str, str]]]] = [
    ("mnist", "images", False, {
        "paper": ("mnist", "cclp"), "short": ("mnist", "cclp"), "fast": ("mnist_small", WITH_GRAPH),
    }),
    ("mnist", "images", True, {
        "paper": ("mnist", "cclp"), "short": ("mnist", "cclp"), "fast": ("mnist", "cclp"),
    }),
    ("svhn", "images", False, {
        "paper": ("svhn", "cclp"), "short": ("svhn", "cclp"), "fast": ("small", WITH_GRAPH),
    }),
    ("cifar10", "images", False, {
        "paper": ("cifar", "cclp"), "short": ("cifar", "cclp"), "fast": ("small", WITH_GRAPH),
    }),
    ("fashion_mnist", "images", False, {
        "short": ("mnist", "cclp"), "fast": ("small", WITH_GRAPH),
    }),
    ("digits", "images", False, {"short": ("mlp", "cclp"), "fast": ("mlp", "cclp")}),
    ("photos", "images", True, {"short": ("svhn", "cclp"), "fast": ("small", WITH_GRAPH)}),
    ("a.csv", "vectors", True, {"short": ("mlp", "cclp"), "fast": ("mlp", WITH_GRAPH)}),
]  # fmt: skip


@pytest.mark.parametrize(("data", "kind", "all_labels", "expected"), MADE)
def test_every_recipe_for_every_data(
    data: str, kind: Kind, all_labels: bool, expected: dict[str, tuple[str, str]]
) -> None:
    for name in RECIPES:
        if name not in expected:
            with pytest.raises(ValueError, match=f"'{name}' is for .*, got data '{data}'"):
                make_recipe(name, data, all_labels=all_labels, kind=kind)
            continue
        recipe = make_recipe(name, data, all_labels=all_labels, kind=kind)
        assert (recipe.name, recipe.net, recipe.method) == (name, *expected[name])
        assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
        assert ("graph_pseudo_label" in recipe.settings) <= (recipe.method == WITH_GRAPH)
    assert make_recipe(None, data, kind=kind).name == "fast"


def test_fast_warms_up_where_a_graph_of_inputs_knows_little() -> None:
    for data in ("mnist", "svhn", "cifar10", "photos"):
        recipe = make_recipe("fast", data)
        settings = recipe.settings.get("graph_pseudo_label", {})
        assert (settings.get("supervised_warmup", 0) > 0) == (data != "mnist")  # type: ignore[operator]
        assert (settings.get("refreshes", 0) > 0) == (data != "mnist")  # type: ignore[operator]
        assert recipe.horizontal_flip == (data == "cifar10")  # a flipped digit is another
        assert recipe.color_jitter == (data == "svhn")
    photos = replace(make_recipe("fast", "cifar10"), horizontal_flip=False)
    assert make_recipe("fast", "photos") == photos == make_recipe("fast", "fashion_mnist")


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(ValueError, match="recipe must be one of paper, short, fast, got 'quick'"):
        make_recipe("quick", "mnist")


def test_a_net_of_the_users_own_is_trained_by_plain_settings() -> None:
    assert make_config("mnist", net="mine:make").recipe.name == "short"
    assert make_config("mnist", net="small").recipe.name == "fast"
    assert make_config("mnist", recipe="fast", net="mine:make").recipe.name == "fast"


# --- recipes and configurations check themselves ---


def test_a_recipe_never_changes() -> None:
    settings: dict[str, Any] = {"cclp": {"weight": 0.5}}
    recipe = replace(make_recipe("short", "mnist"), settings=settings)
    with pytest.raises(FrozenInstanceError):
        recipe.max_steps = 5  # type: ignore[misc]
    settings["cclp"]["weight"] = 9.0
    assert recipe.settings == {"cclp": {"weight": 0.5}}
    config = Config("mnist", recipe, settings=settings)
    settings["cclp"]["weight"] = 7.0
    config.method_settings["cclp"]["weight"] = 8.0
    assert (config.settings, recipe.settings) == (
        {"cclp": {"weight": 9.0}},
        {"cclp": {"weight": 0.5}},
    )


@pytest.mark.parametrize("name", RECIPES)
def test_config_survives_json(name: str) -> None:
    recipe = make_recipe(name, "mnist")
    settings: Any = {"cclp": {"weight": 0.3, "similarity": "cosine", "detach_posteriors": True}}
    config = Config("mnist", recipe, num_labels=None, settings=settings, seed=7)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_the_method_is_the_recipes_unless_named() -> None:
    recipe = make_recipe("fast", "cifar10")
    assert Config("cifar10", recipe).method == WITH_GRAPH
    assert Config("cifar10", recipe, method="cclp").method == "cclp"


def test_settings_of_recipe_and_run_are_merged_by_method() -> None:
    recipe = make_recipe("fast", "cifar10")
    of_recipe = {"supervised_warmup": 0.5, "refreshes": 5}
    assert Config("cifar10", recipe).method_settings == {
        "cclp": {"weight": 0.1}, "graph_pseudo_label": of_recipe,
    }  # fmt: skip
    config = Config(
        "cifar10",
        recipe,
        method="cclp+vat",
        settings={"cclp": {"weight": 2.0, "chain_steps": 5}, "vat": {"radius": 0.3}},
        graph="global",
    )
    assert config.method_settings == {
        "cclp": {"weight": 2.0, "chain_steps": 5, "gather": True}, "vat": {"radius": 0.3},
    }  # fmt: skip
    changed: Any = {"graph_pseudo_label": {"refreshes": 1}}
    config = Config("cifar10", recipe, settings=changed)
    assert config.method_settings["graph_pseudo_label"] == {**of_recipe, "refreshes": 1}
    assert Config("cifar10", recipe, method="supervised").method_settings == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"net": "big"}, "net must be one of .*, got 'big'"),
        ({"method": "ccpl"}, "method must be one of .*, got 'ccpl'"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"max_steps": 2.5}, "max_steps must be an integer"),
        ({"unlabeled_batch": 1}, "unlabeled_batch must be 0 or at least 2"),
        ({"unlabeled_batch": -2}, "unlabeled_batch must be at least 0"),
        ({"per_class": 0}, "per_class must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be finite and above 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be finite"),
        ({"adam_eps": 0.0}, "adam_eps must be finite and above 0"),
        ({"l2_features": -1e-4}, "l2_features must be at least 0"),
        ({"random_affine": -1.0}, "random_affine must be at least 0"),
        ({"horizontal_flip": 1}, "horizontal_flip must be true or false, got 1"),
        ({"settings": []}, "settings must be by method and name"),
        ({"settings": {"ccpl": {}}}, "settings must be by method and name, got 'ccpl'"),
        ({"settings": {"cclp": 0.1}}, "settings of cclp must be by name, got 0.1"),
        ({"settings": {"cclp": {"bandwidth": [1.0]}}}, r"cclp.bandwidth must be a number or a"),
        ({"settings": {"vat": {"weight": float("inf")}}}, "weight of vat must be finite, got inf"),
    ],
)
def test_recipe_refuses(changes: dict[str, Any], message: str) -> None:
    good = make_recipe("short", "mnist")
    with pytest.raises((ValueError, TypeError), match=message):
        replace(good, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "ccpl"}, "method must be one of .*, got 'ccpl'"),
        ({"method": "cclp+cclp"}, "has cclp twice"),
        ({"num_labels": 1}, "num_labels must be at least 2, got 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"held_out": -5}, "held_out must be at least 0"),
        ({"labeled_batch": 1}, "labeled_batch must be at least 2"),
        ({"devices": 0}, "devices must be at least 1"),
        ({"image_size": 7}, "image_size must be at least 8"),
        ({"image_size": 1025}, "image_size must be at most 1024, got 1025"),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1"),
        ({"precision": "16"}, "precision must be one of 'auto', 'bf16', '32', got '16'"),
        ({"accelerator": "tpu"}, "accelerator must be one of"),
        ({"graph": "both"}, "graph must be one of 'local', 'global', got 'both'"),
        ({"recipe": "fast"}, "recipe must not be 'fast'"),
        ({"verify": "yes"}, "verify must not be 'yes'"),
        ({"settings": {"vat": {}}}, "settings has 'vat', but the method is 'cclp'"),
        ({"settings": {"cclp": {"weight": -1}}}, "weight of cclp must be at least 0, got -1"),
        ({"graph": "global", "method": "vat"}, "graph has no effect with method 'vat'"),
        ({"pseudo_label_features": "z.npy"}, "pseudo_label_features has no effect with method"),
    ],
)
def test_config_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        replace(tiny_config(), **changes)


# --- records of version 0.1 ---


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_runs_of_version_0_1_are_read(path: Path) -> None:
    old = json.loads(path.read_text())["config"]
    config = Config.from_json(upgrade_config(old))
    recipe, made = old["recipe"], config.recipe
    assert (made.max_steps, made.net, config.seed) == (recipe["steps"], recipe["net"], old["seed"])
    assert config.num_labels == old["labels"]
    graph = recipe.get("prior", 0) > 0
    assert made.method == (WITH_GRAPH if graph else "cclp")
    assert config.method == (WITH_GRAPH if graph and old["method"] == "cclp" else old["method"])
    assert made.settings.get("cclp", {}).get("weight", 1.0) == recipe["weight"]
    if graph:
        defaults = {"weight": 1.0, "decay": 1.0, "refreshes": 0, "supervised_warmup": 0.0}
        assert defaults | made.settings.get("graph_pseudo_label", {}) == {
            "weight": recipe["teach"],
            "decay": recipe["prior"],
            "refreshes": recipe["renew"],
            "supervised_warmup": recipe.get("alone", 0.0),
        }

    was = json.loads(path.with_name("result.json").read_text())
    result = upgrade_result(was)
    assert (result["error"], result["num_labels"]) == (was["error"], was["labels"])
    assert result["method"] == config.method
    assert Recipe.from_json(result["recipe"]) == made


def test_what_is_not_old_is_left_as_it_is() -> None:
    config = Config("mnist", make_recipe("fast", "mnist")).to_json()
    assert upgrade_config(config) == config


def test_random_affine_had_no_strength_once() -> None:
    old = {
        "name": "fast", "net": "mnist", "steps": 9, "learning_rate": 1.0, "schedule": {},
        "weight": 1.0, "jitter": True,
    }  # fmt: skip
    assert Recipe.from_json(upgrade_recipe(old)).random_affine == 1.0
