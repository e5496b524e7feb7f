"""The hub: one feed of the outbox for all who follow through this server.

A thread reads the feed and encodes; the event loop hands out, a batch at a time. A follower has a short
line of its own: whoever does not keep up loses the place, and may come back to where it was. The feed
begins with the first follower and ends a little after the last, so that nothing is written for nobody.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from holdfast.engine import Engine, outbox
from holdfast.errors import AppClosed, HoldfastError
from holdfast.events import JobEvent
from holdfast.feed import BATCH, Feed, Wanted, decode
from holdfast.web.frames import Frame

logger = logging.getLogger("holdfast.web")

LINE = 1000  #: events that wait for one follower,
KEPT = 10_000  #: and that are kept for those who come back,
ROOM = 16 * 1024 * 1024  #: as long as they take no more bytes than this
LINGER = 5.0  #: seconds that the feed goes on without followers
SETTLED = 6.0  #: seconds after which every process knows that somebody follows
GRACE = 0.5  # seconds that a follower whose time is over has to say so
_LOOK = 0.5  # seconds that the thread waits for events, before it looks whether it is still wanted
_ROUNDS = 3  # of the event loop, in which those who were told can pass it on


class Ended(Exception):
    """A follower's stream is over."""

    def __init__(self, code: int, reason: str, *, gone: bool = False) -> None:
        super().__init__(reason)
        self.code = code  #: of a WebSocket
        self.reason = reason
        self.gone = gone  #: what was missed cannot be told: look at everything again


def too_slow() -> Ended:
    return Ended(
        4408, f"too slow: {LINE:,} events wait; come back with the last position", gone=True
    )


def forgotten(after: int) -> Ended:
    return Ended(4410, f"the events after {after} are gone: fetch all, and begin anew", gone=True)


def closing() -> Ended:
    return Ended(1012, "the server stops: come back")


class Hub:
    """Its state belongs to the event loop; only `_follow` and `close` are called elsewhere."""

    def __init__(self, engine: Engine, encode: Callable[[JobEvent], Frame]) -> None:
        self._engine = engine
        self._encode = encode
        self.position = 0  #: all up to here was handed out
        self.floor = 0  #: all after this is in the ring
        self.ring: deque[Frame] = deque()
        self._all: set[Follower] = set()
        self._of_job: dict[str, set[Follower]] = {}
        self._kept = 0
        self._run: _Run | None = None
        self._closed = False
        self._left_at = 0.0

    async def join(
        self, wanted: Wanted | None, after: int | None, job: str | None = None
    ) -> "Follower":
        """Somebody follows from now on, or from a position that they have seen. `job`: only that one,
        as `wanted` says too: so it is found without asking everybody. No `wanted`: all."""
        if self._closed:
            raise closing()
        follower = Follower(self, wanted, after, job)
        self._among(job).add(follower)
        try:
            run = self._run or self._start()
            if run.loop is not asyncio.get_running_loop():
                raise Ended(1013, "this server follows on another event loop")
            await run.opened.wait()
            follower.check()
            if after is None:
                follower.attach(self.position)
            elif after > self.position:  # another server, ahead of this one, has told it
                await self._check(after)
        except BaseException:
            follower.leave()
            raise
        return follower

    async def _check(self, after: int) -> None:
        standing = await run_in_threadpool(self._engine.run, outbox.standing, write=False)
        if after > standing.newest:
            raise forgotten(after)

    def _start(self) -> "_Run":
        self._run = run = _Run(asyncio.get_running_loop())
        run.thread = threading.Thread(
            target=self._follow, args=(run,), name="holdfast-live", daemon=True
        )
        run.thread.start()
        return run

    def _among(self, job: str | None) -> set["Follower"]:
        return self._all if job is None else self._of_job.setdefault(job, set())

    @property
    def followers(self) -> list["Follower"]:
        return [*self._all, *(one for some in self._of_job.values() for one in some)]

    def leave(self, follower: "Follower") -> None:
        among = self._among(follower.job)
        among.discard(follower)
        if follower.job is not None and not among:
            del self._of_job[follower.job]
        self._left_at = time.monotonic()

    @property
    def is_followed(self) -> bool:
        return bool(self._all or self._of_job)

    # in the thread

    def _follow(self, run: "_Run") -> None:
        problem: Exception | None = None
        try:
            feed = run.feed = Feed(self._engine, None, None, lambda event: True)
            try:
                run.call(partial(self._opened, run, feed.position))
                while not run.stopped:
                    events = feed.take(_LOOK)
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
        run.opened.set()
        run.loop.call_later(SETTLED, self._settle, run)

    def _settle(self, run: "_Run") -> None:
        """What others did before they knew was not written: those who looked then look again."""
        if self._run is run:
            for follower in self.followers:
                follower.unsure = True
                follower.wake.set()

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
        for follower in list(self._all):
            follower.offer(frames)
        for frame in frames if self._of_job else ():
            for follower in self._of_job.get(frame.event.job_id, ()):
                follower.offer([frame])
        if not self.is_followed and time.monotonic() - self._left_at > LINGER:
            run.stop()
            self._run = None

    def _over(self, run: "_Run", problem: Exception | None) -> None:
        """The feed has ended. Those who followed it come back to where they were."""
        run.opened.set()
        if self._run is not run:
            return
        self._run = None
        if self._closed or isinstance(problem, AppClosed):
            why = closing()
        elif isinstance(problem, HoldfastError):
            why = Ended(1013, f"{problem}"[:120])
        else:
            why = Ended(1011, "the server's log has the reason")
        for follower in self.followers:
            follower.end(why)

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
        for follower in self.followers:
            follower.end(closing())

    def read(self, after: int, upto: int) -> "Past":
        """A page of what is kept in the database. All up to `upto` was told, so nothing before that
        is still to come."""
        reading = self._engine.run(partial(outbox.read, after, BATCH, mark=False), write=False)
        if after < reading.floor:
            raise forgotten(after)
        rows = [row for row in reading.rows if row[0] <= upto]
        last = rows[-1][0] if len(rows) == BATCH else upto
        return Past([self._encode(decode(self._engine.dialect, row)) for row in rows], last)


class Past(NamedTuple):
    frames: list[Frame]
    position: int  #: all up to here is in it, or was told before


class _Run:
    """One life of the feed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.opened = asyncio.Event()  #: or it could not be
        self.stopped = False
        self.feed: Feed | None = None
        self.thread: threading.Thread | None = None
        self._home = threading.get_ident()

    def is_here(self) -> bool:
        return threading.get_ident() == self._home

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


class Follower:
    """One who follows: a line of what it wants, and where it is."""

    def __init__(
        self, hub: Hub, wanted: Wanted | None, after: int | None, job: str | None = None
    ) -> None:
        self.job = job
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

    def offer(self, frames: list[Frame]) -> None:
        if not frames or not self._attached or self._ended is not None:
            return
        more = self._of(frames)
        if not more:
            return
        if len(self._line) + len(more) > LINE:
            self.end(too_slow())
            return
        self._line.extend(more)
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
        missed: list[Frame] = []
        for frame in reversed(hub.ring):
            if frame.position <= self._seen:
                break
            missed.append(frame)
        found = self._of(missed[::-1]) if missed else []
        self.attach(max(self._seen, hub.position))
        return found

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
