"""Distances of images that may be bent a little."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import cclp.pseudo_labels.distortion as module
import cclp.pseudo_labels.features as gradients
from cclp.pseudo_labels.distortion import REACH, distortion_distances
from cclp.pseudo_labels.features import steepest_gradients
from cclp.pseudo_labels.prior import _search, comparable


def digits(count: int) -> NDArray[np.float64]:
    """The small digits at twice their size, with a margin: 28 x 28."""
    images = load_digits().images[:count, None].repeat(2, 2).repeat(2, 3)
    return np.pad(images, ((0, 0), (0, 0), (6, 6), (6, 6)))


def to_all(images: NDArray[Any]) -> NDArray[np.float32]:
    """Distances from every image to every one."""
    everyone = np.arange(len(images))
    there, back = distortion_distances(images, everyone, np.tile(everyone, (len(images), 1)))
    np.testing.assert_array_equal(back, there.T)
    return there


def reference(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """By the definition, a pixel at a time."""
    fields = []
    for image in (a, b):
        margin = np.pad(image, 1, constant_values=np.nan)
        mean = np.array(
            [[np.nanmean(margin[i : i + 3, j : j + 3]) for j in range(28)] for i in range(28)]
        )
        size, angle = steepest_gradients(torch.tensor(mean)[None, None])
        field = (size.sqrt() * torch.cat([torch.cos(2 * angle), torch.sin(2 * angle)], 1))[0]
        field /= torch.linalg.norm(field)
        fields.append(np.pad(field.numpy(), ((0, 0), (3, 3), (3, 3))))
    first, second = fields
    total = 0.0
    for i in range(3, 31):
        for j in range(3, 31):
            here = first[:, i - 1 : i + 2, j - 1 : j + 2]
            total += min(
                ((here - second[:, k - 1 : k + 2, m - 1 : m + 2]) ** 2).sum()
                for k in range(i - REACH, i + REACH + 1)
                for m in range(j - REACH, j + REACH + 1)
            )
    return float(np.sqrt(total))


def test_it_is_the_definition() -> None:
    images = digits(3)
    expected = [[reference(a, b) for b in images[:, 0]] for a in images[:, 0]]
    np.testing.assert_allclose(to_all(images), expected, rtol=2e-3, atol=1e-3)


def test_the_same_a_little_moved_is_near_and_far_moved_is_not() -> None:
    image = digits(1)
    moved = [np.roll(image, (down, right), (2, 3)) for down, right in ((0, 0), (2, -1), (0, 6))]
    same, near, far = to_all(np.concatenate(moved))[0]
    assert same < 1e-3
    assert near < 0.2 < 0.5 * far


def test_contrast_brightness_and_sign_do_not_count() -> None:
    image = digits(1)
    others = np.concatenate([image, 3 * image, image + 5, 16 - image])
    np.testing.assert_allclose(to_all(others), 0, atol=0.02)


def test_any_number_of_pairs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    images, index = digits(7), np.array([[1, 2, 3]] * 7)  # most of the ways back must be gone too
    whole = distortion_distances(images, np.arange(7), index)
    monkeypatch.setattr(module, "_PAIRS", 1)
    monkeypatch.setattr(gradients, "_BATCH", 2)
    np.testing.assert_allclose(distortion_distances(images, np.arange(7), index), whole, rtol=1e-6)
    turned = np.arange(7)[::-1].copy()
    np.testing.assert_allclose(distortion_distances(images[::-1], turned, index), whole, rtol=1e-6)


def test_the_way_back_is_the_way_there_of_the_other() -> None:
    images, index = digits(6), np.array([[1, 4], [0, 2], [3, 5], [1, 2], [0, 3], [2, 1]])
    there, back = distortion_distances(images, np.arange(6), index)
    every_way = to_all(images)
    np.testing.assert_allclose(there, np.take_along_axis(every_way, index, 1), rtol=1e-6)
    np.testing.assert_allclose(back, np.take_along_axis(every_way.T, index, 1), rtol=1e-6)


def test_blank_large_and_coloured_images_have_distances() -> None:
    blank = np.zeros((2, 1, 20, 20), np.uint8)
    np.testing.assert_array_equal(to_all(blank), 0)
    large = np.random.default_rng(0).integers(0, 256, (3, 3, 90, 50), np.uint8)
    distances = to_all(large)
    assert np.isfinite(distances).all()
    assert (distances[~np.eye(3, dtype=bool)] > 0.1).all()


def test_neighbours_share_a_class_more_often_than_by_gradients() -> None:
    """Nearest of sixteen candidates, all labels known."""
    images, y = digits(1797), load_digits().target
    _, index = _search(comparable(images), 16)
    there, back = distortion_distances(images, np.arange(1797), index)
    for distance in (there, back, there + back):
        nearest = index[np.arange(1797), distance.argmin(1)]
        assert (y[nearest] != y).sum() < (y[index[:, 0]] != y).sum()
