"""Options that several commands have, and the kinds of values they take."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from cclp.training.recipe import Setting


class Weight(click.ParamType):  # type: ignore[type-arg]
    """A weight, or the weight of a method."""

    name = "W|METHOD=W"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        name, _, weight = str(value).rpartition("=")
        try:
            return name, float(weight)
        except ValueError:
            self.fail(f"must be a number or METHOD=number, got {value!r}", param, ctx)


class ClassValues(click.ParamType):  # type: ignore[type-arg]
    """A number for each class, by name; or a word."""

    def __init__(self, *words: str, number: str) -> None:
        self.words = words
        self.name = "|".join([*words, f"CLASS={number},…"])

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | dict[str, float]:
        if value in self.words:
            return str(value)
        found: dict[str, float] = {}
        for pair in str(value).split(","):
            name, _, number = pair.rpartition("=")
            try:
                if not name or name in found:
                    raise ValueError
                found[name] = float(number)
            except ValueError:
                self.fail(
                    f"must be {self.name}, every class once, got {pair!r}",
                    param,
                    ctx,
                )
        return found


class MethodSetting(click.ParamType):  # type: ignore[type-arg]
    """A setting of a method, by name."""

    name = "METHOD.NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str, Setting]:
        left, _, text = str(value).partition("=")
        method, _, name = left.rpartition(".")
        if not (method and name and text):
            self.fail(f"must be METHOD.NAME=VALUE, as in vat.radius=0.3, got {value!r}", param, ctx)
        if text.lower() in ("true", "false"):
            return method, name, text.lower() == "true"
        for kind in (int, float):
            with suppress(ValueError):
                return method, name, kind(text)
        return method, name, text


class RecipeName(click.Choice):  # type: ignore[type-arg]
    """The name of a recipe."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "digits":
            self.fail("recipe digits is now short", param, ctx)
        return str(super().convert(value, param, ctx))


class LabelCount(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on
    """A number of labels, or all of them."""

    name = "N|all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        if value == "all":
            return "all"
        try:
            return int(value)
        except ValueError:
            self.fail(f"must be a number or 'all', got {value!r}", param, ctx)


def choice_option(
    flag: str, choices: tuple[str, ...], default: str, text: str
) -> Callable[..., Any]:
    """One of several words."""
    return click.option(flag, type=click.Choice(choices), default=default, help=text)


def path_option(flag: str, text: str, metavar: str = "PATH") -> Callable[..., Any]:
    """A file or folder."""
    return click.option(flag, type=click.Path(path_type=Path), metavar=metavar, help=text)


num_labels_option = click.option(
    "--num-labels",
    type=LabelCount(),
    help="Labeled samples, in equal shares of the classes.  [default: 100; of your own data all]",
)
max_steps_option = click.option(
    "--max-steps", type=int, help="Training steps.  [default: the recipe's]"
)
run_argument = click.argument("run", type=click.Path(path_type=Path))
data_dir_option = path_option(
    "--data-dir",
    "Folder of published data: looked at first, and fetched into.  [default: CCLP_DATA, else the "
    "user's cache]",
)
no_verify_option = click.option(
    "--no-verify",
    is_flag=True,
    help="Accept files of published data that are not the published ones; recorded.",
)
target_option = click.option("--target", metavar="COLUMN", help="Column of classes in a table.")
drop_option = click.option(
    "--drop",
    metavar="COLUMN",
    multiple=True,
    help="Leave this column of a table out; may be given several times.",
)
keep_option = click.option(
    "--keep",
    metavar="COLUMN",
    multiple=True,
    help="Use this column of a table, though it looks like an identifier; several times too.",
)
skip_bad_option = click.option(
    "--skip-bad", is_flag=True, help="Leave out images that cannot be read."
)
image_size_option = click.option(
    "--image-size",
    type=int,
    help="Side that images of a folder get.  [default: 32; with --features the model's, else 224]",
)
setting_option = click.option(
    "--setting",
    "settings",
    type=MethodSetting(),
    multiple=True,
    help="Another setting of a method, as in vat.radius=0.3.  [default: the method's]",
)
net_option = click.option(
    "--net",
    metavar="MY_FILE:FUNCTION",
    help="A network of your own: function(shape, num_classes) gives a module with 'features' and "
    "'classifier'.",
)
features_option = click.option(
    "--features",
    metavar="NAME",
    help="Turn images or texts of your own into vectors first, by a frozen pretrained model: "
    "timm:resnet18 or torchvision:resnet18 for images (resnet18@FILE: weights from a file), "
    "sentence_transformers:all-MiniLM-L6-v2 for columns of text; or by MY_FILE:FUNCTION of your "
    "own: a batch of images (N, H, W, C) or a list of texts becomes an array (N, D). A run "
    "remembers it; only code of your own has to be named again.",
)
quiet_option = click.option("--quiet", is_flag=True, help="Warnings and the result only.")
