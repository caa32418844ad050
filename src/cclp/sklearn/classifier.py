"""``CCLPClassifier``: the trainer as a scikit-learn estimator, in memory."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from cclp.checks import check_choice
from cclp.data.splits import Split
from cclp.data.weights import (
    ESTIMATE,
    LABELS,
    check_class_prior,
    class_shares,
    label_weights,
)
from cclp.files import read_bytes, write_bytes
from cclp.progress import Reporter, make_reporter
from cclp.renamed import renamed
from cclp.selection.problem import Candidate, Problem
from cclp.sklearn.base import FLOATS
from cclp.sklearn.parameters import (
    MakeNet,
    build_net,
    estimator_recipe,
    make_split,
    method_settings,
    sample_shape,
    subtract,
)
from cclp.sklearn.predictor import Predictor
from cclp.training.callbacks import (
    Callback,
    EarlyStopping,
    Evaluate,
    GraphPseudoLabels,
    History,
    InputGraph,
    Progress,
    RecalibrateAtEnd,
    pseudo_label_schedule,
)
from cclp.training.config import ACCELERATORS, LABELED_BATCH, PRECISIONS
from cclp.training.evaluation import EvaluationSet
from cclp.training.machine import make_fabric
from cclp.training.objective import Objective
from cclp.training.seeding import own_randomness
from cclp.training.trainer import Trainer

EVALUATIONS, PATIENCE = 50, 0.2
AUTO, PREFERRED = "auto", "cclp+graph_pseudo_label"
_SAME_NETWORK = "warm_start needs the features, network and method of the last fit"


class CCLPClassifier(Predictor):
    """Semi-supervised neural classifier: few labels, many unlabeled samples.

    A network is trained by compact latent space clustering [1]_ (or another method): every step
    builds a graph over the embeddings of a batch, propagates the labels over it, and pulls each
    class into one compact cluster. Pseudo-labels guide it: the vote of label propagation on a
    nearest-neighbour graph of all samples and of four simple classifiers, weighted by how well each
    predicts labels that were left out. Features are centred inside, and standardised if their units
    differ.

    Parameters
    ----------
    method : str, default="cclp+graph_pseudo_label"
        How unlabeled samples are used: "cclp" (the paper's method and nothing else),
        "graph_pseudo_label", "supervised" (not at all), "lba", "entropy", "pseudo_label",
        "pi_model", "mean_teacher", "vat", "fixmatch", "improved_gan", "bad_gan", "catgan",
        "triple_gan", "m2", "mmcvae", "temporal_ensembling", "laplacian", or several with "+"
        between them. The
        pseudo-labels of "graph_pseudo_label" are tested by leave-one-out and not used if they are
        poor; the network learns from them by cross entropy, and beside "cclp" they are a prior of
        its label propagation, which decays linearly to zero. With `class_weight`, `class_prior` or
        `sample_weight` they are that prior only, over the first 60 % of the training.

        "auto" compares models by cross-validation over the labels, in about a minute: this method,
        the network with labels only, and, on vectors, a linear network with the pseudo-labels and
        logistic regression. It fits the best of them on all labels; see `verdict_`.

    net : {"mlp", "cnn", "linear"} or callable, default="mlp"
        The network. "cnn" needs `image_shape`. A callable takes the shape of a sample and the
        number of classes, and returns a `torch.nn.Module` with modules `features` (samples to
        embeddings) and `classifier` (embeddings to logits).

    image_shape : tuple of int, default=None
        Shape that each row of `X` is brought to: (height, width) or (channels, height, width).

    hidden_sizes : tuple of int, default=(256, 256)
        Hidden layers of the "mlp".

    embedding_size : int, default=128
        Size of the embedding of the "mlp", which `transform` returns.

    chain_steps : int, default=3
        Longest Markov chain of CCLP.

    weight : float or dict, default=None
        Weight of the method's term; by name if there are several besides "graph_pseudo_label".
        None: the method's own.

    similarity : {"dot", "cosine", "euclidean"}, default="euclidean"
        Of embeddings, for CCLP.

    class_weight : dict or "balanced", default=None
        Weights of the classes in the cross entropy on labels, as in scikit-learn; 1 where one is
        left out. Steps then see labeled samples in the proportions they come in, which is better
        for classes of very unequal size. None: every class has the same weight whatever the number
        of its labels, and steps see equal numbers of each.

    class_prior : dict or {"estimate", "labels", "equal"}, default="estimate"
        Shares of the classes among all samples, for the pseudo-labels. "estimate": from the graph,
        where they differ from equal ones by more than its mistakes. "labels": as frequent as their
        labels. Pass them if they are known; steps then see labeled samples in these proportions.

    max_iter : int, default=None
        Training steps. None: 300; fewer for less than 200 samples, but at least 100; more for over
        2000, growing with the cube root of their number.

    batch_size : tuple of int, default=(5, 250)
        Labeled samples of each class, and unlabeled samples, in a step; at most 200 labeled ones
        together, and of the unlabeled never more than half of all there are. More than 200 classes
        take turns; for CCLP those that are absent from a step are present by their last embedding.

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
        Whether to continue with the network of the last `fit`.

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

    pseudo_label_decision_ : dict
        What was decided about pseudo-labels ("known", "used" or "refused"; None if the method has
        none), the leave-one-out test behind it, and the weight of each teacher.

    method_ : str
        What was trained: `method`, or what "auto" has chosen.

    verdict_ : dict
        With `method="auto"`: "rows", the cross-validated error of each model with its interval;
        "chosen"; "sentences", what it comes to in words; "classes", errors class by class; and the
        "temperature" by which `predict_proba` is calibrated. None for another method, and if no
        class has two labels.

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

    @renamed("steps", "chain_steps")
    def __init__(
        self,
        *,
        method: str = "cclp+graph_pseudo_label",
        net: str | Callable[[tuple[int, ...], int], torch.nn.Module] = "mlp",
        image_shape: tuple[int, ...] | None = None,
        hidden_sizes: tuple[int, ...] = (256, 256),
        embedding_size: int = 128,
        chain_steps: int = 3,
        weight: float | dict[str, float] | None = None,
        similarity: str = "euclidean",
        class_weight: str | dict[Any, float] | None = None,
        class_prior: str | dict[Any, float] = "estimate",
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
        self.chain_steps = chain_steps
        self.weight = weight
        self.similarity = similarity
        self.class_weight = class_weight
        self.class_prior = class_prior
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on labeled and unlabeled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        y : array-like of shape (n_samples,)
            Labels; -1, NaN or None where there is none.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights in the cross entropy on labels, none below 0, and nowhere else.

        Returns
        -------
        self : CCLPClassifier
            The fitted estimator.
        """
        with self._restored_on_failure():
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        X = validate_data(self, X, dtype=FLOATS, order="C", ensure_min_samples=2)
        classes, codes = self._encode(X, y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        check_choice("device", self.device, ACCELERATORS)
        check_choice("precision", self.precision, PRECISIONS)
        method = PREFERRED if self.method == AUTO else self.method
        recipe = estimator_recipe(
            len(X),
            method=method,
            max_iter=self.max_iter,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
        )
        check_class_prior(self.class_prior)
        known = self.class_prior if isinstance(self.class_prior, dict) else None
        weighted = any(z is not None for z in (self.class_weight, known, sample_weight))
        settings = method_settings(method, self.weight, self.similarity, self.chain_steps, weighted)
        shape = sample_shape(X.shape[1], self.net, self.image_shape)
        fitted = self.warm_start and hasattr(self, "_objective")
        if self.method == AUTO and (self.warm_start or self.early_stopping):
            raise ValueError("method='auto' has no use for warm_start or early_stopping")
        if fitted and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"warm_start needs the classes of the last fit, {self.classes_}, got {classes}"
            )
        if fitted and shape != self._shape:
            raise ValueError(f"{_SAME_NETWORK}: samples of shape {self._shape}, got {shape}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        split = make_split(codes, self.validation_fraction if self.early_stopping else None, seed)
        offset = self._offset if fitted else X.mean(0, dtype=np.float64)
        with own_randomness(), make_reporter(quiet=False) if self.verbose else Reporter() as report:
            problem = self._problem(
                subtract(X, offset).reshape(len(X), *shape),
                codes,
                split,
                classes,
                sample_weight,
                seed,
                report,
            )
            candidate = Candidate(method, method, method, recipe, settings)
            self.verdict_: dict[str, Any] | None = None
            self._temperature = 1.0
            if self.method == AUTO:
                from cclp.selection.select import select  # loads much of scipy

                selection = select(problem, recipe, settings)
                candidate = selection.candidate
                if selection.verdict is not None:
                    self.verdict_ = selection.verdict.to_json()
                    self._temperature = selection.verdict.temperature
            trainer = problem.trainer(candidate, split)
            if fitted:
                self._continue_with(trainer.objective)
            self._train(problem, trainer, candidate.title)
        self.classes_, self._offset, self._shape = classes, offset, shape
        self.method_ = candidate.name
        self._net = "linear" if candidate.recipe.net == "linear" else self.net
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted estimator to a file, from which `load` runs no code.

        Parameters
        ----------
        path : str or path-like
            Of the file, as "model.safetensors"; one that exists is not overwritten.
        """
        from cclp.sklearn.saved import from_bytes, own_code, to_bytes  # loads safetensors

        check_is_fitted(self)
        content = to_bytes(self)
        from_bytes(type(self), content, own_code(self.get_params(deep=False)))  # or raise now
        try:
            write_bytes(Path(path), content, new=True)
        except FileExistsError:
            raise ValueError(f"{path} exists and is never overwritten: choose another") from None

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, net: MakeNet | None = None, method: str | None = None
    ) -> Self:
        """The estimator that `save` has written: it predicts the same, bit for bit.

        Nothing in the file is run, whoever has made it. Lists among its parameters become tuples.
        What a method has learned besides the network is not saved, and `warm_start` needs that.

        Parameters
        ----------
        path : str or path-like
            Of the file.

        net : callable, default=None
            What the estimator had as `net`, if that was a function: the file does not hold it.

        method : str, default=None
            What it had as `method`, if that named code of your own.

        Returns
        -------
        model : CCLPClassifier
            The fitted estimator.
        """
        from cclp.sklearn.saved import LARGEST_FILE, from_bytes

        own = {"net": net, "method": method}
        try:
            content = read_bytes(Path(path), LARGEST_FILE)
            return from_bytes(cls, content, {n: v for n, v in own.items() if v is not None})
        except ValueError as error:
            raise ValueError(f"{path} cannot be used: {error}") from None

    def _problem(
        self,
        x: NDArray[np.float32],
        y: NDArray[np.int64],
        split: Split,
        classes: NDArray[Any],
        sample_weight: NDArray[Any] | None,
        seed: int,
        report: Reporter,
    ) -> Problem:
        names = classes.tolist()
        as_labels = self.class_weight is not None and self.class_prior == ESTIMATE
        prior = LABELS if as_labels else self.class_prior
        return Problem(
            x,
            y,
            split,
            tuple(map(str, names)),
            seed,
            make_fabric=lambda: make_fabric(self.device, self.precision),
            make_net=lambda net: build_net(
                "linear" if net == "linear" else self.net,
                x.shape[1:],
                len(names),
                self.hidden_sizes,
                self.embedding_size,
            ),
            label_weights=lambda labeled: label_weights(
                y[labeled],
                names,
                self.class_weight,
                self.class_prior,
                None if sample_weight is None else sample_weight[labeled],
            ),
            class_prior=lambda labeled: class_shares(
                prior, names, np.bincount(y[labeled], minlength=len(names))
            ),
            key="",
            labeled_batch=LABELED_BATCH,
            cache=None,
            report=report,
        )

    def _train(self, problem: Problem, trainer: Trainer, title: str) -> None:
        x, y, split, report = trainer.x, trainer.y, trainer.split, problem.report
        history, steps = History(), trainer.recipe.max_steps
        title = f"{title}, {len(x)} samples, {len(split.labeled)} labels"
        callbacks: list[Callback] = [Progress(report, title), history, InputGraph(report, None)]
        schedule, pseudo_labels = pseudo_label_schedule(trainer), None
        if schedule is not None:
            labeler = problem.labeler(split, schedule, report)
            pseudo_labels = GraphPseudoLabels(labeler, report)
            callbacks.append(pseudo_labels)
        if len(split.held_out):
            measured = EvaluationSet("held_out", x, split.held_out, y[split.held_out], [])
            every = -(-steps // EVALUATIONS)
            callbacks += [
                Evaluate(every, measured, recalibrate=True),
                EarlyStopping(PATIENCE * steps),
            ]
        else:
            callbacks.append(RecalibrateAtEnd())
        trainer.fit(callbacks)
        self.n_iter_, self.history_ = trainer.done, history.values
        self.pseudo_label_decision_ = (
            None if pseudo_labels is None else pseudo_labels.decision.to_json()
        )
        objective = trainer.objective
        self._n_features_out = trainer.predict(x[:2]).z.shape[1]
        objective.zero_grad(set_to_none=True)
        self._objective = objective.cpu().eval()
        self.module_ = objective.network

    def _continue_with(self, objective: Objective) -> None:
        """Take over what the last fit has learned."""
        try:
            objective.load_state_dict(self._objective.state_dict())
        except RuntimeError as error:
            raise ValueError(f"{_SAME_NETWORK}: {str(error).splitlines()[-1].strip()}") from None
