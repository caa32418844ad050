"""What every network is: ``features(x) -> z`` and ``classifier(z)``, and the layers they share.

The graph of CCLP is built over z, so nothing random stands directly before it: dropout there would
make the graph too sparse.
"""

from collections.abc import Callable, Iterable
from typing import Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cclp.draws import Dropout, randn_like

Init = Literal["he", "glorot"]
Shape = tuple[int, ...]


class Net(nn.Module):
    """A feature extractor and a linear classifier with dropout before it.

    Args:
        features: module from inputs to embeddings z, (N, embedding_size).
        embedding_size: F.
        num_classes: C.
        dropout: between z and the classifier.
        init: of convolutions and linear layers in ``features``: He or Glorot, uniform.
    """

    def __init__(
        self,
        features: nn.Module,
        embedding_size: int,
        num_classes: int,
        *,
        dropout: float = 0.5,
        init: Init = "he",
    ) -> None:
        super().__init__()
        self.embedding_size = embedding_size
        self.features = features
        linear = nn.Linear(embedding_size, num_classes)
        self.classifier = nn.Sequential(Dropout(dropout), linear)
        for module in features.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                if init == "he":
                    nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
                else:
                    nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (N, C)."""
        logits: Tensor = self.classifier(self.features(x))
        return logits


def batch_norms(net: nn.Module) -> list[_BatchNorm]:
    """Its layers with running statistics."""
    return [m for m in net.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]


class Crop(nn.Module):
    """Takes ``margin`` pixels away at every border of images."""

    def __init__(self, margin: int) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, x: Tensor) -> Tensor:
        """``x`` of (N, C, H, W) without them."""
        height, width = x.shape[2:]
        return x[:, :, self.margin : height - self.margin, self.margin : width - self.margin]

    def extra_repr(self) -> str:
        return f"margin={self.margin}"


class GaussianNoise(nn.Module):
    """Adds N(0, std²) while training."""

    def __init__(self, std: float) -> None:
        super().__init__()
        self.std = std

    def forward(self, x: Tensor) -> Tensor:
        """``x`` with noise, of the same shape."""
        return x + self.std * randn_like(x) if self.training else x

    def extra_repr(self) -> str:
        return f"std={self.std:g}"


def convolutions(
    inputs: int,
    *outputs: int,
    activation: Callable[..., nn.Module] = nn.ELU,
    kernel: int = 3,
    padding: int = 1,
) -> Iterable[nn.Module]:
    """Convolutions, 3 x 3 unless said, each followed by batch norm and an activation."""
    for size in outputs:
        yield nn.Conv2d(inputs, size, kernel, padding=padding, bias=False)
        yield nn.BatchNorm2d(size, eps=1e-3, momentum=0.01)  # a decay of 0.99
        yield activation(inplace=True)  # batch norm does not need its own output
        inputs = size


def global_pool() -> Iterable[nn.Module]:
    """The mean of each channel."""
    yield nn.AdaptiveAvgPool2d(1)
    yield nn.Flatten()


def image_shape(net: str, shape: Shape, least: int = 4) -> tuple[int, int, int]:
    """Channels, height and width of a sample.

    Raises:
        ValueError: if samples are not images, or smaller than ``least`` pixels a side.
    """
    if len(shape) != 3:
        raise ValueError(f"net {net!r} is for images, got samples of shape {shape}")
    channels, height, width = shape
    if min(height, width) < least:
        raise ValueError(
            f"net {net!r} is for images of {least} x {least} pixels or more, got {height} x {width}"
        )
    return channels, height, width
