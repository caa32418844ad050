"""What a server does not take on: more at once than it can answer, clients that are slow."""

import asyncio
from asyncio import TimerHandle, Transport
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_AT_ONCE = 8  # answers
MOST_CONNECTIONS = 128
LARGEST_BODY = 200_000  # bytes; 500 points of the lab are a tenth of it
HEAD_SECONDS = 10.0
BODY_SECONDS = 10.0


class Busy(Exception):  # noqa: N818 - it says what is the matter
    """As much is being computed as may be."""


class Slots:
    """How many answers are computed at a time.

    Args:
        most: of them.
    """

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self.left = most

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold one.

        Raises:
            Busy: if none is left.
        """
        if self.left == 0:
            raise Busy
        self.left -= 1
        try:
            yield
        finally:
            self.left += 1


Compute = Callable[[], dict[str, Any] | list[Any] | Response]


def endpoint(
    slots: Slots, prepare: Callable[[Request], Awaitable[Compute]]
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that computes its answer in a thread, if a slot is left.

    A wrong request is answered with the error message. A client that leaves is no error.

    Args:
        slots: of all endpoints.
        prepare: reads a request, and returns what computes its answer.
    """

    async def answer(request: Request) -> Response:
        try:
            compute = await prepare(request)
            with slots.taken():
                found = await run_in_threadpool(compute)
            return found if isinstance(found, Response) else JSONResponse(found)
        except Busy:
            return JSONResponse({"error": "busy: try again"}, 503, {"retry-after": "1"})
        except TimeoutError:
            return JSONResponse({"error": "the request took too long"}, 408)
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        except (ValueError, TypeError, OverflowError, OSError, KeyError) as error:
            return JSONResponse({"error": str(error)}, 400)

    return answer


async def read_body(request: Request, most: int = LARGEST_BODY) -> bytes:
    """The body of a request.

    Args:
        request: of a client.
        most: bytes that it may have.

    Raises:
        ValueError: if it is too large.
        TimeoutError: if it takes too long.
        ClientDisconnect: if the client leaves before its end.
    """
    body = bytearray()
    async with asyncio.timeout(BODY_SECONDS):
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise ValueError(f"a request must be at most {most} bytes")
    return bytes(body)


class Connection(H11Protocol):
    """Is closed if the head of a request takes too long."""

    _waiting: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._waiting is not None:
            self._waiting.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._waiting is None and self._is_idle():
            self._wait()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._waiting = None
        if self._is_idle():
            self.transport.close()

    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete
