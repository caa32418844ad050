"""``cclp compare``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cclp.checks import check_integer
from cclp.commands.configure import data_name, make_config, named_settings
from cclp.commands.options import (
    RecipeName,
    Weight,
    data_dir_option,
    drop_option,
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
from cclp.commands.stop import SAME_COMMAND, StopOnSignal
from cclp.methods import METHODS, method_parts
from cclp.progress import make_reporter
from cclp.training.recipe import RECIPES, Setting, merge_settings


@click.command(short_help="Several methods on the same splits, network and steps.")
@click.argument("data", default="digits")
@click.option(
    "--methods",
    default="supervised,cclp",
    help=f"Names with commas between them: {', '.join(METHODS)}, and combinations such as "
    "cclp+vat; or all.",
)
@click.option("--seeds", type=int, default=5, help="Number of labeled sets and initial weights.")
@num_labels_option
@click.option(
    "--recipe",
    type=RecipeName(list(RECIPES)),
    help="Of all runs, as in cclp train; its method is not used.  [default: short]",
)
@max_steps_option
@click.option(
    "--weight", "weights", type=Weight(), multiple=True, help="METHOD=W, wherever it is a part."
)
@setting_option
@click.option("--jobs", type=int, default=1, help="Number of runs at a time; they share the cores.")
@click.option("--held-out", type=int, help="As in cclp train: for choosing settings.")
@path_option("--out", "Directory; one of the same comparison is resumed.  [default: in runs/]")
@data_dir_option
@no_verify_option
@image_size_option
@target_option
@drop_option
@keep_option
@skip_bad_option
@net_option
@quiet_option
@click.pass_context
def compare(
    context: click.Context,
    /,
    methods: str,
    seeds: int,
    jobs: int,
    out: Path | None,
    weights: tuple[tuple[str, float], ...],
    settings: tuple[tuple[str, str, Setting], ...],
    quiet: bool,
    **options: Any,
) -> None:
    """Train several methods on DATA and compare them: same splits, same network, same steps.

    Methods that have a network of their own (ladder, m1_m2, sdgm, adgm, ali) use that.

    \b
    cclp compare digits --methods supervised,entropy,vat,cclp,cclp+vat --num-labels 50 --seeds 5

    After a stop or a crash the same command resumes.
    """
    check_integer("seeds", seeds, least=1)
    check_integer("jobs", jobs, least=1)
    names = list(METHODS) if methods == "all" else methods.split(",")
    parts = {part for name in names for part in method_parts(name)}
    for name in [name for name, _ in weights] + [name for name, _, _ in settings]:
        if name not in parts:
            raise ValueError(
                f"--weight and --setting must name a method of {', '.join(sorted(parts))}, "
                f"got {name or 'none'}"
            )
    options["recipe"] = options["recipe"] or "short"
    config = make_config(**options, method="supervised")
    given = merge_settings(config.recipe.settings, named_settings(weights, settings))
    recipe = replace(config.recipe, settings=given)
    config = replace(config, recipe=recipe, evaluate_every=recipe.max_steps)
    out = out or Path("runs", f"compare-{data_name(config)}")
    from cclp.experiments.compare import compare as run_comparison
    from cclp.runs.start import Stopped

    with (
        make_reporter(quiet) as report,
        StopOnSignal(report.warn, lambda: SAME_COMMAND) as should_stop,
    ):
        try:
            run_comparison(config, names, range(seeds), out, report, should_stop, jobs)
        except Stopped:
            report.warn("Stopped, saved. The same command resumes.")
            context.exit(128 + should_stop.number)
    echo((out / "results.md").read_text().rstrip("\n"))
    echo(f"comparison: {out}")
