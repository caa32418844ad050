"""Where the time of a run goes: its phases, and of some steps every operation."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from cclp.files import write_json
from cclp.phases import Phases
from cclp.training.callbacks import Callback
from cclp.training.machine import environment
from cclp.training.trainer import STEP, StepResult, Trainer

SKIPPED, RECORDED = 5, 20  # steps: the first ones do more
Kinds = tuple[tuple[str, tuple[str, ...]], ...]
# Of operations, by a part of their name or of one that has called them.
KINDS: Kinds = (
    ("convolution", ("convolution", "ConvolutionBackward")),
    ("batch norm", ("batch_norm", "BatchNorm")),
    ("optimizer", ("Optimizer.",)),
)
# Where no method's loss has called them.
OTHER_KINDS: Kinds = (
    ("linear layers", ("addmm", "Addmm", "::linear", "::mm", "MmBackward")),
    ("pooling", ("pool", "Pool")),
    ("activations", ("elu", "Elu", "ELU", "relu", "Relu")),
)
REST = "the rest"
SHORTEST = 0.005  # seconds of a phase that is worth a line
OTHER, HOST = "other operations", "Python and autograd between operations"
_ABOVE = ("autograd::engine",)


def kind_of(names: Sequence[str], methods: Iterable[str]) -> str:
    """What an operation belongs to.

    Args:
        names: its own, that of the one that has called it, and so on.
        methods: names of the run's methods, under which their losses are called.
    """
    for kind, parts in KINDS:
        if any(part in name for name in names for part in parts):
            return kind
    for method in methods:
        if method in names:
            return f"loss of {method}"
    for kind, parts in OTHER_KINDS:
        if any(part in name for name in names for part in parts):
            return kind
    return OTHER if "::" in names[0] and not names[0].startswith(_ABOVE) else HOST


def seconds_of_kinds(events: Iterable[FunctionEvent], methods: Sequence[str]) -> dict[str, float]:
    """Seconds of each kind of operation within the steps, most first; each second counts once."""
    found: dict[str, float] = {}
    for event in events:
        names: list[str] = []
        above: FunctionEvent | None = event
        while above is not None:
            names.append(above.name)
            above = above.cpu_parent
        if STEP in names:
            kind = kind_of(names[: names.index(STEP)] or [STEP], methods)
            found[kind] = found.get(kind, 0.0) + event.self_cpu_time_total / 1e6
    return dict(sorted(found.items(), key=lambda item: -item[1]))


class Profile(Callback):
    """Records every operation of some steps, and knows the phases of the run.

    Args:
        phases: that are measured.

    Attributes:
        recorded: number of steps.
        seconds: of each kind of operation in them.
    """

    phase = "profiling"

    def __init__(self, phases: Phases) -> None:
        self.phases, self.recorded = phases, 0
        self.seconds: dict[str, float] = {}
        self._profile: profile | None = None
        self._records = False
        self._device = torch.device("cpu")

    def on_start(self, trainer: Trainer) -> None:
        if trainer.recipe.max_steps - trainer.done <= SKIPPED:
            self._begin()

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        if self._records:
            self.recorded += 1
            if self.recorded == RECORDED or trainer.finished:
                self._end(trainer)
        elif self._profile is None and result.done >= SKIPPED:
            self._begin()

    def _begin(self) -> None:
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile, self._records = profile(activities=activities), True
        self._profile.start()

    def _end(self, trainer: Trainer) -> None:
        assert self._profile is not None
        self._records = False
        self._profile.stop()
        self._device = trainer.fabric.device
        methods = [type(method).__name__ for method in trainer.objective.methods]
        self.seconds = seconds_of_kinds(self._profile.events() or (), methods)  # type: ignore[no-untyped-call]

    def write(self, folder: Path) -> None:
        """Write ``profile.json`` and, for https://ui.perfetto.dev, ``trace.json.gz``."""
        folder.mkdir(exist_ok=True)
        content = {
            "phases": self.phases.seconds,
            "times": self.phases.times,
            "rest": self.phases.rest,
            "recorded_steps": self.recorded,
            "steps": self.seconds,
            "environment": environment(self._device),
        }
        write_json(folder / "profile.json", content)
        if self._profile is not None and not self._records:
            self._profile.export_chrome_trace(str(folder / "trace.json.gz"))

    def table(self) -> str:
        """Phases of the run and parts of a step, as text."""
        seconds = {name: s for name, s in self.phases.seconds.items() if s >= SHORTEST}
        found = sorted(seconds.items(), key=lambda item: -item[1])
        parts = [_table("phase", {**dict(found), REST: self.phases.rest}, self.phases.times)]
        if self.seconds:
            each = {kind: seconds / self.recorded for kind, seconds in self.seconds.items()}
            parts.append(_table(f"of a step ({self.recorded} were recorded)", each, {}))
        return "\n\n".join(parts)


def _table(title: str, seconds: dict[str, float], times: dict[str, int]) -> str:
    total, width = sum(seconds.values()), max(map(len, (title, *seconds)))
    factor, unit = (1, "s") if times else (1000, "ms")
    lines = [f"{title:{width}} {unit:>9}  share" + ("  times" if times else "")]
    for name, value in seconds.items():
        count = f"{times[name]:7,}" if name in times else ""
        lines.append(f"{name:{width}} {factor * value:9.2f} {value / (total or 1):6.1%}{count}")
    return "\n".join(lines)
