"""The local server of the page. It is stateless: a request of the playground holds its whole scene.

The server listens on 127.0.0.1 alone and checks the headers Host and Origin: the page of another
site cannot read from it, even through a DNS name that points to this machine (DNS rebinding).
"""

import socket
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cclp.checks import check_integer
from cclp.files import parse_json
from cclp.lab import playground
from cclp.lab.limits import MOST_CONNECTIONS, Compute, Connection, Slots, endpoint, read_body
from cclp.lab.scene import (
    MOST_SKIPPED,
    Settings,
    Start,
    begin,
    read_fields,
    read_object,
    read_scene,
)

if TYPE_CHECKING:
    from cclp.lab.run import RunView

HOST = "127.0.0.1"
REQUEST = {"scene", "skip", "edges_of", "diagnose"}
PAGE = Path(str(files("cclp.lab"))) / "page"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class LocalOnly:
    """Refuses requests with another Host or Origin than this server's; adds security headers."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.app = app
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Request(scope).headers
        origin = headers.get("origin")
        if headers.get("host") not in self.hosts:
            answer = PlainTextResponse("cclp lab answers on this machine only.\n", 421)
            await answer(scope, receive, send)
        elif origin is not None and origin.removeprefix("http://") not in self.hosts:
            answer = PlainTextResponse("cclp lab answers its own page only.\n", 403)
            await answer(scope, receive, send)
        else:
            await self.app(scope, receive, _with_headers(send))


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sent


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
    """What :func:`cclp.lab.limits.endpoint` takes, for a function of a request's body."""

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
        *(_file_route(file) for file in sorted(PAGE.iterdir()) if file.stem != "still"),
    ]
    return LocalOnly(Starlette(routes=routes), port)


def _file_route(file: Path) -> Route:
    def served(request: Request) -> Response:
        return FileResponse(file)

    return Route(f"/{file.name}", served)


class _Server(uvicorn.Server):
    """Announces itself when it answers requests and handles signals, not before."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self.announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.announce()


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
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named: else 40 ms a frame
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        port = listener.getsockname()[1]
        app = make_app(port, run, data_dir)
        config = uvicorn.Config(
            app,
            http=Connection,
            limit_concurrency=MOST_CONNECTIONS,
            log_level="warning",
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        _Server(config, lambda: announce(f"http://{HOST}:{port}/")).run(sockets=[listener])
