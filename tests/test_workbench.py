"""The workbench of ``cclp label``: what the page asks and does, without a page."""

import csv
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from cclp.labelling.decisions import Stale
from cclp.labelling.source import Source
from cclp.labelling.workbench import Workbench
from tests import children

X, Y = load_digits(return_X_y=True)
X, Y = X[:300], Y[:300]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images without folders of classes; their names do not tell the class."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, pixels in enumerate(X[:120]):
        image = Image.fromarray((pixels.reshape(8, 8) * 15).astype(np.uint8)).resize((40, 48))
        image.save(folder / f"{number:03}.png")
    return folder


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """An array of samples without labels."""
    np.savez(tmp_path / "digits.npz", X=X)
    return tmp_path / "digits.npz"


def opened(path: Path, **options: Any) -> Workbench:
    source = Source.open(str(path), **options)
    bench = Workbench(source, source.folder)
    bench.wait()
    return bench


@pytest.fixture
def bench(digits: Path) -> Iterator[Workbench]:
    found = opened(digits)
    yield found
    found.close()


def answer(bench: Workbench, count: int) -> dict[str, Any]:
    """Answer questions with the truth; the state then."""
    state = bench.state()
    for _ in range(count):
        (question,) = bench.questions(1)
        name = str(Y[question["sample"]])
        known = {c["name"]: c["id"] for c in state["classes"]}
        if name not in known:
            state = bench.add_class(state["version"], name)
            known[name] = state["classes"][-1]["id"]
        decision = {"sample": question["sample"], "class": known[name]}
        state = bench.decide(state["version"], [decision])
    return state


def test_from_no_label_to_nearly_all(bench: Workbench) -> None:
    state = bench.state()
    assert (state["phase"], state["total"], state["kind"]) == ("ready", 300, "vectors")
    assert (state["labeled"], state["advice"]["kind"]) == (0, "begin")
    assert bench.questions(1)[0]["why"] == "typical"
    state = answer(bench, 40)
    assert state["labeled"] == 40
    pairs = np.frombuffer(bench.beliefs(), np.uint8).reshape(-1, 2)
    names = {c["id"]: c["name"] for c in state["classes"]}
    found = np.array([int(names[c]) for c in pairs[:, 0]])
    assert (found == Y).mean() > 0.93
    assert sum(c["propagated"] for c in state["classes"]) == 260
    assert sum(c["count"] for c in state["classes"]) == 40
    assert all(c["key"] == c["name"] for c in state["classes"])  # a class named 3 has key 3
    assert [line[0] for line in state["history"]] == list(range(41))
    low, high = state["expected"]["low"], state["expected"]["high"]
    assert low < (found != Y).mean() < high
    question, other = bench.questions(2)  # every fourth is drawn at random
    assert (question["why"], other["why"]) == ("drawn", "influential")
    assert len(question["probabilities"]) == 10
    assert question["nearest"][0]["class"] == int(np.argmax(question["probabilities"]))


def test_questions_are_different_and_open(bench: Workbench) -> None:
    state = answer(bench, 5)
    asked = [question["sample"] for question in bench.questions(8)]
    assert len(set(asked)) == 8
    given = np.frombuffer(bench.given(), np.uint8)
    assert (given[asked] == 255).all()
    assert bench.questions(1, exclude=asked[:2])[0]["sample"] not in asked[:2]
    state = bench.decide(state["version"], [{"sample": asked[0], "class": "not_sure"}])
    assert state["not_sure"] == 1
    assert bench.questions(1)[0]["sample"] != asked[0]
    assert np.frombuffer(bench.given(), np.uint8)[asked[0]] == 254


def test_only_answers_about_drawn_samples_count_as_such(bench: Workbench) -> None:
    state = answer(bench, 12)
    question = bench.questions(1)[0]
    assert question["why"] == "drawn"
    number, sample = state["classes"][0]["id"], question["sample"]
    other = next(i for i in range(300) if i != sample and bench.sample(i)["given"] is None)
    both = [{"sample": i, "class": number} for i in (sample, other)]
    state = bench.decide(state["version"], both)  # of a page
    assert "drawn" not in journal(bench)
    state = bench.undo(state["version"])
    bench.decide(state["version"], both[:1])
    assert journal(bench).count('"drawn":true') == 1


def journal(bench: Workbench) -> str:
    return (bench.folder / "decisions.jsonl").read_text()


def test_undo_brings_the_beliefs_back(bench: Workbench) -> None:
    state = answer(bench, 12)
    bench.wait()
    before = np.frombuffer(bench.beliefs(), np.uint8).reshape(-1, 2)[:, 0]
    history = len(state["history"])
    state = answer(bench, 3)
    while state["labeled"] > 12:
        state = bench.undo(state["version"])
    bench.wait()
    after = np.frombuffer(bench.beliefs(), np.uint8).reshape(-1, 2)[:, 0]
    assert (before == after).mean() > 0.99
    assert len(state["history"]) >= history
    assert bench.redo(state["version"])["labeled"] == 13


def test_it_goes_on_where_it_was(digits: Path) -> None:
    bench = opened(digits)
    state = answer(bench, 6)
    beliefs = bench.beliefs()
    bench.close()
    again = opened(digits)
    found = again.state()
    for key in ("version", "labeled", "can_undo"):
        assert found[key] == state[key], key
    assert len(found["history"]) == len(state["history"]) == 7
    assert [c["name"] for c in found["classes"]] == [c["name"] for c in state["classes"]]
    same = np.frombuffer(again.beliefs(), np.uint8) == np.frombuffer(beliefs, np.uint8)
    assert same.mean() > 0.97
    again.close()


def test_a_page_of_believed_samples(bench: Workbench) -> None:
    state = answer(bench, 20)
    number = state["classes"][0]["id"]
    page = bench.believed(number, 9)
    sure = [each["probability"] for each in page]
    assert sure == sorted(sure, reverse=True)
    assert bench.believed(number, 3, skip=3) == page[3:6]
    decisions = [{"sample": each["sample"], "class": number} for each in page]
    state = bench.decide(state["version"], decisions)
    assert state["labeled"] == 20 + len(page)
    rows = exported(bench)
    assert {row["who"] for row in rows} == {"person", "page", "propagated"}
    assert sum(row["who"] == "page" for row in rows) == len(page)
    assert bench.undo(state["version"])["labeled"] == 20


def exported(bench: Workbench) -> list[dict[str, str]]:
    text = Path(bench.export("csv")["path"]).read_text()
    return list(csv.DictReader(io.StringIO(text)))


def test_mistakes_are_found(bench: Workbench) -> None:
    state = answer(bench, 1)
    for name in "0123456789":
        if name not in [c["name"] for c in state["classes"]]:
            state = bench.add_class(state["version"], name)
    ids = {c["name"]: c["id"] for c in state["classes"]}
    labels = [{"sample": i, "class": ids[str(Y[i])]} for i in range(150)]
    for wrong in (17, 80):
        labels[wrong]["class"] = ids[str((Y[wrong] + 1) % 10)]
    state = bench.decide(state["version"], labels)
    bench.wait()
    for sample in (17, 80):  # of samples that are answered one by one it is known at once
        state = bench.decide(state["version"], [{"sample": sample, "class": None}])
        state = bench.decide(state["version"], [labels[sample]])
    first = bench.disagreements(10)
    assert {17, 80} <= {each["sample"] for each in first[:4]}
    assert first[0]["given"] in ids.values()
    assert first[0]["why"] == "disagreement"


def test_another_tab_is_told(bench: Workbench) -> None:
    state = answer(bench, 1)
    with pytest.raises(Stale):
        bench.decide(state["version"] - 1, [{"sample": 9, "class": 0}])
    assert bench.state()["labeled"] == 1
    for bad in ([{"sample": 300, "class": 0}], [{"sample": 0}], [{"sample": 1.5, "class": 0}]):
        with pytest.raises((ValueError, TypeError)):
            bench.decide(state["version"], bad)


def test_many_threads_do_not_disturb_each_other(bench: Workbench) -> None:
    answer(bench, 2)
    taken, refused = [], []

    def tab(first: int) -> None:
        for sample in range(first, first + 10):
            while True:
                try:
                    version = bench.state()["version"]
                    bench.decide(version, [{"sample": sample, "class": 0}])
                except Stale:
                    refused.append(sample)
                else:
                    taken.append(sample)
                    break

    threads = [threading.Thread(target=tab, args=[first]) for first in (100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    given = np.frombuffer(bench.given(), np.uint8)
    assert sorted(taken) == [*range(100, 110), *range(200, 210)]
    assert (given[taken] == 0).all()


def test_the_map_and_the_search(bench: Workbench) -> None:
    places = np.frombuffer(bench.positions(), "<f4").reshape(-1, 2)
    assert places.shape == (300, 2)
    assert places.min() >= 0
    assert places.max() <= 1
    near = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(near, np.inf)
    assert (Y[near.argmin(1)] == Y).mean() > 0.6
    state = bench.add_class(0, "Löwe")
    bench.decide(state["version"], [{"sample": 123, "class": 0}])
    assert bench.search("löwe", 5) == [123]
    assert bench.search("29", 3)[0] == 29
    assert bench.search("", 3) == []


def test_images_are_seen_and_never_changed(photos: Path) -> None:
    before = {path.name: path.read_bytes() for path in photos.iterdir()}
    bench = opened(photos)
    assert bench.state()["kind"] == "images"
    assert bench.folder == photos.with_name("photos.labels")
    picture = Image.open(io.BytesIO(bench.picture(3, 100)))
    assert (picture.format, picture.size) == ("PNG", (40, 48))
    assert Image.open(io.BytesIO(bench.picture(3, 24))).size == (20, 24)
    assert bench.sample(3)["file"] == "003.png"
    state = answer(bench, 12)
    place = Path(bench.export("folder")["path"])
    for name in "0123":
        for path in (place / name).glob("*.png"):
            assert str(Y[int(path.stem)]) == name
            assert path.read_bytes() == before[path.name]
    assert len(list(place.rglob("*.png"))) == 120
    with pytest.raises(ValueError, match="inside the data"):
        bench.export("csv", str(photos / "labels.csv"))
    with pytest.raises(ValueError, match="never overwritten"):
        bench.export("folder", str(place))
    assert bench.state()["version"] == state["version"]
    bench.close()
    assert {path.name: path.read_bytes() for path in photos.iterdir()} == before
    again = Source.open(str(place))
    assert len(again.given) == 12


def test_tables_show_their_rows(tmp_path: Path) -> None:
    words = {0: "cold rain and grey clouds", 1: "bright sun and a blue sky"}
    rows = ["id,note,degrees"]
    rows += [
        f"{i},{words[i % 2]} on day {i % 7} and {i} hours,{5 + 20 * (i % 2) + i % 5}"
        for i in range(80)
    ]
    path = tmp_path / "days.csv"
    path.write_text("\n".join(rows))
    bench = opened(path)
    assert bench.state()["kind"] == "text"
    sample = bench.sample(3)
    assert sample["text"] == "bright sun and a blue sky on day 3 and 3 hours"
    assert ["degrees", "28"] in sample["fields"]
    assert (sample["row"], sample["file"]) == (3, None)
    assert bench.search("grey 44", 100) == [44]
    with pytest.raises(ValueError, match="not images"):
        bench.picture(0, 100)
    bench.close()


def test_half_labeled_data_are_continued(tmp_path: Path) -> None:
    y = np.where(np.arange(300) < 100, Y, -1)
    np.savez(tmp_path / "half.npz", X=X, y=y)
    bench = opened(tmp_path / "half.npz")
    state = bench.state()
    assert state["labeled"] == 100
    assert [c["name"] for c in state["classes"]] == list("0123456789")
    assert not state["can_undo"]
    best = np.frombuffer(bench.beliefs(), np.uint8).reshape(-1, 2)[:, 0]
    assert (best == Y)[100:].mean() > 0.9
    rows = exported(bench)
    assert {row["who"] for row in rows[:100]} == {"data"}
    state = bench.decide(state["version"], [{"sample": 0, "class": None}])
    table = Path(bench.export("csv")["path"])
    bench.close()
    np.savez(tmp_path / "other.npz", X=X)
    other = opened(tmp_path / "other.npz", labels_from=table)
    assert other.state()["labeled"] == 99
    assert other.state()["classes"][3]["name"] == "3"
    other.close()


def test_rows_that_were_changed_are_not_labeled(digits: Path) -> None:
    opened(digits).close()
    np.savez(digits, X=X[::-1])
    source = Source.open(str(digits))
    with pytest.raises(ValueError, match="other data"):
        Workbench(source, source.folder)


def test_samples_that_nothing_tells_apart(tmp_path: Path) -> None:
    np.savez(tmp_path / "same.npz", X=np.ones((30, 4)))
    source = Source.open(str(tmp_path / "same.npz"))
    bench = Workbench(source, tmp_path / "labels")
    with pytest.raises(ValueError, match="nothing tells the samples"):
        bench.wait()
    assert "nothing tells" in bench.state()["problem"]
    assert bench.questions(1) == []
    bench.close()


def test_a_network_takes_over(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in children.environment().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="two or more classes"):
        bench.train()
    answer(bench, 30)
    state = bench.train(minutes=0.1)
    assert state["training"]["state"] == "running"
    with pytest.raises(ValueError, match="already"):
        bench.train()
    before = state["beliefs_version"]
    underway = ("running", "reading")  # "reading" until its predictions are those of the page
    children.wait_until(lambda: bench.state()["training"]["state"] not in underway)
    state = bench.state()
    assert state["training"]["state"] == "done", state["training"]
    assert state["source_of_predictions"] == "network"
    assert state["beliefs_version"] > before
    best = np.frombuffer(bench.beliefs(), np.uint8).reshape(-1, 2)[:, 0]
    names = {c["id"]: c["name"] for c in state["classes"]}
    assert np.mean([names[b] == str(t) for b, t in zip(best.tolist(), Y, strict=True)]) > 0.5
    state = answer(bench, 1)
    assert state["source_of_predictions"] == "network"
    # A class that the network does not know, and a wrong label that the neighbours contradict.
    state = bench.add_class(state["version"], "new")
    new = state["classes"][-1]["id"]
    free = [i for i in range(len(Y)) if bench.sample(i)["given"] is None]
    decisions = [{"sample": i, "class": new} for i in free[:2]]
    state = bench.decide(state["version"], decisions)
    ids = {name: number for number, name in names.items()}
    wrong = [{"sample": i, "class": ids[str((Y[i] + 1) % 10)]} for i in free[2:6]]
    state = bench.decide(state["version"], wrong)
    bench.wait()
    contradicted = bench.disagreements(20)
    assert {row["sample"] for row in contradicted} & set(free[:6])
    assert all(len(row["probabilities"]) == new + 1 for row in contradicted)
    # A class of the network is gone: the graph is believed again, and all of it can be written.
    state = bench.merge_classes(state["version"], ids["0"], ids["1"])
    assert state["source_of_predictions"] == "graph"
    assert Path(bench.export("csv")["path"]).exists()


def test_a_network_whose_class_is_gone_is_not_believed(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in children.environment().items():
        monkeypatch.setenv(name, value)
    answer(bench, 30)
    state = bench.train(minutes=0.1)
    first, second = (c["id"] for c in state["classes"][:2])
    bench.merge_classes(state["version"], first, second)
    underway = ("running", "reading")
    children.wait_until(lambda: bench.state()["training"]["state"] not in underway)
    state = bench.state()
    assert "a class of it is gone" in state["training"]["message"]
    assert state["source_of_predictions"] == "graph"
    assert Path(bench.export("csv")["path"]).exists()


def test_training_can_be_stopped(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in children.environment().items():
        monkeypatch.setenv(name, value)
    answer(bench, 12)
    bench.train()
    found = bench.stop_training()["training"]
    assert (found["state"], found["message"]) == ("failed", "stopped")
    assert bench.state()["source_of_predictions"] == "graph"
