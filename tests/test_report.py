"""The report says what the files of a run say, and nothing else is needed to read it."""

import base64
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from cclp.loss.health import LIMITS, GraphHealth
from cclp.report.charts import Series, line_chart, linear_ticks, log_ticks, thin
from cclp.report.page import make_report
from cclp.report.pictures import point_shapes
from cclp.report.projection import circle_map, fit_square, principal, project, tour
from cclp.runs.arrays import FRAMES
from cclp.selection.verdict import ClassRow, Verdict
from cclp.training.recipe import make_recipe
from tests.records import (
    HEALTHY,
    make_verdict,
    metrics_line,
    write_embedding,
    write_generated,
    write_predictions,
    write_run,
    write_unlabeled,
    write_verdict,
)


class Page(HTMLParser):
    """What a page shows, by element: texts, attributes, rows of tables, defined terms."""

    void = frozenset({"meta", "img", "input", "br", "wbr", "line", "path"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str]]] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: list[tuple[list[str], str]] = []
        self.terms: list[list[str]] = []
        self.titles: list[list[str]] = []
        self.feed(html)
        self.close()
        assert self.open == []  # every element that was opened was closed

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        if tag not in self.void:
            self.open.append((tag, attributes))
        if tag == "tr":
            self._table().append([])
        if tag in ("td", "th"):
            self._table()[-1].append("")
        if tag == "dt":
            self.terms.append(["", ""])
        if tag in ("h1", "h2"):
            self.titles.append([tag, ""])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self.open]
        self.texts.append((tags, data))
        if "td" in tags or "th" in tags:
            self._table()[-1][-1] += data
        if "h1" in tags or "h2" in tags:
            self.titles[-1][1] += data
        if "dt" in tags or "dd" in tags:
            self.terms[-1]["dd" in tags] += data

    def _table(self) -> list[list[str]]:
        kind = next(a["class"].split()[0] for tag, a in reversed(self.open) if tag == "table")
        return self.tables.setdefault(kind, [])

    @property
    def text(self) -> str:
        """All that is read, with single spaces."""
        words = [t for tags, t in self.texts if not {"script", "style"} & set(tags)]
        return " ".join("".join(words).split())

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def headings(self, tag: str) -> list[str]:
        """The texts of headings of this rank."""
        return [" ".join(text.split()) for kind, text in self.titles if kind == tag]

    def labels(self) -> str:
        return "\n".join(a.get("aria-label", "") for a in self.of("svg"))


def report(*runs: Path) -> Page:
    return Page(make_report(list(runs)))


def test_one_finished_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", classes=["a", "b", "c"])
    write_embedding(run, 3)
    write_predictions(run, [0, 0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1, 1, 0])
    page = report(run)
    sentence = "cclp on digits, 50 labels, seed 7: 9.1 % error on 450 test samples (last iterate)"
    assert sentence in page.text
    assert "95 % interval 6.8 % to 12.1 %" in page.text  # Wilson's interval
    assert "error: 50 % at step 10, 9.11 % at step 20" in page.labels()
    assert "cclp: 4.5 at step 10, 3.25 at step 20" in page.labels()
    assert "sum: 5 at step 10, 3.75 at step 20" in page.labels()
    assert "unfinished" not in page.text
    assert "not the published" not in page.text
    assert "No warnings at the last evaluation (step 20)" in page.text
    assert "cclp train digits --out 'my run'" in page.text
    assert ["numpy", "9.8.7"] in page.tables["pairs"]
    assert ["processor", "abacus"] in page.tables["pairs"]
    assert ["recipe.learning_rate", "0.002"] in page.tables["pairs"]
    assert ["data_dir", "–"] in page.tables["pairs"]
    assert page.tables["matrix"] == [
        ["", "a", "b", "c", "recall"],
        ["a", "3", "1", "0", "75.0 %"],
        ["b", "0", "2", "0", "100.0 %"],
        ["c", "1", "1", "0", "0.0 %"],
    ]
    assert ["c", "b", "1", "2"] in page.tables["confusions"]


def test_nothing_is_fetched(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_embedding(run, 3)
    write_predictions(run, [0, 1], [1, 1], np.zeros((1, 1, 2, 2), np.uint8))
    html = make_report([run])
    for match in re.findall(r"""(?:src|href|action)\s*=\s*["']?([^"'\s>]*)""", html):
        assert match.startswith(("#", "data:image/png;base64,")), match
    assert not re.search(r"@import|url\(|https?:|<link|<iframe|fetch\(|XMLHttpRequest", html)
    policy = next(a["content"] for a in Page(html).of("meta") if "http-equiv" in a)
    assert policy.startswith("default-src 'none';")


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    run = write_run(
        tmp_path / '<img src=x onerror="a()">',
        classes=[evil, 'b" onload="a()'],
        command=f"cclp train '{evil}'",
        config={"data": evil},
    )
    write_embedding(run, 2)
    write_predictions(run, [0, 1], [1, 0], np.zeros((2, 1, 2, 2), np.uint8))
    for runs in ([run], [run, write_run(tmp_path / "other")]):
        html = make_report(runs)
        page = Page(html)
        assert "alert(1)</script>" not in html
        assert all(not a.keys() & {"onload", "onerror"} for _, a in page.elements)
        assert {a["src"][:10] for a in page.of("img")} == {"data:image"}
        assert f"cclp train '{evil}'" in page.text
        assert [evil, 'b" onload="a()', "1", "1"] in page.tables["confusions"]
        data = next(t for tags, t in page.texts if tags[-2:] == ["div", "script"])
        assert json.loads(data)["classes"][0] == evil


def test_old_run_without_the_rest(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", command=None, config={"num_labels": None, "method": "supervised"}
    )
    page = report(run)
    assert "supervised on digits, all labels, seed 7" in page.text
    assert "This run recorded no embedding." in page.text
    assert "This run recorded no predictions." in page.text
    assert "The command was not recorded." in page.text
    (run / "metrics.jsonl").unlink()
    page = report(run)
    assert "No error has been recorded." in page.text
    assert "No loss has been recorded." in page.text
    assert "recorded no diagnostics of the graph: cclp is not among its methods." in page.text


def test_classes_of_old_runs_are_counted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_predictions(run, [0, 3, 3], [0, 3, 1])
    assert report(run).tables["matrix"][0] == ["", "0", "1", "2", "3", "recall"]
    assert report(run).tables["matrix"][3] == ["2", "0", "0", "0", "0", "–"]


def test_unfinished_and_unverified(tmp_path: Path) -> None:
    lines = [metrics_line(5), metrics_line(10, error=0.25), metrics_line(15)]
    run = write_run(tmp_path / "run", finished=False, metrics=lines, data={"verified": False})
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 16, "cross_ent')
    page = report(run)
    assert "seed 7: unfinished, 25.0 % error on test samples at step 10 of 20" in page.text
    assert "This run is unfinished: step 15 of 20." in page.text
    assert "The data are not the published ones" in page.text
    assert "no predictions; they are written at evaluations" in page.text
    just_begun = write_run(tmp_path / "begun", finished=False, metrics=[])
    assert "seed 7: unfinished" in report(just_begun).text


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"error": None, "evaluated_on": None}, "seed 7: the error was not measured"),
        ({"num_samples": 10_000}, "9.11 % error on 10,000 test samples"),
        ({"evaluated_on": "held_out"}, "on 450 held-out training samples"),
        ({"error": 0.0}, "0.0 % error on 450 test samples"),
    ],
)
def test_the_result_in_words(tmp_path: Path, result: dict[str, Any], expected: str) -> None:
    assert expected in report(write_run(tmp_path / "run", result=result)).text


def test_values_that_were_not_finite(tmp_path: Path) -> None:
    lines = [metrics_line(s, cclp=None if s in (3, 4) else 2.0) for s in range(1, 7)]
    page = report(write_run(tmp_path / "run", metrics=lines))
    assert "At 2 logged steps a value was not finite" in page.text
    paths = [a["d"] for a in page.of("path") if a.get("class") == "line k1"]  # cclp
    assert [paths[0].count(letter) for letter in "ML"] == [2, 2]
    none = [metrics_line(s, cclp=None, error=math.nan) for s in (1, 2)]
    text = json.loads(json.dumps(none).replace("NaN", "null"))
    page = report(write_run(tmp_path / "none", metrics=text, result={"error": None}))
    assert "No finite value was recorded." in page.text


def test_health_in_words(tmp_path: Path) -> None:
    lines = [
        metrics_line(5, error=0.9, posterior_entropy=0.99),
        metrics_line(10, error=0.5, posterior_entropy=0.97),
        metrics_line(20, error=0.1, largest_excess=0.5, largest_class_mass=3.25),
    ]
    page = report(write_run(tmp_path / "run", metrics=lines))
    shown = [(a["class"], a["data-code"]) for a in page.of("li") if "data-code" in a]
    assert shown == [("warning", "collapsed"), ("passed", "uncertain")]
    (current,), (passed,) = (
        GraphHealth(**{**HEALTHY, **changes}).warnings()
        for changes in (
            {"largest_excess": 0.5, "largest_class_mass": 3.25},
            {"posterior_entropy": 0.97},
        )
    )
    assert f"Step 20. {current}" in page.text
    assert f"Passed, until step 10. {passed}" in page.text
    assert "No warnings" not in page.text
    assert "largest: 1.25 at step 5, 3.25 at step 20" in page.labels()


def test_limits_are_drawn_and_named_once(tmp_path: Path) -> None:
    """Each limit of the diagnostics has a line in one chart, and its number in the caption."""
    page = report(write_run(tmp_path / "run"))
    assert sum(a.get("class") == "limit" for a in page.of("line")) == len(LIMITS)
    for limit in LIMITS.values():
        assert f"Above {limit:g}: " in page.text


def test_an_error_is_not_shown_without_what_it_is_of(tmp_path: Path) -> None:
    recipe = make_recipe("fast", "cifar10")
    run = write_run(
        tmp_path / "run",
        config={"data": "cifar10", "recipe": recipe.to_json(), "method": recipe.method},
        data={"name": "cifar10", "verified": False},
        result={
            "decisions": {
                "pseudo_labels": "after_warmup",
                "supervised_warmup": 0.5,
                "correct": 30,
                "tested": 40,
            }
        },
    )
    assert report(run).terms[-6:] == [
        ["Data", "cifar10not the published files"],
        [
            "Method",
            "cclp+graph_pseudo_label"
            "cclp.weight 0.1, graph_pseudo_label.supervised_warmup 0.5, "
            "graph_pseudo_label.refreshes 5",
        ],
        ["Recipe", "fastnet small"],
        ["Seed", "7"],
        ["Augmentation", "random affine 2, horizontal flip"],
        [
            "Graph pseudo-labels",
            "used after a supervised warm-up"
            "leave-one-out: 30 of 40 correct, warm-up: 50.0 % of the steps",
        ],
    ]
    assert ["Steps", "4,000"] in report(run).terms
    plain = report(write_run(tmp_path / "plain")).terms
    assert ["Augmentation", "none"] in plain
    assert ["Graph pseudo-labels", "none"] in plain


def pixels(address: str) -> NDArray[np.uint8]:
    content = base64.b64decode(address.removeprefix("data:image/png;base64,"), validate=True)
    return np.asarray(Image.open(io.BytesIO(content)))


@pytest.mark.parametrize(("channels", "white"), [(1, 16), (3, 255)])
def test_mistakes_are_the_images(tmp_path: Path, channels: int, white: int) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, white + 1, (2, channels, 5, 4), np.uint8)
    run = write_run(tmp_path / "run", classes=["a", "b"], data={"white": white})
    write_predictions(run, [0, 0, 1], [1, 0, 0], images)
    page = report(run)
    shown = page.of("img")
    assert [a["alt"] for a in shown] == ["test 0: a, taken for b", "test 2: b, taken for a"]
    for image, attributes in zip(images, shown, strict=True):
        expected = np.round(image * (255 / white)).transpose(1, 2, 0)
        np.testing.assert_array_equal(pixels(attributes["src"]).reshape(5, 4, channels), expected)
    assert "b → a100.0 %test 2" in page.text


def test_large_images_are_made_smaller(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_predictions(run, [0], [1], np.full((1, 3, 300, 200), 77, np.uint8))
    small = pixels(report(run).of("img")[0]["src"])
    assert small.shape == (96, 64, 3)
    assert (small == 77).all()


@pytest.mark.parametrize(
    "inputs", [None, np.zeros((1, 7), np.uint8), np.zeros((1, 2, 3, 3), np.uint8)]
)
def test_vectors_are_listed(tmp_path: Path, inputs: NDArray[np.uint8] | None) -> None:
    run = write_run(tmp_path / "run")
    write_predictions(run, [0, 1, 1], [0, 0, 1], inputs)
    page = report(run)
    assert page.of("img") == []
    assert page.tables["mistakes"][1:] == [["test 1", "1", "0", "75.0 %"]]


def test_no_mistakes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_predictions(run, [0, 1], [0, 1])
    page = report(run)
    assert "There are none." in page.text
    assert "confusions" not in page.tables


def test_forty_classes_are_listed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", classes=[f"kind {c}" for c in range(40)])
    write_embedding(run, 40)
    y = list(range(40)) * 2
    predicted = [c if c != 5 else 6 for c in y]
    predicted[7] = 8
    write_predictions(run, y, predicted)
    page = report(run)
    assert "matrix" not in page.tables
    assert page.tables["confusions"][1:] == [
        ["kind 5", "kind 6", "2", "2"],
        ["kind 7", "kind 8", "1", "2"],
    ]
    assert page.tables["recalls"][1:3] == [["kind 5", "0.0 %", "2"], ["kind 7", "50.0 %", "2"]]
    used = {k for a in page.of("path") for k in re.findall(r"k\d+", a.get("class", ""))}
    defined = set(
        re.findall(r"\.(k\d+)\{", "".join(t for tags, t in page.texts if "style" in tags))
    )
    assert used <= defined
    assert "k39" in used


def test_two_classes_and_unknown_ones(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", classes=["no", "yes"])
    write_embedding(run, 2)
    file = run / "embedding" / "00000020.npz"
    with np.load(file) as arrays:
        content = dict(arrays)
    content["y"][3:] = -1
    content["predicted"][2] = 1  # its class is 0
    np.savez(file, **content)
    page = report(run)
    points = [a["class"] for a in page.of("path") if re.match(r"p\d k", a.get("class", ""))]
    assert points == ["p1 k0", "p0 k-none", "p0 k-none", "p0 k-none", "p2 k0", "p2 k1"]
    assert "Step 20: 1 of 1 unlabeled points shown are predicted wrong." in page.text
    assert "Grey: the class is unknown." in page.text


def test_several_runs(tmp_path: Path) -> None:
    first = write_run(tmp_path / "first")
    second = write_run(
        tmp_path / "second", config={"method": "supervised", "seed": 8}, result={"error": 0.2}
    )
    third = write_run(tmp_path / "third", finished=False, metrics=[metrics_line(10, error=0.25)])
    page = report(first, second, third)
    assert page.tables["runs"] == [
        ["run", "data", "method", "recipe", "steps", "labels", "seed", "error", "minutes"],
        ["first", "digits", "cclp", "short", "20", "50", "7", "9.1 %", "1.5"],
        ["second", "digits", "supervised", "short", "20", "50", "8", "20.0 %", "1.5"],
        ["third", "digits", "cclp", "short", "20", "50", "7", "25.0 % (step 10 of 20)", "–"],
    ]
    overlay = page.of("svg")[0]["aria-label"]
    assert "first: 50 % at step 10, 9.11 % at step 20" in overlay
    assert "third: 25 % at step 10" in overlay
    anchors = [a["href"] for a in page.of("a")]
    assert anchors == ["#" + a["id"] for a in page.of("article")]


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / part / "run") for part in "ab"]
    shown = [row[0] for row in report(*runs).tables["runs"][1:]]
    assert shown == [str(run) for run in runs]


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one run directory"):
        make_report([])
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ValueError, match=rf"{re.escape(str(path))} is not a run directory"):
            make_report([path])


def test_class_means_lie_on_a_circle_in_their_order() -> None:
    rng = np.random.default_rng(3)
    angles = np.array([0.0, 2.0, 1.0, 5.0, 4.0, 3.0]) * np.pi / 3  # classes 0, 2, 1, 5, 4, 3 around
    ring = np.stack([np.cos(angles), np.sin(angles)], 1) @ rng.normal(size=(2, 8))
    means = 3 * ring + 0.3 * rng.normal(size=(6, 8))
    order = tour(means)
    assert sorted(order) == list(range(6))
    centred = means - means.mean(0)
    placed = centred @ circle_map(centred)
    radius = np.linalg.norm(placed, axis=1)
    np.testing.assert_allclose(radius, 1, atol=0.35)
    turns = np.diff(np.unwrap(np.arctan2(placed[order, 1], placed[order, 0])))
    assert (np.sign(turns) == np.sign(turns[0])).all()


def test_far_means_reach_the_circle() -> None:
    means = 10 * (np.eye(5, 9) - 0.2)
    placed = (means - means.mean(0)) @ circle_map(means - means.mean(0))
    np.testing.assert_allclose(np.linalg.norm(placed, axis=1), 1, atol=0.02)
    between = np.linalg.norm(placed - np.roll(placed, 1, axis=0), axis=1)
    np.testing.assert_allclose(between, 2 * np.sin(np.pi / 5), atol=0.02)  # evenly around


def test_projection_is_one_linear_map() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, 30, 7))
    z[0] = 2.5 * z[1] + 4.0  # the first step is the last one, larger and elsewhere
    plane, _ = project(z, np.arange(30) % 4)
    np.testing.assert_allclose(plane[0], 2.5 * plane[1], atol=1e-9)
    places = fit_square(plane, 1000, 40)
    assert places.min() >= 40
    assert places.max() <= 960
    near = np.abs(places - 500) < 300
    scale = (places - 500)[near].std() / plane[near].std()
    np.testing.assert_allclose((places - 500)[near], scale * plane[near], atol=1)


def test_projection_of_two_classes() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    z = rng.normal(size=(200, 5)) * [0.1, 3.0, 0.1, 0.1, 0.1]
    z[:, 0] += 10.0 * y
    plane, how = project(z[None], y)
    gap = plane[0, y == 1].mean(0) - plane[0, y == 0].mean(0)
    assert abs(gap[0]) == pytest.approx(10, abs=0.1)
    assert abs(gap[1]) < 0.1
    assert plane[0, :, 1].std() == pytest.approx(3, rel=0.15)
    assert "two predicted classes" in how


@pytest.mark.parametrize("features", [1, 2, 3])
def test_projection_of_little(features: int) -> None:
    """Few dimensions, one class, one point, no extent: numbers all the same."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, 10, features))
    for points, y in ((z, np.zeros(10)), (z[:, :1], np.zeros(1)), (0 * z, np.arange(10) % 3)):
        plane, _ = project(points, y.astype(np.int64))
        assert plane.shape == (2, points.shape[1], 2)
        assert np.isfinite(fit_square(plane, 1000, 40)).all()
    if features == 2:
        plane, how = project(z, np.arange(10) % 3)
        np.testing.assert_allclose(plane[-1], z[-1] - z[-1].mean(0))
        assert "as it is" in how
    assert principal(z[-1], 2).shape == (features, 2)


def test_ticks() -> None:
    assert linear_ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert linear_ticks(0, 9000) == [0, 2000, 4000, 6000, 8000]
    assert log_ticks(0.003, 40) == pytest.approx([0.01, 0.1, 1, 10])
    assert log_ticks(1, 12) == pytest.approx([1, 2, 5, 10])


def test_lines_stand_where_their_values_are() -> None:
    svg = str(line_chart([Series("a", "k0", [0, 50, 100], [0, 1, 2])], label="A", y_label="a"))
    path = re.search(
        r'class="line k0" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"', svg
    )
    assert path
    x0, y0, x1, y1, x2, y2 = map(float, path.groups())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y2 < y1 < y0  # up is more


def test_long_lines_are_means_of_neighbours() -> None:
    steps = [float(s) for s in range(8000)]
    x, y = thin(steps, [math.nan if s < 20 else s for s in steps])
    assert len(x) == len(y) == 400
    assert math.isnan(y[0])
    assert y[1:3] == [29.5, 49.5]
    assert x[-1] == 7999


def test_marks_are_centred() -> None:
    for shape in point_shapes(13)[1:]:
        x = y = 0.0
        xs, ys = [], []
        for letter, numbers in re.findall(r"([mlz])([^mlz]*)", shape):
            values = [int(v) for v in re.findall(r"-?\d+", numbers)]
            for dx, dy in zip(values[::2], values[1::2], strict=True):
                x, y = x + dx, y + dy
                xs.append(x)
                ys.append(y)
            if letter == "z":
                x, y = -13, 0
        assert min(xs) == -max(xs)
        assert min(ys) == -max(ys)


def test_page_is_small(tmp_path: Path) -> None:
    """A thousand points at forty steps, 9,000 steps of training."""
    rng = np.random.default_rng(0)
    lines = [metrics_line(s, error=0.5 if s % 1000 == 0 else None) for s in range(10, 9001, 10)]
    run = write_run(tmp_path / "run", metrics=lines)
    (run / "embedding").mkdir()
    y = rng.integers(0, 10, 1000)
    for step in range(FRAMES):
        np.savez(
            run / "embedding" / f"{step:08d}.npz",
            z=rng.normal(size=(1000, 8)).astype(np.float32),
            predicted=y, y=y, index=np.arange(1000), labeled=y == 0,
        )  # fmt: skip
    assert len(make_report([run]).encode()) < 1_000_000


def test_a_users_own_data_have_a_short_name_and_no_warning(tmp_path: Path) -> None:
    data = {"name": "photos", "verified": None, "white": None}
    page = report(write_run(tmp_path / "run", data=data))
    assert "cclp on photos, " in page.text
    assert "not the published" not in page.text


def findings(
    out: Path, *, verdict: Verdict | None = None, images: NDArray[np.uint8] | None = None
) -> Path:
    """A run of three classes with a verdict, out-of-fold predictions and unlabeled samples."""
    ending = {"evaluated_on": "cross_validated", "error": 0.15, "num_samples": 40}
    metrics = [metrics_line(10), metrics_line(20)]
    run = write_run(out, classes=["a", "b", "c"], result=ending, metrics=metrics)
    write_verdict(run, verdict)
    write_predictions(run, [0, 0, 1, 1], [0, 1, 0, 1], images)
    return run


def test_the_verdict_comes_first(tmp_path: Path) -> None:
    page = report(findings(tmp_path / "run"))
    assert page.headings("h1") == ["About 15 % of new samples are predicted wrong."]
    assert "run: cclp on digits, 50 labels, seed 7" in page.text
    assert page.headings("h2") == [
        "Class by class",
        "Labels to look at again",
        "Confusions, out of fold",
        "The run",
        "Training",
        "Embedding",
        "Health of the graph",
        "How it was made",
    ]
    assert page.tables["models"] == [
        ["model", "error", "95 % interval030 %", "balanced error", "F1", "time"],
        [
            "logistic regression not by cclp train",
            *("10.0 %", "4.0 – 23.0 %", "11.0 %", "0.88", "1.2 s"),
        ],
        ["cclp (recipe fast) chosen", "15.0 %", "7.0 – 29.0 %", "16.0 %", "0.84", "312 s"],
        [
            "most frequent class baseline",
            *("50.0 %", "35.0 – 65.0 %beyond the scale", "66.7 %", "0.22", "0.0 s"),
        ],
    ]
    assert [a.get("class") for a in page.of("tr")][1:4] == [None, "chosen", None]
    assert "40 labels in 5 parts" in page.text
    assert "networks with 50 % of their training steps" in page.text
    assert "model = LogisticRegression()" in "".join(t for tags, t in page.texts if "pre" in tags)
    assert ["Error", "15.0 %95 % interval 7.0 % to 29.0 %"] in page.terms  # the verdict's


def test_a_model_that_was_stopped_is_marked(tmp_path: Path) -> None:
    logistic, cclp, majority = make_verdict().rows
    verdict = make_verdict(rows=(logistic, replace(cclp, tested=24), majority))
    page = report(findings(tmp_path / "run", verdict=verdict))
    assert [row[0] for row in page.tables["models"][1:]] == [
        "logistic regression not by cclp train",
        "cclp (recipe fast) chosen on 24 labels",
        "most frequent class baseline",
    ]


def test_bars_stand_where_their_values_are(tmp_path: Path) -> None:
    """From 0 to 30 %: the interval, its value in the middle of a mark, the chosen model's error."""
    page = report(findings(tmp_path / "run"))
    bars = [(a["class"], float(a["x"]), float(a["width"])) for a in page.of("rect")]
    assert bars[:6] == [
        ("span", 13.33, 63.33), ("reference", 49.7, 0.6), ("at", 32.33, 2),
        ("span", 23.33, 73.33), ("reference", 49.7, 0.6), ("at", 49, 2),
    ]  # fmt: skip
    assert len(bars) == 6 + 2 * 2  # none of what is beyond the scale, two classes


def test_a_verdict_without_more(tmp_path: Path) -> None:
    verdict = make_verdict(advice=None, sentences=(), steps=1.0)
    page = report(findings(tmp_path / "run", verdict=verdict))
    assert page.headings("h1") == [
        "cclp on digits, 50 labels, seed 7: "
        "15.0 % error on 40 labels, each predicted by a model that had not seen it"
    ]
    assert "LogisticRegression()" not in page.text
    assert "training steps" not in page.text


def test_a_verdict_beside_a_test_set(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", classes=["a", "b", "c"])
    write_verdict(run, make_verdict(temperature=1.0))
    write_predictions(run, [0, 1], [1, 1])
    write_unlabeled(run, [[0.2, 0.7, 0.1]])
    page = report(run)
    assert page.headings("h1") == ["About 15 % of new samples are predicted wrong."]
    expected = "The trained network: 9.1 % error on 450 test samples (last iterate)."
    assert expected in page.text
    assert "Most confident mistakes" in page.headings("h2")
    assert ["Error", "9.1 %95 % interval 6.8 % to 12.1 %"] in page.terms
    assert "logits are divided" not in page.text


def test_classes_with_labels_errors_and_predictions(tmp_path: Path) -> None:
    run = findings(tmp_path / "run")
    head = ["class", "labels", "tested", "wrong", "error", "95 % interval050 %", "F1"]
    assert report(run).tables["classes"] == [
        head,
        ["a", "20", "20", "2", "10.0 %", "2.8 – 30.1 %", "0.90"],  # Wilson's interval
        ["b", "20", "20", "4", "20.0 %", "8.1 – 41.6 %", "0.88"],
        ["c", "1", "one label: cannot be measured"],
    ]
    write_unlabeled(run, [[0.1, 0.2, 0.7], [0.9, 0.06, 0.04], [0.1, 0.3, 0.6]])
    rows = report(run).tables["classes"]
    assert rows[0] == [*head, "unlabeled, predicted"]
    assert [row[-1] for row in rows[1:]] == ["1", "0", "2"]


def test_classes_without_labels(tmp_path: Path) -> None:
    classes = tuple(ClassRow(f"kind {n}", n, 0, 0, None) for n in range(3))
    page = report(findings(tmp_path / "run", verdict=make_verdict(classes=classes)))
    assert [row[2] for row in page.tables["classes"][1:]] == [
        "no label: cannot be measured", "one label: cannot be measured", "cannot be measured",
    ]  # fmt: skip
    assert "tall" not in " ".join(a.get("class", "") for a in page.of("div"))
    many = (
        ClassRow("alone", 1, 0, 0, None),
        *(ClassRow(str(n), 100, 100, n, 0.5) for n in range(39)),
    )
    page = report(findings(tmp_path / "many", verdict=make_verdict(classes=many)))
    regions = [a for a in page.of("div") if a.get("class") == "scroll tall"]
    assert [(a["tabindex"], a["aria-label"]) for a in regions] == [("0", "Classes")]
    shown = [row[0] for row in page.tables["classes"][1:]]
    assert shown == [*map(str, reversed(range(39))), "alone"]  # the largest error first


def test_unlabeled_samples_by_doubt(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 3, 5, 4), np.uint8)
    run = findings(tmp_path / "run")
    names = ["x/sure.png", "x/open.png", "x/so so.png"]
    write_unlabeled(run, [[0.9, 0.06, 0.04], [0.1, 0.42, 0.48], [0.25, 0.6, 0.15]], images, names)
    page = report(run)
    assert [a["alt"] for a in page.of("img")] == [
        "x/open.png: predicted c with 48.0 %, next b",
        "x/so so.png: predicted b with 60.0 %, next a",
        "x/sure.png: predicted a with 90.0 %, next b",
    ]
    shown = [pixels(a["src"]) for a in page.of("img")]
    np.testing.assert_array_equal(shown, images[[1, 2, 0]].transpose(0, 2, 3, 1))
    assert "c48.0 %or bx/open.png" in page.text
    assert page.headings("h2")[:3] == [
        "Class by class", "Predictions of unlabeled samples", "Labels to look at again",
    ]  # fmt: skip
    assert "3 unlabeled samples are predicted" in page.text
    assert "logits are divided by 1.30" in page.text
    assert "details" not in {tag for tag, _ in page.elements}


def test_generated_images_are_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert "Generated samples" not in make_report([run])
    write_generated(run, 3)
    page = make_report([run])
    section = page[page.index("Generated samples") :]
    assert section.count('alt="generated image') == 3


def test_unlabeled_rows_of_a_table(tmp_path: Path) -> None:
    run = findings(tmp_path / "run")
    share = np.linspace(0.5, 0.9, 60)
    likely = [[p, 0.99 - p, 0.01] for p in share.tolist()]
    write_unlabeled(run, likely, names=[f"line {n}" for n in range(60)])
    page = report(run)
    assert page.of("img") == []
    head = ["sample", "predicted", "probability", "next class"]
    rows = page.tables["predicted"]
    assert [rows[0], rows[25], rows[50]] == [head] * 3  # at once, folded up, the most certain
    assert rows[1] == ["line 0", "a", "50.0 %", "b"]
    assert [row[0] for row in rows[26:50]] == [f"line {n}" for n in range(24, 48)]
    assert rows[51:] == [
        ["line 59", "a", "90.0 %", "b"], ["line 58", "a", "89.3 %", "b"],
        ["line 57", "a", "88.6 %", "b"], ["line 56", "a", "88.0 %", "b"],
    ]  # fmt: skip
    summaries = [t for tags, t in page.texts if tags[-1:] == ["summary"]]
    assert summaries == ["24 more", "Most certain of each class"]


def test_labels_to_look_at_again(tmp_path: Path) -> None:
    """Where a model that had not seen the label says something else."""
    page = report(findings(tmp_path / "run"))
    assert page.tables["mistakes"] == [
        ["sample", "label given", "model says", "probability"],
        ["test 1", "a", "b", "66.7 %"],
        ["test 2", "b", "a", "83.3 %"],
    ]
    assert "2 of 4 labels are predicted wrong by a model that had not seen them." in page.text
    assert "Rows: label given." in page.text
    images = np.zeros((2, 1, 4, 4), np.uint8)
    page = report(findings(tmp_path / "images", images=images))
    assert "Label given → what the model says, how sure it is" in page.text
    assert "a → b66.7 %test 1" in page.text


def test_unfinished_with_a_verdict(tmp_path: Path) -> None:
    run = findings(tmp_path / "run")
    (run / "result.json").unlink()
    page = report(run)
    assert page.headings("h1") == ["About 15 % of new samples are predicted wrong."]
    assert "This run is unfinished: step 20 of 20." in page.text
    assert "Labels to look at again" in page.headings("h2")
    page = report(run, write_run(tmp_path / "other"))
    assert page.tables["runs"][1][-2] == "15.0 % (cross-validated) (step 20 of 20)"


def test_cross_validated_runs_are_marked_in_a_comparison(tmp_path: Path) -> None:
    page = report(findings(tmp_path / "own"), write_run(tmp_path / "other"))
    assert [row[-2] for row in page.tables["runs"][1:]] == ["15.0 % (cross-validated)", "9.1 %"]
    assert page.headings("h2")[0] == "About 15 % of new samples are predicted wrong."


def test_a_run_without_a_verdict_keeps_its_headline(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", classes=["a", "b"])
    write_predictions(run, [0, 1], [1, 1])
    write_unlabeled(run, [[0.2, 0.8]])
    page = report(run)
    assert page.headings("h1")[0].endswith("9.1 % error on 450 test samples (last iterate)")
    assert page.headings("h2")[:4] == [
        "Predictions of unlabeled samples", "Most confident mistakes", "Confusions", "Training",
    ]  # fmt: skip
    assert "logits are divided" not in page.text


def test_hostile_names_of_findings_stay_text(tmp_path: Path) -> None:
    evil = '"><img src=x onerror=alert(1)>'
    verdict = make_verdict()
    rows = tuple(replace(row, title=evil) for row in verdict.rows)
    classes = tuple(replace(row, name=evil) for row in verdict.classes)
    verdict = replace(verdict, rows=rows, classes=classes, sentences=(evil, evil), advice=evil)
    run = findings(tmp_path / "run", verdict=verdict)
    about = json.loads((run / "config.json").read_text())
    about["data"]["classes"] = [evil, f"b{evil}", f"c{evil}"]
    (run / "config.json").write_text(json.dumps(about))
    write_unlabeled(run, [[0.2, 0.7, 0.1]], np.zeros((1, 1, 4, 4), np.uint8), [f"x/{evil}"])
    page = report(run)
    assert all("onerror" not in a for _, a in page.elements)
    assert [a["src"][:10] for a in page.of("img")] == ["data:image"]
    assert page.of("img")[0]["alt"].startswith(f"x/{evil}: predicted b{evil}")
    assert page.headings("h1") == [evil]
    assert page.tables["models"][2][0] == f"{evil} chosen"
    assert page.tables["classes"][1][0] == evil
