"""What was read, in a line: classes with their labels, unlabeled samples, test samples."""

import numpy as np

from cclp.data.dataset import Dataset
from cclp.data.user.features import short_name

MOST_NAMED = 12  # classes; of more, only the numbers are said


def describe(data: Dataset) -> str:
    """What data hold, in a line.

    Examples:
        >>> from cclp.data.dataset import InputSpec
        >>> x, y = np.zeros((6, 2)), np.array([0, 0, 1, -1, -1, -1])
        >>> spec = InputSpec(("cell", "debris"), (2,), None)
        >>> describe(Dataset("wells", spec, x, y, x[:2], y[:2]))
        'wells: 2 classes: cell (2), debris (1); 3 unlabeled; 2 features; test set 2'
    """
    counts = np.bincount(data.train_y[data.train_y >= 0], minlength=data.num_classes)
    if data.num_classes <= MOST_NAMED:
        names = ", ".join(f"{n} ({c:,})" for n, c in zip(data.spec.classes, counts, strict=True))
        classes = f"{data.num_classes} classes: {names}"
    else:
        low, high = int(counts.min()), int(counts.max())
        each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        classes = f"{data.num_classes} classes with {each} labels each"
    unlabeled = int((data.train_y < 0).sum())
    parts = [classes, f"{unlabeled:,} unlabeled" if unlabeled else "no unlabeled samples"]
    shape = data.spec.shape
    made = data.spec.features
    by = f" by {short_name(made.name)}" if made else ""
    parts.append(
        f"{shape[0]:,} features{by}" if len(shape) == 1 else f"images {shape[2]} x {shape[1]}"
    )
    parts.append(f"test set {len(data.test_y):,}" if len(data.test_y) else "no test set")
    return f"{data.name}: {'; '.join(parts)}"


def warnings_about(data: Dataset) -> list[str]:
    """What a user should know before training, in words."""
    counts = np.bincount(data.train_y[data.train_y >= 0], minlength=data.num_classes)
    found = []
    if (single := np.flatnonzero(counts == 1)).size:
        names = ", ".join(data.spec.classes[c] for c in single[:5])
        more = f" and {len(single) - 5} more" if len(single) > 5 else ""
        found.append(
            f"Classes with one label only: {names}{more}. How well they are recognised cannot be "
            "measured; a second label of each would help."
        )
    if not (data.train_y < 0).any():
        found.append(
            "There are no unlabeled samples: this is ordinary supervised learning. Add what you "
            "have not labeled, and it will be learned from too."
        )
    return found
