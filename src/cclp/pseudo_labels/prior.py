"""Labels spread over the inputs, before training: what the first steps believe.

With few labels the first embedding is as good as random, and the loss makes whatever labels it
propagates there into clusters that nothing later undoes. A graph of all training samples, on their
inputs, is a better guess for the beginning; later, what the net says may be smoothed over it. Ours,
not the paper's.
"""

import hashlib
import io
from contextlib import suppress
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg
from scipy.stats import binom
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from cclp.data.splits import Split
from cclp.files import write_bytes
from cclp.pseudo_labels.distortion import REACH, distortion_distances
from cclp.pseudo_labels.features import SMALLEST_SIDE, hog_components

NEIGHBOURS = 5
ALPHA = 0.99  # of Zhou et al. 2004
IMAGE_SHARPNESS = 4.0  # how fast affinity falls with the distance; 1 for vectors
RESTART = 0.4  # share of moves that lead back to what the classifier says
WALKED = 10  # moves: less than 1 % of a longer walk would come from further away
STRIDE = 5  # moves between two thresholds
MOST_THRESHOLDS = 50
MOST_MOVED = 0.1  # of the samples, by borders
CANDIDATES = 32  # nearest images by gradients, of which the nearest when bent are taken
EQUAL_LABELS = 5  # a few labels say little about how large the classes are
TESTED = 100  # labels, at most
FEW_LABELS = 20  # a class: from them alone a net learns less than neighbours know
GOOD = 0.9
MOST_DIMENSIONS = 64
MOST_NODES = 60_000
SAME_UNIT = 10.0
_TOLERANCE = 1e-12  # far from any label F is small, and still decides
_ROOT_TOLERANCE = 1e-7  # of eᵀA⁻¹e the error is the square of that of A⁻¹e
_LEAST_AFFINITY = 1e-6  # so that an outlier has neighbours
_LARGEST = 1e15
_DIGEST = 32  # bytes
_VERSION = 3  # of the neighbours: another number, and they are searched for again


Neighbours = tuple[NDArray[np.floating], NDArray[np.int64]]


class Images(NamedTuple):
    """Some of many images."""

    all: NDArray[Any]
    chosen: NDArray[np.int64]


class LeftOut(NamedTuple):
    """Labels that were left out, one at a time, and how many the others get right.

    Attributes:
        right: how many.
        tried: of so many.
        worst: share that is right of the class with the least, of those tried.
    """

    right: int
    tried: int
    worst: float = 1.0

    def is_poor(self, num_classes: int) -> bool:
        """Whether it is nearly certain that less than halfway from chance to always is right."""
        halfway = (1 + 1 / num_classes) / 2
        return bool(self.tried and binom.cdf(self.right, self.tried, halfway) < 0.01)

    def is_good(self, per_class: float, num_classes: int) -> bool:
        """Whether a net that has learned from so many labels a class alone would know no more."""
        if per_class <= FEW_LABELS:
            return not self.is_poor(num_classes)
        return self.right >= GOOD * self.tried and self.worst > 0

    def __str__(self) -> str:
        if not self.tried:
            return "how good they are cannot be told, with one label a class"
        return f"{self.right} of {self.tried} labels are right when left out"


class LabelGraph:
    """Classes of samples by label propagation over their nearest neighbours.

    (I − αS) F = Y (Zhou et al. 2004) on the sparse graph of five neighbours each, whose weights
    fall with the distance in units of both ends' own neighbourhoods (Zelnik-Manor & Perona 2004).
    Of images, the 32 nearest by gradients are compared again, where one may be bent a little. That
    has two ways: all strokes of a one with a foot may be found in a two, and all strokes of a plain
    one in a one with a foot. The graph is the sum of three, of the five nearest one way, the other
    way, and in the mean of both.
    Every class is given the share that it would have of the labels if there were five more of each,
    and every sample its largest class: F itself is so even that the loss would pull all classes
    together. From there the borders between classes move to where they cut the least, by threshold
    dynamics (Merriman, Bence & Osher; on graphs, with sizes of classes, Jacobs et al. 2018): walk
    5 moves from these classes, take each sample's largest one again, until nothing changes or a
    tenth of the samples have changed. Of more than 60,000 samples, so many are the graph's, and the
    others go with their nearest: time and memory grow in proportion.

    Args:
        x: samples; images are looked at some at a time, and need not fit into memory.
        y: classes, (N,), −1 where there is no label.
        num_classes: C.
        cache: folder that keeps neighbours for the next time, whatever the labels are then (of
            more than 60,000 samples, for the same labels).
        rows: which N of the samples are meant; None: all.

    Examples:
        >>> x = np.concatenate([np.arange(8.0), np.arange(100.0, 108.0)])[:, None]
        >>> y = np.full(16, -1)
        >>> y[[0, 1, 14, 15]] = 0, 0, 1, 1
        >>> graph = LabelGraph(x, y, 2)
        >>> graph.spread().argmax(1).tolist()
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
        >>> graph.leave_out()
        LeftOut(right=4, tried=4, worst=1.0)
    """

    def __init__(
        self,
        x: NDArray[Any],
        y: NDArray[np.int64],
        num_classes: int,
        cache: Path | None = None,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        rows = np.arange(len(x)) if rows is None else rows
        self.labels = np.eye(num_classes)[y] * (y >= 0)[:, None]
        order = np.random.default_rng(0).permutation(len(rows))
        labeled_first = order[np.argsort(y[order] < 0, kind="stable")]
        self.nodes = labeled_first[:MOST_NODES]
        self.others = np.setdiff1d(order, self.nodes)
        self.points = comparable(x, rows)
        # copies would be an island
        distinct, self.first, self.place = np.unique(
            self.points[self.nodes], axis=0, return_index=True, return_inverse=True
        )
        images = Images(x, rows[self.nodes[self.first]]) if _are_images(x) else None
        sharpness = 1.0 if images is None else IMAGE_SHARPNESS
        self.affinity = (
            sum(_affinity(*near, sharpness) for near in _neighbours(distinct, images, cache))
            if len(distinct) > 1
            else None
        )

    def spread(self) -> NDArray[np.float32]:
        """Classes of all samples by the labels alone, (N, C).

        Returns:
            One-hot; the classes' shares for samples that no label reaches.
        """
        counts = self.labels[self.nodes].sum(0)
        prior = np.empty(self.labels.shape)
        if self.affinity is None:
            prior[:] = _shares(counts)
        else:
            moves, labels = _moves(self.affinity), self._distinct_labels
            classes = _least_cut(_classes(self._propagated[1], counts), moves, labels, counts)
            prior[self.nodes] = classes[self.place]
        if len(self.others):
            search = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(self.points[self.nodes])
            nearest = search.kneighbors(self.points[self.others], return_distance=False)[:, 0]
            prior[self.others] = prior[self.nodes[nearest]]
        return self._with_labels(prior)

    def smooth(self, said: NDArray[np.floating]) -> NDArray[np.float32]:
        """Classes of all samples by what a classifier says of them and of those around them.

        A random walk over the graph that begins anew with probability 0.4. The classifier and the
        graph make different mistakes: where one is wrong about a sample, the other often is not.
        Of samples that are not in the graph, what the classifier says is left as it is.

        Args:
            said: probabilities, (N, C).

        Returns:
            One-hot, (N, C).
        """
        found = said.astype(np.float64)
        if self.affinity is not None:
            moves, labels = _moves(self.affinity), self._distinct_labels
            known = labels.any(1)
            begun = found[self.nodes][self.first]
            begun[known] = labels[known] / labels[known].sum(1, keepdims=True)
            walked = begun
            for _ in range(WALKED):
                walked = RESTART * begun + (1 - RESTART) * (moves @ walked)
                walked[known] = begun[known]
            found[self.nodes] = walked[self.place]
        return self._with_labels(np.eye(found.shape[1])[found.argmax(1)])

    def _with_labels(self, classes: NDArray[np.float64]) -> NDArray[np.float32]:
        known = self.labels.any(1, keepdims=True)
        return np.where(known, self.labels, classes).astype(np.float32)

    def leave_out(self) -> LeftOut:
        """How many labels the others get right, of at most 100: of classes that have another one.

        They are left out one at a time: what each has added to F is taken away again. It is F that
        is tested, before borders move.
        """
        labels = self.labels[self.nodes]
        counts, classes = labels.sum(0), labels.argmax(1)
        tried = np.flatnonzero(labels.any(1) & (counts[classes] > 1))[:TESTED]
        if self.affinity is None:  # nothing tells them apart
            return LeftOut(0, len(tried), 0.0)
        if not len(tried):
            return LeftOut(0, 0)
        system, F = self._propagated
        right, mass = np.zeros(len(tried), bool), F.sum(0)
        added = _solve(system, np.ones(len(F)))
        island = connected_components(self.affinity)[1][self.place]
        for number, i in enumerate(tried):
            of, node = classes[i], self.place[i]
            itself = _solve(system, np.eye(1, len(F), node)[0], _ROOT_TOLERANCE)[node]
            others = labels[island == island[i], of].sum() - 1
            rest, left = F[node].copy(), mass.copy()
            rest[of] = max(rest[of] - itself, 0) if others else 0  # and no rounding error
            left[of] -= added[node]
            found = (rest * _scale(counts - labels[i], left)).argmax()
            right[number] = rest[of] > 0 and found == of
        each = [right[classes[tried] == of].mean() for of in np.unique(classes[tried])]
        return LeftOut(int(right.sum()), len(tried), float(min(each)))

    @cached_property
    def _propagated(self) -> tuple[sparse.csr_matrix, NDArray[np.float64]]:
        """I − αS, and F of the distinct points, (n, C)."""
        walk = _walk(self.affinity)
        system = sparse.identity(walk.shape[0]) - ALPHA * walk
        return system, np.stack([_solve(system, column) for column in self._distinct_labels.T], 1)

    @cached_property
    def _distinct_labels(self) -> NDArray[np.float64]:
        """Of the distinct points, (n, C); those of copies add up."""
        labels = np.zeros((len(self.first), self.labels.shape[1]))
        np.add.at(labels, self.place, self.labels[self.nodes])
        return labels


class Prior:
    """The prior of a training set; rows of what is held out are empty, and not looked at.

    Args:
        x: samples of the training set, or features of them.
        y: their classes.
        split: who is labeled and who is seen unlabeled.
        num_classes: C.
        cache: as in :class:`LabelGraph`.
        classes: as they were found before, if they are known; then the graph is made only if it is
            asked for.

    Attributes:
        classes: (N, C).
    """

    def __init__(
        self,
        x: NDArray[Any],
        y: NDArray[np.int64],
        split: Split,
        num_classes: int,
        cache: Path | None = None,
        classes: NDArray[np.float32] | None = None,
    ) -> None:
        self.seen = split.unlabeled  # the labeled ones among them
        self._made_of = (x, y, split.labeled, num_classes, cache)
        if classes is None:
            classes = np.zeros((len(y), num_classes), np.float32)
            known = split.all_labeled
            classes[self.seen] = np.eye(num_classes)[y[self.seen]] if known else self.graph.spread()
        self.classes = classes

    @cached_property
    def graph(self) -> LabelGraph:
        """Over which labels are spread."""
        x, y, labeled, num_classes, cache = self._made_of
        known = np.where(np.isin(self.seen, labeled), y[self.seen], -1)
        return LabelGraph(x, known, num_classes, cache, self.seen)

    def renew(self, said: NDArray[np.floating]) -> None:
        """Classes by the probabilities that a classifier gives to those seen, smoothed."""
        self.classes[self.seen] = self.graph.smooth(said)


def read_features(path: Path, count: int) -> NDArray[np.float32]:
    """Features to spread labels over instead of the inputs, (N, F), from an .npy file.

    Args:
        path: of the file.
        count: of training samples, in whose order the rows must be.

    Raises:
        ValueError: if the file is not an array of numbers with so many rows, or they are not
            finite.
    """
    try:
        features = np.load(io.BytesIO(path.read_bytes()))
    except Exception as error:  # numpy raises whatever it meets in a damaged file
        raise ValueError(f"prior_features {path} cannot be read as .npy: {error}") from None
    if not isinstance(features, np.ndarray) or features.dtype.kind not in "fiub":
        raise ValueError(f"prior_features {path} must be an .npy array of numbers")
    if features.ndim < 2 or len(features) != count or not features.size:
        raise ValueError(
            f"prior_features {path} must hold a row of features for each of the {count} training "
            f"samples, got shape {features.shape}"
        )
    with np.errstate(over="ignore"):
        features = np.ascontiguousarray(features.reshape(count, -1), np.float32)
    if not np.isfinite(features).all():
        raise ValueError(f"prior_features {path} must be finite")
    return features


def _classes(F: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest class of each point when every class has its share of the mass."""
    balanced = F * _scale(counts, F.sum(0))
    reached = balanced.max(1, keepdims=True) > 0
    return np.where(reached, np.eye(len(counts))[balanced.argmax(1)], _shares(counts))


def _least_cut(
    classes: NDArray[np.float64],
    moves: sparse.csr_matrix,
    labels: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Classes whose borders run where few moves cross them.

    Where classes are no clusters there is no such place, and borders move on and on: they stop
    before they have passed over a tenth of the samples. In a graph without any clusters a few moves
    lead everywhere, and one class would take all: if one has lost half of its samples, the classes
    are left as they were.
    """
    known, reached = labels.any(1), (classes == 1).any(1)[:, None]
    given = labels[known] / labels[known].sum(1, keepdims=True)  # copies may disagree
    first = classes
    for _ in range(MOST_THRESHOLDS):
        walked = np.where(reached, classes, 0)
        for _ in range(STRIDE):
            walked = moves @ walked
            walked[known] = given
        before, classes = classes, _classes(walked, counts)
        if (classes.sum(0) < first.sum(0) / 2).any():
            return first
        if (classes != first).any(1).mean() > MOST_MOVED:
            return before
        if (classes == before).all():
            break
    return classes


def _solve(
    system: sparse.csr_matrix, column: NDArray[np.float64], tolerance: float = _TOLERANCE
) -> NDArray[np.float64]:
    return np.asarray(cg(system, column, rtol=tolerance)[0]).clip(0)


def _shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the classes, if there were a few labels more of each than these."""
    some = counts + EQUAL_LABELS
    return np.asarray(some / some.sum())


def _scale(counts: NDArray[np.float64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """What gives every class its share of the mass."""
    return _shares(counts) / np.where(mass > 0, mass, 1)


def _are_images(x: NDArray[Any]) -> bool:
    return x.ndim == 4 and min(x.shape[2:]) >= SMALLEST_SIDE


def comparable(x: NDArray[Any], rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """Samples, or these rows of them, as vectors whose distances mean something, (N, at most 64).

    Images become histograms of their gradients, unless they are tiny. Features of one unit (pixels,
    embeddings) are left in it: the largest standard deviation is at most ten times the median.
    Otherwise (columns of a table) each has its own. Many features are projected onto their
    principal components.
    """
    rows = np.arange(len(x)) if rows is None else rows
    if _are_images(x):
        return hog_components(x, MOST_DIMENSIONS, rows)
    flat = x[rows].reshape(len(rows), prod(x.shape[1:])).astype(np.float32)
    largest = np.abs(flat).max(initial=0)
    if largest > _LARGEST:  # squares of distances would not be finite
        flat /= largest
    flat -= flat.mean(0)
    spread = flat.std(0)
    some = spread[spread > 0]
    if len(some) and some.max() > SAME_UNIT * np.median(some):
        flat /= np.where(spread > 0, spread, 1)
    if flat.shape[1] > MOST_DIMENSIONS and len(flat) > MOST_DIMENSIONS:
        flat = PCA(MOST_DIMENSIONS, svd_solver="covariance_eigh").fit_transform(flat)
    return np.ascontiguousarray(flat, np.float32)


def _neighbours(
    points: NDArray[np.float32], images: Images | None, cache: Path | None
) -> list[Neighbours]:
    """Distances and indices of each point's five nearest, by one distance or three.

    Args:
        points: vectors, (N, F).
        images: whose components they are, if they are.
        cache: folder to keep them in.
    """
    if cache is None:
        return _nearest(points, images)
    how = NEIGHBOURS if images is None else (NEIGHBOURS, CANDIDATES, REACH)
    about = f"{_VERSION} {how} {points.shape}".encode()
    path = cache / hashlib.sha256(about + points.tobytes()).hexdigest()
    with suppress(OSError, ValueError):
        content = path.read_bytes()
        if hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
            kept = np.load(io.BytesIO(content[_DIGEST:]))
            return list(zip(kept["distance"], kept["index"], strict=True))
    nearest = _nearest(points, images)
    distance, index = map(np.stack, zip(*nearest, strict=True))
    file = io.BytesIO()
    np.savez(file, distance=distance, index=index)
    with suppress(OSError):  # it costs time again, no more
        cache.mkdir(parents=True, exist_ok=True)
        write_bytes(path, hashlib.sha256(file.getvalue()).digest() + file.getvalue())
    return nearest


def _nearest(points: NDArray[np.float32], images: Images | None) -> list[Neighbours]:
    if images is None:
        return [_search(points, NEIGHBOURS)]
    _, index = _search(points, CANDIDATES)
    there, back = distortion_distances(images.all, images.chosen, index)
    return [_first(distance, index) for distance in (there, back, (there + back) / 2)]


def _first(distance: NDArray[np.floating], index: NDArray[np.int64]) -> Neighbours:
    """The nearest of some."""
    order = distance.argsort(1, kind="stable")[:, :NEIGHBOURS]
    return np.take_along_axis(distance, order, 1), np.take_along_axis(index, order, 1)


def _search(points: NDArray[np.float32], most: int) -> Neighbours:
    few = min(most, len(points) - 1)
    distance, index = NearestNeighbors(n_neighbors=few, algorithm="brute").fit(points).kneighbors()
    return distance, index


def _affinity(
    distance: NDArray[np.floating], index: NDArray[np.int64], sharpness: float
) -> sparse.csr_matrix:
    """W of the graph of nearest neighbours."""
    count, neighbours = index.shape
    scale = distance[:, -1]
    width = scale[:, None] * scale[index]
    nothing = np.where(distance > 0, np.inf, 0)  # where a neighbourhood has no size
    ratio = np.divide(distance**2, width, out=nothing, where=width > 0)
    affinity = np.exp(-sharpness * ratio).clip(_LEAST_AFFINITY)
    rows = np.arange(0, count * neighbours + 1, neighbours)
    W = sparse.csr_matrix((affinity.ravel(), index.ravel(), rows), (count, count))
    return (W + W.T).tocsr()


def _walk(W: sparse.csr_matrix) -> sparse.csr_matrix:
    """S = D^(-1/2) W D^(-1/2)."""
    root = sparse.diags(1 / np.sqrt(np.asarray(W.sum(1)).ravel()))
    return (root @ W @ root).tocsr()


def _moves(W: sparse.csr_matrix) -> sparse.csr_matrix:
    """D⁻¹W: where a random walk goes."""
    return (sparse.diags(1 / np.asarray(W.sum(1)).ravel()) @ W).tocsr()
