"""A trained network put to use: ``cclp evaluate``, ``predict``, ``export`` and ``report``."""

from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cclp.commands.options import (
    data_dir_option,
    features_option,
    net_option,
    no_verify_option,
    path_option,
    quiet_option,
    run_argument,
    skip_bad_option,
    target_option,
)
from cclp.commands.output import echo, echo_table
from cclp.commands.reproduce import experiment_page
from cclp.data.splits import SOURCES
from cclp.files import write_bytes
from cclp.progress import make_reporter
from cclp.runs.record import read_config
from cclp.text import csv_line

if TYPE_CHECKING:
    from cclp.runs.export import Format
    from cclp.runs.inference import Prediction


@click.command(short_help="Measure a trained network on labeled data.")
@run_argument
@click.argument("data", required=False)
@target_option
@skip_bad_option
@data_dir_option
@no_verify_option
@features_option
@net_option
@quiet_option
def evaluate(run: Path, data: str | None, no_verify: bool, quiet: bool, **options: Any) -> None:
    """Measure the network of RUN: on what it was measured on while training, or on DATA.

    DATA is whatever cclp train takes: its test set is used, or all its labels if it has none.

    \b
    cclp evaluate runs/photos
    cclp evaluate runs/photos more-photos/
    """
    read_config(run)  # what is no run is refused before torch is loaded
    from cclp.runs.inference import evaluate

    with make_reporter(quiet) as report:
        found = evaluate(run, data, verify=not no_verify, report=report, **options)
    width = max(map(len, found.classes))
    for k, (name, row) in enumerate(zip(found.classes, found.confusion, strict=True)):
        if row.any() and not quiet:
            wrong = row.sum() - row[k]
            others = [(count, other) for other, count in enumerate(row) if other != k]
            most = f", most often {found.classes[max(others)[1]]}" if wrong else ""
            echo(f"{name:{width}}  {wrong / row.sum():7.2%} of {row.sum()} wrong{most}")
    unlike = "" if found.verified is not False else ", not the published files"
    which = f"{found.data}, {SOURCES[found.source]}{unlike}"
    echo(f"error {found.error:.2%} on {found.confusion.sum()} samples ({which})")


@click.command(short_help="Classes of files, as a table.")
@run_argument
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@path_option("--out", "A .csv file to write.  [default: standard output]")
@click.option("--by-doubt", is_flag=True, help="Those that the network is least sure of first.")
@skip_bad_option
@features_option
@net_option
@quiet_option
def predict(
    run: Path,
    files: tuple[Path, ...],
    out: Path | None,
    by_doubt: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Classes of FILES by the network of RUN, as a table: file, row, class, its probability, and
    the probability of every class.

    FILES are images, folders of images, .npz and .npy files with X, or tables with the columns of
    the one that was trained on; their rows are counted from 0.

    \b
    cclp predict runs/photos new/*.jpg --out predictions.csv
    """
    if out is not None and out.exists():
        raise ValueError(f"{out} exists and is never overwritten: choose another --out")
    if out is not None and not out.parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}")
    about, _ = read_config(run)
    from cclp.runs.inference import predict

    classes = [f"P({name})" for name in (about.get("data") or {}).get("classes", ())]
    table = bytearray(_encoded(["file", "row", "class", "probability", *classes]))
    with make_reporter(quiet) as report:
        found = predict(run, files, report=report, **options)
        rows: Iterable[tuple[float, bytes]] = ((each.margin, _row(each)) for each in found)
        if by_doubt:
            rows = sorted(rows, key=itemgetter(0))
        count = 0
        for _, row in rows:
            table += row
            count += 1
    if out is None:
        echo_table(table.decode(errors="surrogateescape"))
    else:
        write_bytes(out, bytes(table), new=True)
        echo(f"{count} predictions: {out}")


def _row(found: "Prediction") -> bytes:
    row = "" if found.row is None else found.row
    numbers = [f"{p:.4f}" for p in (found.probability, *found.probabilities)]
    return _encoded([found.file, row, found.label, *numbers])


def _encoded(cells: list[Any]) -> bytes:
    return csv_line(cells).encode(errors="surrogateescape")


@click.command(short_help="A run's network for other programs, with a card.")
@run_argument
@click.option(
    "--format",
    "kind",
    type=click.Choice(["onnx", "safetensors"]),
    default="onnx",
    show_default=True,
    help="ONNX needs pip install 'cclp[onnx]'.",
)
@path_option("--out", "A folder to make.  [default: the run's name and the format]")
@net_option
@quiet_option
def export(run: Path, kind: "Format", out: Path | None, net: str | None, quiet: bool) -> None:
    """The network of RUN as a file that other programs load, and a model card beside it.

    It takes raw samples and gives logits and embeddings. The card, for programs (config.json) and
    people (README.md), says what it was trained on, with how many labels, and how well it does.
    The Hugging Face Hub takes the folder as it is.

    \b
    cclp export runs/photos                        # photos-onnx/model.onnx
    cclp export runs/photos --format safetensors   # for cclp.runs.export.load_exported
    hf upload ME/photos photos-safetensors         # with pip install huggingface_hub
    """
    read_config(run)
    from cclp.runs.export import export

    out = out or Path(f"{run.resolve().name}-{kind}")
    with make_reporter(quiet) as report:
        config = export(run, out, kind, net, report)
    echo(f"{out / config['file']} and its card, {out / 'README.md'}")


@click.command(short_help="One HTML page about one run or several, or an experiment.")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@path_option("--out", "The page.  [default: report.html in the run; here, for several]")
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """One HTML page about RUNS, several side by side; it needs no network.

    Of a directory that cclp reproduce has made, figures are drawn again too.

    \b
    cclp report runs/mnist
    cclp report runs/mnist runs/mnist-supervised --out comparison.html
    """
    from cclp.experiments.folder import is_experiment
    from cclp.report.page import write_report

    if any(map(is_experiment, runs)):
        if len(runs) > 1:
            raise ValueError("an experiment of cclp reproduce has a page of its own: give one")
        echo(f"report: {experiment_page(runs[0], out)}")
        return
    if out is None:
        out = runs[0] / "report.html" if len(runs) == 1 else Path("report.html")
    write_report(list(runs), out)
    echo(f"report: {out}")
