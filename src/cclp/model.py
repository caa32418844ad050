"""``cclp.fit``: from a user's files to a trained model, in one line of Python."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cclp.commands.configure import is_auto, make_config
from cclp.commands.train import announce, train
from cclp.progress import Reporter, make_reporter
from cclp.runs.data import check_data, load_data
from cclp.runs.directory import check_new
from cclp.runs.record import read_config, read_verdict

if TYPE_CHECKING:
    from cclp.runs.inference import Prediction
    from cclp.selection.verdict import Verdict

AnyPath = str | PathLike[str]


def fit(
    data: AnyPath,
    *,
    target: str | None = None,
    method: str = "auto",
    max_steps: int | None = None,
    seed: int = 0,
    time_limit: float | None = None,
    out: AnyPath | None = None,
    verbose: bool = True,
    **options: Any,
) -> "Model":
    """Train a classifier on a user's own files, as ``cclp train`` does.

    Args:
        data: a folder or archive of images, a table, or arrays; see docs/own-data.md.
        target: the column of classes of a table.
        method: "auto" compares models by cross-validation over the labels, and trains the best.
        max_steps: of training; None: as many as suit the data.
        seed: of everything random.
        time_limit: in minutes; fewer steps are done if need be.
        out: run directory, which must not exist; None: a temporary one, gone with the model.
        verbose: whether to show progress, on standard error.
        options: further ones of ``cclp train``, with underscores: ``image_size=64``,
            ``drop=["id"]``, ``features="timm:resnet18"``.

    Returns:
        The trained model.

    Raises:
        ValueError: for data and options that cannot be.
    """
    given = {
        "data": str(data),
        "target": target,
        "method": method,
        "max_steps": max_steps,
        "seed": seed,
        **options,
    }
    known = {option.name for option in train.params} - {"resume", "quiet"}
    for name in options:
        if name not in known:
            raise ValueError(f"there is no such option of cclp train: {name}")
    config, auto = make_config(**given), is_auto(**given)
    made = None if out is not None else Path(tempfile.mkdtemp(prefix="cclp-"))
    run = Path(out) if made is None else made / "run"  # type: ignore[arg-type]
    try:
        check_new(run)
        with make_reporter(quiet=False) if verbose else Reporter() as report:
            found = load_data(config, report, features=config.features)
            check_data(config, found, auto)
            announce(found, report)
            from cclp.runs import start  # loads torch

            start.train(
                config,
                run,
                report,
                command=f"cclp.fit({str(data)!r})",
                data=found,
                auto=auto,
                fixed_steps=max_steps is not None,
                time_limit=None if time_limit is None else 60 * time_limit,
            )
        model = Model(run, net=options.get("net"), features=config.features)
    except BaseException:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        raise
    if made is not None:
        weakref.finalize(model, shutil.rmtree, made, ignore_errors=True)
    return model


class Model:
    """A trained network, in a run directory.

    Args:
        run: the run directory, of ``cclp train`` or :func:`fit`.
        net: the user's own network named again, if the run has one.
        features: those of the run named again, if they are the user's own or have moved.

    Attributes:
        run: the run directory.
        classes: names.
        verdict: how models compare, if one was chosen by cross-validation.

    Raises:
        ValueError: if it is none.
    """

    def __init__(self, run: AnyPath, net: str | None = None, features: str | None = None) -> None:
        self.run, self.net, self.features = Path(run), net, features
        about, _ = read_config(self.run)
        self.classes: tuple[str, ...] = tuple(about["data"]["classes"])
        self.verdict: Verdict | None = read_verdict(self.run)

    def predict(self, paths: AnyPath | Sequence[AnyPath]) -> "list[Prediction]":
        """Classes of files, with the probability of each.

        Args:
            paths: images, folders of them, arrays or tables, as those trained on.
        """
        from cclp.runs.inference import predict

        some = [paths] if isinstance(paths, str | PathLike) else paths
        files = [Path(path) for path in some]
        return list(predict(self.run, files, net=self.net, features=self.features))

    def report(self, path: AnyPath) -> Path:
        """Write an HTML page about the training.

        Args:
            path: of the page; an older report there is replaced, another file or a report that
                was changed is not.
        """
        from cclp.report.page import write_report

        write_report([self.run], Path(path))
        return Path(path)

    def save(self, path: AnyPath) -> Path:
        """Copy the run directory; ``cclp.Model(path)`` and all commands take the copy.

        Args:
            path: of the copy, which must not exist.
        """
        copy = Path(path)
        check_new(copy)
        shutil.copytree(self.run, copy, symlinks=True, dirs_exist_ok=True)
        return copy

    def export(self, path: AnyPath) -> Path:
        """Write a folder with config.json, model.safetensors and README.md, a model card: what
        ``huggingface_hub`` uploads.

        Args:
            path: of the folder, which must not exist.
        """
        from cclp.runs.export import export

        export(self.run, Path(path), "safetensors", self.net)
        return Path(path)

    def __repr__(self) -> str:
        error = (
            ""
            if self.verdict is None
            else f", error {self.verdict.row(self.verdict.chosen).error:.1%}"
        )
        return f"Model({str(self.run)!r}, {len(self.classes)} classes{error})"
