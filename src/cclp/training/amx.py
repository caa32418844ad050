"""Whether AMX, the matrix unit of newer Intel processors, really runs.

Some virtual machines report AMX and then end the process with an illegal instruction at the first
product in bfloat16 (seen in a Firecracker guest with PyTorch 2.13). Nothing can catch that, so a
process of its own tries it, once for each machine and version.
"""

import hashlib
import os
import platform
import subprocess
import sys
from contextlib import suppress
from functools import cache

import torch

from cclp.files import cache_root, parse_json, write_json

LIMIT = "ONEDNN_MAX_CPU_ISA"  # read by oneDNN when it is first used
WITHOUT_AMX = "AVX512_CORE_FP16"
_TRIAL = """
import torch
torch.set_num_threads(1)
a = torch.ones(64, 64, dtype=torch.bfloat16)
assert (a @ a)[0, 0] == 64
"""


@cache
def avoid_broken_amx() -> None:
    """Keep this process from AMX if the machine reports it and cannot run it."""
    if torch.cpu._is_amx_tile_supported() and not {LIMIT, "DNNL_MAX_CPU_ISA"} & set(os.environ):
        machine = f"{platform.node()} {platform.release()} {torch.__version__}"
        record = cache_root() / f"amx-{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json"
        runs = None
        with suppress(OSError, ValueError):
            runs = parse_json(record.read_bytes())
        if runs not in (True, False):
            trial = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True)
            runs = trial.returncode == 0
            with suppress(OSError):
                record.parent.mkdir(parents=True, exist_ok=True)
                write_json(record, runs)
        if not runs:
            os.environ[LIMIT] = WITHOUT_AMX
