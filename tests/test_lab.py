"""The lab: what it computes is the package's, what it serves is safe, what it shows is right."""

import base64
import http.client
import json
import math
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect

import cclp
from cclp.cli import main
from cclp.data.load import load
from cclp.experiments.toy import points as toy
from cclp.lab import playground
from cclp.lab.export import make_page, read_link
from cclp.lab.run import RunView
from cclp.lab.scene import NONE, Settings, Start, begin, read_scene
from cclp.loss.health import LIMITS
from cclp.training.recipe import make_recipe
from tests.browser import chromium, clean_page, server
from tests.records import metrics_line, write_embedding, write_run

SMALL = Start(points=60)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server() as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def half_a_run(tmp_path: Path) -> Path:
    """A run of 12 steps on the digits, after its first evaluation."""
    data = load("digits")
    about = {"fingerprint": data.fingerprint, **data.spec.to_json()}
    lines = [metrics_line(6, error=0.5, posterior_entropy=0.99)]
    recipe = replace(make_recipe("short", "digits"), max_steps=12)
    config = {"recipe": recipe.to_json(), "num_labels": 30, "seed": 0}
    out = write_run(tmp_path / "run", finished=False, metrics=lines, data=about, config=config)
    write_embedding(out, 10, steps=(6,))
    return out


def link(**parts: Any) -> str:
    """As the page makes it."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def ask(address: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    """The server's answer to JSON, or to bytes as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body)
    with closing(http.client.HTTPConnection(urlsplit(address).netloc)) as connection:
        connection.request("POST" if body is not None else "GET", path, content, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    return answer.status, json.loads(text) if text.startswith("{") else text


def test_forces_are_minus_the_gradients_of_the_losses() -> None:
    scene = begin(SMALL, Settings(chain_steps=3, weight=0.5))
    found = playground.compute_frame(scene)
    z = scene.z.clone().requires_grad_()
    labeled, free = scene.labels != NONE, scene.labels == NONE
    graph: dict[str, Any] = {"similarity": "euclidean", "bandwidth": 0.15}
    parts = z[labeled], scene.labels[labeled], z[free]
    loss = cclp.cclp_loss(*parts, num_classes=2, chain_steps=3, **graph)
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(found.forces["cclp"], -0.5 * gradient)
    assert found.losses["cclp"] == pytest.approx(loss.item())
    spread = cclp.propagate_labels(*parts, num_classes=2, **graph)
    torch.testing.assert_close(found.posteriors[free], spread.detach())
    torch.testing.assert_close(
        playground.transitions(scene, 3), cclp.transition_matrix(scene.z, **graph)[3]
    )
    assert (found.forces["supervised"][free] == 0).all()
    assert (found.forces["supervised"][labeled] != 0).all()


@pytest.mark.parametrize("method", ["cclp", "entropy"])
def test_playing_is_the_descent_of_the_experiments(method: Any) -> None:
    """To the last bit, though every frame has gone to the page and come back."""
    scene = begin(SMALL, Settings(method=method, chain_steps=3, step_size=0.1))
    layout = toy.moons(0, 0.05, 60)
    term = toy.certain if method == "entropy" else toy.compact(3)
    expected = list(toy.descend(layout, term, 0.1, iterations=6))
    for moment in expected[::2]:
        found = playground.compute_frame(scene)
        assert torch.equal(found.scene.z, moment.z)
        assert torch.equal(found.scene.classifier, moment.classifier)
        assert found.losses[method] == moment.loss
        assert playground.accuracy(scene) == toy.accuracy(layout, moment)
        sent = json.loads(json.dumps(playground.to_json(found)))
        known = {**scene.to_json(), **sent["next"]}
        scene = playground.descend(read_scene(known))


def test_landmarks_masses_and_ideal_of_compact_clusters() -> None:
    scene = begin(Start("blobs", 60, 0.0), Settings(chain_steps=5))
    found = playground.compute_frame(scene)
    marks = playground.landmarks(scene)
    assert marks["compact"] == pytest.approx(math.log(20))
    assert marks["one_spot"] == pytest.approx(math.log(60) + 2 * math.log(3))
    assert found.losses["cclp"] == pytest.approx(marks["compact"])
    assert found.ideal == pytest.approx(marks["compact"])
    torch.testing.assert_close(found.masses, torch.full((3,), 20.0).double())
    together = replace(scene, z=torch.zeros_like(scene.z))
    assert playground.compute_frame(together).losses["cclp"] == pytest.approx(marks["one_spot"])


def test_regions_are_where_the_classifier_says_each_class() -> None:
    scene = begin(Start("blobs", 60, 0.25), Settings())
    regions = playground.regions(scene)
    for point, predicted in zip(
        scene.z.tolist(), toy.logits(scene.z, scene.classifier).argmax(1).tolist(), strict=True
    ):
        inside = [_is_inside(point, corners) for corners in regions]
        assert [c for c, found in enumerate(inside) if found] == [predicted]


def _is_inside(point: list[float], corners: list[list[float]]) -> bool:
    sides = [
        (x1 - x0) * (point[1] - y0) - (y1 - y0) * (point[0] - x0)
        for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True)
    ]
    return bool(sides) and all(side > 0 for side in sides)


def test_accuracy_is_of_points_whose_class_is_known() -> None:
    scene = begin(SMALL, Settings())
    right = toy.logits(scene.z, scene.classifier).argmax(1)
    unknown = torch.full_like(right, NONE)
    assert playground.accuracy(replace(scene, truth=right)) == 1
    assert playground.accuracy(replace(scene, truth=unknown, labels=unknown)) is None
    labels = unknown.clone()
    labels[:4] = torch.tensor([right[0], right[1], right[2], 1 - right[3]])
    assert playground.accuracy(replace(scene, truth=unknown, labels=labels)) == 0.75


def test_a_descent_that_diverges_is_refused() -> None:
    scene = begin(SMALL, Settings(step_size=10, weight=100))
    with pytest.raises(ValueError, match="smaller step"):
        playground.descend(scene, 50)


def test_collapse_into_one_class_is_warned_of() -> None:
    scene = begin(Start("circles", 200, 0.02), Settings(step_size=1.0))
    found = playground.compute_frame(playground.descend(scene, 20))
    assert found.masses.min() < 10
    assert [warning.code for warning in found.warnings or []] == ["collapsed"]
    sent = playground.to_json(found)["warnings"]
    assert sent == [{"code": "collapsed", "message": str((found.warnings or [])[0])}]
    assert playground.compute_frame(found.scene, diagnose=False).warnings is None


def _scene(**changes: Any) -> dict[str, Any]:
    return {**begin(Start(points=6), Settings()).to_json(), **changes}


WRONG: list[tuple[object, str]] = [
    (b"{", "Expecting property name"),
    (b"\xff", "not text in UTF-8"),
    ([], "request must be an object, got list"),
    ({"scene": _scene(), "other": 1}, "request has diagnose, edges_of, scene, skip, got 'other'"),
    ({"scene": {}}, "scene has no 'classifier'"),
    ({"scene": _scene(points=[[0, 0]])}, "points must be 2 to 500, got 1"),
    ({"scene": _scene(points=[[0, 0]] * 501)}, "points must be 2 to 500, got 501"),
    ({"scene": _scene(points=[[0, 0, 0]] * 6)}, "points: every row must hold 2 numbers"),
    ({"scene": _scene(points=[[0, "0"]] * 6)}, "points must be a number, got str"),
    ({"scene": _scene(points=[[0, math.nan]] * 6)}, "points must be finite, got nan"),
    ({"scene": _scene(points=[[0, 1e9]] * 6)}, "points must be at most 10000"),
    ({"scene": _scene(points=[[0, 10**400]] * 6)}, "number of 401 digits"),
    ({"scene": _scene(truth=[0])}, "truth must be 6, got 1"),
    ({"scene": _scene(labels=[2] * 6)}, "labels must be at most 1, got 2"),
    ({"scene": _scene(labels=[0.5] * 6)}, "labels must be an integer, got float"),
    ({"scene": _scene(labels=[-1] * 6)}, "label at least one point"),
    ({"scene": _scene(classifier=[[0, 0, 0]] * 5)}, "classifier must be 2 to 4, got 5"),
    ({"scene": _scene(settings={"chain_steps": 21})}, "chain_steps must be at most 20"),
    ({"scene": _scene(settings={"similarity": "x"})}, "similarity must be one of"),
    ({"scene": _scene(settings={"bandwidth": 0})}, "bandwidth must be at least 0.01"),
    ({"scene": _scene(settings={"secret": 0})}, "settings has bandwidth"),
    ({"scene": _scene(), "skip": 51}, "skip must be at most 50, got 51"),
    ({"scene": _scene(), "edges_of": 6}, "edges_of must be below 6, got 6"),
    (b" " * 200_001, "a request must be at most 200000 bytes"),
]


@pytest.mark.parametrize(("message", "said"), WRONG)
def test_wrong_messages_are_answered_with_a_sentence(
    address: str, message: object, said: str
) -> None:
    status, answer = ask(address, "/frame", message)
    assert status == 400
    assert said in answer["error"]


def test_layouts_have_limits(address: str) -> None:
    assert ask(address, "/layout", {"points": 501})[1] == {
        "error": "points must be at most 500, got 501"
    }
    status, scene = ask(address, "/layout", {"name": "circles", "points": 20, "noise": 0.0})
    assert status == 200
    torch.testing.assert_close(read_scene(scene).z, toy.circles(0, 0.0, 20).z)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:1", "localhost"])
def test_other_hosts_are_refused(address: str, host: str) -> None:
    assert ask(address, "/", host=host)[0] == 421
    assert ask(address, "/frame", {"scene": _scene()}, host=host)[0] == 421


def test_other_origins_are_refused_and_the_own_is_not(address: str) -> None:
    own = address.removesuffix("/")
    bare = own.removeprefix("http://")  # no browser sends it
    for origin, status in ((own, 200), ("http://evil.example", 403), ("null", 403), (bare, 403)):
        assert ask(address, "/frame", {"scene": _scene()}, origin=origin)[0] == status
    named = own.replace("127.0.0.1", "localhost")
    assert ask(address, "/", host=urlsplit(named).netloc)[0] == 200
    for hidden in ("/../server.py", "/still.html", "/run/summary"):
        assert ask(address, hidden)[0] == 404


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(["lab", *arguments])
    return int(exit_.value.code or 0)


def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    for arguments, said in (
        ([str(tmp_path)], f"{tmp_path} is not a run directory: it has no config.json"),
        (["--export", str(page)], f"{page} exists and is never overwritten: choose another"),
        (["--export", "x", "--link", "#?"], "link must be one that the page has made, got '#?'"),
        (["--export", "x", "--link", "#W10"], "link must be an object, got list"),
        (["--export", "x", "--link", "W1tb" * 9000], "link must be one that the page has made"),
        (["--export", "x", str(tmp_path)], "--run has no effect with --export: leave it out"),
    ):
        assert call(*arguments) == 2
        assert capsys.readouterr().err.startswith(f"cclp: {said}")
    for module in ("cclp.lab.server", "cclp.server.local", "cclp.server.limits"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert call() == 2
    assert capsys.readouterr().err == "cclp: cclp lab needs uvicorn: pip install 'cclp[lab]'\n"


def test_links_are_read() -> None:
    settings = {"chain_steps": 1}
    given = read_link(f"http://127.0.0.1:1/#{link(layout={'points': 20}, settings=settings)}")
    assert (len(given.z), given.settings.chain_steps) == (20, 1)
    scene = _scene()
    del scene["settings"]
    again = read_link(link(scene=scene, settings=settings, compare="none", show={}))
    assert again.z.tolist() == scene["points"]
    assert again.settings == Settings(chain_steps=1)


def test_neighbours_are_the_nearest_by_embedding(half_a_run: Path) -> None:
    view = RunView(half_a_run)
    summary = view.summary()
    (step,) = summary["embedding"]["steps"]
    _, record = view.record()
    assert record.embedding is not None
    z = record.embedding.z[0]
    found = view.point(step, 7)
    near, distances = found["neighbours"], found["distances"]
    assert 7 not in near
    assert distances == sorted(distances)
    far = ((z - z[7]) ** 2).sum(1) ** 0.5
    assert distances[0] == pytest.approx(sorted(far)[1], abs=1e-3)
    assert len(found["images"]) == 9
    assert view.summary(summary["version"]) == {"version": summary["version"]}
    with pytest.raises(ValueError, match="point must be below"):
        view.point(step, len(z))
    with pytest.raises(ValueError, match="step must be one that is recorded"):
        view.point(step + 1, 0)


def test_the_summary_has_the_limits_and_codes_of_the_diagnostics(half_a_run: Path) -> None:
    summary = RunView(half_a_run).summary()
    charts = {chart["title"]: chart for chart in summary["charts"]}
    assert [chart["limit"] for chart in charts.values() if chart["limit"] is not None] == [
        LIMITS[name]
        for name in ("self_transition", "posterior_entropy", "largest_excess", "moves_to_label")
    ]
    assert [title for title, chart in charts.items() if chart["log"]] == ["Moves to a label"]
    assert charts["Error, %"]["lines"] == [{"name": "error", "x": [6], "y": [50.0]}]
    assert [warning["code"] for warning in summary["warnings"]] == ["uncertain"]
    assert (summary["step"], summary["max_steps"], summary["finished"]) == (6, 12, False)


def test_a_run_without_records_or_data_is_shown_all_the_same(
    half_a_run: Path, tmp_path: Path
) -> None:
    about = json.loads((half_a_run / "config.json").read_text())
    about["config"]["data"] = "mnist"
    (tmp_path / "config.json").write_text(json.dumps(about))
    view = RunView(tmp_path)
    summary = view.summary("")
    assert (summary["outcome"], summary["step"], summary["embedding"]) == ("unfinished", 0, None)
    with pytest.raises(ValueError, match="step must be one that is recorded"):
        view.point(0, 0)
    shutil.copytree(half_a_run / "embedding", tmp_path / "embedding")
    found = view.point(view.summary(summary["version"])["embedding"]["steps"][0], 0)
    assert found["images"] is None
    assert found["no_images"] == "No images: mnist is not here (cclp data fetch mnist)."


# In the browser.


def opened(browser: Browser, address: str, **parts: Any) -> Any:
    start = {"name": "moons", "points": 60, "noise": 0.05, "seed": 0}
    return clean_page(browser, f"{address}#{link(**{'layout': start, **parts})}")


def score(page: Page) -> Locator:
    return page.locator(".score").first


def situation(page: Page, known: object = None) -> Any:
    """What the address of a page holds, once it has points and others than those known."""

    def told(url: str) -> Any:
        text = url.partition("#")[2]
        return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))

    page.wait_for_url(lambda url: (told(url).get("scene") or {}).get("points") not in (None, known))
    return told(page.url)


def test_plays_to_convergence(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        expect(score(page)).to_have_text("16.7 % linear accuracy")
        page.get_by_label("Speed").select_option("20")
        page.keyboard.press("Space")
        expect(score(page)).to_have_text("100.0 % linear accuracy")
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Play")).to_be_visible()
        page.get_by_role("button", name="Step", exact=True).click()
        expect(page.locator("#iteration")).to_have_text(re.compile("[02468]1$"))  # of twenties
        chart = page.locator("#accuracy-chart")
        expect(chart).to_have_attribute("aria-label", "Linear accuracy. accuracy, %: 100")
        page.locator("canvas").first.focus()
        for key in ("Space", "r"):  # reset while it plays
            page.keyboard.press(key)
        expect(score(page)).to_have_text("16.7 % linear accuracy")
        expect(page.locator("#iteration")).to_have_text("0")
        expect(page.locator("#message")).to_be_empty()


def test_points_are_added_labeled_moved_and_removed(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        canvas = page.locator(".panel canvas").first
        expect(canvas).to_have_attribute(
            "aria-label", "60 points, 2 labeled, 16.7 % linear accuracy."
        )
        canvas.click(position={"x": 60, "y": 400})
        expect(canvas).to_have_attribute("aria-label", re.compile("61 points, 2 labeled"))
        canvas.click(position={"x": 60, "y": 400})
        expect(canvas).to_have_attribute("aria-label", re.compile("61 points, 3 labeled"))
        expect(canvas).to_have_attribute(
            "aria-label", re.compile("Point 61: class 1 100 %, class 2 0 %")
        )
        scene = situation(page)["scene"]
        before = scene["points"][60]
        box = canvas.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 60, box["y"] + 400)
        page.mouse.down()
        page.mouse.move(box["x"] + 160, box["y"] + 300, steps=4)
        page.mouse.up()
        after = situation(page, scene["points"])["scene"]["points"][60]
        assert after[0] > before[0]
        assert after[1] > before[1]
        page.keyboard.press("2")
        expect(canvas).to_have_attribute(
            "aria-label", re.compile("Point 61: class 1 0 %, class 2 100 %")
        )
        page.keyboard.press("Delete")
        expect(canvas).to_have_attribute("aria-label", re.compile("60 points, 2 labeled"))


def test_a_shared_link_opens_the_same_situation(browser: Browser, address: str) -> None:
    with opened(browser, address, settings={"step_size": 0.1}) as page:
        expect(score(page)).to_have_text("16.7 % linear accuracy")
        page.get_by_label("Chain steps S").fill("3")
        expect(page.locator(".name").first).to_have_text("CCLP, S = 3")
        page.get_by_label("Speed").select_option("20")
        page.get_by_role("button", name="Step", exact=True).click()
        expect(page.locator("#iteration")).to_have_text("1")
        told, shared, shown = situation(page), page.url, score(page).text_content()
    assert told["settings"]["step_size"] == 0.1
    assert len(told["scene"]["points"]) == 60
    with clean_page(browser, shared) as page:
        expect(score(page)).to_have_text(str(shown))
        expect(page.locator(".name").first).to_have_text("CCLP, S = 3")
        assert situation(page)["scene"] == told["scene"]


def test_tabs_are_independent(browser: Browser, address: str) -> None:
    with opened(browser, address) as first, opened(browser, address) as second:
        expect(score(second)).to_have_text("16.7 % linear accuracy")
        first.get_by_label("Speed").select_option("20")
        first.get_by_role("button", name="Play").click()
        expect(score(first)).to_have_text("100.0 % linear accuracy")
        second.get_by_role("button", name="Step", exact=True).click()
        expect(second.locator("#iteration")).to_have_text("1")
        alone = playground.descend(begin(SMALL, Settings()))
        told = situation(second)["scene"]["points"]
        assert told == pytest.approx(alone.z.numpy(), abs=1e-4)


def test_side_by_side(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.get_by_label("Side by side").select_option("steps")
        expect(page.locator(".name")).to_have_text(["CCLP, S = 1", "CCLP, S = 10"])
        page.get_by_label("Side by side").select_option("method")
        expect(page.locator(".name")).to_have_text(["CCLP, S = 10", "Entropy"])
        page.get_by_role("button", name="Step", exact=True).click()
        expect(page.locator("#iteration")).to_have_text("1")
        with page.expect_download() as saved:
            page.get_by_role("button", name="Picture").click()
        assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")


def test_a_link_that_is_broken_opens_the_beginning(browser: Browser, address: str) -> None:
    with clean_page(browser, f"{address}#broken") as page:
        expect(score(page)).to_contain_text("% linear accuracy")
        expect(page.get_by_role("status")).to_contain_text(["The link cannot be used"])
        page.get_by_role("button", name="Light or dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()


def test_a_run_is_shown_while_it_trains(browser: Browser, half_a_run: Path, tmp_path: Path) -> None:
    with server(str(half_a_run)) as address, clean_page(browser, address) as page:
        expect(page.locator("#what")).to_have_text("cclp on digits, 30 labels, seed 0")
        expect(page.locator("#outcome")).to_contain_text("unfinished")
        expect(page.locator("#step-name")).to_have_text("Step 6")
        expect(page.locator("#warnings p")).to_have_count(1)
        page.keyboard.press(".")
        expect(page.locator("#near img")).to_have_count(9)
        finished = write_run(tmp_path / "finished", metrics=[metrics_line(12, error=0.25)])
        write_embedding(finished, 10, steps=(12,))
        for name in ("metrics.jsonl", "embedding/00000012.npz", "result.json"):
            (finished / name).rename(half_a_run / name)
        expect(page.locator("#step-name")).to_have_text("Step 12")
        expect(page.locator("#outcome")).to_have_text(
            "9.1 % error on 450 test samples (last iterate)"
        )
        expect(page.locator("#warnings")).to_be_hidden()
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#step-name")).to_have_text("Step 6")
        page.get_by_role("link", name="Playground").click()
        expect(score(page)).to_contain_text("% linear accuracy")
        expect(page.get_by_role("link", name="Training run")).to_be_visible()


def test_an_exported_page_needs_nothing(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cclp.lab.export.FRAMES", (0, 10, 40))
    scene = begin(Start(points=20), Settings(chain_steps=2)).to_json()
    settings = scene.pop("settings")
    page = tmp_path / "page.html"
    page.write_text(make_page(link(scene=scene, settings=settings)))
    assert "http" not in page.read_text().replace("http-equiv", "")
    last = playground.descend(read_scene({**scene, "settings": settings}), 40)
    with clean_page(browser, page.as_uri()) as opened_page:
        expect(opened_page.locator("#iteration")).to_have_text("0")
        opened_page.get_by_label("Step").press("End")
        expect(opened_page.locator("#iteration")).to_have_text("40")
        shown = f"{100 * (playground.accuracy(last) or 0):.1f} % linear accuracy"
        expect(score(opened_page)).to_have_text(shown)
