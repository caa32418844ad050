"""scikit-learn estimators. Unlike the rest of the package this folder follows scikit-learn: names,
docstrings and errors.
"""

from cclp.sklearn.classifier import CCLPClassifier
from cclp.sklearn.propagation import GraphLabelPropagation

__all__ = ["CCLPClassifier", "GraphLabelPropagation"]
