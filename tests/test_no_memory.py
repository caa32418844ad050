"""Memory that ends while a checkpoint is written, at any moment: nothing is lost.

A process has one checkpoint. For many limits on its memory it forks, and the child writes another.
"""

import json
import os
import resource
import signal
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cclp.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tests import children

STEP = 2**20  # bytes from one limit to the next
LIMITS = 80
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")


def tensors(value: float) -> dict[str, Tensor]:
    """Eight megabytes, some of them not in a row."""
    images = torch.full((64, 64, 12, 12), value).to(memory_format=torch.channels_last)
    return {"images": images, **{f"t{n}": torch.full((2**18,), value) for n in range(6)}}


def attempt(folder: Path, limit: int, step: int) -> str:
    """How a child ends that may take so many bytes more."""
    receive, send = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(20)
        found, new = "saved", Checkpoint(step, tensors(step), {"number": step})
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + limit, resource.RLIM_INFINITY))
        try:
            save_checkpoint(folder, new)
        except BaseException as error:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            found = f"{type(error).__name__}: {error}"
        os.write(send, found.encode())
        os._exit(0)
    os.close(send)
    with open(receive) as answer:
        found = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return found if code == 0 else f"ended by {code}"


def main(folder: Path) -> None:
    """Print how each attempt has ended, and which step was loaded after it."""
    save_checkpoint(folder, Checkpoint(1, tensors(1), {"number": 1}))
    found, last = [], 1
    for number in range(LIMITS):
        how = attempt(folder, number * STEP, number + 2)
        loaded = load_checkpoint(folder, lambda text: None)
        assert loaded is not None
        if how == "saved":
            last = number + 2
        assert loaded.step == loaded.info["number"] == last, (how, loaded.step, last)
        torch.testing.assert_close(loaded.tensors, tensors(last))
        found.append(how)
    print(json.dumps(found))


def test_a_checkpoint_without_memory_leaves_the_one_before(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.test_no_memory", str(tmp_path / "checkpoint")]
    limits = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    done = children.run(command, check=True, cwd=children.ROOT, env=children.environment(**limits))
    found = json.loads(done.stdout)
    failed = [how for how in found if how != "saved"]
    assert len(failed) > 10
    assert len(found) - len(failed) > 10
    for how in failed:
        assert how.startswith(("NoRoom: the checkpoint of", "MemoryError: there is no memory")), how
        assert len(how.splitlines()) == 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
