"""Parsers: what they read, and that whatever is not right is one ValueError with a sentence."""

import gzip
import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from cclp.data.npz import npz_shapes, read_npz
from cclp.data.published.formats import parse_cifar, parse_idx, parse_mat, parse_svhn
from cclp.data.unpack import read_content
from cclp.data.user.csv_file import read_csv
from cclp.data.user.encode import encode
from cclp.data.user.fit import fit_columns
from cclp.data.user.load import load_user_data
from tests.runs import cifar, idx, npz, svhn

PATH = Path("some/file")
IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def test_idx_raw_and_gzipped(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(idx(IMAGES))
    (tmp_path / "packed").write_bytes(gzip.compress(idx(IMAGES)))
    contents = [read_content(tmp_path / name) for name in ("raw", "packed")]
    assert contents[0] == contents[1]
    np.testing.assert_array_equal(parse_idx(contents[0], PATH, 3), IMAGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with nothing"),
        (b"\x80\x04pickle", r"beginning with 00000803, but begins with 80047069"),
        (idx(np.zeros(5, np.uint8)), "begins with 00000801"),
        (idx(IMAGES)[:-1], r"must hold 40 bytes .*\(2, 3, 4\).* holds 39"),
        (idx(IMAGES) + b"x", "holds 41"),
    ],
)
def test_idx_names_the_file_and_what_is_wrong(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"some/file.*{message}"):
        parse_idx(content, PATH, 3)


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(gzip.compress(idx(IMAGES))[:-9])
    with pytest.raises(ValueError, match=r"packed is a damaged gzip file"):
        read_content(tmp_path / "packed")


def test_cifar() -> None:
    x = np.arange(2 * 3072).reshape(2, 3, 32, 32).astype(np.uint8)
    parsed = parse_cifar(cifar(x, np.array([7, 0])), PATH)
    np.testing.assert_array_equal(parsed.x, x)
    assert parsed.y.tolist() == [7, 0]
    assert parsed.y.dtype == np.int64
    with pytest.raises(ValueError, match=r"some/file must hold records of 3073 .*6145 bytes"):
        parse_cifar(cifar(x, np.array([7, 0]))[:-1], PATH)
    with pytest.raises(ValueError, match=r"classes 0 … 9, but holds 10"):
        parse_cifar(cifar(x, np.array([10, 0])), PATH)


@pytest.mark.parametrize("packed", [True, False])
def test_matlab_files_as_scipy_writes_them(packed: bool) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        f"a_{kind}": rng.integers(0, 100, (2, 3, 4)).astype(kind)
        for kind in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")
    }
    arrays |= {"y": np.array([[3]], np.uint8), "words": "text", "z": np.array([[1j]])}
    content = io.BytesIO()
    savemat(content, arrays, do_compression=packed)
    read = parse_mat(content.getvalue(), PATH)
    assert set(read) == set(arrays) - {"words", "z"}  # no text, no complex numbers
    for name, array in loadmat(content, variable_names=list(read)).items():
        if name in read:
            np.testing.assert_array_equal(read[name], array)
            assert read[name].dtype == array.dtype


def test_svhn() -> None:
    x = np.arange(2 * 3072).reshape(2, 3, 32, 32).astype(np.uint8)
    parsed = parse_svhn(svhn(x, np.array([0, 3])), PATH)  # zero is written as 10
    np.testing.assert_array_equal(parsed.x, x)
    assert parsed.y.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "must hold X and y, but holds X"),
        (
            {"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))},
            r"X must be bytes of shape \(32, 32, 3, N\), got float64 \(32, 32, 3, 2\)",
        ),
        (
            {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.zeros((2, 1), np.uint8)},
            r"y must be numbers 1 … 10 of shape \(2, 1\), got uint8",
        ),
        (
            {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((1, 1))},
            r"y must be .* of shape \(2, 1\), got float64 \(1, 1\)",
        ),
    ],
)
def test_svhn_that_is_none(arrays: dict[str, object], message: str) -> None:
    content = io.BytesIO()
    savemat(content, arrays)
    with pytest.raises(ValueError, match=f"some/file.*{message}"):
        parse_svhn(content.getvalue(), PATH)


def test_npz(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "X": np.arange(6, dtype=np.float32).reshape(2, 3),
        "F": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "names": np.array(["a", "bcd"]),
        "nothing": np.zeros((0, 4)),
    }
    (tmp_path / "a.npz").write_bytes(npz(**arrays))
    assert npz_shapes(tmp_path / "a.npz") == {n: a.shape for n, a in arrays.items()}
    for name, array in read_npz(tmp_path / "a.npz").items():
        np.testing.assert_array_equal(array, arrays[name])
        assert array.dtype == arrays[name].dtype


def test_npz_whose_header_promises_more_than_there_is(tmp_path: Path) -> None:
    member = io.BytesIO()
    np.save(member, np.zeros((2, 3)))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", member.getvalue().replace(b"(2, 3)", b"(9, 9)"))
    with pytest.raises(ValueError, match=r"X of shape \(9, 9\) takes 648 bytes, not 48"):
        read_npz(tmp_path / "a.npz")


SAMPLES: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "idx": (
        idx(IMAGES),
        lambda path: parse_idx(read_content(path), path, 3),
    ),
    "idx.gz": (
        gzip.compress(idx(IMAGES)),
        lambda path: parse_idx(read_content(path), path, 3),
    ),
    "cifar": (
        cifar(np.zeros((2, 3, 32, 32), np.uint8), np.array([1, 2])),
        lambda path: parse_cifar(read_content(path), path),
    ),
    "svhn": (
        svhn(np.zeros((2, 3, 32, 32), np.uint8), np.array([1, 2])),
        lambda path: parse_svhn(read_content(path), path),
    ),
    "npz": (npz(X=np.zeros((2, 3)), y=np.array(["a", ""])), read_npz),
    "csv": (
        b"size;colour;kind\n1,5;red;a\n2;blue;\n;red;b\n",
        lambda path: encode(read_csv(path), fit_columns(read_csv(path), "kind").columns),
    ),
    "own.npz": (npz(X=np.zeros((2, 3)), y=np.array([1, 0])), load_user_data),
    "own.csv": (
        b"size;colour;kind\n1,5;red;a\n2;blue;b\n;red;b\n",
        lambda path: load_user_data(path, target="kind"),
    ),
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_half_a_file_is_refused(kind: str, tmp_path: Path) -> None:
    content, parse = SAMPLES[kind]
    path = tmp_path / kind
    path.write_bytes(content)
    parse(path)
    for size in (0, 1, len(content) // 3 if "csv" not in kind else 8):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=re.escape(str(path))):
            parse(path)
