"""The page of ``cclp label``, in a browser: no answer is lost, and nothing goes elsewhere."""

import http.client
import io
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect
from sklearn.datasets import load_digits

from cclp.labelling.source import Source
from tests import children
from tests.browser import chromium, clean_page
from tests.command_line import call

FEW = 300  # images: the graph of them is built in a second


class Served(NamedTuple):
    process: children.Child
    address: str

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0


def begin(*arguments: str, port: int = 0) -> Served:
    """``cclp label`` as a process of its own."""
    command = [sys.executable, "-m", "cclp", "label", "--no-browser", "--port", str(port)]
    process = children.start([*command, *arguments], env=children.environment())
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert found, line or process.communicate()
    return Served(process, found[0])


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    with children.ended():
        yield begin(*arguments).address


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images without labels."""
    path = tmp_path_factory.mktemp("data") / "some.npz"
    np.savez(path, X=pixels(), y=np.full(FEW, -1))
    return path


@pytest.fixture(scope="module")
def truth() -> list[str]:
    return [str(c) for c in load_digits().target[:FEW]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def pixels() -> Any:
    return (load_digits().images[:FEW, None] * 15).astype(np.uint8)


def ask(address: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    """The server's answer to JSON, or to bytes as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body)
    if body is not None:
        headers = {"content-type": "application/json", **headers}
    with closing(http.client.HTTPConnection(urlsplit(address).netloc)) as connection:
        connection.request("POST" if body is not None else "GET", path, content, headers)
        answer = connection.getresponse()
        text = answer.read()
    kind = answer.headers.get("content-type", "")
    return answer.status, json.loads(text) if kind.startswith("application/json") else text


def state(address: str) -> Any:
    return ask(address, "/api/state")[1]


def settled(address: str) -> Any:
    """The state when the graph is built and all answers are propagated."""
    children.wait_until(lambda: (now := state(address))["phase"] == "ready" and now["fresh"])
    return state(address)


def post(address: str, path: str, **body: Any) -> tuple[int, Any]:
    now = state(address)
    return ask(address, path, {"place": now["place"], "version": now["version"], **body})


def seed(address: str, truth: list[str], each: int = 3) -> None:
    """Classes, and some labels of each."""
    settled(address)
    for name in sorted(set(truth)):
        assert post(address, "/api/classes", do="add", name=name)[0] == 200
    ids = {cls["name"]: cls["id"] for cls in state(address)["classes"]}
    pairs = [
        {"sample": sample, "class": number}
        for name, number in ids.items()
        for sample in [i for i, other in enumerate(truth) if other == name][:each]
    ]
    assert post(address, "/api/decide", decisions=pairs)[0] == 200
    settled(address)


def shown(page: Page) -> int:
    """The sample that is asked about."""
    expect(page.locator("#what")).to_have_attribute("data-sample", re.compile(r"^\d+$"))
    return int(page.locator("#what").get_attribute("data-sample") or "")


def answer(page: Page, name: str) -> None:
    """By the keyboard: the key of a class, or its name if it is new; then another one is asked."""
    before = shown(page)
    if page.locator("#classes .name", has_text=re.compile(f"^{name}$")).count():
        page.keyboard.press(name)  # a class that is named like a key gets it
    else:
        page.keyboard.press("n")
        page.get_by_label("Name of the class").press_sequentially(name)
        page.keyboard.press("Enter")
    expect(page.locator("#what")).not_to_have_attribute("data-sample", str(before))


def counted(page: Page, count: int) -> None:
    expect(page.locator("#labeled")).to_have_text(str(count))


def labels(address: str) -> dict[int, str]:
    """Samples that have a class, as the server knows them."""
    names = {cls["id"]: cls["name"] for cls in state(address)["classes"]}
    given = ask(address, "/api/given")[1]
    return {sample: names[value] for sample, value in enumerate(given) if value < 250}


def test_digits_are_labeled_by_keyboard_and_a_killed_server_loses_nothing(
    browser: Browser, images: Path, truth: list[str], tmp_path: Path
) -> None:
    out = str(tmp_path / "some folder")
    with children.ended():
        first = begin(str(images), "--out", out)
        with clean_page(browser, first.address) as page:
            given: dict[int, str] = {}
            for _ in range(20):
                sample = shown(page)
                answer(page, truth[sample])
                given[sample] = truth[sample]
                assert labels(first.address) == given  # on the disk before the next is drawn
            counted(page, 20)
            expect(page.locator("#error-of")).to_contain_text("expected error")
            last = list(given)[-1]
            page.keyboard.press("z")
            expect(page.locator("#what")).to_have_attribute("data-sample", str(last))
            counted(page, 19)
            page.keyboard.press("y")
            counted(page, 20)
            expect(page.locator("#what")).not_to_have_attribute("data-sample", str(last))
            assert labels(first.address) == given

            for key, text in (("u", "1 not sure"), ("x", "1 none of these")):
                before = shown(page)
                page.keyboard.press(key)
                expect(page.locator("#what")).not_to_have_attribute("data-sample", str(before))
                expect(page.locator("#set-aside")).to_contain_text(text)
            skipped = shown(page)
            page.keyboard.press("s")
            expect(page.locator("#what")).not_to_have_attribute("data-sample", str(skipped))

            now = shown(page)
            page.reload()
            expect(page.locator("#what")).to_have_attribute("data-sample", str(now))
            counted(page, 20)
            expect(page.locator("#trail li")).to_have_count(14)

        page = browser.new_page()
        page.goto(first.address)
        sample = shown(page)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(timeout=60)
        page.keyboard.press(truth[sample])
        expect(page.locator("#trouble")).to_contain_text("No answer from cclp label")
        assert shown(page) == sample  # the answer is not on the disk yet

        second = begin(str(images), "--out", out, port=first.port)
        expect(page.locator("#what")).not_to_have_attribute("data-sample", str(sample))
        expect(page.locator("#trouble")).to_be_hidden()
        counted(page, 21)
        assert labels(second.address) == given | {sample: truth[sample]}
        for count in (20, 20, 20, 19):  # of the last answer, none of these, not sure, the 20th
            page.keyboard.press("z")
            expect(page.locator("#message")).to_have_text("One answer taken back.")
            counted(page, count)
            page.wait_for_timeout(50)
        del given[last]
        assert labels(second.address) == given
        page.close()

        second.process.send_signal(signal.SIGINT)
        printed, said = second.process.communicate(timeout=60)
        assert second.process.returncode == 0
        assert f"19 answers are saved in {out}" in printed
        assert f"cclp label --no-browser --port {first.port} {images} --out '{out}'" in printed
        assert "Traceback" not in said


@pytest.fixture(scope="module")
def begun(images: Path, truth: list[str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with three labels of each class."""
    with served(str(images), "--out", str(tmp_path_factory.mktemp("begun") / "out")) as address:
        seed(address, truth)
        yield address


def test_a_page_of_one_class_is_confirmed(browser: Browser, begun: str, truth: list[str]) -> None:
    before = labels(begun)
    with clean_page(browser, begun) as page:
        shown(page)
        page.keyboard.press("c")
        page.keyboard.press("6")
        expect(page.locator("#grid-title")).to_contain_text("6")
        tiles = page.locator(".tile")
        expect(page.locator("#grid-go")).to_have_text(re.compile(r"Confirm \d+"))
        held = [int(tile.get_attribute("data-sample") or "") for tile in tiles.all()]
        assert len(held) > 5
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
        tiles.nth(3).click()
        expect(page.locator(".tile[aria-selected=false]")).to_have_count(2)
        expect(page.locator("#grid-go")).to_be_enabled()
        page.keyboard.press("Enter")
        counted(page, len(before) + len(held) - 2)
        ticked = {sample for place, sample in enumerate(held) if place not in (1, 3)}
        assert labels(begun) == before | dict.fromkeys(ticked, "6")
        page.keyboard.press("z")
        counted(page, len(before))
        assert labels(begun) == before


def test_a_lasso_labels_what_is_in_it_and_leaves_other_answers(
    browser: Browser, begun: str, truth: list[str]
) -> None:
    before = labels(begun)
    with clean_page(browser, begun) as page:
        shown(page)
        page.keyboard.press("m")
        canvas = page.locator("#points")
        expect(canvas).to_have_attribute("data-frames", re.compile(r"\d"))
        box = canvas.bounding_box()
        assert box is not None
        places = np.frombuffer(ask(begun, "/api/positions")[1], "<f4").reshape(-1, 2)
        scale = min(box["width"], box["height"]) - 48
        corner = [(box["width"] - scale) / 2 + box["x"], (box["height"] - scale) / 2 + box["y"]]
        free = next(i for i in range(FEW) if i not in before)
        x, y = corner + scale * places[free]
        sides = [(x - 30, y - 30), (x + 30, y - 30), (x + 30, y + 30), (x - 30, y + 30)]
        page.keyboard.down("Shift")
        page.mouse.move(*sides[0])
        page.mouse.down()
        for side in [*sides[1:], sides[0]]:
            page.mouse.move(*side, steps=3)
        page.mouse.up()
        page.keyboard.up("Shift")
        inside = np.flatnonzero((np.abs(corner + scale * places - [x, y]) < 29.5).all(1))
        expect(page.locator("#selection")).to_contain_text("press the key of their class")
        page.keyboard.press("4")
        expect(page.locator("#labeled")).not_to_have_text(str(len(before)))
        after = labels(begun)
        new = set(after) - set(before)
        assert free in new
        assert {int(i) for i in inside} - set(before) <= new
        assert {after[sample] for sample in new} == {"4"}
        assert {sample: after[sample] for sample in before} == before
        page.keyboard.press("z")
        counted(page, len(before))
        page.mouse.click(x, y)
        expect(page.locator("#picked img")).to_be_visible()
        page.keyboard.press("Enter")
        expect(page.locator("#ask")).to_be_visible()
        assert labels(begun) == before


@contextmanager
def refused_page(browser: Browser, address: str) -> Iterator[Page]:
    """A page to which the server says no: the browser's console tells of it."""
    trouble: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(address)
    yield page
    page.close()
    assert not trouble


def test_a_lasso_and_a_page_leave_what_another_tab_has_answered(
    browser: Browser, begun: str, truth: list[str]
) -> None:
    before, ids = labels(begun), {cls["name"]: cls["id"] for cls in state(begun)["classes"]}
    with refused_page(browser, begun) as page:
        shown(page)
        page.keyboard.press("c")
        page.keyboard.press("6")
        expect(page.locator("#grid-title")).to_contain_text("6")
        expect(page.locator("#grid-go")).to_be_enabled()
        tiles = page.locator(".tile")
        held = [int(tile.get_attribute("data-sample") or "") for tile in tiles.all()]
        tiles.nth(2).click()
        other = {"samples": [held[1]], "class": ids["8"]}
        assert post(begun, "/api/decide", **other)[0] == 200
        page.keyboard.press("Enter")
        expect(page.locator("#message")).to_contain_text("another tab")
        expect(page.locator(f"#tile-{held[1]}")).to_have_count(0)
        expect(page.locator(f"#tile-{held[2]}")).to_have_attribute("aria-selected", "false")
        assert labels(begun) == before | {held[1]: "8"}
        expect(page.locator("#grid-go")).to_be_enabled()
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")  # too soon for the next page, which nobody has seen
        expect(page.locator("#message")).to_contain_text("confirmed as 6")
        after = labels(begun)
        assert after[held[1]] == "8"
        assert held[2] not in after
        assert {s: c for s, c in after.items() if s not in before} == {
            held[1]: "8",
            **{s: "6" for s in after if s not in before and s != held[1]},
        }
        counted(page, len(after))
        page.wait_for_timeout(200)
        assert labels(begun) == after
    for _ in range(2):
        assert post(begun, "/api/undo")[0] == 200
    with refused_page(browser, begun) as page:
        shown(page)
        page.keyboard.press("m")
        canvas = page.locator("#points")
        expect(canvas).to_have_attribute("data-frames", re.compile(r"\d"))
        box = canvas.bounding_box()
        assert box is not None
        left, top = box["x"] + 8, box["y"] + 8
        right, low = box["x"] + box["width"] - 8, box["y"] + box["height"] - 8
        page.locator("#lasso").click()
        page.mouse.move(left, top)
        page.mouse.down()
        for place in ((right, top), (right, low), (left, low), (left, top)):
            page.mouse.move(*place, steps=3)
        page.mouse.up()
        expect(page.locator("#selection")).to_contain_text(f"{FEW - len(before)} samples")
        assert post(begun, "/api/decide", **other)[0] == 200
        page.keyboard.press("4")
        expect(page.locator("#message")).to_contain_text("another tab")
        expect(page.locator("#selection")).to_contain_text(f"{FEW - len(before) - 1} samples")
        assert labels(begun) == before | {held[1]: "8"}
        page.keyboard.press("4")
        counted(page, FEW)
        after = labels(begun)
        assert {s: after[s] for s in before} == before
        assert after[held[1]] == "8"
        assert {after[s] for s in set(after) - set(before) - {held[1]}} == {"4"}
    for _ in range(2):
        assert post(begun, "/api/undo")[0] == 200
    assert labels(begun) == before


def test_an_answer_that_came_too_late_is_not_lost_in_silence(browser: Browser, begun: str) -> None:
    """The tab was closed before it was sent, and another tab has answered since."""
    before, now = labels(begun), state(begun)
    with clean_page(browser, begun) as page:
        sample = shown(page)
        sent = {"samples": [sample], "class": 0, "place": now["place"]}
        late = {"path": "api/decide", "what": "Your answer", "sent": sent}
        for version, said in ((now["version"] - 1, "Your answer was not taken"), (None, "")):
            sent["version"] = now["version"] if version is None else version
            page.evaluate(
                "([name, value]) => sessionStorage.setItem(name, JSON.stringify(value))",
                [f"cclp label {now['place']} not sent yet", late],
            )
            page.reload()
            shown(page)
            expect(page.locator("#message")).to_contain_text(said)
            assert (sample in labels(begun)) == (version is None)
    assert post(begun, "/api/undo")[0] == 200
    assert labels(begun) == before


def test_two_tabs_do_not_overwrite_each_other(
    browser: Browser, begun: str, truth: list[str]
) -> None:
    before = labels(begun)
    trouble: list[str] = []
    with clean_page(browser, begun) as first:
        second = browser.new_page()
        second.on("pageerror", lambda error: trouble.append(str(error)))
        second.goto(begun)
        mine, other = shown(first), shown(second)
        answer(first, truth[mine])
        second.keyboard.press("9")  # to what it has seen, which is not the latest state
        expect(second.locator("#message")).to_contain_text("another tab")
        assert labels(begun) == before | {mine: truth[mine]}
        assert shown(second) == other
        counted(second, len(before) + 1)
        second.keyboard.press(truth[other])
        expect(second.locator("#what")).not_to_have_attribute("data-sample", str(other))
        assert labels(begun)[other] == truth[other]
        second.close()
        assert not trouble


def test_classes_are_renamed_merged_and_found(
    browser: Browser, begun: str, truth: list[str]
) -> None:
    before = {cls["name"]: cls["count"] for cls in state(begun)["classes"]}
    with clean_page(browser, begun) as page:
        shown(page)
        page.keyboard.press("n")
        page.get_by_text("Rename and merge", exact=True).click()
        page.get_by_label("New name of 7").fill("seven")
        page.get_by_label("New name of 7").press("Enter")
        expect(page.get_by_label("New name of seven")).to_be_visible()
        page.get_by_label("Merge 1 into").select_option("seven")
        expect(page.get_by_label("New name of 1")).to_have_count(0)
        page.keyboard.press("Escape")
        names = {cls["name"]: cls["count"] for cls in state(begun)["classes"]}
        both = before["1"] + before["7"]
        assert "1" not in names
        assert names["seven"] == both
        page.keyboard.press("/")
        page.get_by_label("Search").fill("seven")
        expect(page.locator(".tile")).to_have_count(both)
        page.keyboard.press("Enter")
        page.keyboard.press("Space")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
        page.keyboard.press("0")
        expect(page.locator(".tile")).to_have_count(both - 2)
        names = {cls["name"]: cls["count"] for cls in state(begun)["classes"]}
        assert (names["seven"], names["0"]) == (both - 2, before["0"] + 2)
        page.keyboard.press("Escape")
        page.keyboard.press("c")
        expect(page.locator("#grid-go")).to_have_text(re.compile(r"Confirm \d+"))
        of = page.locator("#grid-title").inner_text()
        tile = page.locator(".tile").first
        found = tile.get_attribute("data-sample")
        page.keyboard.press("/")  # what is found has no tick: that says nothing of the class
        page.get_by_label("Search").fill(f"{found}")
        expect(page.locator(f".tile[data-sample='{found}']")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("c")
        expect(page.locator("#grid-title")).to_have_text(of)
        expect(page.locator(f".tile[data-sample='{found}'][aria-selected=true]")).to_be_visible()
        expect(page.locator(".tile[aria-selected=false]")).to_have_count(0)
    for _ in range(3):
        assert post(begun, "/api/undo")[0] == 200
    assert {cls["name"]: cls["count"] for cls in state(begun)["classes"]} == before


def test_a_wrong_label_is_among_the_disagreements(
    browser: Browser, begun: str, truth: list[str]
) -> None:
    ids = {cls["name"]: cls["id"] for cls in state(begun)["classes"]}
    more = [{"sample": i, "class": ids[name]} for i, name in enumerate(truth[: FEW // 2])]
    assert post(begun, "/api/decide", decisions=more)[0] == 200
    settled(begun)  # of labels that are given at once, only some are left out
    wrong = truth.index("0")
    assert post(begun, "/api/decide", samples=[wrong], **{"class": ids["6"]})[0] == 200
    settled(begun)
    with clean_page(browser, begun) as page:
        shown(page)
        page.keyboard.press("d")
        expect(page.locator("#why")).to_contain_text("contradict")
        while (sample := shown(page)) != wrong:
            page.keyboard.press("s")
            expect(page.locator("#what")).not_to_have_attribute("data-sample", str(sample))
        expect(page.locator("#why")).to_contain_text("now 6")
        expect(page.locator(".candidate b").first).to_have_text("0")  # without its own label
        page.keyboard.press("Enter")
        expect(page.locator("#what")).not_to_have_attribute("data-sample", str(wrong))
        assert labels(begun)[wrong] == "0"
    for _ in range(3):
        assert post(begun, "/api/undo")[0] == 200


def test_labels_are_exported_and_a_network_is_trained(
    browser: Browser, begun: str, tmp_path: Path
) -> None:
    place = tmp_path / "labels.csv"
    with clean_page(browser, begun) as page:
        shown(page)
        page.get_by_role("button", name="Export…").click()
        page.get_by_label("Where").fill(str(place))
        page.locator("#export-go").click()
        expect(page.locator("#export-done")).to_contain_text(str(place))
        assert place.read_text().startswith("sample,class,who,probability\n")
        written = place.read_bytes()
        page.locator("#export-dialog [data-close]").click()
        page.get_by_role("button", name="Train…").click()
        page.get_by_label("At most").fill("0.5")
        page.locator("#train-go").click()
        expect(page.locator("#training")).to_contain_text("Training")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)

        expect(page.locator("#error-of")).to_contain_text("of the graph")
        sample, graph = shown(page), ask(begun, "/api/beliefs")[1]
        page.get_by_role("button", name="Train…").click()
        page.get_by_label("At most").fill("0.1")
        page.locator("#train-go").click()
        trained = page.locator("#training", has_text="replace the graph's")
        expect(trained).to_contain_text("✓ Trained", timeout=600_000)  # nobody touches the page
        expect(page.locator("#error-of")).to_contain_text("of the network")
        assert ask(begun, "/api/beliefs")[1] != graph
        said = ask(begun, f"/api/question?sample={sample}")[1]["probabilities"]
        likely = state(begun)["classes"][int(np.argmax(said))]["name"]
        expect(page.locator(".candidate b").first).to_have_text(likely)
        share = 100 * max(said)
        coarse = share >= 99.95 or 9.95 <= share < 99
        expect(page.locator(".candidate .share").first).to_have_text(
            f"{share:.{0 if coarse else 1}f}\u00a0%"
        )
        if folder := os.environ.get("CCLP_SCREENSHOTS"):
            page.screenshot(path=Path(folder) / "trained.png")
    status, said = post(begun, "/api/export", kind="csv", to=str(place))
    assert status == 400
    assert "overwritten" in said["error"]
    assert place.read_bytes() == written


def test_rows_and_texts_are_shown_in_both_themes(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = tmp_path / "table.csv"
    rows = [f"{rng.normal(5 * (i % 2)):.3f},{rng.normal():.3f}," for i in range(60)]
    table.write_text("\n".join(["height,<b>width</b>,kind", *rows]))
    with served(str(table), "--target", "kind") as address, clean_page(browser, address) as page:
        expect(page.locator("#what dt")).to_have_text(["height", "<b>width</b>"])
        expect(page.locator("#hint")).to_contain_text("One key is one answer")
        page.get_by_role("button", name="Light or dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_contain_text(str(tmp_path))
        page.keyboard.press("Escape")
        answer(page, "small")
        expect(page.locator("#classes .name")).to_have_text(["small"])
        page.set_viewport_size({"width": 420, "height": 800})
        width = page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= 420
    assert (tmp_path / "table.labels" / "decisions.jsonl").exists()


# Without a browser.


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:1", "localhost"])
def test_other_hosts_are_refused(begun: str, host: str) -> None:
    for path in ("/", "/api/state", "/picture?sample=0&size=8"):
        assert ask(begun, path, host=host) == (421, b"cclp label answers on this machine only.\n")


def test_other_origins_forms_and_data_are_refused(begun: str) -> None:
    before, now = labels(begun), state(begun)
    free = next(i for i in range(FEW) if i not in before)
    body = {"place": now["place"], "version": now["version"], "samples": [free], "class": 0}
    for origin in ("http://evil.example", "null"):
        assert ask(begun, "/api/decide", body, origin=origin)[0] == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert ask(begun, "/api/decide", body, **{"content-type": kind})[0] == 415
    assert ask(begun, "/api/decide", {**body, "place": "elsewhere"})[0] == 410
    stale = {**body, "version": now["version"] - 1}
    assert ask(begun, "/api/decide", stale)[0] == 409
    assert labels(begun) == before
    assert ask(begun, "/api/decide")[0] == 405
    for hidden in ("/../server.py", "/..%2fserver.py", "/decisions.jsonl", "/lab.css", "/page/"):
        assert ask(begun, hidden)[0] == 404
    own = begun.removesuffix("/")
    assert ask(begun, "/api/undo", {"place": now["place"]}, origin=own)[0] == 400


WRONG: list[tuple[str, object, str]] = [
    ("/api/decide", b"{", "Expecting property name"),
    ("/api/decide", b"[]", "request must be an object, got list"),
    ("/api/decide", {"samples": [0]}, "request has no 'class'"),
    ("/api/decide", {"samples": 0, "class": 0}, "samples must be a list, got int"),
    ("/api/decide", {"samples": [FEW], "class": 0}, f"sample must be below {FEW}, got {FEW}"),
    ("/api/decide", {"samples": ["0"], "class": 0}, "sample must be an integer, got str"),
    ("/api/decide", {"samples": [0], "class": 99}, "class"),
    ("/api/decide", {"samples": [], "class": 0}, "decisions must name a sample or more"),
    ("/api/classes", {"do": "drop"}, "do must be add, rename or merge, got 'drop'"),
    ("/api/classes", {"do": "add", "name": 3}, "name must be text, got int"),
    ("/api/export", {"kind": "exe"}, "kind"),
    ("/api/train", {"minutes": -1}, "minutes must be above 0"),
    ("/api/sample?sample=x", None, "sample must be an integer, got 'x'"),
    (f"/picture?sample={FEW}&size=9", None, f"sample must be below {FEW}"),
    ("/picture?sample=0&size=100000", None, "size must be from 1 to"),
    ("/api/questions?count=1&exclude=1,x", None, "exclude must be an integer, got 'x'"),
    ("/api/search?count=3", None, "words"),
]


@pytest.mark.parametrize(("path", "body", "said"), WRONG)
def test_wrong_requests_are_answered_with_a_sentence(
    begun: str, path: str, body: object, said: str
) -> None:
    if isinstance(body, dict):
        status, found = post(begun, path, **body)
    else:
        status, found = ask(begun, path, body)
    assert status == 400
    assert said in found["error"]


def test_mistakes_are_one_line_and_load_no_torch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, said in (
        (["nothing"], "data must be one of digits"),
        (["digits", "--labels-from", "no.csv"], "--labels-from no.csv must be a labels.csv"),
        (["digits", "--out", __file__], f"--out {__file__} must be a folder"),
        (["digits", "--target", "x"], "is for your own files, not for digits"),
        ([], "Missing argument 'DATA'"),
    ):
        assert call("label", *arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    asked = "import cclp.cli, cclp.commands.label"
    assert children.modules_after(asked).isdisjoint({"torch", "starlette", "uvicorn"})
    monkeypatch.delitem(sys.modules, "cclp.labelling.server", raising=False)
    for module in ("cclp.server.local", "cclp.server.limits"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert call("label", "digits", "--out", str(tmp_path / "out")) == 2
    assert capsys.readouterr().err == "cclp: cclp label needs uvicorn: pip install 'cclp[lab]'\n"


def test_published_data_are_shown_with_their_whole_range() -> None:
    source = Source.open("digits")
    shown_values = np.asarray(Image.open(io.BytesIO(source.picture(0, 64))))
    assert shown_values.max() == 255 * int(source.x[0].max()) // 16
