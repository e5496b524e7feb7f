"""The messages for one subscriber, over SSE or a WebSocket: from which position, in which view, until
when."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from holdfast.errors import HoldfastError, JobNotFound
from holdfast.events.feed import make_topic, make_wanted
from holdfast.events.sampling import GLANCE
from holdfast.jobs.job import FINISHED
from holdfast.web.live.frames import FOR_GUESTS, Frame, Message, View, message, present, without
from holdfast.web.live.subscriber import Ended, Subscriber
from holdfast.web.problems import Refusal, status_of
from holdfast.web.security.permissions import Identity, Permission

TICK = 10.0  #: seconds between two pings, and between two checks of the permission
END = "end"  #: the id of the last message to a guest
_FIRST_LOOK, _GROWTH = 0.25, 2.0


class Stream:
    def __init__(
        self, web: Any, request: HTTPConnection, me: Identity, subscriber: Subscriber
    ) -> None:
        self._web = web
        self._request = request
        self._me = me
        self._subscriber = subscriber
        self._shown: Any = None  # the last state of a guest's job that was sent
        self._is_over = False  # the final state of a guest's job is sent, or in the batch
        self._pause = _FIRST_LOOK
        self.at = subscriber.position  #: every event up to here was sent
        self._view: View = view_of(me)

    async def messages(
        self, begin: list[Message], life: float | None
    ) -> AsyncGenerator[list[Message], None]:
        """Yield batches of messages for `life` seconds, or until the subscriber ends."""
        subscriber, guest = self._subscriber, self._me.job
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
            must_refetch, subscriber.must_refetch = subscriber.must_refetch, False
            if frames and guest:
                yield self._until_final(frames)
                if self._is_over:
                    return
            elif (frames or must_refetch) and not guest:
                sent = [frame.message(self._view) for frame in frames]
                yield [*sent, message("hello", {}, self.at)] if must_refetch else sent
            now = time.monotonic()
            if now >= tick:
                await self._check()
                yield [message("ping", {}, self.at)]
                tick = now + TICK
            if guest and now >= look:
                if found := await self.present():
                    yield found
                if self._is_over:
                    return
                self._pause = min(TICK, _GROWTH * self._pause)
                look = now + self._pause
        yield [message("ping", {}, self.at)]

    def _until_final(self, frames: list[Frame]) -> list[Message]:
        found: list[Message] = []
        for frame in frames:
            event, sent = frame.event, frame.message(self._view)
            self._shown = (event.status, event.progress, event.message)
            self._is_over = frame.is_final
            if self._is_over:
                return [*found, replace(sent, id=END)]
            found.append(sent)
        return found

    async def present(self) -> list[Message]:
        """Return the state of a guest's job, if it was not sent yet. It is read at the start and now
        and then, since writers learn with a delay that the job has a subscriber."""
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
        sent = message(name, without(data, self._view), self.at)
        return [replace(sent, id=END) if ended else sent]

    async def _check(self) -> None:
        """Check the permission again, so that a revoked token ends its streams."""
        try:
            me = await self._web.gate.admit(self._request, Permission.EVENTS_READ, linked=True)
        except Refusal as refusal:
            raise ended_by(refusal) from None
        except HoldfastError as problem:
            raise Ended(1013, str(problem)[:100]) from None
        self._view = view_of(me)

    @property
    def present_position(self) -> int:
        """The position from which a new subscriber would start."""
        return int(self._web.hub.position)

    def check(self) -> None:
        """Raise Ended if the stream was ended."""
        self._subscriber.check()

    def close(self) -> None:
        self._subscriber.leave()


def view_of(me: Identity) -> View:
    if me.job is not None:
        return "result" if me.result else "guest"
    return "whole" if me.may(Permission.JOBS_PAYLOAD) else "bare"


def ended_by(problem: Refusal | HoldfastError) -> Ended:
    status = problem.status_code if isinstance(problem, Refusal) else status_of(problem)
    detail = problem.detail if isinstance(problem, Refusal) else str(problem)
    return Ended(4000 + status if status < 500 else 1013, detail[:100])


async def open_stream(
    web: Any,
    request: HTTPConnection,
    me: Identity,
    filter: dict[str, Any],
    after: int | None,
    *,
    sample: bool = False,
) -> tuple[Stream, list[Message]]:
    """Return a stream, to be closed by the caller, and its first messages. `sample`: of all events, a
    few of each kind a second."""
    if me.job is not None:
        wanted = make_wanted([kind.value for kind in FOR_GUESTS], job=me.job)
        subscriber = await web.hub.join(wanted, None, me.job)
    elif sample:
        subscriber = await web.hub.join(None, after, GLANCE)
    else:
        wanted = make_wanted(**filter)
        topic = make_topic(**filter)
        subscriber = await web.hub.join(wanted if filter else None, after, topic)
    stream = Stream(web, request, me, subscriber)
    try:
        if me.job is not None:
            return stream, await stream.present()
        return stream, [message("hello", {}, stream.at)] if after is None else []
    except BaseException:
        stream.close()
        raise
