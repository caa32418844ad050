"""A trained network put to use: evaluate, predict, report; a user's own code."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load as load_tensors

from cclp.commands.configure import make_config
from cclp.data.load import load
from cclp.methods import METHODS
from cclp.runs.inference import evaluate, open_run, predict
from cclp.runs.start import Stopped, resume, train
from tests.command_line import call
from tests.runs import (
    Messages,
    assert_same_run,
    last_weights,
    own_folder,
    own_table,
    png,
    stop_after,
    tiny_config,
)

FAST = ["--quiet", "--max-steps", "4", "--per-class", "2", "--unlabeled-batch", "8", "--seed", "5"]

MINE = """
from pathlib import Path
import torch
from torch import nn
from cclp.methods.base import Method

Path(__file__).with_name("imported").touch()

class Net(nn.Module):
    def __init__(self, size, num_classes):
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(size, 4), nn.Tanh())
        self.classifier = nn.Linear(4, num_classes)

def make_net(shape, num_classes):
    return Net(torch.Size(shape).numel(), num_classes)

def make_list(shape, num_classes):
    return [shape, num_classes]

FIVE = 5

def make_none():
    return None

def make_broken(shape, num_classes):
    return Net(7, num_classes)

def make_wrong(shape, num_classes):
    return Net(torch.Size(shape).numel(), num_classes + 1)

class Spread(Method):
    def __init__(self, num_classes):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, step):
        self.calls += 1
        return {"spread": step.z_unlabeled.square().mean()}

class Other:
    def __init__(self, num_classes):
        pass
"""


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "digits"
    train(tiny_config(max_steps=40, evaluate_every=40, checkpoint_every=40), out)
    return out


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A user's folder of images, and a run on it."""
    folder = tmp_path_factory.mktemp("photos")
    data, run = own_folder(folder / "photos"), folder / "run"
    assert call("train", str(data), "--image-size", "8", "--out", str(run), *FAST) == 0
    return data, run


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with code of the user's, in which the user is."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_predictions_are_recorded(digits: Path) -> None:
    data = load("digits")
    result = json.loads((digits / "result.json").read_text())
    with np.load(digits / "predictions.npz") as found:
        np.testing.assert_array_equal(found["y"], data.test_y)
        wrong = found["predicted"] != found["y"]
        assert wrong.mean() == result["error"] > 0
        mistakes = found["mistakes"]
        assert len(mistakes) == min(24, wrong.sum())
        assert wrong[mistakes].all()
        confidence = found["probability"][mistakes]
        assert (np.diff(confidence) <= 0).all()
        assert confidence[-1] >= np.sort(found["probability"][wrong])[-24:].min()
        np.testing.assert_array_equal(found["mistake_inputs"], data.test_x[mistakes])
        assert found["mistake_names"][0] == f"test {mistakes[0]}"
        assert ((found["probability"] >= 0.1) & (found["probability"] <= 1)).all()


def test_evaluation_is_that_of_the_run(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads((digits / "result.json").read_text())
    found = evaluate(digits)
    assert found.error == result["error"]
    assert (found.data, found.source) == ("digits", "test")
    with np.load(digits / "predictions.npz") as recorded:
        for (y, predicted), count in np.ndenumerate(found.confusion):
            pairs = (recorded["y"] == y) & (recorded["predicted"] == predicted)
            assert count == pairs.sum()
    assert call("evaluate", str(digits), "digits") == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 11
    three = found.confusion[3]
    assert printed[3].startswith(f"3  {1 - three[3] / three.sum():7.2%} of {three.sum()} wrong")
    assert printed[-1] == f"error {result['error']:.2%} on 450 samples (digits, test set)"


def test_held_out_samples_are_found_again(tmp_path: Path) -> None:
    result = train(tiny_config(max_steps=2, held_out=100), tmp_path / "run")
    found = evaluate(tmp_path / "run")
    assert (found.error, found.confusion.sum()) == (result["error"], 100)
    assert (found.data, found.source) == ("digits", "held_out")


def test_image_files_are_predicted_as_their_pixels(digits: Path, tmp_path: Path) -> None:
    data = load("digits")
    folder = tmp_path / "images"
    folder.mkdir()
    for k in range(30):  # 0 … 16 as 0 … 255
        pixels = np.rint(data.test_x[k, 0] * (255 / 16)).astype(np.uint8)
        (folder / f"{k:02}.png").write_bytes(png(pixels))
    found = list(predict(digits, [folder, folder / "03.png"]))
    with np.load(digits / "predictions.npz") as recorded:
        expected = recorded["predicted"][:30]
        assert [int(p.label) for p in found[:30]] == expected.tolist()
        np.testing.assert_allclose(
            [p.probability for p in found[:30]], recorded["probability"][:30], rtol=1e-4
        )
    assert found[30] == found[3]
    assert found[3].file == str(folder / "03.png")
    assert found[3].row is None


def test_own_folder_from_training_to_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole path, as a user goes it."""
    photos, run, table = own_folder(tmp_path / "photos"), tmp_path / "run", tmp_path / "p.csv"
    arguments = ["train", str(photos), "--image-size", "8", "--out", str(run), *FAST]
    assert call(*arguments) == 0
    printed = capsys.readouterr().out
    assert "(cross-validation over the labels), cclp+graph_pseudo_label, 20 labels, 4" in printed
    about = json.loads((run / "config.json").read_text())
    assert about["command"].startswith(f"cclp train {photos} --image-size 8 --out")
    assert about["data"]["classes"] == ["dark", "light"]
    assert about["data"]["verified"] is None
    assert about["config"]["held_out"] == 0
    assert about["config"]["recipe"]["net"] == "small"

    assert call("evaluate", str(run), "--quiet") == 0
    assert "on 20 samples (photos, cross-validation over the labels)" in capsys.readouterr().out
    assert call("evaluate", str(run), str(photos), "--quiet") == 0
    assert "on 20 samples (photos, labeled samples)" in capsys.readouterr().out

    assert call("predict", str(run), str(photos / "unlabeled"), "--out", str(table)) == 0
    assert capsys.readouterr().out == f"10 predictions: {table}\n"
    rows = read(table)
    assert list(rows[0]) == ["file", "row", "class", "probability", "P(dark)", "P(light)"]
    for row in rows:
        each = [float(row[f"P({name})"]) for name in ("dark", "light")]
        assert abs(sum(each) - 1) < 2e-4
        assert row["probability"] == row[f"P({row['class']})"] == f"{max(each):.4f}"
    assert call("predict", str(run), str(photos / "unlabeled"), "--by-doubt") == 0
    doubt = [row["probability"] for row in csv.DictReader(capsys.readouterr().out.splitlines())]
    assert doubt == sorted(row["probability"] for row in rows)
    assert rows[0]["file"] == str(photos / "unlabeled" / "0.png")
    assert {row["class"] for row in rows} <= {"dark", "light"}
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)
    before = table.read_bytes()
    assert call("predict", str(run), str(photos / "dark"), "--out", str(table)) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert table.read_bytes() == before
    assert call("predict", str(run), str(photos), "--out", str(tmp_path / "no" / "p.csv")) == 2
    assert f"there is no folder {tmp_path}/no" in capsys.readouterr().err
    assert call("predict", str(run), str(photos / "dark" / "0.jpg")) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header == "file,row,class,probability,P(dark),P(light)"
    assert line.startswith(f"{photos}/dark/0.jpg,,")

    for _ in range(2):  # made again, it replaces itself
        assert call("report", str(run)) == 0
        assert capsys.readouterr().out == f"report: {run}/report.html\n"
    assert "photos" in (run / "report.html").read_text()
    mine = tmp_path / "precious.html"
    mine.write_text("<p>made with cclp report</p>")
    assert call("report", str(run), "--out", str(mine)) == 2
    assert mine.read_text() == "<p>made with cclp report</p>"


def test_bad_images_stop_a_prediction_unless_skipped(
    photos: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = photos
    shutil.copytree(data / "unlabeled", tmp_path / "new")
    (tmp_path / "new" / "x.png").write_text("nothing")
    capsys.readouterr()
    assert call("predict", str(run), str(tmp_path / "new")) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "1 of 11 images cannot be read" in output.err
    assert call("predict", str(run), str(tmp_path / "new"), "--skip-bad") == 0
    output = capsys.readouterr()
    assert output.out.count("\n") == 11
    assert "x.png" in output.err


def test_tables_and_arrays_from_training_to_prediction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_table(tmp_path / "t.csv")
    run = tmp_path / "run"
    arguments = ["train", str(tmp_path / "t.csv"), "--target", "kind", "--out", str(run), *FAST]
    assert call(*arguments) == 0
    assert "on 20 samples (cross-validation over the labels)," in capsys.readouterr().out
    (tmp_path / "new.csv").write_text("colour,amount\nred,0\nblue,6\nviolet,\n")
    assert call("predict", str(run), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p")) == 0
    rows = read(tmp_path / "p")
    assert [row["row"] for row in rows] == ["0", "1", "2"]
    assert [row["class"] for row in rows[:2]] == ["no", "yes"]
    assert call("report", str(run)) == 0

    data = load("digits")
    x, y = data.train_x[:200, 0] * 16.0, np.where(np.arange(200) % 3, -1, data.train_y[:200])
    np.savez(tmp_path / "a.npz", X=x, y=y, X_test=x[:9], y_test=data.train_y[:9])
    capsys.readouterr()
    assert call("train", str(tmp_path / "a.npz"), "--out", str(tmp_path / "b"), *FAST) == 0
    assert "on 9 samples (test set), cclp+graph_pseudo_label, 67 labels" in capsys.readouterr().out
    found = list(predict(tmp_path / "b", [tmp_path / "a.npz"]))
    assert [p.row for p in found] == list(range(200))
    with np.load(tmp_path / "b" / "predictions.npz") as recorded:
        assert [p.label for p in found[:9]] == [str(k) for k in recorded["predicted"]]
        assert "mistake_inputs" not in recorded


def test_nothing_to_measure_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_table(tmp_path / "t.csv")
    run = tmp_path / "run"
    arguments = ["train", str(tmp_path / "t.csv"), "--target", "kind", "--held-out", "0"]
    arguments += ["--method", "cclp"]
    assert call(*arguments, "--out", str(run), *FAST) == 0
    assert capsys.readouterr().out.startswith("error not measured, cclp, 20 labels, 4 steps")
    assert json.loads((run / "result.json").read_text())["error"] is None
    assert not (run / "predictions.npz").exists()
    assert resume(run)["error"] is None
    with pytest.raises(ValueError, match="has no labels to measure the error on"):
        evaluate(run)
    assert evaluate(run, str(tmp_path / "t.csv")).confusion.sum() == 20
    assert call("report", str(run)) == 0


def test_code_of_the_users_own(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_table(mine / "t.csv")
    run = mine / "run"
    code = ["--net", "mine:make_net", "--method", "mine:Spread"]
    arguments = ["train", "t.csv", "--target", "kind", "--out", str(run), *code, *FAST]
    assert call(*arguments) == 0
    assert (mine / "imported").exists()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["spread"] > 0
    result = json.loads((run / "result.json").read_text())
    shutil.rmtree(run / "checkpoint")
    (run / "result.json").unlink()
    (mine / "imported").unlink()
    capsys.readouterr()

    for command, missing in (
        (["train", "--resume", str(run)], "--method mine:Spread"),
        (["train", "--resume", str(run), *code[2:]], "--net mine:make_net"),
        (["evaluate", str(run)], "--net mine:make_net"),
        (["predict", str(run), "t.csv"], "--net mine:make_net"),
    ):
        assert call(*command) == 2
        said = capsys.readouterr().err
        assert "which is imported only if you name it again: add" in said
        assert missing in said
        assert said.count("\n") == 1
    assert call("report", str(run)) == 0  # needs no code
    assert not (mine / "imported").exists()

    assert call("train", "--resume", str(run), *code, "--quiet") == 0
    assert json.loads((run / "result.json").read_text())["error"] == result["error"]
    assert call("evaluate", str(run), "--net", "./mine.py:make_net", "--quiet") == 0
    assert call("predict", str(run), "t.csv", *code[:2]) == 0


def test_a_run_directory_cannot_name_code(mine: Path, digits: Path) -> None:
    """It may come from anyone."""
    shutil.copytree(digits, mine / "run")
    about = json.loads((mine / "run" / "config.json").read_text())
    about["config"]["recipe"]["net"] = "mine:make_net"
    about["config"]["method"] = "mine:Spread"
    (mine / "run" / "config.json").write_text(json.dumps(about))
    (mine / "run" / "result.json").unlink()
    for call_it in (resume, evaluate, open_run):
        with pytest.raises(ValueError, match="imported only if you name it again"):
            call_it(mine / "run")
    with pytest.raises(ValueError, match="imported only if you name it again"):
        list(predict(mine / "run", [mine]))
    assert not (mine / "imported").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--net mine:nothing", "mine.py has no function or class nothing"),
        ("--net mine:FIVE", "mine.py has no function or class FIVE"),
        ("--net sys:nothing", "sys has no function or class nothing"),
        ("--net mine:make_none", "net 'mine:make_none' failed: TypeError: make_none()"),
        ("--net mine:make_broken", "net 'mine:make_broken' failed: RuntimeError: "),
        ("--net leaves:make_net", "cannot be imported: SystemExit: 3"),
        ("--method mine:make_none", "method 'mine:make_none' failed: TypeError"),
        ("--net nowhere:make_net", "cannot be imported: ModuleNotFoundError"),
        ("--net mine:", "net must be 'my_file:name', got 'mine:'"),
        ("--net mlpp", "net must be one of mnist, svhn, cifar, "),
        ("--net mine:make_list", "must take (shape, num_classes) and give a torch.nn.Module"),
        ("--net mine:make_wrong", "logits (2, 10), got (2, 4) and (2, 11)"),
        ("--method mine:Other", "must be a subclass of cclp.methods.base.Method, got Other"),
        ("--method mine:Spread --chain-steps 2", "has no effect with --method mine:Spread"),
    ],
)
def test_code_that_does_not_fit(
    mine: Path, options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", "digits", *options.split(), "--out", "run", "--quiet") == 2
    assert message in capsys.readouterr().err
    assert not (mine / "run").exists()


def test_code_nobody_asked_for_is_refused(digits: Path) -> None:
    with pytest.raises(ValueError, match="--net mine:make_net has no effect: this run has net"):
        evaluate(digits, net="mine:make_net")


def test_runs_that_cannot_be_used(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a run directory"):
        evaluate(tmp_path)
    shutil.copytree(digits, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    with pytest.raises(ValueError, match="has no checkpoint yet"):
        evaluate(tmp_path / "run")
    about = json.loads((digits / "config.json").read_text())
    shutil.copytree(digits / "checkpoint", tmp_path / "run" / "checkpoint")
    about["data"]["classes"] = ["a", "b"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"config\.json has changed since checkpoint 40"):
        evaluate(tmp_path / "run")
    del about["data"]["classes"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="made by an older version"):
        evaluate(tmp_path / "run")


def test_data_that_do_not_fit_the_run(
    digits: Path, photos: tuple[Path, Path], tmp_path: Path
) -> None:
    data, run = photos
    with pytest.raises(ValueError, match=r"photos: there is no class 'dark', only 0, 1, 2"):
        evaluate(digits, str(data))
    with pytest.raises(ValueError, match=r"must have classes dark, light and .*\(3, 8, 8\) up to"):
        evaluate(run, "digits")
    other = own_folder(tmp_path / "other", labeled=3, unlabeled=0, test=2)
    found = evaluate(run, str(other))
    assert (found.data, found.source) == ("other", "test")
    shutil.rmtree(other / "light")  # a class may be missing
    shutil.rmtree(other / "test")
    assert evaluate(run, str(other)).confusion.sum(1).tolist() == [3, 0]


def test_evaluation_wants_the_data_the_run_began_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = own_folder(tmp_path / "photos"), tmp_path / "run"
    options = ["--image-size", "8", "--method", "cclp+graph_pseudo_label", *FAST]
    assert call("train", str(data), "--out", str(run), *options) == 0
    expected = evaluate(run).error
    moved = data.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"photos is not there: if it has moved, add --data-dir"):
        evaluate(run)
    assert evaluate(run, data_dir=moved).error == expected
    (run / "result.json").unlink()
    assert call("train", "--resume", str(run), "--data-dir", str(moved), "--quiet") == 0
    capsys.readouterr()
    assert call("evaluate", str(run), "--target", "kind") == 2
    assert "--target has no effect without DATA" in capsys.readouterr().err
    (moved / "dark" / "0.jpg").unlink()
    with pytest.raises(ValueError, match="moved has changed since the run began"):
        evaluate(run, data_dir=moved)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("data",), None), (("data", "white"), "a"), (("data", "white"), 0),
        (("data", "shape"), [-1]), (("config", "data_dir"), 5), (("config", "verify"), "yes"),
        (("config", "method"), []), (("config", "data"), 3), (("config", "recipe", "net"), None),
    ],
)  # fmt: skip
def test_a_damaged_configuration_is_one_line(
    digits: Path,
    tmp_path: Path,
    where: tuple[str, ...],
    value: object,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(digits, tmp_path / "run")
    about = json.loads((digits / "config.json").read_text())
    inner = about
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = value
    (tmp_path / "run" / "config.json").write_text(json.dumps(about))
    for command in ("evaluate", "predict"):
        assert (
            call(command, str(tmp_path / "run"), *(["x.png"] if command == "predict" else [])) == 2
        )
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert str(tmp_path / "run") in said


def test_own_data_train_bit_for_bit_after_a_stop(tmp_path: Path) -> None:
    photos = own_folder(tmp_path / "photos")
    config = make_config(str(photos), image_size=8, max_steps=4, per_class=2, unlabeled_batch=4)
    with pytest.raises(Stopped):
        train(config, tmp_path / "stopped", should_stop=stop_after(2))
    resume(tmp_path / "stopped", Messages())
    train(config, tmp_path / "whole")
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")


@pytest.mark.parametrize("method", [*METHODS, "cclp+vat", "cclp+mean_teacher+entropy"])
def test_every_method_trains_resumes_bit_for_bit_and_is_evaluated_as_it_was(
    method: str, tmp_path: Path
) -> None:
    config = tiny_config(max_steps=3, method=method, evaluate_every=3)
    with pytest.raises(Stopped):
        train(config, tmp_path / "stopped", should_stop=stop_after(2))
    resume(tmp_path / "stopped", Messages())
    whole = train(config, tmp_path / "whole")
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    assert whole["error"] == evaluate(tmp_path / "whole").error
    saved = load_tensors(last_weights(tmp_path / "whole"))
    assert ("objective.methods.1.teacher.classifier.1.weight" in saved) == (
        method == "mean_teacher"
    )


def test_weights_reach_the_methods(tmp_path: Path) -> None:
    terms = []
    for weight in (1.0, 0.5):
        config = tiny_config(
            max_steps=1,
            method="entropy+cclp",
            settings={"entropy": {"weight": weight}, "cclp": {"weight": 2 * weight}},
        )
        train(config, tmp_path / str(weight))
        line = json.loads((tmp_path / str(weight) / "metrics.jsonl").read_text().splitlines()[0])
        terms.append((line["entropy"], line["cclp"]))
    for one, half in zip(*terms, strict=True):
        assert half == pytest.approx(one / 2, rel=1e-5)


def test_settings_reach_the_methods_from_the_command_line(tmp_path: Path) -> None:
    """VAT + Ent, and a CCLP of the paper's footnote."""
    given = "--method vat+cclp --setting vat.entropy=0.1 --setting cclp.propagation=symmetric"
    given += " --setting cclp.detach_posteriors=false --setting cclp.chain_steps=2"
    assert call("train", "digits", *given.split(), "--out", str(tmp_path / "run"), *FAST) == 0
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["vat_entropy"] > 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert config["settings"] == {
        "vat": {"entropy": 0.1},
        "cclp": {"propagation": "symmetric", "detach_posteriors": False, "chain_steps": 2},
    }


def test_a_users_augmentation_is_a_method_of_three_lines(tmp_path: Path) -> None:
    """As the README shows it."""
    own = tmp_path / "mine.py"
    own.write_text(
        "from cclp.methods.pi_model import PiModel\n"
        "class Mine(PiModel):\n"
        "    def __init__(self, num_classes, weight=30.0):\n"
        "        super().__init__(num_classes, weight, augment=lambda x: x.flip(-1))\n"
    )
    found = []
    for number, method in enumerate((f"{own}:Mine", "pi_model")):
        out = tmp_path / str(number)
        assert call("train", "digits", "--method", method, "--out", str(out), *FAST) == 0
        found.append(json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["pi_model"])
    assert found[0] > found[1] > 0


def test_the_example_of_an_own_method(tmp_path: Path) -> None:
    """examples/own_method.py, as its first line says."""
    own = Path(__file__).parents[1] / "examples" / "own_method.py"
    arguments = ["train", "digits", "--method", f"{own}:Neighbours", "--weight", "0.3"]
    assert call(*arguments, "--out", str(tmp_path / "run"), *FAST) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["neighbours"] > 0
