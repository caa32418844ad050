"""labels.csv of ``cclp label``: written, read, trained on."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cclp.data.load import load
from cclp.data.user.label_file import (
    Decided,
    read_label_file,
    sample_keys,
    with_label_file,
    write_rows,
)
from cclp.data.user.load import load_user_data
from cclp.runs.record import read_config
from cclp.sklearn import labels_from
from tests.command_line import call

ROWS = [
    Decided("0", "cat", "person"),
    Decided("1", "dog", "page"),
    Decided("2", "", "person"),
    Decided("3", "dog", "propagated", 0.75),
    Decided("4", 'a "b", c', "data"),
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "labels.csv").write_bytes(write_rows(ROWS))
    return tmp_path / "labels.csv"


def test_what_is_written_is_read(table: Path) -> None:
    found = read_label_file(table, propagated=True)
    assert [row._replace(probability=None) for row in ROWS] == found
    assert [row.sample for row in read_label_file(table)] == ["0", "1", "2", "4"]
    assert "3,dog,propagated,0.7500" in table.read_text()


def test_the_estimators_read_it(table: Path) -> None:
    assert labels_from(table, 5).tolist() == ["cat", "dog", None, None, 'a "b", c']
    assert labels_from(table, 5, propagated=True).tolist()[3] == "dog"
    with pytest.raises(ValueError, match="label of '4'"):
        labels_from(table, 4)
    names = ["x/0", "1", "2", "3", "4"]
    with pytest.raises(ValueError, match="label of '0'"):
        labels_from(table, names)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("file,class\n1,cat\n", "columns 'sample' and 'class'"),
        ("sample,class,who\n1,cat,me\n", "line 2: column 'who' must be one of"),
        ("sample,class\n1,cat\n1,dog\n", "line 3: '1' has another row"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "bad.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_label_file(tmp_path / "bad.csv")


def test_its_labels_replace_those_of_the_data(tmp_path: Path) -> None:
    data = load("digits")
    keys = sample_keys(data)
    assert keys[:3] == ["0", "1", "2"]
    rows = [Decided(keys[i], str(data.train_y[i]), "person") for i in range(60)]
    (tmp_path / "labels.csv").write_bytes(write_rows(rows))
    found = with_label_file(data, tmp_path / "labels.csv")
    assert found.train_y[:60].tolist() == data.train_y[:60].tolist()
    assert (found.train_y[60:] == -1).all()
    assert found.spec.classes == data.spec.classes
    assert (found.test_y == data.test_y).all()
    (tmp_path / "labels.csv").write_bytes(write_rows([*rows, Decided("9999", "1", "person")]))
    with pytest.raises(ValueError, match="1 of 61 labels are of samples that digits has not"):
        with_label_file(data, tmp_path / "labels.csv")
    (tmp_path / "labels.csv").write_bytes(write_rows(rows[:2]))
    with pytest.raises(ValueError, match="no label of"):
        with_label_file(data, tmp_path / "labels.csv")


def test_data_need_no_labels_if_nobody_asks_for_them(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    np.savez(tmp_path / "x.npz", X=x)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.csv").write_text("a,b\n" + "\n".join(f"{i},{i % 3}" for i in range(30)))
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(3):
        Image.new("L", (20, 20), 80 * number).save(folder / f"{number}.png")
    for name, count in (("x.npz", 40), ("x.npy", 40), ("x.csv", 30), ("images", 3)):
        with pytest.raises(ValueError, match=r"no y|must|name the column|no file"):
            load_user_data(tmp_path / name)
        data = load_user_data(tmp_path / name, needs_labels=False)
        assert len(data.train_x) == count
        assert (data.train_y == -1).all()
        assert data.spec.classes == ()
    np.savez(tmp_path / "bad.npz", Z=x)
    with pytest.raises(ValueError, match="must hold X"):
        load_user_data(tmp_path / "bad.npz", needs_labels=False)


def test_labels_in_the_data_are_still_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.eye(4), y=["a", "b", "", ""])
    assert load_user_data(tmp_path / "x.npz", needs_labels=False).train_y.tolist() == [0, 1, -1, -1]


def test_a_network_is_trained_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4)) + 6 * (np.arange(200) % 2)[:, None]
    np.savez(tmp_path / "x.npz", X=x)
    rows = [Decided(str(i), "ab"[i % 2], "person") for i in range(20)]
    (tmp_path / "labels.csv").write_bytes(write_rows(rows))
    arguments = [
        "train", str(tmp_path / "x.npz"), "--labels-from", str(tmp_path / "labels.csv"),
        "--method", "cclp+graph_pseudo_label", "--max-steps", "10", "--quiet",
        "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    assert call(*arguments) == 0
    _, config = read_config(tmp_path / "run")
    assert config.labels_from == str(tmp_path / "labels.csv")
    assert config.num_labels is None
    (tmp_path / "labels.csv").write_bytes(write_rows(rows[:-2]))
    capsys.readouterr()
    assert call("evaluate", str(tmp_path / "run")) == 2
    assert "has changed since the run began" in capsys.readouterr().err
