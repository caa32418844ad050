"""The command line, as a person and as a scheduler meet it."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from cclp.commands.stop import Interrupted, StopOnSignal
from cclp.commands.train import train
from tests import children
from tests.command_line import call
from tests.runs import assert_same_run, own_table, write_mnist

SMALL = [
    "train", "digits", "--num-labels", "20", "--per-class", "2", "--unlabeled-batch", "20",
    "--max-steps", "200", "--evaluate-every", "100", "--checkpoint-every", "20",
]  # fmt: skip


def checkpoints(run: Path) -> list[int]:
    return sorted(int(path.stem) for path in (run / "checkpoint").glob("*.json"))


def test_interrupted_killed_and_resumed_equals_undisturbed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, whole = tmp_path / "run", tmp_path / "whole"

    def interrupt() -> None:
        children.wait_until(lambda: checkpoints(out))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert call(*SMALL, "--out", str(out)) == 128 + signal.SIGINT
    thread.join()
    printed, said = capfd.readouterr()
    assert printed == ""
    assert f"cclp train --resume {out}\n" in said
    interrupted = checkpoints(out)[-1]
    assert 0 < interrupted < 200

    with children.ended():
        line = ["train", "--resume", str(out), "--quiet"]
        process = children.start([sys.executable, "-m", "cclp", *line])
        children.wait_until(lambda: checkpoints(out)[-1] > interrupted, process)
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert said == ""
        assert not (out / "result.json").exists()

    assert call("train", "--resume", str(out), "--quiet") == 0
    printed, said = capfd.readouterr()
    assert said == ""
    assert printed.startswith("error ")
    assert call(*SMALL, "--quiet", "--out", str(whole)) == 0
    assert_same_run(out, whole)
    assert [path.name for path in sorted((out / "embedding").iterdir())] == [
        "00000100.npz", "00000200.npz",
    ]  # fmt: skip
    restarts = [json.loads((run / "result.json").read_text())["restarts"] for run in (out, whole)]
    assert restarts == [2, 0]


def test_a_run_prints_its_error_and_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_mnist(tmp_path / "data")
    arguments = [
        "train", "mnist", "--num-labels", "all", "--max-steps", "2", "--seed", "3", "--data-dir",
        str(tmp_path / "data"), "--no-verify", "--out", str(tmp_path / "run"), "--per-class", "1",
        "--unlabeled-batch", "2",
    ]  # fmt: skip
    assert call(*arguments) == 0
    output = capsys.readouterr()
    assert output.out.startswith("error ")
    assert "on 20 samples (test set), cclp, 60 labels, 2 steps, " in output.out
    assert output.out.endswith(f" min: {tmp_path}/run\n")
    assert "cclp on mnist, seed 3: step 2/2  cross_entropy " in output.err
    about = json.loads((tmp_path / "run" / "config.json").read_text())
    assert about["command"].startswith("cclp train mnist --num-labels all ")
    config = about["config"]
    assert (config["num_labels"], config["seed"], config["method"]) == (None, 3, "cclp")
    assert (config["recipe"]["name"], config["recipe"]["per_class"]) == ("fast", 1)

    assert call("train", "--resume", str(tmp_path / "run")) == 0
    assert "is finished" in capsys.readouterr().err


def test_default_directory_names_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*SMALL[:6], "--max-steps", "1", "--quiet", "--method", "supervised") == 0
    assert (tmp_path / "runs" / "digits-20-fast-supervised-seed0" / "result.json").exists()


def test_default_directory_names_no_method_before_auto_has_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own_table(tmp_path / "mine.csv")
    taken = Path("runs", "mine-all-auto-seed3", "notes.txt")
    taken.parent.mkdir(parents=True)
    taken.touch()
    assert call("train", "mine.csv", "--target", "kind", "--seed", "3") == 2
    assert f"{taken.parent} exists and is never overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train digit", "data must be one of digits, mnist, "),
        ("train --labesl 5", "No such option"),
        ("train --num-labels few", "must be a number or 'all', got 'few'"),
        ("train --num-labels 3", "labels must be from 10 (one per class) to 1347 (all), got 3"),
        ("train --num-labels 1", "labels must be at least 2"),
        ("train --recipe paper", "recipe 'paper' is for mnist, svhn and cifar10"),
        ("train mnist --recipe fsat", "'fsat' is not one of"),
        ("train mnist --quiet", "mnist: could not fetch train-images-idx3-ubyte"),
        ("train mnist --quiet --data-dir nowhere", "could not fetch train-images-idx3-ubyte"),
        ("train --max-steps 0", "max_steps must be at least 1"),
        ("train --image-size 2000", "image_size must be at most 1024, got 2000"),
        ("train --max-steps many", "'many' is not a valid integer"),
        ("train --method ccpl", "method must be one of supervised, cclp, "),
        ("train --held-out 2000", "held_out must be from 0 to 1337, got 2000"),
        ("train --resume nowhere", "nowhere is not a run directory"),
        ("train --resume nowhere --max-steps 3", "everything from the run: leave out --max-steps"),
        ("train digits --resume nowhere", "everything from the run: leave out data"),
        ("train --method supervised --weight 2", "--weight has no effect with supervised"),
        ("train --method vat --chain-steps 2", "--chain-steps has no effect with --method vat"),
        ("train --method cclp+vat --weight 2", "--weight must name a method, as in cclp=2"),
        ("train --weight 1 --weight 2", "the weight of cclp is given twice"),
        ("train --weight vat=2", "settings has 'vat', but the method is 'cclp'"),
        ("train --setting radius=2", "must be METHOD.NAME=VALUE, as in vat.radius=0.3"),
        (
            "train --setting cclp.chain_steps=2 --chain-steps 2",
            "the chain_steps of cclp is given twice",
        ),
        ("train --setting cclp.chain_steps=two", "chain_steps must be an integer, got str"),
        ("train --setting cclp.prior=0.5", "prior"),
        ("train --pseudo-label-features z.npy", "--pseudo-label-features has no effect with"),
        ("train --method vat --setting vat.weight=abc", "weight of vat must be a number, got str"),
        ("train --method pi_model --setting pi_model.augment=x", "augment must be a function"),
        ("train --method vat --setting vat.radus=2", "unexpected keyword argument 'radus'"),
        ("train --method vat --setting vat.radius=wide", "radius must be a number, got str"),
        ("train --method vat --setting vat.iterations=1.5", "iterations must be an integer"),
        ("train --method supervised --setting vat.xi=1", "--setting has no effect with supervised"),
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


REFUSE = """
import sys
from cclp.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(ended.code, "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train nothing", "data must be one of digits"),
        ("train digits --graph round", "'round' is not one of"),
        ("train digits --out used", "used exists and is never overwritten"),
        ("train table.csv", "name the column of classes with --target"),
        ("train table.csv --target size", "has no column 'size', only kind, width"),
        ("train broken.npz", "broken.npz must be an .npz file"),
        ("train digits --num-labels 5000", "num_labels must be from 10"),
        ("train digits --class-weight ten=2", "class_weight has 'ten'"),
        ("train --resume used", "used is not a run directory"),
        ("evaluate used", "used is not a run directory"),
        ("predict used broken.npz", "used is not a run directory"),
        ("export used", "used is not a run directory"),
    ],
)
def test_what_can_be_refused_without_torch_is_refused_before_it_is_loaded(
    arguments: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "table.csv").write_text("kind,width\na,1\nb,2\n")
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").write_text("precious")
    done = children.run(
        [sys.executable, "-c", REFUSE, *arguments.split()],
        cwd=tmp_path,
        env=children.environment(),
    )
    assert done.stdout == "2 False\n"
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [("--setting vat.nonsense=1", "settings of vat"), ("--accelerator cuda", "is not on this")],
)
def test_what_torch_checks_is_checked_before_data_are_read(
    option: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    table = tmp_path / "table.csv"  # its column of classes is not named
    table.write_text("kind,width\na,1\nb,2\n")
    assert call("train", str(table), "--method", "vat", *option.split()) == 2
    assert message in capsys.readouterr().err


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


def test_help_names_all_options_and_loads_nothing_heavy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("train", "--help") == 0
    text = capsys.readouterr().out
    for parameter in train.params:
        assert parameter.param_type_name == "argument" or parameter.opts[0] in text
    assert call() == 2  # no command: the help, as an error
    assert "train" in capsys.readouterr().out
    assert call("--version") == 0
    asked = (
        "from cclp.commands.configure import make_config; import cclp.cli; make_config('digits')"
    )
    loaded = children.modules_after(asked)
    assert loaded.isdisjoint({"torch", "sklearn", "scipy", "lightning_fabric", "matplotlib"})
    assert loaded.isdisjoint({"filelock", "jinja2", "pandas", "pyarrow", "safetensors"})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_acts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    said: list[str] = []
    with StopOnSignal(said.append, str) as should_stop:
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
        with (
            pytest.raises(Interrupted, match=r"Do this\."),
            StopOnSignal(said.append, lambda: "Do this."),
        ):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert said == []


def test_a_thread_may_ask_whether_to_stop() -> None:
    """As a study with several jobs does: signals are handled in the main thread only."""
    with StopOnSignal(lambda text: None, str) as should_stop:
        assert not should_stop()
        seen = threading.Event()
        asked = threading.Event()

        def ask() -> None:
            while not should_stop():
                asked.set()
            seen.set()

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert asked.wait(60)
        signal.raise_signal(signal.SIGTERM)
        assert seen.wait(60)
        thread.join()


def test_the_options_are_these() -> None:
    """A new option is a decision: it is written down here too."""
    assert sorted(option for parameter in train.params for option in parameter.opts) == [
        "--accelerator", "--chain-steps", "--checkpoint-every", "--class-prior", "--class-weight",
        "--data-dir", "--devices", "--drop", "--evaluate-every", "--features", "--graph",
        "--held-out", "--image-size", "--keep", "--labeled-batch", "--labels-from",
        "--learning-rate", "--max-steps", "--method", "--net", "--no-verify", "--num-labels",
        "--out", "--per-class", "--precision", "--profile", "--pseudo-label-features", "--quiet",
        "--recipe", "--resume", "--seed", "--setting", "--skip-bad", "--target", "--tensorboard",
        "--time-limit", "--unlabeled-batch", "--weight", "data",
    ]  # fmt: skip
