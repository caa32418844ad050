"""The paper's figures as commands: claims on fixed seeds, directories, figures, pages."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from cclp.cli import main
from cclp.commands.stop import StopOnSignal
from cclp.experiments import overhead
from cclp.experiments.folder import is_experiment, open_folder
from cclp.experiments.toy import circles, descents, moons
from cclp.experiments.toy.descents import IDEAL, LAYOUTS, Case, descent
from cclp.files import write_json
from cclp.progress import Reporter
from cclp.report.experiment import make_experiment_page, write_figures
from cclp.runs.start import Stopped

CASES = {case.name: case for case in (*circles.CASES, *moons.CASES)}
FRAMES = (0, 2, 3)
ROOT = Path(__file__).parent.parent


def run(name: str, seed: int, iterations: int | None = None) -> dict[str, Any]:
    """The record of a descent, or of its beginning."""
    case = CASES[name]
    case = replace(case, iterations=iterations or case.iterations)
    return descent(case, LAYOUTS[case.layout](seed, case.noise))


def short(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    return tuple(replace(case, iterations=3, frames=FRAMES) for case in cases)


@pytest.fixture(scope="module")
def cclp_on_circles() -> dict[str, Any]:
    return run("cclp", seed=1, iterations=410)


@pytest.fixture(scope="module")
def entropy_on_circles() -> dict[str, Any]:
    return run("cer", seed=2)


def test_cclp_solves_the_circles(cclp_on_circles: dict[str, Any]) -> None:
    assert cclp_on_circles["accuracy"] >= 0.98
    assert IDEAL <= cclp_on_circles["loss"] <= 1.02 * IDEAL
    assert cclp_on_circles["largest_class_mass"] < 110
    assert cclp_on_circles["warnings"] == []


def test_entropy_does_not_and_only_it_depends_on_the_classifier(
    cclp_on_circles: dict[str, Any], entropy_on_circles: dict[str, Any]
) -> None:
    assert entropy_on_circles["accuracy"] <= 0.65
    assert cclp_on_circles["classifier_changes_force"] == 0
    assert entropy_on_circles["classifier_changes_force"] > 0.5


def test_who_opposes_supervision(
    cclp_on_circles: dict[str, Any], entropy_on_circles: dict[str, Any]
) -> None:
    """Entropy whenever a labeled point is on the wrong side; CCLP holds the others back."""
    entropy = entropy_on_circles["opposition"]
    assert entropy["wrong_side"]["opposed"] == entropy["wrong_side"]["of"] > 0
    assert entropy["right_side"]["opposed"] == 0
    right = cclp_on_circles["opposition"]["right_side"]
    assert right["opposed"] > 0.9 * right["of"] > 0


def test_too_large_a_step_collapses_warns_and_is_what_was_recorded() -> None:
    found = run("large-step", seed=0)
    mass = found["largest_class_mass"]
    assert mass > 190
    assert len(found["warnings"]) == 1
    own_ideal = sum(m * math.log(m) for m in (mass, 200 - mass)) / 200  # of the wrong clusters
    assert found["loss"] == pytest.approx(own_ideal, rel=0.01)
    recorded = json.loads((ROOT / "results/circles/results.json").read_text())["records"]
    record = recorded["large-step/0"]
    assert found["accuracy"] == record["accuracy"]
    for name in ("loss", "largest_class_mass", "classifier_changes_force"):
        assert found[name] == pytest.approx(record[name], rel=1e-3)
    assert found["curve"]["loss"][:3] == pytest.approx(record["curve"]["loss"][:3], abs=2e-4)


def test_moons_and_the_length_of_chains() -> None:
    record = run("s10", seed=1, iterations=240)
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
    with pytest.raises(SystemExit) as stop:
        main(call if name == "circles" else ["report", str(out)])
    assert stop.value.code == 0
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_a_stopped_experiment_is_resumed(tmp_path: Path) -> None:
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


def test_fewer_seeds_are_judged_alone_and_more_forget_the_verdict(tmp_path: Path) -> None:
    out = tmp_path / "out"
    reproduce = partial(descents.reproduce, "circles", short(circles.CASES), circles.claims, out)
    assert "1 seeds" in reproduce(seeds=1)[0].measured
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 5

    with pytest.raises(Stopped):
        reproduce(seeds=2, should_stop=stop, command="again")
    content = json.loads((out / "results.json").read_text())
    assert (len(content["records"]), content["claims"]) == (5, [])
    assert content["command"] == "again"
    assert "1 seeds" in reproduce(seeds=1)[0].measured
    assert "2 seeds" in reproduce(seeds=2)[0].measured
    assert "1 seeds" in reproduce(seeds=1)[0].measured


def test_a_lost_course_is_made_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    reproduce = partial(descents.reproduce, "moons", short(moons.CASES), moons.claims, out, seeds=1)
    reproduce()
    lost = out / "courses" / "s1.npz"
    content = lost.read_bytes()
    assert not (out / "courses" / "s1-noisy.npz").exists()  # nothing draws it
    lost.unlink()
    reproduce()
    assert lost.read_bytes() == content


def test_directories_of_others_are_left_alone(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists and is no experiment"), open_folder(full, "a", {}):
        pass
    ours = tmp_path / "ours"
    for _ in range(2):
        with open_folder(ours, "circles", {"points": 200}):
            pass
    for name, points in (("circles", 100), ("moons", 200)):
        with (
            pytest.raises(ValueError, match="another experiment, or one with other settings"),
            open_folder(ours, name, {"points": points}),
        ):
            pass


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path / "out", "circles", {}),
        pytest.raises(ValueError, match="is in use"),
        open_folder(tmp_path / "out", "circles", {}),
    ):
        pass


def test_results_of_two_machines_are_not_mixed(tmp_path: Path) -> None:
    with open_folder(tmp_path / "out", "circles", {}) as folder:
        folder.begin("cclp")
        folder.content["environment"]["machine"]["processor"] = "an abacus"
        with pytest.raises(ValueError, match=r"begun elsewhere .processor an abacus →"):
            folder.begin("cclp")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["reproduce", "circles", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["reproduce", "squares"], "No such command 'squares'"),
        (["report", "{out}", "{out}"], "a page of its own: give one"),
        (["report", "{out}"], "is unfinished"),
        (["reproduce", "moons", "--out", "{out}"], "holds another experiment"),
    ],
)
def test_mistakes_are_one_line(
    call: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with open_folder(out, "circles", {}):
        pass
    with pytest.raises(SystemExit) as stop:
        main([part.format(out=out) for part in call])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "out"
    descents.reproduce("circles", short(circles.CASES), circles.claims, out, seeds=1)
    return out


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("experiment", ["circles"]),
        ("command", 3),
        ("settings", None),
        ("environment", {"machine": []}),
        ("claims", [{"said": "a"}]),
        ("records", []),
        ("records", {"cclp/0": None}),
        ("records", {"cclp/0": {}}),
        ("records", {"cclp/0": {"accuracy": "high"}}),
    ],
)
def test_damaged_results_are_named(
    name: str, value: Any, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    copytree(finished, out)
    content = json.loads((out / "results.json").read_text())
    write_json(out / "results.json", content | {name: value})
    with pytest.raises(SystemExit) as stop:
        main(["report", str(out)])
    assert stop.value.code == 2
    assert "out" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"damaged|no experiment"):
        descents.reproduce("circles", short(circles.CASES), circles.claims, out, seeds=1)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("z", lambda z: z[:, :, :1], "expected 'z' of shape"),
        ("labeled", lambda _: None, "expected 'labeled' of shape"),
        ("labeled", lambda labeled: labeled + 200, "'labeled' must be indices below 200"),
        ("belief", lambda belief: belief * np.nan, "'belief' must hold finite numbers"),
    ],
)
def test_damaged_courses_are_named(
    name: str, change: Callable[[Any], Any], said: str, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    copytree(finished, out)
    file = out / "courses" / "cclp.npz"
    with np.load(file) as archive:
        arrays = {key: archive[key] for key in archive.files}
    arrays[name] = change(arrays[name])
    np.savez(file, **{key: array for key, array in arrays.items() if array is not None})
    with pytest.raises(ValueError, match=rf"cclp\.npz is damaged: .*{said}"):
        write_figures(out)


def test_pages_need_figures_and_foreign_pages_stay(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_experiment(finished)
    assert not is_experiment(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    assert not is_experiment(tmp_path)
    with pytest.raises(ValueError, match=r"figure\.png is missing"):
        make_experiment_page(finished)
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "circles", "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "is not a report" in capsys.readouterr().err


def test_stopped_by_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: StopOnSignal) -> bool:
        self.number = 2
        return True

    monkeypatch.setattr(StopOnSignal, "__call__", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "moons", "--out", str(tmp_path / "out")])
    assert stop.value.code == 130
    assert "Stopped, saved." in capsys.readouterr().err


@pytest.fixture
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A tenth of the sizes: settings of a quick measurement."""
    monkeypatch.setattr(overhead, "CLAIMED_SIZES", (20, 100))
    monkeypatch.setattr(overhead, "LARGEST_BATCH", 100)
    monkeypatch.setattr(overhead, "FITTED_FROM", 100)
    return {"sizes": (20, 100, 120), "nets": ("mnist",), "seconds": 0.0}


def test_overhead(tmp_path: Path, small_sizes: dict[str, Any]) -> None:
    steps: list[int] = []

    class Watching(Reporter):
        def work(self, what: str, total: int | None) -> Any:
            assert total is not None
            steps.append(total)
            return super().work(what, total)

    out = tmp_path / "out"
    found = overhead.reproduce(out, Watching(), **small_sizes)
    content = json.loads((out / "results.json").read_text())
    records = content["records"]
    table = overhead.rows(list(records.values()))
    assert [row.n for row in table] == [20, 100, 120]
    assert [row.measured for row in table] == [True, True, False]
    net = records["100"]["net_seconds"]["mnist"]
    assert records["120"]["net_seconds"] == {}
    added = records["120"]["loss_seconds"]["128"]["3"] / (1.2 * net)
    assert table[2].added["3"] == pytest.approx(added)
    assert [claim._asdict() for claim in found] == content["claims"]
    write_figures(out)
    assert "N^" in (out / "figure.svg").read_text()
    assert found[0].measured in make_experiment_page(out)
    assert overhead.reproduce(out, Watching(), **small_sizes) == found
    assert steps[0] > steps[1] == 0


def test_overhead_checks_its_arguments_and_stops(
    tmp_path: Path, small_sizes: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"sizes must hold \(20, 100\), got \(100,\)"):
        overhead.reproduce(tmp_path / "out", sizes=(100,))
    with pytest.raises(ValueError, match="nets must be one of"):
        overhead.reproduce(tmp_path / "out", nets=("resnet",))
    with pytest.raises(Stopped):
        overhead.reproduce(tmp_path / "out", should_stop=lambda: True, **small_sizes)
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(content["records"]) == ["20"]


def test_best_of_is_the_shortest_of_several() -> None:
    waits = iter([0.0, 0.03, 0.01, 0.02, 0.0])
    best = overhead.best_of({"call": lambda: time.sleep(next(waits))}, seconds=0)
    assert best["call"] >= 0.01  # not the first, which warms up
    assert next(waits) == 0.02  # two count


def test_fit_and_claims_of_known_times() -> None:
    """Times that grow as S·N³, beside networks that are fast and slow."""
    records: list[dict[str, Any]] = []
    for n in (200, 500, 1000, 2000):
        seconds = {str(s): 1e-10 * s * n**3 for s in (1, 3, 10)}
        nets = {"mnist": 1e-3 * n, "cifar": 1.0 * n} if n <= 1000 else {}
        records.append(
            {"n": n, "net_seconds": nets, "loss_seconds": {"128": seconds, "192": seconds}}
        )
    assert overhead.fit(records, "3") == pytest.approx((3, 3e-10))
    paper, small, growth, chains = overhead.claims(records)
    assert paper.holds  # the paper speaks of the slow one
    assert "mnist 30.0 %, cifar 0.0 %" in paper.measured
    assert small.holds
    assert "mnist 1.2 %" in small.measured
    assert growth.holds
    assert not chains.holds
    assert chains.measured.startswith("10.0 times")
