"""``cclp label``: heavy imports wait until it runs."""

import errno
import shlex
import signal
import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cclp.commands.options import (
    choice_option,
    data_dir_option,
    drop_option,
    features_option,
    image_size_option,
    keep_option,
    path_option,
    skip_bad_option,
)
from cclp.commands.output import echo
from cclp.commands.stop import interrupted_by
from cclp.data.load import find_kind
from cclp.progress import make_reporter

if TYPE_CHECKING:
    from cclp.labelling.workbench import Workbench

PORT = 8377  # the same each time, so that an open page finds the next start; else any free one


@click.command(short_help="Label images, rows or texts in the browser, by few questions.")
@click.argument("data")
@path_option("--labels-from", "Go on with the classes in this labels.csv.", metavar="LABELS.CSV")
@click.option(
    "--target",
    metavar="COLUMN",
    help="Column of classes in a table; those that are there count as labels.",
)
@path_option(
    "--out",
    "Folder of the decisions; it is made, and continued if it is there.  [default: beside DATA, "
    "named after it with .labels]",
    metavar="FOLDER",
)
@choice_option(
    "--image-distance",
    ("hog", "idm"),
    "hog",
    "How images are compared: HOG features, or the image distortion model: better for handwriting "
    "and drawings, and minutes slower.",
)
@drop_option
@keep_option
@skip_bad_option
@image_size_option
@features_option
@data_dir_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"0: any that is free.  [default: {PORT} if it is free]",
)
@click.option("--no-browser", is_flag=True, help="Print the address only.")
def label(
    data: str,
    labels_from: Path | None,
    out: Path | None,
    image_distance: Any,
    port: int | None,
    no_browser: bool,
    **options: Any,
) -> None:
    """Label DATA on a page of this machine: a folder of images, a table, texts or an .npz.

    The page asks about the samples that teach the most. You answer by one key; every answer is on
    the disk before the next sample is shown, and passed on to similar samples at once. The page
    says how good the labels are and when more will hardly help. DATA are never changed.

    \b
    cclp label photos/                     # images, with or without a folder for each class
    cclp label reviews.csv --target kind   # a table; the column may be empty
    cclp label digits                      # to try it
    cclp train photos/ --labels-from photos.labels/labels.csv   # after the button Export

    Ctrl-C stops it; the same command goes on where you were. Needs pip install 'cclp[lab]'.
    """
    find_kind(data)
    if labels_from is not None and not labels_from.is_file():
        raise ValueError(f"--labels-from {labels_from} must be a labels.csv, but is not there")
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} must be a folder, but is a file")
    bench: Workbench | None = None
    try:
        with interrupted_by(signal.SIGINT, signal.SIGTERM):
            from cclp.labelling import source, workbench
            from cclp.labelling.server import serve

            with make_reporter(quiet=False) as report:
                opened = source.Source.open(data, labels_from=labels_from, report=report, **options)
            folder = out or opened.folder
            bench = workbench.Workbench(
                opened, folder, image_distance=image_distance, background=True
            )
            _serve(serve, bench, port, no_browser)
    except KeyboardInterrupt:
        _say_goodbye(bench)
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise ValueError(f"cclp label needs {error.name}: pip install 'cclp[lab]'") from None
    finally:
        if bench is not None:
            bench.close()


def _serve(serve: Any, bench: "Workbench", port: int | None, no_browser: bool) -> None:
    def announce(address: str) -> None:
        echo(f"cclp label: {address}  (Ctrl-C stops it; decisions are in {bench.folder})")
        if not no_browser:
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    try:
        serve(bench, PORT if port is None else port, announce)
    except OSError as error:
        if port is not None or error.errno != errno.EADDRINUSE:
            raise
        serve(bench, 0, announce)


def _say_goodbye(bench: "Workbench | None") -> None:
    if bench is None:
        echo("Stopped before anything was asked.")
        return
    state = bench.state()
    answers = state["labeled"] + state["not_sure"] + state["none"]
    command = shlex.join(["cclp", *(click.get_current_context().obj or sys.argv[1:])])
    saved = "1 answer is" if answers == 1 else f"{answers:,} answers are"
    echo(f"Stopped. {saved} saved in {bench.folder}. Go on: {command}")
