"""A user's own files: folders of images of every kind, .npz, .csv."""

import csv
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from cclp.data.dataset import Column, InputSpec
from cclp.data.load import find_kind, load
from cclp.data.user import images
from cclp.data.user.csv_file import read_csv
from cclp.data.user.images import decode, find_images
from cclp.data.user.load import READERS, load_user_data, read_samples
from cclp.data.user.tables import Table, TableReader, encode, fit_columns
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


def test_npz_of_vectors_and_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    x = np.arange(12.0).reshape(4, 3)
    np.savez(path, X=x, y=np.array(["cat", "", "ant", "cat"]), X_test=x[:1], y_test=["ant"])
    data = load(str(path))
    assert find_kind(str(path)) == "vectors"
    assert data.spec == InputSpec(("ant", "cat"), (3,), None)
    assert data.train_x.dtype == np.float32
    assert data.train_y.tolist() == [1, -1, 0, 1]
    assert data.test_y.tolist() == [0]


def test_npz_classes_are_ordered_as_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.zeros((4, 2)), y=[10, 9, -1, 2])
    data = load(str(tmp_path / "a.npz"))
    assert data.spec.classes == ("2", "9", "10")
    assert data.train_y.tolist() == [2, 1, -1, 0]
    assert len(data.test_x) == 0


@pytest.mark.parametrize(
    ("x", "shape", "white"),
    [
        (np.zeros((4, 9, 7), np.uint8) + 128, (1, 9, 7), 255),
        (np.zeros((4, 9, 7, 3), np.uint8) + 128, (3, 9, 7), 255),
        (np.zeros((4, 3, 9, 7), np.int64) + 255, (3, 9, 7), 255),
        (np.zeros((4, 3, 9, 7)), (3, 9, 7), None),
        (np.zeros((4, 9, 7), np.int64) + 256, (1, 9, 7), None),
        (np.zeros((4, 9, 7), np.uint8) + 16, (1, 9, 7), None),  # the value of white is unknown
        (np.ones((4, 9, 7), bool), (1, 9, 7), None),
    ],
)
def test_npz_of_images(
    tmp_path: Path, x: np.ndarray[Any, Any], shape: tuple[int, ...], white: int | None
) -> None:
    np.savez(tmp_path / "a.npz", X=x, y=[0, 1, -1, -1])
    data = load(str(tmp_path / "a.npz"))
    assert find_kind(str(tmp_path / "a.npz")) == "images"
    assert (data.spec.shape, data.spec.white) == (shape, white)
    assert data.train_x.dtype == (np.float32 if white is None else np.uint8)
    assert data.train_x.max() == x.max()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": [1]}, "must hold X and y, but holds x"),
        ({"X": np.zeros((2, 2))}, "holds X but no y"),
        ({"X": np.zeros((2, 2)), "y": [0, 1], "X_test": [[0, 0]]}, "holds X_test but no y_test"),
        ({"X": np.zeros((2, 2)), "y": [0, 1, 1]}, r"y must hold 2 whole numbers .*shape \(3,\)"),
        ({"X": np.zeros((2, 2)), "y": [0.5, 1]}, "y must hold 2 whole numbers or strings, got fl"),
        ({"X": np.zeros((2, 2)), "y": [-2, 1]}, "at least 0, or -1 for unlabeled, got -2"),
        ({"X": np.zeros((2, 2)), "y": [1, -1]}, "two or more classes, got 1"),
        ({"X": np.zeros(2), "y": [0, 1]}, r"X must hold numbers of shape .*got float64 .*\(2,\)"),
        ({"X": np.array([["a"], ["b"]]), "y": [0, 1]}, "X must hold numbers"),
        ({"X": np.zeros((2, 0)), "y": [0, 1]}, r"got float64 of shape \(2, 0\)"),
        ({"X": [[0.0], [np.nan]], "y": [0, 1]}, "X must be finite in float32, but row 1 is not"),
        ({"X": [[0.0], [1e300]], "y": [0, 1]}, "X must be finite in float32, but row 1 is not"),
        ({"X": np.zeros((2, 9, 9, 9)), "y": [0, 1]}, "at most 4 channels"),
        ({"X": np.zeros((2, 1, 9, 4)), "y": [0, 1]}, "at most 4 channels, first or last"),
        ({"X": np.zeros(()), "y": [0, 1]}, r"X must hold numbers of shape .* of shape \(\)"),
        ({"X": np.zeros((2, 2)), "y": [0, np.inf]}, "y must hold 2 whole numbers or strings"),
        ({"X": np.zeros((2, 2)), "y": 1}, r"y must hold 2 whole numbers .* of shape \(\)"),
        (
            {"X": np.zeros((2, 2)), "y": [0, 1], "X_test": [[0]], "y_test": [0]},
            r"X_test must be of shape \(2,\), got \(1,\)",
        ),
        (
            {"X": np.zeros((2, 2)), "y": [0, 1], "X_test": [[0, 0]], "y_test": [7]},
            "y_test: there is no class '7', only 0, 1",
        ),
        (
            {"X": np.zeros((2, 2)), "y": [0, 1], "X_test": [[0, 0]], "y_test": [-1]},
            "y_test must name a class for every sample",
        ),
    ],
)
def test_npz_that_is_no_data(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=rf"a\.npz.*{message}"):
        load(str(tmp_path / "a.npz"))


TABLE = """size,colour,kind,weight
1.5,red,a,10
,blue,b,20
2.5,,,nan
-1,red,b,30
"""


def test_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    data = load(str(tmp_path / "t.csv"), target="kind")
    assert find_kind(str(tmp_path / "t.csv")) == "vectors"
    assert data.spec.classes == ("a", "b")
    assert data.spec.columns == (
        Column("size", mean=1.0),
        Column("colour", categories=("", "blue", "red")),
        Column("weight", mean=20.0),
    )
    assert data.train_y.tolist() == [0, 1, -1, 1]
    assert data.train_x.dtype == np.float32
    assert data.train_x.tolist() == [
        [1.5, 0, 0, 1, 10],
        [1.0, 0, 1, 0, 20],
        [2.5, 1, 0, 0, 20],
        [-1.0, 0, 0, 1, 30],
    ]
    assert data.train_names == ["line 2", "line 3", "line 4", "line 5"]
    assert InputSpec.from_json(data.spec.to_json()) == data.spec


def test_runs_of_version_0_1_call_the_target_a_label(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    spec = load(str(tmp_path / "t.csv"), target="kind").spec
    recorded = spec.to_json()
    assert recorded["target"] == "kind"
    recorded["label"] = recorded.pop("target")
    assert InputSpec.from_json(recorded) == spec
    del recorded["label"]
    with pytest.raises(KeyError):
        InputSpec.from_json(recorded)


def test_a_format_is_a_reader_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_words(path: Path) -> Table:
        header, *rows = [line.split() for line in path.read_text().splitlines()]
        return Table(path, header, rows, list(range(2, len(rows) + 2)))

    path = tmp_path / "t.words"
    path.write_text("size kind\n1 a\n2 b\n")
    with pytest.raises(ValueError, match=r"ending in \.csv, \.npz, but is another file"):
        find_kind(str(path))
    monkeypatch.setitem(READERS, ".words", TableReader(read_words))
    assert find_kind(str(path)) == "vectors"
    data = load(str(path), target="kind")
    assert data.train_x.tolist() == [[1.0], [2.0]]
    assert data.spec.classes == ("a", "b")
    (samples,) = read_samples([path], data.spec, skip_bad=False, report=Reporter())
    assert samples.places == [(str(path), 0), (str(path), 1)]
    assert samples.x.tolist() == [[1.0], [2.0]]
    np.savez(tmp_path / "a.npz", X=np.zeros((2, 1)), y=[0, 1])
    with pytest.raises(ValueError, match=r"--target is for \.csv, \.words files, .*a\.npz is none"):
        load(str(tmp_path / "a.npz"), target="kind")


def test_a_table_in_the_spec_of_another(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    spec = load(str(tmp_path / "t.csv"), target="kind").spec
    new = tmp_path / "new.csv"
    new.write_text("\ufeffkind;weight;size;colour\n;;4;green\na;5;;blue\n", encoding="utf-8")
    assert encode(read_csv(new), spec.columns or ()).tolist() == [
        [4.0, 0, 0, 0, 20],  # green was never seen
        [1.0, 0, 1, 0, 5],
    ]
    data = load_user_data(new, spec=spec)
    assert data.train_y.tolist() == [-1, 0]
    new.write_text("kind,weight,size,colour\nz,1,2,red\n")
    with pytest.raises(ValueError, match=r"new\.csv, column 'kind': there is no class 'z'"):
        load_user_data(new, spec=spec)
    new.write_text("weight,size\n1,2\n")
    with pytest.raises(ValueError, match="has no column 'colour', only weight, size"):
        list(read_samples([new], spec, skip_bad=False, report=Reporter()))
    new.write_text("weight,size,colour\n1,large,red\n")
    with pytest.raises(ValueError, match=r"line 2, column 'size': expected a finite.*'large'"):
        list(read_samples([new], spec, skip_bad=False, report=Reporter()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold a header and rows"),
        ("a,kind\n", "must hold a header and rows"),
        ("a,a,kind\n1,2,x\n", "all different, got"),
        ("a,,kind\n1,2,x\n", "columns must have names"),
        ("a,kind\n1,x\n1\n", "line 3: expected 2 cells as in the header, got 1"),
        ("a,b\n1,2\n", "has no column 'kind', only a, b"),
        ("kind\nx\ny\n", "has no column beside the target 'kind'"),
        ("a,kind\n,x\n,y\n", "column 'a' is empty"),
        ("a,kind\n1,x\n2,y\nn/a,\n", "line 4: 'n/a' is not a number, as most of column 'a' are"),
        ("a,kind\n1,x\n2,y\n1_0,\n", "line 4: '1_0' is not a number"),
        ("a,kind\ninf,x\n1,y\n", "line 2, column 'a': expected a finite number, got 'inf'"),
        ("a,kind\n1,x\n2,x\n", "column 'kind' must name two or more classes, got x"),
        (
            "a,kind\n" + "".join(f"n{i},x\n" for i in range(101)),
            "column 'a' has 101 different values that are not numbers, more than 100",
        ),
    ],
)
def test_tables_that_are_no_data(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"t\.csv.*{message}"):
        load(str(tmp_path / "t.csv"), target="kind")


def test_decimal_commas_where_commas_do_not_separate_cells(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("size;kind\n1,5;a\n-2,25;b\n")
    recorder = Recorder()
    data = load(str(tmp_path / "t.csv"), target="kind", report=recorder)
    assert data.train_x.tolist() == [[1.5], [-2.25]]
    assert recorder.infos == ["t.csv: 2 rows, 1 columns of numbers, 0 of choices"]
    (tmp_path / "t.csv").write_text("size,hue,kind\n1,red,a\n2,blue,b\n")
    load(str(tmp_path / "t.csv"), target="kind", report=recorder)
    assert recorder.infos[1] == "t.csv: 2 rows, 1 columns of numbers, 1 of choices: hue (2)"


@pytest.mark.parametrize("seed", ["1", "3"])
def test_classes_have_one_order_whatever_the_hash_seed(tmp_path: Path, seed: str) -> None:
    (tmp_path / "t.csv").write_text("a,kind\n1,1\n2,01\n3,2\n")
    program = (
        "from cclp.data.load import load; import sys\n"
        "print(load(sys.argv[1], target='kind').spec.classes)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "t.csv")],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed == "('01', '1', '2')\n"


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("größe,kind\n1,a\n".encode("latin-1"))
    with pytest.raises(ValueError, match="must be text in UTF-8"):
        read_csv(tmp_path / "t.csv")


def test_cells_with_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    content = io.StringIO(newline="")
    csv.writer(content).writerows([["a", "kind"], ['x, "y"\nz', "1"], ["b", "2"]])
    (tmp_path / "t.csv").write_bytes(content.getvalue().encode())
    table = read_csv(tmp_path / "t.csv")
    assert table.column("a") == ['x, "y"\nz', "b"]
    assert table.lines == [3, 4]
    assert fit_columns(table, "kind")[0].categories == ("b", 'x, "y"\nz')


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
        (
            "photos/dark/0.jpg",
            {},
            r"a file ending in \.csv, \.npz, but is another file",
        ),
    ],
)
def test_options_that_do_not_fit(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    own_folder(tmp_path / "photos")
    own_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / name), **options)


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


@pytest.mark.parametrize(
    ("x", "fits"),
    [
        (np.full((2, 8, 8), 16, np.uint8), True),
        (np.full((2, 8, 8), 16), True),
        (np.full((2, 8, 8), 17), False),
        (np.full((2, 8, 8), 255, np.uint8), False),
        (np.full((2, 8, 8), 0.5), False),
        (np.full((2, 8, 8), -1), False),
    ],
)
def test_pixels_must_have_the_scale_of_those_trained_on(
    tmp_path: Path, x: np.ndarray[Any, Any], fits: bool
) -> None:
    np.savez(tmp_path / "a.npz", X=x, y=[0, 1])
    spec = InputSpec(tuple("0123456789"), (1, 8, 8), 16)
    if fits:
        assert load_user_data(tmp_path / "a.npz", spec=spec).train_x.dtype == np.uint8
    else:
        with pytest.raises(ValueError, match="X must hold whole numbers from 0 to 16, as those"):
            load_user_data(tmp_path / "a.npz", spec=spec)


def test_names_that_are_not_unicode(tmp_path: Path) -> None:
    photos = own_folder(tmp_path / "photos")
    odd = os.fsdecode(os.fsencode(photos / "dark") + b"/caf\xe9.png")
    Path(odd).write_bytes(png(HALF))
    data = load(str(photos))
    assert data.train_names is not None
    assert os.fsencode(data.train_names[10]) == b"dark/caf\xe9.png"


SHAPES = st.lists(st.integers(0, 6), max_size=5).map(tuple)
KINDS = st.sampled_from(["u1", "i1", "i8", "f4", "f8", "?", "U3", "c8", "M8[s]"])


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(x_shape=SHAPES, x_kind=KINDS, y_shape=SHAPES, y_kind=KINDS, seed=st.integers(0, 9))
def test_any_arrays_are_data_or_an_error_in_words(
    tmp_path: Path,
    x_shape: tuple[int, ...],
    x_kind: str,
    y_shape: tuple[int, ...],
    y_kind: str,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...], kind: str) -> np.ndarray[Any, Any]:
        content = rng.integers(0, 256, int(np.prod(shape)) * np.dtype(kind).itemsize, np.uint8)
        plain = kind in ("?", "U3", "M8[s]")
        values = rng.integers(0, 2, shape) if plain else content.view(kind).reshape(shape)
        return values.astype(kind)

    np.savez(tmp_path / "a.npz", X=draw(x_shape, x_kind), y=draw(y_shape, y_kind))
    try:
        data = load(str(tmp_path / "a.npz"))
    except ValueError as error:
        message = str(error)
        data = None
    if data is None:
        assert "a.npz" in message
        assert len(message.split()) > 4
    else:
        assert np.isfinite(data.train_x).all()
        assert data.train_x.shape == (len(data.train_y), *data.spec.shape)
        assert data.train_y.max() < data.num_classes >= 2
