"""Inserting, claiming and finishing jobs, and whole cycles, on both engines."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.job_store import SMALL, Databases, JobStore
from bench.measure import Case, Goal, Pace, Row, Slice, at_least, compare, stepwise

THREADS = 64
MANY = 1000  # jobs of one enqueue_many
CYCLE = 100
BATCHES: dict[int, Goal | None] = {1: None, 10: None, 100: at_least(0.60), 1000: None}


def cases() -> list[Case[Databases]]:
    return [
        Case("insert-single", insert_single),
        Case("insert-threads", insert_threads),
        Case("insert-many", insert_many),
        *(Case(f"claim-{batch}", _claim_case(batch, goal)) for batch, goal in BATCHES.items()),
        Case("cycle", cycle),
    ]


@contextmanager
def sides(databases: Databases) -> Iterator[tuple[JobStore, JobStore]]:
    with databases.raw() as raw, databases.holdfast() as holdfast:
        yield raw, holdfast


def insert_single(databases: Databases, pace: Pace) -> list[Row]:
    with sides(databases) as (raw, holdfast):
        title = "insert single, 1 thread"
        return [compare(title, inserting(raw), inserting(holdfast), pace, at_least(0.70))]


def insert_threads(databases: Databases, pace: Pace) -> list[Row]:
    """Compare with one connection that commits each job: the gain of group commit."""
    with sides(databases) as (raw, holdfast):
        title = f"insert single, {THREADS} threads"
        return [compare(title, inserting(raw), inserting_together(holdfast), pace, at_least(2.5))]


def insert_many(databases: Databases, pace: Pace) -> list[Row]:
    with sides(databases) as (raw, holdfast):
        title = f"insert many, {MANY} in a call"
        return [compare(title, inserting_many(raw), inserting_many(holdfast), pace, at_least(0.40))]


def _claim_case(batch: int, goal: Goal | None) -> Callable[[Databases, Pace], list[Row]]:
    def run(databases: Databases, pace: Pace) -> list[Row]:
        with sides(databases) as (raw, holdfast):
            worked = BatchWork(raw, batch), BatchWork(holdfast, batch)
            title = f"claim and finish, batches of {batch}"
            row = compare(title, worked[0].slice, worked[1].slice, pace, goal)
            for side in worked:
                side.check()
            return [row]

    return run


def cycle(databases: Databases, pace: Pace) -> list[Row]:
    with sides(databases) as (raw, holdfast):
        title = f"insert, claim and finish, batches of {CYCLE}"
        return [compare(title, cycling(raw), cycling(holdfast), pace)]


def inserting(store: JobStore) -> Slice:
    items: list[Any] = []

    def prepare() -> None:
        if not items:
            items.extend(store.make(MANY))

    def step() -> int:
        store.insert_one(items.pop())
        return 1

    return stepwise(step, prepare)


def inserting_together(store: JobStore) -> Slice:
    def run(seconds: float) -> float:
        counts = [0] * THREADS
        start = threading.Barrier(THREADS + 1)
        item = store.make(1)[0]

        def work(number: int) -> None:
            start.wait()
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                store.insert_one(item)
                counts[number] += 1

        threads = [threading.Thread(target=work, args=[number]) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        start.wait()
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.perf_counter() - begin)

    return run


def inserting_many(store: JobStore) -> Slice:
    items: list[Any] = []

    def prepare() -> None:
        items[:] = store.make(MANY)

    def step() -> int:
        store.insert_many(items)
        return MANY

    return stepwise(step, prepare)


def cycling(store: JobStore) -> Slice:
    items: list[Any] = []

    def prepare() -> None:
        items[:] = store.make(CYCLE)

    def step() -> int:
        store.insert_many(items)
        held = store.claim(CYCLE)
        store.finish(held)
        return len(held)

    return stepwise(step, prepare)


class BatchWork:
    """A queue that is claimed and finished in batches, and refilled outside the measured time."""

    def __init__(self, store: JobStore, batch: int, size: int = SMALL) -> None:
        self._store = store
        self._batch = batch
        self._size = size
        self._waiting = 0
        self._done = 0
        self.slice = stepwise(self.step, self.fill)

    def fill(self) -> None:
        while self._waiting < self._batch:
            self._store.insert_many(self._store.make(MANY, self._size))
            self._waiting += MANY

    def step(self) -> int:
        held = self._store.claim(self._batch)
        self._store.finish(held)
        if len(held) != self._batch:
            raise RuntimeError(f"{len(held)} jobs were claimed, {self._batch} asked for")
        self._waiting -= self._batch
        self._done += self._batch
        return self._batch

    def check(self) -> None:
        """Raise if jobs are not completed: the rate would be wrong."""
        if self._store.completed() != self._done:
            raise RuntimeError(f"{self._store.completed()} of {self._done} jobs are completed")
