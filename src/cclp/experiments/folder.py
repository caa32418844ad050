"""The directory of an experiment: one results.json, written anew after each piece of work.

==================== ==============================================================
``results.json``     settings, machine, raw records, and what they say of each claim
``courses/*.npz``    points and forces by iteration, for pictures
``*.svg, *.png``     figures
``animation.gif``    the same, moving
``report.html``      all of it as a page
==================== ==============================================================
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from cclp.files import write_json
from cclp.training.directory import read_json
from cclp.training.machine import differences, environment

RESULTS = "results.json"


class Claim(NamedTuple):
    """Something said of the method, and what was measured.

    Attributes:
        said: the claim, with who says it.
        measured: the figures.
        holds: whether they bear it out.
    """

    said: str
    measured: str
    holds: bool


class Folder:
    """An experiment's directory; the same command goes on with it.

    Args:
        out: the directory.
        experiment: its name.
        settings: what all its records depend on.
        command: how it was called, for the record.

    Raises:
        ValueError: if the directory holds something else.
    """

    def __init__(
        self, out: Path, experiment: str, settings: dict[str, Any], command: str | None = None
    ) -> None:
        self.out = out
        if (out / RESULTS).exists():
            self.content = read_json(out, RESULTS)
            before = {name: self.content.get(name) for name in ("experiment", "settings")}
            if before != {"experiment": experiment, "settings": settings}:
                raise ValueError(
                    f"{out} holds another experiment, or one with other settings: choose another "
                    "--out"
                )
            return
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"{out} exists and is no experiment: choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        self.content = {
            "experiment": experiment,
            "command": command,
            "settings": settings,
            "environment": environment(torch.device("cpu")),
            "claims": [],
            "records": {},
        }
        write_json(out / RESULTS, self.content, new=True)

    @property
    def records(self) -> dict[str, Any]:
        """What was measured, by name of the piece of work."""
        found: dict[str, Any] = self.content["records"]
        return found

    def check_machine(self) -> None:
        """Make sure that what is added was made like what is there.

        Raises:
            ValueError: if it would be by other versions or on another machine.
        """
        changed = differences(self.content["environment"], environment(torch.device("cpu")))
        if changed:
            raise ValueError(
                f"{self.out} was begun elsewhere ({', '.join(changed)}): choose another --out"
            )

    def add(self, name: str, record: Any) -> None:
        """Save a piece of work."""
        self.records[name] = record
        write_json(self.out / RESULTS, self.content)

    def conclude(self, claims: list[Claim]) -> None:
        """Save what the records say of each claim."""
        self.content["claims"] = [claim._asdict() for claim in claims]
        write_json(self.out / RESULTS, self.content)
