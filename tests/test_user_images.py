"""Folders of images as people have them: layouts, tables of labels, archives, deep pixels."""

import io
import json
import os
import shutil
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from cclp.data.dataset import Dataset, InputSpec
from cclp.data.load import find_kind, load
from cclp.data.user import images
from cclp.data.user.deep import find_range
from cclp.data.user.images import decode
from cclp.data.user.labels import is_missing_label
from cclp.data.user.load import read_samples
from cclp.runs.export import export
from cclp.runs.inference import evaluate, open_run, predict
from tests.command_line import call
from tests.runs import Messages, own_folder, png


def save(path: Path, level: int = 0) -> Path:
    """A grey image of one level."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(np.full((9, 9), level, np.uint8)))
    return path


def make(root: Path, *names: str) -> Path:
    """Images whose level is their place in the list."""
    for level, name in enumerate(names):
        save(root / name, level)
    return root


def parts(data: Dataset) -> tuple[dict[str, int], dict[str, int]]:
    """Class indices by name of the training and the test set; pixels are those of the names."""
    assert data.train_names is not None
    assert data.test_names is not None
    return (
        dict(zip(data.train_names, data.train_y.tolist(), strict=True)),
        dict(zip(data.test_names, data.test_y.tolist(), strict=True)),
    )


CLASSES = ("cat/1.png", "cat/2.png", "dog/1.png")


@pytest.mark.parametrize("name", ["unlabeled", "Unlabelled", "_unknown", "UNSORTED", "_unlabeled"])
def test_names_of_the_unlabeled_folder(tmp_path: Path, name: str) -> None:
    make(tmp_path / "pets", *CLASSES, f"{name}/1.png", f"{name}/deep/2.png")
    said = Messages()
    train, test = parts(load(str(tmp_path / "pets"), report=said))
    assert train == {
        "cat/1.png": 0, "cat/2.png": 0, "dog/1.png": 1,
        f"{name}/1.png": -1, f"{name}/deep/2.png": -1,
    }  # fmt: skip
    assert test == {}
    assert said.infos == [
        "pets: a sub-folder for each class; 2 classes, 3 labeled, 2 unlabeled and 0 test images",
        "Images of about 9 x 9, resized to 32 x 32; --image-size changes it",
    ]


def test_a_class_of_a_run_is_no_unlabeled_folder(tmp_path: Path) -> None:
    make(tmp_path / "pets", "cat/1.png", "unknown/1.png")
    spec = InputSpec(("cat", "unknown"), (1, 8, 8))
    assert parts(load(str(tmp_path / "pets"), spec=spec))[0] == {
        "cat/1.png": 0, "unknown/1.png": 1,
    }  # fmt: skip


def test_loose_images_are_unlabeled(tmp_path: Path) -> None:
    make(tmp_path / "pets", *CLASSES, "9.png", "unsorted/7.png", "Test/dog/3.png", "Test/4.png")
    said = Messages()
    data = load(str(tmp_path / "pets"), report=said)
    train, test = parts(data)
    assert train["9.png"] == train["unsorted/7.png"] == -1
    assert test == {"Test/dog/3.png": 1}
    assert data.train_x[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]  # each row is its file
    assert data.test_x[:, 0, 0, 0].tolist() == [5]
    assert said.infos[:2] == [
        "1 images beside the folders of classes are unlabeled",
        "1 images of val/ or test/ have no class: they are neither trained on nor measured",
    ]


def test_train_and_test(tmp_path: Path) -> None:
    inside = [f"train/{name}" for name in CLASSES]
    make(
        tmp_path / "pets", *inside, "train/unlabeled/1.png", "Valid/dog/5.png", "test/cat/6.png",
        "unlabeled/2.png", "train/7.png",
    )  # fmt: skip
    said = Messages()
    data = load(str(tmp_path / "pets"), report=said)
    assert data.spec.classes == ("cat", "dog")
    train, test = parts(data)
    assert {name for name, label in train.items() if label < 0} == {
        "train/unlabeled/1.png", "unlabeled/2.png", "train/7.png",
    }  # fmt: skip
    assert train["Valid/dog/5.png"] == 1
    assert test == {"test/cat/6.png": 0}
    assert said.infos[1] == (
        "1 labeled images of val/ join the training set: choices are made by cross-validation over "
        "all labels"
    )
    assert said.infos[2].startswith("pets: a sub-folder for each class in train/, Valid/, test/; ")


@pytest.mark.parametrize("extra", [(), ("test/1.png", "test/2.png")])
def test_val_is_the_test_set_if_there_is_no_other(tmp_path: Path, extra: tuple[str, ...]) -> None:
    make(tmp_path / "pets", *(f"train/{name}" for name in CLASSES), "val/cat/5.png", *extra)
    said = Messages()
    train, test = parts(load(str(tmp_path / "pets"), report=said))
    assert len(train) == 3
    assert test == {"val/cat/5.png": 0}
    assert "The test set is val/, as there is no other with classes" in said.infos
    assert ("2 images of val/ or test/" in said.infos[0]) == bool(extra)


def test_val_beside_classes(tmp_path: Path) -> None:
    make(tmp_path / "pets", *CLASSES, "val/cat/5.png")
    assert parts(load(str(tmp_path / "pets")))[1] == {"val/cat/5.png": 0}
    make(tmp_path / "vehicles", "car/1.png", "train/1.png", "val/1.png")
    assert load(str(tmp_path / "vehicles")).spec.classes == ("car", "train", "val")


def test_a_folder_that_holds_nothing_but_the_data(tmp_path: Path) -> None:
    make(tmp_path / "pets", *(f"all/pets-2/{name}" for name in CLASSES))
    data = load(str(tmp_path / "pets"))
    assert data.name == "pets"
    assert parts(data)[0] == {"cat/1.png": 0, "cat/2.png": 0, "dog/1.png": 1}


def test_stray_files_are_left_out_and_counted(tmp_path: Path) -> None:
    pets = make(tmp_path / "pets", *CLASSES, "test/cat/9.png")
    for name in (
        "cat/Thumbs.db", "dog/desktop.ini", "notes.txt", "cat/.DS_Store", "dog/a.json",
        "dog/b.json", "test/cat/x.md", "annotations/1.xml", "__MACOSX/cat/1.png", "README",
    ):  # fmt: skip
        (pets / name).parent.mkdir(parents=True, exist_ok=True)
        (pets / name).write_text("nothing to see")
    save(pets / "dog/without_suffix")
    said = Messages()
    train, test = parts(load(str(pets), report=said))
    assert set(train) == {*CLASSES, "dog/without_suffix"}
    assert set(test) == {"test/cat/9.png"}
    assert said.infos[0].startswith("Left out 8 files that are no images: 2 .json, ")
    spec = load(str(pets)).spec
    said = Messages()
    (found,) = read_samples([pets / "dog"], spec, skip_bad=False, report=said)
    assert [place for place, _ in found.places] == [
        f"{pets}/dog/1.png", f"{pets}/dog/without_suffix",
    ]  # fmt: skip
    assert said.infos == ["Left out 3 files that are no images: 2 .json, 1 .ini"]


@pytest.mark.parametrize("name", ["a.jpg", "a.heic", "a.dng"])
def test_images_that_cannot_be_read_are_no_stray_files(tmp_path: Path, name: str) -> None:
    pets = make(tmp_path / "pets", *CLASSES)
    (pets / "cat" / name).write_text("nothing to see")
    with pytest.raises(ValueError, match=rf"1 of 4 images cannot be read: \S*{name}"):
        load(str(pets))
    assert len(load(str(pets), skip_bad=True).train_y) == 3


LOOSE = ("1.png", "2.png", "3.png", "4.png")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "file,label\n1.png,cat\n2.png,dog\n3.png,\n"),
        ("Labels.tsv", "label\tid\ncat\t1\ndog\t2\nNA\t3\n"),
        ("pets.csv", "id;age;Class;split\n./1.png;3;cat;train\n2;3;dog;\n3.png;4;?;train\n"),
        ("labels.csv", "1.png,cat\n2.png,dog\n"),  # without a header
        ("any.csv", "who,what\npets/1.png,cat\npets\\2.png,dog\n"),
        ("labels.csv", "file,label\n1.png,cat\n1.png,cat\n2.png,dog\n7.png,dog\n"),
    ],
)
@pytest.mark.parametrize("folder", ["", "images/", "a/b/"])
def test_a_table_of_labels(tmp_path: Path, name: str, text: str, folder: str) -> None:
    if "pets" in text:
        text = text.replace("pets/", f"pets/{folder}").replace("pets\\", f"pets\\{folder}")
    pets = make(tmp_path / "pets", *(folder + image for image in LOOSE))
    (pets / name).write_text(text)
    said = Messages()
    data = load(str(pets), report=said)
    assert data.spec.classes == ("cat", "dog")
    expected = {
        f"{folder}1.png": 0,
        f"{folder}2.png": 1,
        f"{folder}3.png": -1,
        f"{folder}4.png": -1,
    }
    assert parts(data)[0] == expected
    assert any(info.startswith(f"pets: labels by {name} (files in ") for info in said.infos)
    taken = [f"Taken as unlabeled in {name}: 1 '{word}'" for word in ("NA", "?") if word in text]
    assert [info for info in said.infos if "Taken" in info] == taken
    missing = [f"1 rows of {name} name files that are not there"] if "7.png" in text else []
    assert said.warnings == missing


def test_classes_that_are_also_names_of_files(tmp_path: Path) -> None:
    """Numbers of classes name files without their suffix; the column that names more is taken."""
    pets = make(tmp_path / "pets", *(f"{number}.png" for number in range(12)))
    rows = "".join(f"{number % 2 + 9},{number}\n" for number in range(12))
    (pets / "labels.csv").write_text("label,id\n" + rows)
    data = load(str(pets))
    assert data.spec.classes == ("9", "10")
    assert parts(data)[0]["3.png"] == 1


def test_the_column_of_classes_can_be_named(tmp_path: Path) -> None:
    pets = make(tmp_path / "pets", *LOOSE)
    (pets / "labels.csv").write_text("file,kind,owner\n1.png,cat,x\n2.png,dog,y\n")
    with pytest.raises(ValueError, match=r"'file' names the files; .*--target, one of kind, owner"):
        load(str(pets))
    assert load(str(pets), target="owner").spec.classes == ("x", "y")
    with pytest.raises(ValueError, match="has no column 'no', only file, kind, owner"):
        load(str(pets), target="no")


def test_a_table_divides_the_data(tmp_path: Path) -> None:
    pets = make(tmp_path / "pets", *LOOSE, "5.png", "6.png", "test/7.png", "test/8.png")
    (pets / "labels.csv").write_text(
        "file,label,split\n1.png,cat,train\n2.png,dog,Train\n3.png,cat,validation\n4.png,dog,test\n"
        "5.png,,test\n7.png,cat,\n"
    )
    said = Messages()
    train, test = parts(load(str(pets), report=said))
    assert train == {"1.png": 0, "3.png": 0, "test/7.png": 0, "2.png": 1, "6.png": -1}
    assert test == {"4.png": 1}
    assert said.infos[0].startswith("2 images of val/ or test/ have no class")
    (pets / "labels.csv").write_text("file,label\n1.png,cat\n2.png,dog\n7.png,cat\n")
    assert parts(load(str(pets)))[1] == {"test/7.png": 0}  # by its folder
    (pets / "labels.csv").write_text("file,label\n1.png,cat\n2.png,dog\n7.png,cow\n")
    with pytest.raises(ValueError, match="test: there is no class 'cow', only cat, dog"):
        load(str(pets))


def test_another_table_beside_folders_of_classes_is_a_stray_file(tmp_path: Path) -> None:
    pets = make(tmp_path / "pets", *CLASSES)
    (pets / "predictions.csv").write_text("file,row,class,probability\ncat/1.png,,dog,0.9\n")
    said = Messages()
    assert parts(load(str(pets), report=said))[0]["cat/1.png"] == 0
    assert said.infos[0] == "Left out 1 files that are no images: 1 .csv"
    (pets / "labels.csv").write_text("file,label\ncat/1.png,a\ndog/1.png,b\n")
    assert load(str(pets)).spec.classes == ("a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\nx.png,cat\n", "none of its columns names an image in"),
        ("file,label\n1.png,cat\nx.png,cat\ny.png,dog\n", "2 of 3 rows name .* such as 'x.png'"),
        ("file,label\n1.png,cat\n1.png,dog\n", "line 3: '1.png' has another row that differs"),
        ("file,label\n1.png,cat\n2.png,cat\n", "'label' must name two or more classes, got cat"),
        ("file\n1.png\n2.png\n", "--target, one of none"),
        ("file,label,split\n1.png,cat,x\n", "line 2: column 'split' must be one of train, val"),
        ("file,label\n5.png,cat\n", r"line 2: '5.png' may be \S*a/5.png or \S*b/5.png: write"),
        ("file,label\n1.png\n", "line 2: expected 2 cells"),
    ],
)
def test_tables_that_are_no_labels(tmp_path: Path, text: str, message: str) -> None:
    pets = make(tmp_path / "pets", *LOOSE, "a/5.png", "b/5.png")
    (pets / "labels.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"labels\.csv.*{message}"):
        load(str(pets))


def test_several_tables(tmp_path: Path) -> None:
    pets = make(tmp_path / "pets", *LOOSE)
    for name in ("a.csv", "b.tsv"):
        (pets / name).write_text("file,label\n1.png,cat\n2.png,dog\n")
    with pytest.raises(ValueError, match=r"several tables, a\.csv, b\.tsv: call the one with lab"):
        load(str(pets))


def test_what_stands_for_no_label() -> None:
    for text in ("", " ", "NA", "n/a", "NaN", "null", "None", "Unlabelled", "unknown", "?", "-1"):
        assert is_missing_label(text)
    for text in ("0", "1", "nano", "cat", "--"):
        assert not is_missing_label(text)


def pack(path: Path, folder: Path, inside: str = "") -> Path:
    """An archive of all files of a folder."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    names = [inside + str(file.relative_to(folder)) for file in files]
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, name in zip(files, names, strict=True):
                archive.write(file, name)
    else:
        with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as packed:
            for file, name in zip(files, names, strict=True):
                packed.add(file, name)
    return path


@pytest.mark.parametrize("name", ["photos.zip", "photos.tar", "photos.tar.gz", "Photos.TGZ"])
@pytest.mark.parametrize("inside", ["", "top/", "./"])
def test_archives(tmp_path: Path, cache: Path, name: str, inside: str) -> None:
    own_folder(tmp_path / "all", labeled=3, unlabeled=2, test=1)
    save(tmp_path / "all/__MACOSX/dark/0.png")
    path = pack(tmp_path / name, tmp_path / "all", inside)
    folder = load(str(tmp_path / "all"))
    data = load(str(path))
    assert find_kind(str(path)) == "images"
    assert data.name.lower() == "photos"
    assert data.spec == folder.spec
    assert data.fingerprint == folder.fingerprint
    assert data.train_names == folder.train_names
    places = [
        place
        for samples in read_samples([path], data.spec, skip_bad=False, report=Messages())
        for place, _ in samples.places
    ]
    assert len(places) == 10
    assert places[0] == f"{path}/{inside.removeprefix('./')}dark/0.jpg"
    assert not list((cache / "cclp/unpacked").glob(".partial*"))


def test_a_tar_file_by_its_content(tmp_path: Path) -> None:
    """Programs that fetch a .tar.gz may unpack it, and keep the name."""
    pets = make(tmp_path / "pets", *CLASSES)
    pack(tmp_path / "a.tar", pets).rename(tmp_path / "b.tar.gz")
    assert len(load(str(tmp_path / "b.tar.gz")).train_y) == 3


def test_an_archive_is_unpacked_once_and_again_if_it_changes(tmp_path: Path, cache: Path) -> None:
    pets = make(tmp_path / "pets", *CLASSES)
    path = pack(tmp_path / "pets.zip", pets)
    place = cache / "cclp" / "unpacked"
    before = set(place.iterdir()) if place.is_dir() else set()
    first = load(str(path))
    (folder,) = set(place.iterdir()) - before
    made = folder.stat().st_mtime_ns
    assert load(str(path)).fingerprint == first.fingerprint
    assert folder.stat().st_mtime_ns == made
    save(pets / "dog/2.png", 200)
    pack(path, pets)
    assert len(load(str(path)).train_y) == 4
    assert not folder.exists()


def tar_of(*members: tuple[str, bytes, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            member.size = 4 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"evil") if member.size else None)
    return content.getvalue()


def zip_of(name: str, mode: int = 0) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, b"evil")
    return content.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tar", tar_of(("../evil.png", tarfile.REGTYPE, "")), "outside of its folder"),
        ("a.tar", tar_of(("a/../../evil.png", tarfile.REGTYPE, "")), "outside of its folder"),
        ("a.tar", tar_of(("/evil.png", tarfile.REGTYPE, "")), "outside of its folder"),
        ("a.tar", tar_of(("evil.png", tarfile.SYMTYPE, "/etc/passwd")), "a link or device"),
        ("a.tar", tar_of(("evil.png", tarfile.LNKTYPE, "/etc/passwd")), "a link or device"),
        ("a.tar", tar_of(("evil.png", tarfile.FIFOTYPE, "")), "a link or device"),
        ("a.tar", tar_of(("a", b"0", ""), ("a/b.png", b"0", "")), "cannot be a file"),
        ("a.tar", tar_of(("x" * 300, b"0", "")), "cannot be a file"),
        ("a.zip", zip_of("../evil.png"), "outside of its folder"),
        ("a.zip", zip_of("..\\evil.png"), "outside of its folder"),
        ("a.zip", zip_of("C:\\evil.png"), "outside of its folder"),
        ("a.zip", zip_of("/evil.png"), "outside of its folder"),
        ("a.zip", zip_of("evil.png", stat.S_IFLNK | 0o777), "a link or device"),
        ("a.zip", b"PK nothing", "File is not a zip file"),
        ("a.tar.gz", b"nothing", r"a\.tar\.gz cannot be unpacked"),
        ("a.tar", b"nothing", "a.tar cannot be unpacked"),
        ("a.zip", zip_of("evil.txt"), "two or more classes, or a table of labels, got none"),
    ],
)
def test_archives_that_are_refused(
    tmp_path: Path, cache: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / name))
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]
    assert not list((cache / "cclp").rglob("evil.png"))
    assert not list((cache / "cclp" / "unpacked").glob(".partial*"))


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
@pytest.mark.parametrize("count", [1, 40])
def test_archives_that_unpack_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    (tmp_path / "all").mkdir()
    for number in range(count):  # one large file, or many that are empty
        (tmp_path / "all" / f"{number}.png").write_bytes(bytes(100_001 if count == 1 else 0))
    path = pack(tmp_path / name, tmp_path / "all")
    monkeypatch.setattr("cclp.data.budget.unpack_limit", lambda packed: 100_000)
    with pytest.raises(
        ValueError, match=r"a\.\S* cannot be unpacked: it unpacks to more than 100,"
    ):
        load(str(path))


def test_archives_for_which_the_disk_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pack(tmp_path / "a.zip", make(tmp_path / "pets", *CLASSES))
    usage = type("Usage", (), {"free": 5000})
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    with pytest.raises(ValueError, match="it unpacks to more than the 5,000 bytes that are free"):
        load(str(path))


def deep(root: Path, write: Callable[[Path, Any], object], suffix: str = ".tif") -> Path:
    """Two classes of images, of 12 bits: from 87 to 4095."""
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(3):
            pixels = rng.integers(87, 4096, (16, 16))
            pixels[0, :2] = 87, 4095
            write(root / name / f"{number}{suffix}", pixels)
    return root


def write_16(path: Path, pixels: Any) -> None:
    Image.fromarray(pixels.astype(np.uint16)).save(path)


def write_32(path: Path, pixels: Any) -> None:
    Image.fromarray(pixels.astype(np.int32)).save(path)


def write_unsigned(path: Path, pixels: Any) -> None:
    tifffile.imwrite(path, pixels.astype(np.uint32))


def write_real(path: Path, pixels: Any) -> None:
    Image.fromarray(pixels.astype(np.float32)).save(path)


def write_double(path: Path, pixels: Any) -> None:
    tifffile.imwrite(path, pixels.astype(np.float64))


@pytest.mark.parametrize(
    ("write", "suffix", "kind"),
    [
        (write_16, ".tif", "16-bit images"),
        (write_16, ".png", "16-bit images"),
        (write_32, ".tif", "32-bit images"),
        (write_unsigned, ".tif", "32-bit images"),
        (write_real, ".tif", "Images of real numbers"),
        (write_double, ".tif", "Images of real numbers"),
    ],
)
def test_deep_images_are_scaled_by_their_range(
    tmp_path: Path, write: Callable[[Path, Any], object], suffix: str, kind: str
) -> None:
    root = deep(tmp_path / "deep", write, suffix)
    said = Messages()
    data = load(str(root), image_size=16, report=said)
    assert data.spec.pixel_range == (87.0, 4095.0)
    assert f"{kind}: 87 … 4095 becomes 0 … 255" in said.infos
    first = np.random.default_rng(0).integers(87, 4096, (16, 16))
    first[0, :2] = 87, 4095
    expected = np.rint((first - 87) * 255 / (4095 - 87))
    np.testing.assert_array_equal(data.train_x[0, 0], expected)
    assert InputSpec.from_json(data.spec.to_json()) == data.spec
    # A new image has the same scale, whatever it holds itself.
    write(tmp_path / f"new{suffix}", np.full((16, 16), 2091))
    ((_, x),) = read_samples(
        [tmp_path / f"new{suffix}"], data.spec, skip_bad=False, report=Messages()
    )
    assert x.min() == x.max() == round((2091 - 87) * 255 / 4008)
    assert load(str(root), image_size=16, spec=data.spec).fingerprint == data.fingerprint


def test_unsigned_numbers_beyond_the_signed_ones(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", np.array([[0, 2**32 - 1]], np.uint32))
    x = decode(tmp_path / "a.tif", (1, 1, 2), pixel_range=(0.0, 2.0**32 - 1))
    assert x.tolist() == [[[0, 255]]]


def test_records_without_a_range() -> None:
    spec = InputSpec(("a", "b"), (1, 8, 8))
    recorded = spec.to_json()
    assert recorded.pop("pixel_range") is None
    assert InputSpec.from_json(recorded) == spec
    for wrong in ([1, 1], [2, 1], [0, float("inf")], [0], 3):
        with pytest.raises((ValueError, TypeError)):
            InputSpec.from_json({**recorded, "pixel_range": wrong})


def test_the_range_is_robust(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(100, 4001, (200, 200)) for _ in range(3)]
    assert find_range(images) == (100.0, 4000.0)
    images[0][0, 0] = 65535  # one hot pixel
    low, high = find_range(images) or (0, 0)
    assert low == 100.0
    assert 3980 < high <= 4000
    assert find_range([np.full((4, 4), 7)]) == (7.0, 14.0)
    assert find_range([np.full((4, 4), np.nan)]) is None
    assert find_range([]) is None
    assert find_range([np.full((4, 4), np.nan), np.array([[0.25, 0.5]])]) == (0.25, 0.5)


def test_images_of_different_depths(tmp_path: Path) -> None:
    root = make(tmp_path / "mixed", *CLASSES)
    Image.fromarray(np.full((9, 9), 65535, np.uint16)).save(root / "dog/deep.png")
    said = Messages()
    data = load(str(root), report=said)
    assert data.spec.pixel_range is None
    assert data.train_x[-1].min() == 255
    assert any("different depths (1 16-bit, 3 8-bit)" in text for text in said.infos)


def test_eight_bits_for_a_run_on_deep_images(tmp_path: Path) -> None:
    spec = InputSpec(("a", "b"), (1, 8, 8), pixel_range=(87.0, 4095.0))
    with pytest.raises(ValueError, match="8-bit pixels, expected a scale from 87 to 4095"):
        list(read_samples([save(tmp_path / "a.png")], spec, skip_bad=False, report=Messages()))


def test_pixels_that_are_not_finite(tmp_path: Path) -> None:
    root = deep(tmp_path / "deep", write_real)
    write_real(root / "cat/9.tif", np.full((8, 8), np.nan))
    with pytest.raises(ValueError, match=r"1 of 7 images .*9\.tif \(.*pixels are not finite"):
        load(str(root))
    assert load(str(root), skip_bad=True).spec.pixel_range == (87.0, 4095.0)


def test_the_first_page_is_used(tmp_path: Path) -> None:
    for name, level in (("cat", 0), ("dog", 100)):
        (tmp_path / "stacks" / name).mkdir(parents=True)
        pages = [Image.fromarray(np.full((9, 9), level + k, np.uint8)) for k in range(3)]
        pages[0].save(tmp_path / "stacks" / name / "1.tif", save_all=True, append_images=pages[1:])
    said = Messages()
    data = load(str(tmp_path / "stacks"), report=said)
    assert data.train_x[:, 0, 0, 0].tolist() == [0, 100]
    assert said.infos[-1] == "2 TIFF files have more than one page: the first is used"


@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [2, 5])
def test_channels_of_tiff_files(tmp_path: Path, planar: Any, dtype: Any, channels: int) -> None:
    levels = np.array([10, 20, 30, 40, 50], dtype)[:channels]
    pixels = np.broadcast_to(levels, (9, 9, channels))
    if planar == "separate":
        pixels = np.moveaxis(pixels, -1, 0)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, pixels, photometric="minisblack", planarconfig=planar)
    header = images.read_header(path)
    assert header is not None
    assert header.grey == (channels == 2)
    assert (header.width, header.height) == (9, 9)
    assert header.depth == ("8-bit" if dtype == np.uint8 else "16-bit")
    x = decode(path, (3, 4, 4), pixel_range=None if dtype == np.uint8 else (0.0, 255.0))
    assert x[:, 0, 0].tolist() == ([10, 10, 10] if channels == 2 else [10, 20, 30])


def test_colour_of_16_bits(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    pixels = np.broadcast_to(np.array([0, 1000, 4000], np.uint16), (9, 9, 3))
    tifffile.imwrite(path, pixels, photometric="rgb")
    header = images.read_header(path)
    assert header is not None
    assert (header.depth, header.grey) == ("16-bit", False)
    assert decode(path, (3, 4, 4), pixel_range=(0.0, 4000.0))[:, 0, 0].tolist() == [0, 64, 255]


def test_without_tifffile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((9, 9, 2)), photometric="minisblack", planarconfig="contig")
    monkeypatch.setitem(sys.modules, "tifffile", None)
    ((_, _, (bad,)),) = images.decode_all([path], (3, 8, 8))
    assert "pip install 'cclp[tiff]' reads more kinds" in bad.reason


def test_large_images_are_said_to_lose_detail(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "large" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((96, 130), np.uint8)).save(tmp_path / "large" / name / "1.png")
    for size, more in ((None, ": 64 keeps more detail, in four times the time"), (48, "")):
        said = Messages()
        load(str(tmp_path / "large"), image_size=size, report=said)
        side = size or 32
        assert said.infos[-1] == (
            f"Images of about 130 x 96, resized to {side} x {side}; --image-size changes it{more}"
        )


def test_images_are_looked_at_once(tmp_path: Path, cache: Path) -> None:
    root = deep(tmp_path / "deep", write_16)
    place = cache / "cclp" / "decoded"
    before = set(place.glob("*.json"))
    first = load(str(root))
    for record in set(place.glob("*.json")) - before:
        text = record.read_text()
        if "depths" in text:
            record.write_text(text.replace("4095", "4000"))
            assert load(str(root)).spec.pixel_range == (87.0, 4000.0)  # as it is recorded
            record.write_text(text.replace("4095", '"x"'))
            assert load(str(root)).spec == first.spec
            assert record.read_text() == text
            break
    else:
        raise AssertionError("no record of the images")


def test_a_run_on_an_archive_of_deep_images(tmp_path: Path) -> None:
    root = deep(tmp_path / "scans", write_16)
    path, run = pack(tmp_path / "scans.zip", root), tmp_path / "run"
    few = ["--quiet", "--max-steps", "4", "--per-class", "1", "--unlabeled-batch", "4"]
    assert call("train", str(path), *few, "--image-size", "8", "--out", str(run)) == 0
    assert open_run(run).spec.pixel_range == (87.0, 4095.0)
    found = evaluate(run, str(root))
    assert (found.data, found.confusion.sum()) == ("scans", 6)
    names = [prediction.file for prediction in predict(run, [path, root / "cat/0.tif"])]
    inside = [f"{path}/{name}/{number}.tif" for name in ("cat", "dog") for number in range(3)]
    assert names == [*inside, str(root / "cat/0.tif")]
    export(run, tmp_path / "out", "safetensors")
    assert "(pixels of the files from 87 to 4095)" in (tmp_path / "out/README.md").read_text()


def test_a_link_to_the_folder_above_adds_nothing(tmp_path: Path) -> None:
    """Else images of dogs would be cats."""
    root = make(tmp_path / "pets", *CLASSES)
    plain = load(str(root))
    (root / "cat" / "all").symlink_to(root)
    (root / "cat" / "up").symlink_to("..")
    linked = load(str(root))
    assert linked.train_names == plain.train_names
    assert linked.train_y.tolist() == plain.train_y.tolist()


def test_a_folder_of_two_classes_is_refused(tmp_path: Path) -> None:
    root = make(tmp_path / "pets", *CLASSES)
    (root / "cat" / "more").symlink_to(root / "dog")
    with pytest.raises(ValueError, match="link: the same images would be of class 'cat' and"):
        load(str(root))


def test_a_link_to_an_image_of_another_class_is_refused(tmp_path: Path) -> None:
    root = make(tmp_path / "pets", *CLASSES)
    dog = min((root / "dog").iterdir())
    (root / "cat" / "more.png").symlink_to(dog)
    with pytest.raises(ValueError, match="link: the same images would be of class 'dog' and"):
        load(str(root))


def test_an_image_that_two_classes_link_to_is_refused(tmp_path: Path) -> None:
    root = make(tmp_path / "pets", *CLASSES)
    make(tmp_path / "pool", "1.png", "2.png")
    (root / "cat" / "more.png").symlink_to(tmp_path / "pool" / "1.png")
    (root / "dog" / "more.png").symlink_to(tmp_path / "pool" / "2.png")
    before = len(load(str(root)).train_y)
    (root / "dog" / "again.png").symlink_to(tmp_path / "pool" / "1.png")
    with pytest.raises(ValueError, match="link: the same images would be of class 'cat' and"):
        load(str(root))
    assert before == len(CLASSES) + 2


def test_two_spellings_of_a_letter_are_one_class(tmp_path: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert composed != decomposed
    root = make(tmp_path / "places", f"{composed}/1.png", f"{decomposed}/2.png", "bar/3.png")
    found = load(str(root))
    assert found.spec.classes == ("bar", composed)
    assert found.train_y.tolist() == [0, 1, 1]
    old = replace(found.spec, classes=("bar", decomposed))
    again = load(str(root), spec=old)
    assert again.train_y.tolist() == [0, 1, 1]


def test_labels_name_files_in_another_spelling(tmp_path: Path) -> None:
    root = make(tmp_path / "places", "cafe\u0301.png", "b.png", "c.png")
    (root / "labels.csv").write_text("file,label\ncaf\u00e9.png,x\nb.png,x\u0301\nc.png,x\u0301\n")
    assert sorted(load(str(root)).train_y.tolist()) == [0, 1, 1]


def test_names_of_classes_that_are_no_text_become_text(tmp_path: Path) -> None:
    root = make(tmp_path / "pets", "dog/1.png", "dog/2.png")
    latin = os.fsencode(root) + b"/caf\xe9"
    os.mkdir(latin)
    shutil.copy(os.fsencode(root / "dog" / "1.png"), latin + b"/\xff.png")
    found = load(str(root))
    assert found.spec.classes == ("caf\\xe9", "dog")
    json.dumps(found.spec.to_json(), ensure_ascii=False).encode()
