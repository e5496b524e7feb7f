"""A snapshot of jobs, queues and workers. Stats and health share one, so that they agree and read
nothing twice."""

from datetime import datetime
from functools import cached_property

from holdfast.engine.engine import Engine
from holdfast.engine.records import QueueInfo
from holdfast.jobs.job import Status
from holdfast.monitoring.worker_status import WorkerView, view
from holdfast.monitoring.write_probe import write_problem

CAP = 10_000  #: jobs are counted up to this


class Snapshot:
    """Each part is read once, when it is first used; so they differ by the time between the reads."""

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
        """Every worker that has a row, dead ones too."""
        return [view(worker, self.now) for worker in self.engine.workers()]

    @cached_property
    def waiting(self) -> list[tuple[str, str, float]]:
        """Queue, type, and the seconds since the longest waiting of these jobs was due."""
        overdue = self.engine.overdue()
        due = [*self.engine.backlog(), *([] if overdue is None else [overdue])]
        return [(queue, type, max(0.0, (self.now - at).total_seconds())) for queue, type, at in due]

    @cached_property
    def write_problem(self) -> str | None:
        """Why the database does not commit a write; None if it does."""
        return write_problem(self.engine)

    @property
    def longest(self) -> dict[str, float]:
        """How long the longest waiting job of each queue has been due."""
        found: dict[str, float] = {}
        for queue, _, age in self.waiting:
            found[queue] = max(age, found.get(queue, 0.0))
        return dict(sorted(found.items()))
