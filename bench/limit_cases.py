"""What limits cost: others, while a task is full; and a task that has room."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.cases import Case
from bench.measure import Goal, Pace, Row, Slice, at_least, compare, stepwise
from bench.ours import Ours
from bench.store import KEEP, QUEUE, RESULT, WORKER, Place
from holdfast import Limit, Task
from holdfast.jobs import outcome

BATCH = 100
ROOM = 1000
WAITING = 100_000  # jobs of the full task, and keys of the other
GOALS = {"beside": at_least(0.80), "room": at_least(0.70)}


def of_limits() -> list[Case[Place]]:
    return [Case("limits-beside", beside), Case("limits-room", room)]


def handler(tenant: int = 0) -> None:
    """Never run."""


class Crowd:
    """A queue with some tasks, worked on as a worker does: asked for, and finished."""

    def __init__(self, store: Ours, **limits: Mapping[str, Any]) -> None:
        self.app = store.app
        self.waits: list[float] | None = None  #: milliseconds that claims took, if somebody asks
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
        """Until everything that must wait has been put aside."""
        engine = self.app.engine
        while engine.claimer.fetch(
            QUEUE, 1000, worker=WORKER, types=list(self.tasks), rules=self._rules
        ).more:
            continue


@contextmanager
def crowds(place: Place, *kinds: Mapping[str, Mapping[str, Any]]) -> Iterator[list[Crowd]]:
    with ExitStack() as stack:
        stores = [stack.enter_context(place.ours()) for _ in kinds]
        yield [
            Crowd(store, **kind)
            for store, kind in zip(stores, kinds, strict=True)
            if isinstance(store, Ours)
        ]


def beside(place: Place, pace: Pace) -> list[Row]:
    """An unlimited task, beside nothing and beside 200,000 jobs that may not run."""
    limited: dict[str, dict[str, Any]] = {
        "free": {},
        "full": {"concurrency": 1},
        "keyed": {"concurrency": Limit(1, per="tenant")},
    }
    waiting = WAITING if pace.pairs > 5 else WAITING // 10
    with crowds(place, {"free": {}}, limited) as (alone, full):
        full.fill("full", [{}] * waiting)
        full.fill("keyed", [{"tenant": 0}])
        full.settle()  # now the limits are known, and one of each runs
        full.app.limits.set("keyed/tenant", 0)
        full.fill("keyed", [{"tenant": number} for number in range(waiting)])
        full.settle()
        title = f"claim and finish beside {2 * waiting:,} that may not run"
        row = compare(title, alone.work("free"), full.work("free"), pace, GOALS["beside"])
        assert full.app.jobs.count(status="blocked") == waiting
        return [row]


def room(place: Place, pace: Pace) -> list[Row]:
    """A limited task that has room, against one without limits."""
    kinds: dict[str, tuple[dict[str, Any], Goal]] = {
        "for the task": ({"concurrency": ROOM}, GOALS["room"]),
        "for each of 10 keys": ({"concurrency": Limit(ROOM, per="tenant")}, GOALS["room"]),
        "by rate": ({"rate": "1000000/s"}, GOALS["room"]),
    }
    rows = []
    for title, (options, goal) in kinds.items():
        with crowds(place, {"free": {}}, {"limited": options}) as (free, limited):
            sides = free.work("free", 10), limited.work("limited", 10)
            rows.append(compare(f"claim and finish, room {title}", *sides, pace, goal))
    return rows
