"""``GraphLabelPropagation``: label propagation on a nearest-neighbour graph, without a network."""

import warnings
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted, validate_data

from cclp.checks import check_choice, check_integer, check_number
from cclp.data.weights import class_shares
from cclp.progress import Reporter, make_reporter
from cclp.pseudo_labels.components import are_reached
from cclp.pseudo_labels.features import FeatureMap
from cclp.pseudo_labels.graph import NeighbourGraph
from cclp.pseudo_labels.leave_one_out import LeaveOneOut
from cclp.pseudo_labels.propagation import Propagation, PropagationMethod
from cclp.pseudo_labels.shares import estimate_shares
from cclp.pseudo_labels.solvers import equal_shares, row_normalised
from cclp.sklearn.base import FLOATS, SemiSupervisedClassifier
from cclp.sklearn.parameters import sample_shape

AFFINITIES = ("knn", "precomputed")
IMAGE_DISTANCES = ("idm", "hog")
MOST_UNREACHED = 0.1  # of the samples, without a warning


class GraphLabelPropagation(SemiSupervisedClassifier):
    """Label propagation on a sparse nearest-neighbour graph: no network, no training.

    Memory and time grow in proportion to the number of samples. Images are compared by histograms
    of oriented gradients and the image distortion model, if `image_shape` is given.

    Parameters
    ----------
    method : {"mbo", "spreading", "harmonic", "poisson"}, default="mbo"
        How labels are propagated. "spreading" is label spreading [1]_, as scikit-learn's
        `LabelSpreading`; "harmonic" are harmonic functions [2]_, in which labels never change;
        "poisson" is Poisson learning [3]_. "mbo" begins with "spreading", scales the classes to
        their shares, and moves the borders between them to where they cut few edges: threshold
        dynamics [4]_. It is the best of them with very few labels, where classes are clusters.

    n_neighbors : int, default=5
        Neighbours of each sample.

    alpha : float, default=0.99
        Of "spreading" and "mbo": how much a sample takes from its neighbours; above 0, below 1.

    affinity : {"knn", "precomputed"}, default="knn"
        "knn": Gaussian affinities of the nearest neighbours, each scaled by the distance to its
        last one. "precomputed": `X` is a sparse matrix of affinities, of samples to samples in
        `fit` (made symmetric if it is not) and of new samples to those in `predict`.

    image_shape : tuple of int, default=None
        Shape of the image in each row of `X`: (height, width) or (channels, height, width). None:
        rows are vectors.

    image_distance : {"idm", "hog"}, default="idm"
        Of images. "idm" compares the nearest ones by HOG again by the image distortion model: more
        accurate for drawings and letters, and minutes for 70,000 images.

    class_prior : dict or {"estimate", "labels", "equal"}, default="estimate"
        Shares of the classes among all samples. Pass them if they are known. "labels": as frequent
        as their labels. "estimate": from the graph for "mbo", where they differ from equal ones by
        more than its mistakes; for the other methods no class is scaled.

    memory : str or path-like, default=None
        Folder that keeps neighbours for the next fit on the same samples.

    verbose : bool, default=False
        Whether to show progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels that occur, without the mark of unlabeled samples.

    transduction_ : ndarray of shape (n_samples,)
        The class of each sample of `fit`; given labels stay.

    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Class probabilities of each sample of `fit`. Samples in a connected component without a
        label are joined to their nearest neighbours, and half of their probabilities are the
        shares of the classes; with precomputed affinities all of them are.

    class_prior_ : ndarray of shape (n_classes,)
        Shares of the classes that were used.

    leave_one_out_score_ : float
        Accuracy of up to 100 labels, each predicted by the others with method "mbo" (on large
        graphs "spreading"): how far the graph can be trusted. NaN if no class has two labels.

    affinity_matrix_ : sparse matrix of shape (n_nodes, n_nodes)
        The graph; duplicates are one node. None if nothing tells the samples apart.

    n_features_in_ : int
        Number of features.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if `X` had names that are all strings.

    Notes
    -----
    Unlabeled samples are marked by -1; in float labels NaN does so too, among objects None, NaN and
    pandas.NA.

    Columns of very different units are standardised, with a warning. More than 64 features are
    projected onto principal components. `predict` of a new sample is the mean of its neighbours in
    the graph, weighted by affinity; of a sample of `fit`, `transduction_` is the better answer.

    References
    ----------
    .. [1] D. Zhou et al., "Learning with Local and Global Consistency", NIPS 2003.
    .. [2] X. Zhu, Z. Ghahramani, J. Lafferty, "Semi-Supervised Learning Using Gaussian Fields and
       Harmonic Functions", ICML 2003.
    .. [3] J. Calder et al., "Poisson Learning: Graph Based Semi-Supervised Learning at Very Low
       Label Rates", ICML 2020.
    .. [4] M. Jacobs, E. Merkurjev, S. Esedoglu, "Auction Dynamics: A Volume Constrained MBO
       Scheme", Journal of Computational Physics 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from cclp.sklearn import GraphLabelPropagation
    >>> X, truth = make_moons(1000, noise=0.05, random_state=0)
    >>> y = np.full(1000, -1)
    >>> for c in (0, 1):  # a label each
    ...     y[np.flatnonzero(truth == c)[0]] = c
    >>> model = GraphLabelPropagation().fit(X, y)
    >>> float((model.transduction_ == truth).mean())
    1.0
    >>> model.predict([[0, 1], [1, -0.5]]).tolist()
    [0, 1]
    """

    def __init__(
        self,
        *,
        method: PropagationMethod = "mbo",
        n_neighbors: int = 5,
        alpha: float = 0.99,
        affinity: str = "knn",
        image_shape: tuple[int, ...] | None = None,
        image_distance: str = "idm",
        class_prior: str | dict[Any, float] = "estimate",
        memory: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.affinity = affinity
        self.image_shape = image_shape
        self.image_distance = image_distance
        self.class_prior = class_prior
        self.memory = memory
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Propagate labels to unlabeled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or sparse (n_samples, n_samples)
            Samples, or their affinities.

        y : array-like of shape (n_samples,)
            Labels; -1, NaN or None where there is none.

        Returns
        -------
        self : GraphLabelPropagation
            The fitted estimator.
        """
        with self._restored_on_failure():
            return self._fit(X, y)

    def _fit(self, X: Any, y: Any) -> Self:
        self._check_parameters()
        X = self._check_samples(X, reset=True)
        classes, codes = self._encode(X, y)
        counts = np.bincount(codes[codes >= 0], minlength=len(classes))
        prior = class_shares(self.class_prior, classes.tolist(), counts)
        shares = equal_shares(len(classes)) if prior is None else prior
        graph, (W, place) = None, (None, np.arange(len(codes)))
        report = make_reporter(quiet=False) if self.verbose else Reporter()
        if self.affinity == "precomputed":
            W = _symmetric(X)
        else:
            graph = NeighbourGraph(
                X,
                neighbours=self.n_neighbors,
                distortion=self.image_distance == "idm",
                cache=None if self.memory is None else Path(self.memory),
                report=report,
            )
            graph.detach()
            _warn_of_units(graph.features)
            W, place = graph.joined(codes), graph.place
        if W is None:  # nothing tells the samples apart
            nodes, accuracy = counts[None] / counts.sum(), LeaveOneOut(0, 0)
        else:
            propagation = Propagation(W, place, codes, len(classes), prior, self.alpha, report)
            if prior is None and self.method == "mbo":
                shares = estimate_shares(propagation)
                propagation = propagation.with_shares(shares)
            with report.work("Passing labels on to similar samples", None):
                nodes = propagation.distributions(self.method)
            accuracy = propagation.leave_one_out()
            far = ~are_reached(W if graph is None else graph.W, place[codes >= 0])
            _warn_of_components(far[place])
            nodes[~nodes.any(1)] = shares
            nodes[far] = (nodes[far] + shares) / 2
        if accuracy.is_poor(len(classes)):
            warnings.warn(
                f"the graph is poor: {accuracy}, where chance is {1 / len(classes):.0%}. "
                "Neighbours seldom share a class: other features may help",
                stacklevel=3,
            )
        self.label_distributions_ = nodes[place]
        known = np.flatnonzero(codes >= 0)
        self.label_distributions_[known] = np.eye(len(classes))[codes[known]]
        self.transduction_ = classes[self.label_distributions_.argmax(1)]
        self.leave_one_out_score_ = (
            accuracy.correct / accuracy.tested if accuracy.tested else float("nan")
        )
        self.classes_, self.affinity_matrix_ = classes, W
        self.class_prior_ = shares
        self._graph, self._nodes = graph, nodes
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict classes of samples by their neighbours in the graph.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or sparse (n_samples, n_fitted)
            Samples, or their affinities to those of `fit`.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Predicted classes.
        """
        found: NDArray[Any] = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[found])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict class probabilities of samples by their neighbours in the graph.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or sparse (n_samples, n_fitted)
            Samples, or their affinities to those of `fit`.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`.
        """
        check_is_fitted(self)
        X = self._check_samples(X, reset=False)
        to_nodes = X if self._graph is None else self._graph.connect(X)
        found = row_normalised(np.asarray(to_nodes @ self._nodes))
        found[~found.any(1)] = self.class_prior_
        return found

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_nodes")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        precomputed = self.affinity == "precomputed"
        tags.input_tags.sparse = tags.input_tags.pairwise = precomputed
        tags.input_tags.positive_only = precomputed
        return tags

    def _check_parameters(self) -> None:
        check_choice("method", self.method, get_args(PropagationMethod))
        check_integer("n_neighbors", self.n_neighbors, least=1)
        if check_number("alpha", self.alpha, above=0) >= 1:
            raise ValueError(f"alpha must be below 1, got {self.alpha!r}")
        check_choice("affinity", self.affinity, AFFINITIES)
        check_choice("image_distance", self.image_distance, IMAGE_DISTANCES)
        if self.image_shape is not None and self.affinity == "precomputed":
            raise ValueError(
                f"image_shape has no effect with affinity='precomputed', got {self.image_shape!r}"
            )

    def _check_samples(self, X: Any, reset: bool) -> Any:
        """Samples in the shape they are compared in, or a matrix of affinities."""
        least = 2 if reset else 1
        if self.affinity == "precomputed":
            X = validate_data(
                self,
                X,
                dtype=np.float64,
                accept_sparse="csr",
                reset=reset,
                ensure_min_samples=least,
            )
            if reset and X.shape[0] != X.shape[1]:
                raise ValueError(f"X must be square with affinity='precomputed', got {X.shape}")
            X = sparse.csr_matrix(X)
            if X.nnz and X.data.min() < 0:
                raise ValueError("Negative values in data passed to X: affinities must not be")
            return X
        X = validate_data(self, X, dtype=FLOATS, order="C", reset=reset, ensure_min_samples=least)
        if self.image_shape is None:
            return X
        return X.reshape(len(X), *sample_shape(X.shape[1], "", self.image_shape))


def _symmetric(X: sparse.csr_matrix) -> sparse.csr_matrix:
    """Affinities in both directions, without those of samples to themselves."""
    W = ((X + X.T) / 2).tocsr()
    W.setdiag(0)
    W.eliminate_zeros()
    return W


def _warn_of_components(far: NDArray[np.bool_]) -> None:
    if far.mean() > MOST_UNREACHED:
        warnings.warn(
            f"{far.sum()} of {len(far)} samples are in connected components of the graph that hold "
            "no label: their classes are guesses. Label some of them, or connect them by more "
            "neighbours",
            stacklevel=4,
        )


def _warn_of_units(features: FeatureMap) -> None:
    if features.standardised:
        low, high = features.spread
        warnings.warn(
            f"features have very different units (standard deviations from {low:.3g} to "
            f"{high:.3g}): each was standardised. Scale them before, as by StandardScaler, to "
            "decide yourself",
            stacklevel=4,
        )
