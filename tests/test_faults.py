"""Machines that fail: what is on disk stays whole, and a run goes on as if nothing had been.

Every command is a process of its own.
"""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cclp.runs.checkpoint import load_checkpoint
from tests import children
from tests.forks import Ended, Forks
from tests.runs import assert_same_run, last_weights, own_folder

KILLS = 20
SMALL = [
    "train", "digits", "--num-labels", "20", "--per-class", "2", "--unlabeled-batch", "20",
    "--max-steps", "100", "--evaluate-every", "25", "--checkpoint-every", "5", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def forks(cache: Path) -> Iterator[Forks]:
    with children.ended():
        yield Forks()


@pytest.fixture(scope="module")
def whole(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing disturbs."""
    out = tmp_path_factory.mktemp("faults") / "whole"
    assert forks.run(*SMALL, "--out", str(out)).code == 0
    return out


def go(out: Path) -> list[str]:
    """What a user types to begin a run, or to go on with it."""
    begun = (out / "config.json").exists()
    return ["train", "--resume", str(out), "--quiet"] if begun else [*SMALL, "--out", str(out)]


def half(forks: Forks, out: Path) -> Path:
    """A run that was killed with some checkpoints written."""
    ended = forks.run(*go(out), signal_at=(signal.SIGKILL, 60, str(out)))
    assert ended.code == -signal.SIGKILL
    assert list((out / "checkpoint").glob("*.json"))
    return out


def refused(ended: Ended, *words: str) -> None:
    """One line that holds the words, and exit code 2."""
    assert ended.code == 2, ended
    assert ended.said.startswith("cclp: ")
    assert ended.said.count("\n") == 1
    for word in words:
        assert word in ended.said


@pytest.mark.parametrize("when", ["at any time", "while files are written"])
def test_killed_again_and_again_equals_undisturbed(
    forks: Forks, whole: Path, tmp_path: Path, when: str
) -> None:
    rng, out, kills = random.Random(when), tmp_path / "run", 0
    while kills < KILLS:
        if when == "at any time":
            child = forks.start(*go(out))
            time.sleep(rng.uniform(0, 0.8))
            os.kill(child, signal.SIGKILL)
        else:
            child = forks.start(*go(out), signal_at=(signal.SIGKILL, rng.randint(1, 40), str(out)))
        ended = forks.wait(child)
        assert ended.code in (0, -signal.SIGKILL), ended
        if ended.code == 0:  # as fast as that: begin again
            assert_same_run(out, whole)
            shutil.rmtree(out)
        kills += ended.code != 0
    assert forks.run(*go(out)).code == 0
    assert_same_run(out, whole)


def test_a_full_disk_is_named_and_costs_nothing(forks: Forks, whole: Path, tmp_path: Path) -> None:
    out = half(forks, tmp_path / "run")
    before = last_weights(out)
    ended = forks.run(*go(out), largest_file=len(before) // 2)
    refused(ended, "File too large", str(out / "checkpoint"), ".safetensors")
    assert last_weights(out) == before
    assert not list(out.rglob(".*.partial"))
    path, saved = out / "metrics.jsonl", max((out / "checkpoint").glob("*.json")).stem
    lines = path.read_bytes().splitlines(keepends=True)
    kept = b"".join(line for line in lines if json.loads(line)["step"] <= int(saved))
    ended = forks.run(*go(out), largest_file=len(kept) + 1)  # too small for the next line
    refused(ended, "File too large", str(path))
    assert forks.run(*go(out)).code == 0
    assert_same_run(out, whole)


def test_a_damaged_checkpoint_is_never_loaded(forks: Forks, whole: Path, tmp_path: Path) -> None:
    """Any byte of either file of it, flipped or cut off: the one before is taken."""
    folder = half(forks, tmp_path / "run") / "checkpoint"
    rng = random.Random(0)
    newest = max(folder.glob("*.json"))
    good = load_checkpoint(folder, pytest.fail)
    assert good is not None
    for path in (newest, newest.with_suffix(".safetensors")):
        content = path.read_bytes()
        for _ in range(100):
            damaged = bytearray(content)
            place = rng.randrange(len(damaged))
            if rng.random() < 0.3:
                del damaged[place:]
            else:
                damaged[place] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            said: list[str] = []
            found = load_checkpoint(folder, said.append)
            assert found is not None
            if found.step == good.step:  # a blank, or how a number is written
                assert (found.info, said) == (good.info, [])
                assert all(t.equal(good.tensors[name]) for name, t in found.tensors.items())
            else:
                assert found.step < good.step
                assert "is damaged" in said[0]
        path.write_bytes(content)
    newest.with_suffix(".safetensors").write_bytes(b"damaged")
    assert forks.run(*go(folder.parent)).code == 0
    assert_same_run(folder.parent, whole)


def test_a_configuration_that_changed_is_refused(forks: Forks, tmp_path: Path) -> None:
    out = half(forks, tmp_path / "run")
    config = out / "config.json"
    text = config.read_text()
    config.write_text(text.replace('"learning_rate": 0.004', '"learning_rate": 0.005'))
    assert config.read_text() != text
    refused(forks.run(*go(out)), "config.json has changed since checkpoint")


def test_metrics_that_changed_are_refused(forks: Forks, whole: Path, tmp_path: Path) -> None:
    out = half(forks, tmp_path / "run")
    path = out / "metrics.jsonl"
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    for changed in (content.replace(b"0.", b"1.", 1), b"".join(lines[1:]), b"damaged\n", None):
        assert changed != content
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)
        refused(forks.run(*go(out)), "metrics.jsonl has changed since checkpoint", "restore it")
    path.write_bytes(content + lines[-1][:9])  # a crash
    assert forks.run(*go(out)).code == 0
    assert_same_run(out, whole)


def test_a_configuration_that_changed_before_the_first_checkpoint_is_told(
    forks: Forks, tmp_path: Path
) -> None:
    out = half(forks, tmp_path / "run")
    shutil.rmtree(out / "checkpoint")
    config, changed = out / "config.json", "config.json was changed since the run began"
    text = config.read_text()
    short = text.replace('"max_steps": 100', '"max_steps": 2')
    assert short != text
    config.write_text(short)
    ended = forks.run(*go(out))
    assert ended.code == 0
    assert changed in ended.said
    again = half(forks, tmp_path / "again")
    shutil.rmtree(again / "checkpoint")
    ended = forks.run(*go(again))
    assert ended.code == 0
    assert changed not in ended.said


def test_folders_that_cannot_be_written_to(forks: Forks, whole: Path, tmp_path: Path) -> None:
    out, closed = half(forks, tmp_path / "run"), tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    (out / "checkpoint").chmod(0o555)
    before = last_weights(out)
    try:
        ended = forks.run(*SMALL, "--out", str(closed / "run"), as_anyone=True)
        refused(ended, "Permission denied", str(closed / "run"))
        refused(forks.run(*go(out), as_anyone=True), "Permission denied", str(out / "checkpoint"))
        page = closed / "page.html"
        ended = forks.run("report", str(whole), "--out", str(page), as_anyone=True)
        refused(ended, "Permission denied", str(page))
    finally:
        (out / "checkpoint").chmod(0o755)
    assert not list(closed.iterdir())
    assert last_weights(out) == before
    assert forks.run(*go(out)).code == 0
    assert_same_run(out, whole)


def test_files_that_may_not_be_read(forks: Forks, whole: Path, tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("size,kind\n1,a\n2,b\n")
    table.chmod(0)
    ended = forks.run(
        "train", str(table), "--target", "kind", "--out", str(tmp_path / "run"), as_anyone=True
    )
    refused(ended, "Permission denied", str(table))
    run = tmp_path / "copy"
    shutil.copytree(whole, run)
    for path in (run / "checkpoint").iterdir():
        path.chmod(0)
    refused(forks.run("evaluate", str(run), as_anyone=True), "Permission denied", "00000100.json")


def test_data_that_changed_behind_the_cache(forks: Forks, tmp_path: Path) -> None:
    """Another image of the same size and time as the one that was decoded."""
    folder, out = own_folder(tmp_path / "photos"), tmp_path / "run"
    begin = [
        "train", str(folder), "--per-class", "2", "--unlabeled-batch", "4", "--max-steps", "40",
        "--image-size", "8", "--checkpoint-every", "1", "--out", str(out), "--quiet",
    ]  # fmt: skip
    assert forks.run(*begin, signal_at=(signal.SIGKILL, 20, str(out))).code == -signal.SIGKILL
    assert list((out / "checkpoint").glob("*.json"))
    path = folder / "unlabeled" / "0.png"
    about = path.stat()
    with Image.open(path) as image:
        Image.fromarray(255 - np.asarray(image)).save(path)
    with path.open("ab") as file:
        file.truncate(about.st_size)  # what follows the image does not matter
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert path.stat().st_mtime_ns == about.st_mtime_ns
    refused(forks.run(*go(out)), "has changed since the run began")


def test_two_runs_into_one_folder(forks: Forks, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = forks.start(*go(out))
    children.wait_until(lambda: list((out / "checkpoint").glob("*.json")))
    os.kill(first, signal.SIGSTOP)
    refused(forks.run(*go(out)), f"{out} is in use: another process is working in it")
    refused(forks.run(*SMALL, "--out", str(out)), f"{out} exists and is never overwritten")
    os.kill(first, signal.SIGKILL)
    assert forks.wait(first).code == -signal.SIGKILL
    assert forks.run(*go(out)).code == 0  # the lock has gone with its owner
    assert_same_run(out, whole)


def test_a_clock_that_goes_backwards(forks: Forks, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    at = (signal.SIGKILL, 60, str(out))
    assert forks.run(*go(out), clock=-1000, signal_at=at).code == -signal.SIGKILL
    for path in out.rglob("*"):
        os.utime(path, (2**32, 2**32))  # in 2106
    assert forks.run(*go(out), clock=-1000).code == 0
    assert_same_run(out, whole)
    assert 0 < json.loads((out / "result.json").read_text())["seconds"] < 600


@pytest.mark.parametrize(
    ("number", "ignoring_sigint"),
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGINT, True)],
    ids=["SIGTERM", "SIGINT", "SIGINT-ignored"],
)
def test_a_scheduler_that_asks_to_stop(
    forks: Forks, whole: Path, tmp_path: Path, number: signal.Signals, ignoring_sigint: bool
) -> None:
    out = tmp_path / "run"
    ended = forks.run(*go(out), signal_at=(number, 30, str(out)), ignoring_sigint=ignoring_sigint)
    assert ended.code == 128 + number
    assert f"cclp train --resume {out}\n" in ended.said
    assert "Traceback" not in ended.said
    assert forks.run(*go(out)).code == 0
    assert_same_run(out, whole)


def test_ctrl_c_before_the_first_step_stops_at_once(forks: Forks, tmp_path: Path) -> None:
    out = tmp_path / "run"
    at = (signal.SIGINT, 1, str(out))
    ended = forks.run(*go(out), signal_at=at, ignoring_sigint=True)
    assert ended.code == 128 + signal.SIGINT
    assert ended.said.strip().startswith("cclp: stopped at once")
    assert "Traceback" not in ended.said


def test_nothing_asks_for_the_network(forks: Forks, tmp_path: Path) -> None:
    """But for what fetches data, and several processes that talk to each other."""
    out, table = tmp_path / "run", tmp_path / "mine.csv"
    table.write_text("size,kind\n" + "".join(f"{n / 2},{'ab'[n % 2]}\n" for n in range(40)))
    few = ["--per-class", "2", "--unlabeled-batch", "10", "--max-steps", "4"]
    for arguments in (
        ["--version"],
        ["train", "digits", "--num-labels", "20", *few, "--out", str(tmp_path / "digits")],
        ["train", str(table), "--target", "kind", "--num-labels", "4", *few, "--out", str(out)],
        ["train", "--resume", str(out)],
        ["evaluate", str(out)],
        ["predict", str(out), str(table)],
        ["report", str(out)],
        ["data", "list"],
    ):
        ended = forks.run(*arguments, no_network=True)
        assert ended.code == 0, ended
    ended = forks.run("data", "fetch", "svhn", "--data-dir", str(tmp_path), no_network=True)
    assert ended.code == 2
    assert "socket." in ended.said  # it would have been noticed
