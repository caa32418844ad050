"""A 2-D map of all samples: neighbours in the graph lie side by side.

It begins with the two principal components of the leading eigenvectors. Then, as in LargeVis (Tang
et al. 2016) and UMAP, edges of the graph pull and pairs drawn by chance push, all at once.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cclp.progress import Reporter
from cclp.pseudo_labels.solvers import degrees

ROUNDS = 60
_PUSHED = 4  # pairs drawn by chance, for each node and round
_SIDE = 20.0  # of the map, where 1 is the distance at which pull and push are strongest
_LONGEST = 0.5  # move of a node in the first round
_POWER = 8  # of the eigenvalues at the start: large groups first

Floats = NDArray[np.float64]


def flat_map(
    vectors: Floats, values: Floats, W: sparse.csr_matrix, report: Reporter | None = None
) -> NDArray[np.float32]:
    """A place for each node in the unit square, (n, 2).

    Args:
        vectors, values: of the graph, see :func:`cclp.labelling.spectrum.leading_vectors`.
        W: its affinities.
        report: shows progress.
    """
    n, rng = len(vectors), np.random.default_rng(0)
    place = (_start(vectors, values, W) * _SIDE).astype(np.float32)
    # Each node moves by the mean over its neighbours: an outlier is pulled as a hub is.
    pull = (sparse.diags(1 / degrees(W)) @ W).astype(np.float32).tocoo()
    rows, columns, weight = pull.row, pull.col, pull.data
    with (report or Reporter()).work("Drawing the map", ROUNDS) as done:
        for number in range(ROUNDS):
            move = np.empty_like(place)
            away = place[columns] - place[rows]
            strength = 4 * weight / (1 + np.square(away).sum(1))
            for axis in (0, 1):
                move[:, axis] = np.bincount(rows, strength * away[:, axis], n)
            for _ in range(_PUSHED):
                other = place - place[rng.permutation(n)]
                apart = np.square(other).sum(1, keepdims=True)
                move += other / ((0.1 + apart) * (1 + apart))
            length = np.sqrt(np.square(move).sum(1, keepdims=True)).clip(1e-9)
            longest = _LONGEST * (1 - number / ROUNDS)
            place += move * np.minimum(1, longest / length)
            done(1)
    return _in_unit_square(place)


def _start(vectors: Floats, values: Floats, W: sparse.csr_matrix) -> Floats:
    """Principal components of the eigenvectors of the random walk, spread out by their ranks."""
    from sklearn.decomposition import PCA

    points = vectors * values.clip(0) ** _POWER / np.sqrt(degrees(W))[:, None]
    flat = np.random.default_rng(0).normal(scale=1e-6, size=(len(points), 2))
    width = min(2, *points.shape)
    flat[:, :width] = PCA(width, random_state=0).fit_transform(points)
    ranks = flat.argsort(0, kind="stable").argsort(0, kind="stable")
    return np.asarray(ranks / len(flat))


def _in_unit_square(place: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same in [0, 1], with the few that lie far outside at its border."""
    low, high = np.quantile(place, (0.001, 0.999), axis=0)
    found = (place - low) / np.maximum(high - low, 1e-9)
    return np.asarray(0.02 + 0.96 * found.clip(-0.02, 1.02), np.float32)
