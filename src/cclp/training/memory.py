"""Memory of tensors, kept from one step to the next."""

import ctypes
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_memory() -> None:
    """Let the process keep the memory that tensors give back, for those of the next step.

    Large ones would be had from the system each time, as pages that have to be cleared first: on a
    CPU that is a tenth of a step. Elsewhere than with glibc nothing is changed.
    """
    with suppress(OSError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
