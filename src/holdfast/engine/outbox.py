"""Events in the database, as scripts: written with the change that they tell of, while somebody
follows, and read in an order in which nothing is skipped (decision 0018)."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.engine.dialect import MICRO, Dialect
from holdfast.engine.script import Row, Run, Script
from holdfast.job import EventKind

KEPT = 100_000  #: events, at the most, while somebody follows
AGE = 3600.0  #: seconds that they are kept, at the most
RESULT = 65_536  #: bytes of a result that an event carries
PRUNED = 1000  #: at a time


def emit(
    dialect: Dialect, kind: EventKind, ids: Sequence[str], *, final: bool = False
) -> Script[None]:
    """Tell what has happened to jobs, in the transaction in which it did; how they stand is read from
    their rows. `final`: only of those that have ended. Nothing, while nobody follows."""
    audience = dialect.audience
    if audience.is_stale:
        yield from look(dialect)
    if not (audience.listens and ids):
        return
    params = {
        "now": dialect.now(),
        "kind": kind.value,
        "ids": json.dumps(ids),
        "final": final,
        "result": RESULT,
    }
    if (yield Run("emit", params)).rows:
        yield Run("ring", {})


def look(dialect: Dialect) -> Script[bool]:
    """Does somebody follow?"""
    listens = bool((yield Run("audience", {"now": dialect.now()})).rows[0][0])
    dialect.audience.learn(listens)
    return listens


class Standing(NamedTuple):
    newest: int  #: the last position that was given away
    floor: int  #: whoever has read up to here has missed nothing so far


def subscribe(dialect: Dialect, name: str, life: float) -> Script[Standing]:
    """From now on somebody follows, for so many seconds. If nobody did until now, events begin here:
    what happened before was not written, and who comes back to the last one must learn that."""
    yield Run("hold_outbox", {})
    followed = yield from look(dialect)
    newest, floor = yield from standing()
    if not followed:
        floor = newest = (yield Run("skip_position", {})).rows[0][0]
        yield Run("raise_floor", {"floor": floor})
    params = {"now": dialect.now(), "name": name, "life": round(life * MICRO)}
    yield Run("subscribe", params)
    dialect.audience.learn(True)
    return Standing(newest, floor)


def standing() -> Script[Standing]:
    return Standing(*(yield Run("horizon", {})).rows[0])


class Reading(NamedTuple):
    """What can be seen behind a position."""

    newest: int  #: positions up to here were given away...
    mark: int | None  #: ... to transactions before this one, if that was asked for
    ended: int  #: all transactions before this one have ended
    floor: int
    rows: list[Row]


def read(after: int, limit: int, *, mark: bool) -> Script[Reading]:
    """The order of the statements matters: see `Tide`."""
    newest, floor = yield from standing()
    if newest <= after:
        return Reading(newest, None, 0, floor, [])
    number = (yield Run("mark", {})).rows[0][0] if mark else None
    ended = (yield Run("ended", {})).rows[0][0]
    rows = (yield Run("events", {"after": after, "limit": limit})).rows
    floor = max([floor, *(row[5] for row in rows[:1])])
    return Reading(newest, number, ended, floor, rows)


class Tide:
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
    newest, _ = yield from standing()
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
