"""Data by name or by path: a name of the catalog, or a user's own files."""

from collections.abc import Collection
from pathlib import Path

from cclp.checks import refuse_options
from cclp.data.dataset import Dataset, InputSpec, Kind
from cclp.data.published.catalog import CATALOG
from cclp.data.published.load import load_published
from cclp.data.user.load import READERS, find_user_kind, load_user_data
from cclp.progress import Reporter


def find_kind(data: str) -> Kind:
    """Whether data are images or vectors, without loading them.

    Raises:
        ValueError: if there are no such data.
    """
    if data in CATALOG:
        return "images"
    if not Path(data).exists():
        raise ValueError(
            f"data must be one of {', '.join(CATALOG)}, a folder or archive of images, or a file "
            f"ending in {', '.join(READERS)}, got {data!r}"
        )
    return find_user_kind(Path(data))


def load(
    data: str,
    data_dir: Path | None = None,
    *,
    verify: bool = True,
    image_size: int | None = None,
    target: str | None = None,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    skip_bad: bool = False,
    features: str | None = None,
    spec: InputSpec | None = None,
    fetch: bool = True,
    report: Reporter | None = None,
    needs_labels: bool = True,
) -> Dataset:
    """Load data by name or path.

    Args:
        data: a name of the catalog, or a path.
        data_dir, verify: for published data, see :func:`cclp.data.published.load.load_published`.
        image_size, target, drop, keep, skip_bad, features: for own data, see
            :func:`cclp.data.user.load.load_user_data`.
        spec: of a run, that own data are brought to; published data must have it.
        fetch: whether published data that are missing are fetched.
        report: shows what takes long.
        needs_labels: whether own data without labels of two classes are refused.

    Raises:
        ValueError: for data that cannot be loaded, and options that do not fit them.
    """
    find_kind(data)
    if data not in CATALOG:
        refuse_options(
            {"no_verify": not verify, "data_dir": data_dir},
            f"is for published data, not for {data}",
        )
        return load_user_data(
            Path(data),
            image_size=image_size,
            target=target,
            drop=drop,
            keep=keep,
            skip_bad=skip_bad,
            features=features,
            spec=spec,
            report=report,
            needs_labels=needs_labels,
        )
    refuse_options(
        {"image_size": image_size, "target": target, "skip_bad": skip_bad, "features": features}
        | {"drop": tuple(drop), "keep": tuple(keep)},
        f"is for your own files, not for {data}",
    )
    found = load_published(data, data_dir, verify=verify, fetch=fetch, report=report)
    if spec is not None and found.spec != spec:
        raise ValueError(
            f"{data} must have classes {', '.join(spec.classes)} and samples of shape "
            f"{spec.shape} up to {spec.white}, as those trained on, got "
            f"{', '.join(found.spec.classes)} and {found.spec.shape} up to {found.spec.white}"
        )
    return found
