"""What is asked of the machine."""

import platform
import sys

import pytest

from tests import children

KEPT = """
import os
import torch
from cclp.training.machine import keep_memory

def given_back():
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    x = torch.ones(16_000_000)
    before = resident()
    del x
    return before - resident()

print(given_back())
keep_memory()
given_back()
print(given_back())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a setting of glibc")
def test_memory_of_large_tensors_is_kept() -> None:
    done = children.run([sys.executable, "-c", KEPT], check=True)
    without, kept = map(int, done.stdout.split())
    assert without > 60e6
    assert kept < 1e6
