"""Events in the database, as scripts: written with the change that they tell of, where somebody
follows, and read in an order in which nothing is skipped (decision 0018)."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdfast.engine.dialect import MICRO, Dialect
from holdfast.engine.script import Row, Run, Script
from holdfast.events.audience import EVERYTHING
from holdfast.jobs.job import EventKind

KEPT = 100_000  #: events, at the most, while somebody follows
AGE = 3600.0  #: seconds that they are kept, at the most
RESULT = 65_536  #: bytes of a result that an event carries
PRUNED = 1000  #: at a time
TOPICS = 5000  #: rows of followers; of more they are not told apart: everything is written
BEGIN = "begin"  #: the kind of a row that is no event: something more is written from there on


def emit(
    dialect: Dialect, kind: EventKind, ids: Sequence[str], *, final: bool = False
) -> Script[None]:
    """Tell what has happened to jobs, in the transaction in which it did; how they stand is read from
    their rows. `final`: only of those that have ended. Nothing of jobs that nobody follows."""
    audience = dialect.audience
    if audience.is_stale:
        yield from look(dialect)
    wanted = audience.wants(ids, kind)
    if not wanted:
        return
    params = {
        "now": dialect.now(),
        "kind": kind.value,
        "ids": json.dumps(wanted),
        "final": final,
        "result": RESULT,
    }
    if told := (yield Run("emit", params)).changed:
        audience.told(kind, told)
        yield Run("ring", {})


def look(dialect: Dialect) -> Script[bool]:
    """Does somebody follow anything?"""
    params = {"now": dialect.now(), "limit": TOPICS + 1}
    topics = [row[0] for row in (yield Run("audience", params)).rows]
    dialect.audience.learn(topics if len(topics) <= TOPICS else [EVERYTHING])
    return bool(topics)


class OutboxBounds(NamedTuple):
    newest: int  #: the last position that was given away
    floor: int  #: events up to here may be gone


class Subscription(NamedTuple):
    newest: int
    floor: int
    since: Mapping[str, int]  #: of each topic: nothing was left out from this position on


def subscribe(
    dialect: Dialect, name: str, topics: Collection[str], life: float
) -> Script[Subscription]:
    """From now on somebody follows these topics, for so many seconds. What nobody followed until now
    begins with a row of its own: what happened before was not written, and who comes back to the
    last event stands below that row, and learns it."""
    yield Run("hold_outbox", {})
    now = dialect.now()
    asked = {"now": now, "topics": json.dumps([EVERYTHING, *topics])}
    covered: dict[str, list[int]] = {}
    for topic, position in (yield Run("covered", asked)).rows:
        covered.setdefault(topic, []).append(position)
    whole = covered.get(EVERYTHING, [])
    known = {topic: [*whole, *covered.get(topic, [])] for topic in topics}
    begin = 0
    if not all(known.values()):
        begin = (yield Run("begin_topics", {"now": now, "kind": BEGIN})).rows[0][0]
    since = {topic: min(positions, default=begin) for topic, positions in known.items()}
    params = {"now": now, "name": name, "life": round(life * MICRO), "since": json.dumps(since)}
    yield Run("subscribe", params)
    yield from look(dialect)
    newest, floor = yield from bounds()
    return Subscription(newest, floor, since)


def bounds() -> Script[OutboxBounds]:
    return OutboxBounds(*(yield Run("horizon", {})).rows[0])


class Reading(NamedTuple):
    """What can be seen behind a position."""

    newest: int  #: positions up to here were given away...
    mark: int | None  #: ... to transactions before this one, if that was asked for
    ended: int  #: all transactions before this one have ended
    floor: int
    rows: list[Row]


def is_held(dialect: Dialect, name: str) -> Script[bool]:
    """Return whether a subscription is alive. If it is after a read, it was during the read."""
    return bool((yield Run("is_held", {"now": dialect.now(), "name": name})).rows[0][0])


def read(after: int, limit: int, *, mark: bool) -> Script[Reading]:
    """The order of the statements matters: see `OutboxCursor`."""
    newest, floor = yield from bounds()
    if newest <= after:
        return Reading(newest, None, 0, floor, [])
    number = (yield Run("mark", {})).rows[0][0] if mark else None
    ended = (yield Run("ended", {})).rows[0][0]
    rows = (yield Run("events", {"after": after, "limit": limit})).rows
    floor = max([floor, *(row[5] for row in rows[:1])])
    return Reading(newest, number, ended, floor, rows)


class OutboxCursor:
    """Which events can be told. Positions are given away in order, but transactions commit in another:
    an event is told when none before it is missing, or what is missing never comes."""

    def __init__(self, position: int) -> None:
        self.position = position  #: all up to here was told
        self.pending = False  #: there is more, or there may be
        self._stuck_at: int | None = None
        self._mark: tuple[int, int] | None = None
        self._safe = position

    @property
    def wants_mark(self) -> bool:
        """Something is missing since the last look, and it is not known yet whose it is. (A mark
        takes a transaction's number; mostly what is missing is there by the next look.)"""
        return self._mark is None and self._stuck_at == self.position

    def take(self, reading: Reading, limit: int) -> list[Row]:
        """A writer has its number before it takes a position, and the mark was taken after `newest` was
        looked up: when all before the mark have ended, what is missing up to `newest` never comes."""
        if reading.mark is not None:
            self._mark = (reading.mark, reading.newest)
        if self._mark is not None and self._mark[0] <= reading.ended:
            self._safe, self._mark = self._mark[1], None
        told = []
        for row in reading.rows:
            if row[0] != self.position + 1 and row[0] > self._safe:
                break
            told.append(row)
            self.position = row[0]
        if len(told) == len(reading.rows) < limit:
            self.position = max(self.position, self._safe)
        self.pending = self.position < reading.newest
        self._stuck_at = self.position if self.pending and len(told) < limit else None
        return told


def is_kept() -> Script[bool]:
    """Is there any event? (Mostly there is none, and nothing to prune.)"""
    return bool((yield Run("events", {"after": 0, "limit": 1})).rows)


def prune(dialect: Dialect, limit: int) -> Script[int]:
    """Forget the oldest; all, when nobody follows any more. How many went."""
    yield Run("hold_outbox", {})
    now = dialect.now()
    followed = yield from look(dialect)
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
