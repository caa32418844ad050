"""``CCLPClassifier``: the trainer as a scikit-learn estimator, in memory.

Unlike the rest of the package this file follows scikit-learn: names, docstrings and errors.
"""

from collections.abc import Callable
from copy import deepcopy
from math import prod
from typing import Any, Self

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from cclp.checks import check_choice, check_integer, check_number
from cclp.data.dataset import InputSpec
from cclp.data.splits import Split
from cclp.methods import make_methods, method_parts
from cclp.nets import Net, mlp
from cclp.nets.registry import call_net, make_net
from cclp.progress import Reporter, make_reporter
from cclp.pseudo_labels.prior import Prior
from cclp.training.config import ACCELERATORS, PRECISIONS
from cclp.training.evaluation import Outputs, error_rate, recalibrate_batchnorm, run_net
from cclp.training.loop import (
    Objective,
    Training,
    cclp_settings,
    own_randomness,
    set_up,
    train_steps,
)
from cclp.training.machine import make_fabric
from cclp.training.recipe import SIMILARITIES, OneCycle, Recipe

LABELED_BATCH = 200
EVALUATIONS, PATIENCE = 50, 0.2
_SAME_NETWORK = "warm_start needs the features, network and method of the last fit"
FLOATS = (np.float64, np.float32)
BANDWIDTH = 2.0


class CCLPClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Semi-supervised neural classifier: few labels, many unlabeled samples.

    A network is trained by compact latent space clustering [1]_ (or another method): every step
    builds a graph over the embeddings of a batch, spreads the labels over it, and pulls each class
    into one compact cluster. Features are standardised inside.

    Parameters
    ----------
    method : str, default="cclp"
        How unlabeled samples are used: "cclp", "supervised" (not at all), "lba", "entropy",
        "pseudo_label", "pi_model", "mean_teacher", "vat", "fixmatch", or several with "+" between
        them.

    net : {"mlp", "cnn"} or callable, default="mlp"
        The network. "cnn" needs `image_shape`. A callable takes the shape of a sample and the
        number of classes, and returns a `torch.nn.Module` with modules `features` (samples to
        embeddings) and `classifier` (embeddings to logits).

    image_shape : tuple of int, default=None
        Shape that each row of `X` is brought to: (height, width) or (channels, height, width).

    hidden_sizes : tuple of int, default=(256, 256)
        Hidden layers of the "mlp".

    embedding_size : int, default=128
        Size of the embedding of the "mlp", which `transform` returns.

    steps : int, default=3
        Longest Markov chain of CCLP.

    weight : float or dict, default=None
        Weight of the method's term; by method if there are several. None: the method's own.

    similarity : {"dot", "cosine", "euclidean"}, default="euclidean"
        Of embeddings, for CCLP.

    prior : float, default=0.6
        Share of the training over which labels that were spread over a neighbour graph of the
        inputs give way to those spread over the embeddings, for CCLP. It is tested by leaving
        labels out, and not used if it is poor. 0: there is no such prior, as in the paper.

    max_iter : int, default=None
        Training steps. None: 300; fewer for less than 200 samples, but at least 100; more for over
        2000, growing with the cube root of their number.

    batch_size : tuple of int, default=(5, 250)
        Labeled samples of each class, and unlabeled samples, in a step; at most 200 labeled ones
        together, and of the unlabeled never more than half of all there are.

    learning_rate : float, default=4e-3
        Largest one of a one-cycle schedule.

    early_stopping : bool, default=False
        Whether to hold out labeled samples, stop when the score on them has not risen for a fifth
        of `max_iter`, and keep the best network. With few labels they are better spent on training.

    validation_fraction : float, default=0.1
        Share of the labeled samples that `early_stopping` holds out: of every class with two, at
        least one.

    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
        Where to train and predict.

    precision : {"32", "bf16", "auto"}, default="32"
        Of training. Predictions are made in float32.

    verbose : bool, default=False
        Whether to show progress.

    random_state : int, RandomState instance or None, default=None
        Pass an int for the same network every time.

    warm_start : bool, default=False
        Whether to go on with the network of the last `fit`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels that occur, without the mark of unlabeled samples.

    n_iter_ : int
        Training steps done.

    n_features_in_ : int
        Number of features.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if `X` had names that are all strings.

    history_ : dict of str to list of float
        Terms of the loss at every step, and "validation_score", with "validation_step", under
        `early_stopping`.

    module_ : torch.nn.Module
        The network, on the CPU; `features` and `classifier` take standardised samples.

    Notes
    -----
    Unlabeled samples are marked by -1; in float labels NaN does so too, among objects None, NaN and
    pandas.NA. String labels come as objects.

    `score` leaves unlabeled samples out, so searches and cross-validation may hold some, with the
    estimator's own score (`scoring=None`). scikit-learn stratifies folds by labels and takes -1 for
    one; with other marks give a splitter, as in `cv=KFold(5, shuffle=True)`.

    Memory grows in proportion to the number of samples: no graph of all pairs is kept.

    References
    ----------
    .. [1] K. Kamnitsas et al., "Semi-Supervised Learning via Compact Latent Space Clustering",
       ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from cclp.sklearn import CCLPClassifier
    >>> X, truth = make_moons(200, noise=0.05, random_state=0)
    >>> y = np.full(200, -1)
    >>> for c in (0, 1):  # three labels each
    ...     y[np.flatnonzero(truth == c)[:3]] = c
    >>> model = CCLPClassifier(random_state=0).fit(X, y)
    >>> model.score(X, truth) > 0.95
    True
    >>> model.transform(X[:5]).shape
    (5, 128)
    """

    classes_: NDArray[Any]
    _offset: NDArray[np.float64]
    _spec: InputSpec

    def __init__(
        self,
        *,
        method: str = "cclp",
        net: str | Callable[[tuple[int, ...], int], torch.nn.Module] = "mlp",
        image_shape: tuple[int, ...] | None = None,
        hidden_sizes: tuple[int, ...] = (256, 256),
        embedding_size: int = 128,
        steps: int = 3,
        weight: float | dict[str, float] | None = None,
        similarity: str = "euclidean",
        prior: float = 0.6,
        max_iter: int | None = None,
        batch_size: tuple[int, int] = (5, 250),
        learning_rate: float = 4e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        device: str = "auto",
        precision: str = "32",
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
    ) -> None:
        self.method = method
        self.net = net
        self.image_shape = image_shape
        self.hidden_sizes = hidden_sizes
        self.embedding_size = embedding_size
        self.steps = steps
        self.weight = weight
        self.similarity = similarity
        self.prior = prior
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.device = device
        self.precision = precision
        self.verbose = verbose
        self.random_state = random_state
        self.warm_start = warm_start

    def fit(self, X: Any, y: Any) -> Self:
        """Train on labeled and unlabeled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        y : array-like of shape (n_samples,)
            Labels; -1, NaN or None where there is none.

        Returns
        -------
        self : CCLPClassifier
            The fitted estimator.
        """
        before = dict(self.__dict__)
        try:
            return self._fit(X, y)
        except BaseException:  # what was fitted before stays as it was
            self.__dict__ = before
            raise

    def _fit(self, X: Any, y: Any) -> Self:
        X = validate_data(self, X, dtype=FLOATS, order="C", ensure_min_samples=2)
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None."
            )
        y = _labels(y)
        check_consistent_length(X, y)
        classes, codes = _encode(y)
        recipe = self._recipe(len(X))
        spec = InputSpec(tuple(map(str, classes)), self._shape(X.shape[1]))
        fitted = self.warm_start and hasattr(self, "_objective")
        if fitted and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"warm_start needs the classes of the last fit, {self.classes_}, got {classes}"
            )
        if fitted and spec.shape != self._spec.shape:
            raise ValueError(
                f"{_SAME_NETWORK}: samples of shape {self._spec.shape}, got {spec.shape}"
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        split = self._split(codes, seed)
        fabric = make_fabric(self.device, self.precision)
        with own_randomness(), make_reporter(quiet=False) if self.verbose else Reporter() as report:
            offset = self._offset if fitted else X.mean(0, dtype=np.float64)
            x = _less(X, offset).reshape(len(X), *spec.shape)
            training = set_up(
                fabric,
                x,
                codes,
                split,
                recipe,
                lambda: self._net(spec),
                lambda: make_methods(self.method, spec.num_classes, self._settings(recipe)),
                normalization="zscore",
                labeled_batch=LABELED_BATCH,
                seed=seed,
            )
            if fitted:
                self._go_on(training.objective)
            self._train(fabric, training, x, codes, split, recipe, seed, report)
        self.classes_, self._offset, self._spec = classes, offset, spec
        return self

    def _train(
        self,
        fabric: Fabric,
        training: Training,
        x: NDArray[np.float32],
        y: NDArray[np.int64],
        split: Split,
        recipe: Recipe,
        seed: int,
        report: Reporter,
    ) -> None:
        objective = training.objective
        prior = None
        if recipe.prior and "cclp" in method_parts(self.method):
            num_classes = int(y.max()) + 1
            found = Prior(x, y, split, num_classes)
            poor = found.graph.leave_out().is_poor(num_classes)
            prior = None if poor else found.classes
        title = f"{self.method}, {len(x)} samples, {len(split.labeled)} labels"
        report.begin(title, 0, recipe.max_steps)
        history: dict[str, list[float]] = {}
        best = _Best(recipe.max_steps)
        for outcome in train_steps(fabric, *training[2:], x, y, recipe, seed, prior=prior):
            self.n_iter_ = outcome.done
            for name, value in outcome.terms.items():
                history.setdefault(name, []).append(value)
            report.step(outcome.done, outcome.terms, outcome.seconds)
            if len(split.held_out) and best.is_due(outcome.done):
                recalibrate_batchnorm(fabric, objective, x, split.unlabeled, seed)
                logits = run_net(fabric, objective, x, split.held_out).logits
                error = error_rate(logits, y[split.held_out])
                report.error(outcome.done, error)
                history.setdefault("validation_score", []).append(1 - error)
                history.setdefault("validation_step", []).append(outcome.done)
                if best.is_over(outcome.done, error, objective):
                    break
        if best.state is None:
            recalibrate_batchnorm(fabric, objective, x, split.unlabeled, seed)
        else:
            objective.load_state_dict(best.state)
        self.history_ = history
        self._n_features_out = run_net(fabric, objective, x[:2]).z.shape[1]
        objective.zero_grad(set_to_none=True)
        self._objective = objective.cpu().eval()
        self.module_ = objective.network

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Predicted classes.
        """
        logits = self._run(X).logits
        classes: NDArray[Any] = self.classes_[logits.argmax(1).numpy()]
        return classes

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Predict class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`.
        """
        return np.asarray(self._run(X).logits.softmax(1))

    def predict_log_proba(self, X: Any) -> NDArray[np.float32]:
        """Predict logarithms of class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            Log-probabilities, in the order of `classes_`.
        """
        return np.asarray(self._run(X).logits.log_softmax(1))

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Logits of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            The largest is the predicted class; of two classes, the second's less the first's.
        """
        logits = np.asarray(self._run(X).logits)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Embed samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        Z : ndarray of shape (n_samples, embedding_size)
            Embeddings.
        """
        return np.asarray(self._run(X).z)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the samples that have a label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        y : array-like of shape (n_samples,)
            Labels; samples without one are left out.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        score : float
            Share of right predictions.
        """
        predicted, y = self.predict(X), _labels(y)
        check_consistent_length(predicted, y, sample_weight)
        known = ~_unlabeled(y)
        right = np.array([a == b for a, b in zip(predicted[known], y[known], strict=True)], float)
        if not len(right):
            raise ValueError("y has no label: there is nothing to score")
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(np.average(right, weights=weights))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_objective")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _run(self, X: Any) -> Outputs:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOATS, order="C", reset=False)
        fabric = make_fabric(self.device, "32")
        x = _less(X, self._offset).reshape(len(X), *self._spec.shape)
        try:
            return run_net(fabric, self._objective.to(fabric.device), x)
        finally:
            self._objective.cpu()  # so that it can be loaded where there is no such device

    def _recipe(self, count: int) -> Recipe:
        """The parameters, checked, as the trainer takes them."""
        if not isinstance(self.method, str):
            raise ValueError(f"method must be a string, got {self.method!r}")
        check_choice("similarity", self.similarity, SIMILARITIES)
        check_choice("device", self.device, ACCELERATORS)
        check_choice("precision", self.precision, PRECISIONS)
        check_number("learning_rate", self.learning_rate, above=0)
        prior = check_number("prior", self.prior, least=0, most=1)
        if not isinstance(self.batch_size, tuple | list) or len(self.batch_size) != 2:
            raise ValueError(
                "batch_size must be (labeled samples of each class, unlabeled samples), got "
                f"{self.batch_size!r}"
            )
        per_class, unlabeled = self.batch_size
        check_integer("batch_size[1]", unlabeled, least=2)
        steps = self.max_iter
        if steps is None:
            steps = _usual_steps(count)
        return Recipe(
            "estimator",
            "mlp",
            check_integer("max_iter", steps, least=1),
            self.learning_rate,
            OneCycle(),
            per_class=check_integer("batch_size[0]", per_class, least=1),
            unlabeled_batch=max(2, min(unlabeled, count // 2)),
            chain_steps=check_integer("steps", self.steps, least=1),
            similarity=self.similarity,  # type: ignore[arg-type]
            bandwidth=BANDWIDTH,
            prior=prior,
        )

    def _settings(self, recipe: Recipe) -> dict[str, dict[str, Any]]:
        """Of the methods, by name."""
        parts = method_parts(self.method)
        weights = self.weight
        if weights is None:
            weights = {}
        elif not isinstance(weights, dict):
            if len(parts) != 1:
                raise ValueError(
                    f"weight must be by method, as in {{'vat': 0.3}}, for method={self.method!r}, "
                    f"got {weights!r}"
                )
            weights = {parts[0]: weights}
        for name in weights:
            if name not in parts:
                raise ValueError(f"weight has {name!r}, but the method is {self.method!r}")
            check_number("weight", weights[name], least=0)
        settings: dict[str, dict[str, Any]] = {"cclp": cclp_settings(recipe)}
        for name, weight in weights.items():
            settings[name] = settings.get(name, {}) | {"weight": weight}
        return settings

    def _shape(self, features: int) -> tuple[int, ...]:
        """Of a sample, as the network takes it."""
        for name in ("image_shape", "hidden_sizes"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, tuple | list):
                raise ValueError(f"{name} must be a tuple, got {value!r}")
        if self.image_shape is None:
            if self.net == "cnn":
                raise ValueError("net='cnn' needs image_shape, got None")
            return (features,)
        shape = tuple(self.image_shape)
        shape = (1, *shape) if len(shape) == 2 else shape
        if len(shape) != 3 or prod(shape) != features:
            raise ValueError(
                "image_shape must be (height, width) or (channels, height, width) of the "
                f"{features} features, got {self.image_shape!r}"
            )
        return shape

    def _net(self, spec: InputSpec) -> Net:
        if callable(self.net):
            return call_net(
                self.net,
                getattr(self.net, "__name__", repr(self.net)),
                spec.shape,
                spec.num_classes,
            )
        check_choice("net", self.net, ("mlp", "cnn"))
        if self.net == "cnn":
            return make_net("mnist", spec.shape, spec.num_classes)
        return mlp(
            prod(spec.shape),
            spec.num_classes,
            hidden_sizes=self.hidden_sizes,
            embedding_size=self.embedding_size,
        )

    def _split(self, y: NDArray[np.int64], seed: int) -> Split:
        """All samples are seen unlabeled, but for those held out: of each class, if it has two."""
        held_out = np.empty(0, np.int64)
        if self.early_stopping:
            share = check_number("validation_fraction", self.validation_fraction, above=0)
            if share >= 1:
                raise ValueError(f"validation_fraction must be below 1, got {share!r}")
            rng = np.random.default_rng(seed)
            classes = [rng.permutation(np.flatnonzero(y == c)) for c in range(y.max() + 1)]
            held_out = np.concatenate(
                [i[: min(len(i) - 1, max(1, round(share * len(i))))] for i in classes]
            )
            if not len(held_out):
                raise ValueError("early_stopping needs a class with at least 2 labels, got none")
        labeled = np.setdiff1d(np.flatnonzero(y >= 0), held_out)
        return Split(labeled, np.setdiff1d(np.arange(len(y)), held_out), np.sort(held_out))

    def _go_on(self, objective: Objective) -> None:
        """Take over what the last fit has learned."""
        try:
            objective.load_state_dict(self._objective.state_dict())
        except RuntimeError as error:
            raise ValueError(f"{_SAME_NETWORK}: {str(error).splitlines()[-1].strip()}") from None


class _Best:
    """The network with the best score so far, and whether to wait for a better one.

    Parameters
    ----------
    steps : int
        Of the training.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.error = float("inf")
        self.state: dict[str, Any] | None = None
        self.found = 0

    def is_due(self, done: int) -> bool:
        """Whether to look now: fifty times, and at the end."""
        return done % -(-self.steps // EVALUATIONS) == 0 or done == self.steps

    def is_over(self, done: int, error: float, objective: Objective) -> bool:
        """Look at one more."""
        if error < self.error:
            self.error, self.found = error, done
            self.state = deepcopy(objective.state_dict())
        return done - self.found >= PATIENCE * self.steps


def _usual_steps(count: int) -> int:
    """Of training, for so many samples."""
    few, many = 200, 2000
    return int(300 * max(1 / 3, min(1, count / few)) * max(1.0, count / many) ** (1 / 3))


def _less(X: NDArray[Any], offset: NDArray[Any]) -> NDArray[np.float32]:
    """X - offset, rounded to float32 only then: times in seconds are large and differ by little."""
    x = np.empty(X.shape, np.float32)
    with np.errstate(over="ignore"):
        np.subtract(X, offset, out=x, casting="same_kind")
    if not np.isfinite(x).all():
        raise ValueError("Input X contains infinity or a value too large for dtype('float32').")
    return x


def _labels(y: Any) -> NDArray[Any]:
    """One label for each sample, as they came: lists and series are not made into one type."""
    if hasattr(y, "to_list"):  # series of pandas and polars
        y = y.to_list()
    if isinstance(y, list | tuple):
        y = np.array(y, dtype=object)
    return np.asarray(column_or_1d(y, warn=True))


def _unlabeled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Where there is no label: -1, NaN, None or pandas.NA."""
    if y.dtype.kind in "USb":
        return np.zeros(len(y), bool)
    if y.dtype.kind != "O":
        return np.asarray((y == -1) | (y != y))

    def missing(value: Any) -> bool:
        if isinstance(value, str | bytes):
            return False
        return (
            value is None
            or type(value).__name__ in ("NAType", "NaTType")
            or (isinstance(value, int | float | np.number) and bool(value == -1 or value != value))
        )

    return np.array([missing(value) for value in y], bool)


def _encode(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Classes, and a class index for each sample, -1 where there is no label."""
    known = ~_unlabeled(y)
    labels = y[known]
    if labels.dtype.kind == "O":
        strings = {isinstance(label, str) for label in labels}
        if len(strings) == 2:
            raise ValueError("y must have labels of one kind, got strings and others")
        if strings == {False}:
            labels = np.array(labels.tolist())  # numbers among None are numbers
    elif labels.dtype.kind in "US" and set(np.unique(labels)) & {"-1", "nan", b"-1", b"nan"}:
        raise ValueError(
            "y is an array of strings and has '-1' or 'nan' among them: with string labels use "
            "dtype=object, and None, NaN or -1 for unlabeled samples"
        )
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError(f"Input y contains infinity or a value too large for {labels.dtype!r}.")
    if len(labels) == 0:
        raise ValueError("y has no label: all samples are marked as unlabeled (-1, NaN or None)")
    check_classification_targets(np.repeat(labels, 3))  # or a label a class looks like regression
    classes, index = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y must have labels of at least 2 classes, got 1 class: {classes.tolist()[0]!r} "
            "(-1 marks unlabeled samples)"
        )
    codes = np.full(len(y), -1)
    codes[known] = index
    return classes, codes
