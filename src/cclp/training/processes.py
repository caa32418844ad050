"""Several processes that train one network: launched by Fabric or torchrun, and ended together.

Process 0 has the run directory and the terminal; the others only compute. Nothing heavy is imported
before a training begins.
"""

import atexit
import gc
import logging
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from cclp.checks import check_integer
from cclp.training.family import PARENT, end_with_parent, watch

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from torch import nn

T = TypeVar("T")

RENDEZVOUS = timedelta(minutes=5)  # until all processes have met
PATIENCE = timedelta(hours=2)  # from then on: process 0 may fetch data or propagate labels
_SECONDS_TO_END = 10.0
_SET_BY_FABRIC = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE", PARENT)


class WorkerDied(RuntimeError):  # noqa: N818 - it says what has happened
    """Another process of the training has ended early, or does not answer."""


def launched_world_size() -> int | None:
    """How many processes torchrun, or the process that launched this one, has launched; or None."""
    return _environment("WORLD_SIZE")


def launched_here() -> int | None:
    """How many of them torchrun has launched on this machine; or None."""
    return _environment("LOCAL_WORLD_SIZE")


def rank() -> int:
    """Global rank of this process; 0 if there is only one."""
    if launched_world_size() is None:
        return 0
    return _environment("RANK") or _environment("LOCAL_RANK") or 0


def may_be_restarted() -> bool:
    """Whether torchrun restarts the processes if one of them fails.

    How often it has (TORCHELASTIC_RESTART_COUNT) is not the same number on all machines.
    """
    return bool(_environment("TORCHELASTIC_MAX_RESTARTS"))


def shares_its_store() -> bool:
    """Whether torchrun's rendezvous (not "static") is where the processes meet, too.

    Started anew they find addresses there of those that are gone, and fail (PyTorch 2.4 to 2.13 at
    least; its issue 135712).
    """
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return shared and os.environ.get("TORCHELASTIC_RUN_ID") != "none"


def _environment(name: str) -> int | None:
    value = os.environ.get(name)
    if value is None:
        return None
    with suppress(ValueError):
        return check_integer(name, int(value), least=0)
    raise ValueError(f"the environment variable {name} must be a number, got {value!r}")


def check_launched(devices: int) -> None:
    """Make sure that as many processes are there as the training has, if others start them.

    Raises:
        ValueError: if not. Each reads its part of the samples, so with another number of them a run
            could not be resumed. Also for a second training of several processes in one
            program, unless torchrun has started it: its children would run all of it again.
    """
    if devices > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            raise ValueError(
                "a program can start one training of several processes: use torchrun for more"
            )
    there = launched_world_size()
    if there is not None and there != devices:
        raise ValueError(
            f"this training has {devices} process{'es' * (devices > 1)} (--devices), but {there} "
            f"were launched: start and resume with the same number"
        )


@contextmanager
def launched(fabric: "Fabric", warn: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Launch the other processes, unless torchrun has; within, all of them run. They end together.

    Args:
        fabric: with the number of processes.
        warn: called with a sentence if one of them is stopped.

    Raises:
        WorkerDied: if another process has ended, which this one learns from the broken connection,
            or does not answer in time.
    """
    for name in ("distributed", "rank_zero"):  # messages that list the processes
        logging.getLogger(f"lightning_fabric.utilities.{name}").setLevel(logging.WARNING)
    before = {name: os.environ.get(name) for name in _SET_BY_FABRIC}
    if not end_with_parent():
        raise WorkerDied("the process that launched this one has ended")
    if fabric.world_size > 1 and launched_world_size() is None:
        os.environ[PARENT] = str(os.getpid())
    try:
        fabric.launch()
        if fabric.world_size > 1:
            _be_patient()
            atexit.register(_leave)
        watch(getattr(fabric.strategy.launcher, "procs", []), warn)
        yield
    except RuntimeError as error:
        children = _take_children(fabric)
        if fabric.world_size == 1 or not _is_broken_connection(error):
            _kill(children)
            raise
        for child in children:  # they have noticed too, or print an error
            with suppress(Exception):
                child.wait(_SECONDS_TO_END)
        _kill(children)
        raise WorkerDied(_what_happened(error)) from None
    except BaseException:
        _kill(_take_children(fabric))
        raise
    else:  # the process group stays, see _leave
        for child in getattr(fabric.strategy.launcher, "procs", []):
            child.wait()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _take_children(fabric: "Fabric") -> list[subprocess.Popen[bytes]]:
    """The processes that Fabric has launched, taken out of its hands: it would kill this process as
    soon as one of them fails.
    """
    owned: list[subprocess.Popen[bytes]] = getattr(fabric.strategy.launcher, "procs", [])
    children = list(owned)
    owned.clear()
    return children


def _kill(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.kill()
        child.wait()


def _is_broken_connection(error: RuntimeError) -> bool:
    import torch.distributed as dist

    return isinstance(error, dist.DistError) or "gloo" in str(error)


def _what_happened(error: RuntimeError) -> str:
    first = str(error).strip().partition("\n")[0]
    if re.search(r"tim(ed|e) ?out", first, re.IGNORECASE):
        return f"another process of this training does not answer: it hangs or is stopped ({first})"
    return f"another process of this training has ended; its own message may be above ({first})"


def _leave() -> None:
    """Destroy the process group when the program ends, once DDP is gone: before, it may block.

    gloo's threads would otherwise ask for an interpreter that has ended, and abort the process
    (PyTorch 2.13; six of ten times in a small test): torchrun would take the training for failed.
    """
    import torch.distributed as dist

    gc.collect()  # DDP and its network refer to each other
    if dist.is_initialized():
        leaving = Thread(target=dist.destroy_process_group, daemon=True)
        leaving.start()
        leaving.join(_SECONDS_TO_END)


def _be_patient() -> None:
    """From now on, processes that have met wait longer for each other."""
    from torch.distributed.distributed_c10d import _set_pg_timeout

    _set_pg_timeout(PATIENCE)


def local_rank_zero_first(fabric: "Fabric", work: Callable[[], T]) -> T:
    """``work`` in all processes; on each machine local rank 0 first, whose cache the others use."""
    if fabric.local_rank > 0:
        fabric.barrier()
    done = work()
    if fabric.local_rank == 0:
        fabric.barrier()
    return done


def any_rank(fabric: "Fabric", answer: bool) -> bool:
    """Whether it is true in one of the processes: all get the same answer."""
    if fabric.world_size == 1:
        return answer
    import torch

    found = fabric.all_reduce(torch.tensor(float(answer), device=fabric.device), reduce_op="max")
    return bool(found)


def share_buffers(module: "nn.Module") -> None:
    """Broadcast the buffers of process 0, such as running statistics."""
    import torch.distributed as dist

    for buffer in module.buffers():
        dist.broadcast(buffer, 0)
