"""What is asked of the machine."""

import platform
import subprocess
import sys

import pytest

HELD = """
import os
import torch
from cclp.training.machine import keep_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

{call}
x = torch.ones(16_000_000)
before = resident()
del x
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told")
def test_memory_of_large_tensors_is_kept() -> None:
    given_back = [
        int(
            subprocess.run(
                [sys.executable, "-c", HELD.format(call=call)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for call in ("", "keep_memory()")
    ]
    assert given_back[0] > 60e6
    assert given_back[1] < 1e6
