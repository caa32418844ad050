"""The data of a run: loaded by its configuration, and divided by it."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cclp.data.dataset import Dataset, InputSpec
from cclp.data.load import load
from cclp.data.published.catalog import CATALOG
from cclp.data.splits import Split, make_split
from cclp.data.user.label_file import with_label_file
from cclp.data.weights import label_weights
from cclp.phases import phase
from cclp.progress import Reporter
from cclp.training.config import Config


@phase("reading")
def load_data(
    config: Config,
    report: Reporter,
    fingerprint: str | None = None,
    moved_to: Path | None = None,
    spec: InputSpec | None = None,
    features: str | None = None,
) -> Dataset:
    """The data of a configuration.

    Args:
        config: that names them.
        report: shows the progress of what takes long.
        fingerprint: that they must have, if the run has begun.
        moved_to: where they are now: the folder of published data, or the user's own data.
        spec: that the run recorded, if it has begun. The columns of a table and features are taken
            from it: to fit them again could give others in another version.
        features: that this command or program names, as code that a file names is never imported.

    Raises:
        ValueError: if they cannot be had, or have changed.
    """
    if moved_to is not None and config.data in CATALOG:
        config = replace(config, data_dir=str(moved_to))
    elif moved_to is not None:
        config = replace(config, data=str(moved_to))
    elif config.data not in CATALOG and not Path(config.data).exists():
        raise ValueError(f"{config.data} is not there: if it has moved, add --data-dir NEW_PLACE")
    if spec is not None and spec.columns is None and spec.features is None:
        spec = None
    if spec is None and config.features is not None and features is None:
        raise ValueError(f"features {config.features!r} must be named again")
    data = load(
        config.data,
        None if config.data_dir is None else Path(config.data_dir),
        verify=config.verify,
        image_size=config.image_size,
        target=config.target,
        drop=config.drop,
        keep=config.keep,
        skip_bad=config.skip_bad,
        features=features,
        spec=spec,
        fetch=fingerprint is None,  # a run that is read never uses the network
        report=report,
        needs_labels=config.labels_from is None,
    )
    if config.labels_from is not None:
        data = with_label_file(data, Path(config.labels_from))
    if fingerprint is not None and data.fingerprint != fingerprint:
        raise ValueError(
            f"{config.data} has changed since the run began: its SHA-256 is "
            f"{data.fingerprint[:12]}…, expected {fingerprint[:12]}…"
        )
    return data


def split_data(config: Config, data: Dataset) -> Split:
    """Which samples are labeled, unlabeled and held out in a run."""
    return make_split(data.train_y, config.num_labels, config.held_out or 0, config.seed)


def check_data(config: Config, data: Dataset, auto: bool) -> Split:
    """Make sure that the data have what a configuration asks for, without torch.

    Args:
        config: what to do.
        data: to train on.
        auto: see :func:`with_held_out`.

    Returns:
        Which samples are labeled, unlabeled and held out.

    Raises:
        ValueError: if they have too few labels, or other classes than those that have weights.
    """
    split = split_data(with_held_out(config, data, auto), data)
    labels = data.train_y[split.labeled]
    label_weights(labels, data.spec.classes, config.class_weight, config.class_prior)
    return split


def with_held_out(config: Config, data: Dataset, auto: bool = False) -> Config:
    """The configuration with a number of samples to hold out: by default a fifth of the labels,
    but for the last of each class; none if there is a test set.

    Args:
        config: what to do.
        data: to train on.
        auto: whether models are compared: all labels are judged by cross-validation, none held out.
    """
    if config.held_out is not None:
        return config
    if auto or len(data.test_y):
        return replace(config, held_out=0)
    known = data.train_y[data.train_y >= 0]
    most = len(known) - len(np.unique(known))
    return replace(config, held_out=min(-(-len(known) // 5), most))
