"""Methods by name. Importing this is cheap; torch comes with the first method made."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cclp.methods.base import Method

METHODS = {
    "supervised": "cclp.methods.supervised:Supervised",
    "cclp": "cclp.methods.cclp:CCLP",
}


def check_method(name: str) -> str:
    """A name of :data:`METHODS`."""
    if name not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {name!r}")
    return name


def make_methods(
    name: str, num_classes: int, settings: Mapping[str, Mapping[str, Any]]
) -> list["Method"]:
    """The supervised term, and the named method's if that is another.

    Args:
        name: of :data:`METHODS`.
        num_classes: C.
        settings: keyword arguments of each method, by its name.
    """
    made = []
    for part in dict.fromkeys(["supervised", check_method(name)]):
        module, attribute = METHODS[part].split(":")
        method = getattr(import_module(module), attribute)
        made.append(method(num_classes, **settings.get(part, {})))
    return made
