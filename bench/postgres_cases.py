"""What only PostgreSQL is asked: that a plan stays good while its table grows, and that somebody's
old snapshot, which keeps every dead row in the way, does not slow the claims."""

import time

import psycopg

from bench.cases import Case, Worked
from bench.measure import Pace, Row, at_least, compare
from bench.ours import Ours
from bench.places import PostgresPlace
from bench.store import Store

BATCH = 100
REHEARSALS = 12  # from the sixth use on, a prepared statement may keep one plan for good


def only_postgres() -> list[Case[PostgresPlace]]:
    return [Case("growth", growth), Case("snapshot", snapshot)]


def growth(place: PostgresPlace, pace: Pace) -> list[Row]:
    """The statements are prepared on empty tables. A table that has seen many jobs against a new
    one, side by side: before and after on one table would compare two moods of the machine."""
    with place.ours() as new, place.ours() as used:
        for store in (new, used):
            rehearse(store)
        aged = Worked(used, BATCH)
        for _ in range(pace.jobs // BATCH):
            aged.fill()
            aged.step()
        fresh = Worked(new, BATCH)
        title = f"claim and finish after {pace.jobs:,} jobs"
        row = compare(title, fresh.slice, aged.slice, pace, at_least(0.85))
        return [row]


def rehearse(store: Store) -> None:
    for _ in range(REHEARSALS):
        store.claim(BATCH)
        store.insert_many(store.make(BATCH))
        store.finish(store.claim(BATCH))


def snapshot(place: PostgresPlace, pace: Pace) -> list[Row]:
    """In time, not side by side: the harm grows with what was finished since the snapshot began.
    Only claims and finishes are counted, since inserts do not meet the dead rows."""
    with place.url() as url:
        store = Ours(url)
        try:
            rehearse(store)
            worked = Worked(store, BATCH)
            quarter = pace.snapshot / 4
            before = rate_for(worked, quarter)
            with psycopg.connect(url) as holder:
                holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT count(*) FROM holdfast.workers").fetchall()
                rates = [rate_for(worked, quarter) for _ in range(4)]
        finally:
            store.close()
    title = f"claim and finish, snapshot held {pace.snapshot:g} s"
    return [Row(title, before, rates[-1], rates[-1] / before, at_least(0.80))]


def rate_for(worked: Worked, seconds: float) -> float:
    """Jobs for each second of claiming and finishing, over so many seconds of everything."""
    done, busy = 0, 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        worked.fill()
        begin = time.perf_counter()
        done += worked.step()
        busy += time.perf_counter() - begin
    return done / busy
