"""Files from strangers: nothing in them runs, escapes its folder or fills the memory."""

import csv
import gzip
import hashlib
import io
import json
import pickle
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from cclp.data import budget
from cclp.data.npz import read_npz
from cclp.data.published.formats import parse_cifar, parse_idx, parse_svhn
from cclp.data.unpack import read_content, unpack_tar
from cclp.data.user.images import decode_all
from cclp.data.user.load import load_user_data
from cclp.experiments.folder import read_results
from cclp.files import parse_json
from cclp.pseudo_labels.features import read_features
from cclp.pseudo_labels.neighbours import find_neighbours
from cclp.report.page import make_report
from cclp.runs.checkpoint import load_checkpoint
from cclp.runs.inference import evaluate
from cclp.runs.start import resume, train
from tests.command_line import call
from tests.runs import npz, tiny_config


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hostile") / "run"
    train(tiny_config(), out)
    return out


def test_the_trap_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))
    assert (tmp_path / "sprung").exists()


READERS: dict[str, Callable[[Path], object]] = {
    "a.npz": load_user_data,
    "a.csv": lambda path: load_user_data(path, target="kind"),
    "a.npy": lambda path: read_features(path, 1),
    "a.idx": lambda path: parse_idx(read_content(path), path, 3),
    "a.mat": lambda path: parse_svhn(read_content(path), path),
    "a.bin": lambda path: parse_cifar(read_content(path), path),
    "results.json": lambda path: read_results(path.parent),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("packed", ["plain", "gzipped", "array", "archive"])
def test_a_pickle_in_place_of_data_is_refused(tmp_path: Path, name: str, packed: str) -> None:
    trap = Trap(tmp_path / "sprung")
    content = pickle.dumps(trap)
    if packed == "gzipped":
        content = gzip.compress(content)
    elif packed == "array":
        file = io.BytesIO()
        np.save(file, np.array([trap], object), allow_pickle=True)
        content = file.getvalue()
    elif packed == "archive":
        content = npz(X=np.array([trap], object), y=np.array([trap], object))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=name):
        READERS[name](tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_in_place_of_an_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    ((good, _, bad),) = decode_all([tmp_path / "a.png"], (3, 8, 8))
    assert (len(good), len(bad)) == (0, 1)
    assert not (tmp_path / "sprung").exists()


def test_pickles_in_a_run_are_refused(finished: Path, tmp_path: Path) -> None:
    """Even with the right hash beside them."""
    out, content = tmp_path / "run", pickle.dumps(Trap(tmp_path / "sprung"))
    shutil.copytree(finished, out)
    for manifest in (out / "checkpoint").glob("*.json"):
        about = json.loads(manifest.read_text())
        digest = hashlib.sha256(content)
        digest.update(json.dumps([about["step"], about["info"]], sort_keys=True).encode())
        manifest.write_text(json.dumps({**about, "sha256": digest.hexdigest()}))
        manifest.with_suffix(".safetensors").write_bytes(content)
    said: list[str] = []
    with pytest.raises(ValueError, match="no checkpoint in"):
        load_checkpoint(out / "checkpoint", said.append)
    assert len(said) == 2
    assert not any("SHA-256" in line for line in said)
    archive = npz(**{name: np.array([Trap(tmp_path / "sprung")], object) for name in "zy"})
    for name in ("config.json", "result.json", "predictions.npz", "embedding/00000012.npz"):
        for bad in (content, archive):
            copy = tmp_path / "copy"
            shutil.copytree(finished, copy)
            (copy / name).write_bytes(bad)
            with pytest.raises(ValueError, match=name):
                make_report([copy])
            if name == "config.json":
                for use in (resume, evaluate):
                    with pytest.raises(ValueError, match=name):
                        use(copy)
            shutil.rmtree(copy)
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_in_the_cache_is_not_loaded(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    whole = find_neighbours(points, None, 5, tmp_path)
    (path,) = tmp_path.iterdir()
    file = io.BytesIO()
    np.savez(file, distance=np.array([Trap(tmp_path / "sprung")], object), index=np.zeros(1))
    path.write_bytes(hashlib.sha256(file.getvalue()).digest() + file.getvalue())
    for found, expected in zip(find_neighbours(points, None, 5, tmp_path), whole, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert not (tmp_path / "sprung").exists()


def test_members_of_an_archive_stay_in_their_folder(tmp_path: Path) -> None:
    scratch = tmp_path / "a" / "scratch"
    scratch.mkdir(parents=True)
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        for name in ("../../x.bin", str(tmp_path / "y.bin"), "z.bin", "other.bin"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("folder/w.bin")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
        archive.addfile(link)
    unpack_tar(tmp_path / "evil.tar", {f"{letter}.bin" for letter in "xyzw"}, scratch)
    assert sorted(path.name for path in scratch.iterdir()) == ["x.bin", "y.bin", "z.bin"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "evil.tar"]


def test_what_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert budget.unpack_limit(1) == 2**30
    assert budget.unpack_limit(2**25) == 100 * 2**25
    monkeypatch.setattr(budget, "unpack_limit", lambda packed: 10_000)
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(10_001)))
    with pytest.raises(ValueError, match=r"bomb .* unpacks to more than 10,000 bytes"):
        read_content(path)
    path.write_bytes(npz(**{f"X{n}": np.zeros(100) for n in range(20)}))
    with pytest.raises(ValueError, match=r"bomb .* unpacks to more than 10,000 bytes"):
        read_npz(path)
    matrix = io.BytesIO()
    savemat(matrix, {"X": np.zeros(2000)}, do_compression=True)
    with pytest.raises(ValueError, match=r"bomb .* unpacks to more than 10,000 bytes"):
        parse_svhn(matrix.getvalue(), path)
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("a.bin")
        member.size = 10_001
        archive.addfile(member, io.BytesIO(bytes(10_001)))
    with pytest.raises(ValueError, match=r"a\.bin unpacks to more than 10,000 bytes"):
        unpack_tar(path, {"a.bin"}, tmp_path)
    assert not (tmp_path / "a.bin").exists()


def test_an_archive_whose_members_share_their_bytes(tmp_path: Path) -> None:
    """A name in the list again and again, each time at the same place."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        member = io.BytesIO()
        np.save(member, np.zeros(2**20, np.uint8))
        for number in range(3):
            archive.writestr(f"X{number}.npy", member.getvalue())
        for info in archive.filelist:
            info.header_offset = 0
    (tmp_path / "a.npz").write_bytes(file.getvalue())
    with pytest.raises(ValueError, match=r"a\.npz must be an \.npz file"):
        read_npz(tmp_path / "a.npz")


def test_an_image_that_claims_to_be_enormous(tmp_path: Path) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b""))
    (tmp_path / "a.png").write_bytes(png + chunk(b"IEND", b""))
    ((_, _, (bad,)),) = decode_all([tmp_path / "a.png"], (3, 8, 8))
    assert "3600000000 pixels" in bad.reason


def test_names_that_begin_formulas_are_written_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{n / 2},{('=1+1', '-2')[n // 20]}" for n in range(40)]
    Path("=mine.csv").write_text("\n".join(["size,kind", *lines]) + "\n")
    few = ["--per-class", "2", "--unlabeled-batch", "8", "--max-steps", "20", "--quiet"]
    assert call("train", "=mine.csv", "--target", "kind", *few, "--out", "run") == 0
    assert call("predict", "run", "=mine.csv", "--out", "p.csv") == 0
    with open("p.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["file"] for row in rows} == {"'=mine.csv"}
    assert {row["class"] for row in rows} == {"'=1+1", "-2"}  # a number is no formula


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"seed": 1' + b"0" * 400 + b"}", "a number of 401 digits, 10000000…"),
        (b"-1" + b"0" * 4000, "a number of 4002 digits"),
        (str(2**63).encode(), "a number of 19 digits"),
        (b'"\\ud800"', "an invalid code point"),
        (b'"\xed\xa0\x80"', "not text in UTF-8, at byte 1"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_json_can_say_and_programs_cannot_hold(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(content)


def test_json_as_people_and_programs_write_it() -> None:
    assert parse_json(b"\xef\xbb\xbf[1, -9223372036854775808]") == [1, -(2**63)]
    assert parse_json(b'"C:\\\\udata \\ud83d\\ude00 \\udce9"') == "C:\\udata \U0001f600 \udce9"


def test_text_that_is_none_in_arrays(tmp_path: Path) -> None:
    for point in (0x110000, 0xD800, 0xFFFFFFFF):
        bad = np.array([65, point], np.uint32).view("<U1")
        (tmp_path / "a.npz").write_bytes(npz(y=bad))
        with pytest.raises(ValueError, match=r"a\.npz .* y must be text, but holds an invalid"):
            read_npz(tmp_path / "a.npz")
