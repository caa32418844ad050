"""How much memory a reader takes: it is called in a process of its own, under a limit.

``python -m tests.memory`` loads all readers once. For each line of its input it forks: the child is
told that little memory is free, reads, and says how it went. The system's limit (RLIMIT_AS) is far
above that, so that a reader that does not ask first takes too much and is seen, instead of being
stopped.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cclp.data import budget
from tests import children

MOST = 200 * 2**20  # bytes above what the process has with everything loaded
NET = 2**31  # bytes at which the system refuses more
SECONDS = 60


class Outcome(NamedTuple):
    """How a reading has ended.

    Attributes:
        error: name of the exception; None if the file was read.
        message: of it.
        peak: most bytes of memory that were in use beyond those at the start.
    """

    error: str | None
    message: str
    peak: int


def readers() -> dict[str, Callable[[Path], object]]:
    """By name; loading them takes seconds."""
    from cclp.data.npz import read_npz
    from cclp.data.published.formats import parse_mat
    from cclp.data.unpack import read_content
    from cclp.data.user.images import decode_all
    from cclp.data.user.load import load_user_data
    from cclp.report.page import make_report
    from cclp.runs.inference import open_run
    from cclp.training.machine import make_fabric

    make_fabric("cpu", "32")  # loads what only some need

    def images(folder: Path) -> None:
        for _, _, bad in decode_all(sorted(folder.iterdir()), (3, 8, 8)):
            for item in bad:
                raise ValueError(str(item))

    return {
        "npz": read_npz,
        "mat": lambda path: parse_mat(read_content(path), path),
        "gz": read_content,
        "data": lambda path: load_user_data(path),
        "table": lambda path: load_user_data(path, target="kind"),
        "images": images,
        "report": lambda path: make_report([path]),
        "run": open_run,
    }


Measure = Callable[[str, Path], Outcome]


@contextmanager
def measuring(cache: Path) -> Iterator[Measure]:
    """A function that calls a reader by its name, in a process of its own, under the limit.

    Args:
        cache: folder of the user's cache, for what readers keep.
    """
    variables = {"MALLOC_ARENA_MAX": "1", "XDG_CACHE_HOME": str(cache)}
    with children.ended():
        process = children.start(
            [sys.executable, "-m", "tests.memory"],
            stdin=-1,
            cwd=children.ROOT,
            env=children.environment(**variables),
        )

        def measure(name: str, path: Path) -> Outcome:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps([name, str(path)]), file=process.stdin, flush=True)
            line = process.stdout.readline()
            assert line, process.communicate()
            return Outcome(*json.loads(line))

        yield measure


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _size() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _attempt(read: Callable[[Path], object], path: Path) -> Outcome:
    """Read under the limit; for a process that ends after it."""
    before = _resident()
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (_size() + NET, resource.RLIM_INFINITY))
    budget.most_bytes = lambda: max(0, MOST - (_resident() - before))
    error, message = None, ""
    try:
        read(path)
    except BaseException as found:
        error, message = type(found).__name__, str(found)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return Outcome(error, message, peak)


def main() -> None:
    """Answer each line of the input, the name of a reader and a path, by a line."""
    known = readers()
    for line in sys.stdin:
        name, path = json.loads(line)
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(send, json.dumps(_attempt(known[name], Path(path))).encode())
            os._exit(0)
        os.close(send)
        with open(receive, "rb") as answers:
            answer = answers.read()
        _, status = os.waitpid(child, 0)
        died = Outcome("Died", f"by {os.waitstatus_to_exitcode(status)}", 0)
        print(answer.decode() or json.dumps(died), flush=True)


if __name__ == "__main__":
    main()
