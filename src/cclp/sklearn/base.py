"""What the estimators share: how they read labels, fit and score."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length

from cclp.sklearn.labels import encode_labels, is_unlabeled, read_labels

FLOATS = (np.float64, np.float32)


class SemiSupervisedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of labeled and unlabeled samples."""

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
        predicted, y = self.predict(X), read_labels(y)
        check_consistent_length(predicted, y, sample_weight)
        known = ~is_unlabeled(y)
        right = np.array([a == b for a, b in zip(predicted[known], y[known], strict=True)], float)
        if not len(right):
            raise ValueError("y has no label: there is nothing to score")
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(np.average(right, weights=weights))

    @contextmanager
    def _restored_on_failure(self) -> Iterator[None]:
        """What was fitted before stays as it was if a fit fails."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _encode(self, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Classes, and a class index for each sample, -1 where there is no label."""
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None."
            )
        y = read_labels(y)
        check_consistent_length(X, y)
        return encode_labels(y)
