"""Frozen pretrained models of timm, torchvision and sentence-transformers, as functions.

They are optional: ``pip install 'cclp[vision]'`` and ``'cclp[text]'``. No model runs code that its
files hold: weights are safetensors, or loaded as tensors only.
"""

import logging
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple
from urllib.parse import urlparse

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_EXTRAS = {"timm": "vision", "torchvision": "vision", "sentence_transformers": "text"}
_SAFE_SENTENCE_TRANSFORMERS = 6  # older versions import what the files of a local model name
_WRAPPED = ("state_dict", "model")  # where training programs put the weights in their files


class Model(NamedTuple):
    """A frozen model.

    Attributes:
        function: of a batch: images, (N, H, W, C) bytes, or a list of texts.
        image_size: height and width of images that it takes; None: it takes texts.
    """

    function: Callable[[Any], Any]
    image_size: int | None


def open_pretrained(name: str, fetch: bool, image_size: int | None) -> Model:
    """A model by its name, see :mod:`cclp.data.user.features`.

    Args:
        name: with its family.
        fetch: whether weights that are not on this machine may be fetched.
        image_size: of images; None: the model's own.

    Raises:
        ValueError: if its library is not installed, there is no such model, or its weights are not
            to be had.
    """
    family, _, what = name.partition(":")
    library = _import(family)
    if family == "sentence_transformers":
        return _open_texts(library, what, fetch)
    model, _, file = what.partition("@")
    opened = _open_timm if family == "timm" else _open_torchvision
    network, size, mean, std = opened(library, model, Path(file) if file else None, fetch)
    size = image_size or size
    return Model(_of_images(network, size, mean, std), size)


def _import(family: str) -> Any:
    try:
        with _no_noise():
            return import_module(family)
    except Exception as error:  # torchvision raises RuntimeError beside another torch
        install = f"pip install 'cclp[{_EXTRAS[family]}]'"
        if isinstance(error, ModuleNotFoundError) and error.name == family:
            raise ValueError(f"{family} is not installed: {install}") from None
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{family} cannot be loaded ({reason}): {install}, of the versions that belong to "
            f"torch {torch.__version__}"
        ) from None


@contextmanager
def _no_noise() -> Iterator[None]:
    """Keep what libraries say to their developers from the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Keep the progress bars of transformers from the terminal, where ours is."""
    bars = import_module("transformers.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


Opened = tuple[nn.Module, int, Sequence[float], Sequence[float]]


def _open_timm(timm: Any, model: str, file: Path | None, fetch: bool) -> Opened:
    """A network without its classifier, and its size, mean and standard deviation of pixels."""
    name = f"timm:{model}"
    _check_model("timm", model.partition(".")[0], timm.list_models())
    options: dict[str, Any] = {"pretrained": file is None}
    if file is None and not fetch:
        cached = _cached_timm(timm, model)
        if cached is None:
            raise _not_here(name)
        options["pretrained_cfg_overlay"] = {"file": str(cached)}
    with _fetching(name), _no_noise():
        network: nn.Module = timm.create_model(model, num_classes=0, **options)
    if file is not None:
        heads = network.pretrained_cfg.get("classifier") or ()  # type: ignore[operator, union-attr]
        heads = (heads,) if isinstance(heads, str) else tuple(heads)
        _load_weights(network, _read_weights(file), f"{name}@{file}", heads)
    config = timm.data.resolve_model_data_config(network)
    return network, int(config["input_size"][1]), config["mean"], config["std"]


def _cached_timm(timm: Any, model: str) -> Path | None:
    """The file of a model's weights that was fetched before."""
    from huggingface_hub import try_to_load_from_cache

    try:
        config = timm.get_pretrained_cfg(model)
    except RuntimeError:  # there are no weights of this name
        return None
    names = [config.hf_hub_filename] if config.hf_hub_filename else []
    for name in [*names, "model.safetensors", "pytorch_model.bin"]:
        found = try_to_load_from_cache(config.hf_hub_id, name) if config.hf_hub_id else None
        if isinstance(found, str):
            return Path(found)
    return _fetched_by_torch(config.url) if config.url else None


def _open_torchvision(torchvision: Any, model: str, file: Path | None, fetch: bool) -> Opened:
    models = torchvision.models
    name = f"torchvision:{model}"
    _check_model("torchvision", model, models.list_models(module=models))
    weights = models.get_model_weights(model).DEFAULT
    if file is None and not fetch and _fetched_by_torch(weights.url) is None:
        raise _not_here(name)
    # These two were trained on pixels of another scale, and change them inside.
    scaled = {"transform_input": True, "init_weights": False}
    options = scaled if model in ("googlenet", "inception_v3") else {}
    with _no_noise():
        network = models.get_model(model, weights=None, **options)
    linear = [path for path, part in network.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise ValueError(f"{name} has no linear classifier to leave out: choose another network")
    parent, _, last = linear[-1].rpartition(".")
    setattr(network.get_submodule(parent), last, nn.Identity())
    if file is None:
        with _fetching(name), _no_noise():
            state = weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    else:
        state = _read_weights(file)
    _load_weights(network, state, f"{name}@{file}" if file else name, (linear[-1],))
    pixels = weights.transforms()
    return network, int(pixels.crop_size[0]), pixels.mean, pixels.std


def _check_model(family: str, model: str, known: Collection[str]) -> None:
    if model not in known:
        near = get_close_matches(model, known, 4) or sorted(known)[:4]
        raise ValueError(f"{family} has no network {model!r}; near names: {', '.join(near)}")


def _fetched_by_torch(url: str) -> Path | None:
    file = Path(torch.hub.get_dir(), "checkpoints", Path(urlparse(url).path).name)
    return file if file.is_file() else None


def _not_here(name: str) -> ValueError:
    return ValueError(
        f"the weights of {name} are not on this machine, and are fetched only if you name it: add "
        f"--features {name}"
    )


@contextmanager
def _fetching(name: str, local: str | None = None) -> Iterator[None]:
    """Turn all that a fetch may raise into one line."""
    try:
        yield
    except Exception as error:  # libraries of the network raise many kinds
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(
            f"the weights of {name} cannot be fetched ({reason}): {local or f'{name}@FILE'} takes "
            "a local one"
        ) from None


def _read_weights(file: Path) -> dict[str, Tensor]:
    """A state dict, without running what a pickle may hold.

    Raises:
        ValueError: if it is none.
    """
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        found = torch.load(file, map_location="cpu", weights_only=True)
        found = next((found[key] for key in _WRAPPED if isinstance(found.get(key), dict)), found)
        return {str(key).removeprefix("module."): tensor for key, tensor in found.items()}
    except Exception as error:  # decoders raise many kinds
        objects = isinstance(error, UnpicklingError) and "Weights only" in str(error)
        reason = "it holds Python objects, which are never loaded" if objects else str(error)[:200]
        raise ValueError(
            f"{file} must be weights, .safetensors or a state dict of torch: {reason}"
        ) from None


def _load_weights(
    network: nn.Module, state: Mapping[str, Tensor], name: str, heads: Sequence[str]
) -> None:
    """Put weights into a network; those of its classifier, which is gone, are left out."""
    state = {
        key: tensor
        for key, tensor in state.items()
        if not any(key.startswith(f"{head}.") for head in heads)
    }
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"features {name}: the weights are of another network: {reason}") from None


def _of_images(
    network: nn.Module, size: int, mean: Sequence[float], std: Sequence[float]
) -> Callable[[NDArray[np.uint8]], NDArray[np.float32]]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = network.eval().requires_grad_(False).to(device)
    center, scale = (torch.tensor(v, device=device).view(3, 1, 1) for v in (mean, std))

    @torch.inference_mode()
    def features(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        x = torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float() / 255
        if x.shape[1] not in (1, 3):
            raise ValueError(f"images must have 1 or 3 channels, got {x.shape[1]}")
        x = x.expand(-1, 3, -1, -1)
        if x.shape[2:] != (size, size):
            x = nn.functional.interpolate(x, (size, size), mode="bilinear", antialias=True)
        found: Tensor = network((x - center) / scale)
        return found.float().cpu().numpy()

    return features


def _open_texts(library: Any, model: str, fetch: bool) -> Model:
    version = int(library.__version__.partition(".")[0])
    if version < _SAFE_SENTENCE_TRANSFORMERS:
        raise ValueError(
            f"sentence-transformers must be {_SAFE_SENTENCE_TRANSFORMERS} or newer, which runs no "
            f"code of a model's files, got {library.__version__}: pip install -U 'cclp[text]'"
        )
    name = f"sentence_transformers:{model}"
    options = {"local_files_only": True, "trust_remote_code": False}
    with _no_noise(), _no_bars():
        try:
            network = library.SentenceTransformer(model, **options)
        except Exception as error:  # libraries raise many kinds
            if os.path.isdir(model):
                reason = " ".join(str(error).split())[:200]
                raise ValueError(f"{name} cannot be loaded: {reason}") from None
            if not fetch:
                raise _not_here(name) from None
            with _fetching(name, "sentence_transformers:FOLDER"):
                network = library.SentenceTransformer(model, trust_remote_code=False)

    def features(texts: Sequence[str]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = network.encode(
            list(texts),
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )
        return found

    return Model(features, None)
