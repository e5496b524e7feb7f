"""Live events: as an event stream (SSE), which browsers resume on their own, and over a WebSocket."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Annotated, Any
from uuid import UUID

from fastapi import FastAPI, Query
from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.web.api.parameters import Me, Web, entity_of
from holdfast.web.live.frames import KINDS, Message, message
from holdfast.web.live.stream import END, Stream, ended_by, open_stream
from holdfast.web.live.subscriber import Ended
from holdfast.web.models import Input, Name
from holdfast.web.problems import Refusal
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Identity, Permission
from holdfast.web.security.throttle import Throttle

logger = logging.getLogger("holdfast.web")
routes = Routes("events")

LIFE = 30.0  #: seconds of an event stream: proxies and servers limit endless responses
RETRY = 500  #: milliseconds until a browser reconnects
CHUNK = 256 * 1024  # characters of one write
LARGEST = 4096  # characters of one message from a client; none is expected
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
}
#: For requests with a link: pages of any site may read the response, since the link grants access.
_ANYWHERE = {
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
}


class EventQuery(Input):
    """Which events; all that is given must hold."""

    after: int | None = Field(None, ge=0, le=2**63 - 1, description="The last position seen")
    job: UUID | None = Field(None, description="Events of this job")
    entity: Annotated[str, Field(max_length=500, examples=["movie:7"])] | None = None
    type: Name | None = None
    queue: Name | None = None
    kinds: Annotated[
        list[str],
        Field(
            max_length=20,
            default_factory=list,
            description="Events of these kinds, such as `job:failed`",
        ),
    ]
    glance: bool = Field(
        False,
        description="A sample of all events, for pages that fetch what they show: of each kind at "
        "most 10 events a second, and a `hello` when it is time to fetch again",
    )
    link: Annotated[str, Field(max_length=500)] | None = Field(
        None, description="A signed link, instead of everything else: it says which job"
    )

    def filter(self, me: Identity) -> dict[str, Any]:
        kinds = [kind for words in self.kinds for kind in words.split(",") if kind]
        if wrong := sorted(set(kinds) - KINDS.keys()):
            raise InvalidInput(f"kinds={wrong[0][:80]!r}: there are {', '.join(KINDS)}")
        given = {
            "job": self.job,
            "entity": entity_of(self.entity),
            "type": self.type,
            "queue": self.queue,
            "kinds": [KINDS[kind].value for kind in kinds] or None,
        }
        found = {name: value for name, value in given.items() if value is not None}
        if me.job is not None and (found or self.after is not None or self.glance):
            raise InvalidInput("a link says what may be followed: leave everything else out")
        if self.glance and found:
            raise InvalidInput(
                f"glance: tells a little of everything: leave {', '.join(found)} out"
            )
        return found


@routes.get(
    "/events",
    may=Permission.EVENTS_READ,
    answer=None,
    kinds=["text/event-stream"],
    linked=True,
    also={204: {"description": "The job of this link has ended: do not reconnect"}},
)
async def follow(
    web: Web, me: Me, query: Annotated[EventQuery, Query()], request: Request
) -> Response:
    """Live events of jobs; `Last-Event-ID` or `after` resume the stream."""
    headers = _HEADERS | (_ANYWHERE if me.job is not None else {})
    last = request.headers.get("last-event-id", "")
    filter = query.filter(me)
    if me.job is not None and last == END:
        return Response(status_code=204, headers=_ANYWHERE)
    after = _position(last) if last else query.after
    try:
        stream, begin = await open_stream(web, request, me, filter, after, sample=query.glance)
    except Ended as ended:
        if not ended.gone:
            raise Refusal(503, ended.reason, headers={"Retry-After": "2"}) from None
        return Response(_gone(ended, max(ended.begin, web.hub.position)), headers=headers)
    return EventStream(stream, begin, headers)


def _position(last: str) -> int | None:
    """Parse the header Last-Event-ID; None for the id of a guest's last message."""
    return int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None


def _gone(ended: Ended, position: int) -> str:
    """Return the message for lost events. Its id overrides the `after` of the address on a
    reconnect."""
    return message("gone", {"reason": ended.reason}, position).sse


class EventStream(Response):
    def __init__(self, stream: Stream, begin: Sequence[Message], headers: dict[str, str]) -> None:
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._stream = stream
        self._begin = list(begin)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            await first_of(self._write(send), _until_gone(receive))
        finally:
            self._stream.close()

    async def _write(self, send: Send) -> None:
        async def write(text: str, more: bool = True) -> None:
            body = text.encode("ascii")
            await send({"type": "http.response.body", "body": body, "more_body": more})

        await write(f"retry: {RETRY}\n\n")
        last = ""
        try:
            async with aclosing(self._stream.messages(self._begin, LIFE)) as batches:
                async for batch in batches:
                    text = "".join(one.sse for one in batch)
                    for at in range(0, len(text), CHUNK):
                        await write(text[at : at + CHUNK])
        except Ended as ended:
            last = _gone(ended, self._stream.present_position) if ended.gone else ""
        except Refusal:  # its job was deleted: the client gets the problem when it reconnects
            pass
        await write(last, more=False)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_of(*works: Any) -> None:
    """Run both until the first ends or is cancelled. Raises the exception of either."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for result in ended:
        if isinstance(result, Exception):
            raise result


# over a WebSocket


async def socket(websocket: WebSocket) -> None:
    """Accept before any check: a browser does not tell a page why a socket was not accepted."""
    await websocket.accept()
    try:
        await _follow(websocket.app.state.web, websocket)
        return
    except Ended as end:
        ended = end
    except (Refusal, HoldfastError) as problem:
        ended = ended_by(problem)
    except Exception:
        logger.exception("a live stream failed")
        ended = Ended(1011, "the server's log has the reason")
    reason = ended.reason.encode("utf-8", "replace")[:120].decode(errors="ignore")
    with suppress(TimeoutError, RuntimeError, WebSocketDisconnect, OSError):
        async with asyncio.timeout(0.5):  # a socket that takes nothing would not take this either
            await websocket.close(ended.code, reason)


async def _follow(web: Any, websocket: WebSocket) -> None:
    """Send events until the client disconnects. Raises Ended or Refusal if the server ends the
    stream."""
    me = await web.gate.admit(websocket, Permission.EVENTS_READ, linked=True)
    query = _query(websocket)
    stream, begin = await open_stream(
        web, websocket, me, query.filter(me), query.after, sample=query.glance
    )
    try:
        await first_of(_send(stream, begin, websocket), _listen(websocket))
        stream.check()
    finally:
        stream.close()


def _query(websocket: WebSocket) -> EventQuery:
    params = websocket.query_params
    given: dict[str, Any] = dict(params) | {"kinds": params.getlist("kinds")}
    try:
        return EventQuery.model_validate(given)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{where}: {first['msg']}") from None


async def _send(stream: Stream, begin: list[Message], websocket: WebSocket) -> None:
    try:
        async with aclosing(stream.messages(begin, None)) as batches:
            async for batch in batches:
                for one in batch:
                    await websocket.send_text(one.text)
    except (WebSocketDisconnect, RuntimeError):  # the client disconnected during a message
        return
    raise Ended(1000, "the job has ended")


async def _listen(websocket: WebSocket) -> None:
    """Receive until the client disconnects. Raises Ended for large or frequent messages; none is
    expected."""
    throttle = Throttle(per_minute=60, burst=20)
    while True:
        received = await websocket.receive()
        if received["type"] == "websocket.disconnect":
            return
        if len(received.get("text") or received.get("bytes") or "") > LARGEST:
            raise Ended(1009, f"more than {LARGEST:,} characters at once")
        if throttle.wait("") > 0:
            raise Ended(4429, "too many messages: nothing needs to be said here")
        throttle.spend("")


socket.holdfast_permission = Permission.EVENTS_READ  # type: ignore[attr-defined]


def join(server: FastAPI, prefix: str) -> None:
    routes.join(server, prefix)
    server.router.routes.append(WebSocketRoute(f"{prefix}/events", socket, name="follow_socket"))
