"""Cases of PostgreSQL: plans stay good while tables grow, and an old snapshot, which keeps dead rows
from being removed, does not slow claims down."""

import time
from contextlib import closing
from dataclasses import replace

import psycopg

from bench.cases.jobs import BatchWork
from bench.databases import PostgresDatabases
from bench.holdfast_store import HoldfastStore
from bench.job_store import JobStore
from bench.measure import Case, Pace, Row, at_least, compare

BATCH = 100
PREPARING_USES = 12  # from the sixth use on, a prepared statement may keep one plan for good


def cases() -> list[Case[PostgresDatabases]]:
    return [Case("growth", growth), Case("snapshot", snapshot)]


def growth(databases: PostgresDatabases, pace: Pace) -> list[Row]:
    """Compare a table after many jobs with a new one, both with statements prepared on empty tables.
    Both are measured side by side, since the speed of the machine changes with time."""
    with databases.holdfast() as new, databases.holdfast() as used:
        for store in (new, used):
            prepare_statements(store)
        used_work = BatchWork(used, BATCH)
        for _ in range(pace.jobs // BATCH):
            used_work.fill()
            used_work.step()
        new_work = BatchWork(new, BATCH)
        title = f"claim and finish after {pace.jobs:,} jobs"
        row = compare(title, new_work.slice, used_work.slice, pace, at_least(0.85))
        return [row]


def prepare_statements(store: JobStore) -> None:
    for _ in range(PREPARING_USES):
        store.claim(BATCH)
        store.insert_many(store.make(BATCH))
        store.finish(store.claim(BATCH))


def snapshot(databases: PostgresDatabases, pace: Pace) -> list[Row]:
    """The damage grows with the jobs finished since the snapshot began, so it is measured in the last
    quarter, against a database without snapshots. Slices are long, since the full index walk, once a
    second, belongs to the rate. Only claims and finishes count: inserts do not meet the dead rows."""
    with databases.url() as url, closing(HoldfastStore(url)) as held, databases.holdfast() as free:
        for store in (held, free):
            prepare_statements(store)
        subject, control = BatchWork(held, BATCH), BatchWork(free, BATCH)
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
