"""scikit-learn estimators. Unlike the rest of the package this folder follows scikit-learn: names,
docstrings and errors.
"""

from cclp.threads import prepare_threads, survive_forks

prepare_threads()  # before torch is loaded
survive_forks()

from cclp.sklearn.classifier import CCLPClassifier  # noqa: E402
from cclp.sklearn.label_file import labels_from  # noqa: E402
from cclp.sklearn.propagation import GraphLabelPropagation  # noqa: E402

__all__ = ["CCLPClassifier", "GraphLabelPropagation", "labels_from"]
