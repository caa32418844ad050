"""CCLPClassifier in a scikit-learn pipeline, on embeddings; -1 marks what has no label.

The first step, principal components of digits, stands in for a foundation model: leave it out and
give your own embeddings as ``X``, a row for each sample. 30 labels of 1,347; beside it two
semi-supervised classifiers of scikit-learn, untuned. Errors are on 450 test images.

    python examples/sklearn_pipeline.py
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from cclp.sklearn import CCLPClassifier

LABELS = 30


def main() -> None:
    """Fit each classifier on the same labels, and print its test error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="labeled sets")
    parser.add_argument("--max-steps", type=int, help="of training; default: the estimator's")
    options = parser.parse_args()
    X, X_test, truth, y_test = train_test_split(
        *load_digits(return_X_y=True), test_size=450, random_state=0
    )
    models = {
        "CCLPClassifier": CCLPClassifier(max_iter=options.max_steps, random_state=0),
        "LabelSpreading": LabelSpreading(kernel="knn", n_neighbors=10, max_iter=100),
        "SelfTraining": SelfTrainingClassifier(LogisticRegression(max_iter=1000)),
    }
    for name, model in models.items():
        pipeline = make_pipeline(PCA(32, random_state=0), model)
        errors = []
        for seed in range(options.seeds):
            labeled, _ = train_test_split(
                np.arange(len(X)), train_size=LABELS, stratify=truth, random_state=seed
            )
            y = np.full(len(X), -1)
            y[labeled] = truth[labeled]
            errors.append(1 - pipeline.fit(X, y).score(X_test, y_test))
        each = ", ".join(f"{error:.1%}" for error in errors)
        print(f"{name}: {np.mean(errors):.1%} of test images wrong ({each})")


if __name__ == "__main__":
    main()
