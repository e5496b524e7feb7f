"""The hub: one feed of the outbox for all subscribers of this server.

A thread reads the feed and encodes; the event loop distributes, a batch at a time. Each subscriber
has a short queue: one that does not keep up is disconnected, and may resume at its position. The
feed starts with the first subscriber and ends a little after the last. While all subscribers follow
single jobs, the feed follows only those, so that no event is written that has no reader.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from starlette.concurrency import run_in_threadpool

from holdfast.engine.engine import Engine
from holdfast.errors import AppClosed, HoldfastError
from holdfast.events import outbox
from holdfast.events.event import JobEvent
from holdfast.events.feed import BATCH, Feed, Wanted, decoded
from holdfast.events.followers import EVERYTHING
from holdfast.events.sampling import GLANCE
from holdfast.web.live.frames import Frame
from holdfast.web.live.sampling import Sampler
from holdfast.web.live.subscriber import Ended, Subscriber, closing, forgotten

logger = logging.getLogger("holdfast.web")

KEPT = 10_000  #: events that are kept for clients that reconnect,
KEPT_BYTES = 16 * 1024 * 1024  #: as long as they are not larger than this
APART = 0.05  #: seconds between two batches: not visible, and the loop is woken less often
SAMPLE_APART = 0.2  #: the same, while all subscribers get samples
LINGER = 5.0  #: seconds that the feed goes on without subscribers
SETTLED = 2.0  #: seconds after which every process knows of a new subscriber
_LOOK = 0.5  # seconds that the thread waits for events, before it checks whether it should stop
_ROUNDS = 3  # rounds of the event loop in which subscribers can send what they got


class Hub:
    """Its state belongs to the event loop; only `_follow`, `close` and `read` run in other threads."""

    def __init__(self, engine: Engine, encode: Callable[[JobEvent], Frame]) -> None:
        self._engine = engine
        self._encode = encode
        self.position = 0  #: every event up to here was distributed
        self.floor = 0  #: every event after this is in the ring
        self.ring: deque[Frame] = deque()
        self._by_topic: dict[str, set[Subscriber]] = {}
        # By topic: the position after which every event of it is written.
        self._since: dict[str, asyncio.Future[int]] = {}
        self._kept = 0
        self._run: _Run | None = None
        self._closed = False
        self._left_at = 0.0
        self._sampler = Sampler(lambda: self._by_topic.get(GLANCE, ()))

    async def join(
        self, wanted: Wanted | None, after: int | None, topic: str = EVERYTHING
    ) -> Subscriber:
        """Subscribe from now on, or after a position. `topic`: the id of the only job that `wanted`
        matches, so that other events need not be compared; or the topic of samples. `wanted` None:
        every event."""
        if self._closed:
            raise closing()
        subscriber = Subscriber(self, wanted, after, topic)
        self._by_topic.setdefault(topic, set()).add(subscriber)
        try:
            since = await self._begin(topic)
            subscriber.check()
            if after is None:
                subscriber.attach(max(self.position, since))
            elif after < since:
                raise forgotten(after, since)
            elif after > self.position:  # from another server that is ahead of this one
                bounds = await run_in_threadpool(self._engine.run, outbox.bounds, write=False)
                if after > bounds.newest:
                    raise forgotten(after)
        except BaseException:
            subscriber.leave()
            raise
        return subscriber

    async def _begin(self, topic: str) -> int:
        """Follow a topic, too. Return the position after which every event of it is written."""
        run = self._run or _Run(asyncio.get_running_loop())
        if run.loop is not asyncio.get_running_loop():
            raise Ended(1013, "this server follows on another event loop")
        if topic not in self._since:
            self._since[topic] = run.loop.create_future()
            run.follow(self._since)
        if self._run is None:
            self._run = run
            run.thread = threading.Thread(
                target=self._follow, args=(run,), name="holdfast-live", daemon=True
            )
            run.thread.start()
        return await asyncio.shield(self._since[topic])

    @property
    def subscribers(self) -> list[Subscriber]:
        return [one for some in self._by_topic.values() for one in some]

    def leave(self, subscriber: Subscriber) -> None:
        self._left_at = time.monotonic()
        among = self._by_topic.get(subscriber.topic, set())
        among.discard(subscriber)
        if among:
            return
        self._by_topic.pop(subscriber.topic, None)
        self._since.pop(subscriber.topic, None)
        if self._run is not None and self._by_topic:
            self._run.topics = frozenset(self._since)  # its events are written until that expires

    # in the thread

    def _follow(self, run: "_Run") -> None:
        problem: Exception | None = None
        try:
            feed = run.feed = Feed(
                self._engine, None, None, lambda event: True, run.topics, apart=APART
            )
            try:
                run.call(partial(self._feed_opened, run, feed.position))
                while not run.stopped:
                    events = self._take(run, feed)
                    frames = [self._encode(event) for event in events]
                    self._deliver(run, feed.position, frames)
            finally:
                feed.close()
        except Exception as error:
            problem = error
            if not isinstance(error, AppClosed):
                logger.warning(
                    "event feed failed; it restarts when the next client connects: %s", error
                )
        with suppress(RuntimeError):  # the loop is closed
            run.loop.call_soon_threadsafe(self._feed_ended, run, problem)

    def _take(self, run: "_Run", feed: Feed) -> list[JobEvent]:
        """Return new events. Also follow the topics of new subscribers, and let them join."""
        asked, run.asked = run.asked, False
        feed.follow(run.topics)
        feed.apart = SAMPLE_APART if run.topics == {GLANCE} else APART
        before = feed.since
        events = feed.take(0 if asked else _LOOK)
        if asked or feed.since is not before:
            run.call(partial(self._let_join, run, feed.since))
        return events

    def _deliver(self, run: "_Run", position: int, frames: list[Frame]) -> None:
        """Distribute events. After a full batch, rest for as long as that took: events use at most half
        of the loop's time."""
        if position == self.position and not frames and self._by_topic:
            return
        begin = time.monotonic()
        run.call(partial(self._distribute, run, position, frames), rounds=_ROUNDS)
        if len(frames) == BATCH:
            time.sleep(min(0.5, time.monotonic() - begin))

    # in the loop

    def _feed_opened(self, run: "_Run", position: int) -> None:
        self.position = self.floor = position
        self.ring.clear()
        self._kept = 0

    def _let_join(self, run: "_Run", since: Mapping[str, int]) -> None:
        """Let the subscribers of these topics join: the feed follows them now."""
        if self._run is not run:
            return
        new = [topic for topic, at in self._since.items() if topic in since and not at.done()]
        for topic in new:
            self._since[topic].set_result(since[topic])
        if new:
            run.loop.call_later(SETTLED, self._refetch_new, run, new)

    def _refetch_new(self, run: "_Run", topics: list[str]) -> None:
        """Let new subscribers fetch again: writers that did not know of them wrote no events."""
        if self._run is not run:
            return
        for topic in topics:
            for subscriber in self._by_topic.get(topic, ()):
                subscriber.must_refetch = True
                subscriber.wake.set()

    def _distribute(self, run: "_Run", position: int, frames: list[Frame]) -> None:
        if self._run is not run:
            return
        for frame in frames:
            self.ring.append(frame)
            self._kept += frame.size
        while len(self.ring) > KEPT or (self._kept > KEPT_BYTES and self.ring):
            oldest = self.ring.popleft()
            self._kept -= oldest.size
            self.floor = oldest.position
        self.position = position
        for subscriber in self._by_topic.get(EVERYTHING, ()):
            subscriber.offer(frames)
        self._sampler.offer(frames)
        for frame in frames:
            for subscriber in self._by_topic.get(frame.event.job_id, ()):
                subscriber.offer([frame])
        if not self._by_topic and time.monotonic() - self._left_at > LINGER:
            run.stop()
            self._run = None

    def _feed_ended(self, run: "_Run", problem: Exception | None) -> None:
        """The feed has ended: end all streams. Clients reconnect, and resume at their position."""
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
        self._end_all(why)
        for since in waiting.values():
            if not since.done():
                since.set_result(0)  # joining subscribers then check whether they were ended

    # from anywhere

    def close(self) -> None:
        """End every stream. A signal's handler may call it: only in other threads does it wait."""
        self._closed = True
        run = self._run
        if run is None:
            return
        run.stop()
        with suppress(RuntimeError):
            run.loop.call_soon_threadsafe(self._end_all, closing())
        if run.thread is not None and threading.get_ident() != run.home:
            run.thread.join(5.0)

    def _end_all(self, why: Ended) -> None:
        for subscriber in self.subscribers:
            subscriber.end(why)

    def read(self, after: int, upto: int) -> tuple[list[Frame], int]:
        """Return a page of events from the database, and the position after which the next page starts.
        Every event up to `upto` was distributed, so none before that is still uncommitted."""
        reading = self._engine.run(partial(outbox.read, after, BATCH, mark=False), write=False)
        if after < reading.floor:
            raise forgotten(after)
        rows = [row for row in reading.rows if row[0] <= upto]
        last = rows[-1][0] if len(rows) == BATCH else upto
        events = decoded(self._engine.dialect, rows)
        return [self._encode(event) for event in events], last


class _Run:
    """One run of the feed, from the first subscriber until a little after the last."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.topics: frozenset[str] = frozenset()  #: topics to follow
        self.asked = False  #: a new topic is to be followed
        self.stopped = False
        self.feed: Feed | None = None
        self.thread: threading.Thread | None = None
        self.home = threading.get_ident()  #: the thread of the loop

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
        """Call `act` in the loop, and wait for some more rounds of the loop, in which subscribers send
        what they got. Subscribers that cannot send yet are not waited for."""
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
