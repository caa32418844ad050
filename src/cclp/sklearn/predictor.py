"""What a fitted estimator can do: predict, embed, score."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from cclp.sklearn.base import FLOATS, SemiSupervisedClassifier
from cclp.sklearn.parameters import subtract
from cclp.training.evaluation import Outputs, run_net
from cclp.training.machine import make_fabric
from cclp.training.objective import Objective


class Predictor(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    SemiSupervisedClassifier,
):
    """An estimator that a fit has given a network, classes and the shape of samples."""

    device: str
    classes_: NDArray[Any]
    _offset: NDArray[np.float64]
    _shape: tuple[int, ...]
    _objective: Objective
    _temperature: float

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
        return np.asarray((self._run(X).logits / self._temperature).softmax(1))

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
        return np.asarray((self._run(X).logits / self._temperature).log_softmax(1))

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
        x = subtract(X, self._offset).reshape(len(X), *self._shape)
        try:
            return run_net(fabric, self._objective.to(fabric.device), x)
        finally:
            self._objective.cpu()  # so that it can be loaded where there is no such device
