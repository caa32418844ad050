"""Put recorded results into the generated blocks of docs/: called by ``make results``."""

from pathlib import Path
from typing import Any

from benchmarks import (
    added,
    estimator,
    image_size,
    imbalance,
    lab,
    large,
    loss,
    methods,
    preparation,
    pseudo_labels,
    scaling,
    soak,
    sparse,
    startup,
    time_to_accuracy,
)
from cclp.experiments.folder import read_results
from cclp.experiments.grid import Grid
from cclp.experiments.overhead import rows, share
from cclp.experiments.tables import TABLES
from cclp.files import check_marks, write_between
from cclp.report.experiment import EXPERIMENTS
from cclp.report.overhead_figure import NAMES
from cclp.runs.record import read_json

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ESTIMATOR = ("digits", "others", "mnist", "memory")
TOYS = ("circles", "moons")
STUDIES = {
    "table1-paper": "table1",
    "table1": "table1",
    "table1-peers": "table1",
    "table1-fast": "table1",
    "ablation": "ablation",
}
HEADINGS = {  # of the tables of one kind, and under which conditions each was made
    "table1-paper": (
        "Table 1 as in the paper, on its own schedule",
        "Recipe `paper`: the paper's network, batches, learning rates and 45,000 steps; **no "
        "augmentation, no pseudo-labels**. One labeled set of the paper's ten; LBA and labels "
        "only are not done on this schedule.\n\n"
        "![The test error falls for 20,000 steps](../results/table1-paper/course.png)\n\n"
        "*Test error after every 2,500 steps; the band is the paper's mean ± standard deviation "
        "over ten labeled sets. Nothing was chosen by it: the last iterate counts.*",
    ),
    "table1": (
        "Table 1 as in the paper, on a short schedule",
        "Recipe `short`: the paper's network and batches, or the network of the method's own paper "
        "where that is here; **no augmentation, no pseudo-labels from a graph, the same steps for "
        "every method in a column**. The schedule is a fifteenth of the paper's on MNIST with 100 "
        "labels: read our values beside each other, and the paper's for what longer training "
        "gives. More in [Methods](methods.md).",
    ),
    "table1-peers": (
        "Some of the generative peers with other steps",
        "Recipe `short` as above, but more steps, or fewer where a network takes long; "
        "`bad_gan` in float32, the others in bfloat16, `improved_gan` with two threads. "
        "The minutes of `ladder` include long pauses: it takes about 20.",
    ),
    "table1-fast": (
        "Ours: the recipe `fast`",
        "**Not to be compared with the tables above**: augmentation, a small network, recalibrated "
        "batch norm, and in rows that are called so pseudo-labels from the nearest-neighbour "
        "graph, which are what most of the accuracy comes from; the paper's loss adds little or "
        "nothing to them ([The fast recipe](fast.md)).",
    ),
}
FIGURES = ("<!-- tools/results.py writes from here -->", "<!-- to here: figures -->")
TABLE = ("<!-- tools/results.py writes sweeps from here -->", "<!-- to here: sweeps -->")
COSTS = ("<!-- tools/results.py writes costs from here -->", "<!-- to here: costs -->")


def claims(content: dict[str, Any]) -> str:
    """The claims and what was measured, as a table."""
    lines = ["| claim | measured | |", "| --- | --- | --- |"]
    for claim in content["claims"]:
        holds = "holds" if claim["holds"] else "**fails**"
        lines.append(f"| {claim['said']} | {claim['measured']} | {holds} |")
    return "\n".join(lines)


def figure(name: str, picture: str) -> str:
    """A picture with a link to its SVG."""
    text = EXPERIMENTS[STUDIES.get(name, name)].captions[picture].split(".")[0]
    return f"[![{text}](../results/{name}/{picture}.png)](../results/{name}/{picture}.svg)"


def figures() -> str:
    """The section on the toy problems."""
    parts = ["![Two circles become two points, moving](../results/circles/animation.gif)"]
    for name in TOYS:
        content = read_results(ROOT / "results" / name)
        seeds = {record["seed"] for record in content["records"].values()}
        about = EXPERIMENTS[name]
        parts += [f"### {about.title}", figure(name, "figure")]
        parts.append(f"*{about.captions['figure']} {about.about}*")
        parts.append(claims(content))
        parts.append(
            f"*{len(seeds)} seeds. Raw results, figures and an "
            f"[animation](../results/{name}/animation.gif): [results/{name}](../results/{name}).*"
        )
    return "\n\n".join(parts)


def studies() -> str:
    """The section on Table 1 and the ablation."""
    parts = []
    for name, kind in STUDIES.items():
        content = read_results(ROOT / "results" / name)
        about, records = EXPERIMENTS[kind], list(content["records"].values())
        grids = TABLES[kind].grids(records)
        title, conditions = HEADINGS.get(name, (about.title, ""))
        parts += [f"### {title}", *([conditions] if conditions else [])]
        if name == kind:
            parts.append(figure(name, "figure"))
            parts.append(f"*{about.captions['figure']} {about.about}*")
        else:
            grids[0] = measured(grids[0])
        parts += [grid.markdown().rstrip() for grid in grids]
        parts += [claims(content)] if content["claims"] else []
        parts.append(f"*{made(records)} Raw results: [results/{name}](../results/{name}).*")
    return "\n\n".join(parts)


def measured(table: Grid) -> Grid:
    """Our rows of a table, and the columns that they have values in: the paper's are above."""
    rows = table.rows[: table.ours]
    kept = [i for i in range(len(table.header)) if any(row[i] != "–" for row in rows)]
    return table._replace(
        header=tuple(table.header[i] for i in kept),
        rows=[tuple(row[i] for i in kept) for row in rows],
    )


def made(records: list[dict[str, Any]]) -> str:
    """How the runs of a study were made: their number, steps, threads and data."""
    threads = {record["environment"]["machine"]["threads"] for record in records}
    steps = sorted({record["recipe"]["max_steps"] for record in records})
    text = f"{len(records)} run{'s' * (len(records) != 1)} of "
    text += f"{', '.join(f'{count:,}' for count in steps)} steps, "
    text += f"{' or '.join(map(str, sorted(threads)))} thread{'s' * (threads != {1})}."
    if not all(record["verified"] for record in records):
        text += " SVHN is reconstructed from 28 × 28 copies."
    return text


def costs() -> str:
    """The section on what the loss adds to a step."""
    content = read_results(ROOT / "results" / "overhead")
    machine = content["environment"]["machine"]
    table = rows(list(content["records"].values()))
    sizes, largest = content["settings"]["sizes"], content["settings"]["largest_batch"]
    lines = [f"| share of a step, S = 3 | {' | '.join(f'N = {n:,}' for n in sizes)} |"]
    lines.append(f"| --- |{' --- |' * len(sizes)}")
    for net in content["settings"]["nets"]:
        cells = [
            f"{100 * share(row.added['3']):.1f} %{'' if row.measured else '*'}"
            for row in table
            if row.net == net
        ]
        lines.append(f"| {NAMES[net]} | {' | '.join(cells)} |")
    precisions = sorted({record["net_precision"] for record in content["records"].values()})
    return "\n\n".join(
        [
            figure("overhead", "figure"),
            f"*{EXPERIMENTS['overhead'].captions['figure']}*",
            "\n".join(lines),
            claims(content),
            f"*\\* The network's time is that of {largest:,} images in proportion to N. "
            f"{machine['processor']}, {machine['threads']} threads, {machine['capability']}; "
            f"networks in {' and '.join(precisions)}. Raw results: "
            "[results/overhead](../results/overhead).*",
        ]
    )


def benchmark_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a file of results."""
    rows: list[dict[str, Any]] = read_json(ROOT / "results", f"{name}.json")["rows"]
    return rows


def benchmarks() -> list[tuple[tuple[str, str], str]]:
    """Marks and tables of the benchmarks, from what they have recorded."""
    folder = ROOT / "results"
    parts = {name: estimator.read_part(folder / f"estimator/{name}.json") for name in ESTIMATOR}
    found = [
        (loss.MARKS, loss.markdown(read_json(folder, "loss-benchmark.json"))),
        (scaling.MARKS, scaling.table(read_json(folder, "scaling-benchmark.json"))),
        (lab.MARKS, lab.table(read_json(folder, "lab-benchmark.json"))),
        (methods.MARKS, methods.read()),
        (soak.MARKS, soak.markdown(read_json(folder, "soak.json"))),
        (image_size.MARKS, image_size.markdown(benchmark_rows("image-size"))),
        (added.MARKS, added.markdown(benchmark_rows("added"))),
        (sparse.MARKS, sparse.markdown(benchmark_rows("sparse-benchmark"))),
        (preparation.MARKS, preparation.table(benchmark_rows("preparation-benchmark"))),
        (large.MARKS, large.table(benchmark_rows("large"))),
        (startup.MARKS, startup.markdown(read_json(folder, "startup-benchmark.json")["seconds"])),
        (imbalance.MARKS, imbalance.table(benchmark_rows("imbalance"))),
        (
            pseudo_labels.MARKS,
            pseudo_labels.table(pseudo_labels.upgrade_rows(benchmark_rows("prior-benchmark"))),
        ),
        (
            estimator.MARKS,
            estimator.markdown({name: part["result"] for name, part in parts.items()}),
        ),
    ]
    for part, marks in time_to_accuracy.MARKS.items():
        results = time_to_accuracy.read_results(folder / "time-to-accuracy" / part)
        found.append((marks, time_to_accuracy.text(part, results)))
    return found


def blocks() -> list[tuple[Path, tuple[str, str], str]]:
    """Every generated block: its page, the marks around it, and what belongs between them."""
    found = [(FIGURES, figures()), (TABLE, studies()), (COSTS, costs()), *benchmarks()]
    return [(page_with(marks), marks, text) for marks, text in found]


def page_with(marks: tuple[str, str]) -> Path:
    """The page that a block is in.

    Raises:
        ValueError: if no page of docs/ has these marks, or several have.
    """
    pages = [path for path in sorted(DOCS.glob("*.md")) if marks[0] in path.read_text()]
    if len(pages) != 1:
        raise ValueError(f"{marks[0]!r} must stand in one page of {DOCS}, got {len(pages)}")
    check_marks(pages[0], marks)
    return pages[0]


def main() -> None:
    """Write all blocks."""
    for path, marks, text in blocks():
        write_between(path, marks, text)


if __name__ == "__main__":
    main()
