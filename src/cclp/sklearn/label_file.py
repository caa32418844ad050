"""Labels of ``cclp label`` for the estimators."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.checks import check_integer
from cclp.data.user.label_file import read_label_file


def labels_from(
    path: str | os.PathLike[str], samples: int | Sequence[str], *, propagated: bool = False
) -> NDArray[Any]:
    """Labels for ``fit`` from labels.csv of ``cclp label``.

    Parameters
    ----------
    path : str or path-like
        The file.

    samples : int or list of str
        How many rows X has, if the file calls samples by their row; else their names, as paths of
        files from the data folder.

    propagated : bool, default=False
        Whether labels that nobody decided about, but the graph or a network, are read too.

    Returns
    -------
    y : ndarray of shape (n_samples,)
        Names of classes; None where there is no label.

    Raises
    ------
    ValueError
        If the file names a sample that there is not.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from cclp.sklearn import labels_from
    >>> rows = ["sample,class,who,probability", "0,cat,person,", "2,dog,page,", "3,cat,page,"]
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels.csv")
    ...     _ = path.write_text("\\n".join(rows))
    ...     labels_from(path, 4).tolist()
    ['cat', None, 'dog', 'cat']
    """
    if isinstance(samples, int):
        check_integer("samples", samples, least=1)
        names: Sequence[str] = [str(row) for row in range(samples)]
    else:
        names = [str(name).replace("\\", "/") for name in samples]
    place = {name: number for number, name in enumerate(names)}
    y = np.full(len(names), None, object)
    for row in read_label_file(Path(path), propagated=propagated):
        if row.sample not in place:
            raise ValueError(f"{path} has a label of {row.sample!r}, which samples does not name")
        if row.name:
            y[place[row.sample]] = row.name
    return y
