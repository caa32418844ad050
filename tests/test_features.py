"""HOG features of images, principal components of vectors, and features of the user's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

from cclp.data.normalize import ZScore
from cclp.pseudo_labels import features
from cclp.pseudo_labels.features import fit_features, hog_features, make_features, read_features
from tests.pseudo_labels import drawings, wine


def edges(angle: float, side: int = 24, channels: int = 1) -> NDArray[np.float64]:
    """A straight edge through the middle, whose gradient points that way."""
    along = np.arange(side) - (side - 1) / 2
    slope = np.cos(angle) * along + np.sin(angle) * along[:, None]
    return np.tile(np.tanh(slope), (1, channels, 1, 1))


def directions(image: NDArray[np.float64]) -> NDArray[np.float32]:
    """How much of each direction there is, without place."""
    squares = hog_features(image).reshape(8, -1) ** 2
    return np.asarray(squares.sum(1) / squares.sum())


def test_a_direction_is_counted_where_it_belongs() -> None:
    for k in range(8):
        assert directions(edges(k * np.pi / 8)).argmax() == k
    between = directions(edges(2.5 * np.pi / 8))
    assert between[2] == pytest.approx(between[3], rel=0.15)
    assert between[[2, 3]].sum() > 0.85


def test_contrast_brightness_and_sign_do_not_count() -> None:
    image = np.random.default_rng(0).integers(50, 100, (2, 3, 20, 28))
    plain = hog_features(image)
    for other in (2 * image, image + 90, 255 - image):
        np.testing.assert_allclose(hog_features(other), plain, atol=2e-3)
    np.testing.assert_allclose((plain**4).sum(1), 1, rtol=1e-5)


def test_the_steepest_channel_counts() -> None:
    image = np.zeros((1, 3, 24, 24))
    image[:, 1] = edges(0.3)[0]
    image[:, 2] = 0.5 * edges(0.3)[0]
    np.testing.assert_allclose(hog_features(image), hog_features(edges(0.3)))


def test_large_images_are_shrunk() -> None:
    small, large = edges(0.7, 32), edges(0.7, 32).repeat(4, 2).repeat(4, 3)
    np.testing.assert_allclose(hog_features(large), hog_features(small), atol=1e-4)
    assert hog_features(np.zeros((1, 3, 400, 50))).shape == (1, 8 * 16 * 2)


def test_blank_images_are_finite() -> None:
    np.testing.assert_array_equal(hog_features(np.full((2, 1, 28, 28), 7, np.uint8)), 0)


def test_components_of_a_sample_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawings(300)
    assert make_features(x, np.arange(40)).shape == (40, 40)
    histograms = hog_features(x)
    exact = ((histograms[:, None] - histograms[:40]) ** 2).sum(2).ravel()
    for most, sampled, least in ((300, 300, 0.9999), (64, 300, 0.95), (64, 150, 0.95)):
        monkeypatch.setattr(features, "MAX_FEATURES", most)
        monkeypatch.setattr(features, "PCA_SAMPLES", sampled)
        z = make_features(x)
        assert z.shape == (300, most)
        close = ((z[:, None] - z[:40]) ** 2).sum(2).ravel()
        assert np.corrcoef(close, exact)[0, 1] > least


def test_new_samples_become_points_as_the_first_ones_did() -> None:
    wide = np.random.default_rng(0).normal(size=(300, 100)) * np.linspace(1, 3, 100)
    for x in (drawings(300), wine()[0], wide):
        found = fit_features(x)
        points = found(x)
        np.testing.assert_allclose(found(x[20:50]), points[20:50], atol=2e-4)
        np.testing.assert_array_equal(found(x, np.array([3, 3, 7])), points[[3, 3, 7]])


def test_a_table_says_whether_its_units_differ() -> None:
    found = fit_features(wine()[0])
    assert found.standardised
    assert found.spread == pytest.approx((wine()[0].std(0).min(), wine()[0].std(0).max()))
    assert not fit_features(np.random.default_rng(0).normal(size=(50, 4))).standardised


def test_duplicates_stay_duplicates() -> None:
    """In whatever batch they are."""
    x = drawings(200)
    points = make_features(np.concatenate([x, x[::-1], x]))
    assert len(np.unique(points, axis=0)) < 230  # but for the border of a rounding


def test_tiny_images_are_compared_by_their_pixels() -> None:
    x = np.random.default_rng(0).normal(size=(9, 1, 8, 8))
    centred = (x - np.median(x, 0)).reshape(9, 64)
    power = 2 ** np.floor(np.log2(x.std(0).max()))
    np.testing.assert_allclose(make_features(x), centred / power, atol=1e-6)


def test_columns_of_different_units_are_standardised() -> None:
    X, _ = wine()
    np.testing.assert_allclose(make_features(X).std(0), 1, rtol=1e-4)
    pixels = np.random.default_rng(0).uniform(0, [1, 2, 5], (100, 3))
    spread = make_features(pixels).std(0)
    np.testing.assert_allclose(spread / spread[0], pixels.std(0) / pixels[:, 0].std(), rtol=1e-4)


def test_constant_columns_have_no_unit() -> None:
    """The mean of 0.1 is not 0.1: what is left is rounding."""
    X = np.column_stack([np.random.default_rng(0).normal(size=(400, 2)), np.full((400, 4), 0.1)])
    found = fit_features(X)
    assert not found.standardised
    assert found.spread[0] > 0.5
    moved = X.copy()
    moved[:, 2] += 1e-3
    assert ZScore.fit(X)(torch.tensor(moved))[:, 2].abs().max() < 1


@pytest.mark.parametrize("columns", [2, 100])
def test_an_outlier_does_not_merge_the_others(columns: int) -> None:
    X, _ = make_blobs(600, columns, centers=3, cluster_std=3, random_state=0)
    X[17] = 1e9
    assert len(np.unique(make_features(X), axis=0)) == 600


def test_units_do_not_matter_however_small_or_large() -> None:
    X, _ = make_blobs(100, 5, random_state=0)
    for unit in (2.0**-80, 2.0**80):
        np.testing.assert_array_equal(make_features(unit * X), make_features(X))


def test_very_many_features_keep_their_distances() -> None:
    """By a randomised solver, the same each time: the covariance of 2,500 would take a while."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20)) @ rng.normal(size=(20, 2500)) + 0.1 * rng.normal(
        size=(300, 2500)
    )
    first, second = make_features(X), make_features(X)
    np.testing.assert_array_equal(first, second)
    assert first.shape == (300, 64)
    scale = np.linalg.norm(X[0] - X[1]) / np.linalg.norm(first[0] - first[1])
    for i, j in ((2, 3), (4, 100), (200, 299)):
        assert np.linalg.norm(first[i] - first[j]) * scale == pytest.approx(
            np.linalg.norm(X[i] - X[j]), rel=0.01
        )


def test_many_features_become_components() -> None:
    x = np.random.default_rng(0).normal(size=(200, 3, 8, 8))
    assert make_features(x).shape == (200, 64)
    assert make_features(x[:50]).shape == (50, 192)


def test_features_of_some_rows() -> None:
    rows = np.arange(5, 40, 3)
    for x in (drawings(40), wine()[0]):
        np.testing.assert_allclose(make_features(x, rows), make_features(x[rows]), atol=1e-6)


def test_own_features_are_read_as_rows(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 9, (6, 2, 3))
    np.save(tmp_path / "f.npy", np.asfortranarray(values))
    found = read_features(tmp_path / "f.npy", 6)
    np.testing.assert_array_equal(found, values.reshape(6, 6))
    assert found.dtype == np.float32
    assert found.flags.c_contiguous


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros((3, 2)), r"for each of the 6 training samples, got shape \(3, 2\)"),
        (np.zeros(6), r"got shape \(6,\)"),
        (np.zeros((6, 0)), r"got shape \(6, 0\)"),
        (np.full((6, 2), np.nan), "must be finite"),
        (np.full((6, 2), 1e300), "must be finite"),
        (np.full((6, 2), "a"), "must be an .npy array of numbers"),
        (np.full((6, 2), None), "cannot be read as .npy"),
        (None, "cannot be read as .npy"),
    ],
)
def test_own_features_that_cannot_be_used(
    content: NDArray[Any] | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        np.save(tmp_path / "f.npy", content)
    with pytest.raises(ValueError, match=rf"pseudo_label_features \S+f.npy .*{message}"):
        read_features(tmp_path / "f.npy", 6)
