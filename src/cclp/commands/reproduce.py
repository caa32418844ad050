"""``cclp reproduce …``: the paper's figures and tables."""

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
from cclp.commands.stop import StopOnSignal
from cclp.files import write_bytes
from cclp.progress import make_reporter

if TYPE_CHECKING:
    from cclp.experiments.folder import Claim
    from cclp.experiments.sweep import Cell


@click.group()
def reproduce() -> None:
    """The paper's figures and tables, made by this code, with its claims in numbers.

    \b
    cclp reproduce circles
    cclp reproduce moons
    cclp reproduce overhead
    cclp reproduce ablation --max-steps 1500 --dry-run
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
    return path_option(
        "--out", f"Directory; one of the same experiment is gone on with.  [default: runs/{name}]"
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
    from cclp.experiments import circles, descents

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
    from cclp.experiments import descents, moons

    run = partial(descents.reproduce, "moons", moons.CASES, moons.claims, seeds=seeds)
    _reproduce(context, out or Path("runs", "moons"), quiet, run)


@reproduce.command("overhead", short_help="Section 6: what CCLP adds to a step.")
@_experiment_out("overhead")
@quiet_option
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
        max_steps_option,
        click.option(
            "--budget", type=float, metavar="MINUTES", help="Stop after so long, all saved."
        ),
        click.option("--dry-run", is_flag=True, help="List the runs, with estimated times."),
        click.option("--jobs", type=int, default=1, help="So many runs at a time."),
        data_dir_option,
        no_verify_option,
        quiet_option,
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

    The paper's settings take days on two cores: choose --data and --labels, --recipe or
    --max-steps, and see with --dry-run how long it takes here. A cell that is finished is not
    trained again; to bring together what several machines have made, copy the folders in runs/ into
    one and call the command again.

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
    cclp reproduce ablation --labels few --max-steps 1500 --dry-run
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
    from cclp.runs.start import Stopped

    check_page(out / "report.html")
    line = shlex.join(["cclp", *context.obj])
    with make_reporter(quiet) as report:
        with StopOnSignal(report.warn) as signalled:
            over = time.monotonic() + 60 * (budget or math.inf)
            try:
                claims = run(
                    out=out,
                    report=report,
                    should_stop=lambda: signalled() or time.monotonic() > over,
                    command=line,
                )
            except Stopped:
                report.warn("Stopped, saved. The same command goes on with it.")
                if signalled():
                    context.exit(128 + signalled.number)
                claims = []
        for claim in claims:
            click.echo(f"{'holds' if claim.holds else 'FAILS'}: {claim.said} {claim.measured}.")
        report.info("Drawing.")
        click.echo(f"page: {experiment_page(out)}")


def experiment_page(folder: Path, page: Path | None = None) -> Path:
    """Draw an experiment, and write its page."""
    from cclp.report.experiment import make_experiment_page, write_figures

    page = page or folder / "report.html"
    check_page(page)
    write_figures(folder)
    write_bytes(page, make_experiment_page(folder).encode())
    return page


def check_page(page: Path) -> None:
    """Make sure that nothing but a report is written over."""
    from cclp.report.page import is_report

    if page.exists() and not is_report(page):
        raise ValueError(f"{page} exists and is not a report: choose another --out")
