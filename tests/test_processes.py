"""Several processes train as one: two real ones, by torchrun and by Fabric."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from cclp.methods import METHODS
from cclp.nets import mlp
from cclp.pseudo_labels.share import ALONE
from cclp.runs.start import resume, train
from cclp.training import processes
from cclp.training.evaluation import run_net
from cclp.training.machine import make_fabric
from cclp.training.objective import Objective
from tests import children, ranks
from tests.forks import Forks
from tests.runs import last_weights, metrics, tiny_config

TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
TRAIN = (
    "train", "digits", "--num-labels", "30", "--max-steps", "12", "--per-class", "2",
    "--unlabeled-batch", "30", "--checkpoint-every", "2", "--evaluate-every", "6",
)  # fmt: skip
DIES = (*TRAIN, "--method", "cclp+mine:Breaks", "--setting", "mine:Breaks.way=die")
BREAKS = '''
import os, signal
from pathlib import Path
import torch
from cclp.methods.base import Method

class Breaks(Method):
    """Ends process 1 in its fifth step; that of ``way`` "die" only once."""

    def __init__(self, num_classes, way="raise"):
        super().__init__()
        self.way = way
        self.register_buffer("count", torch.zeros(()))

    def forward(self, step):
        self.count += 1
        if int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0))) == 1 and self.count == 5:
            if self.way == "raise":
                raise RuntimeError("the fifth step is bad")
            if self.way == "poison":
                return {"breaks": step.z_labeled.sum() * float("nan")}
            if self.way == "die" and not Path("died").exists():
                Path("died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if self.way == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
        return {"breaks": 0.1 * step.z_labeled.square().mean()}
'''


def run(*line: str, cwd: Path, **more: str) -> Any:
    """A command of Python modules."""
    command = [sys.executable, "-m", *line]
    return children.run(command, cwd=cwd, env=children.environment(**more))


@pytest.fixture(scope="module")
def forks(cache: Path) -> Iterator[Forks]:
    with children.ended():
        yield Forks()


def in_two(forks: Forks, what: str, folder: Path) -> list[Any]:
    """What both processes have found."""
    for ended in forks.run_two(what, program="tests.ranks:main", folder=str(folder)):
        assert ended.code == 0, ended.said
    return [torch.load(folder / f"{what}-{r}.pt", weights_only=False) for r in (0, 1)]


@pytest.fixture(scope="module")
def losses(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return in_two(forks, "losses", tmp_path_factory.mktemp("losses"))


def same(module: nn.Module) -> nn.Module:
    return module


def furthest(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    assert found.keys() == expected.keys()
    return max(float((found[n] - expected[n]).abs().max()) for n in expected)


@pytest.mark.parametrize("name", ranks.LOSSES)
def test_a_gathered_loss_is_that_of_the_joint_batch(losses: list[Any], name: str) -> None:
    expected = ranks.loss_and_gradients(name, False, None, same)
    for found in losses:
        assert furthest(found[name, True], expected) < 1e-9
        assert furthest(found[name, False], expected) > 1e-4  # a graph of each batch is another


def test_a_global_step_of_the_trainer_is_that_of_the_joint_batch(losses: list[Any]) -> None:
    expected = ranks.terms_and_gradients(None, same)
    for found in losses:
        assert furthest(found["objective"], expected) < 1e-9


def test_anchors_are_of_all_processes(losses: list[Any]) -> None:
    for found in losses:
        assert found["anchors"]["z"].tolist() == [[7, 7], [8, 8], [0, 0]]
        assert found["anchors"]["seen"].tolist() == [True, True, False]


def test_alone_there_is_nothing_to_gather() -> None:
    alone, gathered = (ranks.loss_and_gradients("default", g, None, same) for g in (False, True))
    assert furthest(gathered, alone) == 0


def test_evaluation_counts_every_sample_once(forks: Forks, tmp_path: Path) -> None:
    first, second = in_two(forks, "evaluation", tmp_path)
    fabric = make_fabric("cpu", "32")
    objective = Objective(nn.Identity(), mlp(5, ranks.CLASSES), [])
    objective.load_state_dict(first["state"])
    expected = run_net(fabric, objective, ranks.points())
    for found in (first, second):
        for name, index in (("all", slice(None)), ("some", [7, 3, 3]), ("one", slice(1))):
            torch.testing.assert_close(found[name].z, expected.z[index])
            torch.testing.assert_close(found[name].logits, expected.logits[index])
        assert found["anyone"]
        assert not found["nobody"]
    assert (first["second"], second["second"]) == (False, True)


def test_a_graph_made_by_two_processes_is_that_of_one(forks: Forks, tmp_path: Path) -> None:
    expected = ranks.graphs(ALONE, tmp_path / "alone")
    for found in in_two(forks, "prepared", tmp_path):
        for turn in ("first", "again"):
            for name, graph in found[turn].items():
                torch.testing.assert_close(graph.pop("W"), expected[name]["W"], rtol=1e-6, atol=0)
                assert graph == {k: v for k, v in expected[name].items() if k != "W"}


def test_every_method_in_two_processes_and_only_the_first_writes(
    forks: Forks, tmp_path: Path
) -> None:
    first, second = in_two(forks, "methods", tmp_path)
    assert first == second
    others = {"global", "absent", "absent, global", "30 correct", "31 correct", "95 correct"}
    assert first.keys() == {*METHODS, "cclp+vat", *others}
    assert all(error < 1 for error in first.values())
    for name in first:
        assert (tmp_path / f"{name}-0" / "result.json").exists()
        assert not (tmp_path / f"{name}-1").exists()
    for name, warmup in (("30 correct", 0.5), ("31 correct", 0.5), ("95 correct", 0.0)):
        result = json.loads((tmp_path / f"{name}-0" / "result.json").read_text())
        assert result["decisions"]["supervised_warmup"] == warmup


@pytest.fixture(scope="module")
def undisturbed(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes from beginning to end."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "mine.py").write_text(BREAKS)
    (folder / "died").touch()
    both = forks.run_two(*DIES, "--out", "run", folder=str(folder))
    assert [ended.code for ended in both] == [0, 0], both
    assert [ended.printed.count("error") for ended in both] == [1, 0]
    return folder / "run"


def test_a_rank_killed_under_torchrun_is_started_again(undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BREAKS)
    done = run(
        *TORCHRUN, "--max-restarts", "2", "-m", "cclp", *DIES, "--out", "run",
        cwd=tmp_path, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists()
    assert last_weights(tmp_path / "run") == last_weights(undisturbed)
    assert metrics(tmp_path / "run") == metrics(undisturbed)


class Host(NamedTuple):
    """A machine: its address, its network, and what to write before a command to run it there."""

    address: str
    network: str
    prefix: tuple[str, ...] = ()


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    """Two: network namespaces with a cable between them, else two addresses of this machine."""
    names = [f"cclp-{os.getpid()}-{end}" for end in "ab"]
    made = [
        Host(f"10.77.0.{number}", f"cclp{end}", ("ip", "netns", "exec", name))
        for number, end, name in zip((1, 2), "ab", names, strict=True)
    ]
    lines = [f"netns add {name}" for name in names]
    lines.append(f"-n {names[0]} link add cclpa type veth peer name cclpb netns {names[1]}")
    for name, host in zip(names, made, strict=True):
        lines.append(f"-n {name} addr add {host.address}/24 dev {host.network}")
        lines.append(f"-n {name} link set {host.network} up")
        lines.append(f"-n {name} link set lo up")
    try:
        for line in lines:
            subprocess.run(["ip", *line.split()], check=True, capture_output=True)
        yield made
    except (OSError, subprocess.CalledProcessError):  # there is no ip, or it takes more rights
        yield [Host(f"127.0.0.{number}", "lo") for number in (1, 2)]
    finally:
        for name in names:
            with suppress(OSError):
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_a_rank_killed_on_one_of_two_hosts(
    undisturbed: Path, hosts: list[Host], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(BREAKS)
    started = []
    for number, host in enumerate(hosts):
        torchrun = (
            "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1",
            "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-id", "cclp",
            "--rdzv-endpoint", f"{hosts[0].address}:29477", "--local-addr", host.address,
            "--rdzv-conf", f"is_host={1 - number}",
        )  # fmt: skip
        process = children.start(
            [*host.prefix, sys.executable, "-m", *torchrun, "-m", "cclp", *DIES, "--out", "run"],
            cwd=tmp_path,
            env=children.environment(
                GLOO_SOCKET_IFNAME=host.network, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"
            ),
        )
        started.append(process)
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert (tmp_path / "died").exists()
    assert last_weights(tmp_path / "run") == last_weights(undisturbed)


def test_an_error_in_one_process_ends_all(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BREAKS)
    line = (*TRAIN, "--method", "mine:Breaks", "--out", "run")
    first, second = forks.run_two(*line, folder=str(tmp_path))
    assert first.code == 1
    assert "cclp: another process of this training has ended" in first.said
    assert second.code != 0
    assert "RuntimeError: the fifth step is bad" in second.said
    assert list((tmp_path / "run" / "checkpoint").glob("*4.json"))  # and what was saved is kept


def test_an_error_in_a_process_that_fabric_started_ends_all(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BREAKS)
    line = (*TRAIN, "--method", "mine:Breaks", "--devices", "2", "--out", "run")
    ended = forks.run(*line, folder=str(tmp_path))
    assert ended.code == 1
    assert "RuntimeError: the fifth step is bad" in ended.said
    assert "another process of this training has ended" in ended.said


ORPHAN = """
import os
import signal
from pathlib import Path

from lightning_fabric import Fabric

from cclp.runs.start import train
from tests.runs import tiny_config


def kill_parent():
    os.kill(os.getppid(), signal.SIGKILL)


when, launch = os.environ["WHEN"], Fabric.launch
if os.environ.get("LOCAL_RANK") == "1":
    print("launched", flush=True)
    if when == "at once":
        kill_parent()
    Fabric.launch = lambda fabric: (kill_parent(), launch(fabric))
train(tiny_config(devices=2), Path("run"))
"""


@pytest.mark.parametrize("when", ["at once", "before they meet"])
def test_no_process_outlives_the_one_that_launched_it(tmp_path: Path, when: str) -> None:
    (tmp_path / "orphan.py").write_text(ORPHAN)
    done = run("orphan", cwd=tmp_path, WHEN=when)  # until nobody has its pipes
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "launched\n"), done.stderr


LEAVES = """
import atexit
from pathlib import Path

import torch.distributed as dist

atexit.register(lambda: print("still a process group:", dist.is_initialized(), flush=True))

from cclp.runs.start import train
from tests.runs import tiny_config

train(tiny_config(devices=2), Path("run"))
print("trained in a process group:", dist.is_initialized(), flush=True)
"""


def test_a_process_leaves_its_group_before_it_ends(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES)  # else gloo's threads abort it now and then
    done = run("leaves", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    both = "trained in a process group: True\n", "still a process group: False\n"
    assert [done.stdout.count(line) for line in both] == [2, 2], done.stdout


WINDOWS = """
import ctypes, os, time
def wait(handle, milliseconds):
    assert (handle.value, milliseconds) == (7, 2**32 - 1)
    while real() == parent:
        time.sleep(0.1)
def open_process(right, inherited, number):
    assert (right, inherited, number) == (0x100000, False, parent)
    return HANDLE
class Kernel:
    OpenProcess, WaitForSingleObject = staticmethod(open_process), staticmethod(wait)
real, parent = os.getppid, os.getppid()
os.getppid = lambda: parent  # Windows keeps it
ctypes.WinDLL = lambda name: Kernel
"""


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_children_end_with_their_parent(tmp_path: Path, system: str) -> None:
    """Windows is played by functions of its names, with the behaviour that its manual describes."""
    child = (
        WINDOWS.replace("HANDLE", "7")
        * (system == "win32")
        + f"import os, sys, time; from cclp.training import family; sys.platform = {system!r}\n"
        "from cclp.training.family import end_with_parent\n"
        "print(end_with_parent(), flush=True); os.kill(os.getppid(), 9); time.sleep(1000)"
    )
    parent = (
        "import os, subprocess, sys; os.environ['CCLP_PARENT'] = str(os.getpid())\n"
        f"subprocess.run([sys.executable, '-c', {child!r}])"
    )
    done = children.run([sys.executable, "-c", parent], env=children.environment())
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "True\n")


def test_a_parent_that_has_ended_on_windows() -> None:
    code = (
        WINDOWS.replace("HANDLE", "None") + "import sys; from cclp.training import family\n"
        "sys.platform = 'win32'; os.environ['CCLP_PARENT'] = str(parent)\n"
        "print(family.end_with_parent())"
    )
    done = children.run([sys.executable, "-c", code], check=True, env=children.environment())
    assert done.stdout == "False\n"


def test_a_process_that_is_stopped_is_told(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BREAKS)
    line = (*TRAIN, "--method", "mine:Breaks", "--setting", "mine:Breaks.way=stop")
    command = [sys.executable, "-m", "cclp", *line, "--devices", "2", "--out", "run"]
    with children.ended():
        process = children.start(command, cwd=tmp_path, env=children.environment())
        assert process.stderr is not None
        told = next(text for text in process.stderr if "is stopped" in text)
        assert told.startswith("Process 1 of this training is stopped")
        os.kill(int(told.split()[-1].rstrip(".")), signal.SIGCONT)
        assert process.wait(60) == 0


def test_a_process_that_does_not_answer_is_told(forks: Forks, tmp_path: Path) -> None:
    first, _ = in_two(forks, "silent", tmp_path)
    assert first.startswith("another process of this training does not answer: it hangs")


@pytest.mark.parametrize("number", "01")
def test_processes_that_do_not_meet_end_soon(forks: Forks, tmp_path: Path, number: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = {
        "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": number, "LOCAL_RANK": number,
    }  # fmt: skip
    conditions = {"program": "tests.ranks:main", "environment": variables}
    ended = forks.run("alone", folder=str(tmp_path), **conditions)
    assert ended.code == 0, ended.said
    said = torch.load(tmp_path / f"alone-{number}.pt", weights_only=False)
    assert said.startswith("another process of this training does not answer")


def test_a_loss_that_is_not_finite_in_one_process_is_told_once(
    forks: Forks, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(BREAKS)
    line = (*TRAIN, "--method", "mine:Breaks", "--setting", "mine:Breaks.way=poison")
    first, second = forks.run_two(*line, "--out", "run", folder=str(tmp_path))
    assert (first.code, second.code) == (1, 1)
    assert "the loss is not finite at step 5" in first.said
    assert "cclp: " not in second.said
    for ended in (first, second):
        assert "another process" not in ended.said
        assert "Traceback" not in ended.said


def test_what_the_user_got_wrong_is_told_once(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    alone = forks.run(*TRAIN, "--devices", "2", "--out", "run", folder=str(tmp_path))
    pids = forks.start_two(*TRAIN, "--out", "run", folder=str(tmp_path))
    first = forks.wait(pids[0])
    os.kill(pids[1], signal.SIGTERM)  # as torchrun does: it would wait for the first
    for found in ([alone], [first, forks.wait(pids[1])]):
        assert all(ended.code != 0 for ended in found)
        said = "".join(ended.said for ended in found)
        assert said.count("cclp: run exists and is never overwritten") == 1
        assert "Traceback" not in said


def test_class_weights_in_two_processes(forks: Forks, tmp_path: Path) -> None:
    for out, given in (("plain", ()), ("weighted", ("--class-weight", "3=9"))):
        line = (*TRAIN, "--devices", "2", "--out", out, *given)
        assert forks.run(*line, folder=str(tmp_path)).code == 0
    plain, weighted = (metrics(tmp_path / out)[0] for out in ("plain", "weighted"))
    assert plain["cross_entropy"] != pytest.approx(weighted["cross_entropy"], rel=1e-3)


def test_stopped_in_two_processes_and_resumed(
    forks: Forks, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both times in processes that Fabric has started."""
    (tmp_path / "mine.py").write_text(BREAKS)
    (tmp_path / "died").touch()
    line = ("train", "--resume", "run", "--method", "cclp+mine:Breaks")
    pid = forks.start(*DIES, "--devices", "2", "--out", "run", folder=str(tmp_path))
    children.wait_until(lambda: list(tmp_path.glob("run/checkpoint/*2.json")))
    os.kill(pid, signal.SIGTERM)  # process 0 only
    ended = forks.wait(pid)
    assert ended.code == 128 + signal.SIGTERM, ended.said
    assert "cclp train --resume run --method cclp+mine:Breaks\n" in ended.said
    assert not (tmp_path / "run" / "result.json").exists()

    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match=r"2 processes .* 3 were"):
        resume(tmp_path / "run", method="cclp+mine:Breaks")
    monkeypatch.delenv("WORLD_SIZE")

    ended = forks.run(*line, folder=str(tmp_path))  # in two processes: the run knows
    assert ended.code == 0, ended.said
    assert last_weights(tmp_path / "run") == last_weights(undisturbed)
    assert metrics(tmp_path / "run") == metrics(undisturbed)


def test_torchrun_starts_anew_what_it_has_begun_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(max_steps=4, checkpoint_every=2)
    train(config, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    weights = last_weights(tmp_path / "run")
    with pytest.raises(ValueError, match="never overwritten"):
        train(config, tmp_path / "run")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "1")
    with pytest.raises(ValueError, match="never overwritten"):
        train(tiny_config(max_steps=4, checkpoint_every=2, seed=1), tmp_path / "run")
    assert train(config, tmp_path / "run")["error"] < 1
    assert last_weights(tmp_path / "run") == weights
    assert train(config, tmp_path / "run")["error"] < 1  # it is finished


def test_a_number_of_processes_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ValueError, match="WORLD_SIZE must be a number, got 'many'"):
        processes.launched_world_size()


def test_devices_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="devices must be at least 1, got 0"):
        tiny_config(devices=0)
    with pytest.raises(ValueError, match="graph has no effect with method 'vat'"):
        tiny_config(method="vat", graph="global")


def test_ranks_are_believed_only_if_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert processes.rank() == 0
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert processes.rank() == 1


def test_a_bad_number_in_the_environment_is_told_in_a_line(forks: Forks, tmp_path: Path) -> None:
    ended = forks.run(*TRAIN, environment={"WORLD_SIZE": "many"}, folder=str(tmp_path))
    assert (ended.code, ended.said) == (
        2,
        "cclp: the environment variable WORLD_SIZE must be a number, got 'many'\n",
    )


TWICE = """
from pathlib import Path
from cclp.runs.start import train
from tests.runs import tiny_config

config = tiny_config(max_steps=2, devices=2, evaluate_every=2)
print("first", train(config, Path("first"))["error"] < 1)
try:
    train(config, Path("second"))
except ValueError as error:
    print(error)
"""


def test_a_program_starts_one_training_of_several_processes(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(TWICE)
    done = run("twice", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = "a program can start one training of several processes: use torchrun for more"
    assert sorted(done.stdout.splitlines()) == [said, said, "first True", "first True"]
    assert not (tmp_path / "second").exists()


def test_processes_with_other_data_are_refused(forks: Forks, tmp_path: Path) -> None:
    rows = [f"{i % 2},{i},{-i}" for i in range(40)]
    for number in (0, 1):  # each process finds its own file
        lines = ["class,a,b", *rows[:-1], rows[-1] + "9" * number]
        (tmp_path / f"{number}.csv").write_text("\n".join(lines))
    line = ("train", "{rank}.csv", "--target", "class", "--max-steps", "2", "--out", "run")
    both = forks.run_two(*line, folder=str(tmp_path))
    assert all(ended.code != 0 for ended in both)
    assert "process 1: this process does not have the data" in both[1].said
