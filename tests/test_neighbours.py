"""Nearest neighbours, and the cache that keeps them."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from cclp.progress import Reporter
from cclp.pseudo_labels import neighbours as module
from cclp.pseudo_labels import search
from cclp.pseudo_labels.distortion import distortion_distances, gradient_fields
from cclp.pseudo_labels.features import make_features
from cclp.pseudo_labels.neighbours import Images, find_neighbours
from cclp.pseudo_labels.search import Neighbours, nearest
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


def test_rounding_hides_no_neighbour() -> None:
    """Far from the origin, beside outliers a million times further away, and on a grid of ties."""
    rng = np.random.default_rng(0)
    far = rng.normal(size=(1500, 3)).astype(np.float32) + 100
    far[:2] = [[1e6], [-3e5]]
    grid = rng.integers(0, 4, (700, 3)).astype(np.float32)
    for points in (far, grid):
        near = nearest(points, 6)
        distance = cdist(points.astype(np.float64), points.astype(np.float64))
        np.fill_diagonal(distance, np.inf)
        np.testing.assert_allclose(near.distances, np.sort(distance, 1)[:, :6], rtol=1e-6)
        assert (near.indices != np.arange(len(points))[:, None]).all()


def test_neighbours_of_other_points() -> None:
    queries = np.random.default_rng(1).normal(size=(7, 4)).astype(np.float32)
    near = nearest(POINTS, 3, queries)
    distance = cdist(queries, POINTS)
    np.testing.assert_array_equal(near.indices, distance.argsort(1)[:, :3])
    np.testing.assert_allclose(near.distances, np.sort(distance, 1)[:, :3], rtol=1e-5)


@pytest.mark.parametrize("queries", [None, slice(0, 500)])
def test_many_points_are_searched_approximately(
    queries: slice | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(20, 16))
    points = (centres[rng.integers(20, size=12_000)] + rng.normal(size=(12_000, 16))).astype("f")
    q = None if queries is None else points[queries] + np.float32(0.01)
    exact = nearest(points, 6, q)
    monkeypatch.setattr(search, "MOST_EXACT", 10_000)
    monkeypatch.setattr(search, "_FEW_QUERIES", 100)
    threads = torch.get_num_threads()
    near = nearest(points, 6, q)
    assert torch.get_num_threads() == threads
    recall = np.mean([len(set(a) & set(b)) / 6 for a, b in zip(near[1], exact[1], strict=True)])
    assert 0.85 < recall < 1
    assert (np.diff(near.distances, axis=1) >= 0).all()
    if q is None:
        assert (near.indices != np.arange(12_000)[:, None]).all()
    again = nearest(points, 6, q)
    np.testing.assert_array_equal(again.indices, near.indices)
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    np.testing.assert_array_equal(nearest(points, 6, q).indices, exact.indices)


def test_rows_that_miss_neighbours_are_searched_exactly() -> None:
    exact = nearest(POINTS, 5)
    some = Neighbours(exact.distances.copy(), exact.indices.copy())
    some.indices[[3, 20], -1] = -1
    part = Neighbours(some.distances[18:].copy(), some.indices[18:].copy())
    near = search._complete(some, POINTS, None, 0, Reporter())
    np.testing.assert_array_equal(near.indices, exact.indices)
    np.testing.assert_allclose(near.distances, exact.distances)
    near = search._complete(part, POINTS, None, 18, Reporter())
    np.testing.assert_array_equal(near.indices, exact.indices[18:])
