"""Where the time of a run goes."""

import gzip
import json
import sys
import time
from pathlib import Path

import pytest

from cclp.phases import Phases, measure_phases, phase, whole
from cclp.training.profile import HOST, OTHER, RECORDED, SKIPPED, kind_of
from tests import children
from tests.command_line import call


class Clock:
    """A clock that goes on when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    monkeypatch.setattr(time, "process_time", lambda: 0.25)
    return made


def test_a_second_counts_for_the_innermost_phase(clock: Clock) -> None:
    @phase("c")
    def decorated() -> None:
        clock.now += 8

    with measure_phases() as found:
        assert found is not None
        clock.now += 1
        with phase("a"):
            clock.now += 2
            with phase("b"):
                clock.now += 4
                decorated()
            clock.now += 16
        with whole("d"), phase("a"):
            clock.now += 32
        clock.now += 64
    assert found.seconds == {"starting": 0.25, "c": 8, "b": 4, "a": 18, "d": 32}
    assert found.times == {"starting": 1, "c": 1, "b": 1, "a": 1, "d": 1}
    assert found.rest == 65
    decorated()  # nobody measures any more
    assert found.seconds["c"] == 8


def test_phases_are_measured_when_something_fails(clock: Clock) -> None:
    @phase("a")
    def fail() -> None:
        clock.now += 2
        raise ValueError("wrong")

    with measure_phases() as found:
        assert found is not None
        with pytest.raises(ValueError, match="wrong"):
            fail()
    assert (found.seconds["a"], found.rest) == (2, 0)


def test_nothing_is_measured_unless_asked() -> None:
    with measure_phases(False) as found, phase("a"):
        pass
    assert found is None
    assert Phases().seconds == {}


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["aten::mm", "CCLP"], "loss of CCLP"),
        (["aten::mm", "autograd::engine::evaluate_function: MmBackward0"], "linear layers"),
        (["aten::mkldnn_convolution", "aten::conv2d", "VAT"], "convolution"),
        (["aten::add_", "Optimizer.step#Adam.step"], "optimizer"),
        (["aten::native_batch_norm_backward", "NativeBatchNormBackward0"], "batch norm"),
        (["aten::elu"], "activations"),
        (["aten::add"], OTHER),
        (["autograd::engine::evaluate_function: AddBackward0"], HOST),
        (["steps"], HOST),
    ],
)
def test_operations_belong_to_a_kind(names: list[str], kind: str) -> None:
    assert kind_of(names, ["CCLP", "VAT"]) == kind


def test_a_run_says_where_its_time_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, steps = tmp_path / "run", SKIPPED + RECORDED + 3
    options = ["--num-labels", "50", "--recipe", "short", "--method", "cclp", "--quiet"]
    given = ["--max-steps", str(steps), "--out", str(run), "--profile"]
    assert call("train", "digits", *options, *given) == 0
    content = json.loads((run / "profile/profile.json").read_text())
    assert content["times"]["steps"] == steps
    assert content["recorded_steps"] == RECORDED
    assert set(content["phases"]) >= {"reading", "steps", "evaluation", "checkpoints", "metrics"}
    assert set(content["steps"]) >= {"linear layers", "loss of CCLP", "optimizer", HOST}
    printed = capsys.readouterr().out
    assert f"of a step ({RECORDED} were recorded)" in printed
    assert str(run / "profile") in printed
    with gzip.open(run / "profile/trace.json.gz", "rt") as trace:
        events = json.load(trace)["traceEvents"]
    steps_seen = [e["dur"] for e in events if e["name"] == "steps" and e["ph"] == "X"]
    assert len(steps_seen) == RECORDED
    assert sum(content["steps"].values()) == pytest.approx(sum(steps_seen) / 1e6, rel=1e-3)
    assert call("report", str(run)) == 0  # it is a run like any other


@pytest.mark.parametrize(("ending", "code"), [("interrupted", 130), ("diverged", 1)])
def test_a_run_that_ends_while_it_is_recorded(tmp_path: Path, ending: str, code: int) -> None:
    """torch crashes if it still records when Python ends, so this is a process of its own."""
    (tmp_path / "own.py").write_text(
        "import os, signal\n"
        "from cclp.methods.base import Method\n"
        "class Own(Method):\n"
        "    def __init__(self, num_classes):\n"
        "        super().__init__()\n"
        "        self.steps = 0\n"
        "    def forward(self, step):\n"
        "        self.steps += 1\n"
        f"        if self.steps == {SKIPPED + 4}:\n"
        + (
            "            os.kill(os.getpid(), signal.SIGINT)\n"
            if ending == "interrupted"
            else "            return {'own': step.z_labeled.sum() * float('nan')}\n"
        )
        + "        return {'own': 0 * step.z_labeled.sum()}\n"
    )
    line = ["train", "digits", "--num-labels", "50", "--recipe", "short", "--max-steps", "60"]
    given = ["--method", "own.py:Own", "--out", "run", "--profile", "--quiet"]
    done = children.run([sys.executable, "-m", "cclp", *line, *given], cwd=tmp_path)
    assert done.returncode == code, done.stderr


def test_a_short_run_is_profiled_from_its_first_step(tmp_path: Path) -> None:
    options = ["--num-labels", "50", "--recipe", "short", "--method", "supervised", "--quiet"]
    given = ["--max-steps", "3", "--out", str(tmp_path / "run"), "--profile"]
    assert call("train", "digits", *options, *given) == 0
    content = json.loads((tmp_path / "run/profile/profile.json").read_text())
    assert content["recorded_steps"] == 3
