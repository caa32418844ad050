"""Real processes that start at once: a program with everything imported forks for each command.

``python -m tests.forks`` reads orders, a line of JSON each, and answers each with one. One thread
everywhere: a process that has none but its first can be forked. A command may start others by
itself: Fabric does, with what stands in sys.argv.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tests import children


class Ended(NamedTuple):
    """How a command ended: its exit code, or minus the signal, and what it wrote."""

    code: int
    printed: str
    said: str


class Forks:
    """The test's side; the program ends with what :func:`tests.children.ended` says."""

    def __init__(self) -> None:
        self.process = _start()

    def start(self, *arguments: str, **conditions: Any) -> int:
        """Start ``cclp ARGUMENTS`` under the conditions of :func:`_prepare`; returns its pid."""
        pid: int = self._order({"arguments": arguments, "conditions": conditions})
        return pid

    def wait(self, pid: int) -> Ended:
        """For a command to end."""
        return Ended(*self._order({"wait": pid}))

    def run(self, *arguments: str, **conditions: Any) -> Ended:
        """Start a command and wait."""
        return self.wait(self.start(*arguments, **conditions))

    def run_two(self, *arguments: str, **conditions: Any) -> list[Ended]:
        """Start a command in two processes that train together, and wait."""
        return [self.wait(pid) for pid in self.start_two(*arguments, **conditions)]

    def start_two(self, *arguments: str, **conditions: Any) -> list[int]:
        """Start a command in two processes that train together, as torchrun does; returns pids.

        Args:
            *arguments: in which {rank} stands for the number of the process.
            **conditions: as in :meth:`start`.
        """
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        pids = []
        for rank in "01":
            line = [argument.replace("{rank}", rank) for argument in arguments]
            environment = shared | {"RANK": rank, "LOCAL_RANK": rank}
            pids.append(self.start(*line, environment=environment, **conditions))
        return pids

    def _order(self, order: dict[str, Any]) -> Any:
        if self.process.poll() is not None:
            self.process = _start()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except BaseException:  # the test ran out of time: the next order must not get this answer
            children.end(self.process)
            raise


def _start() -> children.Child:
    return children.start(
        [sys.executable, "-m", "tests.forks"],
        stdin=subprocess.PIPE,
        stderr=None,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _main() -> None:
    for name in ("sklearn.datasets", "sklearn.model_selection", "cclp.cli", "cclp.report.page",
                 "cclp.runs.inference", "cclp.runs.start"):  # fmt: skip
        import_module(name)

    outputs: dict[int, tuple[Path, Path]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            order = json.loads(line)
            if "wait" in order:
                _, status = os.waitpid(order["wait"], 0)
                texts = [path.read_text() for path in outputs.pop(order["wait"])]
                answer: Any = [os.waitstatus_to_exitcode(status), *texts]
            else:
                files = [Path(tempfile.mkstemp(dir=folder)[1]) for _ in range(2)]
                answer = os.fork()
                if answer == 0:
                    _run(order["arguments"], order["conditions"], files)
                outputs[answer] = files[0], files[1]
            print(json.dumps(answer), flush=True)


def _run(arguments: list[str], conditions: dict[str, Any], files: Sequence[Path]) -> None:
    """Never returns."""
    code = 70
    try:
        for number, path in enumerate(files, 1):
            os.dup2(os.open(path, os.O_WRONLY), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.modules["__main__"] = import_module("cclp.__main__")
        sys.argv[1:] = arguments
        _prepare(**conditions)
        module, _, function = conditions.get("program", "cclp.cli:main").partition(":")
        getattr(import_module(module), function)(arguments)
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _prepare(
    *,
    largest_file: int | None = None,
    as_anyone: bool = False,
    clock: float | None = None,
    signal_at: tuple[int, int, str] | None = None,
    no_network: bool = False,
    ignoring_sigint: bool = False,
    environment: dict[str, str] | None = None,
    folder: str | None = None,
    program: str | None = None,
) -> None:
    """Conditions that a command runs under.

    Args:
        largest_file: in bytes; a larger one is as a full disk.
        as_anyone: permissions of files count, even for root.
        clock: rate of the wall clock: below 0 it goes backwards.
        signal_at: (signal, n, folder): the process gets the signal when it opens, renames or
            removes a file of the folder to write it for the n-th time.
        no_network: whoever asks for a socket fails.
        ignoring_sigint: as a shell script starts a command in the background.
        environment: variables, besides those of the tests.
        folder: to run in.
        program: another than cclp: "module:function" of a function that takes the arguments.
    """
    os.environ.update(environment or {})
    if folder is not None:
        os.chdir(folder)
    if ignoring_sigint:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    if as_anyone and os.geteuid() == 0:
        _give_up_override()
    if clock is not None:
        begun, now, rate = time.time(), time.monotonic(), clock
        time.time = lambda: begun + rate * (time.monotonic() - now)
    if signal_at is not None:
        number, left, folder = signal_at
        handle = ""  # the folder that was opened last: names without one are in it

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left, handle
            if event == "open" and arguments[2] & os.O_DIRECTORY:
                handle = str(arguments[0])
            writes = event in ("os.rename", "os.link", "os.remove") or (
                event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            )
            by_name = writes and not isinstance(arguments[0], int)  # else it is open already
            if by_name and os.path.join(handle, str(arguments[0])).startswith(folder):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), number)

        sys.addaudithook(count)
    if no_network:

        def refuse(event: str, arguments: tuple[Any, ...]) -> None:
            if event.startswith("socket."):
                raise RuntimeError(f"{event}{arguments}")

        sys.addaudithook(refuse)


def _give_up_override() -> None:
    """Root's right to read and write whatever it likes."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: low, then high
    assert libc.capget(header, sets) == 0
    for place in range(3):
        sets[place] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(header, sets) == 0


if __name__ == "__main__":
    _main()
