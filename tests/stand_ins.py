"""Modules with the interface of timm, torchvision and sentence-transformers.

The former two need not load beside this torch, and the latter makes every process that trains
slower to start. Networks have random weights. What they are called with is what the real libraries
take.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn


class _Network(nn.Module):
    """Two convolutions, pooled, and a linear classifier under the name of timm and torchvision."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, width, 3, 2))
        self.fc: nn.Module = nn.Linear(width, num_classes) if num_classes else nn.Identity()
        self.pretrained_cfg = {"classifier": "fc"}

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == (3, 24, 24)
        logits: Tensor = self.fc(self.body(x).mean((2, 3)))
        return logits


_WIDTHS = {"resnet18": 5, "resnet34": 5, "resnet50": 8}


def make_timm(fetch: Callable[[], None]) -> ModuleType:
    """A timm; ``fetch`` is called when pretrained weights are asked for."""

    def create_model(
        name: str,
        *,
        num_classes: int = 10,
        pretrained: bool = False,
        pretrained_cfg_overlay: dict[str, str] | None = None,
    ) -> nn.Module:
        if pretrained and pretrained_cfg_overlay is None:
            fetch()
        network = _Network(_WIDTHS[name], num_classes)
        if pretrained_cfg_overlay is not None:
            network.load_state_dict(load_file(pretrained_cfg_overlay["file"]), strict=False)
        return network

    def get_pretrained_cfg(name: str) -> SimpleNamespace:
        if name not in _WIDTHS:
            raise RuntimeError(f"Invalid pretrained tag in {name}")
        return SimpleNamespace(hf_hub_id=f"timm/{name}", hf_hub_filename=None, url=None)

    def resolve_model_data_config(network: nn.Module) -> dict[str, Any]:
        assert isinstance(network, _Network)
        return {"input_size": (3, 24, 24), "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.2, 0.2)}

    module = ModuleType("timm")
    module.create_model = create_model  # type: ignore[attr-defined]
    module.list_models = lambda: list(_WIDTHS)  # type: ignore[attr-defined]
    module.get_pretrained_cfg = get_pretrained_cfg  # type: ignore[attr-defined]
    module.data = SimpleNamespace(  # type: ignore[attr-defined]
        resolve_model_data_config=resolve_model_data_config
    )
    return module


def make_torchvision(fetch: Callable[[], None]) -> ModuleType:
    """A torchvision; ``fetch`` is called when pretrained weights are asked for."""

    def get_state_dict(
        *, progress: bool, check_hash: bool, weights_only: bool
    ) -> dict[str, Tensor]:
        assert weights_only
        fetch()
        return _Network(_WIDTHS["resnet18"], 10).state_dict()

    weights = SimpleNamespace(
        url="https://nowhere.invalid/models/resnet18-0.pth",
        get_state_dict=get_state_dict,
        transforms=lambda: SimpleNamespace(crop_size=[24], mean=(0.4, 0.5, 0.6), std=(0.2,) * 3),
    )
    models = SimpleNamespace(
        list_models=lambda module: list(_WIDTHS),
        get_model=lambda name, weights: _Network(_WIDTHS[name], 10),
        get_model_weights=lambda name: SimpleNamespace(DEFAULT=weights),
    )
    module = ModuleType("torchvision")
    module.models = models  # type: ignore[attr-defined]
    return module


def make_sentence_transformers(fetch: Callable[[], None], version: str = "6.0.0") -> ModuleType:
    """A sentence-transformers; ``fetch`` is called when a model of the hub is asked for.

    A folder is a model if it has the file ``modules.json``, which here holds the seed of its
    weights: a vector for each letter.
    """

    class SentenceTransformer:
        def __init__(
            self, name: str, *, trust_remote_code: bool, local_files_only: bool = False
        ) -> None:
            assert not trust_remote_code
            if not Path(name).is_dir():
                if local_files_only:
                    raise OSError("not in the cache")
                fetch()
            seed = int(Path(name, "modules.json").read_text()) if Path(name).is_dir() else 9
            self.letters = np.random.default_rng(seed).normal(size=(128, 12))

        def encode(
            self,
            texts: list[str],
            *,
            show_progress_bar: bool,
            convert_to_numpy: bool,
            normalize_embeddings: bool,
        ) -> NDArray[np.float32]:
            assert isinstance(texts, list)
            assert convert_to_numpy
            assert not show_progress_bar
            z = np.stack([self.letters[[ord(c) % 128 for c in text]].mean(0) for text in texts])
            z /= np.linalg.norm(z, axis=1, keepdims=True) if normalize_embeddings else 1
            return z.astype(np.float32)

    module = ModuleType("sentence_transformers")
    module.__version__ = version  # type: ignore[attr-defined]
    module.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    return module


def make_transformers_logging() -> ModuleType:
    """The part of transformers that shows progress bars."""
    module = ModuleType("transformers.utils.logging")
    shown = [True]
    module.is_progress_bar_enabled = lambda: shown[0]  # type: ignore[attr-defined]
    module.disable_progress_bar = lambda: shown.__setitem__(0, False)  # type: ignore[attr-defined]
    module.enable_progress_bar = lambda: shown.__setitem__(0, True)  # type: ignore[attr-defined]
    return module
