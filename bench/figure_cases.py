"""What figures cost: who asks for them, on tables full of finished jobs; and a worker that counts."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg

from bench.cases import Case
from bench.measure import Goal, Pace, Row, Slice, at_least, at_most, compare
from bench.ours import Ours
from bench.store import Place
from holdfast import Holdfast, Task
from holdfast.worker.housekeeping.rollup_writer import RollupWriter
from tests.plans.dataset import MINUTES, Dataset, fill_postgres, fill_sqlite

FINISHED = 1_000_000
ASKED = 20  # times
JOBS = 5000
QUICKLY, WITHOUT_HURRY = at_most(100.0, of="ours"), at_most(250.0, of="ours")  # milliseconds


def of_figures() -> list[Case[Place]]:
    return [Case("figures-asked", asked), Case("figures-drain", counted)]


def asked(place: Place, pace: Pace) -> list[Row]:
    """`app.stats()` and `app.health()` beside finished jobs, and those that wait, a tenth as many."""
    finished = FINISHED if pace.pairs > 5 else FINISHED // 5
    with place.ours() as store:
        assert isinstance(store, Ours)
        store.close()  # filled past it
        fill(store.app.url, Dataset(finished))
        with Holdfast(store.app.url) as app:
            asks: dict[str, tuple[Callable[[], object], Goal]] = {
                "stats": (app.stats, QUICKLY),
                "stats of a day": (lambda: app.stats(window="1d"), WITHOUT_HURRY),
                "health": (app.health, QUICKLY),
            }
            assert app.stats().figures.finished
            note = f"{MINUTES // 60} h of roll-ups"
            return [
                Row(f"{name} in ms, {finished:,} finished", None, took(ask), None, goal, note)
                for name, (ask, goal) in asks.items()
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


def took(ask: Callable[[], object]) -> float:
    """Milliseconds, the median."""
    times = []
    for _ in range(ASKED):
        begin = time.perf_counter()
        ask()
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times)


def counted(place: Place, pace: Pace) -> list[Row]:
    """A worker in this process, with and without its tally."""
    with place.ours() as store:
        assert isinstance(store, Ours)

        @store.app.task(name="noop")
        async def noop() -> None: ...

        title = f"drain {JOBS:,}, counted against not"
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
    """Instead of counting."""
