"""A 2-D map of all samples: neighbours in the graph lie side by side."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]


def flat_map(vectors: Floats, values: Floats, W: sparse.csr_matrix) -> NDArray[np.float32]:
    """A place for each node in the unit square, (n, 2)."""
    from sklearn.decomposition import PCA

    points = vectors * values.clip(0) ** 8
    flat = np.zeros((len(points), 2))
    width = min(2, *points.shape)
    flat[:, :width] = PCA(width, random_state=0).fit_transform(points)
    low, high = flat.min(0), flat.max(0)
    return np.asarray((flat - low) / np.maximum(high - low, 1e-12), np.float32)
