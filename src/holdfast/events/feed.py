"""`app.events(...)`: follow what happens to jobs, in any process, from a position on.

A feed subscribes to all jobs or to some, so that their events are written, and reads them from the
outbox (outbox.py). It reads when the database hints at news, and every second without a hint.
"""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from secrets import token_hex
from typing import Any
from uuid import UUID

from holdfast.core import validation
from holdfast.core.duration import Duration, seconds
from holdfast.core.ids import parse_id
from holdfast.engine.dialect import Dialect
from holdfast.engine.engine import Engine
from holdfast.engine.script import Row
from holdfast.errors import DatabaseBusy, DatabaseUnavailable, EventsGone, InvalidInput
from holdfast.events import outbox
from holdfast.events.event import JobEvent, some_kinds
from holdfast.events.followers import EVERYTHING
from holdfast.jobs.job import EventKind, Status

BATCH = 500  # events that one read returns
POLL = 1.0  # seconds between two reads without a hint
NAMED, UNNAMED = 600.0, 30.0  #: seconds that a subscription outlives its reader
LOST = 60.0  # seconds without the database until `take` raises
APART = 0.01  # the least seconds between two reads: SQLite hints at every commit of any process
_SOON = 0.05  # seconds until the next read, while an event before others is missing

Wanted = Callable[[JobEvent], bool]


class Feed:
    """Reads the outbox from a position on. For one thread at a time; `stop` and `interrupt` may be
    called from other threads."""

    def __init__(
        self,
        engine: Engine,
        after: int | None,
        name: str | None,
        wanted: Wanted,
        topics: Collection[str] = (EVERYTHING,),
        apart: float = APART,
    ) -> None:
        """`topics`: the ids of jobs, or EVERYTHING, from whose events `wanted` chooses. `apart`: the
        least seconds between two reads."""
        self._engine = engine
        self.apart = apart
        self._topics = frozenset(topics)
        #: For each topic: all its events from this position on are written.
        self.since: Mapping[str, int] = dict.fromkeys(topics, 0)
        self._name = name or f"~{token_hex(8)}"
        # A subscription is renewed so early that it outlives its reader by NAMED or, mostly, UNNAMED.
        self._renew_every = UNNAMED / 3 if name is None else NAMED / 10
        self._life = UNNAMED if name is None else NAMED + self._renew_every
        self._wanted = wanted
        self._renew_at = float("-inf")
        self._soon = _SOON
        self._looked_at = float("-inf")
        self._lost_at: float | None = None
        self._stopped = False
        self._interrupted = False
        position = 0 if after is None else validation.integer(after, "after", 0)
        self._cursor = outbox.OutboxCursor(position)
        engine.open()
        self._wakeups = engine.wakeups(events=True)
        try:
            self._subscribe(from_now=after is None)
        except BaseException:
            self._wakeups.close()
            raise

    @property
    def position(self) -> int:
        """The position up to which all events were returned."""
        return self._cursor.position

    def take(self, patience: float) -> list[JobEvent]:
        """Return the next events; none if none came for `patience` seconds, or if the feed was stopped
        or interrupted. If the database is out of reach, try again for a minute, then raise."""
        deadline = time.monotonic() + patience
        while not self._stopped:
            try:
                found = self._look()
                self._lost_at = None
                if found:
                    return found
            except (DatabaseBusy, DatabaseUnavailable):
                self._lost_at = self._lost_at or time.monotonic()
                if time.monotonic() - self._lost_at > LOST:
                    raise
            left = deadline - time.monotonic()
            if left <= 0 or self._interrupted:
                break
            self._rest(left)
        self._interrupted = False
        return []

    def follow(self, topics: Collection[str]) -> None:
        """Follow other topics from the next `take` on, if the database can be reached: `since` has the
        topics that are followed. Events of the former topics are written until their time is over."""
        self._topics = frozenset(topics)
        if not self.since.keys() >= self._topics:
            self._renew_at = float("-inf")

    def _look(self) -> list[JobEvent]:
        """Read until there are wanted events or no more rows: a whole batch may be unwanted."""
        while not self._stopped:
            if time.monotonic() >= self._renew_at:
                self._subscribe()
            cursor, engine = self._cursor, self._engine
            read = partial(outbox.read, cursor.position, BATCH, mark=cursor.wants_mark)
            reading = engine.run(read, write=False)
            self._check(reading.floor)
            if reading.rows and not self._is_subscribed():
                self._subscribe()
            rows = cursor.take(reading, BATCH)
            self._looked_at = time.monotonic()
            events = decoded(engine.dialect, rows)
            if found := [event for event in events if self._wanted(event)]:
                return found
            if len(rows) < BATCH:
                self._soon = min(POLL, 2 * self._soon) if cursor.pending and not rows else _SOON
                return []
        return []

    def _rest(self, left: float) -> None:
        """Wait for a hint, or until it is time to read without one."""
        self._wakeups.wait(min(left, self._soon if self._cursor.pending else POLL))
        time.sleep(max(0.0, min(left, self._looked_at + self.apart - time.monotonic())))

    def _subscribe(self, *, from_now: bool = False) -> None:
        engine = self._engine
        subscription = engine.write(outbox.subscribe, self._name, self._topics, self._life)
        self._renew_at = time.monotonic() + self._renew_every
        if from_now:
            self._cursor = outbox.OutboxCursor(subscription.newest)
        position = self._cursor.position
        if position > subscription.newest:
            raise InvalidInput(
                f"after={position}: the newest event of this database is {subscription.newest}: is the "
                "position of another one? after=None begins now"
            )
        self._check(subscription.floor)
        for topic in self.since.keys() & subscription.since.keys():
            if subscription.since[topic] > self.since[topic]:  # it had no follower for a while
                self._check(subscription.since[topic])
        self.since = subscription.since
        engine.maintenance.prune_events()

    def _is_subscribed(self) -> bool:
        """Return whether the subscription is still alive. If not, events may not have been written."""
        return self._engine.read(outbox.is_subscribed, self._name)

    def _check(self, floor: int) -> None:
        if self.position < floor:
            raise EventsGone(
                f"the events after position {self.position} are gone (they begin at {floor}): events "
                f"are kept while they have followers, {NAMED / 60:.0f} minutes longer for a name=, at "
                f"most {outbox.KEPT:,}. Read the jobs themselves, and go on with after=None"
            )

    def interrupt(self) -> None:
        """End a `take` that waits, from another thread."""
        self._interrupted = True
        self._wakeups.nudge()

    def stop(self) -> None:
        """End a `take` that waits, from another thread; later ones return nothing."""
        self._stopped = True
        self._wakeups.nudge()

    def close(self) -> None:
        """Stop reading. The subscription lives on for its time, so that a reader can resume."""
        self._stopped = True
        self._wakeups.close()


class Events:
    """The result of `app.events()`: an iterator, to be closed, best by `with`."""

    def __init__(self, feed: Feed, timeout: float | None) -> None:
        self._feed = feed
        self._timeout = timeout
        self._ready: list[JobEvent] = []
        self._closed = False

    @property
    def position(self) -> int:
        """The position to resume from: all events up to here were returned."""
        return self._ready[-1].position - 1 if self._ready else self._feed.position

    def __iter__(self) -> "Events":
        return self

    def __next__(self) -> JobEvent:
        begin = time.monotonic()
        while not self._ready:
            left = _left(begin, self._timeout)
            if self._closed or left <= 0:
                raise StopIteration
            self._ready = self._feed.take(left)[::-1]
        return self._ready.pop()

    def close(self) -> None:
        """Stop following. `app.events(after=position)` returns the events that were not read."""
        if not self._closed:
            self._closed = True
            self._ready.clear()
            self._feed.close()

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncEvents:
    """The same for `async for`. Its thread waits for events."""

    def __init__(self, open_feed: Callable[[], Feed], timeout: float | None) -> None:
        self._open_feed = open_feed
        self._timeout = timeout
        self._feed: Feed | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-events")
        self._ready: list[JobEvent] = []
        self._closed = False

    @property
    def position(self) -> int:
        """The position to resume from: all events up to here were returned."""
        if self._ready:
            return self._ready[-1].position - 1
        return 0 if self._feed is None else self._feed.position

    async def _hop(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _opened(self) -> Feed:
        if self._feed is None:
            self._feed = await self._hop(self._open_feed)
        return self._feed

    def __aiter__(self) -> "AsyncEvents":
        return self

    async def __anext__(self) -> JobEvent:
        begin = time.monotonic()
        while not self._ready:
            left = _left(begin, self._timeout)
            if self._closed or left <= 0:
                raise StopAsyncIteration
            await self._hop(partial(self._fill, await self._opened(), min(left, POLL)))
        return self._ready.pop()

    def _fill(self, feed: Feed, patience: float) -> None:
        """Read the next events. They are kept if the reader is cancelled: the next step returns
        them."""
        if not self._ready:
            self._ready = feed.take(patience)[::-1]

    async def aclose(self) -> None:
        """Stop following. `app.events(after=position)` returns the events that were not read."""
        if self._closed:
            return
        self._closed = True
        if self._feed is not None:
            self._feed.stop()
            await self._hop(self._feed.close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> "AsyncEvents":
        await self._opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _left(begin: float, timeout: float | None) -> float:
    """Return the seconds until the timeout; without a timeout, an hour, after which to ask again."""
    return 3600.0 if timeout is None else begin + timeout - time.monotonic()


def patience(timeout: Duration | None) -> float | None:
    return None if timeout is None else seconds(timeout, what="timeout")


def make_topic(job: str | UUID | None = None, **_: Any) -> str:
    """Return the topic of a filter: a job's id, or EVERYTHING."""
    return EVERYTHING if job is None else parse_id(job)


def feed_opener(
    engine: Engine,
    after: int | None,
    name: str | None,
    kinds: str | Iterable[str],
    filter: Mapping[str, Any],
) -> Callable[[], Feed]:
    """Check the parameters of `app.events()`, and return a function that opens the feed."""
    known = None if name is None else validation.name(name, "name")
    wanted, topic = make_wanted(kinds, **filter), make_topic(**filter)
    return partial(Feed, engine, after, known, wanted, (topic,))


def make_wanted(
    kinds: str | Iterable[str] = (),
    job: str | UUID | None = None,
    type: str | None = None,
    queue: str | None = None,
    entity: tuple[str, Any] | None = None,
) -> Wanted:
    """Check a filter, and return the function that says whether an event passes it."""
    some = frozenset(some_kinds((kinds,) if isinstance(kinds, str) else tuple(kinds)))
    wanted: dict[str, Any] = {
        "job_id": None if job is None else parse_id(job),
        "type": None if type is None else validation.name(type, "type"),
        "queue": None if queue is None else validation.name(queue, "queue"),
    }
    if entity is not None:
        wanted["entity_type"], text = validation.entity(entity)
        wanted["entity_id"] = json.loads(text)
    given = [(field, value) for field, value in wanted.items() if value is not None]

    def is_wanted(event: JobEvent) -> bool:
        return event.kind in some and all(getattr(event, field) == value for field, value in given)

    return is_wanted


def decoded(dialect: Dialect, rows: Iterable[Row]) -> list[JobEvent]:
    """Return the events among rows of the outbox."""
    return [decode(dialect, row) for row in rows if row[3] != outbox.BEGIN]


def decode(dialect: Dialect, row: Row) -> JobEvent:
    position, at, job_id, kind, text, _ = row
    data = json.loads(text)
    return JobEvent(
        position=position,
        at=dialect.moment(at),
        kind=EventKind(kind),
        job_id=job_id,
        type=data["type"],
        queue=data["queue"],
        status=Status(data["status"]),
        entity_type=data["entity_type"],
        entity_id=None if data["entity_id"] is None else json.loads(data["entity_id"]),
        attempts=data["attempts"],
        max_attempts=data["max_attempts"],
        claim_no=data["claim_no"],
        worker_id=data["worker_id"],
        run_at=dialect.moment(data["run_at"]),
        error=data["error"],
        result=None if data["result"] is None else json.loads(data["result"]),
        result_left_out=bool(data["result_left_out"]),
        progress=data["progress"],
        message=data["message"],
    )
