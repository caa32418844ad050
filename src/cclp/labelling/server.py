"""The server of the page of ``cclp label``: it hands requests to the workbench, and answers on."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from cclp.files import parse_json
from cclp.labelling.decisions import Stale
from cclp.server.limits import Compute, Slots, endpoint, read_body
from cclp.server.local import SHARED, LocalOnly, file_routes, serve_app

if TYPE_CHECKING:
    from cclp.labelling.workbench import Workbench

PAGE = Path(__file__).parent / "page"
LARGEST_BODY = 16_000_000  # bytes: a lasso around a million samples
MOST_AT_ONCE = 64  # a page of pictures; connections are limited beside
PICTURES_ARE_KEPT = {"cache-control": "private, max-age=3600"}  # of one session: see `_place`

Asked = Mapping[str, str]
Content = dict[str, Any]


class _WrongKind(Exception):  # noqa: N818 - it says what is the matter
    """A request that a form of another site could send too."""


def make_app(port: int, bench: "Workbench") -> ASGIApp:
    """The application.

    Args:
        port: that it will listen on.
        bench: that knows the samples and keeps the decisions.
    """
    slots = Slots(MOST_AT_ONCE)
    place = _place(bench)

    def state(found: Content) -> Content:
        return {**found, "place": place}

    def get(path: str, answer: Callable[[Asked], Any]) -> Route:
        async def prepare(request: Request) -> Compute:
            return lambda: answer(request.query_params)

        return Route(path, endpoint(slots, prepare))

    def post(path: str, answer: Callable[[Content], Any]) -> Route:
        async def prepare(request: Request) -> Compute:
            content = await _read_json(request)
            return lambda: _answered(answer, place, content)

        return Route(path, _refusing_forms(endpoint(slots, prepare)), methods=["POST"])

    def page(request: Request) -> Response:
        return FileResponse(PAGE / "label.html")

    routes = [
        Route("/", page),
        get("/api/state", lambda asked: state(bench.state())),
        get("/api/questions", lambda asked: bench.questions(_count(asked), _exclude(asked))),
        get("/api/question", lambda asked: bench.question(_number(asked, "sample"))),
        get("/api/sample", lambda asked: bench.sample(_number(asked, "sample"))),
        get("/api/believed", lambda asked: _believed(bench, asked)),
        get("/api/disagreements", lambda asked: bench.disagreements(_count(asked))),
        get("/api/search", lambda asked: bench.search(asked["words"], _count(asked))),
        get("/api/positions", lambda asked: _bytes(bench.positions())),
        get("/api/beliefs", lambda asked: _bytes(bench.beliefs())),
        get("/api/given", lambda asked: _bytes(bench.given())),
        get("/picture", lambda asked: _picture(bench, asked)),
        post("/api/decide", lambda content: state(_decide(bench, content))),
        post("/api/undo", lambda content: state(bench.undo(content["version"]))),
        post("/api/redo", lambda content: state(bench.redo(content["version"]))),
        post("/api/classes", lambda content: state(_change_classes(bench, content))),
        post("/api/export", lambda content: _export(bench, content)),
        post("/api/train", lambda content: state(_state_after(bench, bench.train, content))),
        post("/api/stop", lambda content: state(_state_after(bench, bench.stop_training))),
        *file_routes([*SHARED.iterdir(), *PAGE.iterdir()]),
    ]
    return LocalOnly(Starlette(routes=routes), port, "cclp label")


def serve(bench: "Workbench", port: int, announce: Callable[[str], None]) -> None:
    """Serve the page until a signal stops it.

    Args:
        bench: that knows the samples and keeps the decisions.
        port: to listen on; 0: any free one.
        announce: called with the address as soon as it can be opened.

    Raises:
        OSError: if the port is taken.
    """
    serve_app(lambda at: make_app(at, bench), port, announce)


def _place(bench: "Workbench") -> str:
    """Of these decisions: a page that was opened for others must not write among them."""
    return hashlib.sha256(str(bench.folder.resolve()).encode()).hexdigest()[:16]


async def _read_json(request: Request) -> Content:
    """The object that a request holds.

    Raises:
        ValueError: if it holds none.
        _WrongKind: if its content-type is not JSON, which a form cannot send.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise _WrongKind
    content = parse_json(await read_body(request, LARGEST_BODY))
    if not isinstance(content, dict):
        raise ValueError(f"request must be an object, got {type(content).__name__}")
    return content


def _refusing_forms(answer: Any) -> Any:
    async def answered(request: Request) -> Response:
        try:
            found: Response = await answer(request)
        except _WrongKind:
            return JSONResponse({"error": "the content-type must be application/json"}, 415)
        return found

    return answered


def _answered(answer: Callable[[Content], Any], place: str, content: Content) -> Any:
    """An answer to what this page sends, 409 to a page that does not know the latest state."""
    if content.get("place") != place:
        return JSONResponse({"error": "other data are labeled here now"}, 410)
    try:
        return answer(content)
    except Stale as error:
        return JSONResponse({"error": str(error)}, 409)
    except KeyError as error:
        raise ValueError(f"request has no {error}") from None


def _number(asked: Asked, name: str) -> int:
    try:
        return int(asked[name])
    except (KeyError, ValueError):
        raise ValueError(f"{name} must be an integer, got {asked.get(name)!r}") from None


def _count(asked: Asked) -> int:
    return _number(asked, "count")


def _exclude(asked: Asked) -> list[int]:
    text = asked.get("exclude", "")
    return [_number({"exclude": part}, "exclude") for part in text.split(",") if part]


def _text(content: Content, name: str) -> str:
    if not isinstance(content[name], str):
        raise TypeError(f"{name} must be text, got {type(content[name]).__name__}")
    return str(content[name])


def _bytes(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream")


def _picture(bench: "Workbench", asked: Asked) -> Response:
    content = bench.picture(_number(asked, "sample"), _number(asked, "size"))
    return Response(content, media_type="image/png", headers=PICTURES_ARE_KEPT)


def _believed(bench: "Workbench", asked: Asked) -> list[Content]:
    skip = _number(asked, "skip") if "skip" in asked else 0
    return bench.believed(_number(asked, "class"), _count(asked), skip)


def _decide(bench: "Workbench", content: Content) -> Content:
    """Decisions as pairs, or samples that all get one class: a lasso holds many."""
    if "samples" in content:
        samples, given = content["samples"], content["class"]
        if not isinstance(samples, list):
            raise TypeError(f"samples must be a list, got {type(samples).__name__}")
        decisions = [{"sample": sample, "class": given} for sample in samples]
    else:
        decisions = content["decisions"]
    return bench.decide(content["version"], decisions)


def _change_classes(bench: "Workbench", content: Content) -> Content:
    version, what = content["version"], content["do"]
    if what == "add":
        return bench.add_class(version, _text(content, "name"))
    if what == "rename":
        return bench.rename_class(version, content["class"], _text(content, "name"))
    if what == "merge":
        return bench.merge_classes(version, content["class"], content["into"])
    raise ValueError(f"do must be add, rename or merge, got {what!r}")


def _export(bench: "Workbench", content: Content) -> Content:
    to = None if content.get("to") is None else _text(content, "to")
    return bench.export(content["kind"], to)


def _state_after(
    bench: "Workbench", act: Callable[..., object], content: Content | None = None
) -> Content:
    """The state after something has begun or ended in the background."""
    act(*([content["minutes"]] if content else []))
    return bench.state()
