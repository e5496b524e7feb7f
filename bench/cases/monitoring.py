"""The cost of statistics: queries on tables full of finished jobs, and a worker that writes
roll-ups."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg

from bench.holdfast_store import HoldfastStore
from bench.job_store import Databases
from bench.measure import Case, Goal, Pace, Row, Slice, at_least, at_most, compare
from holdfast import Holdfast, Task
from holdfast.worker.housekeeping.rollup_writer import RollupWriter
from tests.plans.dataset import MINUTES, Dataset, fill_postgres, fill_sqlite

FINISHED = 1_000_000
ASKED = 20  # times
JOBS = 5000
FAST, MODERATE = at_most(100.0, of="holdfast"), at_most(250.0, of="holdfast")  # milliseconds


def cases() -> list[Case[Databases]]:
    return [Case("stats-queries", queries_case), Case("stats-drain", drain_with_rollups)]


def queries_case(databases: Databases, pace: Pace) -> list[Row]:
    """`app.stats()` and `app.health()` beside finished jobs and a tenth as many waiting ones."""
    finished = FINISHED if pace.pairs > 5 else FINISHED // 5
    with databases.holdfast() as store:
        assert isinstance(store, HoldfastStore)
        store.close()  # the rows are inserted directly
        fill(store.app.url, Dataset(finished))
        with Holdfast(store.app.url) as app:
            queries: dict[str, tuple[Callable[[], object], Goal]] = {
                "stats": (app.stats, FAST),
                "stats of a day": (lambda: app.stats(window="1d"), MODERATE),
                "health": (app.health, FAST),
            }
            assert app.stats().figures.finished
            note = f"{MINUTES // 60} h of roll-ups"
            return [
                Row(
                    f"{name} in ms, {finished:,} finished", None, median_ms(query), None, goal, note
                )
                for name, (query, goal) in queries.items()
            ]


def fill(url: str, world: Dataset) -> None:
    if url.startswith("sqlite"):
        fill_sqlite(Path(url.removeprefix("sqlite:///")), world)
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM holdfast.workers")  # the store's own
        fill_postgres(connection, "holdfast", world)
        for table in ("jobs", "rollups"):
            connection.execute(f"VACUUM (ANALYZE) holdfast.{table}")


def median_ms(query: Callable[[], object]) -> float:
    """Return the median time of a query in milliseconds."""
    times = []
    for _ in range(ASKED):
        begin = time.perf_counter()
        query()
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times)


def drain_with_rollups(databases: Databases, pace: Pace) -> list[Row]:
    """A worker in this process, with and without roll-ups."""
    with databases.holdfast() as store:
        assert isinstance(store, HoldfastStore)

        @store.app.task(name="noop")
        async def noop() -> None: ...

        title = f"drain {JOBS:,}, with roll-ups against without"
        sides = drained(store.app, noop, count=False), drained(store.app, noop, count=True)
        return [compare(title, *sides, pace, at_least(0.95))]


def drained(app: Holdfast, task: Task[..., Any], *, count: bool) -> Slice:
    def run(_: float) -> float:
        app.queues.pause("default")
        task.enqueue_many([{}] * JOBS)
        with (
            patch.object(RollupWriter, "count", RollupWriter.count if count else ignore),
            app.worker() as worker,
        ):
            while worker.id is None:
                time.sleep(0.001)
            begin = time.perf_counter()
            app.queues.resume("default")
            worker.join()
            return JOBS / (time.perf_counter() - begin)

    return run


def ignore(*_: object) -> None:
    """Replace `RollupWriter.count`: count nothing."""
