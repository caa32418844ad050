"""Descents of toy problems over several seeds: what is recorded of each, and how they are run."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from cclp.checks import check_integer
from cclp.experiments.folder import Claim, damage_named, open_folder
from cclp.experiments.toy import points
from cclp.experiments.toy.points import Layout, Moment
from cclp.files import Directory
from cclp.progress import Reporter
from cclp.runs.start import Stopped

LAYOUTS = {"circles": points.circles, "moons": points.moons, "arc": points.arc}
IDEAL = math.log(points.POINTS / points.CLASSES)  # loss of classes that are compact and balanced
ALIGNED_AT = (0, 5, 10, 20, 40, 80)  # iterations at which forces are compared with the manifold
FRAMES = (*range(0, 120, 6), *range(120, 360, 12), *range(360, 601, 40))  # points move less later

Records = dict[str, list[dict[str, Any]]]  # of all seeds, by case


@dataclass(frozen=True)
class Case:
    """A descent, but for its seed.

    Attributes:
        name: of its records.
        layout: where the points stand first: "circles", "moons" or "arc".
        noise: standard deviation, on each coordinate.
        regulariser: "cclp" or "entropy".
        chain_steps: S of CCLP; the graph of a descent without it is diagnosed with this S too.
        step_size: of gradient descent.
        iterations: steps.
        frames: iterations whose loss and accuracy are recorded.
        drawn: whether points and forces of seed 0 are kept for pictures too.
    """

    name: str
    layout: Literal["circles", "moons", "arc"]
    noise: float
    regulariser: Literal["cclp", "entropy"] = "cclp"
    chain_steps: int = 10
    step_size: float = points.STEP_SIZE
    iterations: int = points.ITERATIONS
    frames: tuple[int, ...] = FRAMES
    drawn: bool = True

    @property
    def term(self) -> points.Regulariser:
        """The regulariser as a function."""
        return points.certain if self.regulariser == "entropy" else points.compact(self.chain_steps)

    def to_json(self) -> dict[str, Any]:
        about = asdict(self)
        del about["name"], about["frames"], about["drawn"]
        return about


class Course:
    """What pictures of a descent need, by frame."""

    def __init__(self, case: Case, layout: Layout) -> None:
        self.case, self.layout = case, layout
        self.frames: dict[str, list[Any]] = {}

    def keep(self, moment: Moment) -> None:
        """Keep a frame."""
        if self.case.regulariser == "cclp":
            belief = points.posteriors(self.layout, moment.z)[:, 1]
        else:
            belief = points.logits(moment.z, moment.classifier).softmax(1)[:, 1]
        frame = {
            "iteration": moment.iteration,
            "z": moment.z,
            "belief": belief,  # that a point is of class 1: propagated, or the classifier's
            "boundary": moment.classifier[1] - moment.classifier[0],  # 0 where this · (x, y, 1) is
            "supervised": moment.supervised[self.layout.labeled],
            "regulariser": moment.regulariser,
            "loss": moment.loss,
            "accuracy": points.accuracy(self.layout, moment),
        }
        for name, value in frame.items():
            self.frames.setdefault(name, []).append(value)

    def save(self, path: Path) -> None:
        """As an npz file; half precision is finer than a pixel."""
        arrays: dict[str, Any] = {"classes": self.layout.classes, "labeled": self.layout.labeled}
        for name, values in self.frames.items():
            array = np.stack([np.asarray(value) for value in values])
            arrays[name] = array.astype(np.float16) if array.ndim > 1 else array
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        folder = Directory(path.parent.parent, path.parent.name)
        folder.make()
        folder.write_bytes(path.name, content.getvalue())


def reproduce(
    experiment: str,
    cases: Sequence[Case],
    claims: Callable[[Records], list[Claim]],
    out: Path,
    seeds: int = 10,
    report: Reporter | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    command: str | None = None,
) -> list[Claim]:
    """Run every case with every seed; finished descents are kept.

    Args:
        experiment: its name.
        cases: the descents.
        claims: judges the records, by case.
        out: directory; one of the same experiment is resumed.
        seeds: each draws noise, labeled points and first weights of the classifier.
        report: what the user sees.
        should_stop: asked at every iteration.
        command: how this was called, for the record.

    Returns:
        The claims, judged by these seeds only.

    Raises:
        ValueError: for wrong settings, or if ``out`` holds something else or is in use.
        cclp.runs.start.Stopped: if ``should_stop`` said so; all finished descents are saved.
    """
    check_integer("seeds", seeds, least=1)
    report = report or Reporter()
    shared = {
        "points": points.POINTS,
        "classes": points.CLASSES,
        "bandwidth": points.GRAPH["bandwidth"],
    }
    settings = shared | {"cases": {case.name: case.to_json() for case in cases}}
    with open_folder(out, experiment, settings) as folder:
        work = [
            (case, seed)
            for seed in range(seeds)
            for case in cases
            if f"{case.name}/{seed}" not in folder.records
            or (_is_drawn(case, seed) and not course_file(out, case.name).exists())
        ]
        if work:
            folder.begin(command)
        total = sum(case.iterations for case, _ in work)
        with report.work(f"{experiment}: {len(work)} descents", total) as advance:
            for case, seed in work:
                layout = LAYOUTS[case.layout](seed, case.noise)
                course = Course(case, layout) if _is_drawn(case, seed) else None
                record = descent(case, layout, course, advance, should_stop)
                if course is not None:
                    course.save(course_file(out, case.name))
                folder.add(f"{case.name}/{seed}", {"seed": seed, **record})
        with damage_named(out):
            found = claims(by_case(folder.records, seeds))
        folder.conclude(found)
    return found


def _is_drawn(case: Case, seed: int) -> bool:
    return case.drawn and seed == 0


def course_file(out: Path, case: str) -> Path:
    """Where the frames of a case are."""
    return out / "courses" / f"{case}.npz"


def by_case(records: dict[str, Any], seeds: int | None = None) -> Records:
    """Records as they stand in the directory, by case; of the first seeds, or of all."""
    found: Records = {}
    for name, record in records.items():
        case, _, seed = name.rpartition("/")
        if seeds is None or int(seed) < seeds:
            found.setdefault(case, []).append(record)
    return found


def descent(
    case: Case,
    layout: Layout,
    course: Course | None = None,
    advance: Callable[[int], None] = lambda done: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run one descent; returns its record.

    Args:
        case: what to run.
        layout: where from.
        course: where frames for pictures are kept, if they are.
        advance: called at every iteration.
        should_stop: asked at every iteration.

    Raises:
        cclp.runs.start.Stopped: if ``should_stop`` said so.
    """
    opposition = points.Opposition()
    curve: list[tuple[int, float, float]] = []
    alignment: dict[str, list[float]] = {"iteration": [], "1": [], "10": []}
    for moment in points.descend(layout, case.term, case.step_size, case.iterations):
        if should_stop():
            raise Stopped("Stopped.")
        if moment.iteration < case.iterations:
            opposition.count(layout, moment)
            advance(1)
        if moment.iteration in case.frames:
            accuracy = points.accuracy(layout, moment)
            curve.append((moment.iteration, round(moment.loss, 4), accuracy))
            if course is not None:
                course.keep(moment)
        if case.layout == "moons" and moment.iteration in ALIGNED_AT:
            alignment["iteration"].append(moment.iteration)
            for steps in ("1", "10"):
                alignment[steps].append(_aligned(layout, moment, int(steps)))
    health = points.health(layout, moment.z, case.chain_steps)
    record = {
        "accuracy": points.accuracy(layout, moment),
        "loss": moment.loss,
        "largest_class_mass": health.largest_class_mass * points.POINTS / points.CLASSES,
        "distance_to_ideal": health.distance_to_ideal,  # of the clusters that there are
        "warnings": [warning.code for warning in health.warnings()],
        "opposition": opposition.to_json(),
        "classifier_changes_force": classifier_changes_force(case, layout),
        "curve": {
            name: [row[i] for row in curve]
            for i, name in enumerate(("iteration", "loss", "accuracy"))
        },
    }
    if case.layout == "moons":
        record["alignment"] = alignment
    if case.layout == "arc":
        record["ambiguity"] = ambiguity(case, layout)
    return record


def _aligned(layout: Layout, moment: Moment, steps: int) -> float:
    """Share of CCLP's forces along the manifold, with S = ``steps``, at these points."""
    _, force, _ = points.forces(layout, moment.z, moment.classifier, points.compact(steps))
    return points.along_manifold(layout, moment.z, force)


def classifier_changes_force(case: Case, layout: Layout) -> float:
    """How much the regulariser's forces change with another classifier, relative to their size."""
    turned = layout.classifier.roll(1, dims=1) + 1.0
    _, force, _ = points.forces(layout, layout.z, layout.classifier, case.term)
    _, other, _ = points.forces(layout, layout.z, turned, case.term)
    return float((force - other).norm() / force.norm())


def ambiguity(case: Case, layout: Layout) -> dict[str, Any]:
    """Forces where propagated labels are open, entropy above 0.9 ln 2, and where they are not."""
    _, force, _ = points.forces(layout, layout.z, layout.classifier, case.term)
    entropy = torch.special.entr(points.posteriors(layout, layout.z)).sum(1) / math.log(2)
    size, agreement = force.norm(dim=1), points.agreement(layout.z, force)
    free = layout.unlabeled
    open_ = free[entropy[free] > 0.9]
    decided = free[entropy[free] <= 0.9]
    return {
        "points": {"open": len(open_), "decided": len(decided)},
        "mean_force": {
            "open": size[open_].mean().item(), "decided": size[decided].mean().item()
        },
        "agreement": {
            "open": agreement[open_].mean().item(), "decided": agreement[decided].mean().item()
        },
    }  # fmt: skip
