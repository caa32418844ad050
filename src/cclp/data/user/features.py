"""Features: samples of a user as vectors, by a frozen pretrained model or a function of their own.

A name says by what:

====================================== ==========================================================
``timm:NAME``, ``torchvision:NAME``    a network for images; ``NAME@FILE`` has its weights in a
                                       file, ``.safetensors`` or a state dict of torch
``sentence_transformers:NAME``         a model for texts: of the hub, or a folder
``my_file:function``                   the user's own, see :mod:`cclp.user_code`: a batch of
                                       images (N, H, W, C), of vectors (N, D), or a list of
                                       texts becomes an array (N, D)
====================================== ==========================================================
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cclp.data.dataset import FeatureSpec, InputSpec
from cclp.progress import Reporter
from cclp.user_code import load_object, running

FAMILIES = ("timm", "torchvision", "sentence_transformers")
IMAGE_SIZE = 224  # that a function of the user's own gets, unless they say another
_BATCH = 64
_PROBED = 16  # features of each of the two samples
_TEXTS = ("The quick brown fox jumps over the lazy dog.", "Delivery was late, but all is well!")

Features = NDArray[np.float32]
Takes = Literal["images", "texts"]


@dataclass(frozen=True)
class Extractor:
    """Makes vectors of samples.

    Attributes:
        name: that the user gave, with absolute paths.
        function: of a batch of samples, channels last; gives an array (N, D).
        takes: what samples it is for; None: all.
        image_size: height and width that images are read in.
        channels: that images are read with; None: as they have.
        version: of the function, so that cached features of another are not used.
    """

    name: str
    function: Callable[[Any], Any]
    takes: Takes | None = None
    image_size: int = IMAGE_SIZE
    channels: int | None = None
    version: str = ""

    def __call__(
        self, samples: Any, advance: Callable[[int], None] = lambda done: None
    ) -> Features:
        """Features of samples, (N, D).

        Args:
            samples: images (N, channels, height, width), vectors (N, D), or a list of texts.
            advance: called with the number of samples of each batch that is done.

        Raises:
            ValueError: if the function fails, or gives something else.
        """
        found: list[Features] = []
        for start in range(0, len(samples), _BATCH):
            batch = samples[start : start + _BATCH]
            if isinstance(batch, np.ndarray) and batch.ndim == 4:
                batch = np.ascontiguousarray(batch.transpose(0, 2, 3, 1))
            with running("features", self.name):
                made = self.function(batch)
                made = np.asarray(made.detach().cpu() if hasattr(made, "detach") else made)
            found.append(self._checked(made, len(batch)))
            if found[-1].shape[1] != found[0].shape[1]:
                widths = f"{found[0].shape[1]} and {found[-1].shape[1]}"
                raise ValueError(f"features {self.name!r} must be of one width, got {widths}")
            advance(len(batch))
        return np.concatenate(found)

    def _checked(self, made: NDArray[Any], count: int) -> Features:
        fits = made.ndim == 2 and len(made) == count and made.shape[1] > 0
        if not fits or made.dtype.kind not in "fiu":
            raise ValueError(
                f"features {self.name!r} must give an array of numbers of shape ({count}, D) for "
                f"{count} samples, got {made.dtype} of shape {made.shape}"
            )
        with np.errstate(over="ignore"):
            real = np.ascontiguousarray(made, np.float32)
        if not np.isfinite(real).all():
            raise ValueError(f"features {self.name!r} must be finite in float32, but are not")
        return real

    def fit(self, shape: tuple[int, ...] | None, white: int | None) -> FeatureSpec:
        """Try it on two made-up samples: images or vectors of a shape, or texts if it is None.

        Raises:
            ValueError: if it is not for such samples, or fails on them.
        """
        if self.takes == "texts" and shape is not None:
            raise ValueError(f"features {self.name!r} are for columns of text in a table")
        if self.takes == "images" and (shape is None or len(shape) != 3 or white is None):
            raise ValueError(
                f"features {self.name!r} are for images in whole numbers from 0 to 255, not for "
                f"{'tables' if shape is None else f'samples of shape {shape}'}"
            )
        made = self(_probe(shape, white))
        few = made[:, :_PROBED].ravel().tolist()
        probe = tuple(float(f"{value:.3e}") for value in few)
        return FeatureSpec(self.name, made.shape[1], probe, shape, white)

    def check_same(self, recorded: FeatureSpec) -> None:
        """Make sure that it is what a run was trained with.

        Raises:
            ValueError: if it gives other features.
        """
        found = self.fit(recorded.shape, recorded.white)
        mine, theirs = np.array(found.probe), np.array(recorded.probe)
        if found.width != recorded.width:
            how = f"it gives {found.width} features and not {recorded.width}"
        elif mine.shape != theirs.shape or not np.allclose(
            mine, theirs, rtol=0.01, atol=0.01 * np.abs(theirs).max()
        ):
            how = "it gives other features of the same samples"
        else:
            return
        raise ValueError(
            f"features {self.name!r} are not what the run was trained with, {recorded.name!r}: "
            f"{how}"
        )

    def key(self, spec: FeatureSpec, content: bytes) -> str:
        """By which features of this content are found again."""
        what = f"{spec}\0{self.version}\0".encode()
        return hashlib.sha256(what + content).hexdigest()[:32]


def _probe(shape: tuple[int, ...] | None, white: int | None) -> NDArray[Any] | list[str]:
    """Two made-up samples, the same ones everywhere."""
    if shape is None:
        return list(_TEXTS)
    steps = np.arange(2 * prod(shape)).reshape(2, *shape)
    if white is not None:
        return (steps * 37 % (white + 1)).astype(np.uint8)
    return np.sin(steps).astype(np.float32)


def is_own_function(name: str) -> bool:
    """Whether features are by the user's own code, which importing runs."""
    return name.partition(":")[0] not in FAMILIES


def check_name(name: str) -> None:
    """Refuse what cannot be the name of features.

    Raises:
        ValueError: for it.
    """
    family, _, what = name.partition(":")
    if not (family and what):
        some = ", ".join(f"{family}:NAME" for family in FAMILIES)
        raise ValueError(f"features must be {some} or MY_FILE:FUNCTION, got {name!r}")


def absolute_name(name: str) -> str:
    """The name with absolute paths of the files in it."""
    check_name(name)
    family, _, what = name.partition(":")
    model, at, file = what.partition("@")
    if family in ("timm", "torchvision") and at:
        return f"{family}:{model}@{Path(file).resolve()}"
    if family == "sentence_transformers" and Path(what).is_dir():
        return f"{family}:{Path(what).resolve()}"
    return name


def short_name(name: str) -> str:
    """The name for people: of paths, the last part."""
    head, at, path = name.partition("@")
    if at:
        return f"{head}@{Path(path).name}"
    family, _, what = name.partition(":")
    return f"{family}:{Path(what).name}" if Path(what).is_absolute() else name


def open_extractor(name: str, *, fetch: bool, image_size: int | None = None) -> Extractor:
    """What makes features.

    Args:
        name: as above.
        fetch: whether weights that are not on this machine may be fetched.
        image_size: of images; None: the model's own.

    Raises:
        ValueError: if it cannot be had.
    """
    name = absolute_name(name)
    if not is_own_function(name):
        from cclp.data.user.pretrained import open_pretrained  # loads torch

        model = open_pretrained(name, fetch, image_size)
        if model.image_size is None:
            return Extractor(name, model.function, "texts")
        return Extractor(name, model.function, "images", model.image_size, channels=3)
    function = load_object("features", name)
    code = getattr(function, "__code__", None)
    file = Path(code.co_filename) if code else None
    version = hashlib.sha256(file.read_bytes()).hexdigest() if file and file.is_file() else ""
    return Extractor(name, function, image_size=image_size or IMAGE_SIZE, version=version)


def confirm_features(recorded: FeatureSpec | None, given: str | None) -> str | None:
    """The features of a recorded run, as they are named on this command line or in the record.

    Importing runs code, and a run directory may come from anyone: the user's own code has to be
    named again.

    Raises:
        ValueError: if it was not, or if features were named that the run cannot have.
    """
    if recorded is None:
        if given is not None:
            raise ValueError(f"--features {given} has no effect: this run was trained without")
        return None
    if given is None:
        if is_own_function(recorded.name):
            raise ValueError(
                f"this run needs code of your own, features {recorded.name!r}, which is imported "
                f"only if you name it again: add --features {recorded.name}"
            )
        return recorded.name
    check_name(given)
    if is_own_function(given) != is_own_function(recorded.name):
        raise ValueError(f"--features {given}: this run was trained with {recorded.name!r}")
    return given


def extractor_for(
    features: str | None,
    spec: InputSpec | None,
    image_size: int | None = None,
    report: Reporter | None = None,
) -> Extractor | None:
    """What makes features of data, if anything does.

    Args:
        features: that the user names now.
        spec: of a run, that the data are brought to. Only what the user names now is fetched.
        image_size: of images, if there is no run.
        report: shows that a model is loaded.

    Raises:
        ValueError: if it cannot be had, or is not what the run was trained with.
    """
    recorded = None if spec is None else spec.features
    name = features if spec is None else confirm_features(recorded, features)
    if name is None:
        return None
    if recorded is not None:
        shape = recorded.shape
        image_size = shape[1] if shape is not None and len(shape) == 3 else None
    with (report or Reporter()).work(f"Loading {short_name(name)}", None):
        extractor = open_extractor(name, fetch=features is not None, image_size=image_size)
        if recorded is not None:
            extractor.check_same(recorded)
    return extractor
