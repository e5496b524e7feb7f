"""What only PostgreSQL is asked: that a plan stays good while its table grows, and that somebody's
old snapshot, which keeps every dead row in the way, does not slow the claims."""

import time
from contextlib import closing
from dataclasses import replace

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
    """The harm grows with what was finished since the snapshot began, so it is looked at in the last
    quarter, against a database that nobody holds anything of. The look at everything, once a second,
    belongs to the rate: the slices are as long as the full run allows, and only claims and finishes
    are counted, since inserts do not meet the dead rows."""
    with place.url() as url, closing(Ours(url)) as held, place.ours() as free:
        for store in (held, free):
            rehearse(store)
        subject, control = Worked(held, BATCH), Worked(free, BATCH)
        with psycopg.connect(url) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM holdfast.workers").fetchall()
            end = time.monotonic() + pace.snapshot * 3 / 4
            while time.monotonic() < end:
                subject.fill()
                subject.step()
            title = f"claim and finish, snapshot held {pace.snapshot:g} s"
            look = replace(pace, pairs=5, seconds=pace.snapshot / 60)
            return [compare(title, control.slice, subject.slice, look, at_least(0.80))]
