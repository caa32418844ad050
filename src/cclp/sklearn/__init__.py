"""scikit-learn estimators. Unlike the rest of the package this folder follows scikit-learn: names,
docstrings and errors.
"""

from cclp.sklearn.classifier import CCLPClassifier

__all__ = ["CCLPClassifier"]
