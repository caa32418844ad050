"""How much memory what is read may take: declared sizes are checked before anything is allocated.

Two limits hold. A small file may not become much, as no data compress to less than a hundredth. And
nothing is begun that does not fit into the memory that is free.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SMALL = 2**30  # bytes in memory that any file may come to
RATIO = 100  # bytes in memory for each byte of a larger file
_UNKNOWN = 2**33  # bytes that are taken to be free where the system does not say
_SHARE = 0.9  # of the free memory
_STEP = 2**26  # bytes that are taken in small parts between two looks at the free memory
_ALWAYS = 2**20  # bytes that are not worth a look
_CGROUPS = Path("/sys/fs/cgroup")


class NoRoom(ValueError):  # noqa: N818 - it says what is the matter
    """Something does not fit into the memory that is free now."""


def unpack_limit(packed: int) -> int:
    """To how many bytes in memory so many bytes of a file may come."""
    return max(SMALL, RATIO * packed)


class Budget:
    """What the reading of a file, or of several together, may take.

    Args:
        packed: bytes of the files.
    """

    def __init__(self, packed: int) -> None:
        self.limit = unpack_limit(packed)
        self.taken = 0

    def take(self, size: int, what: str = "it") -> None:
        """Ask for so many bytes more, before they are allocated.

        Raises:
            ValueError: if it comes to more than the limit, or more than there is free memory.
        """
        before, self.taken = self.taken, self.taken + size
        if self.taken > self.limit:
            raise ValueError(f"{what} unpacks to more than {self.limit:,} bytes")
        many_small = size <= _ALWAYS and self.taken // _STEP > before // _STEP
        check_room(_STEP if many_small else size, what)


def check_room(size: int, what: str = "it") -> None:
    """Make sure that so many bytes are free, before they are allocated.

    Raises:
        NoRoom: if not.
    """
    if size > _ALWAYS and size > (free := most_bytes()):
        raise NoRoom(f"{what} takes {size:,} bytes of memory, of which {free:,} are free")


def most_bytes() -> int:
    """Bytes that can be allocated now: free on the machine, and within the limits of the process.

    Where the system does not say, 8 GiB.
    """
    found = []
    for measure in (_left_on_machine, _left_in_container, _left_to_process):
        with suppress(OSError, ValueError, KeyError, IndexError, ImportError):
            found.append(measure())
    return max(0, int(_SHARE * min(found, default=_UNKNOWN)))


def _left_on_machine() -> int:
    try:
        return 1024 * _numbers(Path("/proc/meminfo"))["MemAvailable:"]
    except FileNotFoundError:  # macOS
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _left_in_container() -> int:
    """By the memory limit of a control group (version 2), which may be below the machine's."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    name = next(line.removeprefix("0::/") for line in [*lines, "0::/"] if line.startswith("0::/"))
    folder = _CGROUPS / name
    limit = int((folder / "memory.max").read_text())  # a ValueError if there is none
    files = _numbers(folder / "memory.stat")["file"]  # can be dropped
    return limit - int((folder / "memory.current").read_text()) + files


def _left_to_process() -> int:
    """By ``ulimit``."""
    import resource

    taken = _numbers(Path("/proc/self/status"))
    limits = {"VmSize:": resource.RLIMIT_AS, "VmData:": resource.RLIMIT_DATA}
    return min(  # a ValueError if there is none
        most - 1024 * taken[name]
        for name, limit in limits.items()
        if (most := resource.getrlimit(limit)[0]) != resource.RLIM_INFINITY
    )


def _numbers(file: Path) -> dict[str, int]:
    """The numbers of a file of the kernel, by the word before them."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}


class SharedBudget:
    """Memory that threads share: one that wants more than is left waits for the others.

    Args:
        most: bytes that are taken at a time; fewer if fewer are free.
    """

    def __init__(self, most: int) -> None:
        self.most, self._taken = most, 0
        self._given_back = threading.Condition()

    @contextmanager
    def taken(self, size: int, what: str = "it") -> Iterator[None]:
        """Hold so many bytes, as soon as they are left.

        Raises:
            NoRoom: if there are never so many.
        """
        if size > self.most:
            raise NoRoom(f"{what} takes {size:,} bytes of memory, expected at most {self.most:,}")
        with self._given_back:
            while self._taken and not self._fits(size):
                self._given_back.wait()
            check_room(size, what)
            self._taken += size
        try:
            yield
        finally:
            with self._given_back:
                self._taken -= size
                self._given_back.notify_all()

    def _fits(self, size: int) -> bool:
        if self._taken + size > self.most:
            return False
        return size <= _ALWAYS or self._taken + size <= most_bytes()  # others may not have begun
