"""The networks: layers as the released configurations list them, and the registry of names."""

from pathlib import Path

import pytest
import torch
from torch import nn

import cclp.nets
from cclp.draws import Dropout
from cclp.methods import NETS as OF_METHODS
from cclp.nets import GaussianNoise, Net, cifar_net, mlp, mnist_net, small_net, svhn_net
from cclp.nets.large import WeightNormalized
from cclp.nets.registry import NETS, call_net, check_net, make_net
from tests import children

# Convolutions' output channels, image size, channels of the image, size of Z.
PAPER = [
    (mnist_net, [32, 32, 64, 64, 128, 128], (1, 28, 28), 128, 0.3),
    (svhn_net, [64] * 3 + [128] * 6, (3, 32, 32), 128, 0.05),
    (cifar_net, [96] * 3 + [192] * 6, (3, 32, 32), 192, 0.03),
]


@pytest.mark.parametrize(("make", "channels", "image", "size", "noise"), PAPER)
def test_layers(
    make: type, channels: list[int], image: tuple[int, ...], size: int, noise: float
) -> None:
    net: Net = make()
    convs = [m for m in net.features.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in net.features.modules() if isinstance(m, nn.BatchNorm2d)]
    assert [c.out_channels for c in convs] == channels
    assert all(c.kernel_size == (3, 3) and c.padding == (1, 1) for c in convs)
    assert len(norms) == len(convs) == sum(isinstance(m, nn.ELU) for m in net.features.modules())
    assert all(n.eps == 1e-3 and n.momentum == pytest.approx(0.01) for n in norms)
    assert isinstance(net.features[0], GaussianNoise)  # type: ignore[index]
    assert net.features[0].std == noise  # type: ignore[index]
    # Nothing random stands directly before Z.
    assert isinstance(net.features[-1], nn.Flatten)  # type: ignore[index]
    assert isinstance(net.features[-3], nn.ELU)  # type: ignore[index]
    assert isinstance(net.classifier[0], nn.Dropout)
    assert net.classifier[0].p == 0.5
    z = net.features(torch.randn(4, *image))
    assert z.shape == (4, size)
    assert net.classifier(z).shape == (4, 10)


def test_the_small_net_does_not_look_at_the_margin() -> None:
    torch.manual_seed(0)
    net = small_net(in_channels=1, width=4, margin=2, dropout=0.0).eval()
    x = torch.randn(3, 1, 12, 14)
    other = x.clone()
    other[:, :, :2] = other[:, :, -2:] = other[:, :, :, :2] = other[:, :, :, -2:] = 7
    assert net.features(x).shape == (3, 16)
    torch.testing.assert_close(net(other), net(x))
    x[:, :, 2, 2] += 1
    assert not torch.equal(net(x), net(other))
    assert torch.equal(net.train()(x), net(x))  # nothing random in it


def test_poolings_of_the_small_net_bring_two_layers_each() -> None:
    layers = [24, 48, 48, 96, 96]
    for poolings, more in ((2, 0), (3, 2), (4, 4)):
        net = small_net(poolings=poolings).features
        assert net(torch.zeros(2, 3, 2**poolings, 32)).shape == (2, 96)
        convs = [m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d)]
        assert convs == layers + more * [96]
        assert sum(isinstance(m, nn.MaxPool2d) for m in net.modules()) == poolings


@pytest.mark.parametrize("wrong", [{"width": 0}, {"margin": -1}, {"poolings": 1}])
def test_the_small_net_refuses(wrong: dict[str, int]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        small_net(**wrong)


def test_initialisation_follows_the_table() -> None:
    torch.manual_seed(0)
    he, glorot = mnist_net(), cifar_net()
    conv = [m for m in he.features.modules() if isinstance(m, nn.Conv2d)][-1]
    assert conv.weight.abs().max().item() == pytest.approx((6 / (128 * 9)) ** 0.5, rel=1e-2)
    conv = [m for m in glorot.features.modules() if isinstance(m, nn.Conv2d)][-1]
    assert conv.weight.abs().max().item() == pytest.approx((6 / (2 * 192 * 9)) ** 0.5, rel=1e-2)
    for net, size in ((he, 128), (glorot, 192)):
        linear = net.classifier[1]
        assert isinstance(linear, nn.Linear)
        assert linear.weight.std().item() == pytest.approx((2 / size) ** 0.5, rel=0.05)
        assert linear.bias.abs().max() == 0


def test_noise_only_while_training() -> None:
    torch.manual_seed(0)
    noise = GaussianNoise(0.3)
    x = torch.zeros(100, 100)
    assert noise(x).std().item() == pytest.approx(0.3, rel=0.05)
    assert torch.equal(noise.eval()(x), x)


def test_forward_is_classifier_of_features() -> None:
    net = mlp(6, 3, hidden_sizes=[5], embedding_size=4).eval()
    x = torch.randn(7, 2, 3)
    torch.testing.assert_close(net(x), net.classifier(net.features(x)))
    assert net.embedding_size == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_features": 0}, "in_features must be at least 1, got 0"),
        ({"hidden_sizes": [4, 0]}, "hidden_sizes must be at least 1, got 0"),
        ({"num_classes": 1}, "num_classes must be at least 2, got 1"),
        ({"noise": -0.1}, "noise must be at least 0, got -0.1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ],
)
def test_errors_name_the_argument(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mlp(**{"in_features": 4, "num_classes": 2, **change})  # type: ignore[arg-type]


# --- the registry ---

# name: size of z, smallest side of images
IMAGE_NETS = {
    "mnist": (128, 4), "mnist_small": (64, 8), "svhn": (128, 4), "cifar": (192, 4),
    "small": (96, 4), "large": (128, 4),
}  # fmt: skip
FOR_ALL = ("mlp", "linear", "discriminator_mlp", "ladder")


def test_all_names_are_tested() -> None:
    """Those that a method needs are tested with it."""
    assert set(NETS) == {*IMAGE_NETS, *FOR_ALL, *OF_METHODS.values()}


@pytest.mark.parametrize("name", IMAGE_NETS)
def test_a_net_is_made_for_the_shape_of_images(name: str) -> None:
    size, least = IMAGE_NETS[name]
    for shape in ((1, least, least + 1), (3, 16, 12)):
        net = make_net(name, shape, 7).eval()
        z = net.features(torch.zeros(2, *shape))
        assert z.shape == (2, size)
        assert net.classifier(z).shape == (2, 7)
        assert net.embedding_size == size
        first = next(module for module in net.modules() if isinstance(module, nn.Conv2d))
        assert first.in_channels == shape[0]
    with pytest.raises(ValueError, match=f"images of {least} x {least} pixels or more, got"):
        make_net(name, (1, least, least - 1), 10)
    with pytest.raises(ValueError, match=f"net '{name}' is for images, got samples of shape"):
        make_net(name, (64,), 10)


@pytest.mark.parametrize("name", FOR_ALL)
@pytest.mark.parametrize("shape", [(1,), (30,), (1, 8, 8), (3, 32, 32)])
def test_perceptrons_are_for_all_shapes(name: str, shape: tuple[int, ...]) -> None:
    net = make_net(name, shape, 5).eval()
    z = net.features(torch.zeros(2, *shape))
    assert z.shape == (2, net.embedding_size)
    assert net.classifier(z).shape == (2, 5)


@pytest.mark.parametrize(
    ("side", "poolings"), [(8, 2), (16, 2), (28, 3), (32, 3), (33, 4), (64, 4), (224, 6)]
)
def test_larger_images_are_halved_more_often_by_the_small_net(side: int, poolings: int) -> None:
    net = make_net("small", (3, side, side + 1), 10)
    assert sum(isinstance(part, nn.MaxPool2d) for part in net.modules()) == poolings


def test_an_unknown_name_is_refused() -> None:
    for call in (check_net, lambda name: make_net(name, (1, 8, 8), 10)):
        with pytest.raises(ValueError, match=r"net must be one of mnist, .*, got 'mlpp'"):
            call("mlpp")
    check_net("my_file:make")  # it is imported when it is made


def test_a_users_own_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_nets.py").write_text(
        "from cclp.nets import mlp\n"
        "def tiny(shape, num_classes):\n"
        "    return mlp(shape[0], num_classes, hidden_sizes=[3], embedding_size=2)\n"
    )
    for name in (f"{tmp_path}/own_nets.py:tiny", "own_nets:tiny"):
        monkeypatch.chdir(tmp_path)
        net = make_net(name, (6,), 4)
        assert net.training
        assert net.eval()(torch.zeros(5, 6)).shape == (5, 4)


def test_a_users_own_function_is_tried() -> None:
    def make(shape: tuple[int, ...], num_classes: int) -> Net:
        return mlp(6, num_classes, hidden_sizes=[3])

    assert call_net(make, "mine", (6,), 4).training
    with pytest.raises(ValueError, match="net 'mine' failed: RuntimeError"):
        call_net(make, "mine", (7,), 4)
    with pytest.raises(ValueError, match=r"must take \(shape, num_classes\) and give .*, got list"):
        call_net(lambda shape, num_classes: [], "mine", (6,), 4)
    with pytest.raises(ValueError, match=r"logits \(2, 4\), got \(2, 128\) and \(2, 5\)"):
        call_net(lambda shape, num_classes: make(shape, 5), "mine", (6,), 4)


def test_names_are_loaded_when_they_are_used() -> None:
    checked = "import cclp.nets.registry; cclp.nets.registry.check_net('mlp')"
    assert "torch" not in children.modules_after(checked)
    for name in cclp.nets.__all__:
        assert getattr(cclp.nets, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = cclp.nets.nonsense


def test_a_linear_net_begins_at_zero_and_embeds_its_inputs() -> None:
    net = make_net("linear", (4,), 3)
    x = torch.randn(5, 4)
    torch.testing.assert_close(net.features(x), x)
    torch.testing.assert_close(net(x), torch.zeros(5, 3))
    assert sum(p.numel() for p in net.parameters()) == 4 * 3 + 3


# --- nets of peers ---


def test_the_large_net_is_that_of_its_papers() -> None:
    net = make_net("large", (3, 32, 32), 10)
    convs = [m for m in net.features.modules() if isinstance(m, nn.Conv2d)]
    assert [c.out_channels for c in convs] == [128] * 3 + [256] * 3 + [512, 256, 128]
    assert [c.kernel_size[0] for c in convs] == [3] * 7 + [1, 1]
    assert [c.padding[0] for c in convs] == [1] * 6 + [0] * 3
    kinds = [type(m) for m in net.features.modules()]
    assert (kinds.count(nn.MaxPool2d), kinds.count(Dropout)) == (2, 2)
    assert kinds.count(nn.BatchNorm2d) == len(convs)
    slopes = [m.negative_slope for m in net.features.modules() if isinstance(m, nn.LeakyReLU)]
    assert slopes == [0.1] * len(convs)
    x = torch.randn(2, 3, 32, 32)
    for layer in net.features[:-2]:  # type: ignore[index]
        x = layer(x)
    assert x.shape == (2, 128, 6, 6)  # as in the papers, before the mean
    parameters = sum(p.numel() for p in net.parameters())
    weights = 3 * 9 * 128 + 2 * 9 * 128**2 + 9 * 128 * 256 + 2 * 9 * 256**2
    weights += 9 * 256 * 512 + 512 * 256 + 256 * 128 + 128 * 10
    assert parameters == weights + 2 * (3 * 128 + 3 * 256 + 512 + 256 + 128) + 10


def test_the_discriminator_is_that_of_its_paper() -> None:
    net = make_net("discriminator_mlp", (1, 28, 28), 10)
    parts = (*net.features, *net.classifier)  # type: ignore[misc]
    layers = [part for part in parts if isinstance(part, WeightNormalized)]
    assert [layer.weight.shape[0] for layer in layers] == [1000, 500, 250, 250, 250, 10]
    assert [layer.gain is None for layer in layers] == [True] * 5 + [False]
    noise = [part.std for part in parts if isinstance(part, GaussianNoise)]
    assert noise == [1.0] + [0.5] * 5


def test_weight_normalisation_begins_with_z_scores() -> None:
    torch.manual_seed(0)
    layer, x = WeightNormalized(3, 4), 5 * torch.randn(50, 3) + 2
    before = layer.eval()(x)
    torch.testing.assert_close(before, x @ (layer.weight / layer.weight.norm(dim=1)[:, None]).T)
    first = layer.train()(x)
    torch.testing.assert_close(first.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(first.std(0, correction=0), torch.ones(4))
    kept = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    layer(x + 1)  # the first batch alone
    torch.testing.assert_close(dict(layer.named_buffers()), kept, rtol=0, atol=0)
    torch.testing.assert_close(layer.eval()(x), first)
    other = WeightNormalized(3, 4)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(x), first)  # ready, also in training
    with torch.no_grad():
        layer.weight.mul_(7)  # the size of weights does not matter
    torch.testing.assert_close(layer(x), first)
