"""Methods by name. Importing this is cheap; torch comes with the first method made."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cclp.user_code import is_user_code, load_object, running

if TYPE_CHECKING:
    from cclp.methods.base import Method

METHODS = {
    "supervised": "cclp.methods.supervised:Supervised",
    "cclp": "cclp.methods.cclp:CCLP",
    "graph_pseudo_label": "cclp.methods.graph_pseudo_label:GraphPseudoLabel",
    "lba": "cclp.methods.lba:LBA",
    "entropy": "cclp.methods.entropy:Entropy",
    "pseudo_label": "cclp.methods.pseudo_label:PseudoLabel",
    "pi_model": "cclp.methods.pi_model:PiModel",
    "mean_teacher": "cclp.methods.mean_teacher:MeanTeacher",
    "vat": "cclp.methods.vat:VAT",
    "fixmatch": "cclp.methods.fixmatch:FixMatch",
    "improved_gan": "cclp.methods.improved_gan:ImprovedGAN",
    "ladder": "cclp.methods.ladder:Ladder",
    "ladder_gamma": "cclp.methods.ladder_gamma:LadderGamma",
    "temporal_ensembling": "cclp.methods.temporal_ensembling:TemporalEnsembling",
    "laplacian": "cclp.methods.laplacian:Laplacian",
    "m2": "cclp.methods.m2:M2",
    "m1_m2": "cclp.methods.m1_m2:M1M2",
    "sdgm": "cclp.methods.auxiliary:SDGM",
    "adgm": "cclp.methods.auxiliary:ADGM",
    "mmcvae": "cclp.methods.mmcvae:MMCVAE",
    "catgan": "cclp.methods.catgan:CatGAN",
    "triple_gan": "cclp.methods.triple_gan:TripleGAN",
    "bad_gan": "cclp.methods.bad_gan:BadGAN",
    "ali": "cclp.methods.ali:ALI",
}

GENERATIVE = (  # have parameters that steps without unlabeled samples do not use
    "improved_gan", "bad_gan", "catgan", "triple_gan", "ali", "ladder", "ladder_gamma", "m2",
    "m1_m2", "sdgm", "adgm", "mmcvae",
)  # fmt: skip
NETS: dict[str, str] = {  # of methods that need a network of their own, by name in nets.registry
    "ladder": "ladder",
    "ladder_gamma": "ladder_gamma",
    "m1_m2": "latent",
    "sdgm": "auxiliary",
    "adgm": "auxiliary",
    "ali": "ali",
}


def method_parts(name: str) -> list[str]:
    """The methods that a name such as "cclp+vat" is made of, without "supervised".

    Args:
        name: names of :data:`METHODS`, or classes of the user's own as "my_file:MyMethod", with "+"
            between them.

    Raises:
        ValueError: for an unknown name, or one that is there twice.
    """
    parts = name.split("+")
    for part in parts:
        if part not in METHODS and not is_user_code(part):
            raise ValueError(
                f"method must be one of {', '.join(METHODS)}, or 'my_file:MyMethod', or several "
                f"with + between them, got {name!r}"
            )
        if parts.count(part) > 1:
            raise ValueError(f"method {name!r} has {part} twice")
    return [part for part in parts if part != "supervised"]


def required_net(name: str) -> str | None:
    """The network that a method needs, if it cannot take any.

    Args:
        name: see :func:`method_parts`.

    Raises:
        ValueError: if its parts need different ones.
    """
    needed = {NETS[part]: part for part in method_parts(name) if part in NETS}
    if len(needed) > 1:
        raise ValueError(
            f"method {name!r} cannot be: {' and '.join(needed.values())} have networks of their own"
        )
    return next(iter(needed), None)


def check_methods(names: Sequence[str]) -> None:
    """Make sure that there are such methods, each of them once.

    Raises:
        ValueError: if not.
    """
    for name in names:
        method_parts(name)
    if len(set(names)) != len(names):
        raise ValueError(f"methods must be different, got {', '.join(names)}")


def file_name(name: str) -> str:
    """A method's name as part of a file's: a user's own may hold a path."""
    return name.replace(":", "-").replace("/", "-")


def method_class(name: str) -> Any:
    """The class of a name in :data:`METHODS`."""
    module, attribute = METHODS[name].split(":")
    return getattr(import_module(module), attribute)


def check_settings(name: str, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Make sure that methods of :data:`METHODS` take their settings; the user's own are not made.

    Args:
        name: see :func:`method_parts`.
        settings: keyword arguments of each method, by its name.

    Raises:
        ValueError: if not.
    """
    own = [part for part in method_parts(name) if part in METHODS]
    make_methods("+".join(own) or "supervised", 2, settings)


def make_methods(
    name: str, num_classes: int, settings: Mapping[str, Mapping[str, Any]]
) -> list["Method"]:
    """The supervised term, and those of the named methods. Code of the user's own is imported.

    Args:
        name: see :func:`method_parts`.
        num_classes: C.
        settings: keyword arguments of each method, by its name.

    Raises:
        ValueError: for settings that a method does not take, and whatever the user's own code does.
    """
    from cclp.methods.base import Method

    made = []
    for part in ["supervised", *method_parts(name)]:
        if part in METHODS:
            try:
                made.append(method_class(part)(num_classes, **settings.get(part, {})))
            except (TypeError, ValueError) as error:
                raise ValueError(f"settings of {part}: {error}") from None
            continue
        method = load_object("method", part)
        with running("method", part):
            made.append(method(num_classes, **settings.get(part, {})))
        if not isinstance(made[-1], Method):
            raise ValueError(
                f"method {part!r} must be a subclass of cclp.methods.base.Method, got "
                f"{type(made[-1]).__name__}"
            )
    return made
