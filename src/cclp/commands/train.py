"""``cclp train``."""

import os
import shlex
import signal
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cclp.commands.configure import AUTO, data_name, is_auto, make_config
from cclp.commands.options import (
    ClassValues,
    RecipeName,
    Weight,
    choice_option,
    data_dir_option,
    drop_option,
    features_option,
    image_size_option,
    keep_option,
    max_steps_option,
    net_option,
    no_verify_option,
    num_labels_option,
    path_option,
    quiet_option,
    setting_option,
    skip_bad_option,
    target_option,
)
from cclp.commands.output import echo
from cclp.commands.stop import StopOnSignal
from cclp.data.dataset import Dataset
from cclp.data.describe import describe, warnings_about
from cclp.data.published.catalog import CATALOG
from cclp.data.splits import SOURCES
from cclp.data.user.features import is_own_function
from cclp.data.weights import PRIORS
from cclp.methods import METHODS, file_name
from cclp.phases import measure_phases, phase
from cclp.progress import Reporter, make_reporter
from cclp.runs.data import check_data, load_data
from cclp.runs.directory import check_new
from cclp.runs.record import read_config
from cclp.training import processes
from cclp.training.config import ACCELERATORS, GRAPHS, PRECISIONS, Config
from cclp.training.recipe import RECIPES
from cclp.user_code import is_user_code

RESUME_TAKES = ("data_dir", "net", "method", "features", "devices", "pseudo_label_features")


@click.command(short_help="Train a classifier from few labels.")
@click.argument("data", default="digits")
@num_labels_option
@click.option(
    "--method",
    metavar="METHOD",
    help=f"How unlabeled samples are used: {', '.join(METHODS)}, or MY_FILE:CLASS of your own; "
    "several with + between them, as in cclp+vat. cclp is the paper's method and nothing else. "
    "auto: models are compared by cross-validation over your labels, and the best is trained.  "
    "[default: auto for your own data, else the recipe's]",
)
@click.option(
    "--recipe",
    type=RecipeName(list(RECIPES)),
    help="paper: the authors' settings. short: their nets on a short one-cycle schedule. fast: for "
    "images, your own and published ones with few labels, cclp+graph_pseudo_label with a small net "
    "and augmentation; else as short.  [default: short with a net of your own, else fast]",
)
@click.option("--seed", type=int, default=0, help="Of the labeled set, the weights, every step.")
@path_option("--out", "Run directory.  [default: in runs/]")
@path_option(
    "--resume",
    "Resume the run in this directory; all else comes from there, but for --data-dir, if the data "
    "have moved (your own too), and code of your own, which has to be named again. So have paths "
    "and --devices of a run that you have not made here.",
    metavar="RUN",
)
@data_dir_option
@no_verify_option
@image_size_option
@target_option
@drop_option
@keep_option
@skip_bad_option
@features_option
@path_option(
    "--labels-from",
    "Labels of the training samples: labels.csv of cclp label, in which they are called by file or "
    "row. What people have decided counts, and no label that the data have themselves.",
    metavar="FILE",
)
@net_option
@max_steps_option
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="End within so many minutes, with fewer steps if need be; reading files comes on top.  "
    "[default: none]",
)
@click.option("--learning-rate", type=float, help="Largest one.  [default: the recipe's]")
@click.option(
    "--weight",
    "weights",
    type=Weight(),
    multiple=True,
    help="Of the method's term; vat=0.3 for one of several.  [default: the method's or recipe's]",
)
@setting_option
@click.option(
    "--class-weight",
    type=ClassValues("balanced", number="W"),
    help="Of the cross entropy on labels, for classes of unequal size; 1 for those left out. "
    "balanced: in inverse proportion to the number of labels. Batches then hold the classes as the "
    "labels do.  [default: equal numbers of each class]",
)
@click.option(
    "--class-prior",
    type=ClassValues(*PRIORS, number="SHARE"),
    help="Shares of the classes among all samples, for pseudo-labels: as numbers if you know them "
    "(batches then have them too), equal, as frequent as the labels, or estimated from the "
    "samples.  [default: estimate]",
)
@click.option("--chain-steps", type=int, help="S of CCLP.  [default: the recipe's]")
@path_option(
    "--pseudo-label-features",
    "Build the nearest-neighbour graph of graph_pseudo_label on these instead of the inputs: an "
    ".npy with a row for each training sample, such as embeddings of a network you have.",
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
    "test set: for choosing settings.  [default: 0 with --method auto or a test set, else a fifth "
    "of the labels]",
)
@choice_option("--precision", PRECISIONS, "auto", "auto: bf16 where the machine computes in it.")
@choice_option("--accelerator", ACCELERATORS, "auto", "Where to train.")
@click.option(
    "--devices",
    type=int,
    help="Train on so many, a process and a batch for each.  [default: 1; with torchrun, its "
    "processes]",
)
@choice_option(
    "--graph", GRAPHS, "local", "Of CCLP: one for the batch of each process, or one over them all."
)
@click.option(
    "--evaluate-every", type=int, help="Steps between evaluations.  [default: a tenth of all]"
)
@click.option(
    "--checkpoint-every", type=int, default=100, help="Steps; at least every five minutes."
)
@click.option("--tensorboard", is_flag=True, help="Write event files too.")
@click.option(
    "--profile",
    is_flag=True,
    help="Say where the time went: seconds of each phase, and of some steps each kind of "
    "operation; all of these for ui.perfetto.dev.",
)
@quiet_option
@click.pass_context
def train(
    context: click.Context,
    /,
    out: Path | None,
    resume: Path | None,
    quiet: bool,
    time_limit: float | None,
    profile: bool,
    **options: Any,
) -> None:
    """Train a classifier on DATA from few labels, into a run directory.

    DATA is published (see cclp data list) or your own: a folder or archive with a sub-folder of
    images for each class, and perhaps unlabeled/ and test/, or with a labels.csv; an .npz with X,
    y (-1: unlabeled) and perhaps X_test, y_test; an .npy with X, beside one with y; a table (.csv,
    .tsv, .parquet, .xlsx) with a column of classes, empty where unlabeled.

    \b
    cclp train digits --num-labels 50
    cclp train mnist --num-labels 100 --max-steps 9000 --out runs/mnist
    cclp train --resume runs/mnist
    cclp train photos/ --image-size 64
    cclp train photos/ --features timm:resnet18
    cclp train customers.csv --target churned
    cclp train photos/ --labels-from photos.labels/labels.csv

    A run that was stopped or killed resumes with --resume as if nothing had happened.
    """
    if resume is not None:
        given = {
            parameter.name: parameter.opts[0]
            for parameter in context.command.params
            if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        }
        for name, flag in given.items():
            if name not in ("resume", "quiet", *RESUME_TAKES):
                raise ValueError(f"--resume takes everything from the run: leave out {flag}")
        again = {name: options[name] for name in RESUME_TAKES if name in given}
        out = resume
        read_config(resume)
    else:
        if options["devices"] is None:
            options["devices"] = processes.launched_world_size() or 1
        if time_limit is not None and options["devices"] > 1:
            raise ValueError("--time-limit is for one device: give --max-steps")
        config, auto = make_config(**options), is_auto(**options)
        out = out or Path("runs", _run_name(config, auto))
        own = {"net": config.recipe.net, "method": config.method}
        again = {name: value for name, value in own.items() if is_user_code(value)}
        if config.features is not None and is_own_function(config.features):
            again["features"] = config.features

    first = processes.rank() == 0
    reporter = make_reporter(quiet) if first else Reporter()
    advice = partial(_advice, out, again)
    with (
        measure_phases(profile and first) as phases,
        reporter as report,
        StopOnSignal(report.warn, advice) as should_stop,
    ):
        data = _read_early(config, auto, out, report) if resume is None else None
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else torch's profiler talks
        with phase("loading torch"):
            from cclp.runs import start
        profiled = None
        if phases is not None:
            from cclp.training.profile import Profile

            profiled = Profile(phases)
        try:
            if resume is None:
                line = shlex.join(["cclp", *context.obj])
                steps_given = options["max_steps"] is not None
                result = start.train(
                    config,
                    out,
                    report,
                    should_stop,
                    line,
                    data,
                    auto=auto,
                    fixed_steps=steps_given,
                    time_limit=None if time_limit is None else 60 * time_limit,
                    callbacks=[] if profiled is None else [profiled],
                )
            else:
                result = start.resume(out, report, should_stop, **again)
        except start.Stopped as stopped:
            report.warn(f"{stopped} It is saved; {advice()}")
            # the signal may have reached another process only
            context.exit(128 + (should_stop.number or signal.SIGTERM) if first else 0)
        finally:
            if profiled is not None:
                profiled.close()
    if not first:
        return
    measured = (
        "error not measured"
        if result["error"] is None
        else f"error {result['error']:.2%} on {result['num_samples']} samples "
        f"({SOURCES[result['evaluated_on']]})"
    )
    echo(
        f"{measured}, {result['method']}, {result['num_labels']} labels, "
        f"{result['recipe']['max_steps']} steps, {result['seconds'] / 60:.1f} min: {out}"
    )
    if profiled is not None:
        profiled.write(out)
        echo(f"\n{profiled.table()}\n\nall operations, for ui.perfetto.dev: {out / 'profile'}")


def _advice(run: Path, again: dict[str, Any]) -> str:
    """What to do after a stop: the options of ``again`` are to be named again."""
    if not (run / "config.json").exists():
        return "run the same command again; comparisons of models that are done are kept"
    named = [
        part
        for name, value in again.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    return f"resume with: {shlex.join(['cclp', 'train', '--resume', str(run), *named])}"


def _read_early(config: Config, auto: bool, out: Path | None, report: Reporter) -> Dataset | None:
    """Read and check the data before torch is loaded, which takes seconds: most mistakes are here.

    Several processes read them together, later. So does a run with settings or a device that only
    torch can check: they come first, as reading may take minutes.
    """
    if config.settings or config.accelerator not in ("auto", "cpu"):
        return None
    if config.devices > 1 or processes.launched_world_size() is not None:
        return None
    assert out is not None
    check_new(out)
    data = load_data(config, report, features=config.features)
    check_data(config, data, auto)
    if config.data not in CATALOG:
        announce(data, report)
    return data


def announce(data: Dataset, report: Reporter) -> None:
    """Say what was read, and what a user should know before training."""
    report.info(describe(data))
    for warning in warnings_about(data):
        report.warn(warning)


def _run_name(config: Config, auto: bool) -> str:
    """Of the run directory: what auto will choose is not known yet."""
    how = AUTO if auto else f"{config.recipe.name}-{file_name(config.method)}"
    return f"{data_name(config)}-{how}-seed{config.seed}"
