"""The journal of ``cclp label``: nothing is lost, nothing is told that is not on the disk."""

import errno
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cclp.data.user.label_file import Decided
from cclp.labelling.decisions import Decisions, Stale
from cclp.labelling.journal import NAME, Journal
from cclp.labelling.labels import NONE, NOT_SURE, UNLABELED
from cclp.runs.directory import InUse
from tests import children

KEYS = [f"{number}.png" for number in range(8)]


def opened(folder: Path, keys: list[str] = KEYS) -> Decisions:
    return Decisions(Journal(folder), keys, "files")


def again(decisions: Decisions, keys: list[str] = KEYS) -> Decisions:
    decisions.journal.close()
    return opened(decisions.journal.path.parent, keys)


def state(decisions: Decisions) -> tuple[Any, ...]:
    values, who = decisions.values.tolist(), decisions.who.tolist()
    return decisions.version, decisions.names, values, who, decisions.can_undo, decisions.can_redo


def filled(folder: Path) -> Decisions:
    decisions = opened(folder)
    decisions.add_class(0, "cat")
    decisions.add_class(1, "dog")
    decisions.decide(2, [(0, 0)])
    decisions.decide(3, [(1, 1), (2, 1), (3, "none")])
    decisions.decide(4, [(4, "not_sure")])
    return decisions


def test_all_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    expected = [0, 1, 1, NONE, NOT_SURE, UNLABELED, UNLABELED, UNLABELED]
    assert decisions.values.tolist() == expected
    assert decisions.who.tolist()[:4] == [0, 1, 1, 1]
    decisions.merge_classes(5, 1, 0)
    decisions.undo(6)
    decisions.rename_class(7, 0, "  black   cat ")
    before = state(decisions)
    assert before[1] == {0: "black cat", 1: "dog"}
    assert state(again(decisions)) == before


def test_what_was_drawn_is_remembered(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    decisions.decide(5, [(5, 0)], drawn=True)
    decisions.decide(6, [(5, 1)])  # another answer about a sample that was drawn
    decisions = again(decisions)
    assert np.flatnonzero(decisions.labels.drawn).tolist() == [5]
    decisions.undo(7)
    assert np.flatnonzero(decisions.labels.drawn).tolist() == [5]
    decisions.undo(8)
    assert not decisions.labels.drawn.any()
    decisions.redo(9)
    assert np.flatnonzero(again(decisions).labels.drawn).tolist() == [5]


def test_undo_and_redo_have_no_end(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    decisions.merge_classes(5, 1, 0)
    states = [(dict(decisions.names), decisions.values.tolist())]
    while decisions.can_undo:
        decisions.undo(decisions.version)
        states.append((dict(decisions.names), decisions.values.tolist()))
    assert states[-1] == ({}, [UNLABELED] * 8)
    decisions = again(decisions)
    for expected in states[-2::-1]:
        decisions.redo(decisions.version)
        assert (decisions.names, decisions.values.tolist()) == expected
    assert not decisions.can_redo
    with pytest.raises(ValueError, match="nothing to redo"):
        decisions.redo(decisions.version)


def test_a_change_after_undo_forgets_what_was_undone(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    decisions.undo(5)
    decisions.decide(6, [(5, 1)])
    assert not decisions.can_redo
    assert decisions.values[[4, 5]].tolist() == [UNLABELED, 1]


def test_merged_samples_find_their_class_again(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    change = decisions.merge_classes(5, 1, 0)
    assert change.samples.tolist() == [1, 2]
    assert decisions.names == {0: "cat"}
    assert decisions.values.tolist()[:3] == [0, 0, 0]
    with pytest.raises(ValueError, match="class must be one of 0"):
        decisions.decide(6, [(5, 1)])
    decisions.undo(6)
    assert list(decisions.names) == [0, 1]
    assert decisions.values.tolist()[:3] == [0, 1, 1]


def test_of_two_tabs_the_slower_one_is_told(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    with pytest.raises(Stale, match="version 4 is not the latest, 5"):
        decisions.decide(4, [(0, 1)])
    assert decisions.values[0] == 0
    assert decisions.version == 5


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([(8, 0)], "sample must be below 8, got 8"),
        ([(-1, 0)], "sample"),
        ([(0, 7)], "class must be one of 0, 1, got 7"),
        ([(0, "maybe")], "got 'maybe'"),
        ([(0, True)], "got True"),
        ([], "decisions must name a sample or more"),
    ],
)
def test_what_there_is_not_is_refused(
    tmp_path: Path, labels: list[tuple[int, Any]], message: str
) -> None:
    decisions = filled(tmp_path)
    before = state(decisions), decisions.journal.path.read_bytes()
    with pytest.raises((ValueError, TypeError), match=message):
        decisions.decide(5, labels)
    assert (state(decisions), decisions.journal.path.read_bytes()) == before


def test_names_are_names(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    for name, message in (
        ("cat", "already: merge"),
        (" ", "1 to 200"),
        ("a\x07", "can be seen"),
        ("Unknown", "'Unknown' is read as another"),  # in labels.csv it says that there is none
        ("1.0", "read as another"),
    ):
        with pytest.raises(ValueError, match=message):
            decisions.add_class(5, name)
    decisions.add_class(5, "cafe\u0301")  # as labels.csv is read: é is one character
    assert "caf\u00e9" in decisions.names.values()


def test_a_torn_line_is_dropped(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    before = state(decisions)
    decisions.journal.close()
    path = decisions.journal.path
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"do":"label","labels":[["5.png",1]],"wh')
    decisions = opened(tmp_path)
    assert state(decisions) == before
    decisions.decide(5, [(6, 0)])
    assert state(again(decisions))[2][5:7] == [UNLABELED, 0]


def test_damage_before_the_end_is_refused(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    decisions.journal.close()
    lines = decisions.journal.path.read_bytes().splitlines(keepends=True)
    lines[2] = b"{oops}\n"
    decisions.journal.path.write_bytes(b"".join(lines))
    with pytest.raises(ValueError, match="line 3 is damaged"):
        opened(tmp_path)
    decisions.journal.path.write_bytes(b"".join([*lines[:2], b'{"do":"fly"}\n', *lines[3:]]))
    with pytest.raises(ValueError, match="line 3"):
        opened(tmp_path)


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_a_full_disk_refuses_the_decision_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    decisions = filled(tmp_path)
    before, written = state(decisions), decisions.journal.path.read_bytes()
    write = os.write

    def half(file: int, content: memoryview) -> int:
        if len(content) > 4:
            return write(file, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, half if fails == "write" else full)
        with pytest.raises(OSError, match=NAME):
            decisions.decide(5, [(5, 1)])
    assert state(decisions) == before
    assert decisions.journal.path.read_bytes() == written
    decisions.decide(5, [(6, 1)])
    found = again(decisions)
    assert found.values[[5, 6]].tolist() == [UNLABELED, 1]
    assert found.version == 6


def test_one_process_at_a_time(tmp_path: Path) -> None:
    decisions = opened(tmp_path)
    code = f"from cclp.labelling.journal import Journal; from pathlib import Path; \
Journal(Path({str(tmp_path)!r}))"
    found = children.run([sys.executable, "-c", code], env=children.environment())
    assert found.returncode == 1
    assert "another cclp label is open" in found.stderr
    decisions.journal.close()
    children.run([sys.executable, "-c", code], env=children.environment(), check=True)


def test_the_same_process_may_not_open_it_twice(tmp_path: Path) -> None:
    decisions = opened(tmp_path)
    with pytest.raises(InUse):
        Journal(tmp_path)
    decisions.journal.close()
    Journal(tmp_path).close()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from cclp.labelling.decisions import Decisions
from cclp.labelling.journal import Journal
decisions = Decisions(Journal(Path({str(tmp_path)!r})), [str(i) for i in range(10**6)], "files")
decisions.add_class(0, "cat")
for i in range(10**6):
    decisions.decide(decisions.version, [(i, 0)])
    print(i, flush=True)
"""
    child = children.start([sys.executable, "-c", code], env=children.environment())
    assert child.stdout is not None
    told = [int(child.stdout.readline()) for _ in range(50)]
    os.kill(child.pid, signal.SIGKILL)
    told += [int(line) for line in child.stdout.read().split("\n")[:-1]]
    decisions = Decisions(Journal(tmp_path), [str(i) for i in range(10**6)], "files")
    assert (decisions.values[told] == 0).all()
    assert (decisions.values == 0).sum() in (len(told), len(told) + 1)


def test_decisions_follow_their_files(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    keys = ["new.png", *KEYS[1:][::-1]]
    decisions = again(decisions, keys)
    assert {keys[i]: int(decisions.values[i]) for i in decisions.labeled} == {
        "1.png": 1,
        "2.png": 1,
    }
    assert decisions.lost == 1


def test_rows_of_other_data_are_refused(tmp_path: Path) -> None:
    Decisions(Journal(tmp_path), ["0", "1"], "one").journal.close()
    with pytest.raises(ValueError, match="other data"):
        Decisions(Journal(tmp_path), ["0", "1"], "other")


def test_labels_from_elsewhere_do_not_replace_decisions(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    rows = [Decided("0.png", "dog", "data"), Decided("6.png", "owl", "data"),
            Decided("7.png", "", "person"), Decided("gone.png", "dog", "data")]  # fmt: skip
    change = decisions.bring_in(rows)
    assert change is not None
    assert decisions.names == {0: "cat", 1: "dog", 2: "owl"}
    assert decisions.values.tolist() == [0, 1, 1, NONE, NOT_SURE, UNLABELED, 2, NOT_SURE]
    assert state(again(decisions))[2] == decisions.values.tolist()


def test_news_are_answers_of_a_new_class(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    assert decisions.news == [True, True]
    decisions.decide(5, [(6, 1)])
    assert decisions.news == [True, True, False]
    decisions.undo(6)
    assert decisions.news == [True, True]


def test_the_history_is_kept(tmp_path: Path) -> None:
    decisions = filled(tmp_path)
    decisions.decide(5, [(7, 0)], expected=[3, 0.2, 0.1, 0.3])
    last = json.loads(decisions.journal.path.read_bytes().splitlines()[-1])
    assert last["expected"] == [3, 0.2, 0.1, 0.3]
    assert np.isin(decisions.values[7], [0])
