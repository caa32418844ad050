"""The command line, as a person and as a scheduler meet it."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from cclp.cli import main
from cclp.commands.stop import StopOnSignal
from cclp.commands.train import train
from cclp.experiments import sweep
from tests import children
from tests.children import modules_after
from tests.runs import assert_same_run, write_mnist

SMALL = [
    "train", "digits", "--num-labels", "20", "--per-class", "2", "--unlabeled-batch", "20",
    "--max-steps", "600", "--evaluate-every", "200", "--checkpoint-every", "10",
]  # fmt: skip


def call(*arguments: str) -> int:
    """Run a command in this process; returns the exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def start(*arguments: str) -> children.Child:
    return children.start([sys.executable, "-m", "cclp", *arguments])


def wait_for_checkpoint(process: children.Child, run: Path, beyond: int) -> int:
    """Wait until a checkpoint later than step ``beyond`` is there; returns its step."""
    for _ in range(6000):
        steps = [int(path.stem) for path in (run / "checkpoint").glob("*.json")]
        if max(steps, default=0) > beyond:
            return max(steps)
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("no checkpoint in a minute")


def test_interrupted_killed_and_resumed_equals_undisturbed(tmp_path: Path) -> None:
    out, whole = tmp_path / "run", tmp_path / "whole"
    first = start(*SMALL, "--out", str(out))
    wait_for_checkpoint(first, out, 0)
    first.send_signal(signal.SIGINT)
    printed, said = first.communicate(timeout=60)
    assert first.returncode == 130
    assert printed == ""
    assert f"saved. Go on with: cclp train --resume {out}\n" in said
    assert "Traceback" not in said

    interrupted = max(int(path.stem) for path in (out / "checkpoint").glob("*.json"))
    assert 0 < interrupted < 600
    second = start("train", "--resume", str(out))
    wait_for_checkpoint(second, out, interrupted)
    second.send_signal(signal.SIGKILL)
    second.communicate()
    assert second.returncode == -signal.SIGKILL
    assert not (out / "result.json").exists()

    third = start("train", "--resume", str(out), "--quiet")
    printed, said = third.communicate(timeout=120)
    assert third.returncode == 0
    assert said == ""
    assert printed.startswith("error ")

    assert call(*SMALL, "--quiet", "--out", str(whole)) == 0
    assert_same_run(out, whole)
    assert [path.name for path in sorted((out / "embedding").iterdir())] == [
        "00000200.npz", "00000400.npz", "00000600.npz",
    ]  # fmt: skip
    restarts = [json.loads((run / "result.json").read_text())["restarts"] for run in (out, whole)]
    assert restarts == [2, 0]


def test_a_run_prints_its_error_and_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_mnist(tmp_path / "data")
    arguments = [
        "train", "mnist", "--num-labels", "all", "--recipe", "fast", "--max-steps", "2", "--seed", "3",
        "--data-dir", str(tmp_path / "data"), "--no-verify", "--out", str(tmp_path / "run"),
        "--per-class", "1", "--unlabeled-batch", "2",
    ]  # fmt: skip
    assert call(*arguments) == 0
    output = capsys.readouterr()
    assert output.out.startswith("error ")
    assert "on 20 samples (test set), 60 labels, 2 steps, " in output.out
    assert output.out.endswith(f" min: {tmp_path}/run\n")
    assert "cclp on mnist, seed 3: step 2/2  cross_entropy " in output.err
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (config["labels"], config["seed"]) == (None, 3)
    assert config["recipe"]["per_class"] == 1

    assert call("train", "--resume", str(tmp_path / "run")) == 0
    assert "is finished: nothing to resume." in capsys.readouterr().err


def test_default_directory_says_what_the_run_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*SMALL[:6], "--max-steps", "1", "--quiet", "--method", "supervised") == 0
    assert (tmp_path / "runs" / "digits-20-digits-supervised-seed0" / "result.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "train digit",
            "data must be one of digits, mnist, fashion_mnist, svhn, cifar10, a ",
        ),
        ("train --labesl 5", "No such option"),
        ("train --num-labels few", "must be a number or 'all', got 'few'"),
        ("train --num-labels 3", "labels must be from 10 (one per class) to 1347 (all), got 3"),
        ("train --num-labels 1", "labels must be at least 2"),
        ("train --recipe paper", "recipe 'paper' is for mnist, svhn and cifar10"),
        ("train mnist --recipe digits", "recipe 'digits' is for digits, got data 'mnist'"),
        ("train mnist --quiet", "mnist: could not fetch train-images-idx3-ubyte, train-labels"),
        ("train mnist --quiet --data-dir nowhere", "no connection"),
        ("train --max-steps 0", "max_steps must be at least 1"),
        ("train --image-size 2000", "image_size must be at most 1024, got 2000"),
        ("train --max-steps many", "'many' is not a valid integer"),
        (
            "train --method ccpl",
            "several with + between them, got 'ccpl'",
        ),
        ("train --held-out 2000", "held_out must be from 0 to 1337, got 2000"),
        ("train --resume nowhere", "nowhere is not a run directory"),
        ("train --resume nowhere --max-steps 3", "everything from the run: leave out --max-steps"),
        ("train digits --resume nowhere", "everything from the run: leave out data"),
        ("train --method supervised --weight 2", "--weight has no effect with supervised"),
        ("train --method vat --chain-steps 2", "--chain-steps has no effect with --method vat"),
        ("train --method cclp+vat --weight 2", "--weight must say whose it is, as in cclp=2"),
        ("train --weight 1 --weight 2", "the weight of cclp is given twice"),
        ("train --weight vat=2", "settings has 'vat', but the method is 'cclp'"),
        ("train --setting radius=2", "must be METHOD.NAME=VALUE, as in vat.radius=0.3"),
        ("train --setting cclp.steps=2 --chain-steps 2", "the steps of cclp is given twice"),
        ("train --setting cclp.steps=two", "chain_steps must be an integer, got str"),
        ("train --method vat --setting vat.weight=abc", "weight of vat must be a number, got str"),
        ("train --method pi_model --setting pi_model.augment=x", "augment must be a function"),
        ("train --method vat --setting vat.radus=2", "unexpected keyword argument 'radus'"),
        ("train --method vat --setting vat.radius=wide", "radius must be a number, got str"),
        ("train --method vat --setting vat.iterations=1.5", "iterations must be an integer"),
        ("train --method supervised --setting vat.xi=1", "--setting has no effect with supervised"),
        ("train --similarity dot --bandwidth 2", "--bandwidth has no effect with --similarity dot"),
        ("train --weight -1", "weight of cclp must be at least 0, got -1.0"),
        ("train --accelerator cuda", "accelerator 'cuda' is not on this machine"),
        ("train --out .", "exists and is never overwritten"),
        ("trian", "No such command 'trian'"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CCLP_DATA", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (tmp_path / "mine").write_text("precious")
    assert call(*arguments.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("cclp: ")
    assert output.err.count("\n") == 1
    assert message in output.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_diverging_run_ends_with_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "cclp.methods.supervised.F.cross_entropy",
        lambda logits, labels: logits.sum() * float("nan"),
    )
    assert call(*SMALL, "--quiet", "--out", str(tmp_path / "run")) == 1
    error = capsys.readouterr().err
    assert "the loss is not finite at step 1: cross_entropy = nan" in error
    assert error.count("\n") == 1


def test_help_teaches_and_loads_nothing_heavy(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("train", "--help") == 0
    text = capsys.readouterr().out
    for flag in (
        "--num-labels",
        "--method",
        "--recipe",
        "--seed",
        "--out",
        "--resume",
        "--data-dir",
    ):
        assert flag in text
    assert "cclp train mnist --num-labels 100 --max-steps 9000" in text
    assert call() == 2  # no command: the help, as an error
    assert "train" in capsys.readouterr().out
    assert call("--version") == 0
    asked = "from cclp.commands.train import make_config; import cclp.cli; make_config('digits')"
    loaded = modules_after(asked)
    assert loaded.isdisjoint({"torch", "sklearn", "scipy", "lightning_fabric", "matplotlib"})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_acts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    said: list[str] = []
    with StopOnSignal(said.append) as should_stop:
        assert not should_stop()
        os.kill(os.getpid(), number)
        assert should_stop()
        assert should_stop.number == number
        assert signal.getsignal(number) is before
    assert said == ["Stopping after this step; once more to stop at once."]


def test_a_signal_before_the_first_step_acts_at_once() -> None:
    """While data are fetched or decoded there is no step to finish."""
    said: list[str] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in a job it may be ignored
    try:
        with StopOnSignal(said.append), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert said == []


def test_the_options_are_these() -> None:
    """A new option is a decision: it is written down here too."""
    assert sorted(option for parameter in train.params for option in parameter.opts) == [
        "--accelerator", "--bandwidth", "--chain-steps", "--checkpoint-every", "--data-dir",
        "--devices", "--evaluate-every", "--graph", "--held-out", "--image-size", "--target",
        "--labeled-batch", "--num-labels", "--learning-rate", "--method", "--net", "--no-verify",
        "--normalization", "--out", "--per-class", "--precision", "--prior", "--prior-features",
        "--quiet", "--recipe", "--resume", "--seed", "--setting", "--similarity", "--skip-bad",
        "--max-steps", "--strategy", "--tensorboard", "--unlabeled-batch", "--weight", "data",
    ]  # fmt: skip


def test_a_thread_may_ask_whether_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a sweep with several jobs does: signals can be handled in the main thread only."""
    monkeypatch.setattr(sweep, "POLL_SECONDS", 0.01)
    said: list[str] = []
    flag = tmp_path / "flag"
    with (
        StopOnSignal(said.append) as should_stop,
        sweep._watching([], tmp_path, lambda _: None, should_stop, flag),
    ):
        time.sleep(0.1)
        assert not flag.exists()
        signal.raise_signal(signal.SIGTERM)
        for _ in range(500):
            if flag.exists():
                break
            time.sleep(0.01)
        assert flag.exists()
    assert len(said) == 1
