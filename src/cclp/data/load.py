"""Data by what the user calls them: a name in the catalogue, or a path."""

from pathlib import Path
from typing import Literal

from cclp.checks import refuse_options
from cclp.data.catalog import CATALOG, load_published
from cclp.data.form import Dataset, Form
from cclp.data.own import kind_of, load_own
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
    label: str | None = None,
    skip_bad: bool = False,
    form: Form | None = None,
    report: Reporter | None = None,
) -> Dataset:
    """Load data by name or path.

    Args:
        data: a name of the catalogue, or a path.
        data_dir, verify: of published data, see :func:`cclp.data.catalog.load_published`.
        image_size, label, skip_bad: of own data, see :func:`cclp.data.own.load_own`.
        form: of a run, to bring own data into; published data must be of it.
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
            label=label,
            skip_bad=skip_bad,
            form=form,
            report=report,
        )
    refuse_options(
        {"image_size": image_size, "label": label, "skip_bad": skip_bad},
        f"is for your own files, not for {data}",
    )
    found = load_published(data, data_dir, verify=verify, report=report)
    if form is not None and found.form != form:
        raise ValueError(
            f"{data} must have classes {', '.join(form.classes)} and samples of shape "
            f"{form.shape} up to {form.white}, as those trained on, got "
            f"{', '.join(found.form.classes)} and {found.form.shape} up to {found.form.white}"
        )
    return found
