"""The image distortion model: distances that forgive small distortions."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from cclp.pseudo_labels.distortion import REACH, compare, distortion_distances, gradient_fields
from cclp.pseudo_labels.features import make_features, steepest_gradients


def digits(count: int, margin: int = 2) -> NDArray[np.float64]:
    """The small digits at twice their size, with a margin: 20 x 20."""
    images = load_digits().images[:count, None].repeat(2, 2).repeat(2, 3)
    return np.pad(images, ((0, 0), (0, 0), (margin, margin), (margin, margin)))


def to_all(images: NDArray[Any]) -> NDArray[np.float32]:
    """Distances from every image to every one."""
    everyone = np.arange(len(images))
    fields = gradient_fields(images, everyone)
    to, back = distortion_distances(fields, np.tile(everyone, (len(images), 1)))
    np.testing.assert_allclose(back, to.T, rtol=1e-6)
    return to


def reference(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """By the definition, a pixel at a time."""
    side, fields = len(a), []
    for image in (a, b):
        margin = np.pad(image, 1, constant_values=np.nan)
        windows = np.lib.stride_tricks.sliding_window_view(margin, (3, 3))
        mean = np.nanmean(windows, axis=(2, 3))
        size, angle = steepest_gradients(torch.tensor(mean)[None, None])
        field = (size.sqrt() * torch.cat([torch.cos(2 * angle), torch.sin(2 * angle)], 1))[0]
        field /= torch.linalg.norm(field)
        fields.append(np.pad(field.numpy(), ((0, 0), (3, 3), (3, 3))))
    first, second = fields
    total = 0.0
    for i in range(3, side + 3):
        for j in range(3, side + 3):
            here = first[:, i - 1 : i + 2, j - 1 : j + 2]
            total += min(
                ((here - second[:, k - 1 : k + 2, m - 1 : m + 2]) ** 2).sum()
                for k in range(i - REACH, i + REACH + 1)
                for m in range(j - REACH, j + REACH + 1)
            )
    return float(np.sqrt(total))


def test_it_is_the_definition() -> None:
    images = digits(2)
    expected = [[reference(a, b) for b in images[:, 0]] for a in images[:, 0]]
    np.testing.assert_allclose(to_all(images), expected, rtol=2e-3, atol=1e-3)


def test_a_small_shift_is_near_and_a_large_one_is_not() -> None:
    image = digits(1, margin=6)
    moved = [np.roll(image, (down, right), (2, 3)) for down, right in ((0, 0), (2, -1), (0, 6))]
    same, near, far = to_all(np.concatenate(moved))[0]
    assert same < 1e-3
    assert near < 0.2 < 0.5 * far


def test_contrast_brightness_and_sign_do_not_count() -> None:
    image = digits(1)
    others = np.concatenate([image, 3 * image, image + 5, 16 - image])
    np.testing.assert_allclose(to_all(others), 0, atol=0.02)


def test_any_number_of_pairs() -> None:
    """More than are computed at a time, and images in another order."""
    images, index = digits(30), np.tile(np.arange(20), (30, 1))
    fields = gradient_fields(images, np.arange(30))
    to, back = distortion_distances(fields, index)
    few = distortion_distances(fields, index[:, :3])
    np.testing.assert_allclose(few, (to[:, :3], back[:, :3]), rtol=1e-6)
    turned = gradient_fields(images[::-1], np.arange(30)[::-1].copy())
    np.testing.assert_allclose(distortion_distances(turned, index), (to, back), rtol=1e-6)
    pairs = np.arange(30).repeat(20), index.ravel()
    other = compare(fields, pairs[0], turned, pairs[1])
    np.testing.assert_allclose(other, (to.ravel(), back.ravel()), rtol=1e-6)


def test_the_distance_back_is_that_of_the_other() -> None:
    images, index = digits(6), np.array([[1, 4], [0, 2], [3, 5], [1, 2], [0, 3], [2, 1]])
    to, back = distortion_distances(gradient_fields(images, np.arange(6)), index)
    every = to_all(images)
    np.testing.assert_allclose(to, np.take_along_axis(every, index, 1), rtol=1e-6)
    np.testing.assert_allclose(back, np.take_along_axis(every.T, index, 1), rtol=1e-6)


def test_blank_large_and_coloured_images_have_distances() -> None:
    blank = np.zeros((2, 1, 20, 20), np.uint8)
    np.testing.assert_array_equal(to_all(blank), 0)
    large = np.random.default_rng(0).integers(0, 256, (3, 3, 90, 50), np.uint8)
    distances = to_all(large)
    assert np.isfinite(distances).all()
    assert (distances[~np.eye(3, dtype=bool)] > 0.1).all()


def test_neighbours_share_a_class_more_often_than_by_hog() -> None:
    """Nearest of eight candidates, all labels known."""
    count = 700
    images, y = digits(count), load_digits().target[:count]
    points = make_features(images)
    search = NearestNeighbors(n_neighbors=8, algorithm="brute").fit(points)
    index = search.kneighbors(return_distance=False)
    to, back = distortion_distances(gradient_fields(images, np.arange(count)), index)
    for distance in (to, back, to + back):
        nearest = index[np.arange(count), distance.argmin(1)]
        assert (y[nearest] != y).sum() < (y[index[:, 0]] != y).sum()
