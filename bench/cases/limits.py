"""The cost of limits: for other tasks while a limit is reached, and for a task below its limit."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.holdfast_store import HoldfastStore
from bench.job_store import KEEP, QUEUE, RESULT, WORKER, Databases
from bench.measure import Case, Goal, Pace, Row, Slice, at_least, compare, stepwise
from holdfast import Limit, Task
from holdfast.jobs import outcome

BATCH = 100
CAPACITY = 1000
WAITING = 100_000  # jobs of the task at its limit, and keys of the other
GOALS = {"reached": at_least(0.80), "free": at_least(0.70)}


def cases() -> list[Case[Databases]]:
    return [Case("limits-reached", reached), Case("limits-free", free_capacity)]


def handler(tenant: int = 0) -> None:
    """Do nothing; no job of it runs."""


class LimitedQueue:
    """A queue with some tasks, whose jobs are claimed and finished as by a worker."""

    def __init__(self, store: HoldfastStore, **limits: Mapping[str, Any]) -> None:
        self.app = store.app
        self.waits: list[float] | None = None  #: durations of claims in milliseconds, if recorded
        self.tasks: dict[str, Task[..., None]] = {
            name: self.app.task(name=name, queue=QUEUE, **options)(handler)
            for name, options in limits.items()
        }
        self._rules = {name: task.rule for name, task in self.tasks.items() if task.rule}

    def fill(self, name: str, calls: Sequence[dict[str, int]]) -> None:
        for start in range(0, len(calls), 5000):
            self.tasks[name].enqueue_many(calls[start : start + 5000])

    def work(self, name: str, tenants: int = 1) -> Slice:
        calls = [{"tenant": number % tenants} for number in range(BATCH)]
        return stepwise(self._step, lambda: self.fill(name, calls))

    def _step(self) -> int:
        return self.step(BATCH)

    def step(self, free: int) -> int:
        begin = time.perf_counter()
        found = self.app.engine.claimer.fetch(
            QUEUE, free, worker=WORKER, types=list(self.tasks), rules=self._rules
        )
        if self.waits is not None:
            self.waits.append(1000 * (time.perf_counter() - begin))
        self.app.engine.finish([outcome.completed(job, RESULT, keep=KEEP) for job in found.jobs])
        return len(found.jobs)

    def settle(self) -> None:
        """Claim until all jobs that must wait are parked."""
        engine = self.app.engine
        while engine.claimer.fetch(
            QUEUE, 1000, worker=WORKER, types=list(self.tasks), rules=self._rules
        ).more:
            continue


@contextmanager
def limited_queues(
    databases: Databases, *kinds: Mapping[str, Mapping[str, Any]]
) -> Iterator[list[LimitedQueue]]:
    with ExitStack() as stack:
        stores = [stack.enter_context(databases.holdfast()) for _ in kinds]
        yield [
            LimitedQueue(store, **kind)
            for store, kind in zip(stores, kinds, strict=True)
            if isinstance(store, HoldfastStore)
        ]


def reached(databases: Databases, pace: Pace) -> list[Row]:
    """An unlimited task, alone and beside 200,000 jobs that must wait for their limits."""
    limited: dict[str, dict[str, Any]] = {
        "free": {},
        "full": {"concurrency": 1},
        "keyed": {"concurrency": Limit(1, per="tenant")},
    }
    waiting = WAITING if pace.pairs > 5 else WAITING // 10
    with limited_queues(databases, {"free": {}}, limited) as (alone, full):
        full.fill("full", [{}] * waiting)
        full.fill("keyed", [{"tenant": 0}])
        full.settle()  # now the limits are known, and one job of each runs
        full.app.limits.set("keyed/tenant", 0)
        full.fill("keyed", [{"tenant": number} for number in range(waiting)])
        full.settle()
        title = f"claim and finish beside {2 * waiting:,} that must wait"
        row = compare(title, alone.work("free"), full.work("free"), pace, GOALS["reached"])
        assert full.app.jobs.count(status="blocked") == waiting
        return [row]


def free_capacity(databases: Databases, pace: Pace) -> list[Row]:
    """A task below its limit, against a task without limits."""
    kinds: dict[str, tuple[dict[str, Any], Goal]] = {
        "for the task": ({"concurrency": CAPACITY}, GOALS["free"]),
        "for each of 10 keys": ({"concurrency": Limit(CAPACITY, per="tenant")}, GOALS["free"]),
        "by rate": ({"rate": "1000000/s"}, GOALS["free"]),
    }
    rows = []
    for title, (options, goal) in kinds.items():
        with limited_queues(databases, {"free": {}}, {"limited": options}) as (free, limited):
            sides = free.work("free", 10), limited.work("limited", 10)
            rows.append(compare(f"claim and finish, below a limit {title}", *sides, pace, goal))
    return rows
