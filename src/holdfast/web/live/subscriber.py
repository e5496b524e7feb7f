"""A subscriber to live events: its queue, its position, and why it ends."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from holdfast.events import outbox
from holdfast.events.feed import Wanted
from holdfast.events.sampling import GLANCE, MOST
from holdfast.web.live.frames import Frame

if TYPE_CHECKING:
    from holdfast.web.live.hub import Hub

LINE = 1000  #: events that may wait for one subscriber
GRACE = 0.5  # seconds that an ended subscriber has to send its last message


class Ended(Exception):
    """The stream of a subscriber has ended."""

    def __init__(self, code: int, reason: str, *, gone: bool = False, begin: int = 0) -> None:
        super().__init__(reason)
        self.code = code  #: of a WebSocket
        self.reason = reason
        self.gone = gone  #: missed events are lost: the client fetches everything again,
        self.begin = begin  #: and resumes from here, at the earliest


def forgotten(after: int, begin: int = 0) -> Ended:
    reason = f"the events after {after} are gone: fetch all, and begin anew"
    return Ended(4410, reason, gone=True, begin=begin)


def closing() -> Ended:
    return Ended(1012, "the server stops: come back")


class Subscriber:
    """Its state belongs to the event loop."""

    def __init__(self, hub: "Hub", wanted: Wanted | None, after: int | None, topic: str) -> None:
        self.topic = topic
        self._hub = hub
        self._wanted = wanted
        self._seen = 0 if after is None else after
        self._queue: deque[Frame] = deque()
        self._attached = False
        self._ended: Ended | None = None
        self.task: asyncio.Task[None] | None = None  #: the task that sends its events
        self._cancel: asyncio.TimerHandle | None = None
        self._read = 0
        self.wake = asyncio.Event()
        self.must_refetch = False  #: events may be missing: the client is told to fetch again

    @property
    def position(self) -> int:
        """Every wanted event up to here has been taken, once its queue is empty."""
        return max(self._seen, self._hub.position) if self._attached else self._seen

    def check(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _unseen(self, frames: list[Frame]) -> list[Frame]:
        """Return the events that it wants and has not seen."""
        wanted, seen = self._wanted, self._seen
        if wanted is None and (not frames or frames[0].position > seen):
            return frames
        return [f for f in frames if f.position > seen and (wanted is None or wanted(f.event))]

    def attach(self, position: int) -> None:
        """Let the hub pass on the events after a position."""
        self._seen = position
        self._attached = True

    def offer(self, frames: list[Frame], *, wake: bool = True) -> None:
        if not self._attached or self._ended is not None or not (more := self._unseen(frames)):
            return
        if len(self._queue) + len(more) > LINE:
            reason = f"too slow: {LINE:,} events wait; come back with the last position"
            self.end(Ended(4408, reason, gone=True))
            return
        self._queue.extend(more)
        if wake:
            self.wake.set()

    async def take(self, patience: float) -> list[Frame]:
        """Wait for the next events, and return them; none if none came in time. Raises Ended."""
        if not self._attached and (past := await self._catch_up()):
            return past
        if self._ended is None and not self._queue and not self.must_refetch:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self.wake.wait()
        self.wake.clear()
        self.check()
        taken = list(self._queue)
        self._queue.clear()
        return taken

    async def _catch_up(self) -> list[Frame]:
        """Return missed events: from the database as far as necessary, then from the ring. Between
        reading the ring and attaching, nothing else runs in the event loop, so no event is lost."""
        hub = self._hub
        if self.topic == GLANCE:
            return self._sample()
        while self._seen < hub.floor:
            self.check()
            if self._read > outbox.KEPT:  # it would never catch up
                raise forgotten(self._seen)
            past, position = await run_in_threadpool(hub.read, self._seen, hub.position)
            found = self._unseen(past)
            self._seen = position
            self._read += len(past)
            if found:
                return found
        found = self._unseen(self._ring_after_seen())
        self.attach(max(self._seen, hub.position))
        return found

    def _ring_after_seen(self) -> list[Frame]:
        """Return missed events from the ring."""
        missed: list[Frame] = []
        for frame in reversed(self._hub.ring):
            if frame.position <= self._seen:
                break
            missed.append(frame)
        return missed[::-1]

    def _sample(self) -> list[Frame]:
        """Return a few recent events for a sample. If more are missing, the client fetches again."""
        missed = self._ring_after_seen()
        self.must_refetch = self._seen < self._hub.floor or len(missed) > MOST
        self.attach(max(self._seen, self._hub.position))
        return missed[-MOST:]

    def end(self, why: Ended) -> None:
        """End its stream. If it hangs in a socket that takes nothing, its task is cancelled."""
        if self._ended is None:
            self._ended = why
            self._queue.clear()
            self.wake.set()
            task = self.task
            if task is not None:
                self._cancel = task.get_loop().call_later(GRACE, task.cancel)

    def leave(self) -> None:
        if self._cancel is not None:
            self._cancel.cancel()
        self._hub.leave(self)
