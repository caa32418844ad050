"""``cclp …``: the command line. Heavy imports wait until a command runs."""

import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self

import click
from click.core import ParameterSource

import cclp
from cclp.data.catalog import DATASETS
from cclp.methods import METHODS
from cclp.training.config import ACCELERATORS, NORMALIZATIONS, PRECISIONS, Config
from cclp.training.recipe import RECIPES, SIMILARITIES, Recipe, make_recipe

USER_ERROR, FAILED = 2, 1
UNLABELED_ONLY = ("weight", "chain_steps", "similarity", "bandwidth", "unlabeled_batch")


class LabelCount(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """A number of labels, or all of them."""

    name = "N|all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value is None or value == "all":
            return None
        try:
            return int(value)
        except ValueError:
            self.fail(f"must be a number or 'all', got {value!r}", param, ctx)


def _choice(flag: str, choices: tuple[str, ...], default: str, text: str) -> Callable[..., Any]:
    return click.option(flag, type=click.Choice(choices), default=default, help=text)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="Begin with: cclp train digits --labels 50",
)
@click.version_option(cclp.__version__)
def command() -> None:
    """Few labels, many unlabeled samples: one accurate classifier."""


@command.command(context_settings={"max_content_width": 100})
@click.argument("data", type=click.Choice(list(DATASETS)), default="digits")
@click.option("--labels", type=LabelCount(), default=100, help="Labeled samples, in equal shares.")
@_choice("--method", tuple(METHODS), "cclp", "How unlabeled samples are used.")
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    help="paper: the authors' settings. fast: a short one-cycle schedule. digits: for digits.  "
    "[default: digits for digits, else fast]",
)
@click.option("--seed", type=int, default=0, help="Of the labeled set, the weights, every step.")
@click.option("--out", type=click.Path(path_type=Path), help="Run directory.  [default: in runs/]")
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Go on with the run in this directory; all else comes from there (but for --data-dir, if "
    "the data have moved).",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar="CCLP_DATA",
    show_envvar=True,
    help="Folder with the files of data sets that are not bundled.",
)
@click.option("--steps", type=int, help="Training steps.  [default: the recipe's]")
@click.option("--learning-rate", type=float, help="Largest one.  [default: the recipe's]")
@click.option("--weight", type=float, help="Of the method's loss.  [default: the recipe's]")
@click.option("--chain-steps", type=int, help="S of CCLP.  [default: the recipe's]")
@click.option(
    "--similarity", type=click.Choice(SIMILARITIES), help="Of CCLP.  [default: the recipe's]"
)
@click.option("--bandwidth", type=float, help="Of euclidean similarity.  [default: the recipe's]")
@click.option(
    "--per-class", type=int, help="Labeled samples of each class a step.  [default: the recipe's]"
)
@click.option("--unlabeled-batch", type=int, help="Unlabeled ones.  [default: the recipe's]")
@click.option(
    "--labeled-batch",
    type=int,
    help="At most so many labeled samples a step; with more classes than that, classes take turns.",
)
@click.option(
    "--held-out",
    type=int,
    default=0,
    help="Keep so many training samples from training and measure the error on them, not on the "
    "test set: for choosing settings.",
)
@_choice("--normalization", NORMALIZATIONS, "zscore", "Of the inputs, by the training set.")
@_choice("--precision", PRECISIONS, "auto", "auto: bf16 where the machine computes in it.")
@_choice("--accelerator", ACCELERATORS, "auto", "Where to train.")
@click.option(
    "--evaluate-every", type=int, help="Steps between evaluations.  [default: a tenth of all]"
)
@click.option(
    "--checkpoint-every", type=int, default=100, help="Steps; at least every five minutes."
)
@click.option("--tensorboard", is_flag=True, help="Write event files too.")
@click.option("--quiet", is_flag=True, help="Warnings and the result only.")
@click.pass_context
def train(
    context: click.Context, /, out: Path | None, resume: Path | None, quiet: bool, **options: Any
) -> None:
    """Train a classifier on DATA from few labels, into a run directory.

    \b
    cclp train digits --labels 50
    cclp train mnist --labels 100 --recipe fast --steps 9000 --data-dir DIR --out runs/mnist
    cclp train --resume runs/mnist

    A run that was stopped or killed goes on with --resume as if nothing had happened.
    """
    if resume is not None:
        given = {
            parameter.name: parameter.opts[0]
            for parameter in context.command.params
            if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        }
        for name, flag in given.items():
            if name not in ("resume", "quiet", "data_dir"):
                raise ValueError(f"--resume takes everything from the run: leave out {flag}")
        moved = options["data_dir"] if "data_dir" in given else None
    else:
        config = make_config(**options)
        out = out or Path("runs", _run_name(config))

    # torch and Fabric are loaded from here on
    from cclp.training import run
    from cclp.training.progress import make_reporter

    with make_reporter(quiet) as report, StopOnSignal(report.say) as should_stop:
        try:
            if resume is None:
                assert out is not None
                result = run.train(config, out, report, should_stop)
            else:
                out = resume
                result = run.resume(out, report, should_stop, moved)
        except run.Stopped as stopped:
            report.say(f"{stopped} Go on with: cclp train --resume {shlex.quote(str(out))}")
            context.exit(128 + should_stop.number)
    click.echo(
        f"error {result['error']:.2%} on {result['images']} images ({result['measured_on']}), "
        f"{result['labels']} labels, {result['recipe']['steps']} steps, "
        f"{result['seconds'] / 60:.1f} min: {out}"
    )


def make_config(
    data: str, labels: int | None, recipe: str | None, data_dir: Path | None, **options: Any
) -> Config:
    """A configuration from the options of ``cclp train``."""
    made = make_recipe(recipe, data, all_labels=labels is None)
    overrides = {name: options.pop(name) for name in Recipe.__dataclass_fields__ if name in options}
    overrides = {name: value for name, value in overrides.items() if value is not None}
    made = replace(made, **overrides)
    if options.get("method") == "supervised":
        _refuse(overrides, UNLABELED_ONLY, "--method supervised")
    if made.similarity != "euclidean":
        _refuse(overrides, ("bandwidth",), f"--similarity {made.similarity}")
    folder = None if data_dir is None else str(data_dir.resolve())
    return Config(data=data, labels=labels, recipe=made, data_dir=folder, **options)


def _refuse(given: dict[str, Any], names: tuple[str, ...], where: str) -> None:
    """Rather than ignore an option in silence."""
    for name in names:
        if name in given:
            raise ValueError(f"--{name.replace('_', '-')} has no effect with {where}: leave it out")


def _run_name(config: Config) -> str:
    labels = "all" if config.labels is None else config.labels
    return f"{config.data}-{labels}-{config.recipe.name}-{config.method}-seed{config.seed}"


class StopOnSignal:
    """Answers whether Ctrl-C or SIGTERM has come; a second one ends the process at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.number = 0

    def __enter__(self) -> Self:
        self.before = {n: signal.signal(n, self._ask) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        return self.number != 0

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self.__exit__()
        self.say("Stopping after this step; once more to stop at once.")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; whatever the user got wrong is one line and exit code 2."""
    try:
        code = command.main(arguments, prog_name="cclp", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as empty:
        click.echo(empty.format_message())
        sys.exit(USER_ERROR)
    except click.ClickException as error:
        _fail(error.format_message(), USER_ERROR)
    except (ValueError, OSError) as error:
        _fail(str(error), USER_ERROR)
    except FloatingPointError as error:
        _fail(str(error), FAILED)
    except (click.Abort, KeyboardInterrupt):
        _fail(
            "stopped at once; a run goes on from its last checkpoint with cclp train --resume",
            128 + signal.SIGINT,
        )
    sys.exit(code or 0)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"cclp: {' '.join(message.split())}", err=True)
    sys.exit(code)
