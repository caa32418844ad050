"""``cclp data …``: published data."""

from pathlib import Path

import click

from cclp.commands.options import data_dir_option, quiet_option
from cclp.commands.output import echo
from cclp.data.published.catalog import CATALOG
from cclp.data.published.load import fetch_published, location, verify_published
from cclp.progress import make_reporter


@click.group()
def data() -> None:
    """List, fetch and verify published data."""


@data.command("list")
@data_dir_option
def data_list(data_dir: Path | None) -> None:
    """List the published data sets, and where they are on this machine."""
    for name, entry in CATALOG.items():
        here = location(name, data_dir) if entry.files else "bundled"
        missing = f"not here: cclp data fetch {name} ({entry.size / 1e6:.0f} MB)"
        echo(f"{name:14} {entry.about}\n{'':14} {here or missing}")


@data.command("fetch")
@click.argument("name", type=click.Choice(list(CATALOG)))
@data_dir_option
@quiet_option
def data_fetch(name: str, data_dir: Path | None, quiet: bool) -> None:
    """Fetch the data set NAME from the first source that has it, and verify it."""
    with make_reporter(quiet) as report:
        sources = fetch_published(name, data_dir, report)
    verify_published(name, data_dir)
    place = location(name, data_dir) or "bundled, nothing to fetch"
    echo(f"{name}: {place}" + (f" (from {', '.join(sources)})" if sources else ""))


@data.command("verify")
@click.argument("name", type=click.Choice(list(CATALOG)))
@data_dir_option
def data_verify(name: str, data_dir: Path | None) -> None:
    """Compare the files of the data set NAME with the published hashes."""
    for state in verify_published(name, data_dir):
        echo(f"{state.path}: {state.found}")
    echo(f"{name}: all files are the published ones")
