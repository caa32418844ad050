"""Files to arrays: parsers, the catalogue, and how inputs are normalised."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cclp.data.catalog import load
from cclp.data.formats import read_idx
from cclp.data.normalize import fit_normalizer
from tests.runs import idx, write_mnist


def test_idx_raw_and_gzipped(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "raw").write_bytes(idx(array))
    (tmp_path / "packed").write_bytes(gzip.compress(idx(array)))
    raw, packed = read_idx(tmp_path / "raw", 3), read_idx(tmp_path / "packed", 3)
    np.testing.assert_array_equal(raw.array, array)
    np.testing.assert_array_equal(packed.array, array)
    assert raw.sha256 == packed.sha256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with nothing"),
        (b"\x80\x04pickle", r"beginning with 00000803, but begins with 80047069"),
        (idx(np.zeros(5, np.uint8)), "begins with 00000801"),
        (idx(np.zeros((2, 3, 4), np.uint8))[:-1], r"must hold 40 bytes .*\(2, 3, 4\).* holds 39"),
        (idx(np.zeros((2, 3, 4), np.uint8)) + b"x", "holds 41"),
        (gzip.compress(idx(np.zeros((2, 3, 4), np.uint8)))[:-9], "damaged gzip"),
    ],
)
def test_idx_names_the_file_and_what_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_idx(tmp_path / "images", 3)
    assert str(tmp_path / "images") in str(caught.value)


def test_digits_are_bundled_and_split_once() -> None:
    data = load("digits")
    assert data.train_x.shape == (1347, 1, 8, 8)
    assert data.test_x.shape == (450, 1, 8, 8)
    assert data.train_x.max() == 16
    assert data.verified
    # the split is ours: results elsewhere rest on it
    assert data.fingerprint.startswith("060862727d42")
    assert set(np.bincount(data.test_y)) <= {43, 44, 45, 46}


@pytest.mark.parametrize("folder", [".", "mnist", "MNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_mnist_is_found_where_people_keep_it(tmp_path: Path, folder: str, packed: bool) -> None:
    x, y = write_mnist(tmp_path / folder, packed=packed)
    data = load("mnist", tmp_path)
    np.testing.assert_array_equal(data.train_x[:, 0], x)
    np.testing.assert_array_equal(data.train_y, y)
    assert data.train_x.shape[1:] == (1, 28, 28)
    assert data.train_y.dtype == np.int64
    assert not data.verified


def test_mnist_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CCLP_DATA", raising=False)
    with pytest.raises(ValueError, match="--data-dir or CCLP_DATA"):
        load("mnist")
    write_mnist(tmp_path)
    monkeypatch.setenv("CCLP_DATA", str(tmp_path))
    assert len(load("mnist").train_x) == 60


def test_mnist_that_does_not_fit_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no train-images-idx3-ubyte or train-images"):
        load("mnist", tmp_path)
    write_mnist(tmp_path, packed=False)
    labels = tmp_path / "train-labels-idx1-ubyte"
    labels.write_bytes(idx(np.full(59, 3, np.uint8)))
    with pytest.raises(ValueError, match="60 images and 59 labels"):
        load("mnist", tmp_path)
    labels.write_bytes(idx(np.full(60, 10, np.uint8)))
    with pytest.raises(ValueError, match="labels up to 10"):
        load("mnist", tmp_path)


def test_unknown_data_names_what_there_is() -> None:
    with pytest.raises(ValueError, match="one of digits, mnist, got 'minst'"):
        load("minst")


def test_fingerprint_sees_every_byte(tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=False)
    before = load("mnist", tmp_path).fingerprint
    assert load("mnist", tmp_path).fingerprint == before
    path = tmp_path / "t10k-images-idx3-ubyte"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert load("mnist", tmp_path).fingerprint != before


def _images(channels: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(0)
    scale = np.array([40, 90, 200])[:channels, None, None]
    x: NDArray[np.uint8] = (rng.random((5000, channels, 4, 4)) * scale).astype(np.uint8)
    return x


def test_zscore_per_channel() -> None:
    x = _images(3)
    prepared = fit_normalizer("zscore", x)(torch.tensor(x))
    assert prepared.dtype == torch.float32
    expected = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(prepared.numpy(), expected, atol=1e-5)


def test_zscore_of_vectors_and_constants() -> None:
    x = np.array([[1.0, 7.0], [3.0, 7.0]], np.float32)
    prepared = fit_normalizer("zscore", x)(torch.tensor(x))
    torch.testing.assert_close(prepared, torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))


def test_zca_whitens_and_stays_close_to_the_input() -> None:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(20000, 16)) @ rng.normal(size=(16, 16)) + 5
    x = mixed.reshape(-1, 1, 4, 4).astype(np.float32)
    normalizer = fit_normalizer("zca", x)
    prepared = normalizer(torch.tensor(x)).flatten(1).double().numpy()
    covariance = np.cov(prepared.T)
    values = np.linalg.eigvalsh(np.cov(mixed.T))
    expected = values / (values + 0.01 * values.mean())  # what the floor leaves of 1
    np.testing.assert_allclose(
        np.sort(np.linalg.eigvalsh(covariance)), np.sort(expected), atol=0.01
    )
    np.testing.assert_allclose(prepared.mean(0), 0, atol=1e-3)
    matrix = normalizer.matrix
    assert isinstance(matrix, torch.Tensor)
    torch.testing.assert_close(matrix, matrix.T)


def test_zca_of_pixels_that_never_change() -> None:
    x = _images(1)
    x[:, :, 0] = 0
    prepared = fit_normalizer("zca", x)(torch.tensor(x))
    assert prepared.isfinite().all()
    assert prepared.abs().max() < 10
    constant = fit_normalizer("zca", np.full((10, 1, 2, 2), 3, np.uint8))
    assert (constant(torch.full((2, 1, 2, 2), 3)) == 0).all()
