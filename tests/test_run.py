"""A run directory says everything, and a run goes on where it was."""

import json
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import load_file
from torch import Tensor

from cclp.data.load import load
from cclp.methods.supervised import Supervised
from cclp.progress import Reporter
from cclp.runs import run as module
from cclp.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from cclp.runs.directory import create, locked
from cclp.runs.start import Stopped, resume, train
from cclp.training.config import Config
from cclp.training.machine import make_fabric
from cclp.training.recipe import make_recipe
from tests.runs import last_weights, metrics, tiny_config, write_mnist


class Heard(Reporter):
    """Remembers what the user was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.told: list[str] = []

    def info(self, text: str) -> None:
        self.told.append(text)

    def warn(self, text: str) -> None:
        self.said.append(text)


def after(steps: int) -> Callable[[], bool]:
    """Answers yes when asked for the ``steps``-th time."""
    asked: Iterator[int] = iter(range(1, 10**6))
    return lambda: next(asked) >= steps


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(tiny_config(), out)
    return out


def test_the_directory_says_everything(finished: Path) -> None:
    assert sorted(path.name for path in finished.iterdir()) == [
        "checkpoint", "config.json", "embedding", "metrics.jsonl", "predictions.npz", "result.json",
    ]  # fmt: skip
    about = json.loads((finished / "config.json").read_text())
    data = load("digits")
    assert about["data"] == {
        "name": "digits",
        "fingerprint": data.fingerprint,
        "verified": True,
        "left_out": [],
        "classes": list("0123456789"),
        "shape": [1, 8, 8],
        "white": 16,
        "columns": None,
        "label": None,
    }
    assert about["command"] is None
    assert np.bincount(data.train_y[about["labeled"]]).tolist() == [3] * 10
    assert about["environment"]["machine"]["threads"] == torch.get_num_threads()

    lines = metrics(finished)
    assert [line["step"] for line in lines] == [6, 10, 12]
    assert lines[1].keys() == {"step", "cross_entropy", "cclp", "loss", "learning_rate"}
    assert lines[1]["loss"] == pytest.approx(lines[1]["cross_entropy"] + lines[1]["cclp"])
    assert lines[2]["health/smallest_class_mass"] > 0

    result = json.loads((finished / "result.json").read_text())
    assert result["error"] == lines[-1]["error"]
    assert (result["measured_on"], result["samples"]) == ("test set", 450)
    assert (result["labels"], result["method"], result["seed"]) == (30, "cclp", 0)
    assert result["recipe"]["steps"] == 12
    assert result["data_verified"]
    assert result["environment"]["versions"]["torch"] == torch.__version__


def test_the_reported_error_is_that_of_the_last_weights(finished: Path) -> None:
    data, config = load("digits"), tiny_config()
    run = module.Run(make_fabric("cpu", "32"), finished, config, data, Reporter())
    state = load_file(max((finished / "checkpoint").glob("*.safetensors")))
    run.objective.load_state_dict(
        {k.removeprefix("objective."): v for k, v in state.items() if k.startswith("objective.")}
    )
    run.objective.eval()
    with torch.no_grad():
        z = run.objective.net.features(run.objective.inputs(torch.tensor(data.test_x)))
        wrong = run.objective.net.classifier(z).argmax(1).numpy() != data.test_y
    assert json.loads((finished / "result.json").read_text())["error"] == wrong.mean()


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


@pytest.mark.parametrize("stop", [1, 5, 6, 11])
def test_stopped_and_resumed_equals_undisturbed(finished: Path, tmp_path: Path, stop: int) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped, match=f"Stopped at step {stop} of 12, saved"):
        train(tiny_config(), out, should_stop=after(stop))
    assert not (out / "result.json").exists()
    result = resume(out)
    assert last_weights(out) == last_weights(finished)
    assert metrics(out) == metrics(finished)
    for path in (finished / "embedding").iterdir():
        assert (out / "embedding" / path.name).read_bytes() == path.read_bytes()
    assert result["restarts"] == 1
    assert result["error"] == json.loads((finished / "result.json").read_text())["error"]


def test_lines_after_the_checkpoint_are_written_again(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_config(), out, should_stop=after(8))
    with (out / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 10, "loss": 1.0, "step_seconds": 1.0}\n\xff\n{"step": 11, "lo')
    resume(out)
    assert metrics(out) == metrics(finished)


def test_a_damaged_newest_checkpoint_falls_back(finished: Path, tmp_path: Path) -> None:
    out, heard = tmp_path / "run", Heard()
    with pytest.raises(Stopped):
        train(tiny_config(), out, should_stop=after(10))
    newest = max((out / "checkpoint").glob("*.safetensors"))
    assert newest.stem == "00000010"
    newest.write_bytes(newest.read_bytes()[:-1])
    resume(out, heard)
    assert heard.said[0].startswith("Checkpoint 00000010 is damaged")
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
    train(tiny_config(), out)
    (out / "result.json").write_text("{}")
    with pytest.raises(ValueError, match=r"result\.json is damaged: remove it"):
        resume(out)
    (out / "result.json").unlink()
    assert resume(out)["error"] == json.loads((finished / "result.json").read_text())["error"]
    assert metrics(out) == metrics(finished)


def test_a_finished_run_is_left_as_it_is(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    heard = Heard()
    result = resume(finished, heard)
    assert result == json.loads((finished / "result.json").read_text())
    assert heard.said == [f"{finished} is finished: nothing to resume."]
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
        ({"config": {"data": "digits"}}, r"config\.json cannot be used: KeyError\('recipe'\)"),
        ({"config": {**config, "recipe": {**recipe, "net": "big"}}}, "net must be one of 'mnist'"),
        ({"config": {**config, "recipe": {**recipe, "schedule": 7}}}, "cannot be used: TypeError"),
        ({"environment": 5}, "cannot be used: AttributeError"),
        ({"data": []}, "cannot be used: TypeError"),
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
        train(tiny_config(), out, should_stop=after(8))
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
        train(tiny_config(), out, should_stop=after(2))
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
        labels=10,
        data_dir=str(tmp_path / "old"),
        verify=False,
    )
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=after(1))
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(ValueError, match="could not fetch train-images"):
        resume(tmp_path / "run")
    assert resume(tmp_path / "run", data_dir=tmp_path / "new")["error"] < 1


def test_another_number_of_processes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"has 1 process \(--devices\), but 2 were started"):
        train(tiny_config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resuming_elsewhere_says_so(finished: Path, tmp_path: Path) -> None:
    about = json.loads((finished / "config.json").read_text())
    about["environment"]["machine"]["threads"] = 77
    about["environment"]["versions"]["torch"] = "1.0"
    (tmp_path / "config.json").write_text(json.dumps(about))
    heard = Heard()
    resume(tmp_path, heard)
    assert "not bit for bit: torch 1.0 → " in heard.said[0]
    assert "threads 77 → " in heard.said[0]


def test_all_labels_and_held_out(tmp_path: Path) -> None:
    config = tiny_config(max_steps=2, num_labels=None, held_out=47, evaluate_every=None)
    result = train(config, tmp_path / "run")
    with np.load(tmp_path / "run" / "embedding" / "00000002.npz") as points:
        assert points["labeled"].all()
    assert (result["labels"], result["samples"]) == (1300, 47)
    assert result["measured_on"] == "held-out training set"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["labeled"] == "all"


@pytest.mark.parametrize("normalization", ["zscore", "zca"])
def test_mnist_files_with_the_paper_recipe(tmp_path: Path, normalization: str) -> None:
    write_mnist(tmp_path / "data")
    recipe = replace(
        make_recipe("paper", "mnist", all_labels=False), max_steps=2, per_class=1, unlabeled_batch=4
    )
    config = Config(
        data="mnist",
        recipe=recipe,
        labels=20,
        data_dir=str(tmp_path / "data"),
        verify=False,
        normalization=normalization,  # type: ignore[arg-type]
        precision="32",
    )
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", should_stop=after(1))
    assert not resume(tmp_path / "run")["data_verified"]
    train(config, tmp_path / "whole")
    assert last_weights(tmp_path / "run") == last_weights(tmp_path / "whole")


def test_bfloat16_trains_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for there, warnings in ((True, []), (False, ["This machine has no bfloat16"])):
        monkeypatch.setattr(module, "has_bfloat16", lambda device, there=there: there)
        heard, out = Heard(), tmp_path / str(there)
        with pytest.raises(Stopped):
            train(tiny_config(max_steps=4, precision="bf16"), out, heard, after(2))
        assert [text[:28] for text in heard.said if "bfloat16" in text] == warnings
    result = resume(out)
    assert result["precision"] == "bf16"
    train(tiny_config(max_steps=4, precision="bf16"), tmp_path / "whole")
    assert last_weights(out) == last_weights(tmp_path / "whole")
    train(tiny_config(max_steps=4), tmp_path / "float32")
    assert last_weights(out) != last_weights(tmp_path / "float32")


def test_supervised_shows_the_net_labeled_samples_only(tmp_path: Path) -> None:
    def statistics(unlabeled: int) -> dict[str, Tensor]:
        config = tiny_config(max_steps=3, method="supervised")
        recipe = replace(config.recipe, unlabeled_batch=unlabeled)
        out = tmp_path / str(unlabeled)
        train(replace(config, recipe=recipe), out)
        state = load_file(max((out / "checkpoint").glob("*.safetensors")))
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
    monkeypatch.setattr("cclp.loss.health.GraphHealth.warnings", lambda self: ["Beware."])
    heard = Heard()
    train(tiny_config(), tmp_path / "run", heard)
    assert heard.said == ["Step 6: Beware."]  # once in a run


def test_a_slow_run_is_saved_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    saved: list[int] = []
    monkeypatch.setattr(module, "save_checkpoint", lambda folder, c: saved.append(c.step))
    train(tiny_config(max_steps=3, checkpoint_every=100), tmp_path / "run")
    assert saved == [1, 2, 3]


def test_a_full_disk_is_named_and_costs_no_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        train(tiny_config(), out, should_stop=after(4))
    before = last_weights(out)
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
        train(tiny_config(tensorboard=True), out, should_stop=after(11))
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


def test_statistics_are_settled_before_evaluations(tmp_path: Path) -> None:
    plain = tiny_config(max_steps=4, evaluate_every=2)
    train(plain, tmp_path / "plain")
    train(replace(plain, recipe=replace(plain.recipe, settle=True)), tmp_path / "settled")
    as_they_were, settled = (
        load_tensors(last_weights(tmp_path / name)) for name in ("plain", "settled")
    )
    differ = {name for name in settled if not torch.equal(settled[name], as_they_were[name])}
    assert differ
    assert all("running" in name or "num_batches" in name for name in differ)
