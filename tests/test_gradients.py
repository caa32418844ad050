"""Histograms of oriented gradients, which the prior compares images by."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cclp.data.load import load
from cclp.pseudo_labels.features import hog_components, hog_features
from cclp.pseudo_labels.prior import LabelGraph, comparable


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
    x = load("digits").train_x.reshape(-1, 1, 8, 8)[:300].repeat(2, 2).repeat(2, 3)
    few = hog_components(x, 64, np.arange(40))
    assert few.shape == (40, 40)
    histograms = hog_features(x)
    exact = ((histograms[:, None] - histograms[:40]) ** 2).sum(2).ravel()
    for most, sampled, least in ((300, 300, 0.9999), (64, 300, 0.95), (64, 150, 0.95)):
        monkeypatch.setattr("cclp.pseudo_labels.features._SAMPLED", sampled)
        z = hog_components(x, most, np.arange(len(x)))
        assert z.shape == (300, most)
        close = ((z[:, None] - z[:40]) ** 2).sum(2).ravel()
        assert np.corrcoef(close, exact)[0, 1] > least


def test_copies_stay_copies_and_blank_images_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = load("digits").train_x.reshape(-1, 1, 8, 8)[:60].repeat(2, 2).repeat(2, 3)
    monkeypatch.setattr("cclp.pseudo_labels.features._BATCH", 50)
    points = comparable(np.concatenate([x, x[::-1], x]))
    assert len(np.unique(points, axis=0)) < 70  # but for the border of a rounding
    blank = LabelGraph(np.full((5, 1, 20, 20), 3), np.array([0, 1, -1, -1, -1]), 2).spread()
    np.testing.assert_allclose(blank[2:], 0.5)


def test_tiny_images_are_compared_by_their_pixels() -> None:
    x = np.random.default_rng(0).normal(size=(9, 1, 8, 8))
    assert comparable(x).shape == (9, 64)


def test_moved_digits_find_each_other() -> None:
    """Each drawing moved by up to three pixels: labels spread over pixels get lost."""
    data = load("digits")
    rng, x = np.random.default_rng(0), data.train_x.reshape(-1, 8, 8)[:1000]
    moved = np.zeros((len(x), 1, 24, 24))
    for image, room in zip(x, moved, strict=True):
        top, left = rng.integers(0, 7, 2)
        room[0, top : top + 16, left : left + 16] = image.repeat(2, 0).repeat(2, 1)
    y = data.train_y[: len(x)]
    few = np.where(np.arange(len(y)) < 100, y, -1)

    def right(samples: NDArray[np.float64]) -> float:
        return float((LabelGraph(samples, few, 10).spread().argmax(1) == y).mean())

    assert right(moved) > right(moved.reshape(len(x), -1)) + 0.1
