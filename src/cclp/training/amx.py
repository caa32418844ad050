"""Whether AMX, the matrix unit of newer Intel processors, really runs.

Some virtual machines report AMX and then end the process with an illegal instruction at the first
product in bfloat16 (seen in a Firecracker guest with PyTorch 2.13). Nothing can catch that, so a
process of its own tries it, once for each machine and version.
"""

import hashlib
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import torch

from cclp.files import cache_root, parse_json, write_json

LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")  # read by oneDNN when it is first used
WITHOUT_AMX = "AVX512_CORE_FP16"
TIMEOUT = 120  # seconds
TRIAL = """
import torch
torch.set_num_threads(1)
a = torch.ones(64, 64, dtype=torch.bfloat16)
assert (a @ a)[0, 0] == 64
"""


@cache
def avoid_broken_amx() -> None:
    """Keep this process from AMX if the machine reports it and cannot run it."""
    if torch.cpu._is_amx_tile_supported():
        limit_broken_amx()


def limit_broken_amx(trial: Callable[[], bool | None] | None = None) -> None:
    """Limit oneDNN if a product in bfloat16 fails, unless the user has set a limit.

    Args:
        trial: whether a product succeeds, or None if that is not known; by default a process of its
            own tries one. An answer is kept in the user's cache; without one AMX is not used.
    """
    if any(name in os.environ for name in LIMITS):
        return
    machine = f"{platform.node()} {platform.release()} {torch.__version__}"
    record = cache_root() / f"amx-{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json"
    runs = None
    with suppress(OSError, ValueError):
        runs = parse_json(record.read_bytes())
    if runs not in (True, False):
        runs = (trial or try_product)()
        if runs is not None:
            with suppress(OSError):
                record.parent.mkdir(parents=True, exist_ok=True)
                write_json(record, runs)
    if not runs:
        os.environ[LIMITS[0]] = WITHOUT_AMX


def try_product(program: str = TRIAL) -> bool | None:
    """Whether a process of its own multiplies in bfloat16; None if it failed for another reason."""
    with suppress(OSError, subprocess.TimeoutExpired):
        command = [sys.executable, "-c", program]
        code = subprocess.run(command, capture_output=True, timeout=TIMEOUT).returncode
        return {0: True, -signal.SIGILL: False}.get(code)
    return None
