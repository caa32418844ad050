"""Choosing a model by cross-validation over the labels, and what a user hears of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs, make_moons
from sklearn.linear_model import LogisticRegression

from cclp.data.splits import Split
from cclp.data.weights import LabelWeights
from cclp.nets.registry import make_net
from cclp.progress import Reporter
from cclp.selection.cross_validation import (
    OutOfFold,
    clearly_worse,
    cross_validate,
    make_folds,
)
from cclp.selection.problem import Candidate, Problem
from cclp.selection.select import (
    candidates,
    choose,
    fit_temperature,
    is_better,
    make_verdict,
    select,
)
from cclp.selection.verdict import Verdict, class_rows, score
from cclp.sklearn import CCLPClassifier
from cclp.training.callbacks import RecalibrateAtEnd
from cclp.training.machine import make_fabric
from cclp.training.recipe import linear, vectors
from cclp.training.seeding import own_randomness
from tests.command_line import call
from tests.runs import own_folder

METHOD = "cclp+graph_pseudo_label"
EQUAL = np.array([0.5, 0.5])


def make_problem(x: Any, y: Any, labeled: Any, num_classes: int = 2) -> Problem:
    index = np.flatnonzero(labeled)
    return Problem(
        np.asarray(x, np.float32),
        np.asarray(y, np.int64),
        Split(index, np.arange(len(x)), np.empty(0, np.int64)),
        tuple("abcdefgh"[:num_classes]),
        seed=0,
        make_fabric=lambda: make_fabric("cpu", "32"),
        make_net=lambda net: make_net(net, x.shape[1:], num_classes),
        label_weights=lambda labeled: None,
        class_prior=lambda labeled: None,
        key="",
        labeled_batch=200,
        cache=None,
        report=Reporter(),
    )


def linear_problem() -> tuple[Problem, Any]:
    """A plane in 40 dimensions without a gap: neighbours say little."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 40))
    y = (x[:, :4].sum(1) > 0).astype(np.int64)
    return make_problem(x, y, np.arange(400) < 160), y


def moons() -> tuple[Problem, Any]:
    x, y = make_moons(300, noise=0.08, random_state=0)
    labeled = np.zeros(300, bool)
    for c in (0, 1):
        labeled[np.flatnonzero(y == c)[:6]] = True
    return make_problem(x, y, labeled), y


def out_of_fold(y: Any, right: dict[str, Any]) -> OutOfFold:
    """Predictions of two classes that are right where it is said."""
    found = OutOfFold(np.arange(len(y)), 1.0, folds=5)
    for name, correct in right.items():
        asked = y[: len(correct)]
        said = np.where(correct, asked, 1 - asked)
        found.log_probabilities[name] = [np.log(np.eye(2)[said] * 0.8 + 0.1)]
    return found


# --- folds and scores ---


def test_folds_are_stratified_and_leave_single_labels_alone() -> None:
    y = np.repeat([0, 1, 2], [20, 10, 1])
    folds = make_folds(y, np.arange(31), 5, seed=3)
    assert sorted(np.concatenate(folds).tolist()) == list(range(30))
    assert [np.bincount(y[fold], minlength=3).tolist() for fold in folds] == [[4, 2, 0]] * 5
    many = np.repeat(np.arange(50), 2)  # two labels of each: not all in the first two folds
    assert [len(fold) for fold in make_folds(many, np.arange(100), 5, seed=0)] == [20] * 5
    assert make_folds(np.arange(4), np.arange(4), 5, seed=0) == []


def test_scores() -> None:
    y, said = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 0])
    error, balanced, f1 = score(said, y)
    assert error == pytest.approx(2 / 6)
    assert balanced == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert f1 == pytest.approx((6 / 8 + 2 / 4) / 2)
    rows = class_rows(said, y, ["a", "b", "c"], np.array([4, 2, 1]))
    assert (rows[0].labels, rows[0].tested, rows[0].wrong, rows[0].f1) == (4, 4, 1, 0.75)
    assert (rows[2].labels, rows[2].tested, rows[2].f1) == (1, 0, None)


# --- the choice ---


def test_the_preferred_candidate_yields_to_what_is_clearly_better() -> None:
    y = np.arange(100) % 2
    some = {"first": np.arange(100) % 10 > 1, "second": np.arange(100) % 20 > 0}
    assert choose(out_of_fold(y, some), y, ["first", "second"], np.bincount(y), EQUAL) == "second"
    slightly = {"first": np.arange(100) > 9, "second": np.arange(100) > 8}
    assert (
        choose(out_of_fold(y, slightly), y, ["first", "second"], np.bincount(y), EQUAL) == "first"
    )
    dropped = {"first": np.arange(100) > 4, "second": np.ones(20, bool)}
    assert choose(out_of_fold(y, dropped), y, ["first", "second"], np.bincount(y), EQUAL) == "first"


def test_with_few_labels_the_preferred_candidate_stays() -> None:
    y = np.arange(6) % 2
    worse = {"first": np.arange(6) > 1, "second": np.ones(6, bool)}
    assert choose(out_of_fold(y, worse), y, ["first", "second"], np.bincount(y), EQUAL) == "first"


def test_classes_count_by_their_shares_and_not_by_their_labels() -> None:
    y = np.repeat([0, 1], [20, 20])
    on_rare, on_common = np.arange(40) >= 6, np.arange(40) < 36  # six and four are wrong
    found, counts = out_of_fold(y, {"first": on_common, "second": on_rare}), np.bincount(y)
    assert choose(found, y, ["first", "second"], counts, np.array([0.5, 0.5])) == "first"
    assert choose(found, y, ["first", "second"], counts, np.array([0.05, 0.95])) == "second"


def test_labels_in_other_shares_than_the_samples_are_said() -> None:
    x, y = make_blobs([180, 20], n_features=4, cluster_std=0.5, random_state=0)
    labeled = np.zeros(200, bool)
    for c in (0, 1):
        labeled[np.flatnonzero(y == c)[:6]] = True
    problem = make_problem(x, y, labeled)
    assert problem.shares[0] == pytest.approx(0.9, abs=0.05)
    recipe = replace(vectors(200), max_steps=20)
    with own_randomness():
        found = select(problem, recipe, recipe.settings)
    assert found.verdict is not None
    assert any("not as frequent as their labels" in text for text in found.verdict.sentences)


def test_clearly() -> None:
    yes, mixed = np.ones(40, bool), np.arange(40) % 4 > 0
    assert clearly_worse(mixed, yes)
    assert not clearly_worse(yes, mixed)
    assert not clearly_worse(yes, yes)
    assert not clearly_worse(np.array([False, True]), np.array([True, True]))
    y = np.arange(40) % 2
    assert is_better(y, np.where(mixed, y, 1 - y), y)


def test_temperature_makes_probabilities_mean_what_they_say() -> None:
    """Sure of every sample, and right about eight of ten."""
    y = np.arange(1000) % 2
    said = np.where(np.arange(1000) % 10 < 8, y, 1 - y)
    logits = 10.0 * np.eye(2)[said]
    temperature = fit_temperature(logits, y)
    sure = 1 / (1 + np.exp(-10 / temperature))
    assert sure == pytest.approx(0.8, abs=0.01)
    right = fit_temperature(np.eye(2)[y], y)
    assert 0.04 < right < 1  # finite, and surer than it was


def test_a_straight_line_is_chosen_where_it_is_best() -> None:
    problem, y = linear_problem()
    recipe = replace(vectors(400), max_steps=200)
    with own_randomness():
        found = select(problem, recipe, recipe.settings)
    verdict = found.verdict
    assert verdict is not None
    assert verdict.chosen in ("logistic_regression", "linear+graph_pseudo_label", METHOD)
    linear_rows = [r.error for r in verdict.rows if r.name == "logistic_regression"]
    assert verdict.row(verdict.chosen).error <= linear_rows[0] + 0.03
    assert verdict.tested == 160
    assert len(found.tested) == len(found.logits) == 160
    errors = {row.name: row.error for row in verdict.rows}
    assert errors[verdict.chosen] == (found.logits.argmax(1) != y[found.tested]).mean()
    assert errors[verdict.chosen] < errors["graph"]
    assert errors["majority"] == np.bincount(y[:160]).min() / 160
    assert [row.error for row in verdict.rows] == sorted(row.error for row in verdict.rows)
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict
    assert max(map(len, verdict.table().splitlines())) <= 80


def test_unlabeled_data_helps_on_moons() -> None:
    problem, _ = moons()
    recipe = replace(vectors(300), max_steps=80)
    with own_randomness():
        found = select(problem, recipe, recipe.settings)
    assert found.verdict is not None
    assert found.candidate.method == METHOD
    assert "Unlabeled data does not help" not in found.verdict.sentences[0]


def test_a_shorter_training_is_chosen_where_the_error_rises_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, y = linear_problem()
    recipe = vectors(400)
    names = [c.name for c in candidates(recipe, 160, False, {})]
    assert names[:2] == [METHOD, f"{METHOD}, short"]
    right = {name: np.arange(160) % 4 > 0 for name in (*names, "graph", "random_forest")}
    right[f"{METHOD}, short"] = np.arange(160) % 20 > 0
    found = out_of_fold(y[:160], right)
    monkeypatch.setattr("cclp.selection.select.cross_validate", lambda *arguments: found)
    chosen = select(problem, recipe, recipe.settings)
    assert chosen.candidate.recipe.max_steps == recipe.max_steps // 4
    assert chosen.verdict is not None
    assert chosen.verdict.row(chosen.candidate.name).title.endswith(", 75 steps")
    shortest = replace(recipe, max_steps=40)
    assert f"{METHOD}, short" not in [c.name for c in candidates(shortest, 160, False, {})]
    images = [c.name for c in candidates(recipe, 160, True, {})]
    assert images == [METHOD, f"{METHOD}, short", "supervised"]


def test_logistic_regression_with_weights_is_judged_by_the_net() -> None:
    """Scikit-learn's, which is quicker, is the same only without weights."""
    problem, _ = linear_problem()
    recipe = replace(vectors(400), max_steps=2)
    only = [c for c in candidates(recipe, 160, False, {}) if c.name == "logistic_regression"]
    weighted = replace(
        problem, label_weights=lambda labeled: LabelWeights(np.ones(len(labeled)), None)
    )
    with own_randomness():
        plain, by_net = (cross_validate(p, only, None, 0.0) for p in (problem, weighted))
    assert plain is not None
    assert by_net is not None
    rows = plain.rows("logistic_regression"), by_net.rows("logistic_regression")
    assert np.abs(rows[1]).max() < 1 < np.abs(rows[0]).max()  # two steps teach little


def test_one_label_a_class_cannot_be_judged() -> None:
    x, y = make_blobs(60, centers=3, random_state=0)
    first = [int(np.flatnonzero(y == c)[0]) for c in range(3)]
    problem = make_problem(x, y, np.isin(np.arange(60), first), 3)
    recipe = vectors(60)
    found = select(problem, recipe, recipe.settings)
    assert found.verdict is None
    assert found.candidate.method == METHOD
    assert cross_validate(problem, [], None, None) is None


def test_what_is_cross_validated_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = moons()
    recipe = replace(vectors(300), max_steps=10)
    only = [c for c in candidates(recipe, 12, False, {}) if c.name == "supervised"]
    with own_randomness():
        first = cross_validate(problem, only, tmp_path, None)
        assert len(list(tmp_path.iterdir())) == first.folds  # type: ignore[union-attr]
        monkeypatch.setattr(Problem, "trainer", None)  # nothing is trained again
        again = cross_validate(problem, only, tmp_path, None)
    assert first is not None
    assert again is not None
    np.testing.assert_array_equal(first.rows("supervised"), again.rows("supervised"))
    for file in tmp_path.iterdir():
        file.write_bytes(b"damaged")
    with pytest.raises(TypeError):  # it would be trained
        cross_validate(problem, only, tmp_path, None)


def test_no_fold_is_begun_when_the_time_is_over() -> None:
    problem, _ = moons()
    found = cross_validate(problem, [], None, 0.0)
    assert found is not None
    assert found.folds == 1


def test_a_linear_net_learns_what_logistic_regression_does() -> None:
    problem, y = linear_problem()
    recipe = linear(vectors(400), 160)
    with own_randomness():
        trainer = problem.trainer(Candidate("", "", "supervised", recipe, {}), problem.split)
        trainer.fit([RecalibrateAtEnd()])
        mine = trainer.predict(problem.x).logits.argmax(1).numpy()
        x = trainer.objective.normalizer(torch.from_numpy(problem.x)).numpy()
    other = LogisticRegression(class_weight="balanced").fit(x[:160], y[:160]).predict(x)
    assert (mine == other).mean() > 0.98


# --- the estimator and the command line ---


def test_the_estimator_chooses_too() -> None:
    problem, y = linear_problem()
    few = np.where(np.arange(400) < 160, y, -1)
    model = CCLPClassifier(method="auto", max_iter=20, random_state=0).fit(problem.x, few)
    assert model.verdict_ is not None
    assert model.verdict_["chosen"] == model.method_
    size = 40 if "linear" in model.method_ or "logistic" in model.method_ else 128
    assert model.transform(problem.x).shape == (400, size)
    logits = model.decision_function(problem.x)
    calm = 1 / (1 + np.exp(-logits / model.verdict_["temperature"]))
    np.testing.assert_allclose(model.predict_proba(problem.x)[:, 1], calm, atol=1e-5)
    for other in ("warm_start", "early_stopping"):
        refused = CCLPClassifier(method="auto").set_params(**{other: True})
        with pytest.raises(ValueError, match="method='auto' has no use for"):
            refused.fit(problem.x, few)
    assert CCLPClassifier(max_iter=2).fit(problem.x, few).verdict_ is None


def test_a_run_records_its_verdict_and_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    problem, y = linear_problem()
    few = np.where(np.arange(400) < 160, y, -1)
    np.savez(tmp_path / "a.npz", X=problem.x, y=few)
    run = tmp_path / "run"
    arguments = ["train", str(tmp_path / "a.npz"), "--max-steps", "60", "--out", str(run)]
    assert call(*arguments) == 0
    output = capsys.readouterr()
    a, b = np.bincount(y[:160])
    assert f"a: 2 classes: 0 ({a}), 1 ({b}); 240 unlabeled; 40 features; no test set" in output.err
    verdict = json.loads((run / "verdict.json").read_text())
    for sentence in verdict["sentences"]:
        assert sentence in output.err
    result = json.loads((run / "result.json").read_text())
    assert result["evaluated_on"] == "cross_validated"
    assert result["num_labels"] == result["num_samples"] == 160
    chosen = next(row for row in verdict["rows"] if row["name"] == verdict["chosen"])
    assert result["error"] == chosen["error"]
    about = json.loads((run / "config.json").read_text())
    assert about["config"]["held_out"] == 0
    assert call("evaluate", str(run)) == 0
    assert f"error {result['error']:.2%} on 160 samples" in capsys.readouterr().out
    assert call("report", str(run)) == 0
    assert verdict["sentences"][0].split(":")[0] in (run / "report.html").read_text()


def test_auto_is_for_one_device_and_no_other_features(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = own_folder(tmp_path / "photos")
    for option, value in (("--devices", "2"), ("--pseudo-label-features", "a.npy")):
        assert call("train", str(photos), "--method", "auto", option, value) == 2
        assert f"{option} has no effect with --method auto" in capsys.readouterr().err


def test_a_time_limit_plans_the_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    x, y = make_blobs(300, centers=3, random_state=0)
    np.savez(tmp_path / "a.npz", X=x, y=np.where(np.arange(300) < 30, y, -1))
    for method, minutes in (("cclp", "0.001"), ("cclp", "60"), ("auto", "0.001")):
        run = tmp_path / f"{method}-{minutes}"
        arguments = ["--method", method, "--time-limit", minutes, "--out", str(run)]
        assert call("train", str(tmp_path / "a.npz"), *arguments) == 0
        steps = json.loads((run / "result.json").read_text())["recipe"]["max_steps"]
        said = capsys.readouterr().err
        assert steps == (300 if minutes == "60" else 50)
        assert ("the time limit will be passed" in said) == (minutes == "0.001")
    assert call("train", str(tmp_path / "a.npz"), "--time-limit", "0") == 2


def test_the_key_of_the_cache_holds_all_that_matters(tmp_path: Path) -> None:
    problem, _ = moons()
    only = [candidates(replace(vectors(300), max_steps=2), 12, False, {})[1]]
    changed = {
        "plain": problem,
        "labels": replace(problem, split=problem.split._replace(labeled=problem.split.labeled[1:])),
        "prior": replace(problem, class_prior=lambda labeled: np.array([0.9, 0.1])),
        "device": replace(problem, key="cuda"),
        "seed": replace(problem, seed=1),
        "weights": replace(
            problem,
            label_weights=lambda labeled: LabelWeights(np.ones(len(labeled)), None),
        ),
    }
    seen = 0
    for made in changed.values():
        with own_randomness():
            cross_validate(made, only, tmp_path, 0.0)
        files = len(list(tmp_path.iterdir()))
        assert files == seen + 1
        seen = files


def verdict_of(right: dict[str, Any], *, images: bool = False) -> Verdict:
    """Of the first candidate, with predictions that are right where it is said."""
    y = np.arange(100) % 2
    x = np.zeros((300, 1, 8, 8) if images else (300, 4))
    problem = make_problem(x, np.concatenate([y, np.full(200, 0)]), np.arange(300) < 100)
    nets = candidates(vectors(300), 100, images, {})
    found = out_of_fold(y, right)
    return make_verdict(problem, found, nets, METHOD, 1.0)


EASY = np.ones(100, bool)
HARD = np.arange(100) % 3 > 0
NEARLY = HARD & (np.arange(100) != 1)


def test_advice_names_what_cannot_be_trained() -> None:
    rest = {"graph": HARD, "supervised": HARD, METHOD: HARD, "logistic_regression": HARD}
    forest = verdict_of({**rest, "random_forest": EASY})
    assert forest.advice is not None
    assert "RandomForestClassifier().fit(data.train_x[known], data.train_y[known])" in forest.advice
    compile(forest.advice.replace("PATH", "'a'").replace("COLUMN", "'b'"), "advice", "exec")
    assert forest.sentences[0].startswith("Unlabeled data does not help here: random forest")
    graph = verdict_of({**rest, "random_forest": HARD, "graph": EASY})
    assert graph.advice is not None
    assert "GraphLabelPropagation().fit(data.train_x, data.train_y)" in graph.advice
    logistic = verdict_of({**rest, "random_forest": HARD, "logistic_regression": EASY}, images=True)
    assert logistic.advice is None
    assert logistic.sentences[0].startswith("Unlabeled data does not help here: logistic")


def test_sentences_say_what_the_table_says() -> None:
    rest = {"graph": HARD, "supervised": HARD, "logistic_regression": HARD, "random_forest": HARD}
    helps = verdict_of({**rest, METHOD: EASY})
    assert "33% errors from labels alone" in helps.sentences[0] or "34%" in helps.sentences[0]
    assert "chance" not in helps.sentences[0]
    same = verdict_of({**rest, METHOD: HARD})
    assert "cannot tell whether unlabeled data helps" in same.sentences[0]
    best = verdict_of({**rest, METHOD: HARD, "random_forest": EASY})
    assert best.sentences[0].endswith("(34%) is the best that it can.")
    other = verdict_of({**rest, METHOD: NEARLY, "supervised": HARD, "random_forest": EASY})
    assert other.sentences[0].endswith("(35%) is not clearly worse than what it can.")
    assert helps.advice is same.advice is None


def test_classes_with_one_label_are_not_in_the_error(tmp_path: Path) -> None:
    x, y = make_blobs([30, 30, 5], random_state=0)
    labeled = np.zeros(65, bool)
    labeled[[*np.flatnonzero(y == 0)[:6], *np.flatnonzero(y == 1)[:6]]] = True
    labeled[np.flatnonzero(y == 2)[0]] = True
    recipe = replace(vectors(65), max_steps=5)
    with own_randomness():
        found = select(make_problem(x, y, labeled, 3), recipe, recipe.settings)
        assert found.verdict is not None
        assert "of the 2 classes with two labels or more" in found.verdict.sentences[1]
        assert found.verdict.sentences[-1] == "Classes with one label cannot be measured: c."
        labeled[np.flatnonzero(y == 1)[1:6]] = False  # one class is left with two
        assert select(make_problem(x, y, labeled, 3), recipe, recipe.settings).verdict is None
