"""One situation, computed beforehand, as a page that needs neither server nor network."""

import base64
import json
import re
from importlib.resources import files
from string import Template
from typing import Any

from cclp.experiments.toy.descents import FRAMES
from cclp.files import parse_json
from cclp.lab import playground
from cclp.lab.scene import Scene, Settings, Start, begin, read_fields, read_object, read_scene
from cclp.progress import Reporter
from cclp.report.page import content_hash

STYLES = ("base.css", "lab.css")
MODULES = ("common.js", "picture.js", "chart.js", "still.js")
DIGITS = 3  # of what is drawn, finer than a pixel
SHOWN = ("posteriors", "forces", "losses", "landmarks", "accuracy", "regions")


def make_page(link: str | None = None, report: Reporter | None = None) -> str:
    """A page with a slider over the course of a situation.

    Args:
        link: the address of a situation, or what stands after its #; None: two moons.
        report: what the user sees meanwhile.

    Raises:
        TypeError, ValueError: if the link cannot be read.
    """
    scene = read_link(link) if link else begin(Start(), Settings())
    data = {
        "labels": scene.labels.tolist(),
        "settings": scene.to_json()["settings"],
        "frames": _course(scene, report or Reporter()),
    }
    style = "".join(_read(name) for name in STYLES)
    script = "".join(_plain(_read(name)) for name in MODULES)
    return Template(_read("still.html")).substitute(
        style=style,
        style_hash=content_hash(style),
        script=script,
        script_hash=content_hash(script),
        # a script element must not hold "</script>"
        data=json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    )


def read_link(link: str) -> Scene:
    """The scene of a situation, as the page's address holds it."""
    text = link.rpartition("#")[2]
    try:
        content = parse_json(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        raise ValueError(f"link must be one that the page has made, got {link!r:.60}") from None
    parts = read_object("link", content, {"layout", "settings", "compare", "show", "scene"})
    settings = parts.get("settings", {})
    if parts.get("scene") is not None:
        given = read_object("scene", parts["scene"], {"points", "truth", "labels", "classifier"})
        return read_scene({**given, "settings": settings})
    start = read_fields(Start, "layout", parts.get("layout", {}))
    return begin(start, read_fields(Settings, "settings", settings))


def _course(scene: Scene, report: Reporter) -> list[dict[str, Any]]:
    """Frames of a descent, denser where points move more."""
    found = []
    with report.work("descent", FRAMES[-1]) as advance:
        for iteration in range(FRAMES[-1] + 1):
            if iteration in FRAMES:
                drawn = playground.to_json(playground.compute_frame(scene), digits=DIGITS)
                kept = {name: drawn[name] for name in SHOWN}
                points = scene.z.round(decimals=DIGITS).tolist()
                found.append({"iteration": iteration, "points": points, **kept})
            scene = playground.descend(scene)
            advance(1)
    return found


def _read(name: str) -> str:
    """A part of the page, the lab's own or one that pages share."""
    rooms = (files("cclp.lab"), files("cclp.server"))
    return next(
        file.read_text("utf-8") for room in rooms if (file := room / "page" / name).is_file()
    )


def _plain(module: str) -> str:
    """A module as a part of one script: modules cannot be loaded from a file."""
    return re.sub(r"^export ", "", re.sub(r"^import .*\n", "", module, flags=re.M), flags=re.M)
