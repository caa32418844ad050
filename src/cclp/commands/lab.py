"""``cclp lab``: heavy imports wait until it runs."""

import signal
import threading
import webbrowser
from pathlib import Path

import click

from cclp.checks import refuse_options
from cclp.commands.output import echo
from cclp.commands.stop import interrupted_by
from cclp.files import write_bytes
from cclp.progress import make_reporter


@click.command(short_help="A page to touch the method, or to watch a run.")
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Where the data of RUN are now, if they have moved: for images.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any that is free.")
@click.option("--no-browser", is_flag=True, help="Print the address only.")
@click.option("--link", metavar="ADDRESS", help="A situation, as the button Link copies it.")
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    metavar="PAGE",
    help="Write a page of one situation, computed beforehand, with a slider; nothing is started.",
)
def lab(
    run: Path | None,
    data_dir: Path | None,
    port: int,
    no_browser: bool,
    link: str | None,
    export: Path | None,
) -> None:
    """A page on this machine to touch the method, or to watch RUN while it is training.

    Place points, label some, and see labels spread, forces, and clusters form: computed by this
    package. Of RUN it shows curves, the health of the graph and the embedding over time.

    \b
    cclp lab
    cclp lab runs/mnist
    cclp lab --export moons.html

    Ctrl-C or SIGTERM stops it. Needs pip install 'cclp[lab]', but for --export.
    """
    if export is not None:
        unused = {"run": run, "data_dir": data_dir, "port": port or None}
        refuse_options(unused, "has no effect with --export")
        _export(export, link)
        return
    if run is not None:
        refuse_options({"link": link}, "is a situation of the playground, which RUN is not")
    else:
        refuse_options({"data_dir": data_dir}, "is for the images of RUN")

    def announce(address: str) -> None:
        echo(f"cclp lab: {address}  (Ctrl-C stops it)")
        if not no_browser:
            page = address if link is None else f"{address}#{link.partition('#')[2]}"
            threading.Thread(target=webbrowser.open, args=[page], daemon=True).start()

    try:
        with interrupted_by(signal.SIGINT, signal.SIGTERM):
            from cclp.lab.server import serve

            serve(run, data_dir, port, announce)
    except KeyboardInterrupt:
        echo("Stopped.")
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise ValueError(f"cclp lab needs {error.name}: pip install 'cclp[lab]'") from None


def _export(page: Path, link: str | None) -> None:
    if page.exists():
        raise ValueError(f"{page} exists and is never overwritten: choose another --export")
    from cclp.lab.export import make_page

    with make_reporter(quiet=False) as report:
        try:
            content = make_page(link, report)
        except TypeError as error:  # a link that holds a value of another kind
            raise ValueError(str(error)) from None
    write_bytes(page, content.encode(), new=True)
    echo(f"page: {page}")
