"""A snapshot of jobs, queues and workers. `app.stats()` and `app.health()` share one, so that their
numbers agree and nothing is read twice."""

import threading
import time
from datetime import datetime
from functools import cached_property
from weakref import WeakKeyDictionary

from holdfast.engine.engine import Engine
from holdfast.engine.records import QueueInfo
from holdfast.errors import HoldfastError
from holdfast.jobs.job import Status
from holdfast.monitoring.metrics import Point, since
from holdfast.monitoring.worker_status import WorkerView, view

CAP = 10_000  #: jobs are counted up to this
_WRITABLE_KEPT = 10.0  # seconds that a successful test write is cached, in this process
_REFUSAL_KEPT = 1.0


class Snapshot:
    """The state of a database. Each part is read once, when it is first used; so the parts differ by
    the time between their reads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @cached_property
    def now(self) -> datetime:
        return self.engine.now()

    @cached_property
    def jobs(self) -> dict[Status, int]:
        return self.engine.counts(cap=CAP)

    @cached_property
    def queues(self) -> list[QueueInfo]:
        return self.engine.queues(cap=CAP)

    @cached_property
    def workers(self) -> list[WorkerView]:
        """All workers that have a row, also dead ones."""
        return [view(worker, self.now) for worker in self.engine.workers()]

    @property
    def alive(self) -> list[WorkerView]:
        return [worker for worker in self.workers if worker.alive]

    @cached_property
    def waiting(self) -> list[tuple[str, str, float]]:
        """The backlog: queue, type, and the seconds since the longest waiting job of both was due."""
        overdue = self.engine.overdue()
        due = [*self.engine.backlog(), *([] if overdue is None else [overdue])]
        return [(queue, type, max(0.0, (self.now - at).total_seconds())) for queue, type, at in due]

    @property
    def longest(self) -> dict[str, float]:
        """By queue: the seconds since its longest waiting job was due."""
        found: dict[str, float] = {}
        for queue, _, age in self.waiting:
            found[queue] = max(age, found.get(queue, 0.0))
        return dict(sorted(found.items()))

    def last(self, seconds: float) -> list[Point]:
        """Return the figures of the last `seconds`, for each minute in which runs ended."""
        return self.engine.series(since(self.now, seconds))

    @cached_property
    def write_problem(self) -> str | None:
        """Why the database does not commit writes; None if it does, or did so a few seconds ago."""
        with _making:
            probe = _probes.setdefault(self.engine, _WriteProbe())
        return probe.problem(self.engine)


class _WriteProbe:
    """Tries to write to one database. Concurrent callers share one write and its result."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._problem: str | None = None

    def problem(self, engine: Engine) -> str | None:
        with self._lock:
            if time.monotonic() >= self._until:
                try:
                    engine.probe()
                    self._problem, kept = None, _WRITABLE_KEPT
                except HoldfastError as problem:  # of any kind: a job could not be written either
                    self._problem, kept = str(problem), _REFUSAL_KEPT
                self._until = time.monotonic() + kept
            return self._problem


_probes: WeakKeyDictionary[Engine, _WriteProbe] = WeakKeyDictionary()
_making = threading.Lock()
