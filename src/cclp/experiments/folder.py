"""The directory of an experiment: one results.json, written anew after each piece of work.

==================== ==============================================================
``results.json``     settings, machine, raw records, and the measured claims
``courses/*.npz``    points and forces by iteration, for pictures
``*.svg, *.png``     figures
``animation.gif``    the same, moving
``report.html``      all of it as a page
==================== ==============================================================
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cclp.files import DAMAGE, write_json
from cclp.runs.directory import is_unused, locked
from cclp.runs.record import read_json

RESULTS = "results.json"
_KINDS = {
    "experiment": str, "command": str | None, "settings": dict, "environment": dict,
    "claims": list, "records": dict,
}  # fmt: skip


class Claim(NamedTuple):
    """A claim about the method, and what was measured.

    Attributes:
        said: the claim, and whose it is.
        measured: the figures.
        holds: whether they bear it out.
    """

    said: str
    measured: str
    holds: bool


class Folder:
    """An experiment's directory while it is worked on; see :func:`open_folder`.

    Args:
        out: the directory.
        content: of its results.json.
    """

    def __init__(self, out: Path, content: dict[str, Any]) -> None:
        self.out, self.content = out, content

    @property
    def records(self) -> dict[str, Any]:
        """What was measured, by name of the piece of work."""
        found: dict[str, Any] = self.content["records"]
        return found

    def begin(self, command: str | None) -> None:
        """Record the command, and make sure that new records will be like those there.

        Raises:
            ValueError: if they would be by other versions or on another machine.
        """
        from cclp.training.machine import differences

        changed = differences(self.content["environment"], _environment())
        if changed:
            raise ValueError(
                f"{self.out} was begun elsewhere ({', '.join(changed)}): choose another --out"
            )
        self.content["command"] = command

    def add(self, name: str, record: dict[str, Any]) -> None:
        """Save a piece of work; claims that were judged without it are dropped."""
        self.records[name] = record
        self.content["claims"] = []
        write_json(self.out / RESULTS, self.content)

    def conclude(self, claims: list[Claim]) -> None:
        """Save the claims, judged by the records."""
        self.content["claims"] = [claim._asdict() for claim in claims]
        write_json(self.out / RESULTS, self.content)


@contextmanager
def open_folder(out: Path, experiment: str, settings: dict[str, Any]) -> Iterator[Folder]:
    """A new directory for an experiment, or one of the same experiment; locked by this process.

    Args:
        out: the directory.
        experiment: its name.
        settings: what all its records depend on.

    Raises:
        ValueError: if the directory holds something else, is damaged, or is in use.
    """
    if is_unused(out):
        out.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {
            "experiment": experiment,
            "command": None,
            "settings": settings,
            "environment": _environment(),
            "claims": [],
            "records": {},
        }
        write_json(out / RESULTS, content, new=True)
    elif not is_experiment(out):
        raise ValueError(f"{out} exists and is no experiment: choose another --out")
    with locked(out):
        content = read_results(out)
        if (content["experiment"], content["settings"]) != (experiment, settings):
            raise ValueError(
                f"{out} holds another experiment, or one with other settings: choose another --out"
            )
        yield Folder(out, content)


def _environment() -> dict[str, Any]:
    import torch  # a page needs neither it nor Fabric

    from cclp.training.machine import environment

    return environment(torch.device("cpu"))


def is_experiment(path: Path) -> bool:
    """Whether a directory was made by ``cclp reproduce``."""
    if not (path / RESULTS).is_file():
        return False
    try:
        return isinstance(read_json(path, RESULTS).get("experiment"), str)
    except ValueError:
        return False


def read_results(out: Path) -> dict[str, Any]:
    """The content of results.json.

    Raises:
        ValueError: if it is not there or not what it should be.
    """
    content = read_json(out, RESULTS)
    for name, kind in _KINDS.items():
        if name not in content or not isinstance(content[name], kind):
            raise ValueError(f"{out / RESULTS} is damaged: {name!r} is missing or of another kind")
    rows = [*content["records"].values(), *content["environment"].values(), *content["claims"]]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{out / RESULTS} is damaged: expected objects in it")
    if any(claim.keys() != set(Claim._fields) for claim in content["claims"]):
        raise ValueError(f"{out / RESULTS} is damaged: expected 'said', 'measured' and 'holds'")
    return content


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn whatever records lack into one line that names their file.

    Args:
        path: of the file, or of the experiment's directory.

    Raises:
        ValueError: instead of what is raised within for a record that is not as it should be.
    """
    try:
        yield
    except ValueError:  # it names its file itself
        raise
    except DAMAGE as error:
        file = path / RESULTS if path.is_dir() else path
        raise ValueError(f"{file} is damaged: {error!r}") from error
