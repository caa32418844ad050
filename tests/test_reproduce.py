"""The paper's figures as commands: claims on fixed seeds, directories, figures, pages."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from cclp.cli import main
from cclp.experiments import circles, descents, moons, overhead
from cclp.experiments.descents import IDEAL, LAYOUTS, Case, descent
from cclp.experiments.folder import Folder
from cclp.progress import Reporter
from cclp.report.experiment import is_experiment, make_experiment_page, write_figures
from cclp.training.run import Stopped

CASES = {case.name: case for case in (*circles.CASES, *moons.CASES)}
FRAMES = (0, 2, 3)


def run(name: str, seed: int = 1) -> dict[str, Any]:
    case = CASES[name]
    return descent(case, LAYOUTS[case.layout](seed, case.noise))


def short(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    return tuple(replace(case, iterations=3, frames=FRAMES) for case in cases)


@pytest.fixture(scope="module")
def cclp_on_circles() -> dict[str, Any]:
    return run("cclp")


def test_cclp_solves_the_circles(cclp_on_circles: dict[str, Any]) -> None:
    assert cclp_on_circles["accuracy"] >= 0.98
    assert IDEAL <= cclp_on_circles["loss"] <= 1.02 * IDEAL
    assert cclp_on_circles["largest_class_mass"] < 110
    assert cclp_on_circles["warnings"] == []


def test_entropy_does_not_and_only_it_depends_on_the_classifier(
    cclp_on_circles: dict[str, Any],
) -> None:
    cer = run("cer", seed=2)
    assert cer["accuracy"] <= 0.65
    assert cclp_on_circles["classifier_changes_force"] == 0
    assert cer["classifier_changes_force"] > 0.5


def test_who_opposes_supervision(cclp_on_circles: dict[str, Any]) -> None:
    """Entropy whenever a labeled point is on the wrong side; CCLP holds the others back."""
    cer = run("cer", seed=2)["opposition"]
    assert cer["wrong_side"]["opposed"] == cer["wrong_side"]["of"] > 0
    assert cer["right_side"]["opposed"] == 0
    right = cclp_on_circles["opposition"]["right_side"]
    assert right["opposed"] > 0.9 * right["of"] > 0


def test_too_large_a_step_is_warned_of() -> None:
    record = run("large-step")
    mass = record["largest_class_mass"]
    assert mass > 190
    assert "One class may be swallowing the batch" in record["warnings"][0]
    own_ideal = sum(m * math.log(m) for m in (mass, 200 - mass)) / 200  # of the wrong clusters
    assert record["loss"] == pytest.approx(own_ideal, rel=0.01)


def test_moons_and_the_length_of_chains() -> None:
    record = run("s10")
    assert record["accuracy"] == 1
    assert IDEAL <= record["loss"] <= 1.02 * IDEAL
    one, ten = record["alignment"]["1"], record["alignment"]["10"]
    assert all(b > a for a, b in zip(one, ten, strict=True))


def test_forces_are_small_and_mixed_where_labels_are_open() -> None:
    case = CASES["ambiguous"]
    found = descents.ambiguity(case, LAYOUTS[case.layout](1, case.noise))
    assert found["points"]["open"] > 50
    assert found["mean_force"]["open"] < 0.8 * found["mean_force"]["decided"]
    assert found["agreement"]["open"] < 0.8 * found["agreement"]["decided"]


@pytest.mark.parametrize(("module", "name"), [(circles, "circles"), (moons, "moons")])
def test_command(
    module: Any,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "CASES", short(module.CASES))
    out = tmp_path / "out"
    call = ["reproduce", name, "--seeds", "2", "--out", str(out), "--quiet"]
    with pytest.raises(SystemExit) as stop:
        main(call)
    assert stop.value.code == 0
    content = json.loads((out / "results.json").read_text())
    assert content["command"].startswith(f"cclp reproduce {name}")
    assert content["environment"]["machine"]["cores"]
    assert len(content["records"]) == 2 * len(module.CASES)
    printed = capsys.readouterr().out
    for claim in content["claims"]:
        word = "holds" if claim["holds"] else "FAILS"
        assert f"{word}: {claim['said']} {claim['measured']}" in printed
    pictures = sorted(path.stem for path in out.glob("*.png"))
    assert len(pictures) == 3
    for picture in pictures:
        assert (out / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
        assert ElementTree.parse(out / f"{picture}.svg").getroot().tag.endswith("svg")
    with Image.open(out / "animation.gif") as animation:
        assert getattr(animation, "n_frames", 1) == len(FRAMES)
    page = (out / "report.html").read_text()
    assert page.count('<img src="data:image/') == 4
    assert "http" not in page.replace("http-equiv", "")

    # finished: nothing runs again, the same is drawn again
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr(descents, "descent", None)
    for again in (call, ["report", str(out)]):
        with pytest.raises(SystemExit) as stop:
            main(again)
        assert stop.value.code == 0
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_goes_on_where_it_was(tmp_path: Path) -> None:
    cases = short(circles.CASES)
    reproduce = partial(descents.reproduce, "circles", cases, circles.claims, seeds=2)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 6  # in the second descent

    with pytest.raises(Stopped):
        reproduce(out=tmp_path / "out", should_stop=stop)
    with pytest.raises(ValueError, match="unfinished"):
        write_figures(tmp_path / "out")
    done = json.loads((tmp_path / "out" / "results.json").read_text())["records"]
    assert list(done) == ["cclp/0"]
    reproduce(out=tmp_path / "out")
    whole = reproduce(out=tmp_path / "whole")
    both = [json.loads((tmp_path / n / "results.json").read_text()) for n in ("out", "whole")]
    assert both[0]["records"] == both[1]["records"]
    assert both[0]["claims"] == [claim._asdict() for claim in whole]


def test_directories_of_others_are_left_alone(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists and is no experiment"):
        Folder(full, "circles", {})
    Folder(tmp_path / "ours", "circles", {"points": 200})
    Folder(tmp_path / "ours", "circles", {"points": 200})
    with pytest.raises(ValueError, match="another experiment, or one with other settings"):
        Folder(tmp_path / "ours", "circles", {"points": 100})
    with pytest.raises(ValueError, match="another experiment, or one with other settings"):
        Folder(tmp_path / "ours", "moons", {"points": 200})


def test_results_of_two_machines_are_not_mixed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "out", "circles", {})
    folder.check_machine()
    folder.content["environment"]["machine"]["processor"] = "an abacus"
    with pytest.raises(ValueError, match=r"begun elsewhere .processor an abacus →"):
        folder.check_machine()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["reproduce", "circles", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["reproduce", "squares"], "No such command 'squares'"),
        (["report", "{out}", "{out}"], "a page of its own: give one"),
        (["report", "{out}"], "is unfinished: go on with"),
        (["reproduce", "moons", "--out", "{out}"], "holds another experiment"),
    ],
)
def test_mistakes_are_one_line(
    call: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    Folder(out, "circles", {}, "cclp reproduce circles")
    with pytest.raises(SystemExit) as stop:
        main([part.format(out=out) for part in call])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_damaged_results_are_named(tmp_path: Path) -> None:
    assert not is_experiment(tmp_path)
    folder = Folder(tmp_path / "out", "circles", {})
    folder.content["claims"] = [{"said": "a", "measured": "b", "holds": True}]
    folder.add("cclp/0", {})
    assert is_experiment(tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"cclp\.npz"):
        write_figures(tmp_path / "out")
    with pytest.raises(ValueError, match=r"figure\.png is missing"):
        make_experiment_page(tmp_path / "out")


def test_overhead(tmp_path: Path) -> None:
    steps: list[int] = []

    class Watching(Reporter):
        def work(self, what: str, total: int) -> Any:
            steps.append(total)
            return super().work(what, total)

    out = tmp_path / "out"
    settings: dict[str, Any] = {"sizes": (200, 500, 1000), "nets": ("mnist",), "seconds": 0.0}
    found = overhead.reproduce(out, Watching(), **settings)
    content = json.loads((out / "results.json").read_text())
    table = overhead.rows(list(content["records"].values()))
    assert [row["n"] for row in table] == [200, 500, 1000]
    assert [row["net_measured"] for row in table] == [True, True, False]
    assert table[2]["net_seconds"] == pytest.approx(2 * table[1]["net_seconds"])
    for row in table:
        for chain, seconds in row["seconds"].items():
            assert row["added"][chain] == pytest.approx(seconds / row["net_seconds"])
    assert [claim._asdict() for claim in found] == content["claims"]
    write_figures(out)
    assert "N^" in (out / "figure.svg").read_text()
    assert "The paper: CCLP adds less than 10 %" in make_experiment_page(out)
    assert overhead.reproduce(out, Watching(), **settings) == found
    assert steps[0] > steps[1] == 0


def test_overhead_stops_when_asked(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        overhead.reproduce(tmp_path / "out", should_stop=lambda: True, nets=("mnist",))


def test_exponent_and_claims_of_known_times() -> None:
    """Times that grow as S·N³, beside networks that are fast and slow."""
    records = [
        {
            "net": net, "n": n, "net_seconds": per_image * n if n <= 500 else None,
            "seconds": {str(s): 1e-10 * s * n**3 for s in (1, 3, 10)},
        }
        for net, per_image in (("mnist", 1e-3), ("cifar", 1.0))
        for n in (200, 500, 1000, 2000)
    ]  # fmt: skip
    assert overhead.fit(records, "3") == pytest.approx((3, 3e-10))
    paper, small, growth, chains = overhead.claims(records)
    assert not paper.holds  # 0.3 s beside one second of the fast network
    assert "mnist 30.0 %, cifar 0.0 %" in paper.measured
    assert small.holds
    assert "mnist 1.2 %" in small.measured
    assert growth.holds
    assert not chains.holds
    assert chains.measured.startswith("10.0 times")
