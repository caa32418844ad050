"""The server of the page. It is stateless: a request of the playground holds its whole scene."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from cclp.checks import check_integer
from cclp.files import parse_json
from cclp.lab import playground
from cclp.lab.scene import (
    MOST_SKIPPED,
    Settings,
    Start,
    begin,
    read_fields,
    read_object,
    read_scene,
)
from cclp.server.limits import Compute, Slots, endpoint, read_body
from cclp.server.local import SHARED, LocalOnly, file_routes, serve_app

if TYPE_CHECKING:
    from cclp.lab.run import RunView

REQUEST = {"scene", "skip", "edges_of", "diagnose"}
PAGE = Path(__file__).parent / "page"


def begin_layout(content: dict[str, Any]) -> dict[str, Any]:
    """``/layout``: a fresh scene."""
    start = read_fields(Start, "layout", content)
    return begin(start, Settings()).to_json()


def make_frame(content: dict[str, Any]) -> dict[str, Any]:
    """``/frame``: a scene after some steps, with all that is drawn of it."""
    requested = read_object("request", content, REQUEST)
    given = {"skip": 0, "edges_of": None, "diagnose": True, **requested}
    scene = read_scene(given.get("scene"))
    skip = check_integer("skip", given["skip"], least=0)
    if skip > MOST_SKIPPED:
        raise ValueError(f"skip must be at most {MOST_SKIPPED}, got {skip}")
    point = given["edges_of"]
    if point is not None and check_integer("edges_of", point, least=0) >= len(scene.z):
        raise ValueError(f"edges_of must be below {len(scene.z)}, got {point}")
    found = playground.compute_frame(playground.descend(scene, skip), given["diagnose"] is True)
    return playground.to_json(found, point)


def _of_body(function: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """What :func:`cclp.server.limits.endpoint` takes, for a function of a request's body."""

    async def prepare(request: Request) -> Compute:
        content = parse_json(await read_body(request))
        return lambda: function(content)

    return prepare


def _open_run(path: Path, data_dir: Path | None) -> "RunView":
    from cclp.lab.run import RunView

    return RunView(path, data_dir)


def _run_routes(view: "RunView", slots: Slots) -> list[Route]:
    async def summary(request: Request) -> Compute:
        seen = request.query_params.get("seen")
        return lambda: view.summary(seen)

    async def point(request: Request) -> Compute:
        step, point = (int(request.query_params[name]) for name in ("step", "point"))
        return lambda: view.point(step, point)

    return [
        Route("/run/summary", endpoint(slots, summary)),
        Route("/run/point", endpoint(slots, point)),
    ]


def make_app(port: int, run: Path | None = None, data_dir: Path | None = None) -> ASGIApp:
    """The application.

    Args:
        port: that it will listen on.
        run: a run directory to show.
        data_dir: where its data are now, if they have moved.

    Raises:
        ValueError: if ``run`` is not a run directory.
    """

    def page(request: Request) -> Response:
        return FileResponse(PAGE / ("run.html" if view else "playground.html"))

    def about(request: Request) -> Response:
        return JSONResponse({"run": view is not None})

    view, slots = None if run is None else _open_run(run, data_dir), Slots()
    routes = [
        Route("/", page),
        Route("/about", about),
        Route("/layout", endpoint(slots, _of_body(begin_layout)), methods=["POST"]),
        Route("/frame", endpoint(slots, _of_body(make_frame)), methods=["POST"]),
        *(_run_routes(view, slots) if view else []),
        *file_routes(file for file in [*SHARED.iterdir(), *PAGE.iterdir()] if file.stem != "still"),
    ]
    return LocalOnly(Starlette(routes=routes), port, "cclp lab")


def serve(
    run: Path | None, data_dir: Path | None, port: int, announce: Callable[[str], None]
) -> None:
    """Serve the page until a signal stops it.

    Args:
        run: a run directory to show, or None for the playground alone.
        data_dir: where the data of the run are now, if they have moved.
        port: to listen on; 0: any free one.
        announce: called with the address as soon as it can be opened.

    Raises:
        OSError: if the port is taken.
        ValueError: if ``run`` is not a run directory.
    """
    torch.set_num_threads(1)  # of matrices this small, more only get in each other's way
    serve_app(partial(make_app, run=run, data_dir=data_dir), port, announce)
