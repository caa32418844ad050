"""A directory is one process's at a time, and new files never replace another's."""

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cclp.files import write_bytes
from cclp.runs.directory import InUse, check_new, is_unused, locked
from tests import children

HOLD = """
import sys
from pathlib import Path
from cclp.runs.directory import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def start_holder(out: Path) -> children.Child:
    """A process that holds a directory until its input ends."""
    holder = children.start([sys.executable, "-c", HOLD, str(out)], stdin=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_second_process_is_refused_until_the_first_leaves(tmp_path: Path) -> None:
    holder = start_holder(tmp_path)
    with pytest.raises(InUse, match=f"{tmp_path} is in use"), locked(tmp_path):
        pass
    assert holder.communicate("")[1] == ""
    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_does_not_block_the_next(tmp_path: Path) -> None:
    holder = start_holder(tmp_path)
    holder.send_signal(signal.SIGKILL)
    assert holder.wait() == -signal.SIGKILL
    check_new(tmp_path)  # what it left does not make it a run directory
    with locked(tmp_path):
        assert is_unused(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_process_is_refused_by_itself_too(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(InUse), locked(tmp_path):
        pass


def test_an_error_within_releases_the_directory(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path):
        raise KeyError
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("hard_links", [True, False])
def test_a_new_file_never_replaces_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not hard_links:
        monkeypatch.setattr("os.link", refuse)
    path = tmp_path / "file"
    write_bytes(path, b"first", new=True)
    with pytest.raises(FileExistsError):
        write_bytes(path, b"second", new=True)
    assert path.read_bytes() == b"first"
    write_bytes(path, b"third")
    assert path.read_bytes() == b"third"
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
