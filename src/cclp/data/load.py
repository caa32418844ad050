"""Data by what the user calls them: a name in the catalogue, or a path."""

from pathlib import Path
from typing import Literal

from cclp.checks import refuse_options
from cclp.data.dataset import Dataset, InputSpec
from cclp.data.published.catalog import CATALOG, load_published
from cclp.data.user.folder import kind_of, load_own
from cclp.progress import Reporter

Kind = Literal["images", "vectors"]


def find_kind(data: str) -> Kind:
    """Whether these data are images or vectors; cheap.

    Raises:
        ValueError: if there are no such data.
    """
    if data in CATALOG:
        return "images"
    if not Path(data).exists():
        raise ValueError(
            f"data must be one of {', '.join(CATALOG)}, a folder of images, an .npz or a .csv "
            f"file, got {data!r}"
        )
    return kind_of(Path(data))


def load(
    data: str,
    data_dir: Path | None = None,
    *,
    verify: bool = True,
    image_size: int | None = None,
    target: str | None = None,
    skip_bad: bool = False,
    spec: InputSpec | None = None,
    report: Reporter | None = None,
) -> Dataset:
    """Load data by name or path.

    Args:
        data: a name of the catalogue, or a path.
        data_dir, verify: of published data, see :func:`cclp.data.published.catalog.load_published`.
        image_size, target, skip_bad: of own data, see :func:`cclp.data.user.folder.load_own`.
        spec: of a run, to bring own data into; published data must be of it.
        report: told of what takes long.

    Raises:
        ValueError: for data that cannot be had or are not what they should be.
    """
    find_kind(data)
    if data not in CATALOG:
        refuse_options(
            {"no_verify": not verify, "data_dir": data_dir},
            f"is for published data, not for {data}",
        )
        return load_own(
            Path(data),
            image_size=image_size,
            target=target,
            skip_bad=skip_bad,
            spec=spec,
            report=report,
        )
    refuse_options(
        {"image_size": image_size, "target": target, "skip_bad": skip_bad},
        f"is for your own files, not for {data}",
    )
    found = load_published(data, data_dir, verify=verify, report=report)
    if spec is not None and found.spec != spec:
        raise ValueError(
            f"{data} must have classes {', '.join(spec.classes)} and samples of shape "
            f"{spec.shape} up to {spec.white}, as those trained on, got "
            f"{', '.join(found.spec.classes)} and {found.spec.shape} up to {found.spec.white}"
        )
    return found
