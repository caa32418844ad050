"""A server for this machine's user alone.

It listens on 127.0.0.1 and checks the headers Host and Origin: the page of another site cannot read
from it, even through a DNS name that points to this machine (DNS rebinding).
"""

import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import uvicorn
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cclp.server.limits import MOST_CONNECTIONS, Connection

HOST = "127.0.0.1"
SHARED = Path(__file__).parent / "page"  # what several pages are made of
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
    """Refuses requests with another Host or Origin than this server's; adds security headers.

    Args:
        app: that answers all others.
        port: that it will listen on.
        command: whose page this is, for messages: "cclp lab".
    """

    def __init__(self, app: ASGIApp, port: int, command: str) -> None:
        self.app, self.command = app, command
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Request(scope).headers
        origin = headers.get("origin")
        if headers.get("host") not in self.hosts:
            answer = PlainTextResponse(f"{self.command} answers on this machine only.\n", 421)
            await answer(scope, receive, send)
        elif origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            answer = PlainTextResponse(f"{self.command} answers its own page only.\n", 403)
            await answer(scope, receive, send)
        else:
            await self.app(scope, receive, _with_headers(send))


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            known = {name for name, _ in message["headers"]}
            added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            more = [pair for pair in added if pair[0] not in known]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sent


def file_routes(files: Iterable[Path]) -> list[Route]:
    """A route for each of these files, by its name, and for nothing else."""
    return [_file_route(file) for file in sorted(files, key=lambda file: file.name)]


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


def serve_app(
    make_app: Callable[[int], ASGIApp], port: int, announce: Callable[[str], None]
) -> None:
    """Serve an application until a signal stops it.

    Args:
        make_app: makes it for the port that it will listen on.
        port: to listen on; 0: any free one.
        announce: called with the address as soon as it can be opened.

    Raises:
        OSError: if the port is taken.
    """
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named: else 40 ms an answer
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        port = listener.getsockname()[1]
        config = uvicorn.Config(
            make_app(port),
            http=Connection,
            limit_concurrency=MOST_CONNECTIONS,
            log_level="warning",
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        _Server(config, lambda: announce(f"http://{HOST}:{port}/")).run(sockets=[listener])
