"""A run directory holds everything, and a run resumes bit for bit."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from torch import Tensor

from cclp.commands.configure import make_config
from cclp.data.load import load
from cclp.methods.supervised import Supervised
from cclp.progress import Reporter
from cclp.runs import start as module
from cclp.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from cclp.runs.directory import create, locked
from cclp.runs.run import Run
from cclp.runs.start import Stopped, resume, train
from cclp.training.config import Config
from cclp.training.machine import make_fabric
from cclp.training.recipe import make_recipe
from tests.runs import (
    Messages,
    assert_same_run,
    last_weights,
    metrics,
    own_folder,
    stop_after,
    tiny_config,
    write_mnist,
)


def result_of(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "result.json").read_text())
    return content


def last_tensors(run: Path) -> dict[str, Tensor]:
    return load_tensors(last_weights(run))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(tiny_config(), out)
    return out


def test_the_directory_holds_everything(finished: Path) -> None:
    assert sorted(path.name for path in finished.iterdir()) == [
        "checkpoint", "config.json", "embedding", "metrics.jsonl", "predictions.npz", "result.json",
    ]  # fmt: skip
    about = json.loads((finished / "config.json").read_text())
    data = load("digits")
    expected = {
        "name": "digits",
        "fingerprint": data.fingerprint,
        "verified": True,
        "left_out": [],
        "classes": list("0123456789"),
        "shape": [1, 8, 8],
        "white": 16,
    }
    assert {name: about["data"][name] for name in expected} == expected
    assert about["command"] is None
    assert Config.from_json(about["config"]) == replace(tiny_config(), held_out=0)
    assert np.bincount(data.train_y[about["labeled"]]).tolist() == [3] * 10
    assert about["environment"]["machine"]["threads"] == torch.get_num_threads()

    lines = metrics(finished)
    assert [line["step"] for line in lines] == [6, 10, 12]
    assert lines[1].keys() == {"step", "cross_entropy", "cclp", "loss", "learning_rate"}
    assert lines[1]["loss"] == pytest.approx(lines[1]["cross_entropy"] + lines[1]["cclp"])
    assert lines[2]["health/smallest_class_mass"] > 0

    result = result_of(finished)
    assert result["error"] == lines[-1]["error"]
    assert (result["evaluated_on"], result["num_samples"]) == ("test", 450)
    assert (result["num_labels"], result["method"], result["seed"]) == (30, "cclp", 0)
    assert result["settings"] == {"cclp": {"similarity": "euclidean", "bandwidth": 2.0}}
    assert result["recipe"]["max_steps"] == 12
    assert result["data_verified"]
    assert result["environment"]["versions"]["torch"] == torch.__version__


def test_the_reported_error_is_that_of_the_last_weights(finished: Path) -> None:
    data, config = load("digits"), tiny_config()
    run = Run(make_fabric("cpu", "32"), finished, config, data, Reporter())
    run.trainer.load_state(12, last_tensors(finished))
    net = run.trainer.objective.eval()
    with torch.no_grad():
        wrong = net.net(net.inputs(torch.tensor(data.test_x))).argmax(1).numpy() != data.test_y
    assert result_of(finished)["error"] == wrong.mean()


def test_embeddings_are_of_fixed_training_points(finished: Path) -> None:
    first, last = (np.load(finished / "embedding" / f"{step:08d}.npz") for step in (6, 12))
    np.testing.assert_array_equal(first["index"], last["index"])
    assert first["z"].shape == (1000, 128)
    assert first["labeled"].sum() == 30
    about = json.loads((finished / "config.json").read_text())
    assert sorted(first["index"][first["labeled"]]) == about["labeled"]
    assert len(set(first["index"])) == 1000
    np.testing.assert_array_equal(first["y"], load("digits").train_y[first["index"]])
    assert not np.array_equal(first["z"], last["z"])


@pytest.mark.parametrize("stop", [1, 6, 11])
def test_stopped_and_resumed_equals_undisturbed(finished: Path, tmp_path: Path, stop: int) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped, match=f"step {stop} of 12"):
        train(tiny_config(), out, should_stop=stop_after(stop))
    assert not (out / "result.json").exists()
    assert resume(out)["restarts"] == 1
    assert_same_run(out, finished)


def test_lines_after_the_checkpoint_are_written_again(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_config(), out, should_stop=stop_after(8))
    with (out / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 10, "loss": 1.0, "step_seconds": 1.0}\n\xff\n{"step": 11, "lo')
    resume(out)
    assert metrics(out) == metrics(finished)


def test_a_damaged_newest_checkpoint_falls_back(finished: Path, tmp_path: Path) -> None:
    out, messages = tmp_path / "run", Messages()
    with pytest.raises(Stopped):
        train(tiny_config(), out, should_stop=stop_after(10))
    newest = max((out / "checkpoint").glob("*.safetensors"))
    assert newest.stem == "00000010"
    newest.write_bytes(newest.read_bytes()[:-1])
    resume(out, messages)
    assert messages.warnings[0].startswith("Checkpoint 00000010 is damaged")
    assert last_weights(out) == last_weights(finished)
    assert metrics(out) == metrics(finished)


def test_killed_before_the_first_checkpoint(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json").write_bytes((finished / "config.json").read_bytes())
    (out / "metrics.jsonl").write_bytes((finished / "metrics.jsonl").read_bytes()[:900])
    assert resume(out)["restarts"] == 0
    assert last_weights(out) == last_weights(finished)
    assert metrics(out) == metrics(finished)


def test_killed_before_the_result_was_written(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "result.json").write_text("{}")
    with pytest.raises(ValueError, match=r"result\.json is damaged"):
        resume(out)
    (out / "result.json").unlink()
    assert resume(out)["restarts"] == 1
    assert_same_run(out, finished)


def test_a_finished_run_is_left_as_it_is(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    messages = Messages()
    result = resume(finished, messages)
    assert result == result_of(finished)
    assert messages.warnings == [f"{finished} is finished: nothing to resume."]
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_nothing_is_overwritten(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"exists and is never overwritten: .*--resume"):
        train(tiny_config(), finished)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="never overwritten"):
        train(tiny_config(), tmp_path / "file")
    (tmp_path / "empty").mkdir()
    train(tiny_config(max_steps=1), tmp_path / "empty")


def test_wrong_settings_leave_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="labels must be from 10"):
        train(tiny_config(num_labels=5), tmp_path / "run")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="accelerator 'cuda' is not on this machine"):
        train(tiny_config(accelerator="cuda"), tmp_path / "run")
    one = tiny_config(num_labels=None, held_out=1346)
    with pytest.raises(ValueError, match="held_out must be from 0 to 1337, got 1346"):
        train(replace(one, recipe=replace(one.recipe, per_class=1)), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_resumed(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not a run directory: it has no config\.json"):
        resume(tmp_path / "nowhere")
    about = json.loads((finished / "config.json").read_text())
    config = about["config"]
    recipe = config["recipe"]
    for change, message in (
        ({"config": {"data": "digits"}}, r"config\.json .*recipe"),
        ({"config": {**config, "recipe": {**recipe, "net": "big"}}}, r"config\.json .*net must be"),
        ({"config": {**config, "recipe": {**recipe, "schedule": 7}}}, r"config\.json "),
        ({"environment": 5}, r"config\.json "),
        ({"data": []}, r"config\.json "),
        ({"labeled": [1, 2]}, r"labeled set recorded in config\.json cannot"),
        (
            {"data": {"fingerprint": "ab" * 32}},
            "digits has changed since .* expected abababababab…",
        ),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**about, **change}))
        with pytest.raises(ValueError, match=message):
            resume(tmp_path)
    for content in (b"{", b"\xff\xfe", b"[]", b""):
        (tmp_path / "config.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"config\.json is damaged"):
            resume(tmp_path)


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_config(), out, should_stop=stop_after(8))
    saved = load_checkpoint(out / "checkpoint", pytest.fail)
    assert saved is not None
    short = {name: tensor[:-1] for name, tensor in saved.tensors.items() if tensor.ndim}
    save_checkpoint(out / "checkpoint", Checkpoint(8, short, saved.info))
    with pytest.raises(ValueError, match="checkpoint 8 does not fit this network"):
        resume(out)
    assert not (out / "result.json").exists()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_config(), out, should_stop=stop_after(2))
    with (
        locked(out),
        pytest.raises(ValueError, match="is in use: another process"),
    ):
        resume(out)
    resume(out)


def test_of_two_that_start_at_once_one_is_refused(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    monkeypatch.setattr("cclp.runs.directory.check_new", lambda out: None)
    create(out, {"mine": 1})
    with pytest.raises(ValueError, match="never overwritten"):
        create(out, {"mine": 2})
    assert json.loads((out / "config.json").read_text()) == {"mine": 1}
    assert [path.name for path in out.iterdir()] == ["config.json"]


def test_data_that_moved(tmp_path: Path) -> None:
    write_mnist(tmp_path / "old")
    recipe = make_recipe("short", "mnist", all_labels=False)
    config = Config(
        data="mnist",
        recipe=replace(recipe, max_steps=2, per_class=1, unlabeled_batch=0),
        num_labels=10,
        data_dir=str(tmp_path / "old"),
        verify=False,
    )
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=stop_after(1))
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(ValueError, match="run 'cclp data fetch mnist', or name another"):
        resume(tmp_path / "run")
    assert resume(tmp_path / "run", data_dir=tmp_path / "new")["error"] < 1


def test_another_number_of_processes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"has 1 process \(--devices\), but 2 were "):
        train(tiny_config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resuming_elsewhere_says_so(finished: Path, tmp_path: Path) -> None:
    about = json.loads((finished / "config.json").read_text())
    about["environment"]["machine"]["threads"] = 77
    about["environment"]["versions"]["torch"] = "1.0"
    (tmp_path / "config.json").write_text(json.dumps(about))
    messages = Messages()
    resume(tmp_path, messages)
    assert "not bit for bit: torch 1.0 → " in messages.warnings[0]
    assert "threads 77 → " in messages.warnings[0]


def test_all_labels_and_held_out(tmp_path: Path) -> None:
    config = tiny_config(max_steps=2, num_labels=None, held_out=47, evaluate_every=None)
    result = train(config, tmp_path / "run")
    with np.load(tmp_path / "run" / "embedding" / "00000002.npz") as points:
        assert points["labeled"].all()
    assert (result["num_labels"], result["num_samples"]) == (1300, 47)
    assert result["evaluated_on"] == "held_out"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["labeled"] == "all"


def test_mnist_files_with_the_paper_recipe(tmp_path: Path) -> None:
    write_mnist(tmp_path / "data")
    recipe = make_recipe("paper", "mnist")
    config = Config(
        data="mnist",
        recipe=replace(recipe, max_steps=2, per_class=1, unlabeled_batch=4),
        num_labels=20,
        data_dir=str(tmp_path / "data"),
        verify=False,
        precision="32",
    )
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=stop_after(1))
    assert not resume(tmp_path / "run")["data_verified"]
    train(config, tmp_path / "whole")
    assert last_weights(tmp_path / "run") == last_weights(tmp_path / "whole")


@pytest.mark.parametrize("there", [True, False])
def test_bfloat16_trains_and_resumes(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setattr(module, "has_bfloat16", lambda device: there)
    messages, out, whole = Messages(), tmp_path / "run", tmp_path / "whole"
    with pytest.raises(Stopped):
        train(tiny_config(precision="bf16"), out, messages, stop_after(11))
    assert any("bfloat16" in text for text in messages.warnings) == (not there)
    if there:
        assert resume(out)["precision"] == "bf16"
        train(tiny_config(precision="bf16"), whole)
        assert_same_run(out, whole)
        assert last_weights(out) != last_weights(finished)


def test_supervised_shows_the_net_labeled_samples_only(tmp_path: Path) -> None:
    def statistics(unlabeled: int) -> dict[str, Tensor]:
        config = tiny_config(max_steps=3, method="supervised")
        recipe = replace(config.recipe, unlabeled_batch=unlabeled)
        out = tmp_path / str(unlabeled)
        train(replace(config, recipe=recipe), out)
        state = last_tensors(out)
        assert state["objective.net.features.3.num_batches_tracked"] == 3
        return state

    torch.testing.assert_close(statistics(30), statistics(0), rtol=0, atol=0)


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Supervised.forward
    monkeypatch.setattr(
        Supervised,
        "forward",
        lambda self, step: {
            "cross_entropy": good(self, step)["cross_entropy"]
            * (float("inf") if step.progress > 0.5 else 1)
        },
    )
    with pytest.raises(
        FloatingPointError,
        match=r"loss is not finite at step 8: cross_entropy = inf, .*last good checkpoint: step 4",
    ):
        train(tiny_config(), tmp_path / "run")
    monkeypatch.undo()
    assert resume(tmp_path / "run")["error"] < 1


def test_graph_warnings_reach_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Beware(str):
        code = "beware"

    monkeypatch.setattr("cclp.loss.health.GraphHealth.warnings", lambda self: [Beware("Beware.")])
    messages = Messages()
    train(tiny_config(), tmp_path / "run", messages)
    assert messages.warnings == ["Step 6: Beware."]  # once in a run


def test_a_slow_run_is_saved_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cclp.runs.callbacks.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    train(tiny_config(max_steps=3, checkpoint_every=100), tmp_path / "run")
    kept = sorted(path.stem for path in (tmp_path / "run" / "checkpoint").glob("*.json"))
    assert kept == ["00000002", "00000003"]


def test_a_full_disk_is_named_and_costs_no_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_config(), out, should_stop=stop_after(4))
    before = last_weights(out)
    resource = pytest.importorskip("resource")  # not on Windows
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/checkpoint/00000008\.safetensors'"):
            resume(out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert last_weights(out) == before
    assert not list(out.rglob("*.partial"))
    resume(out)


def test_tensorboard_holds_the_metrics(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_config(tensorboard=True), out, should_stop=stop_after(11))
    resume(out)
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    values = [(event.step, event.value) for event in events.Scalars("cclp")]
    expected = [(line["step"], line["cclp"]) for line in metrics(out)]
    assert values == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]


def test_tensorboard_missing_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object, **__: object) -> None:
        raise ModuleNotFoundError

    monkeypatch.setattr("lightning_fabric.loggers.tensorboard.TensorBoardLogger", absent)
    with pytest.raises(ValueError, match=r"pip install 'cclp\[tensorboard\]'"):
        train(tiny_config(tensorboard=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_statistics_are_recalibrated_before_evaluations(tmp_path: Path) -> None:
    plain = tiny_config(max_steps=4, evaluate_every=2)
    train(plain, tmp_path / "plain")
    recipe = replace(plain.recipe, recalibrate_batchnorm=True)
    train(replace(plain, recipe=recipe), tmp_path / "recalibrated")
    as_they_were, recalibrated = (
        last_tensors(tmp_path / name) for name in ("plain", "recalibrated")
    )
    differ = {
        name for name in as_they_were if not torch.equal(recalibrated[name], as_they_were[name])
    }
    assert differ
    assert all("running" in name or "num_batches" in name for name in differ)


def test_cclp_is_the_papers_method_under_the_fast_recipe_too(tmp_path: Path) -> None:
    """No pseudo-labels and no warm-up: the recipe's settings for them change nothing."""
    photos = own_folder(tmp_path / "photos", labeled=6, unlabeled=6)
    options: dict[str, Any] = {
        "image_size": 8, "max_steps": 4, "per_class": 2, "unlabeled_batch": 4,
    }  # fmt: skip
    config = make_config(str(photos), recipe="fast", method="cclp", **options)
    warmup = config.recipe.settings["graph_pseudo_label"]
    assert warmup["supervised_warmup"] == 0.5
    assert config.method_settings == {"cclp": {"weight": 0.1}}

    messages = Messages()
    result = train(config, tmp_path / "cclp", messages)
    assert result["method"] == "cclp"
    assert not any(result["decisions"].values())
    assert "pseudo_labels" not in last_tensors(tmp_path / "cclp")
    assert not any("seudo" in text or "arm-up" in text for text in messages.infos)
    plain = replace(config.recipe, settings={"cclp": {"weight": 0.1}}, method="cclp")
    train(replace(config, recipe=plain), tmp_path / "plain")
    mine, other = last_tensors(tmp_path / "cclp"), last_tensors(tmp_path / "plain")
    torch.testing.assert_close(mine, other, rtol=0, atol=0)
    for line in metrics(tmp_path / "cclp"):
        assert "cclp" in line
        assert "graph_pseudo_label" not in line

    of_recipe = make_config(str(photos), recipe="fast", **options)
    result = train(of_recipe, tmp_path / "fast", messages)
    assert result["method"] == of_recipe.recipe.method == "cclp+graph_pseudo_label"
    assert result["decisions"]["pseudo_labels"] is not None
    assert messages.infos != []
    assert "graph_pseudo_label" in metrics(tmp_path / "fast")[-1]


def test_an_unfinished_run_of_version_0_1_is_refused(tmp_path: Path) -> None:
    """Its checkpoints hold pseudo-labels under another name: they would be lost in silence."""
    recorded = (
        Path(__file__).parents[1] / "results/table1-fast/runs/mnist-100-lba-seed0/config.json"
    )
    (tmp_path / "config.json").write_bytes(recorded.read_bytes())
    with pytest.raises(ValueError, match=r"was begun by version 0\.1: resume it with that version"):
        resume(tmp_path)


def test_a_users_own_method_is_made_once_for_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("counted.py").write_text(
        "from cclp.methods.base import Method\n"
        "class Counted(Method):\n"
        "    def __init__(self, num_classes):\n"
        "        super().__init__()\n"
        "        with open('made.txt', 'a') as file:\n"
        "            file.write(f'{num_classes} ')\n"
        "    def forward(self, step):\n"
        "        return {}\n"
    )
    train(tiny_config(max_steps=1, method="counted:Counted"), tmp_path / "run")
    assert Path("made.txt").read_text() == "10 "
