"""The cases that both engines go through: inserting, claiming and finishing, and all of it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bench.measure import Goal, Pace, Row, Slice, at_least, compare, stepwise
from bench.store import SMALL, Place, Store

SomePlace = TypeVar("SomePlace", bound=Place, contravariant=True)

THREADS = 64
MANY = 1000  # jobs of one enqueue_many
CYCLE = 100
BATCHES: dict[int, Goal | None] = {1: None, 10: None, 100: at_least(0.60), 1000: None}


@dataclass(frozen=True, slots=True)
class Case(Generic[SomePlace]):
    """`--only` goes by the name."""

    name: str
    run: Callable[[SomePlace, Pace], list[Row]]


def shared() -> list[Case[Place]]:
    return [
        Case("insert-single", insert_single),
        Case("insert-threads", insert_threads),
        Case("insert-many", insert_many),
        *(Case(f"claim-{batch}", _claim_case(batch, goal)) for batch, goal in BATCHES.items()),
        Case("cycle", cycle),
    ]


@contextmanager
def sides(place: Place) -> Iterator[tuple[Store, Store]]:
    with place.raw() as raw, place.ours() as ours:
        yield raw, ours


def insert_single(place: Place, pace: Pace) -> list[Row]:
    with sides(place) as (raw, ours):
        title = "insert single, 1 thread"
        return [compare(title, inserting(raw), inserting(ours), pace, at_least(0.70))]


def insert_threads(place: Place, pace: Pace) -> list[Row]:
    """Against one connection that commits each job: what threads gain by sharing a commit."""
    with sides(place) as (raw, ours):
        title = f"insert single, {THREADS} threads"
        return [compare(title, inserting(raw), inserting_together(ours), pace, at_least(2.5))]


def insert_many(place: Place, pace: Pace) -> list[Row]:
    with sides(place) as (raw, ours):
        title = f"insert many, {MANY} at once"
        return [compare(title, inserting_many(raw), inserting_many(ours), pace, at_least(0.40))]


def _claim_case(batch: int, goal: Goal | None) -> Callable[[Place, Pace], list[Row]]:
    def run(place: Place, pace: Pace) -> list[Row]:
        with sides(place) as (raw, ours):
            worked = Worked(raw, batch), Worked(ours, batch)
            title = f"claim and finish, {batch} at once"
            row = compare(title, worked[0].slice, worked[1].slice, pace, goal)
            for side in worked:
                side.check()
            return [row]

    return run


def cycle(place: Place, pace: Pace) -> list[Row]:
    with sides(place) as (raw, ours):
        title = f"insert, claim and finish, {CYCLE} at once"
        return [compare(title, cycling(raw), cycling(ours), pace)]


def inserting(store: Store) -> Slice:
    items: list[Any] = []

    def prepare() -> None:
        if not items:
            items.extend(store.make(MANY))

    def step() -> int:
        store.insert_one(items.pop())
        return 1

    return stepwise(step, prepare)


def inserting_together(store: Store) -> Slice:
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


def inserting_many(store: Store) -> Slice:
    items: list[Any] = []

    def prepare() -> None:
        items[:] = store.make(MANY)

    def step() -> int:
        store.insert_many(items)
        return MANY

    return stepwise(step, prepare)


def cycling(store: Store) -> Slice:
    items: list[Any] = []

    def prepare() -> None:
        items[:] = store.make(CYCLE)

    def step() -> int:
        store.insert_many(items)
        held = store.claim(CYCLE)
        store.finish(held)
        return len(held)

    return stepwise(step, prepare)


class Worked:
    """A queue that is claimed and finished in batches, and filled while nobody looks at the clock."""

    def __init__(self, store: Store, batch: int, size: int = SMALL) -> None:
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
        """A rate counts only if the jobs did end up completed."""
        if self._store.completed() != self._done:
            raise RuntimeError(f"{self._store.completed()} of {self._done} jobs are completed")
