"""``cclp …``: the command line. Whatever the user got wrong is one line and exit code 2."""

import atexit
import gc
import re
import signal
import sys
from contextlib import suppress
from typing import NoReturn

import click

import cclp
from cclp.commands.compare import compare
from cclp.commands.data import data
from cclp.commands.lab import lab
from cclp.commands.label import label
from cclp.commands.output import echo
from cclp.commands.reproduce import reproduce
from cclp.commands.stop import Interrupted, interrupted_by
from cclp.commands.train import train
from cclp.commands.use import evaluate, export, predict, report
from cclp.threads import prepare_threads
from cclp.training import processes

USER_ERROR, FAILED = 2, 1
RENAMED = {
    "--bandwidth": "is now --setting cclp.bandwidth=…",
    "--label": "is now --target",
    "--labels": "is now --num-labels",
    "--normalization": "is gone: inputs are always z-scored",
    "--prior": "is now --method cclp+graph_pseudo_label and --setting graph_pseudo_label.decay=…; "
    "--method cclp is without pseudo-labels",
    "--prior-features": "is now --pseudo-label-features",
    "--similarity": "is now --setting cclp.similarity=…",
    "--steps": "is now --max-steps",
    "--strategy": "is gone: several --devices always use DDP",
}


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    },
    epilog="Begin with: cclp train digits --num-labels 50",
)
@click.version_option(cclp.__version__)
def command() -> None:
    """Few labels, many unlabeled samples: one accurate classifier."""


for part in (train, compare, evaluate, predict, export, report, lab, label, reproduce, data):
    command.add_command(part)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; whatever the user got wrong is one line and exit code 2."""
    prepare_threads()
    _collect_less_garbage()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with interrupted_by(signal.SIGINT):
            code = command.main(arguments, prog_name="cclp", standalone_mode=False, obj=arguments)
    except click.exceptions.NoArgsIsHelpError as empty:
        echo(empty.format_message())
        sys.exit(USER_ERROR)
    except click.NoSuchOption as error:
        _fail(_renamed(error) or error.format_message(), USER_ERROR)
    except click.ClickException as error:
        _fail(error.format_message(), USER_ERROR)
    except (ValueError, OSError) as error:
        _fail(str(error), USER_ERROR)
    except (processes.WorkerDied, FloatingPointError) as error:
        if processes.rank():  # process 0 prints it too
            sys.exit(FAILED)
        _fail(str(error), FAILED)
    except MemoryError as error:
        _fail(str(error) or "out of memory", FAILED)
    except (Interrupted, click.Abort, KeyboardInterrupt) as stopped:
        what = str(stopped) if isinstance(stopped, Interrupted) else "run the same command again"
        _fail(f"stopped at once; {what}", 128 + signal.SIGINT)
    sys.exit(code or 0)


def _collect_less_garbage() -> None:
    """Loading torch and Fabric makes a million objects, none of them garbage.

    Looking for garbage among them takes a quarter of the time that loading takes, and a second once
    more when Python ends.
    """
    gc.set_threshold(10_000, 10, 10)
    atexit.register(gc.freeze)


def _renamed(error: click.NoSuchOption) -> str | None:
    """What became of an option, if the command has what came instead."""
    became = RENAMED.get(error.option_name)
    if became is None or error.ctx is None:
        return None
    known = {flag for parameter in error.ctx.command.params for flag in parameter.opts}
    named = set(re.findall(r"--[a-z-]+", became))
    return f"{error.option_name} {became}" if not named or named & known else None


def _fail(message: str, code: int) -> NoReturn:
    rank = 0
    with suppress(ValueError):  # of a number in the environment: perhaps that is the message
        rank = processes.rank()
    who = f"process {rank}: " if rank else ""
    echo(f"cclp: {who}{' '.join(message.split())}", err=True)
    sys.exit(code)
