"""How threads wait and how many there are: set before torch is loaded, unless the user has."""

import sys
from pathlib import Path

import pytest

from cclp.threads import NUMBER, SPINS, WAITING, cpu_quota
from tests import children

CLI = "from cclp.cli import main\ntry: main(['--version'])\nexcept SystemExit: pass"
CONTAINER = """
import os
from pathlib import Path
os.cpu_count = lambda: 8
os.sched_getaffinity = lambda process: set(range(8))
from cclp.threads import prepare_threads
prepare_threads(Path("."))
"""
FORK = """
import os, signal
import torch
torch.set_num_threads(2)
def compute():
    return torch.ones(3000, 3000).exp().sum().item()
expected = compute()
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if abs(compute() - expected) < 1e-3 * expected else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def settings_after(code: str, folder: Path, **mine: str) -> dict[str, str]:
    """What a new process has in its environment after it has run some code."""
    show = f"\nimport os; print(*(f'{{n}}={{os.environ.get(n)}}' for n in {WAITING + NUMBER}))"
    names = WAITING + NUMBER
    clean = {name: v for name, v in children.environment().items() if name not in names}
    command = [sys.executable, "-c", code + show]
    done = children.run(command, check=True, env={**clean, **mine}, cwd=folder)
    shown = (pair.split("=") for pair in done.stdout.splitlines()[-1].split())
    return {name: value for name, value in shown if value != "None"}


@pytest.mark.parametrize("code", [CLI, "import cclp.sklearn"])
def test_threads_that_wait_for_long_sleep(code: str, tmp_path: Path) -> None:
    assert settings_after(code, tmp_path)["GOMP_SPINCOUNT"] == str(SPINS)


@pytest.mark.parametrize("code", ["import cclp; cclp.CCLPLoss", "import torch, cclp.sklearn"])
def test_the_threads_of_others_are_left_alone(code: str, tmp_path: Path) -> None:
    assert settings_after(code, tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [("OMP_WAIT_POLICY", "ACTIVE"), ("GOMP_SPINCOUNT", "1000"), ("KMP_BLOCKTIME", "200")],
)
def test_how_the_user_lets_threads_wait_stays(name: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    found = settings_after(CONTAINER, tmp_path, **{name: value})
    assert found == {name: value, "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("name", NUMBER)
def test_the_number_of_threads_of_the_user_stays(name: str, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    found = settings_after(CONTAINER, tmp_path, **{name: "5"})
    assert found == {name: "5", "GOMP_SPINCOUNT": str(SPINS)}


@pytest.mark.parametrize(
    ("quota", "threads"), [("250000 100000", "3"), ("800000 100000", None), ("max 100000", None)]
)
def test_a_container_has_no_more_threads_than_time(
    quota: str, threads: str | None, tmp_path: Path
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert settings_after(CONTAINER, tmp_path).get("OMP_NUM_THREADS") == threads


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "nonsense\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n"}, None),
        ({}, None),
    ],
)
def test_quota_of_a_container(files: dict[str, str], expected: int | None, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cpu_quota(tmp_path) == expected


def test_a_fork_after_a_computation_computes_too() -> None:
    """Else libgomp waits for threads that are not there."""
    command = [sys.executable, "-c", f"import cclp.sklearn\n{FORK}"]
    assert children.run(command, check=True, env=children.environment()).stdout == "0\n"
