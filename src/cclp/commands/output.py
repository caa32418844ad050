"""What commands print: names in it come from anywhere."""

import sys

import click

from cclp.text import for_terminal


def echo(text: str, *, err: bool = False) -> None:
    """Print a line, or several, in which names cannot do anything to the terminal."""
    click.echo(for_terminal(text), err=err)


def echo_table(table: str) -> None:
    """Print a table: as it is into a file or another program."""
    click.echo(for_terminal(table) if sys.stdout.isatty() else table, nl=False)
