"""A user's own code, named as ``module:name`` or ``path/file.py:name``.

Importing code runs it. So only code that this command line or the calling program names is
imported, never code that a file names.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def is_user_code(name: str) -> bool:
    """Whether a name stands for a user's own code."""
    return ":" in name


def load_object(what: str, spec: str) -> Any:
    """Import a function or class.

    Args:
        what: its purpose, for messages: "net" or "method".
        spec: ``my_file:make_net``, where my_file.py is in the current folder or my_file is an
            installed module, or ``some/where.py:make_net``.

    Raises:
        ValueError: if it cannot be imported.
    """
    module, _, name = spec.partition(":")
    if not module or not name.isidentifier():
        raise ValueError(f"{what} must be 'my_file:name', got {spec!r}")
    try:
        loaded = _load_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"{what} {spec!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(getattr(loaded, name, None)):
        where = getattr(loaded, "__file__", None) or module
        raise ValueError(f"{what} {spec!r}: {where} has no function or class {name}")
    return getattr(loaded, name)


@contextmanager
def running(what: str, spec: str) -> Iterator[None]:
    """While a user's code runs: turn what it raises into a ValueError that names it."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{what} {spec!r} failed: {type(error).__name__}: {error}") from error


def _load_module(module: str) -> Any:
    path = Path(module if module.endswith(".py") else f"{module}.py")
    if not path.is_file():
        return import_module(module)
    spec = spec_from_file_location(path.stem, path.absolute())
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    sys.modules.setdefault(path.stem, loaded)  # where dataclasses and the like look it up
    spec.loader.exec_module(loaded)
    return loaded


def confirm_named(what: str, recorded: str, given: str | None) -> str:
    """The user's own code that a recorded run needs, as it is named on this command line.

    Importing runs code, and a run directory may come from anyone: what it names is not enough.

    Args:
        what: "net" or "method".
        recorded: what the run says.
        given: what the user says.

    Raises:
        ValueError: if the run needs code that was not named, or none and some was.
    """
    if is_user_code(recorded) and given is None:
        raise ValueError(
            f"this run needs code of your own, {what} {recorded!r}, which is imported only if you "
            f"name it again: add --{what} {recorded}"
        )
    if given is not None and not (is_user_code(recorded) and is_user_code(given)):
        raise ValueError(f"--{what} {given} has no effect: this run has {what} {recorded!r}")
    return given or recorded
