"""``cclp train`` in the background, on the labels so far."""

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cclp.data.published.catalog import CATALOG
from cclp.data.user.label_file import DECIDED, Decided, write_rows
from cclp.files import DAMAGE, Directory, parse_json, write_bytes
from cclp.labelling.source import Source

METHOD = "cclp+graph_pseudo_label"
_SECONDS_TO_END = 5
_LAST = 4000  # characters of what it has said


class Training:
    """A run of ``cclp train`` in a process of its own.

    Args:
        source: the samples.
        folder: that runs are made in.

    Attributes:
        run: the directory of the latest.
        ids: of its classes, by name.
        seen: samples that were labeled when it began.
        is_taken: whether somebody has asked for its predictions.
        is_believed: whether they have replaced those of the graph.
        problem: with them.
    """

    def __init__(self, source: Source, folder: Path) -> None:
        self.source, self.folder = source, folder
        self.run: Path | None = None
        self.ids: dict[str, int] = {}
        self.seen: NDArray[np.bool_] = np.empty(0, bool)
        self.is_taken, self.is_believed, self.problem = False, False, ""
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def start(
        self,
        values: NDArray[np.int16],
        who: NDArray[np.uint8],
        names: Mapping[int, str],
        minutes: float | None,
    ) -> None:
        """Start it.

        Args:
            values, who: of each sample, see :class:`cclp.labelling.decisions.Decisions`.
            names: of the classes.
            minutes: after which it ends.

        Raises:
            ValueError: if one is running, or there are labels of fewer than two classes.
        """
        if self.is_running:
            raise ValueError("a network is being trained already: stop it first")
        labeled = np.flatnonzero(values >= 0)
        if len(np.unique(values[labeled])) < 2:
            raise ValueError("a network needs labels of two or more classes")
        if minutes is not None and not 0 < minutes < 24 * 60:
            raise ValueError(f"minutes must be above 0 and below a day, got {minutes}")
        number = 1
        while (self.folder / f"run-{number}").exists() or (
            self.folder / f"run-{number}.csv"
        ).exists():
            number += 1
        self.run, table = self.folder / f"run-{number}", self.folder / f"run-{number}.csv"
        rows = [
            Decided(self.source.keys[i], names[int(values[i])], DECIDED[who[i]]) for i in labeled
        ]
        write_bytes(table, write_rows(rows), new=True)
        self._log = self.folder / f"run-{number}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cclp", *self._arguments(table, minutes)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.ids = {name: number for number, name in names.items()}
        self.seen = values >= 0
        self._stopped, self.problem = False, ""
        self.is_taken = self.is_believed = False

    def stop(self) -> None:
        """End it, if it is running."""
        if self._process is not None and self._process.poll() is None:
            self._stopped = True
            self._process.terminate()
            try:
                self._process.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_done(self) -> bool:
        """Whether it has ended well."""
        return self._process is not None and self._process.poll() == 0

    def state(self) -> dict[str, Any] | None:
        """As the page shows it; None if nothing was trained."""
        if self._process is None or self.run is None:
            return None
        step, steps, error = self._progress()
        code = self._process.poll()
        state = "running" if code is None else "done" if code == 0 else "failed"
        message = self.problem
        if state == "done" and not (self.is_believed or message):
            state = "reading"
        if state == "failed":
            message = "stopped" if self._stopped else self._said()
        return {
            "state": state,
            "step": steps if code == 0 else step,
            "steps": steps,
            "error": error,
            "run": str(self.run),
            "message": message,
        }

    def predict(self, run: Path) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """Names of the classes of a trained network, and their probabilities, (N, C)."""
        from cclp.runs.inference import open_run  # loads torch's training parts
        from cclp.training.evaluation import run_net

        trained = open_run(run)
        logits = run_net(trained.fabric, trained.objective, self.source.x).logits
        found = (logits / trained.temperature).softmax(1).double().numpy()
        return trained.spec.classes, np.asarray(found, np.float64)

    def _arguments(self, table: Path, minutes: float | None) -> list[str]:
        options = [f"--labels-from={table}", f"--out={self.run}", f"--method={METHOD}", "--quiet"]
        if minutes is not None:
            options.append(f"--time-limit={minutes}")
        for name, value in self.source.options.items():
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                options.append(flag)
            elif isinstance(value, tuple):
                options += [f"{flag}={each}" for each in value]
            else:
                options.append(f"{flag}={value}")
        data = str(self.source.path)
        return ["train", *options, "--", data if data in CATALOG else str(Path(data).absolute())]

    def _progress(self) -> tuple[int, int, float | None]:
        """Steps that are done, all steps, and the last error that was measured."""
        assert self.run is not None
        step, steps, error = 0, 0, None
        place = Directory(self.run)
        with suppress(OSError, *DAMAGE):
            config = parse_json(place.read_bytes("config.json"))["config"]
            steps = int(config["recipe"]["max_steps"])
            for line in place.read_bytes("metrics.jsonl").splitlines():
                with suppress(*DAMAGE):
                    values = parse_json(line)
                    step = max(step, int(values["step"]))
                    error = values.get("error", error)
        return step, steps, error

    def _said(self) -> str:
        """The last line that it has printed."""
        text = self._log.read_bytes()[-_LAST:].decode(errors="replace").strip()
        return text.splitlines()[-1] if text else "it has ended without a word"
