"""Scripts that write and read events. An event is written in the transaction of the change that it
reports, if it has followers, and is read in an order in which no event is skipped
(docs/decisions/0018)."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdfast.engine.dialect import MICRO, Dialect
from holdfast.engine.script import Row, Run, Script
from holdfast.events.followers import EVERYTHING
from holdfast.jobs.job import EventKind

KEPT = 100_000  #: the most events that are kept while they have followers
AGE = 3600.0  #: the most seconds that an event is kept
RESULT = 65_536  #: the most bytes of a result that an event carries
PRUNED = 1000  #: events deleted in one transaction
TOPICS = 5000  #: with more followed topics than this, all events are written
BEGIN = (
    "begin"  #: marks where a topic got its first follower; from there on it has all of its events
)


def emit(
    dialect: Dialect, kind: EventKind, ids: Sequence[str], *, final: bool = False
) -> Script[None]:
    """Write an event for each of these jobs that has followers, with the job's row as it is now. Runs
    in the transaction of the change. `final`: only for jobs that are finished."""
    followers = dialect.followers
    if followers.is_stale:
        yield from read_followers(dialect)
    wanted = followers.wants(ids, kind)
    if not wanted:
        return
    params = {
        "now": dialect.now(),
        "kind": kind.value,
        "ids": json.dumps(wanted),
        "final": final,
        "result": RESULT,
    }
    if written := (yield Run("emit", params)).changed:
        followers.count(kind, written)
        yield Run("ring", {})


def read_followers(dialect: Dialect) -> Script[bool]:
    """Read the topics that have followers; return whether there are any."""
    params = {"now": dialect.now(), "limit": TOPICS + 1}
    topics = [row[0] for row in (yield Run("followed_topics", params)).rows]
    dialect.followers.learn(topics if len(topics) <= TOPICS else [EVERYTHING])
    return bool(topics)


class OutboxBounds(NamedTuple):
    newest: int  #: the last position that was given to an event
    floor: int  #: events up to this position may be deleted


class Subscription(NamedTuple):
    newest: int
    floor: int
    since: Mapping[str, int]  #: by topic: the position from which on all its events are written


def subscribe(
    dialect: Dialect, name: str, topics: Collection[str], life: float
) -> Script[Subscription]:
    """Follow these topics from now on, for `life` seconds. If a topic had no follower until now, its
    events were not written. Then a row of kind BEGIN is added, and the topic counts as complete only
    from that row's position on: a reader that goes on from an earlier position gets EventsGone."""
    yield Run("lock_outbox", {})
    now = dialect.now()
    asked = {"now": now, "topics": json.dumps([EVERYTHING, *topics])}
    covered: dict[str, list[int]] = {}
    for topic, position in (yield Run("followed_since", asked)).rows:
        covered.setdefault(topic, []).append(position)
    whole = covered.get(EVERYTHING, [])
    known = {topic: [*whole, *covered.get(topic, [])] for topic in topics}
    begin = 0
    if not all(known.values()):
        begin = (yield Run("begin_topics", {"now": now, "kind": BEGIN})).rows[0][0]
    since = {topic: min(positions, default=begin) for topic, positions in known.items()}
    params = {"now": now, "name": name, "life": round(life * MICRO), "since": json.dumps(since)}
    yield Run("subscribe", params)
    yield from read_followers(dialect)
    newest, floor = yield from bounds()
    return Subscription(newest, floor, since)


def bounds() -> Script[OutboxBounds]:
    """Return the range of positions that can be read."""
    return OutboxBounds(*(yield Run("outbox_bounds", {})).rows[0])


class Reading(NamedTuple):
    """The rows behind a position, and the numbers that tell whether missing rows can still come."""

    newest: int  #: the last position that was given to an event...
    mark: int | None  #: ... by a transaction before this one; None: not asked for
    ended: int  #: all transactions before this one have ended
    floor: int
    rows: list[Row]


def is_subscribed(dialect: Dialect, name: str) -> Script[bool]:
    """Return whether a subscription is alive. If it is alive after a read, it was alive during the
    read."""
    return bool((yield Run("is_subscribed", {"now": dialect.now(), "name": name})).rows[0][0])


def read(after: int, limit: int, *, mark: bool) -> Script[Reading]:
    """Read up to `limit` rows behind a position, for `OutboxCursor`. The order of the statements
    matters: first `newest`, then the mark, then `ended`, then the rows."""
    newest, floor = yield from bounds()
    if newest <= after:
        return Reading(newest, None, 0, floor, [])
    number = (yield Run("mark", {})).rows[0][0] if mark else None
    ended = (yield Run("ended", {})).rows[0][0]
    rows = (yield Run("events", {"after": after, "limit": limit})).rows
    floor = max([floor, *(row[5] for row in rows[:1])])
    return Reading(newest, number, ended, floor, rows)


class OutboxCursor:
    """Decides which events can be passed on to a follower. Positions are given in order, but
    transactions commit in another order: an event is passed on when no event before it is missing, or
    when the missing events can no longer come (docs/decisions/0018)."""

    def __init__(self, position: int) -> None:
        self.position = position  #: all events up to here were passed on
        self.pending = False  #: there are more events, or there may be
        self._stuck_at: int | None = None
        self._mark: tuple[int, int] | None = None
        self._safe = position

    @property
    def wants_mark(self) -> bool:
        """Return whether the next read needs a mark: an event was missing at the last read, and no mark
        says yet which transactions could still write it. (A mark uses up a transaction number, and most
        missing events are there at the next read.)"""
        return self._mark is None and self._stuck_at == self.position

    def take(self, reading: Reading, limit: int) -> list[Row]:
        """Return the rows that can be passed on, and move the position behind them. A writer gets its
        transaction number before its position, and the mark was taken after `newest` was read: when all
        transactions before the mark have ended, positions up to `newest` that are missing stay
        empty."""
        if reading.mark is not None:
            self._mark = (reading.mark, reading.newest)
        if self._mark is not None and self._mark[0] <= reading.ended:
            self._safe, self._mark = self._mark[1], None
        passed = []
        for row in reading.rows:
            if row[0] != self.position + 1 and row[0] > self._safe:
                break
            passed.append(row)
            self.position = row[0]
        if len(passed) == len(reading.rows) < limit:
            self.position = max(self.position, self._safe)
        self.pending = self.position < reading.newest
        self._stuck_at = self.position if self.pending and len(passed) < limit else None
        return passed


def is_kept() -> Script[bool]:
    """Return whether there is any event. (Usually there is none, and nothing to prune.)"""
    return bool((yield Run("events", {"after": 0, "limit": 1})).rows)


def prune(dialect: Dialect, limit: int) -> Script[int]:
    """Delete the oldest events, or all of them if they have no followers; return their number."""
    yield Run("lock_outbox", {})
    now = dialect.now()
    followed = yield from read_followers(dialect)
    newest, _ = yield from bounds()
    params = {
        "now": now,
        "bound": newest - KEPT if followed else newest,
        "age": round(AGE * MICRO),
        "limit": limit,
    }
    gone = (yield Run("prune_events", params)).rows
    if gone:
        yield Run("raise_floor", {"floor": max(row[0] for row in gone)})
    yield Run("prune_followers", {"now": now})
    return len(gone)
