"""Run directories from strangers: nothing outside them is written, removed or waited for."""

import json
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclp.data.published.load import fetch_published
from cclp.files import Directory, write_bytes
from cclp.lab.run import RunView
from cclp.report.page import make_report
from cclp.runs.export import export
from cclp.runs.inference import evaluate, predict
from cclp.runs.start import Stopped, resume, train
from cclp.runs.trust import is_own
from tests import children
from tests.command_line import call
from tests.records import write_run
from tests.runs import own_table, stop_after, tiny_config


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped."""
    out = tmp_path_factory.mktemp("strangers") / "run"
    with pytest.raises(Stopped):
        train(tiny_config(), out, should_stop=stop_after(8))
    return out


@pytest.fixture
def run(half: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(half, tmp_path / "run"))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with files that are none of a run's business."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    (folder / "00000001.notes").write_text("mine")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def move_and_link(run: Path, name: str, to: Path) -> None:
    if (run / name).exists():
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        else:
            (run / name).unlink()
    (run / name).symlink_to(to)


@pytest.mark.parametrize("name", ["checkpoint", "embedding", "tensorboard"])
def test_a_link_in_place_of_a_folder_is_refused(run: Path, outside: Path, name: str) -> None:
    before = content(outside)
    if name == "tensorboard":
        about = json.loads((run / "config.json").read_text())
        about["config"]["tensorboard"] = True
        (run / "config.json").write_text(json.dumps(about))
        shutil.rmtree(run / "checkpoint")
    move_and_link(run, name, outside)
    with pytest.raises(ValueError, match=f"{name} is a link: expected a folder"):
        resume(run)
    assert content(outside) == before


@pytest.mark.parametrize("name", ["metrics.jsonl", ".lock", "config.json", "result.json"])
def test_a_link_in_place_of_a_file_is_refused(run: Path, outside: Path, name: str) -> None:
    before = content(outside)
    move_and_link(run, name, outside / "letter.txt")
    with pytest.raises(ValueError, match=f"{name} is a link: expected a file"):
        resume(run)
    assert content(outside) == before


def test_only_own_files_are_removed(run: Path) -> None:
    strange = ["notes.txt", "00000001.notes", ".a.partial", ".b.txt.0123456789abcdef.partial.txt"]
    for folder in (run, run / "checkpoint", run / "embedding"):
        for name in strange:
            (folder / name).write_text("mine")
        (folder / ".x.json.0123456789abcdef.partial").write_text("half-written")
    resume(run)
    for folder in (run, run / "checkpoint", run / "embedding"):
        assert all((folder / name).read_text() == "mine" for name in strange)
        assert not list(folder.glob(".x.json.*"))
    assert sorted(path.stem for path in (run / "checkpoint").glob("*.json")) == [
        "00000008",
        "00000012",
    ]


def test_the_directory_itself_may_be_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    assert resume(tmp_path / "link")["restarts"] == 1
    assert call("report", str(tmp_path / "link")) == 0
    assert (run / "report.html").is_file()


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "result.json", "report.html"])
@pytest.mark.parametrize("kind", ["pipe", "zeros", "link"])
def test_a_special_file_is_one_line(tmp_path: Path, name: str, kind: str) -> None:
    """In a process of its own: it must neither wait nor fill the memory."""
    run = write_run(tmp_path / "run")
    (run / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(run / name)
    else:
        (run / name).symlink_to("/dev/zero" if kind == "zeros" else tmp_path / "elsewhere")
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30));"
    code = f"{limited} from cclp.cli import main; main(['report', {str(run)!r}])"
    ended = children.run([sys.executable, "-c", code], timeout=60, env=children.environment())
    assert ended.returncode == 2
    assert f"{name} is a {'pipe' if kind == 'pipe' else 'link'}: expected a file" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "elsewhere").exists()


def test_half_written_files_have_names_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of version 0.1 was that of the file and the number of the process."""
    (tmp_path / "letter.txt").write_text("dear")
    for number in (os.getpid(), 0):
        (tmp_path / f".page.html.{number}.partial").symlink_to(tmp_path / "letter.txt")
    seen: list[str] = []
    replace = os.replace

    def watch(source: str, *rest: Any, **handles: Any) -> None:
        seen.append(source)
        replace(source, *rest, **handles)

    monkeypatch.setattr("os.replace", watch)
    for text in (b"one", b"two"):
        write_bytes(tmp_path / "page.html", text)
    assert len(set(seen)) == 2
    assert (tmp_path / "letter.txt").read_text() == "dear"
    assert (tmp_path / "page.html").read_bytes() == b"two"


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(2**27)  # all of it a hole
    assert call("report", str(tmp_path)) == 2
    with pytest.raises(ValueError, match=r"config\.json has 134,217,728 bytes: at most 1,000 are"):
        Directory(tmp_path).read_bytes("config.json", 1000)


@pytest.mark.parametrize("handles", [True, False])
def test_without_handles_links_are_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handles: bool
) -> None:
    """As on Windows."""
    if not handles:
        monkeypatch.setattr("cclp.files.HAS_HANDLES", False)
        monkeypatch.setattr("cclp.files.NO_FOLLOW", 0)
    (tmp_path / "letter.txt").write_text("dear")
    (tmp_path / "link").symlink_to(tmp_path / "letter.txt")
    (tmp_path / "folder").symlink_to(tmp_path)
    here, inside = Directory(tmp_path), Directory(tmp_path, "folder")
    refused: list[Callable[[], object]] = [
        lambda: here.read_bytes("link"),
        lambda: here.append("link", b"x"),
        lambda: here.has("link"),
        lambda: inside.read_bytes("letter.txt"),
        lambda: inside.write_bytes("new", b"x"),
        lambda: inside.names(),
        lambda: inside.remove("letter.txt"),
        inside.make,
    ]
    for use in refused:
        with pytest.raises(ValueError, match="is a link: expected"):
            use()
    here.write_bytes("link", b"new")  # replaces the link
    here.append("link", b"er")
    assert here.read_bytes("link") == b"newer"
    assert here.read_bytes("letter.txt") == b"dear"
    assert here.names(r"l.*") == ["letter.txt", "link"]


def test_a_renamed_file_is_followed_by_a_sync_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a power loss would take the name away again."""
    events: list[str] = []
    sync, replace, link = os.fsync, os.replace, os.link

    def synced(file: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        sync(file)

    def replaced(*names: Any, **handles: Any) -> None:
        events.append("name")
        replace(*names, **handles)

    def linked(*names: Any, **handles: Any) -> None:
        events.append("name")
        link(*names, **handles)

    monkeypatch.setattr("os.fsync", synced)
    monkeypatch.setattr("os.replace", replaced)
    monkeypatch.setattr("os.link", linked)
    for new in (True, False):
        events.clear()
        write_bytes(tmp_path / "file", b"content", new=new)
        assert events == ["file", "name", "folder"]
    events.clear()
    folder = Directory(tmp_path, "inside")
    folder.make()
    assert events == ["folder"]
    events.clear()
    folder.append("lines", b"one\n")
    folder.append("lines", b"two\n")
    assert events == ["folder"]  # once: the name is there


def test_a_page_that_was_changed_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run")
    page = run / "report.html"
    assert call("report", str(run)) == 0
    first = page.read_bytes()
    assert call("report", str(run)) == 0
    assert page.read_bytes() == first
    for edited in (
        first.replace(b"<main>", b"<main><p>My remark.</p>"),
        first + b"<p>My remark.</p>",
        first.rpartition(b"<!-- sha256:")[0],
    ):
        assert edited != first
        page.write_bytes(edited)
        capsys.readouterr()
        assert call("report", str(run)) == 2
        assert "never overwritten: move it away" in capsys.readouterr().err
        assert page.read_bytes() == edited


@pytest.fixture(scope="module")
def finished(half: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("strangers") / "finished"
    shutil.copytree(half, out)
    resume(out)
    return out


def opened_by(run: Path) -> dict[str, Callable[[], object]]:
    """All that opens a run."""
    return {
        "predict": lambda: list(predict(run, [])),
        "evaluate": lambda: evaluate(run),
        "export": lambda: export(run, run.with_name("exported"), "safetensors"),
        "report": lambda: make_report([run]),
        "lab": lambda: RunView(run),
    }


@pytest.mark.parametrize("by", ["predict", "evaluate", "export", "report", "lab", "resume"])
def test_a_changed_configuration_is_refused_wherever_a_run_is_opened(
    finished: Path, tmp_path: Path, by: str
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    about = json.loads((run / "config.json").read_text())
    about["data"]["classes"].reverse()
    (run / "config.json").write_text(json.dumps(about))
    opened = opened_by(run) | {"resume": lambda: resume(run)}
    with pytest.raises(ValueError, match=r"config\.json has changed since checkpoint 12"):
        opened[by]()
    shutil.copy(finished / "config.json", run)
    opened[by]()


def test_a_pipe_in_place_of_data_is_one_line(finished: Path, tmp_path: Path) -> None:
    """Opening it would wait for ever."""
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"a\.npz must be a file"):
        list(predict(finished, [tmp_path / "a.npz"]))


@pytest.mark.parametrize("by", ["predict", "evaluate", "export", "report", "lab", "resume"])
def test_a_checkpoint_of_another_seed_is_refused(
    half: Path, finished: Path, tmp_path: Path, by: str
) -> None:
    other = tmp_path / "other"
    with pytest.raises(Stopped):
        train(tiny_config(seed=1), other, should_stop=stop_after(8))
    run = Path(shutil.copytree(half if by == "resume" else finished, tmp_path / "run"))
    shutil.rmtree(run / "checkpoint")
    shutil.copytree(other / "checkpoint", run / "checkpoint")
    with pytest.raises(ValueError, match="or that is of another run"):
        (opened_by(run) | {"resume": lambda: resume(run)})[by]()


@pytest.fixture
def of_a_table(tmp_path: Path) -> Path:
    """A run of this user, on a table."""
    own_table(tmp_path / "t.csv")
    few = ["--per-class", "2", "--unlabeled-batch", "8", "--max-steps", "4", "--method", "cclp"]
    out = tmp_path / "run"
    given = ["train", str(tmp_path / "t.csv"), "--target", "kind", "--out", str(out), "--quiet"]
    assert call(*given, *few) == 0
    return out


@pytest.fixture
def as_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user, with a cache of its own: all runs are strangers'."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))


def test_paths_of_an_own_run_need_not_be_named(of_a_table: Path, cache: Path) -> None:
    assert is_own(of_a_table)
    assert stat.S_IMODE((cache / "cclp" / "key").stat().st_mode) == 0o600
    assert call("evaluate", str(of_a_table)) == 0
    copy = of_a_table.with_name("copy")
    shutil.copytree(of_a_table, copy)
    (copy / "result.json").unlink()
    assert call("train", "--resume", str(copy), "--quiet") == 0


@pytest.mark.parametrize("how", ["another user", "changed", "no signature"])
def test_data_of_a_strangers_run_are_named_again(
    of_a_table: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
    how: str,
) -> None:
    table = of_a_table.with_name("t.csv")
    if how == "another user":
        request.getfixturevalue("as_another")
    else:
        shutil.rmtree(of_a_table / "checkpoint")
        about = json.loads((of_a_table / "config.json").read_text())
        about |= {"command": "another"} if how == "changed" else {"signature": None}
        (of_a_table / "config.json").write_text(json.dumps(about))
    (of_a_table / "result.json").unlink()
    assert not is_own(of_a_table)
    commands = [["train", "--resume", str(of_a_table), "--quiet"], ["evaluate", str(of_a_table)]]
    for command in commands:
        if command[0] == "train" or how == "another user":
            capsys.readouterr()
            assert call(*command) == 2
            said = capsys.readouterr().err
            assert said.endswith(f"only if you name it again: add --data-dir {table}\n")
        assert call(*command, "--data-dir", str(table)) == 0
    view = RunView(of_a_table)
    assert "add --data-dir" in view.point(4, 0)["no_images"]


def test_devices_of_a_strangers_run_are_named_again(run: Path) -> None:
    about = json.loads((run / "config.json").read_text())
    about["config"]["devices"] = 24
    (run / "config.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="only if you name it again: add --devices 24"):
        resume(run)
    with pytest.raises(ValueError, match="--devices 2 is not possible: this run has 24"):
        resume(run, devices=2)


def test_features_of_a_strangers_run_are_named_again(run: Path, tmp_path: Path) -> None:
    about = json.loads((run / "config.json").read_text())
    about["config"] |= {"method": "graph_pseudo_label", "settings": {}}
    about["config"]["pseudo_label_features"] = str(tmp_path / "features.npy")
    (run / "config.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"add --pseudo-label-features .*features\.npy"):
        resume(run)


def test_reading_a_run_fetches_nothing(
    half: Path, tmp_path: Path, offline_programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the data that it names, nor others."""
    run = Path(shutil.copytree(half, tmp_path / "run"))
    with pytest.raises(ValueError, match="run 'cclp data fetch mnist'"):
        evaluate(run, "mnist", data_dir=tmp_path / "data")
    about = json.loads((run / "config.json").read_text())
    about["config"]["data"] = "mnist"
    shutil.rmtree(run / "checkpoint")
    (run / "config.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="run 'cclp data fetch mnist'"):
        resume(run, data_dir=tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_npm_has_no_secrets_and_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An .npmrc beside the data could send environment variables anywhere."""
    programs, data, told = tmp_path / "programs", tmp_path / "data", tmp_path / "told"
    programs.mkdir()
    data.mkdir()
    (data / ".npmrc").write_text("registry=http://127.0.0.1:9/${SECRET}/\n")
    (data / "package.json").write_text('{"workspaces": ["**"]}')
    script = f'#!/bin/sh\n{{ pwd -P; echo "$@"; env; }} > {told}\nexit 1\n'
    (programs / "npm").write_text(script)
    (programs / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("SECRET", "abcdef")
    with pytest.raises(ValueError, match="could not fetch"):
        fetch_published("mnist", data)
    where, arguments, *environment = told.read_text().splitlines()
    assert not Path(where).is_relative_to(data.resolve())
    assert f"--prefix {where} --userconfig {where}/userconfig --globalconfig {where}/" in arguments
    assert f"HOME={where}" in environment
    assert not any("abcdef" in line for line in environment)
    assert not Path(where).exists()
