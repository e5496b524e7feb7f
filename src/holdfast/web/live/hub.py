"""The hub: one feed of the outbox for all subscribers of this server.

A thread reads the feed and encodes; the event loop distributes, a batch at a time. Each subscriber
has a short queue: one that does not keep up is disconnected, and may come back to its position. The
feed starts with the first subscriber and ends a little after the last. While all of them follow
single jobs, it follows only those, so that no event is written that nobody reads.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from holdfast.engine.engine import Engine
from holdfast.errors import AppClosed, HoldfastError
from holdfast.events import outbox
from holdfast.events.audience import EVERYTHING
from holdfast.events.event import JobEvent
from holdfast.events.feed import BATCH, Feed, Wanted, decoded
from holdfast.events.sampling import GLANCE
from holdfast.web.live.frames import Frame
from holdfast.web.live.sampling import Glances
from holdfast.web.live.subscriber import Ended, Subscriber, closing, forgotten

logger = logging.getLogger("holdfast.web")

KEPT = 10_000  #: events that are kept for those who come back,
ROOM = 16 * 1024 * 1024  #: as long as they take no more bytes than this
APART = 0.05  #: seconds between two batches: nobody sees that, and the loop is woken less often
IDLY = 0.2  #: the same, while nobody does more than glance
LINGER = 5.0  #: seconds that the feed goes on without followers
SETTLED = 2.0  #: seconds after which every process knows that somebody follows
_LOOK = 0.5  # seconds that the thread waits for events, before it looks whether it is still wanted
_ROUNDS = 3  # of the event loop, in which those who were told can pass it on


class Hub:
    """Its state belongs to the event loop; only `_follow` and `close` are called elsewhere."""

    def __init__(self, engine: Engine, encode: Callable[[JobEvent], Frame]) -> None:
        self._engine = engine
        self._encode = encode
        self.position = 0  #: all up to here was handed out
        self.floor = 0  #: all after this is in the ring
        self.ring: deque[Frame] = deque()
        self._of: dict[str, set[Subscriber]] = {}  # a topic
        #: of a topic: from which position on nothing of it is left out
        self._since: dict[str, asyncio.Future[int]] = {}
        self._kept = 0
        self._run: _Run | None = None
        self._closed = False
        self._left_at = 0.0
        self._glances = Glances(lambda: self._of.get(GLANCE, ()))

    async def join(
        self, wanted: Wanted | None, after: int | None, topic: str = EVERYTHING
    ) -> Subscriber:
        """Somebody follows from now on, or from a position that they have seen. `topic`: only that
        job, as `wanted` says too: so it is found without asking everybody; or a glance. No `wanted`:
        all."""
        if self._closed:
            raise closing()
        subscriber = Subscriber(self, wanted, after, topic)
        self._of.setdefault(topic, set()).add(subscriber)
        try:
            since = await self._begin(topic)
            subscriber.check()
            if after is None:
                subscriber.attach(max(self.position, since))
            elif after < since:
                raise forgotten(after, since)
            elif after > self.position:  # another server, ahead of this one, has told it
                await self._check(after)
        except BaseException:
            subscriber.leave()
            raise
        return subscriber

    async def _begin(self, topic: str) -> int:
        """Follow this, too; from which position on nothing of it is left out."""
        run = self._run or _Run(asyncio.get_running_loop())
        if run.loop is not asyncio.get_running_loop():
            raise Ended(1013, "this server follows on another event loop")
        if topic not in self._since:
            self._since[topic] = run.loop.create_future()
            run.follow(self._since)
        if self._run is None:
            self._start(run)
        return await asyncio.shield(self._since[topic])

    async def _check(self, after: int) -> None:
        bounds = await run_in_threadpool(self._engine.run, outbox.bounds, write=False)
        if after > bounds.newest:
            raise forgotten(after)

    def _start(self, run: "_Run") -> None:
        self._run = run
        run.thread = threading.Thread(
            target=self._follow, args=(run,), name="holdfast-live", daemon=True
        )
        run.thread.start()

    @property
    def subscribers(self) -> list[Subscriber]:
        return [one for some in self._of.values() for one in some]

    def leave(self, subscriber: Subscriber) -> None:
        self._left_at = time.monotonic()
        among = self._of.get(subscriber.topic, set())
        among.discard(subscriber)
        if among:
            return
        self._of.pop(subscriber.topic, None)
        self._since.pop(subscriber.topic, None)
        if self._run is not None and self.is_followed:
            self._run.topics = frozenset(self._since)  # it is written until its time is over

    @property
    def is_followed(self) -> bool:
        return bool(self._of)

    # in the thread

    def _follow(self, run: "_Run") -> None:
        problem: Exception | None = None
        try:
            feed = run.feed = Feed(
                self._engine, None, None, lambda event: True, run.topics, apart=APART
            )
            try:
                run.call(partial(self._opened, run, feed.position))
                while not run.stopped:
                    events = self._take(run, feed)
                    frames = [self._encode(event) for event in events]
                    self._pass_on(run, feed.position, frames)
            finally:
                feed.close()
        except AppClosed as error:
            problem = error
        except Exception as error:
            problem = error
            logger.warning("live events stop, and begin anew with who comes: %s", error)
        with suppress(RuntimeError):  # the loop is closed
            run.loop.call_soon_threadsafe(self._over, run, problem)

    def _take(self, run: "_Run", feed: Feed) -> list[JobEvent]:
        """What has come; and those who have come are let in."""
        asked, run.asked = run.asked, False
        feed.follow(run.topics)
        feed.apart = IDLY if run.topics == {GLANCE} else APART
        before = feed.since
        events = feed.take(0 if asked else _LOOK)
        if asked or feed.since is not before:
            run.call(partial(self._covered, run, feed.since))
        return events

    def _pass_on(self, run: "_Run", position: int, frames: list[Frame]) -> None:
        """Rests for as long as it took: at most half of the loop's time is for this."""
        if position == self.position and not frames and self.is_followed:
            return
        begin = time.monotonic()
        run.call(partial(self._tell, run, position, frames), rounds=_ROUNDS)
        if len(frames) == BATCH:
            time.sleep(min(0.5, time.monotonic() - begin))

    # in the loop

    def _opened(self, run: "_Run", position: int) -> None:
        self.position = self.floor = position
        self.ring.clear()
        self._kept = 0

    def _covered(self, run: "_Run", since: Mapping[str, int]) -> None:
        """These are followed now."""
        if self._run is not run:
            return
        begun = [topic for topic, told in self._since.items() if topic in since and not told.done()]
        for topic in begun:
            self._since[topic].set_result(since[topic])
        if begun:
            run.loop.call_later(SETTLED, self._settle, run, begun)

    def _settle(self, run: "_Run", topics: list[str]) -> None:
        """What others did before they knew was not written: those who looked then look again."""
        if self._run is not run:
            return
        for topic in topics:
            for subscriber in self._of.get(topic, ()):
                subscriber.unsure = True
                subscriber.wake.set()

    def _tell(self, run: "_Run", position: int, frames: list[Frame]) -> None:
        if self._run is not run:
            return
        for frame in frames:
            self.ring.append(frame)
            self._kept += frame.size
        while len(self.ring) > KEPT or (self._kept > ROOM and self.ring):
            oldest = self.ring.popleft()
            self._kept -= oldest.size
            self.floor = oldest.position
        self.position = position
        for subscriber in self._of.get(EVERYTHING, ()):
            subscriber.offer(frames)
        self._glances.show(frames)
        for frame in frames:
            for subscriber in self._of.get(frame.event.job_id, ()):
                subscriber.offer([frame])
        if not self.is_followed and time.monotonic() - self._left_at > LINGER:
            run.stop()
            self._run = None

    def _over(self, run: "_Run", problem: Exception | None) -> None:
        """The feed has ended. Those who followed it come back to where they were."""
        if self._run is not run:
            return
        self._run = None
        waiting, self._since = self._since, {}
        if self._closed or isinstance(problem, AppClosed):
            why = closing()
        elif isinstance(problem, HoldfastError):
            why = Ended(1013, f"{problem}"[:120])
        else:
            why = Ended(1011, "the server's log has the reason")
        for subscriber in self.subscribers:
            subscriber.end(why)
        for told in waiting.values():
            if not told.done():
                told.set_result(0)  # they look whether it has ended

    # from anywhere

    def close(self) -> None:
        """End every stream. Also from a signal's handler: it waits only in other threads."""
        self._closed = True
        run = self._run
        if run is None:
            return
        run.stop()
        with suppress(RuntimeError):
            run.loop.call_soon_threadsafe(self._end_all)
        if run.thread is not None and not run.is_here():
            run.thread.join(5.0)

    def _end_all(self) -> None:
        for subscriber in self.subscribers:
            subscriber.end(closing())

    def read(self, after: int, upto: int) -> "Past":
        """A page of what is kept in the database. All up to `upto` was told, so nothing before that
        is still to come."""
        reading = self._engine.run(partial(outbox.read, after, BATCH, mark=False), write=False)
        if after < reading.floor:
            raise forgotten(after)
        rows = [row for row in reading.rows if row[0] <= upto]
        last = rows[-1][0] if len(rows) == BATCH else upto
        events = decoded(self._engine.dialect, rows)
        return Past([self._encode(event) for event in events], last)


class Past(NamedTuple):
    frames: list[Frame]
    position: int  #: all up to here is in it, or was told before


class _Run:
    """One life of the feed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.topics: frozenset[str] = frozenset()  #: to be followed,
        self.asked = False  #: and whether they have changed
        self.stopped = False
        self.feed: Feed | None = None
        self.thread: threading.Thread | None = None
        self._home = threading.get_ident()

    def is_here(self) -> bool:
        return threading.get_ident() == self._home

    def follow(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self.asked = True
        if self.feed is not None:
            self.feed.interrupt()

    def stop(self) -> None:
        self.stopped = True
        if self.feed is not None:
            self.feed.stop()

    def call(self, act: Callable[[], None], rounds: int = 0) -> None:
        """Let the loop do it, and wait until it has gone round some more times: a follower that is
        able to has passed on by then what it was told. Nobody is waited for who is not."""
        done = threading.Event()

        def again(left: int) -> None:
            if left:
                self.loop.call_soon(again, left - 1)
            else:
                done.set()

        def begin() -> None:
            act()
            again(rounds)

        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(begin)
        while not done.wait(0.1):
            if self.stopped or self.loop.is_closed():
                self.stopped = True
                return
