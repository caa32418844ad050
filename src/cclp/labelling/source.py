"""The data to be labeled: arrays for the graph, and what a person sees of each sample."""

import hashlib
import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cclp.data.columns import EmbeddingColumn, TextColumn
from cclp.data.dataset import Dataset
from cclp.data.load import load
from cclp.data.published.catalog import CATALOG
from cclp.data.user.csv_file import read_csv
from cclp.data.user.images import no_pillow_warnings, thumbnail
from cclp.data.user.label_file import Decided, read_label_file, sample_keys
from cclp.data.user.table import Table
from cclp.data.user.typed_tables import read_parquet, read_xlsx
from cclp.progress import Reporter

SampleKind = Literal["images", "table", "text", "vectors"]
LARGEST_PICTURE = 4096  # pixels a side
_MOST_FIELDS = 64  # of a vector that are shown


@dataclass(frozen=True)
class Source:
    """Samples to be labeled. Nothing is ever written to where they are.

    Attributes:
        path: of the data; a name for published ones.
        data: what was read of them; the training samples are those to be labeled.
        table: their rows as they are written, if they come from a table.
        given: labels to begin with, those of the data and of a labels.csv.
        options: of ``cclp train`` with which it reads the same samples.
        chosen: whether a labels.csv was named now: its labels count though some were given before.
    """

    path: Path
    data: Dataset
    table: Table | None = None
    given: tuple[Decided, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    chosen: bool = False

    @classmethod
    def open(
        cls,
        data: str,
        *,
        data_dir: Path | None = None,
        image_size: int | None = None,
        target: str | None = None,
        drop: Collection[str] = (),
        keep: Collection[str] = (),
        skip_bad: bool = False,
        features: str | None = None,
        labels_from: Path | None = None,
        report: Reporter | None = None,
    ) -> "Source":
        """Read data.

        Args:
            data: a path, or the name of published data, whose labels are hidden.
            data_dir: folder of published data.
            image_size, target, drop, keep, skip_bad, features: as for ``cclp train``.
            labels_from: labels.csv of an earlier session, to go on with.
            report: shows progress.

        Raises:
            ValueError: for data that cannot be read, and options that do not fit them.
        """
        options = {
            "data_dir": data_dir,
            "image_size": image_size,
            "target": target,
            "drop": tuple(drop),
            "keep": tuple(keep),
            "skip_bad": skip_bad,
            "features": features,
        }
        found = load(data, **options, report=report, needs_labels=False)  # type: ignore[arg-type]
        keys = sample_keys(found)
        given: list[Decided] = []
        if data not in CATALOG:
            names = found.spec.classes
            labeled = np.flatnonzero(found.train_y >= 0)
            given = [Decided(keys[i], names[found.train_y[i]], "data") for i in labeled]
        if labels_from is not None:
            given = read_label_file(labels_from)
            known = set(keys)
            missing = [row.sample for row in given if row.sample not in known]
            if missing:
                raise ValueError(
                    f"{labels_from}: {len(missing)} of {len(given)} samples are not in {data}, "
                    f"such as {missing[0]!r}"
                )
        is_table = found.spec.columns is not None
        return cls(
            path=Path(data),
            data=found,
            table=_read_table(Path(data)) if is_table else None,
            given=tuple(given),
            options={name: value for name, value in options.items() if value},
            chosen=labels_from is not None,
        )

    def __len__(self) -> int:
        return len(self.data.train_y)

    @property
    def name(self) -> str:
        """Short, for people and files."""
        return self.data.name

    @property
    def x(self) -> NDArray[Any]:
        """Samples as the graph compares them."""
        return self.data.train_x

    @cached_property
    def keys(self) -> list[str]:
        """What samples are called in journals and in labels.csv."""
        return sample_keys(self.data)

    @cached_property
    def kind(self) -> SampleKind:
        """What a person sees."""
        if self._pictures is not None or self.data.folder is not None:
            return "images"
        if self.table is None:
            return "vectors"
        return "text" if self._text_columns else "table"

    @cached_property
    def fingerprint(self) -> str:
        """Of samples that have no names: rows of another file must not get their labels."""
        digest = hashlib.sha256(f"{self.x.dtype}{self.x.shape}".encode())
        rows = np.linspace(0, len(self) - 1, min(len(self), 1000)).astype(int)
        digest.update(np.ascontiguousarray(self.x[rows]).tobytes())
        return digest.hexdigest()[:32] if self.data.folder is None else "files"

    @cached_property
    def folder(self) -> Path:
        """Where decisions are kept unless the user names another place: beside the data."""
        if str(self.path) in CATALOG:
            return Path(f"{self.path}.labels")
        whole = self.path.resolve()
        return whole.with_name(f"{self.name}.labels")

    def file(self, sample: int) -> str | None:
        """The file of a sample, if it is one."""
        return self.keys[sample] if self.data.folder is not None else None

    def row(self, sample: int) -> int | None:
        """The row of a sample in its file, counted from 0, if it is one of several."""
        return None if self.data.folder is not None else sample

    def fields(self, sample: int) -> list[tuple[str, str]]:
        """Names and values that a person sees of a row."""
        if self.table is not None:
            hidden = {*self._text_columns, self.data.spec.target}
            return [
                (name, str(self._cells(name)[sample]))
                for name in self.table.header
                if name not in hidden
            ]
        if self.kind != "vectors":
            return []
        values = self.x[sample][:_MOST_FIELDS].tolist()
        return [(str(place), f"{value:.4g}") for place, value in enumerate(values)]

    def text(self, sample: int) -> str | None:
        """The text of a sample, if it has one."""
        if self.table is None or not self._text_columns:
            return None
        return "\n\n".join(str(self._cells(name)[sample]) for name in self._text_columns)

    def picture(self, sample: int, size: int) -> bytes:
        """PNG of an image, of at most so many pixels a side.

        Raises:
            ValueError: if samples are no images, or the file cannot be read any more.
        """
        if not 0 < size <= LARGEST_PICTURE:
            raise ValueError(f"size must be from 1 to {LARGEST_PICTURE}, got {size}")
        if self.kind != "images":
            raise ValueError(f"{self.name} holds {self.kind}, not images")
        file = io.BytesIO()
        self._image(sample, size).save(file, "PNG")
        return file.getvalue()

    def words(self, sample: int) -> str:
        """What a search looks through."""
        values = [value for _, value in self.fields(sample)] if self.table is not None else []
        return "\n".join([self.keys[sample], self.text(sample) or "", *values]).lower()

    def _image(self, sample: int, size: int) -> Image.Image:
        if self.data.folder is not None:
            path = self.data.folder / self.keys[sample]
            try:
                with no_pillow_warnings():
                    return thumbnail(path, size, self.data.spec.pixel_range)
            except Exception as error:  # decoders raise many kinds
                raise ValueError(f"{path} cannot be read: {error}") from None
        assert self._pictures is not None
        pixels = self._pictures[sample]
        low, high = self._range if pixels.dtype != np.uint8 else (0, self.data.spec.white or 255)
        if (low, high) != (0, 255):
            pixels = ((pixels - low) * (255 / max(high - low, 1e-9))).clip(0, 255).astype(np.uint8)
        pixels = pixels[:3] if len(pixels) >= 3 else pixels[:1]
        turned = np.ascontiguousarray(pixels.transpose(1, 2, 0))
        image = Image.fromarray(turned[:, :, 0] if turned.shape[2] == 1 else turned)
        image.thumbnail((size, size))
        return image

    @cached_property
    def _pictures(self) -> NDArray[Any] | None:
        """Arrays of images; None if samples are files or no images."""
        if self.data.train_pictures is not None:
            return self.data.train_pictures
        return self.x if self.x.ndim == 4 else None

    @cached_property
    def _range(self) -> tuple[float, float]:
        assert self._pictures is not None
        some = self._pictures[: 2**24 // max(1, self._pictures[0].size)]
        return float(some.min()), float(some.max())

    def _cells(self, name: str) -> NDArray[Any]:
        """All cells of a column of the table; a list of them would take three times the memory."""
        assert self.table is not None
        if name not in self._columns:
            self._columns[name] = np.array(self.table.column(name), np.dtypes.StringDType())
        return self._columns[name]

    @cached_property
    def _columns(self) -> dict[str, NDArray[Any]]:
        return {}

    @cached_property
    def _text_columns(self) -> list[str]:
        columns = self.data.spec.columns or ()
        return [c.name for c in columns if isinstance(c, TextColumn | EmbeddingColumn)]


def _read_table(path: Path) -> Table:
    """The cells of a table."""
    name = path.name.lower()
    if name.endswith(".parquet"):
        return read_parquet(path)
    return read_xlsx(path) if name.endswith(".xlsx") else read_csv(path)
