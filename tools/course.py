"""The course of the test error of runs of Table 1, with the paper's value.

python -m tools.course results/table1-paper
"""

import json
import sys
from pathlib import Path

from cclp.experiments.paper import COLUMNS, PAPER
from cclp.files import write_bytes
from cclp.report.figures import house_style, plain, png, svg


def course(run: Path) -> tuple[list[int], list[float]]:
    """Steps, and the error after them in per cent."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    found = [(line["step"], 100 * line["error"]) for line in lines if "error" in line]
    return [step for step, _ in found], [error for _, error in found]


def main() -> None:
    """Draw ``course.png`` and ``course.svg`` into the folder."""
    from matplotlib.figure import Figure

    folder = Path(sys.argv[1])
    with house_style():
        drawing = Figure(figsize=(6, 3.6), layout="constrained")
        axis = drawing.subplots()
        for run in sorted(folder.glob("runs/*/metrics.jsonl")):
            steps, errors = course(run.parent)
            axis.plot(steps, errors, marker="o", ms=3, label=run.parent.name)
            print(run.parent.name, dict(zip(steps, errors, strict=True)))
        paper = PAPER["CCLP"][COLUMNS[0]]  # MNIST, 100 labels
        least, most = (paper.mean + sign * (paper.deviation or 0) for sign in (-1, 1))
        axis.axhspan(least, most, color="0.6", alpha=0.3, lw=0, label=f"the paper: {paper}")
        axis.set(xlabel="steps", ylabel="test error, %", yscale="log", xlim=(0, 45_000))
        axis.set_yticks([0.5, 0.75, 1, 2, 4], ["0.5", "0.75", "1", "2", "4"])
        axis.set_xticks(range(0, 45_001, 15_000))
        axis.minorticks_off()
        axis.legend(fontsize=8)
        plain(axis)
        write_bytes(folder / "course.png", png(drawing))
        write_bytes(folder / "course.svg", svg(drawing))


if __name__ == "__main__":
    main()
