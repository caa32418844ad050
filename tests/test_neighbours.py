"""Nearest neighbours, and the cache that keeps them."""

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from cclp.pseudo_labels import neighbours as module
from cclp.pseudo_labels.distortion import distortion_distances, gradient_fields
from cclp.pseudo_labels.features import make_features
from cclp.pseudo_labels.neighbours import Images, find_neighbours
from cclp.pseudo_labels.search import Neighbours
from tests.pseudo_labels import drawings

POINTS = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def images() -> Images:
    x = drawings(60)
    return Images(x, np.arange(60)[::-1].copy())


@pytest.fixture(scope="module")
def features(images: Images) -> NDArray[np.float32]:
    return make_features(images.all, images.chosen)


def assert_same(found: list[Neighbours], expected: list[Neighbours]) -> None:
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine.distances, other.distances)
        np.testing.assert_array_equal(mine.indices, other.indices)


def nothing_searches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "nearest", None)
    patch.setattr(module, "distortion_distances", None)


def test_they_are_the_nearest() -> None:
    (near,) = find_neighbours(POINTS, None, 5, None)
    distance = cdist(POINTS, POINTS)
    np.fill_diagonal(distance, np.inf)
    np.testing.assert_array_equal(near.indices, distance.argsort(1)[:, :5])
    np.testing.assert_allclose(near.distances, np.sort(distance, 1)[:, :5], rtol=1e-5)


@pytest.mark.parametrize("count", [2, 4])
def test_there_may_be_fewer(count: int) -> None:
    (near,) = find_neighbours(POINTS[:count], None, 5, None)
    assert near.indices.shape == (count, count - 1)


def test_images_are_compared_by_distortion_in_both_directions(
    images: Images, features: NDArray[np.float32]
) -> None:
    """Of the 32 candidates by HOG features, those nearest to it, from it, and by the mean."""
    there, back, mean = find_neighbours(features, images, 5, None)
    distance = cdist(features, features)
    np.fill_diagonal(distance, np.inf)
    candidates = distance.argsort(1, kind="stable")[:, :32]
    to, of = distortion_distances(gradient_fields(*images), candidates)
    for near, expected in ((there, to), (back, of), (mean, (to + of) / 2)):
        nearest = np.sort(np.asarray(expected), 1)[:, :5]
        np.testing.assert_allclose(near.distances, nearest, rtol=1e-6)
    assert (there.distances != back.distances).any()


def test_neighbours_are_searched_for_once(
    tmp_path: Path,
    images: Images,
    features: NDArray[np.float32],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = tmp_path / "new" / "cache"
    for points, of in ((POINTS, None), (features, images)):
        plain = find_neighbours(points, of, 5, None)
        assert_same(find_neighbours(points, of, 5, cache), plain)
        with monkeypatch.context() as patch:
            nothing_searches(patch)
            assert_same(find_neighbours(points, of, 5, cache), plain)
    assert len(list(cache.iterdir())) == 2
    find_neighbours(2 * POINTS, None, 5, cache)  # other data
    assert len(list(cache.iterdir())) == 3


def test_a_damaged_or_unwritable_cache_costs_time_only(tmp_path: Path) -> None:
    plain = find_neighbours(POINTS, None, 5, tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    other = io.BytesIO()
    np.savez(other, distance=np.ones((3, 5)), index=np.ones((3, 5)))
    for content in (b"", whole[:100], whole[:-50], b"nothing", other.getvalue()):
        file.write_bytes(content)
        assert_same(find_neighbours(POINTS, None, 5, tmp_path), plain)
        assert file.read_bytes() == whole
    (tmp_path / "file").touch()
    assert_same(find_neighbours(POINTS, None, 5, tmp_path / "file"), plain)
