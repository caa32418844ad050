"""``cclp reproduce``: the paper's figures and tables."""

import math
import shlex
import time
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cclp.checks import check_integer, check_number
from cclp.commands.options import (
    data_dir_option,
    max_steps_option,
    no_verify_option,
    path_option,
    quiet_option,
)
from cclp.commands.output import echo
from cclp.commands.stop import SAME_COMMAND, StopOnSignal
from cclp.progress import make_reporter
from cclp.report.file import check_page, write_page

if TYPE_CHECKING:
    from cclp.experiments.folder import Claim
    from cclp.experiments.study import Cell


@click.group()
def reproduce() -> None:
    """Reproduce the paper's figures and tables, and measure its claims.

    \b
    cclp reproduce circles
    cclp reproduce moons
    cclp reproduce overhead
    cclp reproduce ablation --max-steps 1500 --dry-run
    cclp reproduce table1 --data mnist --seeds 3 --budget 60

    Each writes raw results, figures (SVG, PNG) or tables, and a page. After a stop or a crash the
    same command resumes; when all is finished, it draws the figures again.
    """


_seeds = click.option(
    "--seeds",
    type=int,
    default=10,
    help="Number of draws of noise, labeled points and initial classifier.",
)


def _experiment_out(name: str) -> Callable[..., Any]:
    return path_option(
        "--out", f"Directory; one of the same experiment is resumed.  [default: runs/{name}]"
    )


@reproduce.command("circles", short_help="Figure 2: CCLP against conditional entropy.")
@_seeds
@_experiment_out("circles")
@quiet_option
@click.pass_context
def reproduce_circles(context: click.Context, seeds: int, out: Path | None, quiet: bool) -> None:
    """Two circles, one label each (Section 4.1, Figure 2): CCLP against conditional entropy.

    200 free points and a linear classifier, gradient descent; several minutes on two cores.
    """
    from cclp.experiments.toy import circles, descents

    run = partial(descents.reproduce, "circles", circles.CASES, circles.claims, seeds=seeds)
    _reproduce(context, out or Path("runs", "circles"), quiet, run)


@reproduce.command("moons", short_help="Figure 3: chains of 10 steps against 1.")
@_seeds
@_experiment_out("moons")
@quiet_option
@click.pass_context
def reproduce_moons(context: click.Context, seeds: int, out: Path | None, quiet: bool) -> None:
    """Two moons, one label each (Section 4.2, Figure 3): chains of 10 steps against 1.

    And a single moon, whose middle is ambiguous, from the released repository. Several minutes on
    two cores.
    """
    from cclp.experiments.toy import descents, moons

    run = partial(descents.reproduce, "moons", moons.CASES, moons.claims, seeds=seeds)
    _reproduce(context, out or Path("runs", "moons"), quiet, run)


@reproduce.command("overhead", short_help="Section 6: what CCLP adds to a step.")
@_experiment_out("overhead")
@quiet_option
@click.pass_context
def reproduce_overhead(context: click.Context, out: Path | None, quiet: bool) -> None:
    """What CCLP adds to a training step (Section 6): three networks, N from 100 to 4000, S to 10.

    Times on this machine, best of several: run nothing else beside it. About ten minutes on two
    cores, and 5 GB of memory.
    """
    from cclp.experiments import overhead

    _reproduce(context, out or Path("runs", "overhead"), quiet, overhead.reproduce)


def _study_options(
    data: str, seeds: int, recipe: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options of experiments that are many runs of cclp train, with these defaults."""
    options = (
        click.option("--seeds", type=int, default=seeds, help="Number of labeled sets."),
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
        max_steps_option,
        click.option(
            "--budget",
            type=float,
            metavar="MINUTES",
            help="Stop after this time; everything is saved.",
        ),
        click.option("--dry-run", is_flag=True, help="List the runs, with estimated times."),
        click.option("--jobs", type=int, default=1, help="Number of runs at a time."),
        data_dir_option,
        no_verify_option,
        quiet_option,
    )
    return lambda function: reduce(lambda made, add: add(made), reversed(options), function)


@reproduce.command("table1", short_help="Table 1: errors, the paper's beside ours.")
@click.option(
    "--methods",
    default="supervised,lba,cclp",
    help="Rows, with commas between them: names as in cclp compare, and vat_large, vat_large_ent. "
    "cclp+graph_pseudo_label is what the recipe fast is made for.",
)
@_experiment_out("table1")
@_study_options("all three", seeds=3, recipe="paper")
@click.pass_context
def reproduce_table1(context: click.Context, /, methods: str, **options: Any) -> None:
    """Errors on MNIST, SVHN and CIFAR-10 with few and all labels (Table 1).

    As in the paper: its networks and batches, no augmentation, no pseudo-labels from a graph, the
    same steps for every row. Its schedules take days on two cores: --recipe short has shorter ones,
    and --dry-run tells how long it takes here. --recipe fast is ours, with everything that helps;
    it wants another --out, so that the two are never in one table.

    A row has the network of its own paper where that is known, but for --recipe fast. A finished
    run is not trained again. To merge the results of several machines, copy the folders in runs/
    into one and call the command again.

    \b
    cclp reproduce table1 --data mnist --labels few --dry-run
    cclp reproduce table1 --recipe short --data mnist --labels few --methods cclp,ladder
    cclp reproduce table1 --recipe fast --methods cclp+graph_pseudo_label --out runs/table1-fast
    """
    from cclp.experiments import table1
    from cclp.experiments.paper import FEW

    names = methods.split(",")
    _run_study(context, "table1", partial(table1.cells, rows=names), tuple(FEW), options)


@reproduce.command("ablation", short_help="Figure 4: error against the length of the chains.")
@_experiment_out("ablation")
@_study_options("mnist", seeds=1, recipe="short")
@click.pass_context
def reproduce_ablation(context: click.Context, /, **options: Any) -> None:
    """Error on 10,000 held-out training images against the longest chain, S.

    Figure 4: S = 0 (no SSL), 1, 2, 3, 4, 6, 10 and 20, few and all labels.

    \b
    cclp reproduce ablation --labels few --max-steps 1500 --dry-run
    """
    from cclp.experiments import ablation

    _run_study(context, "ablation", ablation.cells, ("mnist",), options)


def _run_study(
    context: click.Context,
    name: str,
    make_cells: "Callable[..., list[Cell]]",
    all_data: tuple[str, ...],
    options: dict[str, Any],
) -> None:
    """Train the runs of an experiment within the budget, or list them."""
    check_integer("seeds", options["seeds"], least=1)
    check_integer("jobs", options["jobs"], least=1)
    budget = options["budget"]
    if budget is not None:
        check_number("budget", budget, above=0)
    folder = options["data_dir"]
    out = options["out"] or Path("runs", name)
    cells = make_cells(
        options["recipe"],
        options["max_steps"],
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
    """List the runs, with the time that each will take here."""
    from cclp.experiments.estimate import estimate

    total = 0.0
    with make_reporter(quiet=False) as report:
        for line in estimate(cells, runs, report):
            total += line.minutes
            echo(f"{line.cell.name:40} {line.state:20} {line.minutes:8.1f} min")
    together = f", {jobs} at a time" if jobs > 1 else ""
    echo(f"{len(cells)} runs, about {total / 60:.1f} hours one after the other{together}")


def _reproduce(
    context: click.Context,
    out: Path,
    quiet: bool,
    run: "Callable[..., list[Claim]]",
    budget: float | None = None,
) -> None:
    """Run an experiment, draw its figures, print its claims."""
    from cclp.runs.start import Stopped

    check_page(out / "report.html")
    line = shlex.join(["cclp", *context.obj])
    with make_reporter(quiet) as report:
        with StopOnSignal(report.warn, lambda: SAME_COMMAND) as signalled:
            over = time.monotonic() + 60 * (budget or math.inf)
            try:
                claims = run(
                    out=out,
                    report=report,
                    should_stop=lambda: signalled() or time.monotonic() > over,
                    command=line,
                )
            except Stopped:
                report.warn("Stopped, saved. The same command resumes.")
                if signalled():
                    context.exit(128 + signalled.number)
                claims = []
        for claim in claims:
            echo(f"{'holds' if claim.holds else 'FAILS'}: {claim.said} {claim.measured}.")
        report.info("Drawing.")
        echo(f"page: {experiment_page(out)}")


def experiment_page(folder: Path, page: Path | None = None) -> Path:
    """Draw the figures of an experiment, and write its page."""
    from cclp.report.experiment import make_experiment_page, write_figures

    page = page or folder / "report.html"
    check_page(page)
    write_figures(folder)
    write_page(page, make_experiment_page(folder))
    return page
