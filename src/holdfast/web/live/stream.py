"""What one subscriber is sent, over SSE or a WebSocket: where it starts, what follows, and when it
ends."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from holdfast.errors import HoldfastError, JobNotFound
from holdfast.events.feed import make_topic, make_wanted
from holdfast.events.sampling import GLANCE
from holdfast.jobs.job import FINISHED
from holdfast.web.live.frames import FOR_GUESTS, Frame, View, message, present, sse, without
from holdfast.web.live.subscriber import Ended, Subscriber
from holdfast.web.problems import Refusal, status_of
from holdfast.web.security.permissions import Identity, Permission

TICK = 10.0  #: seconds between two pings, and between two looks whether somebody still may
END = "end"  #: the id of a guest's last message: nothing comes after it
_FIRST_LOOK, _GROWTH = 0.25, 2.0


class Notice:
    """A message that is no event of the outbox."""

    def __init__(self, name: str, data: dict[str, Any], position: int, id: str | None = None):
        self._name = name
        self._text = message(name, data, position)
        self._id = position if id is None else id

    def text(self, view: View) -> str:
        return self._text

    def sse(self, view: View) -> str:
        return sse(self._name, self._text, self._id)


class Ping(Notice):
    """Nothing has happened up to here: who comes back begins here."""

    def __init__(self, position: int) -> None:
        super().__init__("ping", {}, position)

    def sse(self, view: View) -> str:
        return f": ping\nid: {self._id}\n\n"


Message = Frame | Notice


class Stream:
    def __init__(
        self, web: Any, request: HTTPConnection, me: Identity, subscriber: Subscriber
    ) -> None:
        self._web = web
        self._request = request
        self._me = me
        self._follower = subscriber
        self._shown: Any = None  # of a guest's job,
        self._is_over = False  # which has ended, and that was told
        self._pause = _FIRST_LOOK
        self.at = subscriber.position  #: all up to here was sent
        self.view: View = view_of(me)

    async def messages(
        self, begin: list[Message], life: float | None
    ) -> AsyncGenerator[list[Message], None]:
        """Until the time is over, or somebody ends it."""
        subscriber, guest = self._follower, self._me.job
        subscriber.task = asyncio.current_task()
        now = time.monotonic()
        deadline = float("inf") if life is None else now + life
        tick, look = now + TICK, now + self._pause if guest else float("inf")
        yield begin
        if self._is_over:
            return
        while (now := time.monotonic()) < deadline:
            frames = await subscriber.take(max(0.0, min(tick, look, deadline) - now))
            self.at = frames[-1].position if frames else subscriber.position
            unsure, subscriber.unsure = subscriber.unsure, False
            if frames and guest:
                yield self._until_final(frames)
                if any(frame.is_final for frame in frames):
                    return
            elif (frames or unsure) and not guest:
                yield [*frames, hello(self.at)] if unsure else list(frames)
            now = time.monotonic()
            if now >= tick:
                await self._check()
                yield [Ping(self.at)]
                tick = now + TICK
            if guest and now >= look:
                if found := await self.present():
                    yield found
                if self._is_over:
                    return
                self._pause = min(TICK, _GROWTH * self._pause)
                look = now + self._pause
        yield [Ping(self.at)]

    def _until_final(self, frames: list[Frame]) -> list[Message]:
        told: list[Message] = []
        for frame in frames:
            event = frame.event
            self._shown = (event.status, event.progress, event.message)
            if frame.is_final:
                return [*told, Last(frame)]
            told.append(frame)
        return told

    async def present(self) -> list[Message]:
        """A guest's job, and how it stands if that was not told yet. They are told so at the
        beginning, and once in a while: writers learn late that somebody follows."""
        try:
            job = await run_in_threadpool(self._web.app.jobs.get, self._me.job)
        except JobNotFound:
            raise Refusal(404, "this job does not exist any more") from None
        shown = (job.status, job.progress, job.message)
        if shown == self._shown:
            return []
        self._shown = shown
        self._is_over = ended = job.status in FINISHED
        name, data = present(job, self._web.redact(job.result) if ended else None)
        id = END if ended else None
        return [Notice(name, without(data, self.view), self.at, id)]

    async def _check(self) -> None:
        """May they still? A token that was revoked ends its streams."""
        try:
            me = await self._web.gate.admit(self._request, Permission.EVENTS_READ, linked=True)
        except Refusal as refusal:
            raise ended_by(refusal) from None
        except HoldfastError as problem:
            raise Ended(1013, str(problem)[:100]) from None
        self.view = view_of(me)

    @property
    def present_position(self) -> int:
        """Where somebody would begin who came now."""
        return int(self._web.hub.position)

    def check(self) -> None:
        """Raises if somebody has ended it."""
        self._follower.check()

    def close(self) -> None:
        self._follower.leave()


class Last(Notice):
    """A guest's last event."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def text(self, view: View) -> str:
        return self._frame.text(view)

    def sse(self, view: View) -> str:
        return sse(self._frame.name, self._frame.text(view), END)


def view_of(me: Identity) -> View:
    if me.job is not None:
        return "result" if me.result else "guest"
    return "whole" if me.may(Permission.JOBS_PAYLOAD) else "bare"


def hello(position: int) -> Message:
    return Notice("hello", {}, position)


def ended_by(problem: Refusal | HoldfastError) -> Ended:
    status = problem.status if isinstance(problem, Refusal) else status_of(problem)
    detail = problem.detail if isinstance(problem, Refusal) else str(problem)
    return Ended(4000 + status if status < 500 else 1013, detail[:100])


async def open_stream(
    web: Any,
    request: HTTPConnection,
    me: Identity,
    filter: dict[str, Any],
    after: int | None,
    *,
    glance: bool = False,
) -> tuple[Stream, list[Message]]:
    """A stream, and how it begins. Close it. `glance`: a little of everything."""
    if me.job is not None:
        wanted = make_wanted([kind.value for kind in FOR_GUESTS], job=me.job)
        subscriber = await web.hub.join(wanted, None, me.job)
    elif glance:
        subscriber = await web.hub.join(None, after, GLANCE)
    else:
        wanted = make_wanted(**filter)
        topic = make_topic(**filter)
        subscriber = await web.hub.join(wanted if filter else None, after, topic)
    stream = Stream(web, request, me, subscriber)
    try:
        if me.job is not None:
            return stream, await stream.present()
        return stream, [hello(stream.at)] if after is None else []
    except BaseException:
        stream.close()
        raise
