"""``cclp …``: the command line. Heavy imports wait until a command runs."""

import csv
import io
import math
import shlex
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import click
from click.core import ParameterSource

import cclp
from cclp.checks import check_integer, check_number, refuse_options
from cclp.data import catalog
from cclp.data.catalog import CATALOG
from cclp.data.load import find_kind
from cclp.files import write_bytes
from cclp.lab.command import lab
from cclp.methods import METHODS, file_name, method_parts
from cclp.progress import Reporter, make_reporter
from cclp.training import processes
from cclp.training.config import (
    ACCELERATORS,
    GRAPHS,
    NORMALIZATIONS,
    PRECISIONS,
    STRATEGIES,
    Config,
    Setting,
)
from cclp.training.recipe import RECIPES, SIMILARITIES, Recipe, make_recipe

if TYPE_CHECKING:
    from cclp.experiments.folder import Claim
    from cclp.experiments.sweep import Cell

USER_ERROR, FAILED = 2, 1
CCLP_ONLY = ("chain_steps", "similarity", "bandwidth", "prior", "teach")
OF_RECIPE = {name.removeprefix("chain_"): name for name in CCLP_ONLY}  # settings of the method
NAMED_AGAIN = ("data_dir", "net", "method")


class Weight(click.ParamType):  # type: ignore[type-arg]
    """A weight, or the weight of a method."""

    name = "W|METHOD=W"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        name, _, weight = str(value).rpartition("=")
        try:
            return name, float(weight)
        except ValueError:
            self.fail(f"must be a number or METHOD=number, got {value!r}", param, ctx)


class MethodSetting(click.ParamType):  # type: ignore[type-arg]
    """A setting of a method, by name."""

    name = "METHOD.NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str, Setting]:
        left, _, text = str(value).partition("=")
        method, _, name = left.rpartition(".")
        if not (method and name and text):
            self.fail(f"must be METHOD.NAME=VALUE, as in vat.radius=0.3, got {value!r}", param, ctx)
        if text in ("true", "false"):
            return method, name, text == "true"
        for kind in (int, float):
            with suppress(ValueError):
                return method, name, kind(text)
        return method, name, text


class LabelCount(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """A number of labels, or all of them."""

    name = "N|all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        if value == "all":
            return "all"
        try:
            return int(value)
        except ValueError:
            self.fail(f"must be a number or 'all', got {value!r}", param, ctx)


def _choice(flag: str, choices: tuple[str, ...], default: str, text: str) -> Callable[..., Any]:
    return click.option(flag, type=click.Choice(choices), default=default, help=text)


def _path(flag: str, text: str, metavar: str = "PATH") -> Callable[..., Any]:
    return click.option(flag, type=click.Path(path_type=Path), metavar=metavar, help=text)


_labels = click.option(
    "--labels",
    type=LabelCount(),
    help="Labeled samples, in equal shares of the classes.  [default: 100; of your own data all]",
)
_steps = click.option("--steps", type=int, help="Training steps.  [default: the recipe's]")
_run = click.argument("run", type=click.Path(path_type=Path))
_data_dir = _path(
    "--data-dir",
    "Folder of published data: looked at first, and fetched into.  [default: CCLP_DATA, else the "
    "user's cache]",
)
_no_verify = click.option(
    "--no-verify",
    is_flag=True,
    help="Accept files of published data that are not the published ones; recorded.",
)
_label = click.option("--label", metavar="COLUMN", help="Column of classes in a .csv file.")
_skip_bad = click.option("--skip-bad", is_flag=True, help="Leave out images that cannot be read.")
_image_size = click.option(
    "--image-size", type=int, help="Side that images of a folder get.  [default: 32]"
)
_setting = click.option(
    "--setting",
    "settings",
    type=MethodSetting(),
    multiple=True,
    help="Another setting of a method, as in vat.radius=0.3.  [default: the method's]",
)
_net = click.option(
    "--net",
    metavar="MY_FILE:FUNCTION",
    help="A network of your own: function(shape, num_classes) gives a module with 'features' and "
    "'classifier'.",
)
_quiet = click.option("--quiet", is_flag=True, help="Warnings and the result only.")


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    },
    epilog="Begin with: cclp train digits --labels 50",
)
@click.version_option(cclp.__version__)
def command() -> None:
    """Few labels, many unlabeled samples: one accurate classifier."""


@command.command(short_help="Train a classifier from few labels.")
@click.argument("data", default="digits")
@_labels
@click.option(
    "--method",
    default="cclp",
    metavar="METHOD",
    help=f"How unlabeled samples are used: {', '.join(METHODS)}, or MY_FILE:CLASS of your own; "
    "several with + between them, as in cclp+vat.",
)
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    help="paper: the authors' settings. short: a short one-cycle schedule. fast: with a prior and "
    "fewer channels for MNIST with few labels, else as short. digits: for digits.  "
    "[default: digits for digits, else fast]",
)
@click.option("--seed", type=int, default=0, help="Of the labeled set, the weights, every step.")
@_path("--out", "Run directory.  [default: in runs/]")
@_path(
    "--resume",
    "Go on with the run in this directory; all else comes from there, but for --data-dir, if the "
    "data have moved (your own too), and code of your own, which has to be named again.",
    metavar="RUN",
)
@_data_dir
@_no_verify
@_image_size
@_label
@_skip_bad
@_net
@_steps
@click.option("--learning-rate", type=float, help="Largest one.  [default: the recipe's]")
@click.option(
    "--weight",
    "weights",
    type=Weight(),
    multiple=True,
    help="Of the method's term; vat=0.3 for one of several.  [default: the method's or recipe's]",
)
@_setting
@click.option("--chain-steps", type=int, help="S of CCLP.  [default: the recipe's]")
@click.option(
    "--similarity", type=click.Choice(SIMILARITIES), help="Of CCLP.  [default: the recipe's]"
)
@click.option("--bandwidth", type=float, help="Of euclidean similarity.  [default: the recipe's]")
@click.option(
    "--prior",
    type=float,
    help="Of CCLP: begin with labels spread over a neighbour graph of the inputs (images by their "
    "gradients), which give way over this share of the training; 0: do not. Tested by leaving "
    "labels out; a poor one is not used.  [default: the recipe's]",
)
@_path(
    "--prior-features",
    "Spread them over these instead: an .npy with a row for each training sample, such as "
    "embeddings by a network you have.",
    metavar="FILE",
)
@click.option(
    "--per-class", type=int, help="Labeled samples of each class a step.  [default: the recipe's]"
)
@click.option("--unlabeled-batch", type=int, help="Unlabeled ones.  [default: the recipe's]")
@click.option(
    "--labeled-batch",
    type=int,
    default=200,
    help="At most so many labeled samples a step; with more classes than that, classes take turns.",
)
@click.option(
    "--held-out",
    type=int,
    help="Keep so many labeled samples from training and measure the error on them, not on the "
    "test set: for choosing settings.  [default: 0; a fifth if there is no test set]",
)
@_choice("--normalization", NORMALIZATIONS, "zscore", "Of the inputs, by the training set.")
@_choice("--precision", PRECISIONS, "auto", "auto: bf16 where the machine computes in it.")
@_choice("--accelerator", ACCELERATORS, "auto", "Where to train.")
@click.option(
    "--devices",
    type=int,
    help="Train on so many, a process and a batch for each.  [default: 1; with torchrun, its "
    "processes]",
)
@_choice("--strategy", STRATEGIES, "auto", "How they work together; auto: ddp if several.")
@_choice(
    "--graph", GRAPHS, "local", "Of CCLP: one for the batch of each process, or one over them all."
)
@click.option(
    "--evaluate-every", type=int, help="Steps between evaluations.  [default: a tenth of all]"
)
@click.option(
    "--checkpoint-every", type=int, default=100, help="Steps; at least every five minutes."
)
@click.option("--tensorboard", is_flag=True, help="Write event files too.")
@_quiet
@click.pass_context
def train(
    context: click.Context, /, out: Path | None, resume: Path | None, quiet: bool, **options: Any
) -> None:
    """Train a classifier on DATA from few labels, into a run directory.

    DATA is published (see cclp data list) or your own: a folder with a sub-folder of images for
    each class, and perhaps unlabeled/ and test/; an .npz with X, y (-1: unlabeled) and perhaps
    X_test, y_test; a .csv with a column of classes, empty where unlabeled.

    \b
    cclp train digits --labels 50
    cclp train mnist --labels 100 --steps 9000 --out runs/mnist
    cclp train --resume runs/mnist
    cclp train photos/ --image-size 64
    cclp train customers.csv --label churned

    A run that was stopped or killed goes on with --resume as if nothing had happened.
    """
    if resume is not None:
        given = {
            parameter.name: parameter.opts[0]
            for parameter in context.command.params
            if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        }
        for name, flag in given.items():
            if name not in ("resume", "quiet", *NAMED_AGAIN):
                raise ValueError(f"--resume takes everything from the run: leave out {flag}")
        again = {name: options[name] for name in NAMED_AGAIN if name in given}
    else:
        if options["devices"] is None:
            options["devices"] = processes.started() or 1
        config = make_config(**options)
        out = out or Path("runs", _run_name(config))

    # torch and Fabric are loaded from here on
    from cclp.training import run

    first = processes.rank() == 0
    reporter = make_reporter(quiet) if first else Reporter()
    with reporter as report, StopOnSignal(report.say) as should_stop:
        try:
            if resume is None:
                assert out is not None
                line = shlex.join(["cclp", *context.obj])
                result = run.train(config, out, report, should_stop, line)
            else:
                out = resume
                result = run.resume(out, report, should_stop, **again)
        except run.Stopped as stopped:
            report.say(f"{stopped} Go on with: cclp train --resume {shlex.quote(str(out))}")
            # another process may have been told
            context.exit(128 + (should_stop.number or signal.SIGTERM) if first else 0)
    if not first:
        return
    measured = (
        "error not measured"
        if result["error"] is None
        else f"error {result['error']:.2%} on {result['samples']} samples ({result['measured_on']})"
    )
    click.echo(
        f"{measured}, {result['labels']} labels, {result['recipe']['steps']} steps, "
        f"{result['seconds'] / 60:.1f} min: {out}"
    )


@command.command(short_help="Several methods on the same splits, network and steps.")
@click.argument("data", default="digits")
@click.option(
    "--methods",
    default="supervised,cclp",
    help=f"Names with commas between them: {', '.join(METHODS)}, and combinations such as "
    "cclp+vat.",
)
@click.option("--seeds", type=int, default=5, help="So many labeled sets and first weights.")
@_labels
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    help="Of all runs, as in cclp train; fast has a prior, which is for CCLP alone.  "
    "[default: digits for digits, else short]",
)
@_steps
@click.option(
    "--weight", "weights", type=Weight(), multiple=True, help="METHOD=W, wherever it is a part."
)
@_setting
@click.option("--held-out", type=int, help="As in cclp train: for choosing settings.")
@_path("--out", "Directory; one of the same comparison is gone on with.  [default: in runs/]")
@_data_dir
@_no_verify
@_image_size
@_label
@_skip_bad
@_net
@_quiet
@click.pass_context
def compare(
    context: click.Context,
    /,
    methods: str,
    seeds: int,
    out: Path | None,
    weights: tuple[tuple[str, float], ...],
    settings: tuple[tuple[str, str, Setting], ...],
    quiet: bool,
    **options: Any,
) -> None:
    """Train several methods on DATA and compare them: same splits, same network, same steps.

    \b
    cclp compare digits --methods supervised,entropy,vat,cclp,cclp+vat --labels 50 --seeds 5

    Stopped or killed, the same command goes on where it was.
    """
    check_integer("seeds", seeds, least=1)
    names = methods.split(",")
    parts = {part for name in names for part in method_parts(name)}
    for name in [name for name, _ in weights] + [name for name, _, _ in settings]:
        if name not in parts:
            raise ValueError(
                f"--weight and --setting must name a method of {', '.join(sorted(parts))}, "
                f"got {name or 'none'}"
            )
    method = "+".join(sorted(parts)) or "supervised"
    if options["recipe"] is None and options["data"] != "digits":
        options["recipe"] = "short"
    config = make_config(**options, method=method, weights=weights, settings=settings)
    config = replace(config, evaluate_every=config.recipe.steps)
    out = out or Path("runs", f"compare-{_data_name(config)}")
    from cclp.experiments.compare import compare as run_comparison
    from cclp.training.run import Stopped

    with make_reporter(quiet) as report, StopOnSignal(report.say) as should_stop:
        try:
            run_comparison(config, names, range(seeds), out, report, should_stop)
        except Stopped:
            report.say("Stopped, saved. The same command goes on with it.")
            context.exit(128 + should_stop.number)
    click.echo((out / "results.md").read_text(), nl=False)
    click.echo(f"comparison: {out}")


@command.command(short_help="Measure a trained network on labeled data.")
@_run
@click.argument("data", required=False)
@_label
@_skip_bad
@_data_dir
@_no_verify
@_net
@_quiet
def evaluate(run: Path, data: str | None, no_verify: bool, quiet: bool, **options: Any) -> None:
    """Measure the network of RUN: on what it was measured on while training, or on DATA.

    DATA is whatever cclp train takes: its test set is used, or all its labels if it has none.

    \b
    cclp evaluate runs/photos
    cclp evaluate runs/photos more-photos/
    """
    from cclp.training.inference import evaluate

    with make_reporter(quiet) as report:
        found = evaluate(run, data, verify=not no_verify, report=report, **options)
    width = max(map(len, found.classes))
    for k, (name, row) in enumerate(zip(found.classes, found.confusion, strict=True)):
        if row.any() and not quiet:
            wrong = row.sum() - row[k]
            others = [(count, other) for other, count in enumerate(row) if other != k]
            most = f", most often {found.classes[max(others)[1]]}" if wrong else ""
            click.echo(f"{name:{width}}  {wrong / row.sum():7.2%} of {row.sum()} wrong{most}")
    unlike = "" if found.verified is not False else ", not the published files"
    click.echo(f"error {found.error:.2%} on {found.confusion.sum()} samples ({found.what}{unlike})")


@command.command(short_help="Classes of files, as a table.")
@_run
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_path("--out", "A .csv file to write.  [default: standard output]")
@_skip_bad
@_net
@_quiet
def predict(
    run: Path, files: tuple[Path, ...], out: Path | None, quiet: bool, **options: Any
) -> None:
    """Classes of FILES by the network of RUN, as a table: file, row, class, probability.

    FILES are images, folders of images, .npz files with X, or .csv files with the columns of the
    one that was trained on; their rows are counted from 0.

    \b
    cclp predict runs/photos new/*.jpg --out predictions.csv
    """
    if out is not None and out.exists():
        raise ValueError(f"{out} exists and is never overwritten: choose another --out")
    if out is not None and not out.parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}")
    from cclp.training.inference import predict

    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["file", "row", "class", "probability"])
    count = 0
    with make_reporter(quiet) as report:
        for found in predict(run, files, report=report, **options):
            row = "" if found.row is None else found.row
            writer.writerow([found.file, row, found.label, f"{found.probability:.4f}"])
            count += 1
    if out is None:
        click.echo(table.getvalue(), nl=False)
    else:
        write_bytes(out, table.getvalue().encode(errors="surrogateescape"), new=True)
        click.echo(f"{count} predictions: {out}")


@command.command(short_help="One HTML page about one run or several, or an experiment.")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@_path("--out", "The page.  [default: report.html in the run; here, for several]")
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """One HTML page about RUNS, several side by side; it needs no network.

    Of a directory that cclp reproduce has made, figures are drawn again too.

    \b
    cclp report runs/mnist
    cclp report runs/mnist runs/mnist-supervised --out comparison.html
    """
    from cclp.experiments.folder import is_experiment
    from cclp.report.page import make_report

    if any(map(is_experiment, runs)):
        if len(runs) > 1:
            raise ValueError("an experiment of cclp reproduce has a page of its own: give one")
        click.echo(f"report: {_experiment_page(runs[0], out)}")
        return
    if out is None:
        out = runs[0] / "report.html" if len(runs) == 1 else Path("report.html")
    _check_page(out)
    write_bytes(out, make_report(list(runs)).encode(errors="replace"))
    click.echo(f"report: {out}")


command.add_command(lab)


@command.group()
def reproduce() -> None:
    """The paper's figures and tables, made by this code, with its claims in numbers.

    \b
    cclp reproduce circles
    cclp reproduce moons
    cclp reproduce overhead
    cclp reproduce ablation --steps 1500 --dry-run
    cclp reproduce table1 --data mnist --seeds 3 --budget 60

    Each writes raw results, figures (SVG, PNG) or tables, and a page. Stopped or killed, the same
    command goes on where it was; finished, it draws again.
    """


_seeds = click.option(
    "--seeds",
    type=int,
    default=10,
    help="So many draws of noise, labeled points and first classifier.",
)


def _experiment_out(name: str) -> Callable[..., Any]:
    return _path(
        "--out", f"Directory; one of the same experiment is gone on with.  [default: runs/{name}]"
    )


@reproduce.command("circles", short_help="Figure 2: CCLP against conditional entropy.")
@_seeds
@_experiment_out("circles")
@_quiet
@click.pass_context
def reproduce_circles(context: click.Context, seeds: int, out: Path | None, quiet: bool) -> None:
    """Two circles, one label each (Section 4.1, Figure 2): CCLP against conditional entropy.

    200 free points and a linear classifier, gradient descent; several minutes on two cores.
    """
    from cclp.experiments import circles, descents

    run = partial(descents.reproduce, "circles", circles.CASES, circles.claims, seeds=seeds)
    _reproduce(context, out or Path("runs", "circles"), quiet, run)


@reproduce.command("moons", short_help="Figure 3: chains of 10 steps against 1.")
@_seeds
@_experiment_out("moons")
@_quiet
@click.pass_context
def reproduce_moons(context: click.Context, seeds: int, out: Path | None, quiet: bool) -> None:
    """Two moons, one label each (Section 4.2, Figure 3): chains of 10 steps against 1.

    And a single moon, whose middle is ambiguous, from the released repository. Several minutes on
    two cores.
    """
    from cclp.experiments import descents, moons

    run = partial(descents.reproduce, "moons", moons.CASES, moons.claims, seeds=seeds)
    _reproduce(context, out or Path("runs", "moons"), quiet, run)


@reproduce.command("overhead", short_help="Section 6: what CCLP adds to a step.")
@_experiment_out("overhead")
@_quiet
@click.pass_context
def reproduce_overhead(context: click.Context, out: Path | None, quiet: bool) -> None:
    """What CCLP adds to a training step (Section 6): three networks, N from 100 to 4000, S to 10.

    Times on this machine, best of several: let nothing else run beside it. About ten minutes on two
    cores, and 5 GB of memory.
    """
    from cclp.experiments import overhead

    _reproduce(context, out or Path("runs", "overhead"), quiet, overhead.reproduce)


def _sweep(
    data: str, seeds: int, recipe: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options of experiments that are many runs of cclp train, with these defaults."""
    options = (
        click.option("--seeds", type=int, default=seeds, help="So many labeled sets."),
        click.option(
            "--recipe",
            type=click.Choice(["paper", "short", "fast"]),
            default=recipe,
            help="As in cclp train.",
        ),
        click.option(
            "--data",
            type=click.Choice(["mnist", "svhn", "cifar10"]),
            multiple=True,
            help=f"One or several.  [default: {data}]",
        ),
        click.option(
            "--labels",
            type=click.Choice(["few", "all"]),
            multiple=True,
            help="few: 100, 1000 or 4000, by data.  [default: both]",
        ),
        _steps,
        click.option(
            "--budget", type=float, metavar="MINUTES", help="Stop after so long, all saved."
        ),
        click.option("--dry-run", is_flag=True, help="List the runs, with estimated times."),
        click.option("--jobs", type=int, default=1, help="So many runs at a time."),
        _data_dir,
        _no_verify,
        _quiet,
    )
    return lambda function: reduce(lambda made, add: add(made), reversed(options), function)


@reproduce.command("table1", short_help="Table 1: errors, the paper's beside ours.")
@click.option(
    "--methods",
    default="supervised,lba,cclp",
    help="Names with commas between them, as in cclp compare.",
)
@_experiment_out("table1")
@_sweep("all three", seeds=3, recipe="fast")
@click.pass_context
def reproduce_table1(context: click.Context, /, methods: str, **options: Any) -> None:
    """Errors on MNIST, SVHN and CIFAR-10 with few and all labels (Table 1).

    The paper's settings take days on two cores: choose --data and --labels, --recipe or --steps,
    and see with --dry-run how long it takes here. A cell that is finished is not trained again; to
    bring together what several machines have made, copy the folders in runs/ into one and call the
    command again.

    \b
    cclp reproduce table1 --data mnist --labels few --dry-run
    cclp reproduce table1 --recipe paper --seeds 10 --budget 600
    """
    from cclp.experiments import table1

    names = methods.split(",")
    _run_sweep(context, "table1", partial(table1.cells, methods=names), tuple(table1.FEW), options)


@reproduce.command("ablation", short_help="Figure 4: error against the length of the chains.")
@_experiment_out("ablation")
@_sweep("mnist", seeds=1, recipe="short")
@click.pass_context
def reproduce_ablation(context: click.Context, /, **options: Any) -> None:
    """Error on 10,000 held-out training images against the longest chain, S.

    Figure 4: S = 0 (no SSL), 1, 2, 3, 4, 6, 10 and 20, few and all labels.

    \b
    cclp reproduce ablation --labels few --steps 1500 --dry-run
    """
    from cclp.experiments import ablation

    _run_sweep(context, "ablation", ablation.cells, ("mnist",), options)


def _run_sweep(
    context: click.Context,
    name: str,
    make_cells: "Callable[..., list[Cell]]",
    all_data: tuple[str, ...],
    options: dict[str, Any],
) -> None:
    """Make the runs of an experiment, within the budget, or list them."""
    check_integer("seeds", options["seeds"], least=1)
    check_integer("jobs", options["jobs"], least=1)
    budget = options["budget"]
    if budget is not None:
        check_number("budget", budget, above=0)
    folder = options["data_dir"]
    out = options["out"] or Path("runs", name)
    cells = make_cells(
        options["recipe"],
        options["steps"],
        tuple(dict.fromkeys(options["data"] or all_data)),
        tuple(dict.fromkeys(options["labels"] or ("few", "all"))),
        seeds=options["seeds"],
        data_dir=None if folder is None else str(folder.resolve()),
        verify=not options["no_verify"],
    )
    if options["dry_run"]:
        _list_runs(cells, out / "runs", options["jobs"])
        return
    from cclp.experiments.tables import reproduce

    settings = {"recipe": options["recipe"]}
    run = partial(reproduce, name, cells, settings, jobs=options["jobs"])
    _reproduce(context, out, options["quiet"], run, budget)


def _list_runs(cells: "list[Cell]", runs: Path, jobs: int) -> None:
    """What there is to do, and how long it will take here."""
    from cclp.experiments.sweep import estimate

    total = 0.0
    with make_reporter(quiet=False) as report:
        for line in estimate(cells, runs, report):
            total += line.minutes
            click.echo(f"{line.cell.name:40} {line.state:20} {line.minutes:8.1f} min")
    together = f", {jobs} at a time" if jobs > 1 else ""
    click.echo(f"{len(cells)} runs, about {total / 60:.1f} hours one after the other{together}")


def _reproduce(
    context: click.Context,
    out: Path,
    quiet: bool,
    run: "Callable[..., list[Claim]]",
    budget: float | None = None,
) -> None:
    """Run an experiment, draw it, say what became of each claim."""
    from cclp.training.run import Stopped

    _check_page(out / "report.html")
    line = shlex.join(["cclp", *context.obj])
    with make_reporter(quiet) as report:
        with StopOnSignal(report.say) as signalled:
            over = time.monotonic() + 60 * (budget or math.inf)
            try:
                claims = run(
                    out=out,
                    report=report,
                    should_stop=lambda: signalled() or time.monotonic() > over,
                    command=line,
                )
            except Stopped:
                report.say("Stopped, saved. The same command goes on with it.")
                if signalled():
                    context.exit(128 + signalled.number)
                claims = []
        for claim in claims:
            click.echo(f"{'holds' if claim.holds else 'FAILS'}: {claim.said} {claim.measured}.")
        report.tell("Drawing.")
        click.echo(f"page: {_experiment_page(out)}")


def _experiment_page(folder: Path, page: Path | None = None) -> Path:
    """Draw an experiment, and write its page."""
    from cclp.report.experiment import make_experiment_page, write_figures

    page = page or folder / "report.html"
    _check_page(page)
    write_figures(folder)
    write_bytes(page, make_experiment_page(folder).encode())
    return page


def _check_page(page: Path) -> None:
    """Make sure that nothing but a report is written over."""
    from cclp.report.page import is_report

    if page.exists() and not is_report(page):
        raise ValueError(f"{page} exists and is not a report: choose another --out")


@command.group()
def data() -> None:
    """Published data: what there is, fetch it, verify it."""


@data.command("list")
@_data_dir
def data_list(data_dir: Path | None) -> None:
    """What there is, and where it is on this machine."""
    for name, entry in CATALOG.items():
        here = catalog.location(name, data_dir) if entry.files else "bundled"
        missing = f"not here: cclp data fetch {name} ({entry.size / 1e6:.0f} MB)"
        click.echo(f"{name:14} {entry.about}\n{'':14} {here or missing}")


@data.command("fetch")
@click.argument("name", type=click.Choice(list(CATALOG)))
@_data_dir
@_quiet
def data_fetch(name: str, data_dir: Path | None, quiet: bool) -> None:
    """Fetch NAME from the first source that has it, and verify it."""
    with make_reporter(quiet) as report:
        sources = catalog.fetch_published(name, data_dir, report)
    catalog.verify_published(name, data_dir)
    place = catalog.location(name, data_dir) or "bundled, nothing to fetch"
    click.echo(f"{name}: {place}" + (f" (from {', '.join(sources)})" if sources else ""))


@data.command("verify")
@click.argument("name", type=click.Choice(list(CATALOG)))
@_data_dir
def data_verify(name: str, data_dir: Path | None) -> None:
    """Compare the files of NAME with the published hashes."""
    for state in catalog.verify_published(name, data_dir):
        click.echo(f"{state.path}: {state.found}")
    click.echo(f"{name}: all files are the published ones")


def make_config(
    data: str,
    labels: int | str | None = None,
    recipe: str | None = None,
    data_dir: Path | None = None,
    net: str | None = None,
    no_verify: bool = False,
    prior_features: Path | None = None,
    weights: tuple[tuple[str, float], ...] = (),
    settings: tuple[tuple[str, str, Setting], ...] = (),
    **options: Any,
) -> Config:
    """A configuration from the options of ``cclp train``."""
    if labels is None:
        labels = 100 if data in CATALOG else "all"
    made = make_recipe(recipe, data, all_labels=labels == "all", kind=find_kind(data))
    overrides = {name: options.pop(name) for name in Recipe.__dataclass_fields__ if name in options}
    overrides = {name: value for name, value in overrides.items() if value is not None}
    for owner, name, value in settings:
        if owner == "cclp" and name in OF_RECIPE:
            if OF_RECIPE[name] in overrides:
                raise ValueError(f"the {name} of cclp is given twice")
            overrides[OF_RECIPE[name]] = value
    settings = tuple(s for s in settings if s[0] != "cclp" or s[1] not in OF_RECIPE)
    made = replace(made, **overrides, net=net or made.net)
    method = options.get("method", "cclp")
    parts = method_parts(method)
    if not parts:
        unused: dict[str, Any] = {"weight": weights, "setting": settings}
        unused["unlabeled_batch"] = overrides.get("unlabeled_batch")
        refuse_options(unused, "has no effect with supervised")
    if "cclp" not in parts:
        unused = {name: overrides.get(name) for name in CCLP_ONLY}
        unused["prior_features"] = prior_features
        refuse_options(unused, f"has no effect with --method {method}")
    if made.similarity != "euclidean":
        unused = {"bandwidth": overrides.get("bandwidth")}
        refuse_options(unused, f"has no effect with --similarity {made.similarity}")
    try:
        return Config(
            data=data if data in CATALOG else str(Path(data).resolve()),
            labels=None if labels == "all" else int(labels),
            recipe=made,
            data_dir=None if data_dir is None else str(data_dir.resolve()),
            verify=not no_verify,
            prior_features=None if prior_features is None else str(prior_features.resolve()),
            settings=_settings(weights, settings, parts),
            **options,
        )
    except TypeError as error:  # a setting of another kind than the command line can know
        raise ValueError(str(error)) from None


def _settings(
    weights: tuple[tuple[str, float], ...],
    settings: tuple[tuple[str, str, Setting], ...],
    parts: list[str],
) -> dict[str, dict[str, Setting]]:
    """By method and name; a weight without a method is the only one's."""
    found: dict[str, dict[str, Setting]] = {}
    for method, weight in weights:
        if not method and len(parts) != 1:
            raise ValueError(f"--weight must say whose it is, as in {parts[0]}={weight:g}")
        settings += ((method or parts[0], "weight", weight),)
    for method, name, value in settings:
        if name in found.setdefault(method, {}):
            raise ValueError(f"the {name} of {method} is given twice")
        found[method][name] = value
    return found


def _run_name(config: Config) -> str:
    method = file_name(config.method)
    return f"{_data_name(config)}-{config.recipe.name}-{method}-seed{config.seed}"


def _data_name(config: Config) -> str:
    labels = "all" if config.labels is None else config.labels
    return f"{Path(config.data).stem}-{labels}"


class StopOnSignal:
    """Answers whether Ctrl-C or SIGTERM has come; a second one ends the process at once.

    So does the first one as long as nobody has asked: before there is a step to finish, a process
    may be waiting for others, and would never see to it.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.number = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        if not self.before:
            self.before = {n: signal.signal(n, self._ask) for n in (signal.SIGINT, signal.SIGTERM)}
        return self.number != 0

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self.__exit__()
        self.say("Stopping after this step; once more to stop at once.")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; whatever the user got wrong is one line and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = command.main(arguments, prog_name="cclp", standalone_mode=False, obj=arguments)
    except click.exceptions.NoArgsIsHelpError as empty:
        click.echo(empty.format_message())
        sys.exit(USER_ERROR)
    except click.ClickException as error:
        _fail(error.format_message(), USER_ERROR)
    except (ValueError, OSError) as error:
        _fail(str(error), USER_ERROR)
    except (processes.Lost, FloatingPointError) as error:
        if processes.rank():  # process 0 says it too
            sys.exit(FAILED)
        _fail(str(error), FAILED)
    except (click.Abort, KeyboardInterrupt):
        _fail(
            "stopped at once; what was saved is kept, and the same command, or cclp train --resume "
            "for a run, goes on from there",
            128 + signal.SIGINT,
        )
    sys.exit(code or 0)


def _fail(message: str, code: int) -> NoReturn:
    rank = 0
    with suppress(ValueError):  # of a number in the environment: perhaps that is the message
        rank = processes.rank()
    who = f"process {rank}: " if rank else ""
    click.echo(f"cclp: {who}{' '.join(message.split())}", err=True)
    sys.exit(code)
