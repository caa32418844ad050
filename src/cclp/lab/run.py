"""A run directory for a page that shows it while training goes on."""

import math
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.checks import check_integer
from cclp.data.published.catalog import CATALOG
from cclp.data.published.load import location
from cclp.progress import Reporter
from cclp.report.charts import Series, thin
from cclp.report.health import DIAGNOSTICS, run_warnings
from cclp.report.page import class_colours
from cclp.report.pictures import png
from cclp.report.projection import fit_square, project
from cclp.report.sections import curve, error_curve, loss_lines
from cclp.report.summary import headline
from cclp.runs.arrays import Embedding
from cclp.runs.record import RunRecord, read_record
from cclp.runs.trust import confirm_data

PLANE, MARGIN = 1000, 25  # places are whole numbers from 0 to this
NEIGHBOURS = 8


class RunView:
    """A run directory, read again when its files have changed.

    Args:
        path: the directory.
        data_dir: where its data are now, if they have moved.

    Raises:
        ValueError: if it is none, or if a file of it is damaged.
    """

    def __init__(self, path: Path, data_dir: Path | None = None) -> None:
        self.path, self.data_dir = path, data_dir
        self._known = self._version(), read_record(path)

    def record(self) -> tuple[str, RunRecord]:
        """What the directory holds now, and a name for this state of it."""
        version = self._version()
        if version != self._known[0]:
            self._known = version, read_record(self.path)
        return self._known

    def _version(self) -> str:
        times = []
        for name in ("metrics.jsonl", "result.json", "embedding"):
            with suppress(FileNotFoundError):
                times.append((self.path / name).lstat().st_mtime_ns)
        return "-".join(map(str, ["run", *times]))

    def summary(self, seen: str | None = None) -> dict[str, Any]:
        """All that the page shows; only the version, if the page has seen this state."""
        version, run = self.record()
        if version == seen:
            return {"version": version}
        what, outcome = headline(run)
        light, dark = class_colours(len(run.classes))
        warnings = run_warnings(run)
        return {
            "version": version,
            "name": self.path.resolve().name,
            "what": what,
            "outcome": outcome,
            "finished": run.result is not None,
            "step": run.step,
            "max_steps": run.config.recipe.max_steps,
            "classes": run.classes,
            "colours": {"light": light, "dark": dark},
            "charts": _charts(run),
            "warnings": [w._asdict() for w in warnings.current] if warnings else [],
            "embedding": None if run.embedding is None else _places(run.embedding),
        }

    def point(self, step: int, point: int) -> dict[str, Any]:
        """A point at a recorded step: its nearest by embedding, and their images, its own first.

        Raises:
            ValueError: if there is no such step or point.
        """
        _, run = self.record()
        embedding = run.embedding
        if embedding is None or step not in embedding.steps:
            raise ValueError(f"step must be one that is recorded, got {step}")
        check_integer("point", point, least=0)
        if point >= len(embedding.y):
            raise ValueError(f"point must be below {len(embedding.y)}, got {point}")
        z = embedding.z[embedding.steps.index(step)]
        distance = np.linalg.norm(z - z[point], axis=1)
        distance[point] = -1  # before any copies of it
        near = np.argsort(distance, kind="stable")[: NEIGHBOURS + 1]
        images, why = self._images
        return {
            "neighbours": near[1:].tolist(),
            "distances": distance[near[1:]].round(4).tolist(),
            "images": None
            if images is None
            else [png(images[embedding.index[i]], run.white) for i in near],
            "no_images": why,
        }

    @cached_property
    def _images(self) -> tuple[NDArray[Any] | None, str]:
        """The training images, or None and why not."""
        from cclp.runs.data import load_data  # imports all that training needs: seconds

        try:
            _, run = self.record()
            if run.config.features is not None:
                return None, "No images: the inputs of this run are features."
            confirm_data(self.path, run.config, self.data_dir)
            name, folder = run.config.data, self.data_dir or run.config.data_dir
            published = name in CATALOG and len(CATALOG[name].files) > 0
            if published and location(name, Path(folder) if folder else None) is None:
                return None, f"No images: {name} is not here (cclp data fetch {name})."
            data = load_data(run.config, Reporter(), run.fingerprint, self.data_dir)
        except (ValueError, OSError) as error:
            return None, f"No images: {error}"
        x = data.train_x
        if x.ndim != 4 or x.shape[1] not in (1, 3) or x.dtype != np.uint8:
            return None, "These data are no images."
        return x, ""


def _charts(run: RunRecord) -> list[dict[str, Any]]:
    """Of the error, the loss, the learning rate and the diagnostics of the graph."""
    found = [
        _chart("Error, %", [error_curve(run)]),
        _chart("Loss", loss_lines(run)),
        _chart("Learning rate", [curve(run, "learning_rate", "learning rate")]),
    ]
    for diagnostic in DIAGNOSTICS:
        chart = _chart(diagnostic.title, diagnostic.lines(run))
        limit, log = diagnostic.limit, diagnostic.decades > 0
        found.append({**chart, "meaning": diagnostic.caption, "limit": limit, "log": log})
    return [chart for chart in found if chart["lines"]]


def _chart(title: str, lines: list[Series]) -> dict[str, Any]:
    drawn = [_line(line) for line in lines if line.y]
    return {"title": title, "meaning": "", "limit": None, "log": False, "lines": drawn}


def _line(series: Series) -> dict[str, Any]:
    x, y = thin(series.x, series.y)
    return {"name": series.name, "x": x, "y": [v if math.isfinite(v) else None for v in y]}


def _places(embedding: Embedding) -> dict[str, Any]:
    """The embedding in the plane, (T, P, 2) whole numbers, and what is known of the points."""
    plane, how = project(embedding.z, embedding.predicted[-1])
    return {
        "steps": embedding.steps,
        "places": fit_square(plane, PLANE, MARGIN).tolist(),
        "predicted": embedding.predicted.tolist(),
        "y": embedding.y.tolist(),
        "labeled": embedding.labeled.tolist(),
        "index": embedding.index.tolist(),
        "how": how,
        "recorded": embedding.recorded,
    }
