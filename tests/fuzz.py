"""Damaged bytes for every reader of files: ``make fuzz``, and fewer of them in ``make test``.

A reader returns what it read, or raises a ValueError in words: no other exception, no hang, and no
more memory than a limit.
"""

import argparse
import gzip
import io
import json
import resource
import shutil
import signal
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import openpyxl
import pyarrow
import torch
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet

from cclp.data.dataset import InputSpec
from cclp.data.npz import read_npz
from cclp.data.published.formats import parse_cifar, parse_idx, parse_svhn
from cclp.data.unpack import read_content
from cclp.data.user.csv_file import read_csv
from cclp.data.user.encode import encode
from cclp.data.user.fit import fit_columns
from cclp.data.user.images import decode_all
from cclp.data.user.load import load_user_data
from cclp.experiments.folder import read_results
from cclp.files import marked_page, write_between, write_json
from cclp.lab.run import RunView
from cclp.pseudo_labels.features import read_features
from cclp.report.experiment import make_experiment_page
from cclp.report.page import make_report
from cclp.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from cclp.runs.record import damage_named, read_config, read_metrics
from cclp.runs.start import train
from cclp.training.machine import environment
from tests.fuzz_structure import restructure
from tests.records import write_generated, write_unlabeled, write_verdict
from tests.runs import cifar, idx, npz, png, svhn, tiny_config

SECONDS = 20
STRUCTURED = (".json", ".jsonl", ".npz")  # suffixes of files whose structure can be changed
HASHED = "checkpoint's manifest"  # any change of it is the same one
MOST_MEMORY = 2**30  # more than at the start, in bytes
MARKS = "<!-- make fuzz writes from here -->", "<!-- to here: fuzz -->"
# What readers of text and of headers trip over.
_TOKENS = (
    b"NaN", b"-1", b"1e999", b"null", b"true", b"[]", b"{}", b'""', b'"', b"\\", b"[" * 3000,
    b"\x00", b"\xff", b"9" * 30, b"9" * 5000, b",", b";", b"\n", b"\r", b"(", b"0", b"\xe2\x80\xa8",
)  # fmt: skip


class Target(NamedTuple):
    """A kind of file: one that is whole, where it lies, and who reads it.

    Attributes:
        path: the file.
        read: it.
    """

    path: Path
    read: Callable[[], object]


class Counts(NamedTuple):
    """How often damaged bytes were read all the same, and how often they were refused."""

    read: int
    refused: int


class Hang(BaseException):
    """A reader has taken too long."""


def make_targets(folder: Path) -> dict[str, Target]:
    """A file of every kind in a new folder each."""
    images = np.arange(2 * 4 * 5, dtype=np.uint8).reshape(2, 4, 5)
    colour, classes = np.zeros((2, 3, 32, 32), np.uint8), np.array([1, 2])

    def own(name: str, content: bytes, read: Callable[[Path], object]) -> Target:
        path = folder / name / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        return Target(path, lambda: read(path))

    named = {"X.npy": np.zeros((3, 2)), "y.npy": np.array([0, 1, -1])}
    (folder / "own.npy").mkdir()
    for name, array in named.items():
        np.save(folder / "own.npy" / name, array)
    table = b"size;colour;kind\n1,5;red;a\n2;blue;b\n;red;b\n"
    features = io.BytesIO()
    np.save(features, np.zeros((2, 3), np.float32))
    targets = {
        target.path.name: target
        for target in (
            own("a.idx", idx(images), lambda p: parse_idx(read_content(p), p, 3)),
            own("a.idx.gz", gzip.compress(idx(images)), lambda p: parse_idx(read_content(p), p, 3)),
            own("a.bin", cifar(colour, classes), lambda p: parse_cifar(read_content(p), p)),
            own("a.mat", svhn(colour, classes), lambda p: parse_svhn(read_content(p), p)),
            own("a.npz", npz(X=np.zeros((2, 3)), y=np.array(["a", ""])), read_npz),
            own("own.npz", npz(X=np.zeros((2, 3)), y=np.array([1, 0])), load_user_data),
            own("a.csv", table, _encode),
            own("own.csv", table, lambda p: load_user_data(p, target="kind")),
            own("own.csv.gz", gzip.compress(table), lambda p: load_user_data(p, target="kind")),
            own("own.parquet", _parquet(), lambda p: load_user_data(p, target="kind")),
            own("own.xlsx", _xlsx(), lambda p: load_user_data(p, target="kind")),
            own("a.npy", features.getvalue(), lambda p: read_features(p, 2)),
            own("a.png", png(np.zeros((9, 7, 3), np.uint8)), _decode),
            own("a.tif", _tiff(np.full((9, 7), 4000, np.uint16)), _decode),
            own("own.zip", _archive("zip"), load_user_data),
            own("own.tar", _archive("tar"), load_user_data),
            own("own.tar.gz", _archive("tar.gz"), load_user_data),
            own("labels.csv", b"file,label\n1.png,a\n2,b\n3,\n", _load_with_images),
        )
    }
    samples = folder / "own.npy" / "X.npy"
    targets["own.npy"] = Target(samples, lambda: load_user_data(samples))
    return targets | _of_a_run(folder / "run") | _of_an_experiment(folder / "experiment")


def _tiff(pixels: NDArray[Any]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "tiff")
    return content.getvalue()


def _archive(kind: str) -> bytes:
    """An archive of two images, not compressed so that damage reaches the names and sizes."""
    content, image = io.BytesIO(), png(np.zeros((9, 7, 3), np.uint8))
    if kind == "zip":
        with zipfile.ZipFile(content, "w") as archive:
            for name in ("top/a/1.png", "top/b/2.png"):
                archive.writestr(name, image)
        return content.getvalue()
    with tarfile.open(fileobj=content, mode="w") as packed:
        for name in ("top/a/1.png", "top/b/2.png"):
            member = tarfile.TarInfo(name)
            member.size = len(image)
            packed.addfile(member, io.BytesIO(image))
    return gzip.compress(content.getvalue()) if kind == "tar.gz" else content.getvalue()


def _load_with_images(path: Path) -> None:
    """A table of labels with the images beside it."""
    for number in range(1, 5):
        image = path.with_name(f"{number}.png")
        if not image.exists():
            image.write_bytes(png(np.zeros((9, 7, 3), np.uint8)))
    load_user_data(path.parent)


def _parquet() -> bytes:
    content = io.BytesIO()
    columns = {"size": [1.5, 2.0, None], "colour": ["red", "blue", "red"], "kind": ["a", "b", "b"]}
    parquet.write_table(pyarrow.table(columns), content)
    return content.getvalue()


def _xlsx() -> bytes:
    content, book = io.BytesIO(), openpyxl.Workbook()
    for row in (["size", "colour", "kind"], [1.5, "red", "a"], [2, "blue", "b"]):
        book.active.append(row)
    book.save(content)
    return content.getvalue()


def _encode(path: Path) -> None:
    """A table by the columns that are fitted to it."""
    table = read_csv(path)
    encode(table, fit_columns(table, "kind").columns)


def _decode(path: Path) -> None:
    """An image that cannot be read is named, not raised."""
    for _, _, bad in decode_all([path], (3, 8, 8)):
        for item in bad:
            raise ValueError(f"{item}")


def _of_a_run(out: Path) -> dict[str, Target]:
    config = tiny_config(max_steps=4, evaluate_every=2, checkpoint_every=2)
    train(replace(config, recipe=replace(config.recipe, unlabeled_batch=4)), out)

    def resumable() -> None:
        about, _ = read_config(out)
        make_report([out])
        RunView(out).summary()
        with damage_named(out / "config.json"):
            InputSpec.from_json(about["data"])

    def metrics() -> None:
        read_metrics(out)
        make_report([out])

    shutil.rmtree(out / "checkpoint")  # that would tell a changed config.json
    write_verdict(out)
    write_unlabeled(out, [[0.7, 0.2, 0.1]], np.zeros((1, 1, 4, 4), np.uint8))
    write_generated(out)
    checkpoints = out.with_name("checkpoint")
    save_checkpoint(checkpoints, Checkpoint(1, {"a": torch.ones(3)}, {"seconds": 1.5, "x": "y"}))
    newest = load_checkpoint(checkpoints, print)
    assert newest is not None

    def checkpoint() -> None:
        said: list[str] = []
        found = load_checkpoint(checkpoints, said.append)
        assert found is not None
        assert (found.step, found.info) == (newest.step, newest.info)  # whole, or not at all
        assert found.tensors["a"].equal(newest.tensors["a"])

    return {
        "config.json": Target(out / "config.json", resumable),
        "metrics.jsonl": Target(out / "metrics.jsonl", metrics),
        "result.json": Target(out / "result.json", lambda: make_report([out])),
        "predictions.npz": Target(out / "predictions.npz", lambda: make_report([out])),
        "unlabeled.npz": Target(out / "unlabeled.npz", lambda: make_report([out])),
        "generated.npz": Target(out / "generated.npz", lambda: make_report([out])),
        "verdict.json": Target(out / "verdict.json", lambda: make_report([out])),
        "embedding": Target(max((out / "embedding").iterdir()), lambda: make_report([out])),
        "checkpoint's manifest": Target(checkpoints / "00000001.json", checkpoint),
        "checkpoint's tensors": Target(checkpoints / "00000001.safetensors", checkpoint),
    }


def _of_an_experiment(out: Path) -> dict[str, Target]:
    shutil.copytree(Path(__file__).parent.parent / "results" / "overhead", out)

    def read() -> None:
        read_results(out)
        make_experiment_page(out)

    return {"results.json": Target(out / "results.json", read)}


def damage(random: Random, content: bytes) -> bytes:
    """The content with a few bytes changed, tokens put in, parts taken out or doubled, cut short.

    Headers are at the front and the back: two of three places are there.
    """
    found = bytearray(content)
    for _ in range(random.randint(1, 4)):
        end = len(found)
        near = random.randint(0, min(end, 400))
        place = random.choice((random.randint(0, end), near, end - near))
        how = random.choice(("set", "flip", "token", "remove", "double", "cut"))
        if how == "set" and place < end:
            found[place] = random.randint(0, 255)
        elif how == "flip" and place < end:
            found[place] ^= 1 << random.randint(0, 7)
        elif how == "token":
            found[place : place + random.randint(0, 8)] = random.choice(_TOKENS)
        elif how == "remove":
            del found[place : place + random.randint(1, 40)]
        elif how == "double":
            found[place:place] = found[place : place + random.randint(1, 40)]
        elif how == "cut":
            del found[place:]
    return bytes(found)


def fuzz(target: Target, examples: int) -> Counts:
    """Read so many damaged files, the same ones each time.

    Raises:
        AssertionError: if a refusal does not name a reason.
        Exception: whatever else than ValueError a reader raises; a note names the example.
        Hang: if it takes too long.
    """
    return _fuzz(
        target, [target.path], lambda random, _, content: damage(random, content), examples
    )


def fuzz_structure(target: Target, examples: int) -> Counts:
    """Read so many files that are well-formed and wrong, as :func:`fuzz` does.

    Every third time, other files of the same folder are wrong too.
    """
    beside = [path for path in sorted(target.path.parent.iterdir()) if path.suffix in STRUCTURED]
    return _fuzz(target, [target.path, *beside], restructure, examples)


def _fuzz(
    target: Target,
    paths: list[Path],
    change: Callable[[Random, Path, bytes], bytes],
    examples: int,
) -> Counts:
    whole = {path: path.read_bytes() for path in paths}
    read, refused = 0, 0
    target.read()  # what is whole is not refused
    try:
        for example in range(examples):
            random = Random(example)
            chosen = [target.path]
            if len(paths) > 1 and example % 3 == 0:
                chosen += random.sample(paths[1:], random.randint(1, len(paths) - 1))
            for path in chosen:
                _overwrite(path, change(random, path, whole[path]))
            try:
                with _bounded():
                    target.read()
                read += 1
            except ValueError as error:
                assert len(str(error).split()) >= 3, repr(error)  # noqa: PT017 - only if raised
                refused += 1
            except BaseException as error:
                error.add_note(f"example {example} of {target.path.name}")
                raise
            finally:
                for path in chosen:
                    _overwrite(path, whole[path])
    finally:
        for path, content in whole.items():
            _overwrite(path, content)
    return Counts(read, refused)


def _overwrite(path: Path, content: bytes) -> None:
    """Without truncating the file first, for which ext4 waits until the disk has written it."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


@contextmanager
def _bounded() -> Iterator[None]:
    """Limits on the memory and the time of what is done within."""

    def hang(number: int, frame: FrameType | None) -> None:
        raise Hang

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, hang)
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_MEMORY, limits[1]))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def table(record: dict[str, Any]) -> str:
    """A row for each kind of file."""
    lines = ["| file | damaged ones | read all the same | refused |", "|---|---|---|---|"]
    rows = [*record["kinds"].items()]
    rows += [(f"{kind}, well-formed", one) for kind, one in record.get("structured", {}).items()]
    for kind, counts in rows:
        read, refused = counts["read"], counts["refused"]
        lines.append(f"| {kind} | {read + refused:,} | {read:,} | {refused:,} |")
    return "\n".join(lines)


def main() -> None:
    """Fuzz every kind of file, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--only", action="append", help="this kind; the others stay as recorded")
    parser.add_argument("--out", type=Path, default=Path("results/fuzz.json"))
    parser.add_argument("--docs", type=marked_page(MARKS), help="put the table into this page")
    options = parser.parse_args()
    before = json.loads(options.out.read_bytes()) if options.only else {}
    kept, structured = before.get("kinds", {}), before.get("structured", {})
    with tempfile.TemporaryDirectory() as folder:
        targets = make_targets(Path(folder))
        for kind in options.only or targets:
            begun = time.monotonic()
            kept[kind] = fuzz(targets[kind], options.examples)._asdict()
            if targets[kind].path.suffix in STRUCTURED and kind != HASHED:
                structured[kind] = fuzz_structure(targets[kind], options.examples // 5)._asdict()
            print(f"{kind}: {kept[kind]}, {time.monotonic() - begun:.0f} s", flush=True)
    record = {
        "kinds": {kind: kept[kind] for kind in targets if kind in kept},
        "structured": {kind: structured[kind] for kind in targets if kind in structured},
        "environment": environment(torch.device("cpu")),
    }
    write_json(options.out, record)
    if options.docs:
        write_between(options.docs, MARKS, table(record))
    print(table(record))


if __name__ == "__main__":
    main()
