"""Methods by name. Importing this is cheap; torch comes with the first method made."""

from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cclp.user_code import is_user_code, load_object, running

if TYPE_CHECKING:
    from cclp.methods.base import Method

METHODS = {
    "supervised": "cclp.methods.supervised:Supervised",
    "cclp": "cclp.methods.cclp:CCLP",
}


def check_method(name: str) -> str:
    """A name of :data:`METHODS`, or of a class of the user's own."""
    if name not in METHODS and not is_user_code(name):
        raise ValueError(
            f"method must be one of {', '.join(METHODS)}, or 'my_file:MyMethod', got {name!r}"
        )
    return name


def make_methods(
    name: str, num_classes: int, settings: Mapping[str, Mapping[str, Any]]
) -> list["Method"]:
    """The supervised term, and the named method's if that is another.

    Args:
        name: of :data:`METHODS`, or a user's own subclass of Method as "my_file:MyMethod", which is
            imported.
        num_classes: C.
        settings: keyword arguments of each method, by its name.
    """
    from cclp.methods.base import Method

    made = []
    for part in dict.fromkeys(["supervised", check_method(name)]):
        if part in METHODS:
            module, attribute = METHODS[part].split(":")
            method = getattr(import_module(module), attribute)
        else:
            method = load_object("method", part)
        with running("method", part) if part not in METHODS else nullcontext():
            made.append(method(num_classes, **settings.get(part, {})))
        if not isinstance(made[-1], Method):
            raise ValueError(
                f"method {part!r} must be a subclass of cclp.methods.base.Method, got "
                f"{type(made[-1]).__name__}"
            )
    return made
