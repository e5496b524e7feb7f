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

LINE = 1000  #: events that wait for one follower
GRACE = 0.5  # seconds that a follower whose time is over has to say so


class Ended(Exception):
    """A follower's stream is over."""

    def __init__(self, code: int, reason: str, *, gone: bool = False, begin: int = 0) -> None:
        super().__init__(reason)
        self.code = code  #: of a WebSocket
        self.reason = reason
        self.gone = gone  #: what was missed cannot be told: look at everything again,
        self.begin = begin  #: and come back from here on, at the earliest


def too_slow() -> Ended:
    return Ended(
        4408, f"too slow: {LINE:,} events wait; come back with the last position", gone=True
    )


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
        self._line: deque[Frame] = deque()
        self._attached = False
        self._ended: Ended | None = None
        self.task: asyncio.Task[None] | None = None  #: that passes on what it is told
        self._cancel: asyncio.TimerHandle | None = None
        self._read = 0
        self.wake = asyncio.Event()
        self.unsure = False

    @property
    def position(self) -> int:
        """All that it wants up to here was taken, once its line is empty."""
        return max(self._seen, self._hub.position) if self._attached else self._seen

    def check(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _of(self, frames: list[Frame]) -> list[Frame]:
        """What it wants of them."""
        wanted, seen = self._wanted, self._seen
        if wanted is None:
            return frames if frames[0].position > seen else [f for f in frames if f.position > seen]
        return [frame for frame in frames if frame.position > seen and wanted(frame.event)]

    def attach(self, position: int) -> None:
        self._seen = position
        self._attached = True

    def offer(self, frames: list[Frame], *, wake: bool = True) -> None:
        if not frames or not self._attached or self._ended is not None:
            return
        more = self._of(frames)
        if not more:
            return
        if len(self._line) + len(more) > LINE:
            self.end(too_slow())
            return
        self._line.extend(more)
        if wake:
            self.wake.set()

    async def take(self, patience: float) -> list[Frame]:
        """The next ones; none, if none came in time. Raises when it is over."""
        if not self._attached and (past := await self._past()):
            return past
        if self._ended is None and not self._line and not self.unsure:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self.wake.wait()
        self.wake.clear()
        self.check()
        taken = list(self._line)
        self._line.clear()
        return taken

    async def _past(self) -> list[Frame]:
        """What it missed: from the database as far as need be, then from the ring. Between that and
        being attached nothing else runs, so that nothing is told in between."""
        hub = self._hub
        if self.topic == GLANCE:
            return self._lately()
        while self._seen < hub.floor:
            self.check()
            if self._read > outbox.KEPT:  # it never catches up
                raise forgotten(self._seen)
            past = await run_in_threadpool(hub.read, self._seen, hub.position)
            found = self._of(past.frames) if past.frames else []
            self._seen = past.position
            self._read += len(past.frames)
            if found:
                return found
        missed = self._kept()
        found = self._of(missed) if missed else []
        self.attach(max(self._seen, hub.position))
        return found

    def _kept(self) -> list[Frame]:
        """What the ring has of what it missed."""
        missed: list[Frame] = []
        for frame in reversed(self._hub.ring):
            if frame.position <= self._seen:
                break
            missed.append(frame)
        return missed[::-1]

    def _lately(self) -> list[Frame]:
        """Who glances has missed little, or looks again."""
        missed = self._kept()
        self.unsure = self._seen < self._hub.floor or len(missed) > MOST
        self.attach(max(self._seen, self._hub.position))
        return missed[-MOST:]

    def end(self, why: Ended) -> None:
        """It is told so; and if it hangs in a socket that takes nothing, it is torn from it."""
        if self._ended is None:
            self._ended = why
            self._line.clear()
            self.wake.set()
            task = self.task
            if task is not None:
                self._cancel = task.get_loop().call_later(GRACE, task.cancel)

    def leave(self) -> None:
        if self._cancel is not None:
            self._cancel.cancel()
        self._hub.leave(self)
