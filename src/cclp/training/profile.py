"""Where the time of a run goes: its phases, and of some steps every operation."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from cclp.files import Directory, json_bytes
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
    lines: dict[int, tuple[str, ...]] = {}  # names of an event and those above it

    def line(event: FunctionEvent | None) -> tuple[str, ...]:
        if event is None:
            return ()
        if event.id not in lines:
            lines[event.id] = (event.name, *line(event.cpu_parent))
        return lines[event.id]

    for event in events:
        names = line(event)
        if STEP in names:
            kind = kind_of(names[: names.index(STEP)] or (STEP,), methods)
            found[kind] = found.get(kind, 0.0) + event.self_cpu_time_total / 1e6
    return dict(sorted(found.items(), key=lambda item: -item[1]))


class Profile(Callback):
    """Records every operation of some steps, and knows the phases of the run.

    Args:
        phases: that are measured.

    Attributes:
        recorded: number of steps.
    """

    phase = "profiling"

    def __init__(self, phases: Phases) -> None:
        self.phases, self.recorded = phases, 0
        self._profile: profile | None = None
        self._records = False
        self._device, self._methods = torch.device("cpu"), list[str]()

    def on_start(self, trainer: Trainer) -> None:
        self._device = trainer.fabric.device
        self._methods = [type(method).__name__ for method in trainer.objective.methods]
        if 0 < trainer.recipe.max_steps - trainer.done <= SKIPPED:
            self._begin()

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        if self._records:
            self.recorded += 1
            if self.recorded == RECORDED or trainer.finished or trainer.stopping:
                self.close()
        elif self._profile is None and result.done >= SKIPPED:
            self._begin()

    def _begin(self) -> None:
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile, self._records = profile(activities=activities), True
        self._profile.start()

    def close(self) -> None:
        """Stop recording, also where a training ends early: torch cannot end while it records."""
        if self._records and self._profile is not None:
            self._records = False
            self._profile.stop()

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Of each kind of operation in the steps that were recorded."""
        if self._profile is None or self._records:
            return {}
        events = self._profile.events()  # type: ignore[no-untyped-call]
        return seconds_of_kinds(events or (), self._methods)

    def write(self, out: Path) -> None:
        """Write ``profile/`` of a run: ``profile.json`` and, for https://ui.perfetto.dev,
        ``trace.json.gz``.
        """
        folder = Directory(out, "profile")
        folder.make()
        content = {
            "phases": self.phases.seconds,
            "times": self.phases.times,
            "rest": self.phases.rest,
            "recorded_steps": self.recorded,
            "steps": self.seconds,
            "environment": environment(self._device),
        }
        folder.write_bytes("profile.json", json_bytes(content))
        if self.seconds and self._profile is not None:
            with TemporaryDirectory() as place:
                trace = Path(place, "trace.json.gz")
                self._profile.export_chrome_trace(str(trace))
                folder.write_bytes(trace.name, trace.read_bytes())

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
