"""A user's own files: folders of images of every kind, .npz, .csv."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cclp.data.dataset import InputSpec
from cclp.data.load import find_kind, load
from cclp.data.user import images
from cclp.data.user.images import decode, find_images
from cclp.data.user.load import read_samples
from cclp.progress import Reporter
from tests.runs import own_folder, own_table, png


class Recorder(Reporter):
    """Remembers its messages."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.infos: list[str] = []

    def info(self, text: str) -> None:
        self.infos.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def save(path: Path, pixels: Any, mode: str | None = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(pixels))
    (image if mode is None else image.convert(mode)).save(path, **options)
    return path


HALF = np.zeros((40, 40, 3), np.uint8)
HALF[:, 20:] = (255, 128, 0)  # left black, right orange
GREY = round(0.299 * 255 + 0.587 * 128)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("a.png", "RGB"), ("a.png", "RGBA"), ("a.png", "P"), ("a.jpg", "CMYK"), ("a.tif", "YCbCr"),
        ("a.bmp", "RGB"), ("a.webp", "RGB"), ("a.gif", "P"),
    ],
)  # fmt: skip
def test_colour_images_of_every_mode(tmp_path: Path, name: str, mode: str) -> None:
    path = save(tmp_path / name, HALF, mode)
    x = decode(path, (3, 10, 20))
    assert x.shape == (3, 10, 20)
    assert x.dtype == np.uint8
    np.testing.assert_allclose(x[:, 5, 3], (0, 0, 0), atol=6)
    np.testing.assert_allclose(x[:, 5, 16], (255, 128, 0), atol=6)
    np.testing.assert_allclose(decode(path, (1, 8, 8))[0, 4, [1, 6]], (0, GREY), atol=6)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "I;16"])
def test_grey_images_of_every_mode(tmp_path: Path, mode: str) -> None:
    grey = np.zeros((40, 40), np.uint8)
    grey[:, 20:] = 255
    if mode == "I;16":
        path = save(tmp_path / "a.png", grey.astype(np.uint16) * 257)
    else:
        path = save(tmp_path / "a.png", grey, mode)
    header = images.read_header(path)
    assert header is not None
    assert header.grey
    assert decode(path, (1, 8, 8))[0, 4].tolist()[::7] == [0, 255]
    assert decode(path, (3, 8, 8))[:, 4, 7].tolist() == [255, 255, 255]
    assert decode(path, (1, 8, 8), white=16)[0, 4].tolist()[::7] == [0, 16]


def test_transparent_pixels_are_white_and_cameras_are_turned(tmp_path: Path) -> None:
    clear = np.zeros((8, 8, 4), np.uint8)  # black, but invisible
    assert (decode(save(tmp_path / "a.png", clear), (3, 8, 8)) == 255).all()
    turned = Image.fromarray(HALF)
    exif = turned.getexif()
    exif[0x0112] = 6  # the camera was held upright: turn by 90 degrees
    turned.save(tmp_path / "b.png", exif=exif)
    x = decode(tmp_path / "b.png", (3, 8, 8))
    assert x[0, 0].max() == 0
    assert x[0, 7].min() == 255


def test_images_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.png").write_text("not an image")
    whole = png(np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8))
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    save(tmp_path / "real.tif", np.zeros((4, 4), np.float32))
    (tmp_path / "program.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for ever
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    save(tmp_path / "bomb.png", np.zeros((41, 40, 3), np.uint8))
    monkeypatch.setattr(images, "MOST_PIXELS", 41 * 40 - 1)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 41 * 40 - 1)
    save(tmp_path / "a.png", HALF)
    expected = {
        "bomb.png": "40 x 41 pixels are too many",
        "cut.png": "truncated",
        "dangling": "is not a file",
        "pipe": "is not a file",
        "program.eps": "UnidentifiedImageError",
        "real.tif": "real numbers",
        "text.png": "UnidentifiedImageError",
    }
    ((good, x, bad),) = images.decode_all(find_images(tmp_path), (3, 8, 8))
    assert good == [tmp_path / "a.png"]
    assert x.shape == (1, 3, 8, 8)
    assert [item.path.name for item in bad] == list(expected)
    for item in bad:
        assert expected[item.path.name] in item.reason
        assert item.lasting
        readable = images.read_header(item.path) is not None
        assert readable == (item.path.name in ("bomb.png", "cut.png", "real.tif"))


def test_wide_grey_images_have_one_scale(tmp_path: Path) -> None:
    for name, largest in (("a.tif", 200), ("b.tif", 60000)):
        save(tmp_path / name, np.array([[0, 200], [0, largest]], np.int32))
        assert decode(tmp_path / name, (1, 2, 2))[0, 0, 1] == round(200 / 257)
    assert decode(tmp_path / "b.tif", (1, 2, 2))[0, 1, 1] == round(60000 / 257)


def test_folders_are_walked_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/10.png", "a.png", ".hidden.png", ".git/x.png"):
        save(tmp_path / name, HALF)
    found = [str(path.relative_to(tmp_path)) for path in find_images(tmp_path)]
    assert found == ["a.png", "b/10.png", "b/2.png"]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "link").symlink_to(save(tmp_path / ".else" / "3.png", HALF).parent)
    (tmp_path / "c" / "loop").symlink_to(tmp_path)
    found = [str(path.relative_to(tmp_path)) for path in find_images(tmp_path)]
    assert found == ["a.png", "b/10.png", "b/2.png", "c/link/3.png"]
    with pytest.raises(FileNotFoundError):
        find_images(tmp_path / "nowhere")


def test_a_folder_of_classes(tmp_path: Path) -> None:
    own_folder(tmp_path / "photos", labeled=6, unlabeled=4, test=2)
    data = load(str(tmp_path / "photos"), image_size=16)
    assert data.name == "photos"
    assert data.spec == InputSpec(("dark", "light"), (3, 16, 16))
    assert data.train_y.tolist() == [0] * 6 + [1] * 6 + [-1] * 4
    assert data.test_y.tolist() == [0] * 2 + [1] * 2
    assert data.train_x.shape == (16, 3, 16, 16)
    assert data.verified is None
    assert data.train_names is not None
    assert data.train_names[0] == "dark/0.jpg"
    assert data.test_names is not None
    assert data.test_names[3] == "test/light/1.jpg"
    means = data.train_x[:12].mean((1, 2, 3))
    assert means[:6].max() < 100 < means[6:].min()
    assert find_kind(str(tmp_path / "photos")) == "images"


def test_grey_folders_stay_grey(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/1.png"):
        save(tmp_path / name, HALF, "L")
    assert load(str(tmp_path)).spec.shape == (1, 32, 32)
    save(tmp_path / "a/2.png", HALF)
    assert load(str(tmp_path)).spec.shape == (3, 32, 32)


def test_images_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_folder(tmp_path / "photos")
    first = load(str(tmp_path / "photos"))
    base: Any = first.train_x
    while not isinstance(base, np.memmap):
        base = base.base
    assert not first.train_x.flags.writeable
    decoded: list[Path] = []
    before = images.decode

    def count(path: Path, *rest: Any) -> Any:
        decoded.append(path)
        return before(path, *rest)

    monkeypatch.setattr(images, "decode", count)
    assert load(str(tmp_path / "photos")).fingerprint == first.fingerprint
    assert decoded == []
    save(tmp_path / "photos/dark/new.png", HALF)
    assert load(str(tmp_path / "photos")).fingerprint != first.fingerprint
    assert len(decoded) == len(first.train_x) + 1
    decoded.clear()
    os.utime(tmp_path / "photos/dark/new.png", ns=(1, 1))
    load(str(tmp_path / "photos"))
    assert decoded
    decoded.clear()
    load(str(tmp_path / "photos"), image_size=8)
    assert decoded


def test_a_damaged_map_is_made_again(tmp_path: Path, cache: Path) -> None:
    own_folder(tmp_path / "photos")
    first = load(str(tmp_path / "photos"))
    expected = first.fingerprint
    newest = max((cache / "cclp" / "decoded").glob("*.bytes"), key=lambda p: p.stat().st_mtime_ns)
    newest.write_bytes(b"short")
    assert load(str(tmp_path / "photos")).fingerprint == expected
    newest.with_suffix(".json").write_text("nonsense")
    assert load(str(tmp_path / "photos")).fingerprint == expected
    assert not list((cache / "cclp" / "decoded").glob(".partial*"))


def test_older_maps_and_leftovers_go(tmp_path: Path, cache: Path) -> None:
    own_folder(tmp_path / "photos")
    load(str(tmp_path / "photos"))
    place = cache / "cclp" / "decoded"
    before = set(place.glob("*.bytes"))
    (place / ".partial-old").touch()
    os.utime(place / ".partial-old", (1, 1))
    (place / ".partial-new").touch()
    save(tmp_path / "photos/dark/new.png", HALF)
    load(str(tmp_path / "photos"))
    assert len(before - set(place.glob("*.bytes"))) == 1
    assert len(list(place.glob("*.bytes"))) == len(before)
    assert [path.name for path in place.glob(".partial-*")] == [".partial-new"]
    (place / ".partial-new").unlink()


def test_a_failure_that_may_pass_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = own_folder(tmp_path / "photos")
    before = Image.open

    def refuse(path: Path, **options: Any) -> Image.Image:
        if path.name == "3.jpg":
            raise PermissionError(13, "Permission denied", str(path))
        return before(path, **options)

    monkeypatch.setattr(Image, "open", refuse)
    data = load(str(photos), skip_bad=True)
    assert len(data.train_y) == 28
    assert [item.split(" (")[0] for item in data.left_out] == [
        f"{photos}/dark/3.jpg", f"{photos}/light/3.jpg",
    ]  # fmt: skip
    monkeypatch.undo()
    data = load(str(photos))
    assert len(data.train_y) == 30
    assert data.left_out == []


def test_bad_images_are_listed_and_skipped_only_if_asked(tmp_path: Path) -> None:
    own_folder(tmp_path / "photos", labeled=3)
    for name in ("light/0.jpg", "dark/x.png"):
        (tmp_path / "photos" / name).write_text("nothing to see")
    for _ in range(2):  # decoded, and from the cache
        with pytest.raises(
            ValueError,
            match=r"2 of \d+ images cannot be read: \S*dark/x\.png \(Unidentified.*; "
            r"\S*light/0\.jpg \(.*\)\. Repair or remove them, or leave them out with --skip-bad",
        ):
            load(str(tmp_path / "photos"))
    recorder = Recorder()
    data = load(str(tmp_path / "photos"), skip_bad=True, report=recorder)
    assert data.train_y[data.train_y >= 0].tolist() == [0, 0, 0, 1, 1]
    assert recorder.warnings[0].startswith("Left out 2 of ")
    assert data.train_x[3:5].mean() > 100


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.mkdir(), "two or more classes, or a table of labels, got none"),
        (lambda p: save(p / "a/1.png", HALF), "or a table of labels, got a"),
        (lambda p: (own_folder(p), (p / "empty").mkdir()), "empty must hold images of its class"),
        (
            lambda p: (own_folder(p), save(p / "test/other/1.png", HALF)),
            "test: there is no class 'other', only dark, light",
        ),
        (
            lambda p: (own_folder(p), save(p / "train/dark/1.png", HALF)),
            "classes in train/, and dark/ beside it: move it into train/, or rename train/",
        ),
    ],
)
def test_folders_that_are_no_data(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path / "photos")
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / "photos"))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("t.csv", {}, "name the column of classes with --target, one of amount"),
        (
            "t.csv",
            {"target": "kind", "image_size": 8},
            "--image-size and --skip-bad are for folders of images",
        ),
        ("t.csv", {"target": "kind", "verify": False}, "--no-verify is for published data"),
        ("t.csv", {"target": "kind", "data_dir": Path()}, "--data-dir is for published data"),
        ("photos", {"target": "kind"}, "--target is for tables, .* has no table of labels"),
        ("photos", {"drop": ["kind"]}, r"--drop is for \.csv, .* files"),
        ("photos", {"keep": ["kind"]}, r"--keep is for \.csv, .* files"),
        ("digits", {"drop": ["kind"]}, "--drop is for your own files, not for digits"),
        ("photos/dark/0.jpg", {}, r"a file ending in \.csv, .*, but is another file"),
    ],
)
def test_options_that_do_not_fit(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    own_folder(tmp_path / "photos")
    own_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=message):
        load(name if name == "digits" else str(tmp_path / name), **options)


def test_samples_of_other_kinds_are_refused(tmp_path: Path) -> None:
    own_folder(tmp_path / "photos")
    own_table(tmp_path / "t.csv")
    np.savez(tmp_path / "a.npz", X=np.zeros((2, 5)), y=[0, 1])
    table = load(str(tmp_path / "t.csv"), target="kind").spec
    photos = load(str(tmp_path / "photos")).spec
    reals = InputSpec(("a", "b"), (3, 8, 8), None)
    for name, spec, message in (
        ("photos", table, "not trained on grey or RGB pixels, but on inputs of shape"),
        ("photos", reals, "not trained on grey or RGB pixels"),
        ("t.csv", photos, "not trained on a table"),
        ("a.npz", photos, r"X must be of shape \(3, 32, 32\), got \(5,\)"),
        ("nowhere.png", photos, "must be a file or a folder of images, but is not there"),
    ):
        with pytest.raises(ValueError, match=message):
            list(read_samples([tmp_path / name], spec, skip_bad=False, report=Reporter()))


def test_names_that_are_not_unicode(tmp_path: Path) -> None:
    photos = own_folder(tmp_path / "photos")
    odd = os.fsdecode(os.fsencode(photos / "dark") + b"/caf\xe9.png")
    Path(odd).write_bytes(png(HALF))
    data = load(str(photos))
    assert data.train_names is not None
    assert os.fsencode(data.train_names[10]) == b"dark/caf\xe9.png"
